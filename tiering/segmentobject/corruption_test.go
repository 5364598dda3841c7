package segmentobject_test

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/mem"
	"strandline/tiering/segmentobject"
)

func storeBytes(t testing.TB, b []byte) objstore.Store {
	t.Helper()
	s := mem.New()
	_, err := s.Put(context.Background(), "k.seg", objstore.NewBytesBody(b), objstore.PutOptions{})
	require.NoError(t, err)
	return s
}

// TestEveryCorruptByteIsFound: S3. Whoever reads an object finds each wrong byte:
// in the index when it is read, in the batches when a chunk is.
func TestEveryCorruptByteIsFound(t *testing.T) {
	s := makeSample(100, 4, 20, 11)
	o := build(t, s.source())
	sum, body := o.Summary(), readBody(t, o)
	for i := range body {
		bad := bytes.Clone(body)
		bad[i] ^= 1 << (i % 8)
		store := storeBytes(t, bad)
		_, err := segmentobject.Verify(t.Context(), store, "k.seg", sum.ObjectBytes)
		requireDetected(t, err, i)
		x, err := segmentobject.ReadIndex(t.Context(), store, "k.seg", sum)
		if int64(i) >= sum.SegmentBytes {
			requireDetected(t, err, i)
			_, err = segmentobject.OpenIndex(t.Context(), store, "k.seg", -1)
			requireDetected(t, err, i)
			continue
		}
		require.NoError(t, err)
		err = x.VerifyChunks(0, bad[:sum.SegmentBytes])
		requireDetected(t, err, i)
		require.Error(t, x.VerifyChunksAt(0, bytes.NewReader(bad), 0, sum.SegmentBytes))
	}
}

func requireDetected(t *testing.T, err error, i int) {
	t.Helper()
	require.Error(t, err, "byte %d", i)
	require.ErrorIs(t, err, segmentobject.ErrCorrupt, "byte %d", i)
	var c *segmentobject.CorruptError
	require.ErrorAs(t, err, &c)
	require.Equal(t, "k.seg", c.Key)
}

func TestTruncatedAndForeignObjects(t *testing.T) {
	o := build(t, makeSample(100, 6, 40, 11).source())
	body := readBody(t, o)
	for n := range body {
		store := storeBytes(t, body[:n])
		_, err := segmentobject.OpenIndex(t.Context(), store, "k.seg", -1)
		require.ErrorIs(t, err, segmentobject.ErrCorrupt, "cut to %d", n)
		_, err = segmentobject.ReadIndex(t.Context(), store, "k.seg", o.Summary())
		require.Error(t, err)
	}
	_, err := segmentobject.OpenIndex(t.Context(), storeBytes(t, append([]byte{0}, body...)), "k.seg", -1)
	require.ErrorIs(t, err, segmentobject.ErrCorrupt, "a byte in front")
	_, err = segmentobject.OpenIndex(t.Context(), storeBytes(t, bytes.Repeat([]byte("not an object"), 1000)), "k.seg", -1)
	require.ErrorIs(t, err, segmentobject.ErrCorrupt)
	// A valid object that is not the one the catalog means.
	src := makeSample(100, 6, 40, 11).source()
	src.Partition++
	other := readBody(t, build(t, src))
	sum := o.Summary()
	require.Equal(t, len(body), len(other), "the test needs objects of the same size")
	_, err = segmentobject.ParseIndex("k.seg", sum, other[sum.IndexPosition:])
	require.ErrorIs(t, err, segmentobject.ErrCorrupt)
	sum.IndexBytes++
	_, err = segmentobject.ReadIndex(t.Context(), storeBytes(t, body), "k.seg", sum)
	require.ErrorIs(t, err, segmentobject.ErrCorrupt)
}

func TestVerifyChunksRanges(t *testing.T) {
	s := makeSample(0, 40, 100_000, 13)
	x := mustIndex(t, build(t, s.source()))
	c, n := x.ChunkBytes(), int64(len(s.bytes))
	require.Greater(t, n, 3*c)
	require.NoError(t, x.VerifyChunks(0, s.bytes))
	require.NoError(t, x.VerifyChunks(c, s.bytes[c:3*c]))
	require.NoError(t, x.VerifyChunks(n/c*c, s.bytes[n/c*c:]))
	require.NoError(t, x.VerifyChunksAt(c, bytes.NewReader(s.bytes), c, c))
	require.NoError(t, x.VerifyChunksAt(c, bytes.NewReader(s.bytes[c:]), 0, c))
	require.Error(t, x.VerifyChunks(0, s.bytes[:c-1]))
	require.Error(t, x.VerifyChunks(1, s.bytes[1:c]))
	require.Error(t, x.VerifyChunks(n/c*c, append(bytes.Clone(s.bytes[n/c*c:]), 0)))
	require.ErrorIs(t, x.VerifyChunks(0, s.bytes[c:2*c]), segmentobject.ErrCorrupt)
	require.ErrorIs(t, x.VerifyChunksAt(0, bytes.NewReader(s.bytes[:c/2]), 0, c), io.ErrUnexpectedEOF, "a short file says nothing of the object")
	require.Equal(t, segmentobject.Range{Start: c, End: 2 * c}, x.Align(segmentobject.Range{Start: c + 5, End: c + 6}))
	require.Equal(t, segmentobject.Range{Start: 0, End: n}, x.Align(segmentobject.Range{Start: c - 1, End: n - 1}))
}

// TestVerifyChunksTakesWholeChunksOnly: whoever asks for other ranges has made a
// mistake, and the object is not blamed.
func TestVerifyChunksTakesWholeChunksOnly(t *testing.T) {
	s := makeSample(0, 40, 100_000, 13)
	x := mustIndex(t, build(t, s.source()))
	c, n := x.ChunkBytes(), int64(len(s.bytes))
	for _, r := range []struct {
		position, n int64
		ok          bool
	}{
		{0, 0, true},
		{c, 0, true},
		{0, c, true},
		{c, 2 * c, true},
		{0, n, true},
		{n / c * c, n - n/c*c, true},
		{-c, c, false},
		{-c, 2 * c, false},
		{1, c - 1, false},
		{1, c, false},
		{c, c - 1, false},
		{c, 1, false},
		{0, n + 1, false},
		{0, n - 1, false},
		{n / c * c, c, false},
		{(n/c + 1) * c, c, false},
		{c, -c, false},
		{2 * c, -1, false},
	} {
		from := max(min(r.position, n), 0)
		err := x.VerifyChunksAt(r.position, bytes.NewReader(s.bytes[from:]), 0, r.n)
		require.Equal(t, r.ok, err == nil, "%+v: %v", r, err)
		require.NotErrorIs(t, err, segmentobject.ErrCorrupt)
		require.NotErrorIs(t, err, io.ErrUnexpectedEOF, "it was not even read")
	}
}

var rewrite = flag.Bool("rewrite", false, "write the golden object again")

// TestGoldenObject keeps the bytes of version 1: what is in buckets must stay
// readable, and Build must not change what it writes unnoticed.
func TestGoldenObject(t *testing.T) {
	b1 := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: 40, LeaderEpoch: 2})
	b1.Add(1_600_000_000_000, []byte("key"), []byte("value"), recordbatch.Header{Key: "h", Value: []byte("1")})
	b1.Add(1_600_000_000_500, nil, []byte("second"))
	b2 := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: 42, LeaderEpoch: 3})
	b2.Add(1_599_999_999_000, []byte("earlier"), nil)
	seg := append(b1.Build(), b2.Build()...)
	s := sample{bytes: seg, base: 40, end: 43}
	body := readBody(t, build(t, s.source()))
	name := filepath.Join("testdata", "object_v1.seg")
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(name, body, 0o644))
	}
	golden, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, golden, body)
	x, err := segmentobject.Verify(t.Context(), storeBytes(t, golden), "k.seg", -1)
	require.NoError(t, err)
	f := x.Footer()
	require.Equal(t, "orders", f.TopicName)
	require.EqualValues(t, 1, f.FormatVersion)
	require.Equal(t, int64(1_599_999_999_000), f.MinTimestamp)
	require.Equal(t, int64(1_600_000_000_500), f.MaxTimestamp)
	require.EqualValues(t, 2, f.FirstEpoch)
	require.EqualValues(t, 3, f.LastEpoch)
	require.EqualValues(t, 3, f.RecordCount)
}

// FuzzParseIndex: no input makes the reader panic or allocate without bound, and
// what it accepts answers every lookup.
func FuzzParseIndex(f *testing.F) {
	s := makeSample(100, 6, 40, 11)
	o := build(f, s.source())
	body := readBody(f, o)
	f.Add(body, int64(len(body)), true)
	f.Add(body, int64(len(body)), false)
	f.Add(body[o.Summary().IndexPosition:], int64(len(body)), true)
	if golden, err := os.ReadFile(filepath.Join("testdata", "object_v1.seg")); err == nil {
		f.Add(golden, int64(len(golden)), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, size int64, reseal bool) {
		if reseal {
			b = segmentobject.ResealForTesting(b)
		}
		if x, err := segmentobject.ParseIndexForTesting("k", b, size); err == nil {
			exercise(t, x)
		}
		x, err := segmentobject.Verify(context.Background(), storeBytes(t, b), "k.seg", -1)
		if err == nil {
			exercise(t, x)
		}
	})
}

func exercise(t *testing.T, x *segmentobject.Index) {
	fo := x.Footer()
	for _, o := range []cluster.Offset{fo.Base, (fo.Base + fo.End) / 2, fo.End - 1} {
		if r, ok := x.Find(o); !ok || r.Start < 0 || r.End <= r.Start || r.End > fo.SegmentBytes {
			t.Fatalf("find %d: %+v %v", o, r, ok)
		}
		for _, ts := range []int64{-1, fo.MinTimestamp, fo.MaxTimestamp, 1 << 62, -1 << 63} {
			if r, ok := x.FindTimestamp(ts, fo.Base); ok && (r.Start < 0 || r.Start > r.End || r.End > fo.SegmentBytes) {
				t.Fatalf("find timestamp %d: %+v", ts, r)
			}
		}
	}
	x.Aborted(fo.Base, fo.End)
	_, _, _ = x.Epochs(), x.ProducerSnapshot(), x.Summary()
}
