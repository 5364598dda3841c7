package disk

import (
	"container/list"
	"sync"
)

// HandleCache keeps up to a number of read-only files open, the least recently
// used one leaving first. Handles given out stay valid after they left: leaving
// only drops the cache's own reference.
type HandleCache struct {
	fs    FS
	limit int

	mu struct {
		sync.Mutex
		closed bool
		byName map[string]*list.Element
		recent list.List // of *cachedHandle, most recent first
		stats  HandleCacheStats
	}
}

// HandleCacheStats counts since the start.
type HandleCacheStats struct {
	Hits, Opened, Evicted int64
	Open                  int // in the cache now
}

type cachedHandle struct {
	name   string
	handle *Handle
}

// NewHandleCache returns a cache of at most limit (at least 1) open files.
func NewHandleCache(fs FS, limit int) *HandleCache {
	c := &HandleCache{fs: fs, limit: max(limit, 1)}
	c.mu.byName = map[string]*list.Element{}
	return c
}

// Get returns the file's handle with a reference that the caller must Release.
// The file is opened without the cache's lock held.
func (c *HandleCache) Get(name string) (*Handle, error) { return c.GetAs(name, name) }

// GetAs is Get of a file that the cache knows by another name: where a file
// takes another's place, who still opens the former one cannot be mistaken for
// who wants the new one.
func (c *HandleCache) GetAs(key, name string) (*Handle, error) {
	if h := c.lookup(key); h != nil {
		return h, nil
	}
	f, err := c.fs.OpenReadOnly(name)
	if err != nil {
		return nil, err
	}
	h := NewHandle(f, nil)
	h.Acquire() // one for the caller, one for the cache
	for _, evicted := range c.insert(key, h) {
		evicted.Release()
	}
	return h, nil
}

func (c *HandleCache) lookup(name string) *Handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.mu.byName[name]
	if !ok {
		return nil
	}
	h := e.Value.(*cachedHandle).handle
	h.Acquire() // the cache's own reference keeps it above zero
	c.mu.recent.MoveToFront(e)
	c.mu.stats.Hits++
	return h
}

// insert returns the handles whose cache reference the caller must release.
func (c *HandleCache) insert(name string, h *Handle) []*Handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.stats.Opened++
	if c.mu.closed {
		return []*Handle{h}
	}
	var out []*Handle
	if e, ok := c.mu.byName[name]; ok { // two opened it at once: the later one stays
		out = append(out, c.removeLocked(e))
	}
	c.mu.byName[name] = c.mu.recent.PushFront(&cachedHandle{name: name, handle: h})
	for c.mu.recent.Len() > c.limit {
		c.mu.stats.Evicted++
		out = append(out, c.removeLocked(c.mu.recent.Back()))
	}
	return out
}

func (c *HandleCache) removeLocked(e *list.Element) *Handle {
	entry := c.mu.recent.Remove(e).(*cachedHandle)
	delete(c.mu.byName, entry.name)
	return entry.handle
}

// Drop forgets a name, as must happen before the file is renamed, removed or
// made anew.
func (c *HandleCache) Drop(name string) {
	c.mu.Lock()
	var h *Handle
	if e, ok := c.mu.byName[name]; ok {
		h = c.removeLocked(e)
	}
	c.mu.Unlock()
	if h != nil {
		h.Release()
	}
}

// Stats returns the counters.
func (c *HandleCache) Stats() HandleCacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.stats
	s.Open = c.mu.recent.Len()
	return s
}

// Close drops every name. Later Gets open a file of their own each.
func (c *HandleCache) Close() error {
	c.mu.Lock()
	c.mu.closed = true
	var out []*Handle
	for c.mu.recent.Len() > 0 {
		out = append(out, c.removeLocked(c.mu.recent.Back()))
	}
	c.mu.Unlock()
	for _, h := range out {
		h.Release()
	}
	return nil
}
