package cleaner

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// TestManyKeys compacts a log of more keys than the cleaner's memory holds, which
// grows while it is compacted: its size settles near that of its keys, memory stays
// what it is told to be, and the last record of each key is there. In the long form
// 5 million keys are updated 20 million times with Zipf's skew.
func TestManyKeys(t *testing.T) {
	keys, updates, memory := 40_000, 200_000, int64(2<<20)
	if os.Getenv("STRANDLINE_LONG") != "" {
		keys, updates, memory = 5_000_000, 25_000_000, 128<<20
	}
	dir := t.TempDir()
	b := newBenchIn(t, disk.OS(), filepath.Join(dir, "t-0"), filepath.Join(dir, "keyindex"))
	b.cfg.Settings.SegmentBytes, b.cfg.Settings.IndexIntervalBytes = int64(updates)*5, 4096
	b.cfg.Settings.FileDeleteDelay = 0
	require.NoError(t, b.open())
	defer b.close(false)
	b.c.MemoryBytes, b.c.StepBytes = memory, 256<<10

	latest := make([]int32, keys)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 100, uint64(keys-1))
	value := make([]byte, 100)
	var result Result
	limits := CompactionLimits{DirtyRatio: 0.5, MaxLag: forever, DeleteRetention: time.Minute, SegmentBytes: b.cfg.Settings.SegmentBytes}
	var spent time.Duration
	highest, stop := watchHeap()
	before := heapBytes()
	for written := 0; written < updates; { // each key once, then by Zipf's law
		builder := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: b.log.EndOffset()})
		for range 150 {
			k := written
			if written >= keys {
				k = int(zipf.Uint64())
			}
			written++
			latest[k] = int32(written)
			var key [8]byte
			binary.BigEndian.PutUint64(key[:], uint64(k)*0x9e3779b97f4a7c15)
			binary.BigEndian.PutUint32(value, uint32(written))
			builder.Add(int64(written), key[:], value)
		}
		info, err := b.log.Append(builder.Build())
		require.NoError(t, err)
		if info.Rolled {
			require.NoError(t, b.log.Flush(context.Background()))
			began := time.Now()
			r := b.compact(limits)
			spent += time.Since(began)
			_, err := b.log.RunDeferred(b.now)
			require.NoError(t, err)
			result.BytesRead += r.BytesRead
			result.BytesWritten += r.BytesWritten
			result.RecordsRemoved += r.RecordsRemoved
			result.KeysMax = max(result.KeysMax, r.KeysMax)
		}
	}
	b.seal()
	limits.DirtyRatio = 0
	began := time.Now()
	r := b.compact(limits)
	spent += time.Since(began)
	stop()
	index, err := b.c.Index.Open(testTP)
	require.NoError(t, err)
	t.Logf("%d updates of %d keys: %d bytes left, read %d, written %d, %d records removed; %v; at most %d keys in memory, heap %d MiB above %d; index %d MiB on disk",
		updates, index.Keys(), b.log.Bytes(), result.BytesRead+r.BytesRead, result.BytesWritten+r.BytesWritten, result.RecordsRemoved+r.RecordsRemoved,
		spent.Round(time.Millisecond), max(result.KeysMax, r.KeysMax), (highest()-before)>>20, before>>20, b.index.DiskBytes()>>20)
	require.LessOrEqual(t, int64(result.KeysMax)*keyBytesMax, memory)
	checkLatest(t, b, latest)
}

// keyBytesMax is what a key in a table may cost at most, by the way it is counted.
const keyBytesMax = 171

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// watchHeap notes the highest use of the heap until it is stopped.
func watchHeap() (highest func() uint64, stop func()) {
	var most atomic.Uint64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapAlloc))
		}
	}()
	return most.Load, func() { close(done); <-ended }
}

// checkLatest reads the whole log: of each key the last record is what was written
// last, and nothing else is left of it.
func checkLatest(t *testing.T, b *bench, latest []int32) {
	t.Helper()
	left := 0
	for from := cluster.Offset(0); from < b.log.EndOffset(); {
		s, err := b.log.Read(from, b.log.EndOffset(), 1<<20, true)
		require.NoError(t, err)
		from = s.NextOffset
		for _, batch := range batchesOf(t, s) {
			for r, err := range new(recordbatch.Decoder).Records(batch) {
				if err != nil {
					t.Fatal(err)
				}
				k := binary.BigEndian.Uint64(r.Key) * 0xf1de83e19937733d // the inverse
				if latest[k] != int32(binary.BigEndian.Uint32(r.Value)) {
					t.Fatalf("key %d: %d, want %d", k, binary.BigEndian.Uint32(r.Value), latest[k])
				}
				left++
			}
		}
	}
	want := 0
	for _, n := range latest {
		if n > 0 {
			want++
		}
	}
	require.Equal(t, want, left)
}
