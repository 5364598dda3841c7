package coordinator

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
	"strandline/metadata/store"
)

// ViewsConfig is what Views are made of.
type ViewsConfig struct {
	FS     disk.FS
	Dir    string // made if missing; nothing else lies in it
	Logger *slog.Logger
	// Fatal is store.Config.Fatal.
	Fatal func(error)
}

// memTableBytes bounds what the database collects before it makes a table of it.
// Commits of many groups lie all over the keys, so that every table is merged with
// all the others: a quarter of this costs twice the processor's time a commit
// (BenchmarkViewOfManyGroups). It is only as large as there is to collect.
const memTableBytes = 16 << 20

// Views are the views of all partitions, of all internal topics, in one
// database. They are a cache: a database that does not open, or turns out to be
// damaged, is replaced by an empty one, and the views are built again from the
// logs. Methods may be called from several goroutines at once.
type Views struct {
	cfg   ViewsConfig
	db    atomic.Pointer[store.DB] // nil: closed, or being replaced
	dirty atomic.Bool              // something was committed since the last sync
	// suspect is what heal replaces; nil: nothing.
	suspect atomic.Pointer[suspect]
	ill     chan struct{} // cap 1: there is a suspect

	mu     sync.Mutex // held over opening and replacing the database
	closed bool
}

// OpenViews opens the views, or begins new ones. Only a folder that cannot be
// written, or a lack of room or of descriptors, makes it fail.
func OpenViews(cfg ViewsConfig) (*Views, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	v := &Views{cfg: cfg, ill: make(chan struct{}, 1)}
	db, err := v.open()
	if err != nil && !disk.NoSpace(err) && !disk.NoDescriptor(err) {
		v.cfg.Logger.Warn("coordinators' views cannot be opened: they are built again from the logs", "dir", cfg.Dir, "err", err)
		db, err = v.begin()
	}
	if err != nil {
		return nil, fmt.Errorf("coordinators' views: %w", err)
	}
	v.db.Store(db)
	return v, nil
}

func (v *Views) open() (*store.DB, error) {
	// What is found damaged before this returns is told after.
	var made atomic.Pointer[store.DB]
	var early atomic.Pointer[error]
	db, err := store.Open(store.Config{
		FS: v.cfg.FS, Dir: v.cfg.Dir, Logger: v.cfg.Logger, Fatal: v.cfg.Fatal, MemTableBytes: memTableBytes,
		Damaged: func(err error) {
			early.Store(&err)
			if db := made.Load(); db != nil {
				v.damaged(db, err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	made.Store(db)
	if err := early.Load(); err != nil {
		v.damaged(db, *err)
	}
	return db, nil
}

// begin opens an empty database in place of whatever is there.
func (v *Views) begin() (*store.DB, error) {
	if err := v.cfg.FS.RemoveAll(v.cfg.Dir); err != nil {
		return nil, err
	}
	return v.open()
}

// live returns the database, or ErrClosed where there is none now.
func (v *Views) live() (*store.DB, error) {
	db := v.db.Load()
	if db == nil {
		return nil, store.ErrClosed
	}
	return db, nil
}

// damaged notes an error of a database that live returned, where it says that
// the database cannot be trusted. It may be called while the database is read.
func (v *Views) damaged(bad *store.DB, err error) {
	var corrupt *store.CorruptError
	if !errors.As(err, &corrupt) || !v.suspect.CompareAndSwap(nil, &suspect{db: bad, err: err}) {
		return
	}
	select {
	case v.ill <- struct{}{}:
	default:
	}
}

// suspect is a database that cannot be trusted, and why.
type suspect struct {
	db  *store.DB
	err error
}

// heal replaces the database by an empty one where it was found damaged. Who uses
// it elsewhere gets store.ErrClosed and comes back. It waits for those who read.
func (v *Views) heal() {
	if v.suspect.Load() == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.suspect.Swap(nil)
	if s == nil || v.closed {
		return
	}
	switch live := v.db.Load(); live {
	case s.db:
		v.cfg.Logger.Warn("coordinators' views are damaged: they are built again from the logs", "dir", v.cfg.Dir, "err", s.err)
		v.db.Store(nil)
		if err := s.db.Close(); err != nil {
			v.cfg.Logger.Debug("damaged views did not close in order", "err", err)
		}
	case nil: // an earlier attempt failed
	default:
		return // replaced meanwhile
	}
	db, err := v.begin()
	if err != nil {
		v.cfg.Logger.Error("coordinators' views cannot be begun again yet: nothing is coordinated here", "dir", v.cfg.Dir, "err", err)
		v.suspect.Store(s)
		return
	}
	v.db.Store(db)
}

// Sync makes what was committed to the views survive a power loss.
func (v *Views) Sync() error {
	if !v.dirty.Swap(false) {
		return nil
	}
	db, err := v.live()
	if err == nil {
		err = db.SyncCommitted()
	}
	switch {
	case errors.Is(err, store.ErrClosed):
		return nil // replaced, or closed in order
	case err != nil:
		v.dirty.Store(true)
	}
	return err
}

// Retain drops the views of all partitions but those that keep names. It is to
// be called while no runtime uses them.
func (v *Views) Retain(keep func(cluster.TopicPartition) bool) error {
	db, err := v.live()
	if err != nil {
		return err
	}
	var gone []cluster.TopicPartition
	for e, err := range db.Scan(store.ViewPositions()) {
		if err != nil {
			v.damaged(db, err)
			return fmt.Errorf("coordinators' views: %w", err)
		}
		if tp, ok := store.ViewPositionPartition(e.Key); ok && !keep(tp) {
			gone = append(gone, tp)
		}
	}
	for _, tp := range gone {
		if err := v.drop(tp); err != nil {
			return err
		}
	}
	return nil
}

// drop removes everything of a partition's view.
func (v *Views) drop(tp cluster.TopicPartition) error {
	db, err := v.live()
	if err != nil {
		return err
	}
	b := db.NewBatch()
	for _, r := range store.View(tp) {
		b.DeleteRange(r)
	}
	return v.commit(b)
}

// commit commits and closes a batch.
func (v *Views) commit(b changes) error {
	err := b.Commit(store.NoSync)
	v.dirty.Store(true)
	return errors.Join(err, b.Close())
}

// Stats are the database's, zero after Close.
func (v *Views) Stats() store.Stats {
	db, err := v.live()
	if err != nil {
		return store.Stats{}
	}
	return db.Stats()
}

// Close makes the views durable and closes them. Runtimes must be closed before.
// It may be called more than once.
func (v *Views) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	err := v.Sync()
	if db := v.db.Swap(nil); db != nil {
		err = errors.Join(err, db.Close())
	}
	return err
}
