package partition

import (
	"time"

	"strandline/metadata/cluster"
)

// OffsetsBefore answers ListOffsets as it was before there was a time index: the
// first offsets of the segments that were last written at or before the
// timestamp, and the end where that is not in the future, highest first, at most
// max of them. LatestTimestamp and EarliestTimestamp start at the end and at the
// log's start. The remote part counts as one segment that is older than all.
func (p *Partition) OffsetsBefore(timestamp int64, max int, replica cluster.BrokerID) ([]cluster.Offset, error) {
	if _, err := p.leader(cluster.NoLeaderEpoch); err != nil {
		return nil, err
	}
	type place struct {
		offset   cluster.Offset
		modified time.Time
	}
	b := p.bounds()
	end := b.visible(replica, false)
	places := []place{{offset: b.start}}
	for _, s := range p.log.Segments() {
		at := place{offset: s.Base, modified: s.Modified}
		if s.Next <= b.start && s.Sealed {
			continue
		}
		if s.Base <= b.start {
			at.offset, places = b.start, places[:0]
		}
		if at.offset <= end {
			places = append(places, at)
		}
	}
	if last := places[len(places)-1]; last.offset < end {
		places = append(places, place{offset: end, modified: p.cfg.Now()})
	}
	from := len(places) - 1
	switch timestamp {
	case LatestTimestamp:
	case EarliestTimestamp:
		from = 0
	default:
		for from >= 0 && places[from].modified.UnixMilli() > timestamp {
			from--
		}
	}
	var found []cluster.Offset
	for ; from >= 0 && len(found) < max; from-- {
		found = append(found, places[from].offset)
	}
	return found, nil
}
