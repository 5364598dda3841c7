package disk_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/metadata/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// each runs a test over every implementation of FS.
func each(t *testing.T, test func(t *testing.T, fs disk.FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, disk.OS(), t.TempDir()) })
	t.Run("crash", func(t *testing.T) {
		fs := disk.NewCrash(1)
		require.NoError(t, fs.MkdirAll("/tmp/d"))
		test(t, fs, "/tmp/d")
	})
	t.Run("fault", func(t *testing.T) { test(t, disk.NewFault(disk.OS(), nil), t.TempDir()) })
}

func write(t *testing.T, fs disk.FS, name, data string) {
	t.Helper()
	f, err := fs.Create(name)
	require.NoError(t, err)
	n, err := f.WriteAt([]byte(data), 0)
	require.NoError(t, err)
	require.Equal(t, len(data), n)
	require.NoError(t, f.Close())
}

func read(t *testing.T, fs disk.FS, name string) string {
	t.Helper()
	data, err := disk.ReadFile(fs, name)
	require.NoError(t, err)
	return string(data)
}

func TestFile(t *testing.T) {
	each(t, func(t *testing.T, fs disk.FS, dir string) {
		name := path.Join(dir, "f")
		f, err := fs.Create(name)
		require.NoError(t, err)
		_, err = fs.Create(name)
		require.ErrorIs(t, err, os.ErrExist)
		require.Equal(t, name, f.Name())

		n, err := f.WriteV([][]byte{[]byte("abc"), nil, []byte("defg"), {}}, 2)
		require.NoError(t, err)
		require.Equal(t, 7, n)
		n, err = f.WriteV([][]byte{[]byte("z")}, 9)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "\x00\x00abcdefgz", read(t, fs, name))

		buf := make([]byte, 4)
		n, err = f.ReadAt(buf, 8)
		require.Equal(t, 2, n)
		require.Equal(t, io.EOF, err)
		n, err = f.ReadAt(buf, 100)
		require.Equal(t, 0, n)
		require.Equal(t, io.EOF, err)

		require.NoError(t, f.Truncate(3))
		require.NoError(t, f.Truncate(5))
		require.NoError(t, f.SyncData())
		require.NoError(t, fs.SyncDir(dir))
		size, err := f.Size()
		require.NoError(t, err)
		require.Equal(t, int64(5), size)
		require.Equal(t, "\x00\x00a\x00\x00", read(t, fs, name))
		require.NoError(t, f.Close())
		_, err = f.WriteAt([]byte("x"), 0)
		require.ErrorIs(t, err, os.ErrClosed)

		ro, err := fs.OpenReadOnly(name)
		require.NoError(t, err)
		_, err = ro.WriteAt([]byte("x"), 0)
		require.Error(t, err)
		require.NoError(t, ro.Close())
		_, err = fs.Open(path.Join(dir, "none"))
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

func TestManyBuffers(t *testing.T) {
	each(t, func(t *testing.T, fs disk.FS, dir string) {
		f, err := fs.Create(path.Join(dir, "f"))
		require.NoError(t, err)
		var bufs [][]byte
		var want []byte
		for i := range 3000 {
			b := []byte{byte(i), byte(i >> 8)}
			bufs, want = append(bufs, b), append(want, b...)
		}
		n, err := f.WriteV(bufs, 0)
		require.NoError(t, err)
		require.Equal(t, len(want), n)
		require.Equal(t, string(want), read(t, fs, f.Name()))
		require.NoError(t, f.Close())
	})
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, fs disk.FS, dir string) {
		a, b, sub := path.Join(dir, "a"), path.Join(dir, "b"), path.Join(dir, "x/y")
		write(t, fs, a, "one")
		require.NoError(t, fs.Link(a, b))
		require.ErrorIs(t, fs.Link(a, b), os.ErrExist)
		require.NoError(t, fs.Remove(a))
		require.Equal(t, "one", read(t, fs, b), "a link keeps the file")
		require.ErrorIs(t, fs.Remove(a), os.ErrNotExist)

		write(t, fs, a, "two")
		require.NoError(t, fs.Rename(a, b))
		require.Equal(t, "two", read(t, fs, b))
		require.ErrorIs(t, fs.Rename(a, b), os.ErrNotExist)

		require.NoError(t, fs.MkdirAll(sub))
		require.NoError(t, fs.MkdirAll(sub))
		write(t, fs, path.Join(sub, "f"), "deep")
		names, err := fs.List(dir)
		require.NoError(t, err)
		require.Equal(t, []string{"b", "x"}, names)
		_, err = fs.List(path.Join(dir, "none"))
		require.ErrorIs(t, err, os.ErrNotExist)

		info, err := fs.Stat(path.Join(dir, "x"))
		require.NoError(t, err)
		require.True(t, info.Dir)
		info, err = fs.Stat(b)
		require.NoError(t, err)
		require.False(t, info.Dir)
		require.Equal(t, int64(3), info.Bytes)
		_, err = fs.Stat(path.Join(dir, "none"))
		require.ErrorIs(t, err, os.ErrNotExist)

		require.Error(t, fs.Remove(sub), "not empty")
		require.NoError(t, fs.Rename(path.Join(dir, "x"), path.Join(dir, "z")))
		require.Equal(t, "deep", read(t, fs, path.Join(dir, "z/y/f")))
		require.NoError(t, fs.RemoveAll(path.Join(dir, "z")))
		require.NoError(t, fs.RemoveAll(path.Join(dir, "z")))
		_, err = fs.Stat(path.Join(dir, "z"))
		require.ErrorIs(t, err, os.ErrNotExist)

		usage, err := fs.Usage(dir)
		require.NoError(t, err)
		require.Positive(t, usage.FreeBytes)
		require.GreaterOrEqual(t, usage.TotalBytes, usage.FreeBytes)
	})
}

func TestLock(t *testing.T) {
	each(t, func(t *testing.T, fs disk.FS, dir string) {
		name := path.Join(dir, ".lock")
		l, err := fs.Lock(name)
		require.NoError(t, err)
		_, err = fs.Lock(name)
		require.ErrorIs(t, err, disk.ErrLocked)
		var locked *disk.LockedError
		require.ErrorAs(t, err, &locked)
		require.Equal(t, os.Getpid(), locked.PID)
		require.NoError(t, l.Close())
		l, err = fs.Lock(name)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	})
}

func TestWholeFiles(t *testing.T) {
	each(t, func(t *testing.T, fs disk.FS, dir string) {
		deep := path.Join(dir, "a/b/c")
		require.NoError(t, disk.EnsureDir(fs, deep))
		require.NoError(t, disk.EnsureDir(fs, deep))
		name := path.Join(deep, "f")
		require.NoError(t, disk.WriteFileAtomic(fs, name, []byte("one")))
		write(t, fs, name+".tmp", "leftover, longer than the data")
		require.NoError(t, disk.WriteFileAtomic(fs, name, []byte("two")))
		require.Equal(t, "two", read(t, fs, name))
		require.NoError(t, disk.WriteFileUnsynced(fs, name, nil))
		require.Empty(t, read(t, fs, name))
		names, err := fs.List(deep)
		require.NoError(t, err)
		require.Equal(t, []string{"f"}, names)
	})
}

// WriteFileAtomic on a disk that loses power at any point leaves the old
// contents or the new ones, and the new ones after it returned.
func TestWriteFileAtomicPowerLoss(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var old, renewed int
	for step := int64(0); ; step++ {
		fs := disk.NewCrash(uint64(step))
		require.NoError(t, disk.EnsureDir(fs, "/d/e"))
		require.NoError(t, disk.WriteFileAtomic(fs, "/d/e/f", []byte("old")))
		var clones []*disk.Crash
		fault := disk.NewFault(fs, func(op disk.Op) error {
			for range 20 {
				clones = append(clones, fs.Clone(rng))
			}
			if op.Index == step {
				return disk.ErrInjected
			}
			return nil
		})
		err := disk.WriteFileAtomic(fault, "/d/e/f", []byte("new"))
		for _, c := range clones {
			switch read(t, c, "/d/e/f") {
			case "old":
				old++
			case "new":
				renewed++
			default:
				t.Fatalf("step %d: %q", step, read(t, c, "/d/e/f"))
			}
		}
		if err == nil {
			require.Equal(t, "new", read(t, fs.Clone(rng), "/d/e/f"))
			break
		}
		require.ErrorIs(t, err, disk.ErrInjected)
	}
	require.Positive(t, old)
	require.Positive(t, renewed)
}

func TestRegion(t *testing.T) {
	fs := disk.NewCrash(1)
	write(t, fs, "/f", "0123456789")
	f, err := fs.OpenReadOnly("/f")
	require.NoError(t, err)
	closed := 0
	h := disk.NewHandle(f, func(err error) {
		require.NoError(t, err)
		closed++
	})
	require.True(t, h.Acquire())
	r := disk.Region{Handle: h, Position: 2, Bytes: 5}
	buf := make([]byte, 10)
	n, err := r.ReadAt(buf, 1)
	require.Equal(t, io.EOF, err)
	require.Equal(t, "3456", string(buf[:n]))
	n, err = r.ReadAt(buf[:2], 0)
	require.NoError(t, err)
	require.Equal(t, "23", string(buf[:n]))
	_, err = r.ReadAt(buf, 5)
	require.Equal(t, io.EOF, err)
	h.Release()
	require.Zero(t, closed)
	r.Release()
	require.Equal(t, 1, closed)
	require.False(t, h.Acquire())
}

func TestHandleThatFailed(t *testing.T) {
	fs := disk.NewCrash(1)
	write(t, fs, "/f", "0123456789")
	for name, c := range map[string]struct {
		fail func(r disk.Region)
		want error // nil: whoever read was told
	}{
		"sending": {func(r disk.Region) {
			r.Handle.Fail(syscall.EIO)
			r.Handle.Fail(io.EOF) // the first cause stays
		}, syscall.EIO},
		"a read that ends early": {func(r disk.Region) {
			_, err := r.ReadAt(make([]byte, 4), 0)
			require.Equal(t, io.EOF, err)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := fs.OpenReadOnly("/f")
			require.NoError(t, err)
			var closed error
			r := disk.Region{Handle: disk.NewHandle(f, func(err error) { closed = err }), Position: 8, Bytes: 5}
			require.NoError(t, r.Handle.Failed())
			c.fail(r)
			require.Equal(t, c.want, r.Handle.Failed())
			r.Release()
			require.ErrorIs(t, closed, disk.ErrUnreadable)
			if c.want != nil {
				require.ErrorIs(t, closed, c.want)
			}
		})
	}
}

func TestHandleCache(t *testing.T) {
	fs := disk.NewCrash(1)
	for _, name := range []string{"/a", "/b", "/c"} {
		write(t, fs, name, name)
	}
	c := disk.NewHandleCache(fs, 2)
	a, err := c.Get("/a")
	require.NoError(t, err)
	for _, name := range []string{"/b", "/c", "/c"} {
		h, err := c.Get(name)
		require.NoError(t, err)
		h.Release()
	}
	require.Equal(t, disk.HandleCacheStats{Hits: 1, Opened: 3, Evicted: 1, Open: 2}, c.Stats())
	buf := make([]byte, 2)
	_, err = a.File().ReadAt(buf, 0)
	require.NoError(t, err, "evicted, still held")
	a.Release()
	_, err = a.File().ReadAt(buf, 0)
	require.ErrorIs(t, err, os.ErrClosed)

	c.Drop("/b")
	c.Drop("/nothing")
	_, err = c.Get("/none")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	h, err := c.Get("/a")
	require.NoError(t, err)
	require.Zero(t, c.Stats().Open)
	h.Release()
}

func TestFault(t *testing.T) {
	inner := disk.NewCrash(1)
	fs := disk.NewFault(inner, disk.FailOnce(1, disk.OpWriteAt))
	f, err := fs.Create("/f")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("ab"), 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("cd"), 2)
	require.ErrorIs(t, err, disk.ErrInjected)
	_, err = f.WriteAt([]byte("ef"), 2)
	require.NoError(t, err)
	require.Equal(t, "abef", read(t, inner, "/f"))

	fs.SetInjector(func(op disk.Op) error {
		if op.Kind == disk.OpWriteV {
			return errors.Join(disk.ErrInjected, disk.ErrTorn)
		}
		return nil
	})
	n, err := f.WriteV([][]byte{[]byte("12"), []byte("34")}, 4)
	require.ErrorIs(t, err, disk.ErrTorn)
	require.Equal(t, 2, n)
	require.Equal(t, "abef12", read(t, inner, "/f"))

	fs.SetInjector(disk.FailFrom(0))
	require.ErrorIs(t, f.SyncData(), disk.ErrInjected)
	require.ErrorIs(t, f.Truncate(0), disk.ErrInjected)
	require.ErrorIs(t, fs.Rename("/f", "/g"), disk.ErrInjected)
	require.ErrorIs(t, f.Close(), disk.ErrInjected)
	require.True(t, disk.OpSyncDir.Mutates())
	require.False(t, disk.OpStat.Mutates())
}

// TestLargeFileIsRemoved, whoever still reads it.
func TestLargeFileIsRemoved(t *testing.T) {
	each(t, func(t *testing.T, fs disk.FS, dir string) {
		name, link := path.Join(dir, "large"), path.Join(dir, "link")
		f, err := fs.Create(name)
		require.NoError(t, err)
		want := bytes.Repeat([]byte("0123456789abcdef"), 5<<20/16)
		_, err = f.WriteAt(want, 0)
		require.NoError(t, err)
		require.NoError(t, f.SyncData())
		require.NoError(t, fs.Link(name, link))
		require.NoError(t, fs.Remove(link))
		require.NoError(t, fs.Remove(name))
		_, err = fs.Stat(name)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorIs(t, fs.Remove(name), os.ErrNotExist)
		got := make([]byte, len(want))
		_, err = f.ReadAt(got, 0)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.NoError(t, f.Close())
	})
}
