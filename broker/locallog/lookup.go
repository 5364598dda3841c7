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
	err := l.consistently(func(s *segments) (err error) {
		found, ok, err = l.maxTimestamp(s.row, bound)
		return err
	})
	return found, ok, err
}

func (l *Log) maxTimestamp(row []*segment.Segment, bound cluster.Offset) (Found, bool, error) {
	start := l.StartOffset()
	greatest := make([]int64, len(row)) // by the headers of the batches
	for i, seg := range row {
		ts, any, err := seg.MaxTimestamp(start, bound)
		if err != nil {
			return Found{}, false, err
		}
		if greatest[i] = ts; !any {
			greatest[i] = recordbatch.NoTimestamp
		}
	}
	counted := make([]bool, len(row))
	for {
		i := 0
		for j, ts := range greatest {
			if ts > greatest[i] {
				i = j
			}
		}
		if greatest[i] <= recordbatch.NoTimestamp {
			return Found{}, false, nil
		}
		found, ok, err := firstAt(row[i], greatest[i], start, bound)
		if err != nil || ok || counted[i] {
			return found, ok, err
		}
		// Compaction has left nothing but the header of the batch that had it.
		counted[i] = true
		ts, any, err := row[i].MaxTimestampOfRecords(start, bound)
		if err != nil {
			return Found{}, false, err
		}
		if greatest[i] = ts; !any {
			greatest[i] = recordbatch.NoTimestamp
		}
	}
}

// firstAt finds the first record with a segment's greatest timestamp.
func firstAt(seg *segment.Segment, greatest int64, start, bound cluster.Offset) (Found, bool, error) {
	var d recordbatch.Decoder
	for from := start; ; {
		b, any, err := seg.FirstAtTime(greatest, from, bound)
		if err != nil || !any {
			return Found{}, false, err
		}
		o, any, err := recordbatch.OffsetOfMaxTimestamp(b, &d)
		if err != nil || any {
			return Found{o, greatest, b.PartitionLeaderEpoch()}, any, err
		}
		from = b.NextOffset()
	}
}
