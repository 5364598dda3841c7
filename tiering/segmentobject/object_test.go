package segmentobject_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/mem"
	"strandline/tiering/segmentobject"
)

// batchOf is one batch with records at the given timestamps.
func batchOf(base cluster.Offset, epoch cluster.LeaderEpoch, valueBytes int, seed uint64, timestamps ...int64) recordbatch.Batch {
	r := rand.New(rand.NewPCG(seed, 7))
	b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: base, LeaderEpoch: epoch})
	for _, ts := range timestamps {
		v := make([]byte, 0, valueBytes+8)
		for len(v) < valueBytes {
			v = binary.LittleEndian.AppendUint64(v, r.Uint64())
		}
		v = v[:valueBytes]
		b.Add(ts, fmt.Appendf(nil, "k%d", ts), v)
	}
	return b.Build()
}

// sample is a segment of known batches.
type sample struct {
	bytes     []byte
	batches   []recordbatch.Batch
	positions []int64
	base, end cluster.Offset
}

// makeSample makes count batches of one to four records from base on, with
// timestamps that go back at times.
func makeSample(base cluster.Offset, count, valueBytes int, seed uint64) sample {
	r := rand.New(rand.NewPCG(seed, 3))
	s := sample{base: base, end: base}
	ts := int64(1_000_000)
	for i := range count {
		ts += r.Int64N(2000) - 500
		stamps := make([]int64, 1+r.IntN(4))
		for j := range stamps {
			stamps[j] = ts + r.Int64N(300)
		}
		b := batchOf(s.end, cluster.LeaderEpoch(3+i*3/count), valueBytes, seed+uint64(i), stamps...)
		s.positions = append(s.positions, int64(len(s.bytes)))
		s.bytes = append(s.bytes, b...)
		s.batches = append(s.batches, b)
		s.end = b.NextOffset()
	}
	return s
}

func (s sample) source() segmentobject.Source {
	return segmentobject.Source{
		TopicName: "orders", Topic: cluster.TopicID{1, 2, 3, 15: 9}, Partition: 4, Segment: cluster.SegmentID{9, 8, 15: 7},
		Base: s.base, End: s.end, LeaderEpoch: 5,
		Batches: bytes.NewReader(s.bytes), Bytes: int64(len(s.bytes)),
		Aborted: []producerstate.AbortedTxn{
			{ProducerID: 1, First: s.base - 20, Last: s.base - 1, LastStableOffset: s.base},
			{ProducerID: 2, First: s.base - 5, Last: s.base + 3, LastStableOffset: s.base + 4},
			{ProducerID: 3, First: s.base + 5, Last: s.end + 3, LastStableOffset: s.end + 4},
			{ProducerID: 4, First: s.end, Last: s.end + 9, LastStableOffset: s.end + 10},
		},
		ProducerSnapshot: []byte("a snapshot in a format of its own"),
		Epochs:           []leaderepoch.Entry{{Epoch: 1, Start: 0}, {Epoch: 3, Start: s.base}, {Epoch: 9, Start: s.end}},
		Created:          time.UnixMilli(1_700_000_000_123),
	}
}

func build(t testing.TB, src segmentobject.Source) *segmentobject.Object {
	t.Helper()
	o, err := segmentobject.Build(context.Background(), src)
	require.NoError(t, err)
	return o
}

func readBody(t testing.TB, b objstore.Body) []byte {
	t.Helper()
	out, err := io.ReadAll(io.NewSectionReader(b, 0, b.Size()))
	require.NoError(t, err)
	require.EqualValues(t, b.Size(), len(out))
	return out
}

// countingStore counts GETs.
type countingStore struct {
	objstore.Store
	gets atomic.Int64
}

func (c *countingStore) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, key, off, n)
}

func stored(t testing.TB, o *segmentobject.Object) *countingStore {
	t.Helper()
	s := &countingStore{Store: mem.New()}
	_, err := s.Put(context.Background(), "a/b.seg", o, o.PutOptions())
	require.NoError(t, err)
	return s
}

func TestObjectRoundTrip(t *testing.T) {
	for _, c := range []struct{ count, value int }{{1, 10}, {3, 100}, {400, 300}, {400, 8000}, {3, 1 << 20}} {
		t.Run(fmt.Sprintf("%d batches of %d", c.count, c.value), func(t *testing.T) {
			s := makeSample(1000, c.count, c.value, 1)
			src := s.source()
			o := build(t, src)
			store := stored(t, o)
			sum := o.Summary()
			require.EqualValues(t, len(s.bytes), sum.SegmentBytes)
			require.EqualValues(t, sum.ObjectBytes, sum.SegmentBytes+sum.IndexBytes+sum.FooterBytes)
			x, err := segmentobject.ReadIndex(t.Context(), store, "a/b.seg", sum)
			require.NoError(t, err)
			require.EqualValues(t, 1, store.gets.Load(), "one GET for all indexes")

			y, err := segmentobject.OpenIndex(t.Context(), store, "a/b.seg", sum.ObjectBytes)
			require.NoError(t, err)
			require.LessOrEqual(t, store.gets.Load(), int64(3), "at most two GETs by key and size")
			require.Equal(t, sum, y.Summary())
			z, err := segmentobject.Verify(t.Context(), store, "a/b.seg", -1)
			require.NoError(t, err)
			require.Equal(t, sum, z.Summary())

			f := x.Footer()
			require.Equal(t, o.Footer(), f)
			require.Equal(t, "orders", f.TopicName)
			require.Equal(t, src.Topic, f.Topic)
			require.Equal(t, src.Segment, f.Segment)
			require.EqualValues(t, 4, f.Partition)
			require.Equal(t, s.base, f.Base)
			require.Equal(t, s.end, f.End)
			require.Equal(t, src.Created.UnixMilli(), f.Created.UnixMilli())
			require.Equal(t, src.ProducerSnapshot, x.ProducerSnapshot())
			require.Equal(t, src.Epochs[:2], x.Epochs())
			overlapping := 2
			if s.base+5 >= s.end {
				overlapping = 1
			}
			require.Equal(t, src.Aborted[1:1+overlapping], x.Aborted(0, s.end+100))
			require.Equal(t, s.batches[0].PartitionLeaderEpoch(), sum.FirstEpoch)
			require.Equal(t, s.batches[len(s.batches)-1].PartitionLeaderEpoch(), sum.LastEpoch)
			require.EqualValues(t, s.end-s.base, sum.RecordCount)
		})
	}
}

// TestAbortedAtTheEnds: a transaction that ends with the first offset, or starts
// with the last one, overlaps; one next to them does not.
func TestAbortedAtTheEnds(t *testing.T) {
	src := makeSample(100, 5, 10, 1).source()
	all := []producerstate.AbortedTxn{
		{ProducerID: 1, First: 90, Last: 99, LastStableOffset: 100},
		{ProducerID: 2, First: 90, Last: 100, LastStableOffset: 101},
		{ProducerID: 3, First: src.End - 1, Last: src.End + 5, LastStableOffset: src.End + 6},
		{ProducerID: 4, First: src.End, Last: src.End + 6, LastStableOffset: src.End + 7},
	}
	src.Aborted = all
	x := mustIndex(t, build(t, src))
	require.Equal(t, all[1:3], x.Aborted(0, 1<<40))
}

func TestAbortedOverlap(t *testing.T) {
	s := makeSample(100, 50, 10, 1)
	x, err := segmentobject.ReadIndex(t.Context(), stored(t, build(t, s.source())), "a/b.seg", build(t, s.source()).Summary())
	require.NoError(t, err)
	require.Len(t, x.Aborted(100, 104), 1)
	require.Len(t, x.Aborted(103, 105), 1)
	require.Empty(t, x.Aborted(104, 105), "between the two")
	require.Len(t, x.Aborted(103, 106), 2)
	require.Len(t, x.Aborted(s.end-1, s.end), 1)
}

// find reads the batches of a range and returns the first that reaches offset.
func find(t *testing.T, s sample, r segmentobject.Range, offset cluster.Offset) recordbatch.Batch {
	t.Helper()
	b := s.bytes[r.Start:]
	for pos := r.Start; pos < r.End; {
		batch, rest, err := recordbatch.First(b)
		require.NoError(t, err)
		if batch.LastOffset() >= offset {
			return batch
		}
		pos, b = pos+int64(batch.Bytes()), rest
	}
	return nil
}

func TestFindEveryOffset(t *testing.T) {
	s := makeSample(5000, 700, 500, 2)
	x := mustIndex(t, build(t, s.source()))
	i := 0
	for o := s.base; o < s.end; o++ {
		for s.batches[i].LastOffset() < o {
			i++
		}
		r, ok := x.Find(o)
		require.True(t, ok)
		require.LessOrEqual(t, r.Start, s.positions[i])
		require.Less(t, s.positions[i], r.End)
		require.Less(t, r.End-r.Start, int64(2*segmentobject.IndexIntervalBytes))
		require.Equal(t, s.batches[i], find(t, s, r, o))
	}
	for _, o := range []cluster.Offset{0, s.base - 1, s.end, s.end + 1} {
		_, ok := x.Find(o)
		require.False(t, ok)
	}
}

func mustIndex(t testing.TB, o *segmentobject.Object) *segmentobject.Index {
	t.Helper()
	body := readBody(t, o)
	x, err := segmentobject.ParseIndex("k", o.Summary(), body[o.Summary().IndexPosition:])
	require.NoError(t, err)
	return x
}

func TestFindEveryTimestamp(t *testing.T) {
	s := makeSample(5000, 700, 500, 3)
	o := build(t, s.source())
	x := mustIndex(t, o)
	for _, from := range []cluster.Offset{0, s.base, s.base + 7, (s.base + s.end) / 2, s.end - 1} {
		for ts := o.Summary().MinTimestamp - 10; ts <= o.Summary().MaxTimestamp; ts += 1013 {
			want := -1
			for i, b := range s.batches {
				if b.LastOffset() >= from && b.MaxTimestamp() >= ts {
					want = i
					break
				}
			}
			r, ok := x.FindTimestamp(ts, from)
			require.True(t, ok)
			if want < 0 {
				continue
			}
			require.LessOrEqual(t, r.Start, s.positions[want], "ts %d from %d", ts, from)
			require.Less(t, s.positions[want], r.End, "ts %d from %d", ts, from)
			if from <= s.base {
				require.Less(t, r.End-r.Start, int64(3*segmentobject.IndexIntervalBytes))
			}
			// No batch before the range may qualify from where it starts.
		}
		// Just at each batch's own greatest, where the index may have its entries.
		for i, b := range s.batches {
			if from > s.base || i > 0 && b.MaxTimestamp() <= s.batches[i-1].MaxTimestamp() {
				continue
			}
			want := 0
			for s.batches[want].MaxTimestamp() < b.MaxTimestamp() {
				want++
			}
			r, ok := x.FindTimestamp(b.MaxTimestamp(), from)
			require.True(t, ok)
			require.LessOrEqual(t, r.Start, s.positions[want])
			require.Less(t, s.positions[want], r.End)
			require.Less(t, r.End-r.Start, int64(2*segmentobject.IndexIntervalBytes), "one interval")
		}
		_, ok := x.FindTimestamp(o.Summary().MaxTimestamp, from)
		require.True(t, ok, "the greatest there is")
		_, ok = x.FindTimestamp(o.Summary().MaxTimestamp+1, from)
		require.False(t, ok)
	}
	_, ok := x.FindTimestamp(0, s.end)
	require.False(t, ok)
	r, ok := x.FindTimestamp(-1<<63, 0)
	require.True(t, ok)
	require.Zero(t, r.Start)
}

func TestUploadFromInsideASegment(t *testing.T) {
	s := makeSample(1000, 300, 200, 4)
	for _, first := range []int{1, 17, 299} {
		src := s.source()
		src.Base = s.batches[first].BaseOffset()
		src.Position = s.positions[first]
		src.Bytes = int64(len(s.bytes)) - src.Position
		o := build(t, src)
		require.True(t, bytes.Equal(s.bytes[src.Position:], readBody(t, o)[:src.Bytes]))
		x := mustIndex(t, o)
		r, ok := x.Find(src.Base)
		require.True(t, ok)
		require.Zero(t, r.Start, "indexes are rebased")
		_, ok = x.Find(src.Base - 1)
		require.False(t, ok)
	}
}

func TestSparseSegments(t *testing.T) {
	s := makeSample(0, 100, 2000, 5)
	var kept []byte
	var batches []recordbatch.Batch
	for i, b := range s.batches {
		if i%3 == 1 {
			kept = append(kept, b...)
			batches = append(batches, b)
		}
	}
	src := s.source()
	src.Batches, src.Bytes = bytes.NewReader(kept), int64(len(kept))
	_, err := segmentobject.Build(t.Context(), src)
	require.ErrorIs(t, err, segmentobject.ErrCorrupt, "a gap in a segment that has none")
	src.Sparse = true
	x := mustIndex(t, build(t, src))
	require.True(t, x.Footer().Sparse)
	d := sample{bytes: kept, batches: batches}
	for o := s.base; o < s.end; o++ {
		r, ok := x.Find(o)
		require.True(t, ok)
		got := find(t, d, r, o)
		if got == nil && r.End < src.Bytes {
			got, _, err = recordbatch.First(kept[r.End:])
			require.NoError(t, err)
		}
		var want recordbatch.Batch
		for _, b := range batches {
			if b.LastOffset() >= o {
				want = b
				break
			}
		}
		require.Equal(t, want, got, "offset %d", o)
	}
	// An offset span above 32 bits.
	far := batchOf(1<<40, 9, 10, 1, 5)
	src.Batches, src.Bytes, src.End = bytes.NewReader(append(kept, far...)), int64(len(kept)+len(far)), 1<<40+1
	x = mustIndex(t, build(t, src))
	_, ok := x.Find(1 << 40)
	require.True(t, ok)
}

// TestBuildRefusesBadSegments: a corrupt local segment is never uploaded.
func TestBuildRefusesBadSegments(t *testing.T) {
	s := makeSample(10, 5, 30, 6)
	for i := range s.bytes {
		bad := bytes.Clone(s.bytes)
		bad[i] ^= 0x40
		src := s.source()
		src.Batches = bytes.NewReader(bad)
		_, err := segmentobject.Build(t.Context(), src)
		// The leader epoch is not under the CRC of a batch.
		if at := batchByte(s, int64(i)); at >= 12 && at < 16 {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, segmentobject.ErrCorrupt, "byte %d", i)
		var c *segmentobject.CorruptError
		require.ErrorAs(t, err, &c)
	}
	for n := range s.bytes {
		src := s.source()
		src.Batches, src.Bytes = bytes.NewReader(s.bytes[:n]), int64(n)
		_, err := segmentobject.Build(t.Context(), src)
		require.Error(t, err, "cut to %d bytes", n)
		src.Bytes = int64(len(s.bytes))
		_, err = segmentobject.Build(t.Context(), src)
		require.ErrorIs(t, err, segmentobject.ErrCorrupt, "cut to %d bytes", n)
	}
	for name, change := range map[string]func(*segmentobject.Source){
		"base too low":  func(s *segmentobject.Source) { s.Base-- },
		"base too high": func(s *segmentobject.Source) { s.Base++ },
		"end too low":   func(s *segmentobject.Source) { s.End-- },
		"end too high":  func(s *segmentobject.Source) { s.End++ },
		"no topic":      func(s *segmentobject.Source) { s.Topic = cluster.TopicID{} },
		"no name":       func(s *segmentobject.Source) { s.TopicName = "" },
		"negative base": func(s *segmentobject.Source) { s.Base = -1 },
		"empty":         func(s *segmentobject.Source) { s.Bytes = 0 },
		"no batches":    func(s *segmentobject.Source) { s.Batches = nil },
	} {
		src := s.source()
		change(&src)
		_, err := segmentobject.Build(t.Context(), src)
		require.Error(t, err, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := segmentobject.Build(ctx, s.source())
	require.ErrorIs(t, err, context.Canceled)
}

// batchByte is the position within its batch of a byte of the segment.
func batchByte(s sample, at int64) int64 {
	for _, p := range s.positions {
		if p <= at && at < p+61 {
			return at - p
		}
	}
	return -1
}

// countingReader counts the bytes read of a segment.
type countingReader struct {
	io.ReaderAt
	n   atomic.Int64
	max atomic.Int64
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	c.n.Add(int64(len(p)))
	if int64(len(p)) > c.max.Load() {
		c.max.Store(int64(len(p)))
	}
	return c.ReaderAt.ReadAt(p, off)
}

func TestSegmentIsReadOnceToBuild(t *testing.T) {
	s := makeSample(0, 40, 100_000, 7)
	r := &countingReader{ReaderAt: bytes.NewReader(s.bytes)}
	src := s.source()
	src.Batches = r
	o := build(t, src)
	require.EqualValues(t, len(s.bytes), r.n.Load())
	require.LessOrEqual(t, r.max.Load(), int64(segmentobject.ChunkBytes))
	// Checksums of parts cost no read.
	r.n.Store(0)
	body := readBody(t, o)
	size := o.Size()
	r.n.Store(0)
	for off := int64(0); off < size; off += 2 * segmentobject.ChunkBytes {
		n := min(size-off, 2*segmentobject.ChunkBytes)
		crc, ok := o.RangeCRC32C(off, n)
		require.True(t, ok)
		require.Equal(t, objstore.CRC32C(body[off:off+n]), crc)
	}
	crc, ok := o.RangeCRC32C(0, size)
	require.True(t, ok)
	require.Equal(t, o.Summary().CRC32C, crc)
	require.Equal(t, objstore.CRC32C(body), crc)
	crc, ok = o.RangeCRC32C(src.Bytes+10, 20)
	require.True(t, ok)
	require.Equal(t, objstore.CRC32C(body[src.Bytes+10:src.Bytes+30]), crc)
	for _, r := range [][2]int64{{1, 10}, {0, 10}, {0, size + 1}, {-1, 5}, {segmentobject.ChunkBytes, 100}} {
		_, ok := o.RangeCRC32C(r[0], r[1])
		require.False(t, ok, "%v", r)
	}
	require.Zero(t, r.n.Load())
}

func TestObjectReadAtEverywhere(t *testing.T) {
	s := makeSample(0, 3, 40, 8)
	o := build(t, s.source())
	body := readBody(t, o)
	for off := range len(body) + 2 {
		for _, n := range []int{0, 1, 7, len(body)} {
			p := make([]byte, n)
			got, err := o.ReadAt(p, int64(off))
			want := body[min(off, len(body)):min(off+n, len(body))]
			require.Equal(t, string(want), string(p[:got]))
			if got < n {
				require.ErrorIs(t, err, io.EOF)
			}
		}
	}
}
