package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// LockedError is what FS.Lock answers where the lock is held: it matches
// ErrLocked and names the holder.
type LockedError struct {
	Name string
	// PID is the holder's process id as it wrote it into the lock file, 0
	// where it is not known.
	PID int
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s: %v", e.Name, ErrLocked)
	}
	return fmt.Sprintf("%s: locked by process %d", e.Name, e.PID)
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// OS returns the real file system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}
func (osFS) Open(name string) (File, error)         { return openOS(name, os.O_RDWR) }
func (osFS) OpenReadOnly(name string) (File, error) { return openOS(name, os.O_RDONLY) }
func (osFS) Rename(oldName, newName string) error   { return os.Rename(oldName, newName) }
func (osFS) Link(oldName, newName string) error     { return os.Link(oldName, newName) }
func (osFS) RemoveAll(name string) error            { return os.RemoveAll(name) }
func (osFS) MkdirAll(dir string) error              { return os.MkdirAll(dir, 0o755) }

// Remove lets a large file's memory go first, a piece at a time: with the file the
// kernel would free all of it in one go, milliseconds in which the processor does
// nothing else.
func (osFS) Remove(name string) error {
	uncache(name)
	return os.Remove(name)
}

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Bytes: fi.Size(), Dir: fi.IsDir(), Modified: fi.ModTime()}, nil
}

func (osFS) SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &os.PathError{Op: "flock", Path: name, Err: err}
		}
		return nil, &LockedError{Name: name, PID: readPID(f)}
	}
	// The process id in the file is for people and for LockedError only.
	pid := []byte(strconv.Itoa(os.Getpid()) + "\n")
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(pid, 0)
	}
	return f, nil
}

func readPID(f io.ReaderAt) int {
	var buf [32]byte
	n, _ := f.ReadAt(buf[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return 0
	}
	return pid
}

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return newOSFile(f)
}

// osFile adds the calls that os.File lacks. The embedded file's methods hold a
// reference of the descriptor, and so does raw: none can meet a descriptor that
// Close has given back.
type osFile struct {
	*os.File
	raw syscall.RawConn
}

func newOSFile(f *os.File) (File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{File: f, raw: raw}, nil
}

func (f *osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (f *osFile) Fd() (uintptr, bool) { return f.File.Fd(), true }

// writeEach is WriteV by one call per buffer.
func writeEach(f io.WriterAt, bufs [][]byte, off int64) (int, error) {
	total := 0
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		n, err := f.WriteAt(b, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
