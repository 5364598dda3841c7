package sweep_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/partition"
	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/request"
	"strandline/tiering/archive"
	"strandline/tiering/archive/tiertest"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/faultstore"
	"strandline/tiering/objstore/mem"
	"strandline/tiering/rangecache"
	"strandline/tiering/remotelog"
	"strandline/tiering/segmentobject"
	"strandline/tiering/sweep"
)

// tier is every part of the tier over doubles that can fail at any call: an
// archiver, a sweeper and a reader of two topics of one partition each, on a fake
// clock. There is no guard before the store: what it would retry fails here.
type tier struct {
	t       *testing.T
	store   *faultstore.Store
	disk    *disk.Fault   // of the cache
	inject  disk.Injector // once the cache is open
	catalog *tiertest.Catalog
	submits atomic.Int64
	// submit, if set, decides about the i-th request, before or after it is
	// carried out.
	submit func(i int64, done bool) error

	objects objstore.Store // what store hides
	own     *manifest.Ownership
	kept    *tiertest.Replica
	deleted *tiertest.Replica
	gone    atomic.Bool // the deleted topic
	written map[*tiertest.Replica][]tiertest.Batch
	archive *archive.Archiver
	sweep   *sweep.Sweeper
	log     *remotelog.Log
	broken  atomic.Pointer[string] // the first invariant that did not hold
}

const tierCache = "/cache"

func newTier(t *testing.T) *tier {
	objects := mem.New()
	files := disk.NewCrash(1)
	w := &tier{t: t, objects: objects, disk: disk.NewFault(files, nil), catalog: tiertest.NewCatalog(), written: map[*tiertest.Replica][]tiertest.Batch{}}
	w.store = faultstore.New(watchedStore{objects, w}, 1)
	w.kept = tiertest.NewReplica(files, w.catalog, "kept", 0)
	w.deleted = tiertest.NewReplica(files, w.catalog, "deleted", 0)
	w.own = manifest.NewOwnership(manifest.OwnershipConfig{Store: w.store, ClusterID: "c"})
	var mu sync.Mutex
	numbers := map[request.Request]int64{}
	w.catalog.Refuse = func(req request.Request, done bool) error {
		if publish, ok := req.(request.PublishSegment); ok && done {
			w.checkPublished(publish)
		}
		mu.Lock()
		i, seen := numbers[keyOf(req)]
		if !done || !seen {
			i = w.submits.Add(1) - 1
			numbers[keyOf(req)] = i
		}
		mu.Unlock()
		if w.submit == nil {
			return nil
		}
		return w.submit(i, done)
	}
	return w
}

// keyOf makes a request comparable: what may be under way twice is told apart.
func keyOf(req request.Request) request.Request {
	if r, ok := req.(request.RemoveSegments); ok {
		return request.AbandonSegment{Partition: r.Partition, ID: r.IDs[0]}
	}
	return req
}

// replicas yields those of topics that exist.
func (w *tier) replicas() []*tiertest.Replica {
	if w.gone.Load() {
		return []*tiertest.Replica{w.kept}
	}
	return []*tiertest.Replica{w.kept, w.deleted}
}

func each[R any](w *tier, as func(*tiertest.Replica) R) func() iter.Seq[R] {
	return func() iter.Seq[R] {
		return func(yield func(R) bool) {
			for _, r := range w.replicas() {
				if !yield(as(r)) {
					return
				}
			}
		}
	}
}

func (w *tier) start() {
	w.archive = archive.New(archive.Config{
		Store: w.store, Ownership: w.own, Submitter: w.catalog, Catalog: w.catalog, Interval: time.Second, UploadDeadline: 2 * time.Minute, Workers: 1,
		Replicas: each(w, func(r *tiertest.Replica) archive.Replica { return r }),
		Replica: func(tp cluster.TopicPartition) (archive.Replica, bool) {
			for _, r := range w.replicas() {
				if r.TP == tp {
					return r, true
				}
			}
			return nil, false
		},
	})
	w.sweep = sweep.New(sweep.Config{
		Store: w.store, Ownership: w.own, Submitter: w.catalog, Catalog: w.catalog, ClusterID: "c",
		Topic: func(id cluster.TopicID) (*image.Topic, bool) {
			for _, r := range w.replicas() {
				if r.TP.Topic == id {
					return &image.Topic{Name: r.Name, ID: id, Partitions: []*image.Partition{{}}}, true
				}
			}
			return nil, false
		},
		Replicas: each(w, func(r *tiertest.Replica) sweep.Replica { return r }),
		Interval: time.Second, ManifestInterval: 3 * time.Second, DeleteDelay: 20 * time.Second, ScrubInterval: -1,
	})
	cache, err := rangecache.Open(rangecache.Config{FS: w.disk, Dir: tierCache, LimitBytes: 1 << 20})
	require.NoError(w.t, err)
	w.disk.SetInjector(w.inject)
	w.log = remotelog.New(remotelog.Config{
		Store: w.store, Catalog: w.catalog, Submitter: w.catalog, Cache: cache, Location: w.own.Location, BadFor: 5 * time.Second,
	})
	w.archive.Start()
	w.sweep.Start()
	w.t.Cleanup(func() {
		require.NoError(w.t, w.archive.Close())
		require.NoError(w.t, w.sweep.Close())
		require.NoError(w.t, w.log.Close())
		require.NoError(w.t, cache.Close())
	})
}

// fail keeps the first violation of an invariant.
func (w *tier) fail(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	w.broken.CompareAndSwap(nil, &text)
}

// checkPublished: I5, what the catalog names is there and whole.
func (w *tier) checkPublished(p request.PublishSegment) {
	seg, ok, err := w.catalog.Find(p.Partition, p.ID)
	if err != nil || !ok || seg.State != catalog.Live {
		return
	}
	if _, err := segmentobject.Verify(context.Background(), w.objects, seg.Key, seg.Object.ObjectBytes); err != nil {
		w.fail("I5: published, but %v", err)
	}
}

// checkDeleted: I5, neither catalog nor manifest names what is deleted.
func (w *tier) checkDeleted(object string) {
	location, _ := w.own.Location()
	layout := manifest.Layout{Store: w.store.Location(), Location: location}
	tp, _, ok := layout.ParseKey(object)
	if !ok || !strings.HasSuffix(object, manifest.SegmentSuffix) {
		return
	}
	for s, err := range w.catalog.Live(tp, 0) {
		if err != nil || s.Key == object {
			w.fail("I5: a live object is deleted: %s (%v)", object, err)
		}
	}
	writer := manifest.Writer{Store: w.objects, Layout: layout}
	m, err := writer.Latest(context.Background(), tp)
	if err != nil || m == nil || m.Deleted {
		return
	}
	for s, err := range writer.Live(context.Background(), m) {
		if err != nil || s.Key == object {
			w.fail("I5: an object that the manifest names is deleted: %s (%v)", object, err)
		}
	}
}

// watchedStore sees what really happens to objects.
type watchedStore struct {
	objstore.Store
	w *tier
}

func (s watchedStore) Delete(ctx context.Context, keys ...string) error {
	for _, k := range keys {
		s.w.checkDeleted(k)
	}
	return s.Store.Delete(ctx, keys...)
}

// patience is how long, on the fake clock, one failure may delay anything.
const patience = 30 * time.Minute

// eventually waits for a condition.
func (w *tier) eventually(what string, cond func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		require.Truef(w.t, time.Now().Before(end), "still not after %v: %s; uploads %+v, sweeping %+v", patience, what, w.archive.Status(), w.sweep.Status())
		time.Sleep(time.Second)
		synctest.Wait()
	}
	if broken := w.broken.Load(); broken != nil {
		w.t.Fatal(*broken)
	}
}

func (w *tier) write(r *tiertest.Replica, segments int) {
	for range segments {
		w.written[r] = append(w.written[r], r.AddSegment(4, 100).Batches...)
	}
}

// archived waits until everything written is remote.
func (w *tier) archived(r *tiertest.Replica) {
	w.t.Helper()
	end := w.written[r][len(w.written[r])-1].NextOffset()
	w.eventually(r.Name+" is archived", func() bool {
		sum, _ := w.catalog.Summary(r.TP)
		return sum.RemoteEnd == end
	})
}

// readBack reads the whole remote part: right bytes or a clean error, and in the
// end right bytes.
func (w *tier) readBack(r *tiertest.Replica) {
	w.t.Helper()
	sum, _ := w.catalog.Summary(r.TP)
	ctx := context.Background()
	clean := func(err error) bool {
		if err != nil && !errors.Is(err, partition.ErrRemote) {
			w.fail("a read failed with %v", err)
		}
		return err == nil
	}
	at := sum.LogStart
	contents := func(s partition.RemoteSlice) (got []byte, ok bool) {
		ok = true
		for _, region := range s.Regions {
			b := make([]byte, region.Bytes)
			n, _ := region.ReadAt(b, 0)
			got, ok = append(got, b...), ok && n == len(b)
			region.Release()
		}
		return got, ok
	}
	w.eventually(r.Name+" is read back", func() bool {
		for at < sum.RemoteEnd {
			s, err := w.log.Read(ctx, r.TP, partition.RemoteRead{Offset: at, Bound: sum.RemoteEnd, MaxBytes: 700, MinOneBatch: true})
			if !clean(err) {
				return false
			}
			got, ok := contents(s)
			if !ok {
				return false // the connection to the client breaks off here
			}
			var want []byte
			for _, b := range w.written[r] {
				if b.NextOffset() > at && b.NextOffset() <= s.NextOffset {
					want = append(want, b.Batch...)
				}
			}
			if !bytes.Equal(got, want) {
				w.fail("I7: other bytes from offset %d", at)
			}
			at = s.NextOffset
		}
		return true
	})
	w.eventually(r.Name+" is looked up", func() bool {
		_, _, err := w.log.OffsetForTimestamp(ctx, r.TP, r.Segments()[0].MaxTimestamp, sum.LogStart)
		if !clean(err) {
			return false
		}
		if _, err = w.log.Aborted(ctx, r.TP, sum.LogStart, sum.RemoteEnd); !clean(err) {
			return false
		}
		_, err = w.log.State(ctx, r.TP)
		return clean(err)
	})
}

// life takes both topics through all that a tier does.
func (w *tier) life() {
	w.write(w.kept, 3)
	w.write(w.deleted, 2)
	w.start()
	w.archived(w.kept)
	w.archived(w.deleted)
	w.readBack(w.kept)
	w.readBack(w.deleted)
	before, _ := w.catalog.Summary(w.kept.TP)

	// A leader that died while uploading.
	location, _ := w.own.Location()
	orphan := request.SegmentSpan{ID: cluster.NewSegmentID(), Base: before.RemoteEnd, End: before.RemoteEnd + 1, LeaderEpoch: 1, Location: location}
	orphan.Key = manifest.Layout{Store: w.store.Location(), Location: location}.SegmentKey(w.kept.TP, orphan.Base, orphan.ID)
	w.eventually("an upload is announced", func() bool {
		start := request.StartSegment{Partition: w.kept.TP, LeaderEpoch: 1, Span: orphan, Deadline: time.Now().Add(2 * time.Minute)}
		_, err := w.catalog.Submit(context.Background(), start)
		return err == nil
	})
	_, err := w.objects.Put(context.Background(), orphan.Key, objstore.NewBytesBody([]byte("half")), objstore.PutOptions{})
	require.NoError(w.t, err)
	w.kept.SetLeader(2, true)

	w.write(w.kept, 2)
	w.kept.DropLocal(before.RemoteEnd)
	keep := 3 * w.kept.Segments()[0].Bytes
	w.kept.Change(func(c *config.Topic) { c.RetentionBytes = keep })
	w.gone.Store(true)
	w.catalog.DeleteTopic(w.deleted.TP.Topic, "deleted", 1)
	w.archived(w.kept)
	w.eventually("retention and deletion are done", func() bool {
		sum, _ := w.catalog.Summary(w.kept.TP)
		return sum.LogStart > 0 && sum.DeadCount == 0 && sum.StartedCount == 0 && len(w.catalog.DeletedTopics()) == 0
	})
	w.readBack(w.kept)
	w.eventually("bucket, catalog and manifest say the same", w.inStep)
	report, err := w.sweep.Scrub(context.Background())
	if err == nil {
		require.Zero(w.t, report.Missing+report.WrongSize+report.Orphans, "%+v", report)
	}
}

// inStep compares what is in the store with catalog and manifest.
func (w *tier) inStep() bool {
	ctx := context.Background()
	location, _ := w.own.Location()
	writer := manifest.Writer{Store: w.objects, Layout: manifest.Layout{Store: w.store.Location(), Location: location}}
	var live, named, stored []string
	end := cluster.Offset(-1)
	for s, err := range w.catalog.Live(w.kept.TP, 0) {
		require.NoError(w.t, err)
		require.True(w.t, end < 0 || s.Base == end, "I4: %d follows %d", s.Base, end)
		end = s.End
		live = append(live, s.Key)
	}
	m, err := writer.Latest(ctx, w.kept.TP)
	require.NoError(w.t, err)
	if m == nil {
		return false
	}
	for s, err := range writer.Live(ctx, m) {
		require.NoError(w.t, err)
		named = append(named, s.Key)
	}
	others := 0
	for info, err := range w.objects.List(ctx, "", "") {
		require.NoError(w.t, err)
		require.NotContains(w.t, info.Key, w.deleted.TP.Topic.String(), "of the deleted topic")
		if strings.HasSuffix(info.Key, manifest.SegmentSuffix) {
			stored = append(stored, info.Key)
		} else {
			others++
		}
	}
	// Beside segments: the owner object, the manifest, and its runs if any.
	return fmt.Sprint(live) == fmt.Sprint(named) && fmt.Sprint(live) == fmt.Sprint(stored) && others == 2+len(m.Runs)
}

// fault is one way to fail; calls is how many calls an undisturbed life makes
// that it can strike.
type fault struct {
	name   string
	calls  func(*tier) int
	strike func(w *tier, i int)
}

func storeFault(name string, r faultstore.Rule) fault {
	return fault{"store " + name, func(w *tier) int {
		if r.Verb != "" {
			return w.store.Calls(r.Verb)
		}
		return w.store.AllCalls()
	}, func(w *tier, i int) {
		r := r
		r.From, r.Count = i, max(1, r.Count)
		w.store.Add(r)
	}}
}

func diskFault(name string, err error) fault {
	return fault{"cache disk " + name, func(w *tier) int { return int(w.disk.Calls()) }, func(w *tier, i int) {
		w.inject = func(op disk.Op) error {
			if op.Index == int64(i) && op.Kind != disk.OpClose {
				return err
			}
			return nil
		}
	}}
}

// badSector makes every read of the file that the i-th call reads fail, for ever.
func badSector() fault {
	return fault{"cache disk bad sector", func(w *tier) int { return int(w.disk.Calls()) }, func(w *tier, i int) {
		var file atomic.Pointer[string]
		w.inject = func(op disk.Op) error {
			if op.Kind != disk.OpReadAt {
				return nil
			}
			if op.Index >= int64(i) {
				file.CompareAndSwap(nil, &op.Name)
			}
			if bad := file.Load(); bad != nil && *bad == op.Name {
				return syscall.EIO
			}
			return nil
		}
	}}
}

func submitFault(name string, after bool, delay time.Duration, err error) fault {
	return fault{"catalog " + name, func(w *tier) int { return int(w.submits.Load()) }, func(w *tier, i int) {
		w.submit = func(n int64, done bool) error {
			if n != int64(i) || done != after {
				return nil
			}
			time.Sleep(delay) // on the fake clock
			return err
		}
	}}
}

var faults = []fault{
	storeFault("timeout", faultstore.Rule{Class: objstore.ErrStalled, Delay: 30 * time.Second}),
	storeFault("503", faultstore.Rule{Class: objstore.ErrThrottled}),
	storeFault("reset", faultstore.Rule{Class: objstore.ErrUnavailable}),
	storeFault("reset, and again", faultstore.Rule{Class: objstore.ErrUnavailable, Count: 6}),
	storeFault("refusal", faultstore.Rule{Class: objstore.ErrAccess}),
	storeFault("lost reply", faultstore.Rule{Class: objstore.ErrUnavailable, AfterEffect: true}),
	storeFault("partial body", faultstore.Rule{Verb: objstore.VerbGet, CutBody: 20}),
	storeFault("wrong bytes", faultstore.Rule{Verb: objstore.VerbGet, Flip: true}),
	storeFault("wrong bytes, and again", faultstore.Rule{Verb: objstore.VerbGet, Flip: true, Count: 4}),
	diskFault("ENOSPC", syscall.ENOSPC),
	diskFault("EIO", syscall.EIO),
	diskFault("torn write", errors.Join(disk.ErrTorn, syscall.EIO)),
	badSector(),
	submitFault("not the controller", false, 0, request.ErrNotController),
	submitFault("timeout", false, time.Minute, context.DeadlineExceeded),
	submitFault("lost request", false, 0, request.ErrOutcomeUnknown),
	submitFault("lost reply", true, 0, request.ErrOutcomeUnknown),
	submitFault("fenced", false, 0, request.ErrFencedLeaderEpoch),
}

// TestEveryCallMayFail: whichever call of the tier fails, and however, nothing
// is served wrong, named too early or deleted too early, nothing waits for ever,
// and in the end everything has arrived. The short form strikes every call with
// a third of the faults, the long form with each.
func TestEveryCallMayFail(t *testing.T) {
	var calls []int
	synctest.Test(t, func(t *testing.T) {
		w := newTier(t)
		w.life()
		for _, f := range faults {
			calls = append(calls, f.calls(w))
		}
	})
	long := os.Getenv("STRANDLINE_LONG") == "1"
	runs := 0
	for n, f := range faults {
		require.Greater(t, calls[n], 5, f.name)
		stride := 1
		if !long {
			stride = 3
		}
		for i := n % stride; i < calls[n]; i += stride {
			runs++
			ok := t.Run(fmt.Sprintf("%s at call %d", f.name, i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newTier(t)
					f.strike(w, i)
					w.life()
				})
			})
			if !ok {
				break // the next calls are likely to say the same
			}
		}
	}
	t.Logf("%d runs; calls that can fail: %v", runs, calls)
}
