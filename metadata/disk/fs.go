package disk

import (
	"errors"
	"io"
	"time"
)

// ErrLocked is returned by FS.Lock where another process, or another owner in
// this one, holds the lock.
var ErrLocked = errors.New("locked by another process")

// FS is a file system. Names are slash-separated paths. All methods may be
// called from several goroutines at once.
type FS interface {
	// Create makes a new, empty file, open for reading and writing. It
	// fails with os.ErrExist where the name exists.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenReadOnly opens an existing file for reading.
	OpenReadOnly(name string) (File, error)
	// Rename moves a file or folder; an existing file at newName is replaced.
	Rename(oldName, newName string) error
	// Link makes newName another name of the file oldName.
	Link(oldName, newName string) error
	// Remove removes a file or an empty folder.
	Remove(name string) error
	// RemoveAll removes a tree; a name that does not exist is no error.
	RemoveAll(name string) error
	// List returns the names in a folder, sorted.
	List(dir string) ([]string, error)
	// Stat describes a name.
	Stat(name string) (Info, error)
	// MkdirAll makes a folder and its missing parents. It syncs nothing.
	MkdirAll(dir string) error
	// SyncDir makes the entries of a folder durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on a file, made if missing, without
	// waiting. It fails with ErrLocked. Closing releases it.
	Lock(name string) (io.Closer, error)
	// Usage reports the space of the file system that holds dir.
	Usage(dir string) (Usage, error)
}

// File is an open file. ReadAt, WriteAt, WriteV and SyncData may overlap each
// other; SyncData covers the writes that returned before it was called.
type File interface {
	io.ReaderAt
	io.WriterAt
	// WriteV writes the buffers one after the other at off, in as few system
	// calls as possible. It may change the slice of slices, not the bytes.
	WriteV(bufs [][]byte, off int64) (int, error)
	// Truncate cuts or extends (with zeroes) the file to size bytes.
	Truncate(size int64) error
	// SyncData makes the file's data and size durable (fdatasync).
	SyncData() error
	// Size returns the file's size in bytes.
	Size() (int64, error)
	// Name returns the name under which the file was opened.
	Name() string
	// Fd returns the descriptor, and false where there is none (in memory).
	// It is valid until Close.
	Fd() (uintptr, bool)
	// Close releases the descriptor. It syncs nothing.
	Close() error
}

// Info describes a file or folder.
type Info struct {
	Bytes    int64
	Dir      bool
	Modified time.Time
}

// Usage is the space of a file system, in bytes, as an unprivileged user sees it.
type Usage struct {
	FreeBytes  int64
	TotalBytes int64
}
