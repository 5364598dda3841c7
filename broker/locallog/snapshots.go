package locallog

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"strandline/broker/producerstate"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

func (l *Log) snapshotName(o cluster.Offset) string {
	return path.Join(l.config.Dir, segment.Name(o, segment.SnapshotSuffix))
}

// Producers is the producer state at the end offset; for the writer only, which
// checks with it and lets Append update it.
func (l *Log) Producers() *producerstate.Manager { return l.producers }

// writeSnapshot writes the producer state as that at o. Unsynced it is made
// durable by the Flush that covers the segment before it; its checksum tells a
// torn one.
func (l *Log) writeSnapshot(o cluster.Offset, sync bool) error {
	write := disk.WriteFileUnsynced
	if sync {
		write = disk.WriteFileAtomic
	}
	if err := write(l.config.FS, l.snapshotName(o), l.producers.Snapshot()); err != nil {
		return err
	}
	l.noteSnapshot(o)
	return nil
}

func (l *Log) noteSnapshot(o cluster.Offset) {
	if i, found := slices.BinarySearch(l.snapshots, o); !found {
		l.snapshots = slices.Insert(l.snapshots, i, o)
	}
}

// syncSnapshot makes the snapshot at o durable, if there is one.
func (l *Log) syncSnapshot(o cluster.Offset) error {
	f, err := l.config.FS.Open(l.snapshotName(o))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.SyncData(), f.Close())
}

// dropSnapshots removes the snapshots for which drop holds.
func (l *Log) dropSnapshots(drop func(o cluster.Offset) bool) error {
	var errs []error
	l.snapshots = slices.DeleteFunc(l.snapshots, func(o cluster.Offset) bool {
		if !drop(o) {
			return false
		}
		if err := l.config.FS.Remove(l.snapshotName(o)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
			return false
		}
		return true
	})
	return errors.Join(errs...)
}

// producersAt rebuilds the producer state at o from the newest usable snapshot
// at or below it and the batches from there, which row holds.
func (l *Log) producersAt(o cluster.Offset, row []*segment.Segment) (*producerstate.Manager, error) {
	m := producerstate.New(l.config.Producers)
	from := o
	if len(row) > 0 {
		from = min(o, row[0].Base())
	}
	m.Reset(from)
	for i := len(l.snapshots) - 1; i >= 0; i-- {
		at := l.snapshots[i]
		if at > o || at < from {
			continue
		}
		err := l.loadSnapshot(m, at)
		if err == nil {
			from = at
			break
		}
		if !errors.Is(err, producerstate.ErrCorruptSnapshot) && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		l.logger().Warn("producer snapshot is of no use, taking an older one", "offset", at, "error", err)
	}
	return m, l.replay(m, from, o, row)
}

func (l *Log) loadSnapshot(m *producerstate.Manager, at cluster.Offset) error {
	data, err := disk.ReadFile(l.config.FS, l.snapshotName(at))
	if err != nil {
		return err
	}
	return m.Load(data, at, l.now())
}

// replay updates m with the batches from from (inclusive) to to (exclusive).
func (l *Log) replay(m *producerstate.Manager, from, to cluster.Offset, row []*segment.Segment) error {
	for _, s := range row {
		if s.Next() <= from || s.Base() >= to {
			continue
		}
		h, ok, err := s.FindBatch(from)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := l.replaySegment(m, s, h, to); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) replaySegment(m *producerstate.Manager, s *segment.Segment, h segment.Header, to cluster.Offset) error {
	handle, err := s.Acquire()
	if err != nil {
		return err
	}
	defer handle.Release()
	now := l.now()
	for b, err := range segment.Batches(handle.File(), s.Bytes(), h.Position, s.Base(), s.LogName()) {
		if err != nil {
			return fmt.Errorf("rebuild producer state: %w", err)
		}
		if b.Batch.NextOffset() > to {
			return nil
		}
		if _, _, err := m.Update(b.Batch, now); err != nil {
			l.logger().Warn("control batch is not understood", "offset", b.Batch.BaseOffset(), "error", err)
		}
	}
	return nil
}
