package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/store"
)

// formatVersion is the first byte of the applied entry: of the database as a
// whole. The values in it have versions of their own.
const formatVersion = 1

var (
	// ErrNewerFormat says that a newer version has written the state.
	ErrNewerFormat = errors.New("metadata state was written by a newer version")
	// ErrStopped is what Apply answers once the state has stopped (T4).
	ErrStopped = errors.New("metadata state has stopped")
)

// Change is what a command, or a restore, has changed.
type Change struct {
	Image *image.Image
	// Delta leads to Image from the one before.
	Delta *image.Delta
	// Partitions are those whose catalog entry changed.
	Partitions []cluster.TopicPartition
}

// Config is what a State needs.
type Config struct {
	FS     disk.FS
	Dir    string
	Logger *slog.Logger
	// Fatal is told why the state stopped, and of the store's failures
	// (store.Config.Fatal). Nil ends the process.
	Fatal func(err error)
	// Applied is called after every command that changed anything, on the
	// goroutine that applies; it must not block. May be nil.
	Applied func(c Change)
}

// Counts are what a State has done since it was opened.
type Counts struct {
	Applied  uint64 // commands that were carried out
	Refused  uint64 // commands that image or catalog refused
	Skipped  uint64 // commands that had been applied before
	Restores uint64
}

// State is the cluster's state. Apply, Restore and Checkpoint follow the rules
// of quorum.Machine; everything else may be called from any goroutine.
type State struct {
	cfg     Config
	log     *slog.Logger
	folders folders
	retired sync.WaitGroup

	image   atomic.Pointer[image.Image]
	applied atomic.Uint64
	stopped atomic.Pointer[error]
	counts  struct{ applied, refused, skipped, restores atomic.Uint64 }

	mu      sync.RWMutex
	closed  bool
	db      *store.DB
	live    uint64 // number of db's folder
	highest uint64 // number ever used
	tables  tables
}

// tables is the part of the catalog that is kept in memory.
type tables struct {
	summaries map[cluster.TopicPartition]catalog.Summary
	deleted   map[cluster.TopicID]catalog.DeletedTopic
}

// Open opens the state in a folder, or begins one.
func Open(cfg Config) (*State, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &State{cfg: cfg, log: cfg.Logger, folders: folders{fs: cfg.FS, dir: cfg.Dir}}
	if err := disk.EnsureDir(cfg.FS, cfg.Dir); err != nil {
		return nil, fmt.Errorf("metadata state folder: %w", err)
	}
	live, err := s.folders.live()
	if err != nil {
		return nil, fmt.Errorf("metadata state: %w", err)
	}
	highest, err := s.folders.sweep(live)
	if err != nil {
		return nil, fmt.Errorf("metadata state: %w", err)
	}
	fresh := live == 0
	if fresh {
		live = highest + 1
	}
	s.live, s.highest = live, max(live, highest)
	loaded, err := s.load(live)
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := s.folders.setLive(live); err != nil {
			return nil, errors.Join(err, loaded.db.Close())
		}
	}
	s.show(loaded)
	return s, nil
}

// loaded is an open database with what is kept of it in memory.
type loaded struct {
	db      *store.DB
	image   *image.Image
	applied uint64
	tables  tables
}

func (s *State) load(n uint64) (l loaded, err error) {
	db, err := store.Open(store.Config{FS: s.cfg.FS, Dir: s.folders.path(n), Logger: s.log, Fatal: s.cfg.Fatal})
	if err != nil {
		return l, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("reading the metadata state in %s: %w", s.folders.path(n), err), db.Close())
		}
	}()
	l.db = db
	if l.applied, err = readApplied(db); err != nil {
		return l, err
	}
	if l.image, err = image.Load(imageEntries(db)); err != nil {
		return l, err
	}
	if l.image.Index() != l.applied {
		return l, &store.CorruptError{Dir: s.folders.path(n), Cause: fmt.Errorf(
			"the image is of index %d, applied is %d", l.image.Index(), l.applied)}
	}
	l.tables, err = readTables(db)
	return l, err
}

// show makes a database the one that everybody reads.
func (s *State) show(l loaded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db, s.tables = l.db, l.tables
	s.image.Store(l.image)
	s.applied.Store(l.applied)
}

func appendApplied(index uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{formatVersion}, index)
}

func readApplied(r store.Reader) (uint64, error) {
	b, ok, err := r.Get(store.AppliedKey())
	if err != nil || !ok {
		return 0, err
	}
	if len(b) > 0 && b[0] > formatVersion {
		return 0, fmt.Errorf("%w: format %d, this one knows %d", ErrNewerFormat, b[0], formatVersion)
	}
	if len(b) != 9 {
		return 0, fmt.Errorf("applied entry of %d bytes", len(b))
	}
	return binary.BigEndian.Uint64(b[1:]), nil
}

func imageEntries(r store.Reader) iter.Seq2[image.Entry, error] {
	return func(yield func(image.Entry, error) bool) {
		for e, err := range r.Scan(store.Image()) {
			if err != nil {
				yield(image.Entry{}, err)
				return
			}
			if !yield(image.Entry{Key: store.ImageEntry(e.Key), Value: e.Value}, nil) {
				return
			}
		}
	}
}

func readTables(r store.Reader) (tables, error) {
	t := tables{
		summaries: map[cluster.TopicPartition]catalog.Summary{},
		deleted:   map[cluster.TopicID]catalog.DeletedTopic{},
	}
	for e, err := range r.Scan(store.Summaries()) {
		if err != nil {
			return t, err
		}
		tp, ok := store.SummaryPartition(e.Key)
		if !ok {
			return t, fmt.Errorf("key %x is no summary's", e.Key)
		}
		if t.summaries[tp], err = catalog.DecodeSummary(e.Value); err != nil {
			return t, fmt.Errorf("summary of %s: %w", tp, err)
		}
	}
	for e, err := range r.Scan(store.Deleted()) {
		if err != nil {
			return t, err
		}
		topic, ok := store.DeletedTopic(e.Key)
		if !ok {
			return t, fmt.Errorf("key %x is no deleted topic's", e.Key)
		}
		if t.deleted[topic], err = catalog.DecodeDeletedTopic(topic, e.Value); err != nil {
			return t, fmt.Errorf("deleted topic %s: %w", topic, err)
		}
	}
	return t, nil
}

// Image returns the latest image.
func (s *State) Image() *image.Image { return s.image.Load() }

// Applied is the index of the last command applied.
func (s *State) Applied() uint64 { return s.applied.Load() }

// Counts returns what was done so far.
func (s *State) Counts() Counts {
	return Counts{
		Applied: s.counts.applied.Load(), Refused: s.counts.refused.Load(),
		Skipped: s.counts.skipped.Load(), Restores: s.counts.restores.Load(),
	}
}

// Stats describes the live database.
func (s *State) Stats() store.Stats { return s.current().Stats() }

func (s *State) current() *store.DB {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.db
}

// Checkpoint implements quorum.Machine. The checkpoint may hold more than the
// index that is returned.
func (s *State) Checkpoint(dir string) (uint64, error) {
	if err := s.stopErr(); err != nil {
		return 0, err
	}
	applied, db := s.Applied(), s.current()
	if err := db.Flush(); err != nil {
		return 0, fmt.Errorf("flushing the metadata state: %w", err)
	}
	if err := db.Checkpoint(dir); err != nil {
		return 0, fmt.Errorf("copying the metadata state: %w", err)
	}
	return applied, nil
}

// Restore implements quorum.Machine.
func (s *State) Restore(dir string) error {
	if err := s.stopErr(); err != nil {
		return err
	}
	n := s.highest + 1
	if err := s.folders.fill(n, dir); err != nil {
		return fmt.Errorf("restoring the metadata state: %w", err)
	}
	l, err := s.load(n)
	if err != nil {
		return err
	}
	if err := s.folders.setLive(n); err != nil {
		return errors.Join(fmt.Errorf("restoring the metadata state: %w", err), l.db.Close())
	}
	before, oldDB, oldFolder, oldTables := s.Image(), s.db, s.folders.path(s.live), s.tables
	s.live, s.highest = n, n
	s.show(l)
	s.counts.restores.Add(1)
	s.log.Info("metadata state restored", "folder", folderName(n), "applied", l.applied)
	s.retire(oldDB, oldFolder)
	if s.cfg.Applied != nil {
		c := Change{Image: l.image, Delta: image.Diff(before, l.image)}
		for tp := range oldTables.summaries {
			if _, ok := l.tables.summaries[tp]; !ok {
				c.Partitions = append(c.Partitions, tp)
			}
		}
		for tp := range l.tables.summaries {
			c.Partitions = append(c.Partitions, tp)
		}
		s.cfg.Applied(c)
	}
	return nil
}

// retire closes a replaced database once its readers have left, and removes it.
func (s *State) retire(db *store.DB, folder string) {
	s.retired.Go(func() {
		err := db.Close()
		if err == nil {
			err = s.cfg.FS.RemoveAll(folder)
		}
		if err != nil {
			s.log.Warn("a replaced metadata state could not be removed", "folder", folder, "err", err)
		}
	})
}

// Close waits for readers and closes the database; Apply must have ended. A
// second Close does nothing.
func (s *State) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	db := s.db
	s.mu.Unlock()
	err := db.Close()
	s.retired.Wait()
	return err
}
