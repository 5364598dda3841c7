package replicas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
)

// shrinking is a file system with less and less room.
type shrinking struct {
	disk.FS
	usage disk.Usage
	asked int
}

func (s *shrinking) Usage(string) (disk.Usage, error) {
	s.asked++
	return s.usage, nil
}

// TestAWriteLooksAtTheFreeSpace itself, between two looks of the housekeeping, where
// there is little; not more often than every nearEvery, and never where there is much.
func TestAWriteLooksAtTheFreeSpace(t *testing.T) {
	const reserve = 10 << 20
	fs := &shrinking{usage: disk.Usage{FreeBytes: reserve + nearBytes, TotalBytes: 1 << 40}}
	now := time.Unix(1000, 0)
	m := &Manager{fs: fs}
	m.cfg.Now = func() time.Time { return now }
	m.cfg.Broker.DiskReservedBytes = reserve
	d := &dir{}
	full := func() bool { return m.diskFull(d) }
	require.False(t, full(), "nobody has looked yet")
	_, err := m.measure(d)
	require.NoError(t, err)
	require.False(t, full())
	require.Equal(t, 1, fs.asked, "there is much")

	fs.usage.FreeBytes = reserve
	_, err = m.measure(d)
	require.NoError(t, err)
	require.False(t, full())
	require.Equal(t, 3, fs.asked)
	fs.usage.FreeBytes = reserve - 1
	now = now.Add(nearEvery - 1)
	require.False(t, full())
	now = now.Add(1)
	require.True(t, full())
	require.True(t, full())
	require.Equal(t, 4, fs.asked)
	began, _ := d.room.look(fs.usage, reserve)
	require.True(t, began, "the housekeeping says so")
}
