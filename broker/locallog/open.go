package locallog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"strandline/broker/leaderepoch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Open opens the log in cfg.Dir, making folder and first segment (at LogStart,
// or 0) where there are none, and recovering it unless the stop was clean.
func Open(cfg Config) (*Log, error) {
	l := newLog(cfg)
	if err := l.open(); err != nil {
		if s := l.segments.Load(); s != nil {
			for _, seg := range s.row {
				seg.Close()
			}
		}
		if l.ownHandles != nil {
			err = errors.Join(err, l.ownHandles.Close())
		}
		return nil, fmt.Errorf("open log %s: %w", cfg.Dir, err)
	}
	return l, nil
}

func newLog(cfg Config) *Log {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{config: cfg, recent: cfg.Recent, lastEpoch: cluster.NoLeaderEpoch, loadedSnapshot: cluster.NoOffset, unsyncedFrom: cluster.NoOffset}
	if cfg.Handles == nil {
		l.ownHandles = disk.NewHandleCache(cfg.FS, ownHandlesLimit)
		l.config.Handles = l.ownHandles
	}
	if l.recent == nil {
		l.recent = NewRecent(0)
	}
	l.where = segment.Where{FS: cfg.FS, Dir: cfg.Dir, Handles: l.config.Handles, Reindexed: func(base cluster.Offset, cause error) {
		l.logger().Warn("indexes of a segment are damaged and are made anew from its batches", "base", base, "error", cause)
	}}
	l.SetSettings(cfg.Settings)
	return l
}

func (l *Log) open() error {
	if err := disk.EnsureDir(l.config.FS, l.config.Dir); err != nil {
		return err
	}
	bases, err := l.tidy()
	if err != nil {
		return err
	}
	if err := l.loadCompaction(bases); err != nil {
		return err
	}
	if err := l.loadEpochs(); err != nil {
		return err
	}
	if len(bases) == 0 {
		err = l.first()
	} else {
		err = l.load(bases)
	}
	if err != nil {
		return err
	}
	return l.setBounds()
}

// first begins an empty log. Epochs and snapshot may be there: those of one that
// was being reset. The files' names become durable with the first sync.
func (l *Log) first() error {
	start := max(l.config.LogStart, 0)
	active, err := segment.Create(l.where, start, l.now())
	if err != nil {
		return err
	}
	row := []*segment.Segment{active}
	l.publish(row)
	l.mu.folderBehind = true
	l.producers, err = l.producersAt(start, row)
	return err
}

// tidy removes leftovers, settles what rewrites have left, and returns the base
// offsets of the segments.
func (l *Log) tidy() ([]cluster.Offset, error) {
	fs, dir := l.config.FS, l.config.Dir
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	if names, err = l.settleRewrites(names); err != nil {
		return nil, err
	}
	changed := false
	for _, name := range names {
		if !isLeftover(name) {
			continue
		}
		changed = true
		if err := fs.Remove(path.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	if changed {
		if err := fs.SyncDir(dir); err != nil {
			return nil, err
		}
		if names, err = fs.List(dir); err != nil {
			return nil, err
		}
	}
	return l.sortOut(names)
}

// isLeftover says that a file is of no use once rewrites are settled.
func isLeftover(name string) bool {
	for _, suffix := range []string{segment.DeletedSuffix, segment.CleanedSuffix, segment.SwapSuffix, ".tmp"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// sortOut finds segments and snapshots, and removes indexes without a log.
func (l *Log) sortOut(names []string) ([]cluster.Offset, error) {
	var bases []cluster.Offset
	for _, name := range names {
		switch o, suffix, ok := segment.ParseName(name); {
		case !ok:
		case suffix == segment.LogSuffix:
			bases = append(bases, o)
		case suffix == segment.SnapshotSuffix:
			l.noteSnapshot(o)
		}
	}
	slices.Sort(bases)
	for _, name := range names {
		o, suffix, ok := segment.ParseName(name)
		if !ok || suffix == segment.LogSuffix || suffix == segment.SnapshotSuffix {
			continue
		}
		if _, found := slices.BinarySearch(bases, o); !found {
			if err := l.config.FS.Remove(path.Join(l.config.Dir, name)); err != nil {
				return nil, err
			}
		}
	}
	return bases, nil
}

// loadEpochs reads the epoch file. One that is missing or cannot be parsed is
// empty at first: load fills it from the batch headers, and setBounds writes it
// again, so that this happens once.
func (l *Log) loadEpochs() error {
	data, err := disk.ReadFile(l.config.FS, l.epochsName())
	if errors.Is(err, os.ErrNotExist) {
		l.mu.epochsDirty, l.epochsLost = true, true
		return nil
	}
	if err != nil {
		return err
	}
	list, err := leaderepoch.Parse(data)
	if err != nil {
		l.logger().Warn("leader epochs are read from the log again", "error", err)
		l.mu.epochsDirty, l.epochsLost = true, true
		return nil
	}
	l.mu.epochs, l.mu.epochsFile = *list, data
	l.lastEpoch = latestOf(list)
	return nil
}

// setBounds fits start, end and the rest to what was loaded.
func (l *Log) setBounds() error {
	s := l.segments.Load()
	first, end := s.first().Base(), s.active().Next()
	start := max(l.config.LogStart, 0)
	if l.config.LogStart == cluster.NoOffset || !l.config.RemoteBelow {
		start = max(start, first)
	}
	if err := l.checkEnd(start, end); err != nil {
		return err
	}
	l.end.Store(int64(end))
	l.flushed.Store(int64(end))
	if l.unsyncedFrom != cluster.NoOffset {
		l.flushed.Store(int64(max(l.unsyncedFrom, min(l.durableBelow(), end))))
		l.mu.unflushedSince = l.now()
	}
	l.start.Store(int64(start))
	l.drawJitter()
	if start > end {
		l.logger().Warn("log ends below its start and is begun again there", "end", end, "start", start)
		l.start.Store(int64(end))
		return l.Reset(start, l.Epochs().Entries(), nil)
	}
	l.mu.epochs.TruncateFromEnd(end + 1)
	if l.mu.epochs.TruncateFromStart(start) {
		l.mu.epochsDirty = true
	}
	l.lastEpoch = latestOf(&l.mu.epochs)
	if err := l.uncompactFrom(end); err != nil { // a truncation that a stop cut off
		return err
	}
	before := len(l.snapshotOffsets())
	if err := l.dropSnapshots(func(at cluster.Offset) bool { return at > end || at < first }); err != nil {
		return err
	}
	// A snapshot that came back after other batches took those offsets would lie.
	if len(l.snapshotOffsets()) < before {
		if err := l.config.FS.SyncDir(l.config.Dir); err != nil {
			return err
		}
	}
	if !l.epochsLost || l.EndOffset() == first {
		return nil // they follow with the next sync
	}
	return l.syncEpochs(end)
}

// Close closes the log; with clean it first flushes, writes the producer
// snapshot and the indexes, so that the next Open may be told CleanStop. Its
// error means that the stop was not clean. Idempotent.
func (l *Log) Close(clean bool) error {
	if l.closed.Load() {
		return l.closeErr
	}
	if clean {
		l.closeErr = l.finish()
	}
	own := l.claim()
	l.closed.Store(true)
	l.land(own)
	row := l.segments.Load().row
	l.publish(row) // wakes readers that wait for a change
	for _, seg := range row {
		seg.Close()
	}
	if l.ownHandles != nil {
		l.closeErr = errors.Join(l.closeErr, l.ownHandles.Close())
	}
	return l.closeErr
}

// finish writes what is not on the disk yet. A log that did not change since it
// was opened costs no sync.
func (l *Log) finish() error {
	if err := l.Flush(context.Background()); err != nil {
		return err
	}
	if err := l.syncFolder(); err != nil {
		return l.fail("close: sync folder", err)
	}
	active := l.active()
	if err := active.Finish(); err != nil {
		return l.fail("close: write indexes", err)
	}
	if err := active.SyncIndexes(); err != nil {
		return l.fail("close: sync indexes", err)
	}
	for _, s := range l.segments.Load().row {
		if err := s.SaveIndexes(); err != nil {
			return l.fail("close: write indexes that were made anew", err)
		}
	}
	end := l.EndOffset()
	if !l.attested(end) {
		if err := l.writeSnapshot(end, l.producers.Snapshot()); err != nil {
			return l.fail("close: write producer snapshot", err)
		}
	}
	// Only the latest and those at segment bases are of use. They may come back.
	err := l.dropSnapshots(func(at cluster.Offset) bool { return at != end && !l.isBase(at) })
	if err == nil {
		err = l.syncEpochs(end)
	}
	if err != nil {
		return l.fail("close", err)
	}
	return nil
}

func (l *Log) isBase(o cluster.Offset) bool {
	return slices.ContainsFunc(l.segments.Load().row, func(s *segment.Segment) bool { return s.Base() == o })
}
