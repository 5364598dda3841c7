package disk

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// sectorBytes is what a disk writes as a whole.
const sectorBytes = 512

// fileData is a file's contents now and after a power loss in which everything
// unsynced is lost, and which sectors differ.
type fileData struct {
	now, durable []byte
	// dirty has a bit per sector written, or cut off, since the last sync.
	dirty []uint64
}

func (d *fileData) clone() fileData {
	return fileData{
		now: bytes.Clone(d.now), durable: bytes.Clone(d.durable),
		dirty: append([]uint64(nil), d.dirty...),
	}
}

func (d *fileData) mark(from, to int64) {
	if to <= from {
		return
	}
	for s := from / sectorBytes; s <= (to-1)/sectorBytes; s++ {
		for int64(len(d.dirty))*64 <= s {
			d.dirty = append(d.dirty, 0)
		}
		d.dirty[s/64] |= 1 << (s % 64)
	}
}

// sectors calls fn with the range of every dirty sector.
func (d *fileData) sectors(fn func(from, to int64)) {
	for i, word := range d.dirty {
		for bit := 0; word != 0; bit++ {
			if word&1 != 0 {
				s := int64(i*64 + bit)
				fn(s*sectorBytes, (s+1)*sectorBytes)
			}
			word >>= 1
		}
	}
}

func (d *fileData) sync() {
	size := int64(len(d.now))
	d.durable = resize(d.durable, size)
	d.sectors(func(from, to int64) {
		if from < size {
			copy(d.durable[from:min(to, size)], d.now[from:])
		}
	})
	clear(d.dirty)
	d.dirty = d.dirty[:0]
}

// resize cuts or extends b with zeroes.
func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	if size <= int64(cap(b)) {
		old := len(b)
		b = b[:size]
		clear(b[old:])
		return b
	}
	grown := make([]byte, size, size+size/4)
	copy(grown, b)
	return grown
}

// afterPowerLoss decides the fate of each unsynced sector and of the size.
func (d *fileData) afterPowerLoss(rng *rand.Rand, keep float64) fileData {
	size := int64(len(d.durable))
	if now := int64(len(d.now)); now != size && rng.Float64() < keep {
		size = now
		if grown := now - int64(len(d.durable)); grown > 0 && rng.IntN(4) == 0 {
			size = int64(len(d.durable)) + rng.Int64N(grown+1)
		}
	}
	out := resize(bytes.Clone(d.durable), size)
	d.sectors(func(from, to int64) {
		if rng.Float64() >= keep || from >= size {
			return
		}
		end := min(to, size)
		if from < int64(len(d.now)) {
			n := copy(out[from:end], d.now[from:])
			clear(out[from+int64(n) : end])
		} else {
			clear(out[from:end])
		}
	})
	return fileData{now: out, durable: bytes.Clone(out)}
}

type crashFile struct {
	fs       *Crash
	node     *node
	name     string
	readOnly bool
	closed   atomic.Bool
}

func (f *crashFile) check(op string, write bool) error {
	if f.closed.Load() {
		return pathError(op, f.name, os.ErrClosed)
	}
	if write && f.readOnly {
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *crashFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, os.ErrInvalid)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	now := f.node.file.now
	if off >= int64(len(now)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, now[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *crashFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.ops.Add(1)
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, os.ErrInvalid)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	d := &f.node.file
	if len(p) == 0 {
		return 0, nil
	}
	end := off + int64(len(p))
	if size := int64(len(d.now)); end > size {
		d.mark(size, end)
		d.now = resize(d.now, end)
	}
	copy(d.now[off:], p)
	d.mark(off, end)
	f.node.modified = time.Now()
	return len(p), nil
}

// WriteV implements File. A power loss may come between two of its buffers as
// anywhere else: sectors are lost one by one.
func (f *crashFile) WriteV(bufs [][]byte, off int64) (int, error) { return writeEach(f, bufs, off) }

func (f *crashFile) Truncate(size int64) error {
	f.fs.ops.Add(1)
	if err := f.check("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathError("truncate", f.name, os.ErrInvalid)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	d := &f.node.file
	old := int64(len(d.now))
	d.mark(min(old, size), max(old, size))
	d.now = resize(d.now, size)
	f.node.modified = time.Now()
	return nil
}

func (f *crashFile) SyncData() error {
	f.fs.ops.Add(1)
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.node.file.sync()
	return nil
}

func (f *crashFile) Size() (int64, error) {
	if err := f.check("stat", false); err != nil {
		return 0, err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.node.file.now)), nil
}

func (f *crashFile) Name() string { return f.name }

func (f *crashFile) Fd() (uintptr, bool) { return 0, false }

func (f *crashFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, os.ErrClosed)
	}
	return nil
}
