package disk

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"strandline/metadata/background"
)

// iovMax is the kernel's limit of buffers in one pwritev.
const iovMax = 1024

// uncachePiece is how much of a file is let go of at once: a hundred microseconds.
const uncachePiece = 1 << 20

// uncache gives back the memory that holds a file's data; not that of a file that has
// other names, and not where some of it is not on disk yet, which would be written. It
// is no error if it cannot (Linux before 6.5).
func uncache(name string) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return
	}
	if st.Size <= uncachePiece {
		return
	}
	var held unix.Cachestat_t
	if unix.Cachestat(uint(fd), &unix.CachestatRange{}, &held, 0) != nil || held.Dirty+held.Writeback > 0 {
		return
	}
	for at := int64(0); at < st.Size; at += uncachePiece {
		_ = unix.Fadvise(fd, at, uncachePiece, unix.FADV_DONTNEED)
		background.Yield()
	}
}

func (f *osFile) SyncData() error {
	var err error
	cerr := f.raw.Control(func(fd uintptr) {
		for {
			if err = unix.Fdatasync(int(fd)); err != unix.EINTR {
				return
			}
		}
	})
	if cerr != nil {
		return cerr
	}
	if err != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

func (f *osFile) WriteV(bufs [][]byte, off int64) (int, error) {
	if len(bufs) == 1 {
		return f.WriteAt(bufs[0], off)
	}
	total := 0
	for len(bufs) > 0 {
		if len(bufs[0]) == 0 {
			bufs = bufs[1:]
			continue
		}
		n, err := f.pwritev(bufs[:min(len(bufs), iovMax)], off+int64(total))
		total += n
		if err != nil {
			return total, &os.PathError{Op: "pwritev", Path: f.Name(), Err: err}
		}
		for n > 0 && len(bufs) > 0 {
			k := min(n, len(bufs[0]))
			n -= k
			if bufs[0] = bufs[0][k:]; len(bufs[0]) == 0 {
				bufs = bufs[1:]
			}
		}
	}
	return total, nil
}

func (f *osFile) pwritev(bufs [][]byte, off int64) (n int, err error) {
	cerr := f.raw.Control(func(fd uintptr) {
		for {
			if n, err = unix.Pwritev(int(fd), bufs, off); err != unix.EINTR {
				return
			}
		}
	})
	if cerr != nil {
		return 0, cerr
	}
	if err == nil && n == 0 {
		err = io.ErrShortWrite
	}
	return max(n, 0), err
}

func (osFS) Usage(dir string) (Usage, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return Usage{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
		block := int64(st.Bsize)
		return Usage{FreeBytes: int64(st.Bavail) * block, TotalBytes: int64(st.Blocks) * block}, nil
	}
}

// allocate gives a file blocks for that many bytes without writing them.
func allocate(f File, bytes int64) error {
	fd, ok := f.Fd()
	if !ok {
		return errors.ErrUnsupported
	}
	return unix.Fallocate(int(fd), 0, 0, bytes)
}
