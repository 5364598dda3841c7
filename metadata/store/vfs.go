package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"strandline/metadata/background"
	"strandline/metadata/disk"
)

// adapter gives Pebble its file system, which it compares by address. Pebble's files are written by one
// goroutine each, from the start to the end; the adapter keeps the position.
type adapter struct {
	disk  disk.FS
	dir   string // of the DB
	phase *atomic.Int32
	// fatal is told of a failed write to the log, or to the DB's own folder,
	// that Pebble would meet with a panic, its locks in disorder or on a
	// goroutine of its own. It does not return.
	fatal func(err error)
	// background is Config.Background.
	background bool
}

// Phases of a DB.
const (
	opening int32 = iota
	running
	closing
)

var _ vfs.FS = (*adapter)(nil)

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// logWrite passes on the outcome of a call that the log's durability needs.
func (a *adapter) logWrite(name string, err error) error {
	if err != nil && a.phase.Load() == running {
		a.fatal(fmt.Errorf("writing the log %s: %w", name, err))
	}
	return err
}

// isMarker says that a file's name says which one of others is valid.
func isMarker(name string) bool { return strings.HasPrefix(path.Base(name), "marker.") }

// settle makes what was done in a marker's folder so far durable: what a marker
// names is there before the marker is, and a new marker before the old one goes.
// Pebble syncs once after all of it, which is enough only where a folder's
// changes reach the disk in their order.
func (a *adapter) settle(name string) error {
	if !isMarker(name) {
		return nil
	}
	return (&dir{fs: a, name: path.Dir(name)}).Sync()
}

// Create always makes a new inode: checkpoints hold hard links to the old one.
func (a *adapter) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	if err := a.settle(name); err != nil {
		return nil, err
	}
	for {
		f, err := a.disk.Create(name)
		if err == nil {
			return a.file(f), nil
		}
		if errors.Is(err, os.ErrExist) {
			err = a.disk.Remove(name)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			if isLog(name) {
				err = a.logWrite(name, err)
			}
			return nil, err
		}
	}
}

func (a *adapter) file(f disk.File) vfs.File {
	if isLog(f.Name()) {
		return &logFile{file: file{File: f}, fs: a}
	}
	return &file{File: f}
}

func (a *adapter) Link(oldname, newname string) error { return a.disk.Link(oldname, newname) }

func (a *adapter) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := a.disk.OpenReadOnly(name)
	return a.opened(f, err, opts)
}

func (a *adapter) OpenReadWrite(
	name string, _ vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (vfs.File, error) {
	f, err := a.disk.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		f, err = a.disk.Create(name)
	}
	return a.opened(f, err, opts)
}

func (a *adapter) opened(f disk.File, err error, opts []vfs.OpenOption) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	out := a.file(f)
	for _, o := range opts {
		o.Apply(out)
	}
	return out, nil
}

func (a *adapter) OpenDir(name string) (vfs.File, error) {
	info, err := a.disk.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Dir {
		return nil, &fs.PathError{Op: "open-dir", Path: name, Err: os.ErrInvalid}
	}
	return &dir{fs: a, name: name}, nil
}

func (a *adapter) Remove(name string) error {
	if err := a.settle(name); err != nil {
		return err
	}
	var err error
	if remove := func() { err = a.disk.Remove(name) }; a.background {
		background.Do(remove) // a goroutine of the engine's, which has no place to begin at
	} else {
		remove()
	}
	return err
}

func (a *adapter) RemoveAll(name string) error          { return a.disk.RemoveAll(name) }
func (a *adapter) Rename(oldname, newname string) error { return a.disk.Rename(oldname, newname) }

// ReuseForWrite overwrites a log file of an earlier time. Such a file is in no
// checkpoint: those copy log files, or link tables.
func (a *adapter) ReuseForWrite(
	oldname, newname string, _ vfs.DiskWriteCategory,
) (vfs.File, error) {
	if err := a.disk.Rename(oldname, newname); err != nil {
		return nil, a.logWrite(newname, err)
	}
	f, err := a.disk.Open(newname)
	if err != nil {
		return nil, a.logWrite(newname, err)
	}
	return a.file(f), nil
}

func (a *adapter) MkdirAll(dir string, _ os.FileMode) error { return a.disk.MkdirAll(dir) }
func (a *adapter) Lock(name string) (io.Closer, error)      { return a.disk.Lock(name) }
func (a *adapter) List(dir string) ([]string, error)        { return a.disk.List(dir) }
func (a *adapter) PathBase(name string) string              { return path.Base(name) }
func (a *adapter) PathJoin(elem ...string) string           { return path.Join(elem...) }
func (a *adapter) PathDir(name string) string               { return path.Dir(name) }
func (a *adapter) Unwrap() vfs.FS                           { return nil }

func (a *adapter) Stat(name string) (vfs.FileInfo, error) {
	info, err := a.disk.Stat(name)
	if err != nil {
		return nil, err
	}
	return fileInfo{name: path.Base(name), info: info}, nil
}

func (a *adapter) GetDiskUsage(name string) (vfs.DiskUsage, error) {
	u, err := a.disk.Usage(name)
	if err != nil {
		return vfs.DiskUsage{}, err
	}
	free, total := uint64(max(u.FreeBytes, 0)), uint64(max(u.TotalBytes, 0))
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: total, UsedBytes: total - min(free, total)}, nil
}

// file is a disk.File with a position each for reading and writing.
type file struct {
	disk.File
	readAt, writeAt int64
}

func (f *file) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := f.File.ReadAt(p, f.readAt)
	f.readAt += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (f *file) Write(p []byte) (int, error) {
	n, err := f.File.WriteAt(p, f.writeAt)
	f.writeAt += int64(n)
	return n, err
}

func (f *file) Stat() (vfs.FileInfo, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return fileInfo{name: path.Base(f.Name()), info: disk.Info{Bytes: size}}, nil
}

// Sync need not do more than SyncData: names are synced through folders.
func (f *file) Sync() error { return f.SyncData() }

func (f *file) SyncTo(int64) (fullSync bool, err error) { return true, f.SyncData() }

func (f *file) Preallocate(_, _ int64) error { return nil }

func (f *file) Prefetch(_ int64, _ int64) error { return nil }

func (f *file) Fd() uintptr {
	fd, ok := f.File.Fd()
	if !ok {
		return vfs.InvalidFd
	}
	return fd
}

// logFile is a file of the log.
type logFile struct {
	file
	fs *adapter
}

func (f *logFile) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	return n, f.fs.logWrite(f.Name(), err)
}

func (f *logFile) Sync() error     { return f.fs.logWrite(f.Name(), f.file.Sync()) }
func (f *logFile) SyncData() error { return f.fs.logWrite(f.Name(), f.file.SyncData()) }
func (f *logFile) Close() error    { return f.fs.logWrite(f.Name(), f.file.Close()) }

func (f *logFile) SyncTo(n int64) (bool, error) {
	full, err := f.file.SyncTo(n)
	return full, f.fs.logWrite(f.Name(), err)
}

func (f *logFile) Stat() (vfs.FileInfo, error) {
	info, err := f.file.Stat()
	return info, f.fs.logWrite(f.Name(), err)
}

// dir is an open folder: good for syncing alone.
type dir struct {
	fs   *adapter
	name string
}

// Sync of the DB's own folder is what makes the names of its files durable.
func (d *dir) Sync() error {
	err := d.fs.disk.SyncDir(d.name)
	if err != nil && d.name == d.fs.dir && d.fs.phase.Load() != closing {
		d.fs.fatal(fmt.Errorf("syncing the folder %s: %w", d.name, err))
	}
	return err
}

func (d *dir) SyncData() error                 { return d.Sync() }
func (d *dir) SyncTo(int64) (bool, error)      { return false, nil }
func (d *dir) Close() error                    { return nil }
func (d *dir) Stat() (vfs.FileInfo, error)     { return d.fs.Stat(d.name) }
func (d *dir) Preallocate(_, _ int64) error    { return nil }
func (d *dir) Prefetch(_ int64, _ int64) error { return nil }
func (d *dir) Fd() uintptr                     { return vfs.InvalidFd }

func (d *dir) Read([]byte) (int, error)           { return 0, d.refuse("read") }
func (d *dir) ReadAt([]byte, int64) (int, error)  { return 0, d.refuse("read") }
func (d *dir) Write([]byte) (int, error)          { return 0, d.refuse("write") }
func (d *dir) WriteAt([]byte, int64) (int, error) { return 0, d.refuse("write") }

func (d *dir) refuse(op string) error {
	return &fs.PathError{Op: op, Path: d.name, Err: os.ErrInvalid}
}

type fileInfo struct {
	name string
	info disk.Info
}

func (i fileInfo) Name() string           { return i.name }
func (i fileInfo) Size() int64            { return i.info.Bytes }
func (i fileInfo) ModTime() time.Time     { return i.info.Modified }
func (i fileInfo) IsDir() bool            { return i.info.Dir }
func (i fileInfo) Sys() any               { return nil }
func (i fileInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }

func (i fileInfo) Mode() os.FileMode {
	if i.info.Dir {
		return os.ModeDir | 0o755
	}
	return 0o644
}
