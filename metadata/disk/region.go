package disk

import (
	"errors"
	"io"
	"sync/atomic"
)

// Handle is a file shared by reference count: the last Release closes it, so
// that truncation, deletion or eviction of a file never pulls it away from a
// response being sent.
type Handle struct {
	file       File
	refs       atomic.Int64
	unreadable atomic.Bool
	failed     atomic.Pointer[error]
	// onClose, if set, is called after the file was closed.
	onClose func(error)
}

// NewHandle takes ownership of f and returns a handle with one reference.
// onClose may be nil; it is called once with the result of closing f, and
// ErrUnreadable where a Region could not be read or Fail was called.
func NewHandle(f File, onClose func(error)) *Handle {
	h := &Handle{file: f, onClose: onClose}
	h.refs.Store(1)
	return h
}

// File returns the file; valid while the caller holds a reference.
func (h *Handle) File() File { return h.file }

// Acquire takes a reference and reports whether it got one: false once the
// count has reached zero.
func (h *Handle) Acquire() bool {
	for {
		n := h.refs.Load()
		if n <= 0 {
			return false
		}
		if h.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// ErrUnreadable tells that a file that was shared could not be read.
var ErrUnreadable = errors.New("the file could not be read")

// Fail says that bytes of the file that should be there could not be read, and
// why, where nobody can be told any more; the first cause stays.
func (h *Handle) Fail(cause error) {
	h.unreadable.Store(true)
	h.failed.CompareAndSwap(nil, &cause)
}

// Failed returns the cause that Fail was given, nil where it was not called.
func (h *Handle) Failed() error {
	if cause := h.failed.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Release gives a reference back; the last one closes the file.
func (h *Handle) Release() {
	switch n := h.refs.Add(-1); {
	case n == 0:
		err := h.file.Close()
		if h.unreadable.Load() {
			err = errors.Join(ErrUnreadable, h.Failed(), err)
		}
		if h.onClose != nil {
			h.onClose(err)
		}
	case n < 0:
		panic("disk: Handle released more often than acquired")
	}
}

// Region is a range of a shared file. Whoever holds a Region owns one reference
// of its Handle and must call Release exactly once.
type Region struct {
	Handle   *Handle
	Position int64
	Bytes    int64
	// Resident says that the bytes were written or read recently enough to be
	// taken as lying in the page cache, so that sending them does not block on
	// the disk.
	Resident bool
}

// ReadAt fills p with the region's bytes from off (relative to the region).
func (r Region) ReadAt(p []byte, off int64) (int, error) {
	if off >= r.Bytes {
		return 0, io.EOF
	}
	short := false
	if rest := r.Bytes - off; int64(len(p)) > rest {
		p, short = p[:rest], true
	}
	n, err := r.Handle.file.ReadAt(p, r.Position+off)
	if n < len(p) {
		r.Handle.unreadable.Store(true)
	}
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// Release gives back the region's reference.
func (r Region) Release() { r.Handle.Release() }
