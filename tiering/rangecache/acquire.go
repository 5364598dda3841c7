package rangecache

import (
	"context"
	"errors"

	"strandline/metadata/disk"
)

// errStale tells an acquirer that what an earlier run left was no good, and has
// been removed.
var errStale = errors.New("the cached range was damaged")

// openAttempts bounds how often a range is brought in anew because its file
// turned out missing or damaged.
const openAttempts = 3

// Acquire returns Regions of the first of the keys and of as many of those that
// follow as are cached or find room at once, in order: at least one, or an
// error. The keys are ranges of one object, ascending. What is missing is read
// from src, adjacent ranges in one go. Each Region covers its whole range and
// belongs to the caller.
//
// A caller whose context ends gets the context's error, or what it has; the
// fills go on (C5).
func (c *Cache) Acquire(ctx context.Context, keys []Key, src Source) ([]disk.Region, error) {
	first, err := c.acquireFirst(ctx, keys, src, needed)
	if err != nil {
		return nil, err
	}
	return append([]disk.Region{first}, c.Extend(ctx, keys[1:], src)...), nil
}

// Extend is Acquire for a caller that already holds ranges (C7): it waits for no
// space, and returns as many Regions as it can, maybe none.
func (c *Cache) Extend(ctx context.Context, keys []Key, src Source) []disk.Region {
	var regions []disk.Region
	for i := range keys {
		r, err := c.acquireFirst(ctx, keys[i:], src, extra)
		if err != nil {
			break
		}
		regions = append(regions, r)
	}
	return regions
}

// acquireFirst returns a Region of keys[0]; a fill that it starts also brings in
// those of the others that adjoin and are missing.
func (c *Cache) acquireFirst(ctx context.Context, keys []Key, src Source, u urgency) (disk.Region, error) {
	for attempt := 1; ; attempt++ {
		e, err := c.join(keys, src, u)
		if err != nil {
			return disk.Region{}, err
		}
		if err = e.await(ctx, u); err == nil {
			var r disk.Region
			if r, err = c.open(e); err == nil {
				return r, nil
			}
			c.counts.storageErrors.Add(1)
			c.discard(e)
		}
		c.unpin(e)
		again := errors.Is(err, errStale) || errors.Is(err, ErrStorage) && attempt < openAttempts ||
			errors.Is(err, errNoSpace) && u == needed
		if !again || ctx.Err() != nil {
			return disk.Region{}, err
		}
	}
}

// join pins the entry of keys[0], and starts what has to be done to have it.
func (c *Cache) join(keys []Key, src Source, u urgency) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	e := c.entries[keys[0]]
	switch {
	case e == nil:
		c.counts.misses.Add(1)
		run := c.newRunLocked(keys)
		e = run[0]
		c.fills.Go(func() { c.fill(run, src, u) })
	case e.state == unverified:
		c.counts.hits.Add(1)
		c.unshelveLocked(e)
		e.state, e.done, e.stalled = filling, make(chan struct{}), make(chan struct{})
		c.fills.Go(func() { c.verify(e) })
	default:
		c.counts.hits.Add(1)
	}
	c.pinLocked(e)
	return e, nil
}

// newRunLocked makes entries of the first keys that adjoin and are missing.
func (c *Cache) newRunLocked(keys []Key) []*entry {
	var run []*entry
	for i, k := range keys {
		if i > 0 && (k.Object != keys[0].Object || k.Position != keys[i-1].End() || c.entries[k] != nil) {
			break
		}
		c.serial++
		e := &entry{key: k, serial: c.serial, done: make(chan struct{}), stalled: make(chan struct{})}
		c.entries[k] = e
		run = append(run, e)
	}
	return run
}

// await waits until a pinned entry is ready. Who can do without it does not wait
// for a fill that waits for space (C7).
func (e *entry) await(ctx context.Context, u urgency) error {
	stalled := e.stalled
	if u == needed {
		stalled = nil
	}
	select {
	case <-e.done:
		return e.err
	default:
	}
	select {
	case <-e.done:
		return e.err
	case <-stalled:
		return errNoSpace
	case <-ctx.Done():
		return ctx.Err()
	}
}

// residentBytes is how many of the last bytes filled are taken as lying in the
// page cache.
const residentBytes = 64 << 20

// open makes the Region of an entry that the caller has pinned; releasing the
// Region gives the pin back.
func (c *Cache) open(e *entry) (disk.Region, error) {
	f, err := c.cfg.FS.OpenReadOnly(c.name(e))
	if err != nil {
		return disk.Region{}, storageError(err)
	}
	c.mu.Lock()
	resident := e.filledAt > 0 && c.filledBytes-e.filledAt < residentBytes
	c.mu.Unlock()
	h := disk.NewHandle(f, func(err error) {
		if errors.Is(err, disk.ErrUnreadable) {
			c.cfg.Logger.Warn("a cached range could not be read and is fetched again", "file", c.name(e))
			c.discard(e)
		}
		c.unpin(e)
	})
	return disk.Region{Handle: h, Bytes: e.key.Bytes, Resident: resident}, nil
}

// Prefetch starts to bring in what is missing of the keys, as far as there is
// room that nobody needs and few enough prefetches are running. It returns at
// once, with how many of the first keys are there or on their way; some of
// these may still find no room.
func (c *Cache) Prefetch(keys []Key, src Source) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := 0
	for i < len(keys) && !c.closed {
		if c.entries[keys[i]] != nil {
			i++
			continue
		}
		select {
		case c.ahead <- struct{}{}:
		default:
			return i
		}
		run := c.newRunLocked(keys[i:])
		i += len(run)
		c.fills.Go(func() {
			defer func() { <-c.ahead }()
			c.fill(run, src, ahead)
		})
	}
	return i
}
