package locallog

import (
	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
)

// Found is a record, or rather its offset, found by its timestamp.
type Found struct {
	Offset      cluster.Offset
	Timestamp   int64
	LeaderEpoch cluster.LeaderEpoch
}

// OffsetForTimestamp finds the first local record at or above the log start and
// below bound whose timestamp is at least ts.
func (l *Log) OffsetForTimestamp(ts int64, bound cluster.Offset) (Found, bool, error) {
	var found Found
	var ok bool
	err := l.consistently(func(s *segments) (err error) {
		found, ok = Found{}, false
		for _, seg := range s.row {
			if seg.Base() >= bound || ok {
				return nil
			}
			if seg.Info().MaxTimestamp < ts {
				continue
			}
			if found, ok, err = l.searchTimestamp(seg, ts, bound); err != nil {
				return err
			}
		}
		return nil
	})
	return found, ok, err
}

// searchTimestamp goes through the batches whose headers promise the timestamp:
// what they promise may lie below the log start.
func (l *Log) searchTimestamp(seg *segment.Segment, ts int64, bound cluster.Offset) (Found, bool, error) {
	var d recordbatch.Decoder
	start := l.StartOffset()
	for from := start; ; {
		b, ok, err := seg.FirstAtTime(ts, from, bound)
		if err != nil || !ok {
			return Found{}, false, err
		}
		o, at, ok, err := recordbatch.OffsetForTimestampFrom(b, ts, start, &d)
		if err != nil {
			return Found{}, false, err
		}
		if ok {
			return Found{o, at, b.PartitionLeaderEpoch()}, o < bound, nil
		}
		from = b.NextOffset()
	}
}

// MaxTimestamp finds the first local record below bound with the greatest timestamp.
func (l *Log) MaxTimestamp(bound cluster.Offset) (Found, bool, error) {
	var found Found
	var ok bool
	err := l.consistently(func(s *segments) error {
		found, ok = Found{}, false
		var in *segment.Segment
		greatest := int64(recordbatch.NoTimestamp)
		for _, seg := range s.row {
			ts, any, err := seg.MaxTimestamp(l.StartOffset(), bound)
			if err != nil {
				return err
			}
			if any && ts > greatest {
				in, greatest = seg, ts
			}
		}
		if in == nil {
			return nil
		}
		b, any, err := in.FirstAtTime(greatest, l.StartOffset(), bound)
		if err != nil || !any {
			return err
		}
		var d recordbatch.Decoder
		o, any, err := recordbatch.OffsetOfMaxTimestamp(b, &d)
		found, ok = Found{o, greatest, b.PartitionLeaderEpoch()}, any
		return err
	})
	return found, ok, err
}
