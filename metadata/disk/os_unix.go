//go:build unix && !linux

package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func uncache(string) {}

func (f *osFile) SyncData() error { return f.Sync() }

func (f *osFile) WriteV(bufs [][]byte, off int64) (int, error) {
	return writeEach(f.File, bufs, off)
}

func (osFS) Usage(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Usage{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := int64(st.Bsize)
	return Usage{FreeBytes: int64(st.Bavail) * block, TotalBytes: int64(st.Blocks) * block}, nil
}

func allocate(File, int64) error { return errors.ErrUnsupported }
