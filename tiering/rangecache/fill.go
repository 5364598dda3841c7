package rangecache

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"strandline/metadata/disk"
)

func storageError(err error) error { return fmt.Errorf("%w: %w", ErrStorage, err) }

// fill brings in a run of adjacent ranges: the first of them as urgently as u
// says, the others only if there is room at once.
func (c *Cache) fill(run []*entry, src Source, u urgency) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.FillTimeout)
	defer cancel()
	stalled := false
	stall := func() {
		if !stalled {
			stalled = true
			for _, e := range run {
				close(e.stalled)
			}
		}
	}
	reserved := 0
	for _, e := range run {
		err := c.reserve(ctx, e, u, stall)
		if err != nil {
			c.fail(run[reserved:], err, 0)
			break
		}
		reserved++
		u = min(u, extra)
	}
	run = run[:reserved]
	if len(run) == 0 {
		return
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		c.fail(run, context.Cause(ctx), len(run))
		return
	}
	c.readAll(ctx, run, src)
}

// readAll reads the ranges of a run that has its space, going on after failures
// where the last one stopped.
func (c *Cache) readAll(ctx context.Context, run []*entry, src Source) {
	for failures := 0; len(run) > 0; {
		n, err := c.readSome(ctx, run, src)
		run = run[n:]
		if err == nil {
			continue
		}
		if n > 0 {
			failures = 0
		}
		failures++
		if failures >= c.cfg.FillAttempts || errors.Is(err, ErrStorage) || !src.Retriable(err) {
			c.fail(run, err, len(run))
			return
		}
		pause := c.cfg.RetryBackoff << (failures - 1)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			c.fail(run, err, len(run))
			return
		}
	}
}

// readSome reads ranges with one call to the source and returns how many it
// completed.
func (c *Cache) readSome(ctx context.Context, run []*entry, src Source) (n int, err error) {
	body, err := src.Open(ctx, run[0].key.Position, run[len(run)-1].key.End()-run[0].key.Position)
	if err != nil {
		return 0, err
	}
	defer func() { _ = body.Close() }()
	buf := c.buffer(run[0].key.Bytes)
	defer func() { c.buffers.Put(&buf) }()
	for _, e := range run {
		if int64(cap(buf)) < e.key.Bytes {
			buf = make([]byte, e.key.Bytes)
		}
		data := buf[:e.key.Bytes]
		if err := readChunk(body, data, e.key.Position, src); err != nil {
			return n, err
		}
		err := c.write(e, data)
		if disk.NoSpace(err) && c.evictFor(e) {
			err = c.write(e, data)
		}
		if err != nil {
			return n, storageError(err)
		}
		c.complete(e)
		n++
	}
	return n, nil
}

func readChunk(body io.Reader, data []byte, position int64, src Source) error {
	if _, err := io.ReadFull(body, data); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return src.Check(position, data)
}

func (c *Cache) buffer(bytes int64) []byte {
	if b, ok := c.buffers.Get().(*[]byte); ok && int64(cap(*b)) >= bytes {
		return *b
	}
	return make([]byte, bytes)
}

// write makes the file of an entry. Where it fails nothing is left.
func (c *Cache) write(e *entry, data []byte) error {
	name := c.name(e)
	f, err := c.cfg.FS.Create(name)
	if errors.Is(err, os.ErrNotExist) { // someone removed the directory
		if err = c.cfg.FS.MkdirAll(c.cfg.Dir); err == nil {
			f, err = c.cfg.FS.Create(name)
		}
	}
	if err != nil {
		return err
	}
	trailer := encodeTrailer(e.key, crc32.Checksum(data, castagnoli))
	_, err = f.WriteV([][]byte{data, trailer}, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, c.cfg.FS.Remove(name))
	}
	return nil
}

// verify checks a range that an earlier run left.
func (c *Cache) verify(e *entry) {
	err := verifyFile(c.cfg.FS, c.name(e), e.key)
	if err == nil {
		c.complete(e)
		return
	}
	c.cfg.Logger.Warn("a cached range is damaged and is fetched again", "file", c.name(e), "error", err)
	c.mu.Lock()
	delete(c.entries, e.key)
	e.state, e.err = failed, errStale
	c.mu.Unlock()
	c.removeFile(e)
	close(e.done)
}

func (c *Cache) complete(e *entry) {
	c.counts.filled.Add(e.key.Bytes)
	c.mu.Lock()
	e.state = ready
	c.writtenLocked(e)
	c.filledBytes += e.key.Bytes
	e.filledAt = c.filledBytes
	if e.pins == 0 {
		c.shelveLocked(e)
	}
	c.mu.Unlock()
	close(e.done)
}

// fail ends entries that have no file; the first reserved of them have space to
// give back.
func (c *Cache) fail(run []*entry, err error, reserved int) {
	if !errors.Is(err, errNoSpace) && !errors.Is(err, errReserved) {
		c.counts.fillErrors.Add(1)
	}
	c.mu.Lock()
	for i, e := range run {
		delete(c.entries, e.key)
		c.setFreshLocked(e, false)
		c.writtenLocked(e)
		e.state, e.err = failed, err
		if i < reserved {
			c.charged -= chargeBytes(e.key.Bytes)
		}
	}
	c.signalLocked()
	c.mu.Unlock()
	for _, e := range run {
		close(e.done)
	}
}

// bypassLimit bounds the reads around the cache that are in use at a time, and
// with them their memory.
const bypassLimit = 2

// Bypass reads adjacent ranges of one object into memory, checked like any
// other, for ranges that are too large for the cache or for when its disk has
// failed. Of the Regions that it returns, one for each key, only few calls' may
// be in use at a time: others wait.
func (c *Cache) Bypass(ctx context.Context, keys []Key, src Source) ([]disk.Region, error) {
	select {
	case c.bypass <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.counts.bypasses.Add(1)
	regions, err := c.readAround(ctx, keys, src)
	if err != nil {
		<-c.bypass
	}
	return regions, err
}

func (c *Cache) readAround(ctx context.Context, keys []Key, src Source) ([]disk.Region, error) {
	body, err := src.Open(ctx, keys[0].Position, keys[len(keys)-1].End()-keys[0].Position)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	data := make([][]byte, len(keys))
	for i, k := range keys {
		data[i] = make([]byte, k.Bytes)
		if err := readChunk(body, data[i], k.Position, src); err != nil {
			return nil, err
		}
	}
	regions := make([]disk.Region, len(keys))
	used := newCountdown(len(keys), func() { <-c.bypass })
	for i, d := range data {
		regions[i] = disk.Region{
			Handle:   disk.NewHandle(memoryFile{data: d, name: keys[i].String()}, func(error) { used.done() }),
			Bytes:    int64(len(d)),
			Resident: true,
		}
	}
	return regions, nil
}
