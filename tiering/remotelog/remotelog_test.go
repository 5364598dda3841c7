package remotelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/broker/partition"
	"strandline/broker/producerstate"
	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
	"strandline/metadata/request"
	"strandline/tiering/archive/tiertest"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/mem"
	"strandline/tiering/rangecache"
	"strandline/tiering/remotelog"
	"strandline/tiering/segmentobject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store counts GETs and changes what they give.
type store struct {
	objstore.Store
	gets, bytes atomic.Int64
	before      func(key string, off, n int64) error
	body        func(key string, off int64, b []byte) []byte
}

func (s *store) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	s.gets.Add(1)
	if s.before != nil {
		if err := s.before(key, off, n); err != nil {
			return nil, err
		}
	}
	r, err := s.Store.Get(ctx, key, off, n)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	if s.body != nil {
		b = s.body(key, off, b)
	}
	s.bytes.Add(int64(len(b)))
	return io.NopCloser(bytes.NewReader(b)), nil
}

// world is a remote log over doubles.
type world struct {
	t       *testing.T
	fs      *disk.Crash
	store   *store
	catalog *tiertest.Catalog
	cache   *rangecache.Cache
	cfg     remotelog.Config
	log     *remotelog.Log
	layout  manifest.Layout
}

const cacheDir = "/cache"

func newWorld(t *testing.T, cacheBytes int64, change ...func(*remotelog.Config)) *world {
	w := &world{t: t, fs: disk.NewCrash(1), store: &store{Store: mem.New()}, catalog: tiertest.NewCatalog()}
	w.layout = manifest.Layout{Store: w.store.Location(), Location: "here"}
	w.cfg = remotelog.Config{Store: w.store, Catalog: w.catalog, Submitter: w.catalog}
	for _, f := range change {
		f(&w.cfg)
	}
	w.open(cacheBytes)
	t.Cleanup(func() { w.close() })
	return w
}

func (w *world) open(cacheBytes int64) {
	var err error
	w.cache, err = rangecache.Open(rangecache.Config{FS: w.fs, Dir: cacheDir, LimitBytes: cacheBytes})
	require.NoError(w.t, err)
	w.cfg.Cache = w.cache
	w.log = remotelog.New(w.cfg)
}

func (w *world) close() {
	require.NoError(w.t, w.log.Close())
	require.NoError(w.t, w.cache.Close())
}

// wipe makes the cache empty, and forgets parsed indexes.
func (w *world) wipe() {
	limit := w.cache.LimitBytes()
	w.close()
	require.NoError(w.t, w.fs.RemoveAll(cacheDir))
	w.open(limit)
	w.store.gets.Store(0)
}

// tier uploads and publishes a replica's segments that are not remote yet.
func (w *world) tier(r *tiertest.Replica) {
	w.t.Helper()
	ctx := context.Background()
	sum, _ := w.catalog.Summary(r.TP)
	segments, epoch := r.Archivable(sum.RemoteEnd)
	for _, s := range segments {
		view, err := r.OpenSealed(s.Base)
		require.NoError(w.t, err)
		aborted, err := r.AbortedTxns(s.Base, s.Next)
		require.NoError(w.t, err)
		span := request.SegmentSpan{ID: cluster.NewSegmentID(), Base: s.Base, End: s.Next, LeaderEpoch: epoch, Location: "here"}
		span.Key = w.layout.SegmentKey(r.TP, s.Base, span.ID)
		object, err := segmentobject.Build(ctx, segmentobject.Source{
			TopicName: r.Name, Topic: r.TP.Topic, Partition: r.TP.Partition, Segment: span.ID, Base: s.Base, End: s.Next,
			LeaderEpoch: epoch, Batches: view.Handle.File(), Bytes: view.Bytes, Aborted: aborted,
			ProducerSnapshot: view.ProducerSnapshot, Epochs: view.Epochs, Created: time.Now(),
		})
		require.NoError(w.t, err)
		_, err = w.catalog.Submit(ctx, request.StartSegment{Partition: r.TP, LeaderEpoch: epoch, Span: span, Deadline: time.Now().Add(time.Hour)})
		require.NoError(w.t, err)
		_, err = w.store.Put(ctx, span.Key, object, object.PutOptions())
		require.NoError(w.t, err)
		_, err = w.catalog.Submit(ctx, request.PublishSegment{Partition: r.TP, LeaderEpoch: epoch, ID: span.ID, Object: object.Summary()})
		require.NoError(w.t, err)
		view.Release()
	}
}

func (w *world) replica(number int32, segments, batches, valueBytes int) *tiertest.Replica {
	r := tiertest.NewReplica(w.fs, w.catalog, "orders", number)
	for range segments {
		r.AddSegment(batches, valueBytes)
	}
	w.tier(r)
	return r
}

const noBound = cluster.Offset(1) << 60

func (w *world) read(r *tiertest.Replica, o cluster.Offset, maxBytes int) (partition.RemoteSlice, error) {
	return w.log.Read(context.Background(), r.TP, partition.RemoteRead{Offset: o, Bound: noBound, MaxBytes: maxBytes, MinOneBatch: true})
}

func contents(t *testing.T, s partition.RemoteSlice) []byte {
	t.Helper()
	out := make([]byte, s.Bytes)
	at := 0
	for _, r := range s.Regions {
		n, err := r.ReadAt(out[at:at+int(r.Bytes)], 0)
		require.True(t, int64(n) == r.Bytes, "%d of %d: %v", n, r.Bytes, err)
		at += n
		r.Release()
	}
	require.Equal(t, s.Bytes, at)
	return out
}

// wholeLog is a replica's log in one piece.
type wholeLog struct {
	bytes  []byte
	starts []int // of the batches
	ends   []cluster.Offset
}

var wholeLogs sync.Map // *tiertest.Replica to *wholeLog

// local is what a replica's log holds from the batch with the offset on.
func local(r *tiertest.Replica, o cluster.Offset) []byte {
	batches := r.Batches()
	v, ok := wholeLogs.Load(r)
	if !ok || len(v.(*wholeLog).ends) != len(batches) {
		l := &wholeLog{}
		for _, b := range batches {
			l.starts, l.ends = append(l.starts, len(l.bytes)), append(l.ends, b.NextOffset())
			l.bytes = append(l.bytes, b.Batch...)
		}
		wholeLogs.Store(r, l)
		v = l
	}
	l := v.(*wholeLog)
	i := slices.IndexFunc(l.ends, func(end cluster.Offset) bool { return end > o })
	if i < 0 {
		return nil
	}
	return l.bytes[l.starts[i]:]
}

// readAll reads from an offset to the end, as a consumer does.
func (w *world) readAll(r *tiertest.Replica, o cluster.Offset, maxBytes int) []byte {
	w.t.Helper()
	out := make([]byte, 0, len(local(r, o)))
	end, _ := w.log.RemoteEndOffset(r.TP)
	for o < end {
		s, err := w.read(r, o, maxBytes)
		require.NoError(w.t, err)
		require.NotEmpty(w.t, s.Regions, "I8 at %d", o)
		require.Greater(w.t, s.NextOffset, o)
		out = append(out, contents(w.t, s)...)
		o = s.NextOffset
	}
	return out
}

// I7, I8: what is read remotely is what was written, whatever the sizes.
func TestReadsEqualTheLocalLog(t *testing.T) {
	for _, c := range []struct {
		batches, valueBytes, maxBytes int
		cache                         int64
	}{
		{40, 100, 1 << 20, 16 << 20},
		{40, 100, 1, 16 << 20},
		{40, 100, 3000, 4 << 20},
		{30, 40_000, 1 << 20, 16 << 20}, // several chunks a segment
		{30, 40_000, 100_000, 4 << 20},
		{4, 300_000, 1 << 20, 4 << 20},  // batches that cross chunks
		{2, 500_000, 1 << 20, 16 << 20}, // batches of more than a chunk
		{2, 500_000, 1 << 20, 3 << 20},  // batches that the cache can hardly hold
		{1, 500_000, 1 << 20, 1 << 20},  // and ones that it cannot
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			w := newWorld(t, c.cache)
			r := w.replica(0, 2, c.batches, c.valueBytes)
			require.True(t, bytes.Equal(local(r, 0), w.readAll(r, 0, c.maxBytes)))
			rng := rand.New(rand.NewPCG(1, 2))
			end, _ := w.log.RemoteEndOffset(r.TP)
			for range 5 {
				o := cluster.Offset(rng.Int64N(int64(end)))
				s, err := w.read(r, o, c.maxBytes)
				require.NoError(t, err)
				got := contents(t, s)
				require.NotEmpty(t, got)
				require.True(t, bytes.HasPrefix(local(r, o), got))
				require.LessOrEqual(t, w.cache.Stats().Bytes, c.cache)
			}
			require.NoError(t, w.log.Close()) // reading ahead is over
			require.LessOrEqual(t, w.cache.Stats().Bytes, c.cache)
			require.Zero(t, w.cache.Stats().PinnedBytes)
		})
	}
}

func TestEveryOffsetAtTheSeams(t *testing.T) {
	w := newWorld(t, 16<<20)
	r := w.replica(0, 4, 5, 50)
	for o := cluster.Offset(0); ; o++ {
		s, err := w.read(r, o, 1<<20)
		if end, _ := w.log.RemoteEndOffset(r.TP); o == end {
			require.ErrorIs(t, err, partition.ErrOffsetOutOfRange)
			return
		}
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(local(r, o), contents(t, s)))
		require.Positive(t, s.Bytes)
	}
}

func TestLimitsOfARead(t *testing.T) {
	w := newWorld(t, 16<<20)
	r := w.replica(0, 2, 10, 500)
	first := r.Batches()[0]
	read := func(rd partition.RemoteRead) partition.RemoteSlice {
		s, err := w.log.Read(context.Background(), r.TP, rd)
		require.NoError(t, err)
		contents(t, s)
		return s
	}
	require.Zero(t, read(partition.RemoteRead{Bound: noBound, MaxBytes: 10}).Bytes, "too large, and not to be passed")
	require.Equal(t, first.Bytes(), read(partition.RemoteRead{Bound: noBound, MaxBytes: 10, MinOneBatch: true}).Bytes)
	require.Equal(t, first.Bytes(), read(partition.RemoteRead{Bound: noBound, MaxBytes: first.Bytes() + 10}).Bytes)
	for _, b := range r.Batches()[:10] {
		s := read(partition.RemoteRead{Bound: b.NextOffset(), MaxBytes: 1 << 20, MinOneBatch: true})
		require.Equal(t, b.NextOffset(), s.NextOffset)
		s = read(partition.RemoteRead{Bound: b.NextOffset() - 1, MaxBytes: 1 << 20, MinOneBatch: true})
		require.Equal(t, b.BaseOffset(), s.NextOffset)
	}
	_, err := w.read(r, -1, 100)
	require.ErrorIs(t, err, partition.ErrOffsetOutOfRange)
	other := tiertest.NewReplica(w.fs, w.catalog, "none", 0)
	_, err = w.read(other, 0, 100)
	require.ErrorIs(t, err, partition.ErrOffsetOutOfRange)
}

// One record from the middle of a large segment costs two GETs at most, the
// second one over at most two chunks.
func TestColdReadCostsTwoGets(t *testing.T) {
	w := newWorld(t, 16<<20)
	r := w.replica(0, 2, 120, 20_000) // some 6 MB a segment
	end, _ := w.log.RemoteEndOffset(r.TP)
	rng := rand.New(rand.NewPCG(5, 6))
	for range 8 {
		w.wipe()
		var largest int64
		w.store.before = func(key string, off, n int64) error {
			largest = max(largest, n)
			return nil
		}
		o := cluster.Offset(rng.Int64N(int64(end)))
		s, err := w.read(r, o, 1<<20)
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(local(r, o), contents(t, s)))
		require.LessOrEqual(t, w.store.gets.Load(), int64(2))
		require.LessOrEqual(t, largest, int64(2*segmentobject.ChunkBytes))
		_, err = w.read(r, o, 10)
		require.NoError(t, err)
		require.LessOrEqual(t, w.store.gets.Load(), int64(2), "warm")
	}
}

// TI-05: a lookup by time touches one index and one range, or nothing.
func TestTimestampLookups(t *testing.T) {
	w := newWorld(t, 16<<20)
	r := w.replica(0, 60, 8, 60)
	w.wipe()
	_, ok, err := w.log.OffsetForTimestamp(context.Background(), r.TP, time.Now().Add(time.Hour).UnixMilli(), 0)
	require.NoError(t, err)
	require.False(t, ok)
	require.Zero(t, w.store.gets.Load())

	type record struct {
		offset cluster.Offset
		ts     int64
		epoch  cluster.LeaderEpoch
	}
	var records []record
	for _, b := range r.Batches() {
		d := newDecoder()
		for rec, err := range d.Records(b.Batch) {
			require.NoError(t, err)
			records = append(records, record{rec.Offset, rec.Timestamp, b.PartitionLeaderEpoch()})
		}
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range 300 {
		if i%10 == 0 {
			w.wipe()
		}
		before := w.store.gets.Load()
		probe := records[rng.IntN(len(records))]
		ts, from := probe.ts+rng.Int64N(3)-1, cluster.Offset(0)
		if i%3 == 0 {
			from = records[rng.IntN(len(records))].offset
		}
		want := slices.IndexFunc(records, func(r record) bool { return r.ts >= ts && r.offset >= from })
		got, ok, err := w.log.OffsetForTimestamp(context.Background(), r.TP, ts, from)
		require.NoError(t, err)
		require.Equal(t, want >= 0, ok)
		if ok {
			require.Equal(t, records[want], record{got.Offset, got.Timestamp, got.LeaderEpoch})
		}
		if from == 0 {
			require.LessOrEqual(t, w.store.gets.Load()-before, int64(2))
		}
	}
}

// TI-09: looking for aborted transactions does not walk later segments.
func TestAbortedLookups(t *testing.T) {
	w := newWorld(t, 16<<20)
	r := tiertest.NewReplica(w.fs, w.catalog, "orders", 0)
	for range 30 {
		r.AddSegment(4, 50)
	}
	segments := r.Segments()
	long := producerstate.AbortedTxn{ProducerID: 1, First: segments[1].Base + 1, Last: segments[3].Base + 1, LastStableOffset: segments[3].Base + 2}
	short := producerstate.AbortedTxn{ProducerID: 2, First: segments[2].Base, Last: segments[2].Base + 2, LastStableOffset: segments[2].Base + 3}
	r.Aborted = []producerstate.AbortedTxn{long, short}
	w.tier(r)
	w.wipe()
	aborted := func(from, to cluster.Offset) []producerstate.AbortedTxn {
		got, err := w.log.Aborted(context.Background(), r.TP, from, to)
		require.NoError(t, err)
		return got
	}
	require.Empty(t, aborted(0, segments[0].Next))
	require.EqualValues(t, 1, w.store.gets.Load())
	require.ElementsMatch(t, []producerstate.AbortedTxn{long}, aborted(segments[1].Base, segments[1].Next))
	require.EqualValues(t, 2, w.store.gets.Load())
	require.ElementsMatch(t, []producerstate.AbortedTxn{long, short}, aborted(segments[2].Base, segments[2].Next), "the marker is in a later segment")
	require.ElementsMatch(t, []producerstate.AbortedTxn{long, short}, aborted(0, noBound), "each once")
	require.Empty(t, aborted(segments[5].Base, segments[5].Base+1))
}

func TestEpochsAndState(t *testing.T) {
	w := newWorld(t, 16<<20)
	r := w.replica(0, 2, 5, 50)
	r.SetLeader(4, true)
	middle := r.AddSegment(5, 50)
	w.tier(r)
	end, known := w.log.RemoteEndOffset(r.TP)
	require.True(t, known)
	require.Equal(t, middle.Next, end)
	require.Positive(t, w.log.LiveBytes(r.TP))

	state, err := w.log.State(context.Background(), r.TP)
	require.NoError(t, err)
	require.Equal(t, end, state.End)
	require.Equal(t, fmt.Sprintf("snapshot at %d", end), string(state.ProducerSnapshot))
	require.Equal(t, cluster.LeaderEpoch(4), state.Epochs[0].Epoch)

	found, at, ok := w.log.EpochEnd(r.TP, 2)
	require.True(t, ok)
	require.Equal(t, cluster.LeaderEpoch(1), found)
	require.Equal(t, middle.Base, at)
	found, at, ok = w.log.EpochEnd(r.TP, 9)
	require.True(t, ok)
	require.Equal(t, cluster.LeaderEpoch(4), found)
	require.Equal(t, end, at)
	_, _, ok = w.log.EpochEnd(r.TP, 0)
	require.False(t, ok)

	start, err := w.log.Advance(context.Background(), r.TP, 4, middle.Base, middle.Base)
	require.NoError(t, err)
	require.Equal(t, middle.Base, start)
	kept, _ := w.log.LogStartOffset(r.TP)
	require.Equal(t, start, kept)
	_, err = w.log.Advance(context.Background(), r.TP, 3, end, end)
	require.ErrorIs(t, err, request.ErrFencedLeaderEpoch)

	other := tiertest.NewReplica(w.fs, w.catalog, "none", 0)
	_, known = w.log.RemoteEndOffset(other.TP)
	require.False(t, known)
	state, err = w.log.State(context.Background(), other.TP)
	require.NoError(t, err)
	require.Zero(t, state.End)
}

// TI-19: a store slower than the client's patience still makes progress.
func TestSlowStoreMakesProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 16<<20)
		r := w.replica(0, 1, 60, 20_000)
		w.store.before = func(string, int64, int64) error { time.Sleep(2 * time.Second); return nil } // on the fake clock
		var got []byte
		polls := 0
		for o := cluster.Offset(0); o < r.Segments()[0].Next; polls++ {
			ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
			s, err := w.log.Read(ctx, r.TP, partition.RemoteRead{Offset: o, Bound: noBound, MaxBytes: 1 << 20, MinOneBatch: true})
			cancel()
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				continue
			}
			got = append(got, contents(t, s)...)
			o = s.NextOffset
		}
		require.True(t, bytes.Equal(local(r, 0), got))
		require.LessOrEqual(t, w.store.gets.Load(), int64(6), "nothing is read twice")
		require.Less(t, polls, 25)
	})
}

func TestSequentialReadersReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 64<<20)
		r := w.replica(0, 3, 70, 20_000)
		waited := 0
		w.store.before = func(string, int64, int64) error { time.Sleep(100 * time.Millisecond); return nil } // on the fake clock
		var got []byte
		for o := cluster.Offset(0); o < r.Segments()[2].Next; {
			began := time.Now()
			s, err := w.read(r, o, 1<<20)
			require.NoError(t, err)
			if time.Since(began) > 0 {
				waited++
			}
			got = append(got, contents(t, s)...)
			o = s.NextOffset
			time.Sleep(120 * time.Millisecond) // the reader is slower than the store
		}
		require.True(t, bytes.Equal(local(r, 0), got))
		require.LessOrEqual(t, waited, 3, "across segments too")
		require.LessOrEqual(t, w.store.bytes.Load(), int64(len(got))*105/100, "no chunk twice")
		require.Positive(t, w.log.Stats().SequentialReads)
	})
}

func TestManyReadersInASmallCache(t *testing.T) {
	w := newWorld(t, 16<<20)
	var replicas []*tiertest.Replica
	for i := range 8 {
		replicas = append(replicas, w.replica(int32(i), 2, 25, 20_000))
	}
	var readers sync.WaitGroup
	for _, r := range replicas {
		readers.Go(func() {
			if !bytes.Equal(local(r, 0), w.readAll(r, 0, 1<<20)) {
				t.Errorf("partition %d differs", r.TP.Partition)
			}
		})
	}
	readers.Wait()
	require.LessOrEqual(t, w.cache.Stats().Bytes, int64(16<<20))
}

// TI-29, and R1: bytes that are wrong are never served.
func TestBadObjects(t *testing.T) {
	for _, c := range []struct {
		name string
		body func(o request.ObjectSummary) func(string, int64, []byte) []byte
	}{
		{"batches", func(o request.ObjectSummary) func(string, int64, []byte) []byte {
			return func(_ string, off int64, b []byte) []byte {
				if off == 0 {
					b[100] ^= 1
				}
				return b
			}
		}},
		{"index", func(o request.ObjectSummary) func(string, int64, []byte) []byte {
			return func(_ string, off int64, b []byte) []byte {
				if off == o.IndexPosition {
					b[3] ^= 1
				}
				return b
			}
		}},
		{"cut", func(o request.ObjectSummary) func(string, int64, []byte) []byte {
			return func(_ string, off int64, b []byte) []byte { return b[:len(b)/2] }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines logLines
				w := newWorld(t, 16<<20, lines.attach)
				r := w.replica(0, 1, 20, 500)
				seg, _, err := w.catalog.FindOffset(r.TP, 0)
				require.NoError(t, err)
				bad := c.body(seg.Object)
				once := atomic.Bool{}
				w.store.body = func(key string, off int64, b []byte) []byte {
					if once.CompareAndSwap(false, true) {
						return bad(key, off, b)
					}
					return b
				}
				require.True(t, bytes.Equal(local(r, 0), w.readAll(r, 0, 1<<20)), "damaged on the way once")

				w.wipe()
				w.store.body = bad
				_, err = w.read(r, 0, 1<<20)
				require.ErrorIs(t, err, partition.ErrRemote)
				if c.name != "cut" {
					require.ErrorIs(t, err, segmentobject.ErrCorrupt)
					require.ErrorContains(t, err, seg.Key)
				}
				gets := w.store.gets.Load()
				require.LessOrEqual(t, gets, int64(6))
				_, err = w.read(r, 0, 1<<20)
				require.ErrorIs(t, err, partition.ErrRemote)
				require.Equal(t, gets, w.store.gets.Load(), "not asked for again at once")
				require.EqualValues(t, 1, w.log.Stats().BadObjects)
				time.Sleep(remotelog.DefaultBadFor + time.Second) // on the fake clock
				_, err = w.read(r, 0, 1<<20)
				require.ErrorIs(t, err, partition.ErrRemote)
				lines.requireOne(t, w, seg)

				w.store.body = nil
				time.Sleep(remotelog.DefaultBadFor + time.Second)
				require.True(t, bytes.Equal(local(r, 0), w.readAll(r, 0, 1<<20)), "repaired")
				require.Empty(t, w.log.BadObjects())
			})
		})
	}
}

// logLines keeps the errors that are logged.
type logLines struct{ b bytes.Buffer }

func (l *logLines) attach(c *remotelog.Config) {
	c.Logger = slog.New(slog.NewTextHandler(&l.b, &slog.HandlerOptions{Level: slog.LevelError}))
	c.TopicName = func(cluster.TopicID) (string, bool) { return "orders", true }
}

// requireOne: an object that stays bad is reported once, with its key and what to
// do, and listed until it is read well.
func (l *logLines) requireOne(t *testing.T, w *world, seg catalog.Segment) {
	t.Helper()
	text := l.b.String()
	require.Equal(t, 1, strings.Count(text, "\n"), text)
	require.Contains(t, text, seg.Key)
	require.Contains(t, text, " topic=orders partition=0 ")
	require.Contains(t, text, fmt.Sprintf("below offset %d", seg.End))
	bad := w.log.BadObjects()
	require.Len(t, bad, 1)
	require.Equal(t, seg, bad[0].Segment)
}

func TestDamagedCacheIsFetchedAgain(t *testing.T) {
	w := newWorld(t, 16<<20)
	r := w.replica(0, 1, 20, 500)
	w.readAll(r, 0, 1<<20)
	damage := func(f func(disk.File) error) {
		names, err := w.fs.List(cacheDir)
		require.NoError(t, err)
		n := 0
		for _, name := range names {
			if !strings.HasSuffix(name, ".chunk") {
				continue
			}
			file, err := w.fs.Open(path.Join(cacheDir, name))
			require.NoError(t, err)
			require.NoError(t, f(file))
			require.NoError(t, file.Close())
			n++
		}
		require.Equal(t, 2, n)
	}
	junk := func(f disk.File) error { _, err := f.WriteAt(make([]byte, 5000), 0); return err }
	damage(junk) // while it runs: batch headers are gone
	require.True(t, bytes.Equal(local(r, 0), w.readAll(r, 0, 1<<20)))

	for _, f := range []func(disk.File) error{junk, func(f disk.File) error { return f.Truncate(7) }} {
		damage(f)
		w.close()
		w.open(16 << 20)
		require.True(t, bytes.Equal(local(r, 0), w.readAll(r, 0, 1<<20)))
	}
}

// R5: a segment that was replaced or has expired while it was read.
func TestObjectThatIsGone(t *testing.T) {
	var lines logLines
	w := newWorld(t, 16<<20, lines.attach)
	r := w.replica(0, 2, 5, 100)
	caught := 0
	w.close()
	w.cfg.CatchUp = func(ctx context.Context) error {
		caught++
		if caught == 1 {
			_, err := r.AdvanceLogStart(ctx, r.Segments()[1].Base)
			return err
		}
		return nil
	}
	w.open(16 << 20)
	for _, s := range w.live(r) {
		require.NoError(t, w.store.Delete(context.Background(), s.Key))
	}
	_, err := w.read(r, 0, 100)
	require.ErrorIs(t, err, partition.ErrOffsetOutOfRange, "it has expired meanwhile")
	require.Equal(t, 1, caught)

	_, err = w.read(r, r.Segments()[1].Base, 100)
	require.ErrorIs(t, err, partition.ErrRemote)
	require.ErrorIs(t, err, remotelog.ErrMissingObject)
	require.ErrorContains(t, err, w.live(r)[0].Key)
	require.Equal(t, 2, caught)
	lines.requireOne(t, w, w.live(r)[0])
	_, err = r.AdvanceLogStart(context.Background(), w.live(r)[0].End)
	require.NoError(t, err)
	require.Empty(t, w.log.BadObjects(), "what is not live is no concern")
}

// R5: a store that does not find an object once is asked again, after the catalog
// has caught up, before the object is left alone.
func TestObjectThatIsNotFoundOnce(t *testing.T) {
	notFound := func(key string) error {
		return &objstore.Error{Op: objstore.VerbGet, Key: key, Class: objstore.ErrNotFound}
	}
	var lines logLines
	w := newWorld(t, 16<<20, lines.attach)
	r := w.replica(0, 1, 5, 100)
	var order []string
	w.close()
	w.cfg.CatchUp = func(context.Context) error { order = append(order, "catch up"); return nil }
	w.open(16 << 20)
	w.store.before = func(key string, _, _ int64) error {
		order = append(order, "get")
		if len(order) == 1 {
			return notFound(key)
		}
		return nil
	}
	slice, err := w.read(r, 0, 100)
	require.NoError(t, err)
	require.NotEmpty(t, slice)
	require.Equal(t, []string{"get", "catch up", "get"}, order[:3])
	require.Zero(t, w.log.Stats().BadObjects)
	require.Empty(t, w.log.BadObjects())

	// One that stays missing is asked for twice, and then left alone.
	w.wipe()
	w.store.before = func(key string, _, _ int64) error { return notFound(key) }
	for range 3 {
		_, err = w.read(r, 0, 100)
		require.ErrorIs(t, err, remotelog.ErrMissingObject)
	}
	require.EqualValues(t, 2, w.store.gets.Load())
	lines.requireOne(t, w, w.live(r)[0])
}

func (w *world) live(r *tiertest.Replica) (out []catalog.Segment) {
	for s, err := range w.catalog.Live(r.TP, 0) {
		require.NoError(w.t, err)
		out = append(out, s)
	}
	return out
}

func TestStoreThatIsAway(t *testing.T) {
	w := newWorld(t, 16<<20)
	r := w.replica(0, 1, 5, 100)
	away := &objstore.Error{Op: objstore.VerbGet, Class: objstore.ErrUnavailable}
	w.store.before = func(string, int64, int64) error { return away }
	_, err := w.read(r, 0, 100)
	require.ErrorIs(t, err, partition.ErrRemote)
	require.ErrorIs(t, err, objstore.ErrUnavailable)
	require.Zero(t, w.log.Stats().BadObjects)
	w.store.before = nil
	require.True(t, bytes.Equal(local(r, 0), w.readAll(r, 0, 1<<20)), "at once")
}

func TestAnotherLocation(t *testing.T) {
	location, known := "elsewhere", false
	w := newWorld(t, 16<<20, func(c *remotelog.Config) {
		c.Location = func() (string, bool) { return location, known }
	})
	r := w.replica(0, 1, 5, 100)
	_, err := w.read(r, 0, 100)
	require.NoError(t, err, "not known yet")
	known = true
	_, err = w.read(r, 0, 100)
	require.ErrorIs(t, err, remotelog.ErrOtherLocation)
	location = "here"
	_, err = w.read(r, 0, 100)
	require.NoError(t, err)
}

// A cache disk that fails makes reads slower, not impossible.
func TestCacheDiskThatFails(t *testing.T) {
	inner := disk.NewCrash(1)
	var broken atomic.Bool
	faulty := disk.NewFault(inner, func(op disk.Op) error {
		if broken.Load() && strings.HasPrefix(op.Name, cacheDir) && op.Kind != disk.OpClose {
			return errors.New("no such luck")
		}
		return nil
	})
	w := newWorld(t, 16<<20)
	r := w.replica(0, 2, 20, 40_000)
	w.close()
	cache, err := rangecache.Open(rangecache.Config{FS: faulty, Dir: cacheDir, LimitBytes: 16 << 20})
	require.NoError(t, err)
	w.cache, w.cfg.Cache = cache, cache
	w.log = remotelog.New(w.cfg)
	broken.Store(true)
	require.True(t, bytes.Equal(local(r, 0), w.readAll(r, 0, 1<<20)))
	broken.Store(false)
	require.True(t, bytes.Equal(local(r, 0), w.readAll(r, 0, 1<<20)))
}
