package locallog

import (
	"errors"
	"os"
	"slices"
	"time"

	"strandline/broker/segment"
	"strandline/metadata/cluster"
)

// removal is a file that is to be removed at a time.
type removal struct {
	name string
	due  time.Time
}

// DeleteSealedBelow removes the sealed segments that lie below o wholly: they
// are gone for readers at once, and their files after FileDeleteDelay.
func (l *Log) DeleteSealedBelow(o cluster.Offset) (removed int, bytes int64, err error) {
	if err := l.usable(); err != nil {
		return 0, 0, err
	}
	row := l.segments.Load().row
	for removed < len(row)-1 && row[removed].Next() <= o {
		bytes += row[removed].Bytes()
		removed++
	}
	if removed == 0 {
		return 0, 0, nil
	}
	gone := row[:removed]
	if !l.config.RemoteBelow {
		l.SetStartOffset(row[removed].Base())
	}
	l.publish(slices.Clone(row[removed:]))
	l.mu.Lock()
	l.forgetUnsyncedLocked(func(s *segment.Segment) bool { return slices.Contains(gone, s) })
	l.mu.Unlock()
	due := l.now().Add(l.settings.Load().FileDeleteDelay)
	for i, s := range gone {
		// The one before is durably gone first. Else a power loss could bring it
		// back without this one, and recovery would take the hole for a torn end
		// and cut the log there.
		if i > 0 {
			if err := l.config.FS.SyncDir(l.config.Dir); err != nil {
				return removed, bytes, l.fail("trim: sync folder", err)
			}
		}
		if err := l.removeFiles(s, due); err != nil {
			return removed, bytes, err
		}
	}
	first := row[removed].Base()
	if err := l.dropSnapshots(func(at cluster.Offset) bool { return at < first }); err != nil {
		return removed, bytes, l.fail("trim: remove producer snapshots", err)
	}
	if err := l.config.FS.SyncDir(l.config.Dir); err != nil {
		return removed, bytes, l.fail("trim: sync folder", err)
	}
	return removed, bytes, nil
}

// removeFiles takes a segment's files out of the way until they are removed.
func (l *Log) removeFiles(s *segment.Segment, due time.Time) error {
	names, err := s.Remove(func() { l.hook(StepLocalTrim) })
	l.mu.Lock()
	for _, name := range names {
		l.mu.deferred = append(l.mu.deferred, removal{name, due})
	}
	l.mu.Unlock()
	if err != nil {
		return l.fail("remove segment", err)
	}
	return nil
}

// RunDeferred removes the files whose delay has passed, and tells when the next
// is due (zero: none). A file that cannot be removed is left to the next Open.
func (l *Log) RunDeferred(now time.Time) (next time.Time, err error) {
	l.mu.Lock()
	var due []removal
	l.mu.deferred = slices.DeleteFunc(l.mu.deferred, func(r removal) bool {
		if r.due.After(now) {
			if next.IsZero() || r.due.Before(next) {
				next = r.due
			}
			return false
		}
		due = append(due, r)
		return true
	})
	l.mu.Unlock()
	var errs []error
	for _, r := range due {
		if err := l.config.FS.Remove(r.name); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return next, errors.Join(errs...)
}
