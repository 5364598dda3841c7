package rangecache

import (
	"bytes"
	"errors"
	"sync/atomic"
)

// memoryFile is a range in memory in the shape of a file.
type memoryFile struct {
	data []byte
	name string
}

var errReadOnly = errors.New("a range in memory is read-only")

func (m memoryFile) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(m.data).ReadAt(p, off)
}
func (m memoryFile) WriteAt([]byte, int64) (int, error)  { return 0, errReadOnly }
func (m memoryFile) WriteV([][]byte, int64) (int, error) { return 0, errReadOnly }
func (m memoryFile) Truncate(int64) error                { return errReadOnly }
func (m memoryFile) SyncData() error                     { return nil }
func (m memoryFile) Size() (int64, error)                { return int64(len(m.data)), nil }
func (m memoryFile) Name() string                        { return m.name }
func (m memoryFile) Fd() (uintptr, bool)                 { return 0, false }
func (m memoryFile) Close() error                        { return nil }

// countdown calls f at the n-th call of done.
type countdown struct {
	left atomic.Int64
	f    func()
}

func newCountdown(n int, f func()) *countdown {
	c := &countdown{f: f}
	c.left.Store(int64(n))
	return c
}

func (c *countdown) done() {
	if c.left.Add(-1) == 0 {
		c.f()
	}
}
