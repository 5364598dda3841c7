package rangecache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"sort"
	"sync"
	"time"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Outcomes of Acquire and Open.
var (
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("range cache is closed")
	// ErrTooLarge is returned for a range that the limit has no room for.
	ErrTooLarge = errors.New("range is too large for the cache")
	// ErrStorage wraps failures of the cache's own disk.
	ErrStorage = errors.New("cache disk failed")
)

// errReserved: a fill would take what the disk keeps free for others.
var errReserved = errors.New("no space on the disk above what is reserved")

// errNoSpace is how a fill that may not wait ends where space is short.
var errNoSpace = errors.New("no space in the cache now")

// MinLimitBytes is the smallest limit that Open accepts.
const MinLimitBytes = 256 << 10

// Source brings in ranges of one object. Its methods may be called from several
// goroutines, after the Acquire that it was passed to has returned.
type Source interface {
	// Open starts one read of the object's bytes from position on.
	Open(ctx context.Context, position, bytes int64) (io.ReadCloser, error)
	// Check accepts or refuses the bytes of one range. It does not keep data.
	Check(position int64, data []byte) error
	// Retriable tells whether trying again can help after err.
	Retriable(err error) bool
}

// Config is what a Cache is made of. FS, Dir and LimitBytes are required.
type Config struct {
	FS  disk.FS
	Dir string
	// LimitBytes bounds the directory (C1).
	LimitBytes int64
	// ReservedBytes of the directory's disk are left free (C8); 0: none.
	ReservedBytes int64
	// FillLimit bounds the fills that read from a Source at a time; half of
	// them, at least one, may be prefetches. Default 16.
	FillLimit int
	// FillTimeout bounds one fill, retries included. Default 1 minute.
	FillTimeout time.Duration
	// FillAttempts bounds the reads of one fill that bring nothing. Default 4.
	FillAttempts int
	// RetryBackoff is the pause after the first failed read; it doubles, with
	// jitter. Default 100 ms.
	RetryBackoff time.Duration
	Logger       *slog.Logger
}

func (c *Config) setDefaults() {
	if c.FillLimit <= 0 {
		c.FillLimit = 16
	}
	if c.FillTimeout <= 0 {
		c.FillTimeout = time.Minute
	}
	if c.FillAttempts <= 0 {
		c.FillAttempts = 4
	}
	if c.RetryBackoff <= 0 {
		c.RetryBackoff = 100 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// state is where an entry stands.
type state int8

const (
	filling    state = iota // asked for; not yet there
	ready                   // there and checked
	unverified              // left by an earlier run; to be checked at first use
	evicting                // out of the map; its file is to be removed
	failed                  // out of the map; it has no file
)

// entry is one range. Its fields are guarded by Cache.mu; key and serial never
// change.
type entry struct {
	key    Key
	serial uint64
	state  state
	pins   int
	// fresh says that the range has its space and nobody has held it yet.
	fresh bool
	// unwritten says that it has its space and the disk does not know of it yet.
	unwritten bool
	// err is set before done is closed where the fill failed.
	err  error
	done chan struct{}
	// stalled is closed when the fill starts to wait for space.
	stalled  chan struct{}
	filledAt int64 // value of Cache.filledBytes when it was filled
	elem     *list.Element
	in       *list.List
}

// Cache is a bounded cache of ranges. All methods may be called concurrently.
type Cache struct {
	cfg     Config
	lock    io.Closer
	ctx     context.Context
	cancel  context.CancelFunc
	fills   sync.WaitGroup
	slots   chan struct{} // running fills
	ahead   chan struct{} // running prefetches
	bypass  chan struct{} // reads around the cache
	buffers sync.Pool
	counts  counts

	mu          sync.Mutex
	closed      bool
	entries     map[Key]*entry
	serial      uint64
	charged     int64
	unwritten   int64 // of charged, what no file takes yet
	pinned      int64
	freshBytes  int64 // of ranges with the fresh flag, those on their way included
	filledBytes int64
	// fresh holds ranges that nobody has held yet, used the others; both in
	// order of age, oldest first. Pinned ranges are in neither.
	fresh, used *list.List
	// freed is closed, and replaced, when space may have become available
	// and somebody is waiting for it.
	freed   chan struct{}
	waiting int
}

// Open takes the directory, makes it if missing, removes what does not belong
// there, and keeps the ranges that an earlier run left, up to the limit.
func Open(cfg Config) (*Cache, error) {
	cfg.setDefaults()
	if cfg.LimitBytes < MinLimitBytes {
		return nil, fmt.Errorf("cache limit is %d bytes: must be at least %d", cfg.LimitBytes, MinLimitBytes)
	}
	if err := cfg.FS.MkdirAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("cache directory: %w", err)
	}
	lock, err := cfg.FS.Lock(path.Join(cfg.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("cache directory %s: %w", cfg.Dir, err)
	}
	c := &Cache{
		cfg:     cfg,
		lock:    lock,
		slots:   make(chan struct{}, cfg.FillLimit),
		ahead:   make(chan struct{}, max(1, cfg.FillLimit/2)),
		bypass:  make(chan struct{}, bypassLimit),
		entries: make(map[Key]*entry),
		charged: baseChargeBytes,
		fresh:   list.New(),
		used:    list.New(),
		freed:   make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if err := c.load(); err != nil {
		c.cancel()
		return nil, errors.Join(fmt.Errorf("cache directory %s: %w", cfg.Dir, err), lock.Close())
	}
	return c, nil
}

const lockName = ".lock"

// load scans the directory: oldest files are the first to be evicted.
func (c *Cache) load() error {
	names, err := c.cfg.FS.List(c.cfg.Dir)
	if err != nil {
		return err
	}
	type found struct {
		e        *entry
		modified time.Time
	}
	var files []found
	seen := make(map[Key]bool)
	for _, name := range names {
		if name == lockName {
			continue
		}
		info, err := c.cfg.FS.Stat(path.Join(c.cfg.Dir, name))
		if err != nil {
			return err
		}
		k, serial, ok := parseFileName(name)
		if !ok || info.Dir || info.Bytes != k.Bytes+trailerBytes || seen[k] {
			if err := c.removeJunk(name, info.Dir); err != nil {
				return err
			}
			continue
		}
		seen[k] = true
		c.serial = max(c.serial, serial)
		files = append(files, found{&entry{key: k, serial: serial, state: unverified}, info.Modified})
	}
	sort.SliceStable(files, func(i, j int) bool { return files[i].modified.After(files[j].modified) })
	kept := len(files)
	for i, f := range files {
		if n := chargeBytes(f.e.key.Bytes); c.charged+n <= c.cfg.LimitBytes {
			c.charged += n
		} else {
			kept = i
			break
		}
	}
	for i := len(files) - 1; i >= 0; i-- {
		e := files[i].e
		if i >= kept {
			if err := c.cfg.FS.Remove(c.name(e)); err != nil {
				return err
			}
			continue
		}
		c.entries[e.key] = e
		c.shelveLocked(e)
	}
	return nil
}

func (c *Cache) removeJunk(name string, dir bool) error {
	c.cfg.Logger.Warn("removing a file that does not belong in the cache", "dir", c.cfg.Dir, "name", name)
	full := path.Join(c.cfg.Dir, name)
	if dir {
		return c.cfg.FS.RemoveAll(full)
	}
	return c.cfg.FS.Remove(full)
}

// Close cancels the fills, waits for them, and gives the directory back. Regions
// that are still held stay readable until they are released.
func (c *Cache) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.fills.Wait()
	return c.lock.Close()
}

// LimitBytes is the limit that the cache was opened with.
func (c *Cache) LimitBytes() int64 { return c.cfg.LimitBytes }

// Discard drops a range that turned out bad, so that the next Acquire brings it
// in anew. Regions of it that are held stay valid.
func (c *Cache) Discard(k Key) {
	c.mu.Lock()
	e := c.entries[k]
	c.mu.Unlock()
	if e != nil {
		c.discard(e)
	}
}

func (c *Cache) discard(e *entry) {
	c.mu.Lock()
	if c.entries[e.key] != e || e.state == filling {
		c.mu.Unlock()
		return
	}
	c.forgetLocked(e)
	held := e.pins > 0
	c.mu.Unlock()
	if !held { // else the last Region removes it
		c.removeFile(e)
	}
}

// Drop removes every range of an object that nobody holds.
func (c *Cache) Drop(object cluster.SegmentID) {
	var idle []*entry
	c.mu.Lock()
	for k, e := range c.entries {
		if k.Object == object && e.pins == 0 && e.state != filling {
			c.forgetLocked(e)
			idle = append(idle, e)
		}
	}
	c.mu.Unlock()
	for _, e := range idle {
		c.removeFile(e)
	}
}

func (c *Cache) name(e *entry) string {
	return path.Join(c.cfg.Dir, fileName(e.key, e.serial))
}

// shelveLocked makes an entry that nobody holds a candidate for eviction.
func (c *Cache) shelveLocked(e *entry) {
	e.in = c.used
	if e.fresh {
		e.in = c.fresh
	}
	e.elem = e.in.PushBack(e)
	c.signalLocked()
}

// unshelveLocked is the opposite.
func (c *Cache) unshelveLocked(e *entry) {
	if e.elem != nil {
		e.in.Remove(e.elem)
		e.elem, e.in = nil, nil
	}
}

// setFreshLocked changes the fresh flag and the sum over it.
func (c *Cache) setFreshLocked(e *entry, fresh bool) {
	if e.fresh == fresh {
		return
	}
	e.fresh = fresh
	if fresh {
		c.freshBytes += chargeBytes(e.key.Bytes)
	} else {
		c.freshBytes -= chargeBytes(e.key.Bytes)
	}
}

// forgetLocked takes an entry out of the map; its bytes stay charged until its
// file is gone.
func (c *Cache) forgetLocked(e *entry) {
	c.unshelveLocked(e)
	c.setFreshLocked(e, false)
	if c.entries[e.key] == e {
		delete(c.entries, e.key)
	}
	e.state = evicting
}

// signalLocked wakes whoever waits for space.
func (c *Cache) signalLocked() {
	if c.waiting == 0 {
		return
	}
	close(c.freed)
	c.freed = make(chan struct{})
}

// pinLocked takes a pin on an entry.
func (c *Cache) pinLocked(e *entry) {
	if e.pins == 0 {
		c.unshelveLocked(e)
		c.pinned += chargeBytes(e.key.Bytes)
	}
	e.pins++
	c.setFreshLocked(e, false)
}

// unpin gives a pin back; the last one makes the entry evictable, or removes
// the file of one that was discarded meanwhile.
func (c *Cache) unpin(e *entry) {
	c.mu.Lock()
	e.pins--
	if e.pins > 0 {
		c.mu.Unlock()
		return
	}
	c.pinned -= chargeBytes(e.key.Bytes)
	gone := e.state == evicting
	if e.state == ready {
		c.shelveLocked(e)
	}
	c.mu.Unlock()
	if gone {
		c.removeFile(e)
	}
}
