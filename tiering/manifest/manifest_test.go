package manifest

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/mem"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func id(n byte) (u [16]byte) {
	for i := range u {
		u[i] = n + byte(i)
	}
	return u
}

var testPartition = cluster.TopicPartition{Topic: id(3), Partition: 12}

func testLayout() Layout {
	return Layout{Store: objstore.Location{Scheme: "mem", Prefix: "pre/fix"}, Location: "loc"}
}

func segment(i int) Segment {
	var s Segment
	s.ID = id(0)
	binary.BigEndian.PutUint32(s.ID[:], uint32(i+1))
	s.Base, s.End = cluster.Offset(i*10), cluster.Offset(i*10+10)
	s.LeaderEpoch = 4
	s.Key = testLayout().SegmentKey(testPartition, s.Base, s.ID)
	s.Object = request.ObjectSummary{
		ObjectBytes: 1200, SegmentBytes: 1000, IndexPosition: 1000, IndexBytes: 150, FooterBytes: 50,
		MinTimestamp: -1, MaxTimestamp: 1_700_000_000_000 + int64(i), RecordCount: 10,
		FirstEpoch: 3, LastEpoch: 4, FormatVersion: 1, CRC32C: 0xdeadbeef,
	}
	return s
}

func sample() *Manifest {
	return &Manifest{
		ClusterID: "cluster", Location: "loc", TopicName: "orders", Partition: testPartition, PartitionCount: 16,
		Version: Version{4, 17}, CreatedMs: 1_700_000_000_000, Internal: true,
		LogStart: 5, RemoteEnd: 40, LiveStart: 0,
		Configs:  map[string]string{"retention.ms": "-1", "cleanup.policy": "delete"},
		Runs:     []RunRef{{Key: "loc/run-1", Base: 0, End: 20, Count: 2, Bytes: 300, CRC32C: 7}},
		Segments: []Segment{segment(2), segment(3)},
	}
}

func golden(t *testing.T, name string, b []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, b, 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, want, b)
}

func TestGolden(t *testing.T) {
	m := sample()
	golden(t, "manifest-v1", m.Encode())
	got, err := Decode("k", m.Encode())
	require.NoError(t, err)
	require.Equal(t, m, got)

	r := &Run{Partition: testPartition, Segments: []Segment{segment(0), segment(1), segment(7)}}
	golden(t, "run-v1", r.Encode())
	run, err := DecodeRun("k", r.Encode())
	require.NoError(t, err)
	require.Equal(t, r, run)
}

func TestDamageIsFound(t *testing.T) {
	b := sample().Encode()
	for i := range b {
		for _, bit := range []byte{1, 0x80} {
			c := append([]byte(nil), b...)
			c[i] ^= bit
			_, err := Decode("some/key", c)
			require.ErrorIs(t, err, ErrCorrupt, "byte %d", i)
			require.ErrorContains(t, err, "some/key")
		}
	}
	for i := range b {
		_, err := Decode("k", b[:i])
		require.ErrorIs(t, err, ErrCorrupt)
	}
	_, err := DecodeRun("k", b)
	require.ErrorIs(t, err, ErrCorrupt)

	b[4] = 2
	binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
	_, err = Decode("k", b)
	require.ErrorIs(t, err, ErrVersion)
}

// What decodes encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	f.Add(sample().Encode())
	f.Add((&Manifest{Deleted: true}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= headBytes+tailBytes { // let the fuzzer past the checksum
			binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
		}
		m, err := Decode("k", b)
		if err == nil {
			require.Equal(t, b, m.Encode())
		}
		r, err := DecodeRun("k", b)
		if err == nil {
			require.Equal(t, b, r.Encode())
		}
	})
}

func FuzzDecodeOwner(f *testing.F) {
	f.Add([]byte(`{"format":1,"clusterId":"c","locationId":"l","generation":1,"createdMs":5}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := DecodeOwner("k", b); err == nil {
			require.NotEmpty(t, o.ClusterID)
			require.NotEmpty(t, o.LocationID)
			require.NotZero(t, o.Generation)
		}
	})
}

func TestLayout(t *testing.T) {
	l := testLayout()
	for key, kind := range map[string]ObjectKind{
		l.SegmentKey(testPartition, 77, id(9)):       SegmentObject,
		l.ManifestKey(testPartition, Version{1, 2}):  ManifestObject,
		l.runKey(testPartition, 5, id(1)):            RunObject,
		l.PartitionPrefix(testPartition) + "else":    OtherObject,
		l.PartitionPrefix(testPartition) + "x.seg.1": OtherObject,
	} {
		tp, got, ok := l.ParseKey(key)
		require.True(t, ok, key)
		require.Equal(t, kind, got)
		require.Equal(t, testPartition, tp)
		require.NoError(t, objstore.ValidateKey(key))
	}
	for _, bad := range []string{"", "x", l.Root() + "a/b/c/d", "pre/fix/other/" + l.PartitionPrefix(testPartition)} {
		_, _, ok := l.ParseKey(bad)
		require.False(t, ok, bad)
	}
	for _, bad := range []string{"", "1-2", "0000000001-0000000000000000000x", "9999999999-00000000000000000001"} {
		_, ok := parseManifestKey(bad)
		require.False(t, ok, bad)
	}
	require.True(t, Version{1, 9}.Less(Version{2, 1}))
	require.True(t, Version{1, 1}.Less(Version{1, 2}))
	require.False(t, Version{1, 2}.Less(Version{1, 2}))
}

func segments(first, end int, reads *int) func(cluster.Offset) iter.Seq2[Segment, error] {
	return func(from cluster.Offset) iter.Seq2[Segment, error] {
		return func(yield func(Segment, error) bool) {
			for i := first; i < end; i++ {
				if s := segment(i); s.End > from {
					*reads++
					if !yield(s, nil) {
						return
					}
				}
			}
		}
	}
}

func TestWriterUsesRunsAgain(t *testing.T) {
	ctx := context.Background()
	store := mem.New()
	w := Writer{Store: store, Layout: Layout{Store: store.Location(), Location: "loc"}, RunSegments: 4}
	live := func(m *Manifest) (bases []int) {
		latest, err := w.Latest(ctx, testPartition)
		require.NoError(t, err)
		require.Equal(t, m, latest)
		for s, err := range w.Live(ctx, latest) {
			require.NoError(t, err)
			require.Equal(t, segment(int(s.Base)/10), s)
			bases = append(bases, int(s.Base)/10)
		}
		return bases
	}
	none, err := w.Latest(ctx, testPartition)
	require.NoError(t, err)
	require.Nil(t, none)

	var previous *Manifest
	for n := 1; n <= 21; n++ {
		reads := 0
		m := Manifest{Partition: testPartition, Version: Version{1, uint64(n)}, RemoteEnd: cluster.Offset(n * 10)}
		got, err := w.Write(ctx, previous, m, segments(0, n, &reads))
		require.NoError(t, err)
		require.LessOrEqual(t, reads, 8, "runs are not written again")
		bases := live(got)
		require.Len(t, bases, n)
		previous = got
	}
	require.Len(t, previous.Runs, 4)

	// Segments from the front expire: runs go, or are read from the middle on.
	reads := 0
	m := Manifest{Partition: testPartition, Version: Version{2, 1}, LogStart: 65, LiveStart: 60, RemoteEnd: 210}
	got, err := w.Write(ctx, previous, m, segments(6, 21, &reads))
	require.NoError(t, err)
	require.Len(t, got.Runs, 3)
	require.Equal(t, 6, live(got)[0])
	require.Len(t, live(got), 15)
	require.False(t, got.Names(60))
	require.True(t, got.Names(61))

	_, err = w.Write(ctx, got, m, segments(6, 21, &reads))
	require.ErrorIs(t, err, ErrSuperseded)
	list, err := w.List(ctx, testPartition)
	require.NoError(t, err)
	require.Len(t, list, 22)
	require.Equal(t, Version{2, 1}, list[21].Version)

	// A run that is not the one named is not believed.
	require.NoError(t, store.Delete(ctx, got.Runs[0].Key))
	_, err = store.Put(ctx, got.Runs[0].Key, objstore.NewBytesBody([]byte("x")), objstore.PutOptions{})
	require.NoError(t, err)
	for _, err := range w.Live(ctx, got) {
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

func TestOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := mem.New()
		ours := NewOwnership(OwnershipConfig{Store: store, ClusterID: "ours"})
		_, known := ours.Location()
		require.False(t, known)
		layout, err := ours.Check(ctx)
		require.NoError(t, err)
		location, known := ours.Location()
		require.True(t, known)
		require.Equal(t, location, layout.Location)

		// Another broker of the cluster finds the same location.
		second := NewOwnership(OwnershipConfig{Store: store, ClusterID: "ours"})
		again, err := second.Check(ctx)
		require.NoError(t, err)
		require.Equal(t, layout, again)

		// Another cluster is refused, and told what to do.
		theirs := NewOwnership(OwnershipConfig{Store: store, ClusterID: "theirs"})
		_, err = theirs.Check(ctx)
		require.ErrorIs(t, err, ErrForeign)
		require.ErrorContains(t, err, "remote.store.url")

		// A take-over is found at the next check.
		require.ErrorIs(t, theirs.Claim(ctx, Owner{LocationID: location, Generation: 1}), objstore.ErrExists)
		require.NoError(t, theirs.Claim(ctx, Owner{LocationID: location, Generation: 2}))
		_, err = ours.Check(ctx)
		require.NoError(t, err, "checked a moment ago")
		time.Sleep(31 * time.Second) // on the fake clock
		_, err = ours.Check(ctx)
		require.ErrorIs(t, err, ErrForeign)
		_, err = theirs.Check(ctx)
		require.NoError(t, err)

		// Also by a copy of the same cluster.
		require.NoError(t, theirs.Claim(ctx, Owner{LocationID: location, Generation: 3}))
		time.Sleep(31 * time.Second) // on the fake clock
		_, err = theirs.Check(ctx)
		require.ErrorIs(t, err, ErrForeign)
		require.ErrorContains(t, err, "generation 3")
	})
}

// A store that someone emptied is the same location as before, to a running
// broker and to one that starts with a catalog.
func TestEmptiedStoreIsClaimedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := mem.New()
		empty := func() {
			for info, err := range store.List(ctx, "", "") {
				require.NoError(t, err)
				require.NoError(t, store.Delete(ctx, info.Key))
			}
		}
		o := NewOwnership(OwnershipConfig{Store: store, ClusterID: "ours"})
		before, err := o.Check(ctx)
		require.NoError(t, err)
		empty()
		time.Sleep(31 * time.Second) // on the fake clock
		after, err := o.Check(ctx)
		require.NoError(t, err)
		require.Equal(t, before, after)
		empty()
		restarted := NewOwnership(OwnershipConfig{Store: store, ClusterID: "ours", Expected: func() string { return before.Location }})
		after, err = restarted.Check(ctx)
		require.NoError(t, err)
		require.Equal(t, before, after)
		owner, found, err := restarted.Peek(ctx, time.Second)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, before.Location, owner.LocationID)
	})
}

func TestClaimsRace(t *testing.T) {
	store := mem.New()
	results := make(chan error, 8)
	var owners []*Ownership
	for i := range 8 {
		o := NewOwnership(OwnershipConfig{Store: store, ClusterID: fmt.Sprint(i % 2)})
		owners = append(owners, o)
		go func() {
			_, err := o.Check(context.Background())
			results <- err
		}()
	}
	won := 0
	for range 8 {
		if err := <-results; err == nil {
			won++
		} else {
			require.ErrorIs(t, err, ErrForeign)
		}
	}
	require.Equal(t, 4, won)
	ids := map[string]bool{}
	for _, o := range owners {
		if id, ok := o.Location(); ok {
			ids[id] = true
		}
	}
	require.Len(t, ids, 1)
}

func TestOwnerObjects(t *testing.T) {
	for _, bad := range []string{
		"", "{}", "[]", `{"format":1,"clusterId":"c","locationId":"a/b","generation":1}`,
		`{"format":1,"clusterId":"c","locationId":"..","generation":1}`, `{"format":1,"clusterId":"c","locationId":"l"}`,
	} {
		_, err := DecodeOwner("k", []byte(bad))
		require.ErrorIs(t, err, ErrCorrupt, bad)
	}
	_, err := DecodeOwner("k", []byte(`{"format":2}`))
	require.ErrorIs(t, err, ErrVersion)
}
