package disk_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
)

// outcomes clones many times and counts what read returns.
func outcomes(fs *disk.Crash, read func(c *disk.Crash) string) map[string]int {
	rng := rand.New(rand.NewPCG(3, 4))
	seen := map[string]int{}
	for range 400 {
		seen[read(fs.Clone(rng))]++
	}
	return seen
}

func contents(name string) func(c *disk.Crash) string {
	return func(c *disk.Crash) string {
		data, err := disk.ReadFile(c, name)
		if err != nil {
			return "absent"
		}
		return string(data)
	}
}

func TestPowerLossOfNewFile(t *testing.T) {
	fs := disk.NewCrash(1)
	f, err := fs.Create("/f")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("ab"), 0)
	require.NoError(t, err)
	got := outcomes(fs, contents("/f"))
	for _, want := range []string{"absent", "", "a", "ab", "\x00\x00"} {
		require.Positive(t, got[want], "%q in %v", want, got)
	}

	require.NoError(t, f.SyncData())
	got = outcomes(fs, contents("/f"))
	require.Len(t, got, 2, "the data is durable, the name is not: %v", got)
	require.Positive(t, got["absent"])
	require.Positive(t, got["ab"])

	require.NoError(t, fs.SyncDir("/"))
	require.Equal(t, map[string]int{"ab": 400}, outcomes(fs, contents("/f")))
}

func TestPowerLossTearsBySector(t *testing.T) {
	fs := disk.NewCrash(1)
	f, err := fs.Create("/f")
	require.NoError(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte("o"), 2000), 0)
	require.NoError(t, err)
	fs.SyncAll()
	_, err = f.WriteAt(bytes.Repeat([]byte("n"), 1024), 512)
	require.NoError(t, err)
	shapes := outcomes(fs, func(c *disk.Crash) string {
		data := contents("/f")(c)
		require.Len(t, data, 2000)
		require.NotContains(t, data[:512], "n")
		require.NotContains(t, data[1536:], "n")
		for s := 512; s < 1536; s += 512 {
			require.Len(t, bytes.Trim([]byte(data[s:s+512]), data[s:s+1]), 0, "a sector is whole")
		}
		return data[512:513] + data[1024:1025]
	})
	require.Len(t, shapes, 4, "%v", shapes)
}

func TestPowerLossOfTruncate(t *testing.T) {
	fs := disk.NewCrash(1)
	f, err := fs.Create("/f")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("abcd"), 0)
	require.NoError(t, err)
	fs.SyncAll()
	require.NoError(t, f.Truncate(2))
	got := outcomes(fs, contents("/f"))
	require.Positive(t, got["abcd"])
	require.Positive(t, got["ab"])
	require.NoError(t, f.SyncData())
	require.Equal(t, map[string]int{"ab": 400}, outcomes(fs, contents("/f")))
	require.NoError(t, f.Truncate(4))
	require.NoError(t, f.SyncData())
	require.Equal(t, map[string]int{"ab\x00\x00": 400}, outcomes(fs, contents("/f")))
}

// A rename that was not synced leaves the file under exactly one of its names.
func TestPowerLossOfRename(t *testing.T) {
	fs := disk.NewCrash(1)
	require.NoError(t, fs.MkdirAll("/a"))
	require.NoError(t, fs.MkdirAll("/b"))
	write(t, fs, "/a/f", "one")
	write(t, fs, "/b/f", "two")
	fs.SyncAll()
	require.NoError(t, fs.Rename("/a/f", "/b/f"))
	got := outcomes(fs, func(c *disk.Crash) string { return contents("/a/f")(c) + " " + contents("/b/f")(c) })
	require.Len(t, got, 2, "%v", got)
	require.Positive(t, got["one two"])
	require.Positive(t, got["absent one"])
	require.NoError(t, fs.SyncDir("/b"))
	require.Equal(t, map[string]int{"absent one": 400}, outcomes(fs, func(c *disk.Crash) string {
		return contents("/a/f")(c) + " " + contents("/b/f")(c)
	}))
}

// A folder whose own name is not durable takes everything in it along.
func TestPowerLossOfFolder(t *testing.T) {
	fs := disk.NewCrash(1)
	require.NoError(t, fs.MkdirAll("/d"))
	f, err := fs.Create("/d/f")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("x"), 0)
	require.NoError(t, err)
	require.NoError(t, f.SyncData())
	require.NoError(t, fs.SyncDir("/d"))
	got := outcomes(fs, contents("/d/f"))
	require.Positive(t, got["absent"])
	require.Positive(t, got["x"])
	require.NoError(t, fs.SyncDir("/"))
	require.Equal(t, map[string]int{"x": 400}, outcomes(fs, contents("/d/f")))

	require.NoError(t, fs.RemoveAll("/d"))
	got = outcomes(fs, contents("/d/f"))
	require.Positive(t, got["absent"])
	require.Positive(t, got["x"])
}

func TestCloneIsIndependent(t *testing.T) {
	fs := disk.NewCrash(1)
	f, err := fs.Create("/f")
	require.NoError(t, err)
	require.NoError(t, fs.Link("/f", "/g"))
	_, err = f.WriteAt([]byte("ab"), 0)
	require.NoError(t, err)

	killed := fs.Kill()
	require.Equal(t, "ab", read(t, killed, "/g"), "a process that dies loses nothing")
	got := outcomes(killed, contents("/g"))
	require.Positive(t, got["absent"], "but nothing more is durable: %v", got)

	fs.SyncAll()
	lock, err := fs.Lock("/.lock")
	require.NoError(t, err)
	clone := fs.Clone(nil)
	other, err := clone.Lock("/.lock")
	require.NoError(t, err, "locks die with the process")
	require.NoError(t, other.Close())
	require.NoError(t, lock.Close())
	require.Error(t, lock.Close())
	g, err := clone.Open("/g")
	require.NoError(t, err)
	_, err = g.WriteAt([]byte("XY"), 0)
	require.NoError(t, err)
	require.Equal(t, "XY", read(t, clone, "/f"), "links stay links")
	require.Equal(t, "ab", read(t, fs, "/f"))
	require.Positive(t, fs.Ops())
}

func TestCrashRefusals(t *testing.T) {
	fs := disk.NewCrash(1)
	require.NoError(t, fs.MkdirAll("/d/e"))
	write(t, fs, "/f", "")
	_, err := fs.Open("/d")
	require.Error(t, err)
	_, err = fs.List("/f")
	require.Error(t, err)
	_, err = fs.Create("/none/f")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = fs.Create("/f/g")
	require.Error(t, err)
	require.Error(t, fs.Rename("/d", "/d/e/x"))
	require.Error(t, fs.Rename("/d", "/f"))
	require.Error(t, fs.Rename("/f", "/d"))
	require.Error(t, fs.MkdirAll("/f/x"))
	require.Error(t, fs.SyncDir("/f"))
	require.Error(t, fs.Link("/d", "/x"))
	require.NoError(t, fs.RemoveAll("/none/x"))
}
