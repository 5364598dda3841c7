package disk

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
)

// NoSpace says that an error means a full disk.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// NoDescriptor says that an error means that there was no file descriptor left:
// what was to be opened is as it was.
func NoDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// ballastPart is the part of a file system that a ballast takes at most.
const ballastPart = 16

// BallastConfig says where a ballast lies and what it is for.
type BallastConfig struct {
	// Name is the file, which lies in the folder that it serves.
	Name string
	// MaxBytes bounds it; it takes a sixteenth of the file system at most.
	MaxBytes int64
	// Of is what the folder is called in the log, and Effect what follows when
	// the room is used: both as parts of a sentence.
	Of, Effect string
	// OnRelease, if set, is called when the room is given up. It must not block.
	OnRelease func()
	Logger    *slog.Logger
}

// Ballast is a file system with room of its own: a file in one folder takes it
// while there is plenty, and is removed when a write finds none, which is then
// tried again. What goes through it does not fail on a full disk until the
// ballast is used up.
type Ballast struct {
	FS
	cfg BallastConfig

	mu   sync.Mutex // held over making and removing the file
	held atomic.Bool
	// made counts the times that the file was made, so that of several writes
	// that found no room one removes it and the others only try again.
	made atomic.Int64
}

// NewBallast returns a ballast on fs, held where its file is there. It does
// nothing before Tend.
func NewBallast(fs FS, cfg BallastConfig) *Ballast {
	b := &Ballast{FS: fs, cfg: cfg}
	if _, err := fs.Stat(cfg.Name); err == nil {
		b.held.Store(true)
		b.made.Store(1)
	}
	return b
}

// Held says that there is room left for when the disk is full.
func (b *Ballast) Held() bool { return b.held.Load() }

// Tend makes the file where it is missing and the file system has its size, and
// beside it what others are to have free. It is to be called now and then.
func (b *Ballast) Tend(othersBytes int64) error {
	if b.held.Load() {
		return nil
	}
	usage, err := b.Usage(path.Dir(b.cfg.Name))
	if err != nil {
		return err
	}
	size := min(b.cfg.MaxBytes, usage.TotalBytes/ballastPart)
	if size <= 0 || usage.FreeBytes < size+max(size, othersBytes) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.fill(size); err != nil {
		return errors.Join(err, b.remove())
	}
	b.made.Add(1)
	b.held.Store(true)
	return nil
}

// fill makes the file with blocks of its own.
func (b *Ballast) fill(size int64) error {
	if err := b.remove(); err != nil {
		return err
	}
	f, err := b.FS.Create(b.cfg.Name)
	if err != nil {
		return err
	}
	if err = allocate(f, size); err != nil {
		zeros := make([]byte, 1<<20)
		for at := int64(0); at < size; at += int64(len(zeros)) {
			if _, err = f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = f.SyncData()
	}
	return errors.Join(err, f.Close())
}

func (b *Ballast) remove() error {
	if err := b.FS.Remove(b.cfg.Name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// release gives the room up, unless another call did since made was read.
func (b *Ballast) release(made int64, cause error) (again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held.Load() {
		return b.made.Load() == made && made > 0 // someone has just released it
	}
	b.held.Store(false)
	if err := b.remove(); err != nil {
		b.cfg.Logger.Error("the reserve of "+b.cfg.Of+" cannot be released", "file", b.cfg.Name, "err", err)
		return false
	}
	if b.cfg.OnRelease != nil {
		b.cfg.OnRelease()
	}
	usage, _ := b.Usage(path.Dir(b.cfg.Name))
	b.cfg.Logger.Error("the disk of "+b.cfg.Of+" is full: its reserve is used now, and "+b.cfg.Effect,
		"dir", path.Dir(b.cfg.Name), "reserve_bytes", usage.FreeBytes, "err", cause,
		"remedy", "free space on this file system: delete topics or records, or what others have put there")
	return true
}

// retry calls do, and once more where it found no room and there was a ballast.
func (b *Ballast) retry(do func() error) error {
	made := b.made.Load()
	err := do()
	if err != nil && NoSpace(err) && b.release(made, err) {
		err = do()
	}
	return err
}

func (b *Ballast) open(open func() (File, error)) (File, error) {
	var f File
	err := b.retry(func() (err error) { f, err = open(); return err })
	if err != nil {
		return nil, err
	}
	return &ballastFile{File: f, b: b}, nil
}

// Create implements FS, as do the methods below.
func (b *Ballast) Create(name string) (File, error) {
	return b.open(func() (File, error) { return b.FS.Create(name) })
}

func (b *Ballast) Open(name string) (File, error) {
	return b.open(func() (File, error) { return b.FS.Open(name) })
}

func (b *Ballast) Rename(oldName, newName string) error {
	return b.retry(func() error { return b.FS.Rename(oldName, newName) })
}

func (b *Ballast) Link(oldName, newName string) error {
	return b.retry(func() error { return b.FS.Link(oldName, newName) })
}

func (b *Ballast) MkdirAll(dir string) error {
	return b.retry(func() error { return b.FS.MkdirAll(dir) })
}

func (b *Ballast) SyncDir(dir string) error {
	return b.retry(func() error { return b.FS.SyncDir(dir) })
}

func (b *Ballast) Lock(name string) (c io.Closer, err error) {
	err = b.retry(func() (err error) { c, err = b.FS.Lock(name); return err })
	return c, err
}

// ballastFile is a file that may use the ballast. A failed SyncData is not tried
// again: what it leaves on the disk is unknown.
type ballastFile struct {
	File
	b *Ballast
}

func (f *ballastFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.b.retry(func() (err error) { n, err = f.File.WriteAt(p, off); return err })
	return n, err
}

func (f *ballastFile) WriteV(bufs [][]byte, off int64) (n int, err error) {
	err = f.b.retry(func() (err error) {
		n, err = f.File.WriteV(append([][]byte(nil), bufs...), off)
		return err
	})
	return n, err
}

func (f *ballastFile) Truncate(size int64) error {
	return f.b.retry(func() error { return f.File.Truncate(size) })
}
