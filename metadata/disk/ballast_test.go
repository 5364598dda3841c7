package disk

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// boundedFS has no room for bytes past a limit.
type boundedFS struct {
	FS
	limit, used atomic.Int64
}

func (b *boundedFS) Create(name string) (File, error) {
	if b.used.Load() >= b.limit.Load() {
		return nil, fmt.Errorf("create %s: %w", name, syscall.ENOSPC)
	}
	f, err := b.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return &boundedFile{File: f, fs: b}, nil
}

func (b *boundedFS) Remove(name string) error {
	if info, err := b.Stat(name); err == nil {
		b.used.Add(-info.Bytes)
	}
	return b.FS.Remove(name)
}

func (b *boundedFS) Usage(string) (Usage, error) {
	return Usage{FreeBytes: b.limit.Load() - b.used.Load(), TotalBytes: b.limit.Load()}, nil
}

type boundedFile struct {
	File
	fs *boundedFS
}

func (f *boundedFile) WriteAt(p []byte, off int64) (int, error) {
	size, _ := f.Size()
	more := max(0, off+int64(len(p))-size)
	if f.fs.used.Load()+more > f.fs.limit.Load() {
		return 0, fmt.Errorf("write %s: %w", f.Name(), syscall.ENOSPC)
	}
	f.fs.used.Add(more)
	return f.File.WriteAt(p, off)
}

// TestBallast: writes through it go on when the disk is full, it is made again
// when there is room, and not before.
func TestBallast(t *testing.T) {
	inner := &boundedFS{FS: NewCrash(1)}
	inner.limit.Store(16 << 20)
	require.NoError(t, inner.MkdirAll("/m"))
	released := 0
	cfg := BallastConfig{Name: "/m/ballast", MaxBytes: 16 << 20, Logger: slog.New(slog.DiscardHandler), OnRelease: func() { released++ }}
	b := NewBallast(inner, cfg)
	require.NoError(t, b.Tend(1<<20))
	require.True(t, b.Held())
	info, err := inner.Stat("/m/ballast")
	require.NoError(t, err)
	require.Equal(t, int64(1<<20), info.Bytes, "a sixteenth of the file system")

	f, err := b.Create("/m/data")
	require.NoError(t, err)
	mine := make([]byte, 1<<10)
	_, err = f.WriteAt(mine, 0)
	require.NoError(t, err)
	inner.used.Store(inner.limit.Load()) // someone else fills the disk
	_, err = inner.Create("/m/other")
	require.ErrorIs(t, err, syscall.ENOSPC)
	for i := range int64(100) {
		_, err = f.WriteAt(mine, (i+1)<<10)
		require.NoError(t, err, "the ballast has room for it")
	}
	require.False(t, b.Held())
	require.Equal(t, 1, released)
	_, err = inner.Stat("/m/ballast")
	require.ErrorIs(t, err, os.ErrNotExist)
	g, err := b.Create("/m/more")
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.NoError(t, b.Tend(0))
	require.False(t, b.Held(), "there is no room for it yet")

	_, err = f.WriteAt(make([]byte, 2<<20), 0)
	require.ErrorIs(t, err, syscall.ENOSPC, "used up")
	inner.used.Store(0)
	require.NoError(t, b.Tend(0))
	require.True(t, b.Held())
	require.NoError(t, f.Close())
	small := cfg
	small.Name, small.MaxBytes = "/m/small", 1<<10
	s := NewBallast(inner, small)
	require.False(t, s.Held())
	require.NoError(t, s.Tend(0))
	info, err = inner.Stat("/m/small")
	require.NoError(t, err)
	require.Equal(t, int64(1<<10), info.Bytes, "the bound")
	require.NoError(t, inner.Remove("/m/small"))
	require.True(t, NewBallast(inner, cfg).Held(), "it is found at the next start")
	names, err := inner.List("/m")
	require.NoError(t, err)
	require.Equal(t, []string{"ballast", "data", "more"}, names)
}
