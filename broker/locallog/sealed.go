package locallog

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// SealedView holds a sealed segment open, with all that an archive needs. The
// file stays readable until Release, whatever happens to the log.
type SealedView struct {
	SegmentInfo
	// Handle is the .log file; the view holds one reference.
	Handle *disk.Handle
	// OffsetOfMaxTimestamp is the last offset of the batch with MaxTimestamp.
	OffsetOfMaxTimestamp cluster.Offset
	// OffsetIndex and TimeIndex are the whole indexes.
	OffsetIndex []segment.OffsetEntry
	TimeIndex   []segment.TimeEntry
	// Epochs are the leader epochs of the segment's records, the first one
	// starting at Base at the earliest.
	Epochs []leaderepoch.Entry
	// ProducerSnapshot is the producer state at Next in Kafka's snapshot format.
	ProducerSnapshot []byte

	release sync.Once
}

// Release gives the file back. Idempotent.
func (v *SealedView) Release() { v.release.Do(v.Handle.Release) }

// Sealed opens a view of the sealed segment with that base offset; ErrNoSegment.
func (l *Log) Sealed(base cluster.Offset) (*SealedView, error) {
	var v *SealedView
	err := l.consistently(func(s *segments) (err error) {
		i := s.at(base)
		if s.row[i].Base() != base || !s.row[i].Info().Sealed {
			v = nil
			return nil
		}
		v, err = l.view(s, i)
		return err
	})
	if err == nil && v == nil {
		err = fmt.Errorf("%w: base offset %d", ErrNoSegment, base)
	}
	return v, err
}

func (l *Log) view(s *segments, i int) (_ *SealedView, err error) {
	seg := s.row[i]
	v := &SealedView{SegmentInfo: infoOf(seg), OffsetOfMaxTimestamp: seg.Info().OffsetOfMaxTimestamp}
	if err = v.takeIndexes(seg); seg.IndexDamaged(err) {
		if err = seg.Reindex(err); err == nil {
			err = v.takeIndexes(seg)
		}
		v.SegmentInfo, v.OffsetOfMaxTimestamp = infoOf(seg), seg.Info().OffsetOfMaxTimestamp
	}
	if err != nil {
		return nil, err
	}
	if v.ProducerSnapshot, err = l.snapshotAt(v.Next, s.row[:i+1]); err != nil {
		return nil, err
	}
	v.Epochs = l.Epochs().Range(v.Base, v.Next).Entries()
	v.Handle, err = seg.Acquire()
	return v, err
}

func (v *SealedView) takeIndexes(seg *segment.Segment) (err error) {
	if v.OffsetIndex, err = seg.OffsetIndex(); err != nil {
		return err
	}
	v.TimeIndex, err = seg.TimeIndex()
	return err
}

// snapshotAt is the producer snapshot at o: the file, if it is usable, else one
// that is made from an older one and the log.
func (l *Log) snapshotAt(o cluster.Offset, row []*segment.Segment) ([]byte, error) {
	data, err := disk.ReadFile(l.config.FS, l.snapshotName(o))
	if err == nil {
		if err = producerstate.New(l.config.Producers).Load(data, o, l.now()); err == nil {
			return data, nil
		}
	}
	if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, producerstate.ErrCorruptSnapshot) {
		return nil, err
	}
	m, err := l.producersAt(o, row)
	if err != nil {
		return nil, err
	}
	return m.Snapshot(), nil
}
