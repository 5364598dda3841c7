package segmentobject_test

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/faultstore"
	"strandline/tiering/objstore/mem"
	"strandline/tiering/objstore/objstoretest"
	"strandline/tiering/objstore/s3"
	"strandline/tiering/objstore/s3proto"
	"strandline/tiering/segmentobject"
)

// TestThroughMinIO uploads an object in parts to a real store and serves it.
func TestThroughMinIO(t *testing.T) {
	m := objstoretest.StartMinIO(t)
	driver, err := s3.Open(t.Context(), s3proto.Config{
		Bucket: m.NewBucket(t), Endpoint: m.Endpoint, PathStyle: true,
		AccessKeyID: m.AccessKey, SecretAccessKey: m.SecretKey, PartBytes: s3proto.MinPartBytes,
	})
	require.NoError(t, err)
	store := &countingStore{Store: objstore.NewGuard(driver, objstore.GuardConfig{})}
	t.Cleanup(func() { _ = store.Close() })

	s := makeSample(777, 120, 50_000, 21)
	require.Greater(t, len(s.bytes), 2*s3proto.MinPartBytes)
	file := &countingReader{ReaderAt: bytes.NewReader(s.bytes)}
	src := s.source()
	src.Batches = file
	o := build(t, src)
	file.n.Store(0)
	info, err := store.Put(t.Context(), "t/0.seg", o, o.PutOptions())
	require.NoError(t, err)
	require.EqualValues(t, len(s.bytes), file.n.Load(), "the segment is read once to build and once to upload")
	require.Equal(t, o.Size(), info.Bytes)
	head, err := store.Head(t.Context(), "t/0.seg")
	require.NoError(t, err)
	require.True(t, head.HasCRC, "the store has verified the checksum of the whole")
	require.Equal(t, o.Summary().CRC32C, head.CRC32C)

	_, err = store.Put(t.Context(), "t/0.seg", o, o.PutOptions())
	require.ErrorIs(t, err, objstore.ErrExists)

	x, err := segmentobject.ReadIndex(t.Context(), store, "t/0.seg", o.Summary())
	require.NoError(t, err)
	require.EqualValues(t, 1, store.gets.Load())
	middle := (s.base + s.end) / 2
	r, ok := x.Find(middle)
	require.True(t, ok)
	r = x.Align(r)
	require.LessOrEqual(t, r.End-r.Start, 2*x.ChunkBytes(), "one record costs one range over at most two chunks")
	b, err := objstore.ReadRange(t.Context(), store, "t/0.seg", r.Start, r.End-r.Start)
	require.NoError(t, err)
	require.NoError(t, x.VerifyChunks(r.Start, b))
	require.True(t, bytes.Equal(s.bytes[r.Start:r.End], b), "a range of the object is a range of the segment")
	_, err = segmentobject.Verify(t.Context(), store, "t/0.seg", -1)
	require.NoError(t, err)
}

// TestFailedUploadsLeaveOneCopy: TI-13. However often the upload fails, before or
// after its effect, there is one whole object in the end, and before that none
// that anyone could count.
func TestFailedUploadsLeaveOneCopy(t *testing.T) {
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fault := faultstore.New(mem.New(), 1)
			g := objstore.NewGuard(fault, objstore.GuardConfig{})
			o := build(t, makeSample(0, 10, 100, 22).source())
			fault.Add(faultstore.Rule{Verb: objstore.VerbPut, Key: "*.seg", Count: 30, Class: objstore.ErrThrottled, AfterEffect: after})
			tries := 0
			for {
				tries++
				_, err := g.Put(t.Context(), "t/0.seg", o, o.PutOptions())
				if err == nil {
					break
				}
				if !after {
					require.True(t, objstore.IsRetriable(err))
					_, err = g.Head(t.Context(), "t/0.seg")
					require.ErrorIs(t, err, objstore.ErrNotFound)
				}
			}
			if after {
				require.Equal(t, 1, tries, "the second attempt recognises the object of the first")
			} else {
				require.Equal(t, 31, fault.Calls(objstore.VerbPut))
			}
			fault.Clear()
			n := 0
			for info, err := range g.List(t.Context(), "", "") {
				require.NoError(t, err)
				require.Equal(t, o.Size(), info.Bytes)
				n++
			}
			require.Equal(t, 1, n)
			_, err := segmentobject.Verify(t.Context(), g, "t/0.seg", -1)
			require.NoError(t, err)
		})
	}
}

// TestReadsThroughCutBodies: bodies that break off are read on, and never served
// half.
func TestReadsThroughCutBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := faultstore.New(mem.New(), 1)
		g := objstore.NewGuard(fault, objstore.GuardConfig{})
		o := build(t, makeSample(0, 50, 1000, 23).source())
		_, err := g.Put(t.Context(), "t/0.seg", o, o.PutOptions())
		require.NoError(t, err)
		fault.Add(faultstore.Rule{Verb: objstore.VerbGet, Count: 3, CutBody: 100})
		_, err = segmentobject.ReadIndex(t.Context(), g, "t/0.seg", o.Summary())
		require.NoError(t, err)
		fault.Clear()
		fault.Add(faultstore.Rule{Verb: objstore.VerbGet, CutBody: 1})
		_, err = segmentobject.ReadIndex(t.Context(), g, "t/0.seg", o.Summary())
		require.ErrorIs(t, err, objstore.ErrUnavailable)
		require.NotErrorIs(t, err, segmentobject.ErrCorrupt, "a transport failure is no corruption")
	})
}
