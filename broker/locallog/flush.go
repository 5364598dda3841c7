package locallog

import (
	"context"
	"errors"
	"slices"
	"time"

	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// unsynced is a sealed segment with the producer state at its end.
type unsynced struct {
	segment  *segment.Segment
	snapshot []byte
}

// flight is a sync under way. Its done is closed when it has ended.
type flight struct{ done chan struct{} }

// Flush makes everything appended before the call durable and moves
// FlushedOffset; concurrent callers share one sync. ctx bounds the wait for
// another caller's sync only.
func (l *Log) Flush(ctx context.Context) error {
	target := l.EndOffset()
	for {
		if err := l.usable(); err != nil {
			return err
		}
		own, other := l.board(target)
		switch {
		case own != nil:
			err := l.sync()
			if err != nil && !errors.Is(err, ErrNoSpace) && !disk.NoDescriptor(err) {
				err = l.fail("sync", err)
			}
			l.land(own)
			if err != nil {
				return err
			}
		case other != nil:
			select {
			case <-other.done:
			case <-ctx.Done():
				return ctx.Err()
			}
		default:
			return nil
		}
	}
}

// board returns a flight of the caller's own, which it must land, or the one
// that is under way, or neither where nothing is left to do for target.
func (l *Log) board(target cluster.Offset) (own, other *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A truncation may have taken away what the target stood for.
	if l.FlushedOffset() >= min(target, l.EndOffset()) && len(l.mu.unsynced) == 0 {
		return nil, nil
	}
	if l.mu.flight != nil {
		return nil, l.mu.flight
	}
	l.mu.flight = &flight{done: make(chan struct{})}
	return l.mu.flight, nil
}

// claim waits until no sync is under way and keeps others from starting, for
// what may not overlap one. The caller must land the flight.
func (l *Log) claim() *flight {
	for {
		l.mu.Lock()
		other := l.mu.flight
		if other == nil {
			own := &flight{done: make(chan struct{})}
			l.mu.flight = own
			l.mu.Unlock()
			return own
		}
		l.mu.Unlock()
		<-other.done
	}
}

func (l *Log) land(f *flight) {
	l.mu.Lock()
	l.mu.flight = nil
	l.mu.Unlock()
	close(f.done)
}

// sync makes durable what there is: sealed segments with indexes and snapshots,
// the active segment's data, then the epochs (L2). Whoever holds the flight
// calls it. Where only a file besides the segments' own found no room it fails
// with ErrNoSpace, and the next sync tries again: those are written whole or not
// at all. Without a file descriptor nothing was asked of the disk. A sync of data that fails leaves nobody knowing what is on the disk.
func (l *Log) sync() error {
	l.mu.Lock()
	sealed := slices.Clone(l.mu.unsynced)
	active, end := l.segments.Load().active(), l.EndOffset()
	started := l.now()
	l.mu.Unlock()
	if err := l.syncFolder(); err != nil {
		return err
	}
	for _, u := range sealed {
		if err := l.syncSealed(u); err != nil {
			return err
		}
	}
	bound, err := active.SyncLog()
	if err != nil && !active.Removed() {
		return err
	}
	if err := l.syncEpochs(end); err != nil {
		return l.refused("sync: write leader epochs", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetUnsyncedLocked(func(s *segment.Segment) bool {
		return slices.ContainsFunc(sealed, func(u unsynced) bool { return u.segment == s })
	})
	// A roll in between may have sealed it, and left indexes to be synced.
	if !active.Info().Sealed && !active.Removed() {
		bound = min(bound, end, l.EndOffset())
		l.flushed.Store(max(l.flushed.Load(), int64(bound)))
	}
	l.mu.unflushedSince = time.Time{}
	if l.FlushedOffset() < l.EndOffset() {
		l.mu.unflushedSince = started
	}
	return nil
}

// syncFolder makes the names of the log's files durable, and what else a new
// folder needs, where an open has left that to the first sync.
func (l *Log) syncFolder() error {
	l.mu.Lock()
	behind := l.mu.folderBehind
	l.mu.Unlock()
	if !behind {
		return nil
	}
	if l.config.FolderSync != nil {
		if err := l.config.FolderSync(); err != nil {
			return err
		}
	}
	if err := l.config.FS.SyncDir(l.config.Dir); err != nil {
		return err
	}
	l.mu.Lock()
	l.mu.folderBehind = false
	l.mu.Unlock()
	return nil
}

// syncSealed skips a segment that was trimmed before anybody synced it. The
// snapshot at its end comes last: where it is, the indexes are durable (L7).
func (l *Log) syncSealed(u unsynced) error {
	_, err := u.segment.SyncLog()
	if err == nil {
		err = u.segment.SyncIndexes()
	}
	if err == nil {
		if err = l.writeSnapshot(u.segment.Next(), u.snapshot); err != nil {
			err = l.refused("sync: write producer snapshot", err)
		}
	}
	if u.segment.Removed() {
		return nil
	}
	if err == nil {
		u.segment.Synced()
	}
	return err
}

func (l *Log) forgetUnsyncedLocked(gone func(s *segment.Segment) bool) {
	l.mu.unsynced = slices.DeleteFunc(l.mu.unsynced, func(u unsynced) bool { return gone(u.segment) })
}

// syncIfMany keeps the sealed segments without a sync few (unsyncedMax).
func (l *Log) syncIfMany() error {
	l.mu.Lock()
	n := len(l.mu.unsynced)
	l.mu.Unlock()
	if n < unsyncedMax {
		return nil
	}
	return l.Flush(context.Background())
}

// FlushDue says that FlushMessages or FlushInterval ask for a Flush.
func (l *Log) FlushDue(now time.Time) bool {
	s := l.settings.Load()
	if s.FlushMessages <= 0 && s.FlushInterval <= 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	behind := int64(l.EndOffset() - l.FlushedOffset())
	if behind <= 0 {
		return false
	}
	if s.FlushMessages > 0 && behind >= s.FlushMessages {
		return true
	}
	return s.FlushInterval > 0 && !l.mu.unflushedSince.IsZero() && now.Sub(l.mu.unflushedSince) >= s.FlushInterval
}

// FlushNeeded says that something was appended or sealed and not flushed.
func (l *Log) FlushNeeded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.FlushedOffset() < l.EndOffset() || len(l.mu.unsynced) > 0
}
