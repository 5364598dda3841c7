package locallog

import (
	"errors"
	"slices"
	"time"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// TruncateTo removes everything from end on; a batch that end cuts goes too.
// EndOffset is then one past the last batch that is left. Below the first local
// segment it is Reset(end) with the epochs up to there. It is durable before it
// returns. Whoever persists the recovery point lowers it to end before, and to
// EndOffset before the next append. A leader assigns its epoch again.
func (l *Log) TruncateTo(end cluster.Offset) error {
	if err := l.usable(); err != nil {
		return err
	}
	if end >= l.EndOffset() {
		return nil
	}
	s := l.segments.Load()
	if end < s.first().Base() {
		epochs := l.Epochs()
		epochs.TruncateFromEnd(end)
		return l.Reset(end, epochs.Entries(), nil)
	}
	own := l.claim()
	defer l.land(own)
	if err := l.uncompactFrom(end); err != nil {
		return l.fail("truncate: write "+CompactionName, err)
	}
	if err := l.truncate(s.row, s.at(end), end); err != nil {
		return l.fail("truncate", err)
	}
	if err := l.uncompactFrom(l.EndOffset()); err != nil {
		return l.fail("truncate: write "+CompactionName, err)
	}
	return nil
}

// truncate cuts row[i] at end and removes what follows it. From the first change
// on readers wait for the new row.
func (l *Log) truncate(row []*segment.Segment, i int, end cluster.Offset) error {
	cut, before := row[i], row[:i]
	position := cut.Bytes()
	h, ok, err := cut.FindBatch(end)
	if err != nil {
		return err
	}
	if ok {
		position, end = h.Position, min(end, h.Base)
	}
	flushed := l.flushed.Load()
	l.setEnd(end, cut.Base())
	if err := l.removeBackwards(row[i+1:], l.now().Add(l.settings.Load().FileDeleteDelay)); err != nil {
		return err
	}
	if err := cut.TruncateFiles(position, end); err != nil {
		return err
	}
	active, err := l.reopenActive(cut.Base(), before)
	if err != nil {
		return err
	}
	if err := l.forgetFrom(active.Next(), row[i:]); err != nil {
		active.Close()
		return err
	}
	fresh := append(slices.Clone(before), active)
	if l.producers, err = l.producersAt(active.Next(), fresh); err != nil {
		active.Close()
		return err
	}
	l.flushed.Store(min(flushed, int64(active.Next())))
	l.publish(fresh)
	return nil
}

// forgetFrom removes, durably, what else tells of offsets at end or above. The
// log ends with its last batch: a hole after it would not outlive a restart.
func (l *Log) forgetFrom(end cluster.Offset, gone []*segment.Segment) error {
	l.setEnd(end, end)
	if err := l.dropSnapshots(func(at cluster.Offset) bool { return at > end }); err != nil {
		return err
	}
	l.mu.Lock()
	l.mu.epochsDirty = l.mu.epochs.TruncateFromEnd(end) || l.mu.epochsDirty
	l.lastEpoch = latestOf(&l.mu.epochs)
	l.forgetUnsyncedLocked(func(s *segment.Segment) bool { return slices.Contains(gone, s) })
	l.mu.Unlock()
	if err := l.syncEpochs(end); err != nil {
		return err
	}
	return l.config.FS.SyncDir(l.config.Dir)
}

// setEnd sets the end offset and lowers the flushed one.
func (l *Log) setEnd(end, flushed cluster.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end.Store(int64(end))
	l.flushed.Store(min(l.flushed.Load(), int64(flushed)))
}

// removeBackwards removes segments from the last one, each durably before the
// next, so that what is left at any time, after a power loss too, is a prefix.
func (l *Log) removeBackwards(row []*segment.Segment, due time.Time) error {
	for i := len(row) - 1; i >= 0; i-- {
		if i < len(row)-1 {
			if err := l.config.FS.SyncDir(l.config.Dir); err != nil {
				return err
			}
		}
		if err := l.removeFiles(row[i], due); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) reopenActive(base cluster.Offset, before []*segment.Segment) (*segment.Segment, error) {
	interval := l.settings.Load().IndexIntervalBytes
	active, err := segment.OpenActive(l.where, base, interval)
	if !errors.Is(err, segment.ErrNeedsRecovery) {
		return active, err
	}
	l.logger().Warn("segment is indexed anew", "base", base, "error", err)
	m, err := l.producersAt(base, before)
	if err != nil {
		return nil, err
	}
	active, _, err = segment.Recover(l.where, base, segment.RecoverOptions{
		IntervalBytes: interval, DurableBelow: l.EndOffset(), Visit: l.visitor(m, func(cluster.LeaderEpoch, cluster.Offset) error { return nil }),
	})
	return active, err
}

// Reset removes everything and starts afresh at an offset with the given epochs
// and producer state (nil: none), as after finding the rest in a remote tier.
// The log start is kept where it lies below and RemoteBelow is set, else it is
// start. It is durable before it returns.
func (l *Log) Reset(start cluster.Offset, epochs []leaderepoch.Entry, snapshot []byte) error {
	if err := l.usable(); err != nil {
		return err
	}
	producers := producerstate.New(l.config.Producers)
	producers.Reset(start)
	if snapshot != nil {
		if err := producers.Load(snapshot, start, l.now()); err != nil {
			return err
		}
	}
	own := l.claim()
	defer l.land(own)
	if err := l.uncompactFrom(start); err != nil {
		return l.fail("reset: write "+CompactionName, err)
	}
	if err := l.reset(start, leaderepoch.FromEntries(epochs), producers); err != nil {
		return l.fail("reset", err)
	}
	return nil
}

func (l *Log) reset(start cluster.Offset, epochs *leaderepoch.List, producers *producerstate.Manager) error {
	l.setEnd(min(l.EndOffset(), start), 0)
	if err := l.removeBackwards(l.segments.Load().row, l.now().Add(l.settings.Load().FileDeleteDelay)); err != nil {
		return err
	}
	if err := l.dropSnapshots(func(cluster.Offset) bool { return true }); err != nil {
		return err
	}
	l.producers = producers
	if err := l.writeSnapshot(start, producers.Snapshot()); err != nil {
		return err
	}
	text := epochs.Marshal()
	if err := disk.WriteFileAtomic(l.config.FS, l.epochsName(), text); err != nil {
		return err
	}
	active, err := segment.Create(l.where, start, l.now())
	if err != nil {
		return err
	}
	if err := l.config.FS.SyncDir(l.config.Dir); err != nil {
		return err
	}
	l.mu.Lock()
	l.mu.epochs, l.mu.epochsDirty, l.mu.epochsFile = *epochs.Clone(), false, text
	l.lastEpoch = latestOf(&l.mu.epochs)
	l.mu.unsynced = nil
	l.end.Store(int64(start))
	l.flushed.Store(int64(start))
	if !l.config.RemoteBelow || l.StartOffset() > start {
		l.start.Store(int64(start))
	}
	l.mu.Unlock()
	l.publish([]*segment.Segment{active})
	return nil
}
