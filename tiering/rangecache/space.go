package rangecache

import (
	"container/list"
	"context"
	"errors"
	"os"
)

// urgency is what a fill may do for space.
type urgency int8

const (
	ahead  urgency = iota // a prefetch: may push out what was read, up to half of the cache
	extra                 // wanted by a reader who can do without: never waits
	needed                // wanted by a reader who holds nothing: waits
)

// reserve charges the space of a range before its file is made (C1), evicting
// what nobody holds. Where the fill is needed it waits until there is room;
// stalled is called when that begins.
func (c *Cache) reserve(ctx context.Context, e *entry, u urgency, stalled func()) error {
	need := chargeBytes(e.key.Bytes)
	if need > c.cfg.LimitBytes-baseChargeBytes {
		return ErrTooLarge
	}
	if !c.diskHas(need) && (u != needed || !c.evictFor(e) || !c.diskHas(need)) {
		if u != needed {
			return errNoSpace
		}
		return storageError(errReserved)
	}
	for {
		c.mu.Lock()
		if u == ahead && c.freshBytes+need > c.cfg.LimitBytes/2 {
			c.mu.Unlock()
			return errNoSpace
		}
		if c.charged+need <= c.cfg.LimitBytes {
			c.charged += need
			c.unwritten += need
			e.unwritten = true
			c.setFreshLocked(e, e.pins == 0)
			c.mu.Unlock()
			return nil
		}
		victims := c.victimsLocked(c.charged+need-c.cfg.LimitBytes, u)
		if len(victims) == 0 && u == needed {
			c.waiting++
		}
		freed := c.freed
		c.mu.Unlock()
		for _, e := range victims {
			c.counts.evictions.Add(1)
			c.removeFile(e)
		}
		if len(victims) > 0 {
			continue
		}
		c.counts.full.Add(1)
		if u != needed {
			return errNoSpace
		}
		stalled()
		var err error
		select {
		case <-freed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		c.mu.Lock()
		c.waiting--
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// diskHas tells whether the disk has room for a range above what is reserved (C8).
// A disk that cannot be asked shows itself when the range is written.
func (c *Cache) diskHas(need int64) bool {
	if c.cfg.ReservedBytes <= 0 {
		return true
	}
	usage, err := c.cfg.FS.Usage(c.cfg.Dir)
	c.mu.Lock()
	defer c.mu.Unlock()
	return err != nil || usage.FreeBytes-c.unwritten-need >= c.cfg.ReservedBytes
}

// writtenLocked is told that the range's file is there, or will not be.
func (c *Cache) writtenLocked(e *entry) {
	if e.unwritten {
		e.unwritten = false
		c.unwritten -= chargeBytes(e.key.Bytes)
	}
}

// victimsLocked takes entries out of the cache until they free n bytes; none
// where they cannot: what others hold makes it impossible, and a part would be
// lost for nothing.
func (c *Cache) victimsLocked(n int64, u urgency) []*entry {
	var victims []*entry
	fresh, used := c.fresh.Front(), c.used.Front()
	freshLeft := c.freshBytes
	for n > 0 {
		var e *entry
		switch {
		// What was read goes before what was brought in for a reader to come,
		// unless that has grown to half of the cache, or the reader has not
		// come while as much as the cache holds was brought in.
		case fresh != nil && (c.staleLocked(fresh) || u != ahead && (freshLeft > c.cfg.LimitBytes/2 || used == nil)):
			e = fresh.Value.(*entry)
			fresh = fresh.Next()
			freshLeft -= chargeBytes(e.key.Bytes)
		case used != nil:
			e = used.Value.(*entry)
			used = used.Next()
		default:
			return nil
		}
		victims = append(victims, e)
		n -= chargeBytes(e.key.Bytes)
	}
	for _, e := range victims {
		c.forgetLocked(e)
	}
	return victims
}

func (c *Cache) staleLocked(fresh *list.Element) bool {
	return c.filledBytes-fresh.Value.(*entry).filledAt > c.cfg.LimitBytes
}

// fullDiskFactor is how many times its size is evicted for a range that the disk
// has no room for, so that not each of the ones after it fails first.
const fullDiskFactor = 4

// evictFor makes room on a disk that is full, or down to what is reserved, although
// the cache is within its limit. False: there is nothing to evict, and the range is served without the
// cache.
func (c *Cache) evictFor(e *entry) bool {
	c.mu.Lock()
	victims := c.victimsLocked(fullDiskFactor*chargeBytes(e.key.Bytes), needed)
	if victims == nil {
		victims = c.victimsLocked(chargeBytes(e.key.Bytes), needed)
	}
	c.mu.Unlock()
	c.counts.full.Add(1)
	for _, v := range victims {
		c.counts.evictions.Add(1)
		c.removeFile(v)
	}
	return len(victims) > 0
}

// removeFile removes the file of an entry that is out of the map and gives its
// space back. Where the disk refuses, the space stays charged: the file is
// still there.
func (c *Cache) removeFile(e *entry) {
	if err := c.cfg.FS.Remove(c.name(e)); err != nil && !errors.Is(err, os.ErrNotExist) {
		c.counts.storageErrors.Add(1)
		c.cfg.Logger.Error("cannot remove a cached range; its space stays taken", "file", c.name(e), "error", err)
		return
	}
	c.credit(e.key.Bytes)
}

// credit gives back the space of a range whose file does not exist.
func (c *Cache) credit(bytes int64) {
	c.mu.Lock()
	c.charged -= chargeBytes(bytes)
	c.signalLocked()
	c.mu.Unlock()
}
