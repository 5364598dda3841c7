package locallog

import (
	"errors"
	"fmt"

	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// regionsMax bounds the segments that one read spans.
const regionsMax = 32

// readAttempts bounds how often a read starts over because segments were
// replaced under it.
const readAttempts = 10

// Slice is a range of the log, ready to be sent.
type Slice struct {
	// Regions hold whole batches in offset order. Release them.
	Regions []disk.Region
	Bytes   int64
	// NextOffset is one past the last batch's last record, or the offset that the
	// next batch starts at; the asked offset where the slice is empty.
	NextOffset cluster.Offset
}

// Release gives back the regions.
func (s *Slice) Release() {
	for _, r := range s.Regions {
		r.Release()
	}
	s.Regions, s.Bytes = nil, 0
}

// Read returns whole batches from the one that reaches past from, all of them
// below bound (exclusive: high watermark, last stable or end offset), of at most
// maxBytes together, or one batch of any size where minOne. An offset at or past
// the bound and not past the end gives an empty slice.
func (l *Log) Read(from, bound cluster.Offset, maxBytes int, minOne bool) (Slice, error) {
	slice := Slice{NextOffset: from}
	lim := segment.Limits{Bound: bound, MaxBytes: int64(maxBytes), MinOne: minOne}
	err := l.consistently(func(s *segments) error {
		slice.Release()
		slice.NextOffset = from
		if err := l.inRange(from, s); err != nil {
			return err
		}
		if from >= bound {
			return nil
		}
		return l.readFrom(s, lim, &slice)
	})
	if err != nil {
		slice.Release()
	}
	return slice, err
}

// consistently runs fn with the segments, and again where those were replaced
// while it ran and it failed because of that.
func (l *Log) consistently(fn func(s *segments) error) error {
	for attempt := 1; ; attempt++ {
		if err := l.usable(); err != nil {
			return err
		}
		s := l.segments.Load()
		err := fn(s)
		if err == nil || errors.Is(err, ErrOffsetOutOfRange) || errors.Is(err, ErrNotLocal) {
			return err
		}
		if l.closed.Load() {
			return ErrClosed
		}
		if attempt == readAttempts || !l.changed(s) {
			var corrupt *segment.CorruptError
			if errors.As(err, &corrupt) {
				return err
			}
			return fmt.Errorf("%w: %w", ErrStorage, err)
		}
	}
}

// changed says whether segments were replaced or removed, and waits until their
// successors are there: whoever removes one publishes a row without it, or fails
// the log, which publishes too.
func (l *Log) changed(s *segments) bool {
	for _, seg := range s.row {
		if seg.Removed() {
			<-s.replaced
			return true
		}
	}
	return s != l.segments.Load()
}

func (l *Log) inRange(o cluster.Offset, s *segments) error {
	switch start, end := l.StartOffset(), l.EndOffset(); {
	case o < start || o > end:
		return fmt.Errorf("%w: %d, the log has %d to %d", ErrOffsetOutOfRange, o, start, end)
	case o < s.first().Base():
		return fmt.Errorf("%w: %d, local from %d", ErrNotLocal, o, s.first().Base())
	}
	return nil
}

// readFrom goes from segment to segment while there is room.
func (l *Log) readFrom(s *segments, lim segment.Limits, slice *Slice) error {
	since := l.recent.since()
	for i := s.at(slice.NextOffset); i < len(s.row) && len(slice.Regions) < regionsMax; i++ {
		seg := s.row[i]
		if seg.Base() >= lim.Bound {
			return nil
		}
		r, err := seg.Range(slice.NextOffset, lim)
		if err != nil {
			return err
		}
		if bytes := r.End - r.Start; bytes > 0 {
			h, err := seg.Acquire()
			if err != nil {
				return err
			}
			slice.Regions = append(slice.Regions, disk.Region{Handle: h, Position: r.Start, Bytes: bytes, Resident: seg.Resident(r.Start, since)})
			slice.Bytes += bytes
			slice.NextOffset = r.Next
			lim.MaxBytes -= bytes
			lim.MinOne = false
		}
		if !r.AtEnd || lim.MaxBytes <= 0 && !lim.MinOne {
			return nil
		}
	}
	return nil
}

// BatchInfo is where the batch lies that holds an offset.
type BatchInfo struct {
	Base, Next   cluster.Offset // Next is exclusive
	SegmentBase  cluster.Offset
	Position     int64
	Bytes        int64
	LeaderEpoch  cluster.LeaderEpoch
	MaxTimestamp int64
}

// FindBatch tells where the first batch lies that reaches past o.
// ErrOffsetOutOfRange at the end offset, or above.
func (l *Log) FindBatch(o cluster.Offset) (BatchInfo, error) {
	var out BatchInfo
	err := l.consistently(func(s *segments) error {
		if err := l.inRange(o, s); err != nil {
			return err
		}
		for _, seg := range s.row[s.at(o):] {
			h, ok, err := seg.FindBatch(o)
			if err != nil {
				return err
			}
			if ok {
				out = BatchInfo{
					Base: h.Base, Next: h.Next, SegmentBase: seg.Base(), Position: h.Position,
					Bytes: h.Bytes, LeaderEpoch: h.LeaderEpoch, MaxTimestamp: h.MaxTimestamp,
				}
				return nil
			}
		}
		return fmt.Errorf("%w: no batch reaches past %d", ErrOffsetOutOfRange, o)
	})
	return out, err
}
