package store

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"strandline/metadata/background"
	"strandline/metadata/disk"
)

// formatVersion is what new databases are written in. Older ones are raised to
// it at start; a newer one is refused by Pebble.
const formatVersion = pebble.FormatTableFormatV6

// Defaults of Config.
const (
	DefaultCacheBytes    = 8 << 20
	DefaultMemTableBytes = 4 << 20
	maxOpenFiles         = 128
)

// ErrClosed is returned by calls on a DB after Close.
var ErrClosed = errors.New("metadata store is closed")

// CorruptError says that a DB cannot be trusted.
type CorruptError struct {
	Dir   string
	Key   string // in hexadecimal, empty where it is not about one key
	Cause error
}

func (e *CorruptError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("metadata store %s is corrupt: %v", e.Dir, e.Cause)
	}
	return fmt.Sprintf("metadata store %s is corrupt at key %s: %v", e.Dir, e.Key, e.Cause)
}

func (e *CorruptError) Unwrap() error { return e.Cause }

// FatalError is what Config.Fatal is told of the engine.
type FatalError struct {
	Message string
	Cause   error // nil where the engine gave none
}

func (e *FatalError) Error() string { return e.Message }

func (e *FatalError) Unwrap() error { return e.Cause }

// Config is what a DB needs.
type Config struct {
	FS     disk.FS
	Dir    string // made if missing
	Logger *slog.Logger
	// Fatal is called where the engine cannot go on, such as after a failed
	// commit. Nil ends the process with status 1. If it returns, the
	// goroutine that hit the failure ends (runtime.Goexit) or stops for ever,
	// possibly with locks held: the DB must not be used any more, nor closed.
	Fatal func(err error)
	// Damaged is told, by any goroutine and perhaps often, of damage that the
	// engine found while it worked on its own. It must not block. Nil: nobody.
	Damaged func(err error)
	// CacheBytes and MemTableBytes bound the memory of blocks and of writes
	// not yet in tables; 0 means the default.
	CacheBytes    int64
	MemTableBytes int64
	// Background makes the engine's own work, flushes and compactions of its tables,
	// give way to everything else in the process, and merges tables later. For
	// databases that are written in bulk and that nobody waits for.
	Background bool
}

// Entry is a key with its value.
type Entry struct{ Key, Value []byte }

// Reader reads a DB, a Snapshot of it, or a Batch on top of it.
type Reader interface {
	// Get returns a copy of a value, and false where there is none.
	Get(key []byte) ([]byte, bool, error)
	// Scan yields the entries of a range in the order of their keys, as of
	// the moment of the call to the sequence. An entry's slices are valid
	// until the next one. An error ends it.
	Scan(r Range) iter.Seq2[Entry, error]
	// Last returns a copy of the entry with the highest key in the range.
	Last(r Range) (Entry, bool, error)
}

// DB is one database. All methods may be called from several goroutines.
type DB struct {
	dir    string
	fs     *adapter
	db     *pebble.DB
	phase  *atomic.Int32
	tables sstable.WriterOptions // of a Bulk
	// bulkTables counts those of all bulks: their names.
	bulkTables atomic.Uint64
	gate       gate
}

// Open opens the database in a folder.
func Open(cfg Config) (*DB, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	log := cfg.Logger.With("store", path.Base(cfg.Dir))
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = DefaultCacheBytes
	}
	if cfg.MemTableBytes == 0 {
		cfg.MemTableBytes = DefaultMemTableBytes
	}
	if err := disk.EnsureDir(cfg.FS, cfg.Dir); err != nil {
		return nil, fmt.Errorf("metadata store folder: %w", err)
	}
	if err := cfg.FS.RemoveAll(path.Join(cfg.Dir, bulkFolder)); err != nil {
		return nil, fmt.Errorf("metadata store folder: %w", err)
	}
	cache := pebble.NewCache(cfg.CacheBytes)
	defer cache.Unref() // the DB holds its own reference
	engineLog := &logger{log: log, fatal: cfg.Fatal}
	phase := new(atomic.Int32)
	files := &adapter{disk: cfg.FS, dir: cfg.Dir, phase: phase, fatal: engineLog.stop, background: cfg.Background}
	opts := &pebble.Options{
		FS:                          files,
		Cache:                       cache,
		MemTableSize:                uint64(cfg.MemTableBytes),
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                maxOpenFiles,
		FormatMajorVersion:          formatVersion,
		Logger:                      engineLog,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				log.Error("metadata store background work failed", "err", err)
				if cfg.Damaged != nil && pebble.IsCorruptionError(err) {
					cfg.Damaged(&CorruptError{Dir: cfg.Dir, Cause: err})
				}
			},
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				log.Error("metadata store file is corrupt", "file", info.Path, "err", info.Details)
				if cfg.Damaged != nil {
					cfg.Damaged(&CorruptError{Dir: cfg.Dir, Cause: fmt.Errorf("%s: %w", info.Path, info.Details)})
				}
			},
			WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
				log.Warn("metadata store is not keeping up with writes", "reason", info.Reason)
			},
		},
	}
	if cfg.Background {
		// Fewer merges for somewhat more to look at: what is written is large and all
		// over the keys, so that each merge is one of everything.
		opts.L0CompactionThreshold, opts.L0StopWritesThreshold = 10, 24
		opts.Experimental.CompactionScheduler = &scheduler{}
		for i := range opts.Levels {
			opts.Levels[i].BlockSize = 16 << 10
		}
		opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
		// Both are called by the goroutine of that one piece of work, which ends with it.
		opts.EventListener.FlushBegin = func(pebble.FlushInfo) { background.Enter() }
		opts.EventListener.CompactionBegin = func(pebble.CompactionInfo) { background.Enter() }
	}
	opts.EnsureDefaults()
	db, err := openPebble(cfg.Dir, opts)
	if err != nil {
		return nil, wrap(cfg.Dir, nil, fmt.Errorf("opening metadata store %s: %w", cfg.Dir, err))
	}
	phase.Store(running)
	d := &DB{dir: cfg.Dir, fs: files, db: db, phase: phase, tables: opts.MakeWriterOptions(0, formatVersion.MaxTableFormat())}
	d.gate.cond.L = &d.gate.mu
	return d, nil
}

// openPebble is pebble.Open without its panics. What it had opened is not given
// back then.
func openPebble(dir string, opts *pebble.Options) (db *pebble.DB, err error) {
	defer caught(&err)
	return pebble.Open(dir, opts)
}

// caught, deferred, turns the panics with which the engine meets some disk
// errors into errors.
func caught(err *error) {
	if r := recover(); r != nil {
		cause, ok := r.(error)
		if !ok {
			cause = fmt.Errorf("%v", r)
		}
		*err = fmt.Errorf("engine panicked: %w", cause)
	}
}

// Get implements Reader.
func (d *DB) Get(key []byte) ([]byte, bool, error) {
	if !d.gate.enter() {
		return nil, false, ErrClosed
	}
	defer d.gate.leave()
	return get(d.dir, d.db, key)
}

// Scan implements Reader. The DB stays open while the sequence runs.
func (d *DB) Scan(r Range) iter.Seq2[Entry, error] { return scan(d, d.db, r) }

// Last implements Reader.
func (d *DB) Last(r Range) (Entry, bool, error) {
	if !d.gate.enter() {
		return Entry{}, false, ErrClosed
	}
	defer d.gate.leave()
	return last(d.dir, d.db, r)
}

// Snapshot returns a view of this moment; the caller must Close it.
func (d *DB) Snapshot() (*Snapshot, error) {
	if !d.gate.enter() {
		return nil, ErrClosed
	}
	return &Snapshot{db: d, snap: d.db.NewSnapshot()}, nil
}

// Flush moves every committed batch into tables, durably.
func (d *DB) Flush() error {
	if !d.gate.enter() {
		return ErrClosed
	}
	defer d.gate.leave()
	return wrap(d.dir, nil, d.db.Flush())
}

// SyncCommitted makes every batch committed before the call survive a power
// loss. A failure of the engine itself does not return (Config.Fatal).
func (d *DB) SyncCommitted() error {
	if !d.gate.enter() {
		return ErrClosed
	}
	defer d.gate.leave()
	return wrap(d.dir, nil, d.db.LogData(nil, pebble.Sync))
}

// Checkpoint makes a folder, which must not exist, with a copy of the database
// as of some moment during the call: tables are hard links, the rest is small.
// It is durable once the call returned.
func (d *DB) Checkpoint(dir string) (err error) {
	if !d.gate.enter() {
		return ErrClosed
	}
	defer d.gate.leave()
	defer caught(&err)
	return wrap(d.dir, nil, d.db.Checkpoint(dir, pebble.WithFlushedWAL()))
}

// Stats describes a DB's use of memory and disk, in bytes.
type Stats struct {
	DiskBytes     int64
	LogBytes      int64 // of DiskBytes, not yet in tables
	MemTableBytes int64
	CacheBytes    int64
}

// Stats returns the current figures; zero after Close.
func (d *DB) Stats() Stats {
	if !d.gate.enter() {
		return Stats{}
	}
	defer d.gate.leave()
	m := d.db.Metrics()
	return Stats{
		DiskBytes:     int64(m.DiskSpaceUsage()),
		LogBytes:      int64(m.WAL.PhysicalSize),
		MemTableBytes: int64(m.MemTable.Size),
		CacheBytes:    m.BlockCache.Size,
	}
}

// Close waits for running calls, sequences and snapshots, then closes. Later
// calls answer ErrClosed; a second Close does nothing.
func (d *DB) Close() error {
	if !d.gate.close() {
		return nil
	}
	d.phase.Store(closing)
	return wrap(d.dir, nil, d.db.Close())
}

// gate counts running calls and lets none in after close.
type gate struct {
	mu     sync.Mutex
	cond   sync.Cond
	inside int
	closed bool
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 {
		g.cond.Broadcast()
	}
}

// close waits until nobody is inside; false: it was closed before.
func (g *gate) close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.closed = true
	for g.inside > 0 {
		g.cond.Wait()
	}
	return true
}

// logger is Pebble's. Fatalf never returns (S3).
type logger struct {
	log   *slog.Logger
	fatal func(error)
}

func (l *logger) Infof(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

func (l *logger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }

func (l *logger) Fatalf(format string, args ...any) {
	failure := &FatalError{Message: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			failure.Cause = err
		}
	}
	l.report(failure)
	runtime.Goexit()
}

// stop is Fatalf where the engine's locks are in disorder, so that not even its
// deferred calls may run: the goroutine stays for ever.
func (l *logger) stop(err error) {
	l.report(err)
	select {}
}

func (l *logger) report(err error) {
	l.log.Error("metadata store cannot go on", "err", err)
	if l.fatal == nil {
		os.Exit(1)
	}
	l.fatal(err)
}

func wrap(dir string, key []byte, err error) error {
	if err == nil || !pebble.IsCorruptionError(err) {
		return err
	}
	return &CorruptError{Dir: dir, Key: fmt.Sprintf("%x", key), Cause: err}
}
