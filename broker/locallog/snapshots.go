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

// writeSnapshot makes data, the producer state at o, durable.
func (l *Log) writeSnapshot(o cluster.Offset, data []byte) error {
	if err := disk.WriteFileAtomic(l.config.FS, l.snapshotName(o), data); err != nil {
		return err
	}
	l.noteSnapshot(o)
	return nil
}

func (l *Log) noteSnapshot(o cluster.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i, found := slices.BinarySearch(l.mu.snapshots, o); !found {
		l.mu.snapshots = slices.Insert(l.mu.snapshots, i, o)
	}
}

// snapshotOffsets are those of the snapshots on disk, rising.
func (l *Log) snapshotOffsets() []cluster.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.snapshots)
}

// dropSnapshots removes the snapshots for which drop holds.
func (l *Log) dropSnapshots(drop func(o cluster.Offset) bool) error {
	var errs []error
	for _, o := range l.snapshotOffsets() {
		if !drop(o) {
			continue
		}
		if err := l.config.FS.Remove(l.snapshotName(o)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		l.mu.Lock()
		if i, found := slices.BinarySearch(l.mu.snapshots, o); found {
			l.mu.snapshots = slices.Delete(l.mu.snapshots, i, i+1)
		}
		l.mu.Unlock()
	}
	return errors.Join(errs...)
}

// hasSnapshot says whether there is a usable snapshot at o.
func (l *Log) hasSnapshot(o cluster.Offset) bool {
	return l.loadSnapshot(producerstate.New(l.config.Producers), o) == nil
}

// attested says that the producer state at the end offset is on the disk.
func (l *Log) attested(end cluster.Offset) bool {
	_, found := slices.BinarySearch(l.snapshotOffsets(), end)
	return found && l.loadedSnapshot == end
}

// producersAt rebuilds the producer state at o from the newest usable snapshot
// at or below it and the batches from there, which row holds.
func (l *Log) producersAt(o cluster.Offset, row []*segment.Segment) (*producerstate.Manager, error) {
	m, _, err := l.producersFrom(o, row)
	return m, err
}

// producersFrom is producersAt, and gives the snapshot that it began with.
func (l *Log) producersFrom(o cluster.Offset, row []*segment.Segment) (m *producerstate.Manager, loaded cluster.Offset, err error) {
	m, loaded = producerstate.New(l.config.Producers), cluster.NoOffset
	from := o
	if len(row) > 0 {
		from = min(o, row[0].Base())
	}
	m.Reset(from)
	for _, at := range slices.Backward(l.snapshotOffsets()) {
		if at > o || at < from {
			continue
		}
		err := l.loadSnapshot(m, at)
		if err == nil {
			from, loaded = at, at
			break
		}
		if !errors.Is(err, producerstate.ErrCorruptSnapshot) && !errors.Is(err, os.ErrNotExist) {
			return nil, loaded, err
		}
		l.logger().Warn("producer snapshot is of no use, taking an older one", "offset", at, "error", err)
	}
	return m, loaded, l.replay(m, from, o, row)
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
