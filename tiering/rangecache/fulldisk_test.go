package rangecache

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

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
