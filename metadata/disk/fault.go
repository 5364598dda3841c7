package disk

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"
)

// OpKind names a call of FS or File.
type OpKind string

// Every call that an Injector is asked about.
const (
	OpCreate       OpKind = "create"
	OpOpen         OpKind = "open"
	OpOpenReadOnly OpKind = "open-read-only"
	OpRename       OpKind = "rename"
	OpLink         OpKind = "link"
	OpRemove       OpKind = "remove"
	OpRemoveAll    OpKind = "remove-all"
	OpList         OpKind = "list"
	OpStat         OpKind = "stat"
	OpMkdirAll     OpKind = "mkdir-all"
	OpSyncDir      OpKind = "sync-dir"
	OpLock         OpKind = "lock"
	OpUsage        OpKind = "usage"
	OpReadAt       OpKind = "read-at"
	OpWriteAt      OpKind = "write-at"
	OpWriteV       OpKind = "write-v"
	OpTruncate     OpKind = "truncate"
	OpSyncData     OpKind = "sync-data"
	OpSize         OpKind = "size"
	OpClose        OpKind = "close"
)

// Mutates reports whether the call changes the disk (syncs included).
func (k OpKind) Mutates() bool {
	switch k {
	case OpOpen, OpOpenReadOnly, OpList, OpStat, OpLock, OpUsage, OpReadAt, OpSize, OpClose:
		return false
	}
	return true
}

// Op is one call. Name is the first name of a call with two.
type Op struct {
	Kind OpKind
	Name string
	// Index counts all calls through one Fault, from 0.
	Index int64
}

// Injector decides about a call before it is made: nil lets it pass, an error
// is returned in its place. It is called from any goroutine.
type Injector func(op Op) error

var (
	// ErrInjected is what the injectors of this package answer.
	ErrInjected = errors.New("injected fault")
	// ErrTorn, wrapped by an injected error of a write, makes the first half
	// of the bytes reach the file.
	ErrTorn = errors.New("injected torn write")
)

// FailOnce fails the call with the given number among those of the given kinds
// (all where none is given), counted from 0, and no other.
func FailOnce(n int64, kinds ...OpKind) Injector {
	var seen atomic.Int64
	return func(op Op) error {
		if len(kinds) > 0 && !slices.Contains(kinds, op.Kind) {
			return nil
		}
		if seen.Add(1)-1 == n {
			return ErrInjected
		}
		return nil
	}
}

// FailFrom fails the call with the given number among those of the given kinds
// and every later one: a disk that has died.
func FailFrom(n int64, kinds ...OpKind) Injector {
	var seen atomic.Int64
	return func(op Op) error {
		if len(kinds) > 0 && !slices.Contains(kinds, op.Kind) {
			return nil
		}
		if seen.Add(1)-1 >= n {
			return ErrInjected
		}
		return nil
	}
}

// Fault wraps a file system and asks an Injector before each call.
type Fault struct {
	inner FS
	inj   atomic.Pointer[Injector]
	calls atomic.Int64
}

// NewFault wraps inner. A nil Injector lets everything pass.
func NewFault(inner FS, inj Injector) *Fault {
	f := &Fault{inner: inner}
	f.SetInjector(inj)
	return f
}

// SetInjector replaces the injector; nil lets everything pass.
func (f *Fault) SetInjector(inj Injector) { f.inj.Store(&inj) }

// Calls returns the number of calls so far.
func (f *Fault) Calls() int64 { return f.calls.Load() }

func (f *Fault) check(kind OpKind, name string) error {
	index := f.calls.Add(1) - 1
	if inj := *f.inj.Load(); inj != nil {
		return inj(Op{Kind: kind, Name: name, Index: index})
	}
	return nil
}

func (f *Fault) open(kind OpKind, name string, open func(string) (File, error)) (File, error) {
	if err := f.check(kind, name); err != nil {
		return nil, err
	}
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, fs: f}, nil
}

// Create implements FS, as do the methods below.
func (f *Fault) Create(name string) (File, error) { return f.open(OpCreate, name, f.inner.Create) }

func (f *Fault) Open(name string) (File, error) { return f.open(OpOpen, name, f.inner.Open) }

func (f *Fault) OpenReadOnly(name string) (File, error) {
	return f.open(OpOpenReadOnly, name, f.inner.OpenReadOnly)
}

func (f *Fault) Rename(oldName, newName string) error {
	if err := f.check(OpRename, oldName); err != nil {
		return err
	}
	return f.inner.Rename(oldName, newName)
}

func (f *Fault) Link(oldName, newName string) error {
	if err := f.check(OpLink, oldName); err != nil {
		return err
	}
	return f.inner.Link(oldName, newName)
}

func (f *Fault) Remove(name string) error {
	if err := f.check(OpRemove, name); err != nil {
		return err
	}
	return f.inner.Remove(name)
}

func (f *Fault) RemoveAll(name string) error {
	if err := f.check(OpRemoveAll, name); err != nil {
		return err
	}
	return f.inner.RemoveAll(name)
}

func (f *Fault) List(dir string) ([]string, error) {
	if err := f.check(OpList, dir); err != nil {
		return nil, err
	}
	return f.inner.List(dir)
}

func (f *Fault) Stat(name string) (Info, error) {
	if err := f.check(OpStat, name); err != nil {
		return Info{}, err
	}
	return f.inner.Stat(name)
}

func (f *Fault) MkdirAll(dir string) error {
	if err := f.check(OpMkdirAll, dir); err != nil {
		return err
	}
	return f.inner.MkdirAll(dir)
}

func (f *Fault) SyncDir(dir string) error {
	if err := f.check(OpSyncDir, dir); err != nil {
		return err
	}
	return f.inner.SyncDir(dir)
}

func (f *Fault) Lock(name string) (io.Closer, error) {
	if err := f.check(OpLock, name); err != nil {
		return nil, err
	}
	return f.inner.Lock(name)
}

func (f *Fault) Usage(dir string) (Usage, error) {
	if err := f.check(OpUsage, dir); err != nil {
		return Usage{}, err
	}
	return f.inner.Usage(dir)
}

type faultFile struct {
	File
	fs *Fault
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.check(OpReadAt, f.Name()); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.check(OpWriteAt, f.Name()); err != nil {
		return f.torn(err, p, off), err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultFile) WriteV(bufs [][]byte, off int64) (int, error) {
	if err := f.fs.check(OpWriteV, f.Name()); err != nil {
		return f.torn(err, slices.Concat(bufs...), off), err
	}
	return f.File.WriteV(bufs, off)
}

func (f *faultFile) torn(err error, p []byte, off int64) int {
	if !errors.Is(err, ErrTorn) {
		return 0
	}
	n, _ := f.File.WriteAt(p[:len(p)/2], off)
	return n
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.fs.check(OpTruncate, f.Name()); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultFile) SyncData() error {
	if err := f.fs.check(OpSyncData, f.Name()); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *faultFile) Size() (int64, error) {
	if err := f.fs.check(OpSize, f.Name()); err != nil {
		return 0, err
	}
	return f.File.Size()
}

// Close always closes the file, also where it answers an injected error.
func (f *faultFile) Close() error {
	err := f.fs.check(OpClose, f.Name())
	return errors.Join(err, f.File.Close())
}
