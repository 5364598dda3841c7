package rangecache

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
)

// TestFullDisk: where the disk has no room although the cache is within its
// limit, older ranges make some; where there are none, the reader is told that
// it is the cache's disk, and reads around it.
func TestFullDisk(t *testing.T) {
	fault := disk.NewFault(disk.NewCrash(1), nil)
	c, o := open(t, fault), newObject(1)
	require.Equal(t, 8, take(t, c, o, o.keys(0, 8)))
	used := c.Stats().Bytes

	var room atomic.Int64    // files that fit
	var refused atomic.Value // the file that did not
	refused.Store("")
	fault.SetInjector(func(op disk.Op) error {
		switch {
		case strings.HasSuffix(op.Name, lockName):
		case op.Kind == disk.OpRemove && op.Name != refused.Load():
			room.Add(1)
		case op.Kind == disk.OpWriteV && room.Add(-1) < 0:
			room.Add(1)
			refused.Store(op.Name)
			return fmt.Errorf("%w: %w", disk.ErrTorn, syscall.ENOSPC)
		}
		return nil
	})
	for i := range 20 {
		require.Equal(t, 1, take(t, c, o, o.keys(100+i, 1)), "an older range went")
		require.LessOrEqual(t, c.Stats().Bytes, used)
	}

	fault.SetInjector(func(op disk.Op) error {
		if op.Kind == disk.OpWriteV || op.Kind == disk.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	})
	_, err := c.Acquire(context.Background(), o.keys(200, 1), o)
	require.ErrorIs(t, err, ErrStorage)
	regions, err := c.Bypass(context.Background(), o.keys(200, 1), o)
	require.NoError(t, err)
	requireContent(t, o, o.keys(200, 1)[0], regions[0])
	regions[0].Release()

	fault.SetInjector(nil)
	require.Equal(t, 1, take(t, c, o, o.keys(200, 1)), "there is room again")
}

// sharedDisk is a file system with a bound, of which others take a part.
type sharedDisk struct {
	disk.FS
	total  int64
	others atomic.Int64
}

func (s *sharedDisk) Usage(dir string) (disk.Usage, error) {
	used := s.others.Load()
	names, err := s.List(dir)
	if err != nil {
		return disk.Usage{}, err
	}
	for _, name := range names {
		if info, err := s.Stat(dir + "/" + name); err == nil {
			used += info.Bytes
		}
	}
	return disk.Usage{FreeBytes: s.total - used, TotalBytes: s.total}, nil
}

// TestReservedSpace (C8): the cache leaves what the disk keeps free, gives way when
// others take more, and its readers go on without it.
func TestReservedSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reserved = 10 * chunk
		fs := &sharedDisk{FS: disk.NewCrash(1), total: reserved + 8*chunk}
		c, err := Open(Config{FS: fs, Dir: testDir, LimitBytes: testLimit, ReservedBytes: reserved})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		o := newObject(1)
		free := func() int64 {
			usage, err := fs.Usage(testDir)
			require.NoError(t, err)
			return usage.FreeBytes
		}
		for i := range 40 { // within the limit of the cache, not of the disk
			require.Equal(t, 1, take(t, c, o, o.keys(i, 1)))
			require.GreaterOrEqual(t, free(), int64(reserved))
		}
		require.Greater(t, c.Stats().RangeCount, int64(1), "what there is room for stays")
		require.Less(t, take(t, c, o, o.keys(100, 12)), 12, "what can be done without is")
		require.GreaterOrEqual(t, free(), int64(reserved))
		held := c.Stats().RangeCount
		c.Prefetch(o.keys(200, 20), o)
		synctest.Wait()
		require.Equal(t, held, c.Stats().RangeCount, "nothing is evicted ahead of a reader")

		fs.others.Store(8 * chunk)
		for i := 0; c.Stats().Bytes > baseChargeBytes; i++ {
			require.Less(t, i, 10, "it gives way")
			_, err := c.Acquire(context.Background(), o.keys(300+i, 1), o)
			require.ErrorIs(t, err, ErrStorage)
		}
		regions, err := c.Bypass(context.Background(), o.keys(300, 1), o)
		require.NoError(t, err)
		requireContent(t, o, o.keys(300, 1)[0], regions[0])
		regions[0].Release()

		fs.others.Store(0)
		require.Equal(t, 1, take(t, c, o, o.keys(300, 1)))
		require.Zero(t, c.Stats().FillErrors)
	})
}
