//go:build linux

package drivers_test

import (
	"bytes"
	"hash/crc32"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/objstoretest"
)

// residentBytes is the process's resident memory.
func residentBytes(t *testing.T) int64 {
	b, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseInt(string(bytes.Fields(b)[1]), 10, 64)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

// hugeBody is a body of zeroes that samples the process's memory as it is read.
type hugeBody struct {
	t    *testing.T
	size int64
	read atomic.Int64
	peak atomic.Int64
}

func (b *hugeBody) Size() int64 { return b.size }

func (b *hugeBody) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), b.size-off))
	clear(p[:n])
	if before := b.read.Add(int64(n)); before>>20 != (before-int64(n))>>20 {
		if now := residentBytes(b.t); now > b.peak.Load() {
			b.peak.Store(now)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (b *hugeBody) RangeCRC32C(_, n int64) (uint32, bool) { return zeroesCRC(n), true }

func zeroesCRC(n int64) uint32 {
	unit := make([]byte, 1<<20)
	var c objstore.CRC32CCombiner
	for ; n >= int64(len(unit)); n -= int64(len(unit)) {
		c.Add(objstore.CRC32C(unit), int64(len(unit)))
	}
	c.Add(crc32.Checksum(unit[:n], crc32.MakeTable(crc32.Castagnoli)), n)
	return c.Sum()
}

// uploadMemory: a segment of the default size goes up, in parts
// and in one piece, with less than 64 MiB more resident memory.
func uploadMemory(t *testing.T, m *objstoretest.Server, d driver) {
	size := int64(80 << 20)
	if os.Getenv("STRANDLINE_LONG") == "1" {
		size = 1 << 30
	}
	for name, partBytes := range map[string]int64{"parts": 16 << 20, "one piece": 2 << 30} {
		t.Run(name, func(t *testing.T) {
			cfg := config(m, m.NewBucket(t))
			cfg.PartBytes = partBytes
			s := objstore.NewGuard(d.open(t, cfg), objstore.GuardConfig{})
			_, err := s.Put(t.Context(), "warm-up", objstore.NewBytesBody(make([]byte, 1000)), objstore.PutOptions{})
			require.NoError(t, err)
			debug.FreeOSMemory()
			before := residentBytes(t)
			body := &hugeBody{t: t, size: size}
			_, err = s.Put(t.Context(), "huge", body, objstore.PutOptions{IfAbsent: true, CRC32C: zeroesCRC(size), HasCRC: true})
			require.NoError(t, err)
			require.Equal(t, size, body.read.Load(), "read once")
			grown := body.peak.Load() - before
			t.Logf("%d MiB uploaded, resident memory grew by %d KiB", size>>20, grown>>10)
			require.Less(t, grown, int64(64<<20))
			info, err := s.Head(t.Context(), "huge")
			require.NoError(t, err)
			require.Equal(t, size, info.Bytes)
			require.True(t, info.HasCRC)
			require.Equal(t, zeroesCRC(size), info.CRC32C)
			require.NoError(t, s.Delete(t.Context(), "huge"))
		})
	}
}
