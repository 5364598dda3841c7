package sweep_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

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
	"strandline/tiering/objstore/mem"
	"strandline/tiering/sweep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store fails on request.
type store struct {
	objstore.Store
	fail    func(verb objstore.Verb, key string) error
	deletes atomic.Int64
}

func (s *store) check(verb objstore.Verb, key string) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(verb, key)
}

func (s *store) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Info, error) {
	if err := s.check(objstore.VerbPut, key); err != nil {
		return objstore.Info{}, err
	}
	return s.Store.Put(ctx, key, body, o)
}

func (s *store) Delete(ctx context.Context, keys ...string) error {
	s.deletes.Add(1)
	if err := s.check(objstore.VerbDelete, keys[0]); err != nil {
		return err
	}
	return s.Store.Delete(ctx, keys...)
}

func (s *store) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	if err := s.check(objstore.VerbList, prefix); err != nil {
		return func(yield func(objstore.Info, error) bool) { yield(objstore.Info{}, err) }
	}
	return s.Store.List(ctx, prefix, after)
}

// world is a sweeper beside an archiver, over doubles on a fake clock.
type world struct {
	t        *testing.T
	fs       *disk.Crash
	store    *store
	catalog  *tiertest.Catalog
	own      *manifest.Ownership
	replicas []*tiertest.Replica
	topic    *image.Topic
	gone     atomic.Bool // the topic is deleted
	cfg      sweep.Config
	s        *sweep.Sweeper
	a        *archive.Archiver
	uploads  time.Duration
}

func newWorld(t *testing.T, partitions int) *world {
	w := &world{t: t, fs: disk.NewCrash(1), store: &store{Store: mem.New()}, catalog: tiertest.NewCatalog(), uploads: 10 * time.Second}
	w.topic = &image.Topic{Name: "orders", Configs: map[string]string{"remote.storage.enable": "true"}}
	for i := range partitions {
		w.replicas = append(w.replicas, tiertest.NewReplica(w.fs, w.catalog, "orders", int32(i)))
		w.topic.ID = w.replicas[0].TP.Topic
		w.topic.Partitions = append(w.topic.Partitions, &image.Partition{})
	}
	w.own = manifest.NewOwnership(manifest.OwnershipConfig{Store: w.store, ClusterID: "c"})
	w.cfg = sweep.Config{
		Store: w.store, Ownership: w.own, Submitter: w.catalog, Catalog: w.catalog, ClusterID: "c",
		Topic: func(id cluster.TopicID) (*image.Topic, bool) { return w.topic, id == w.topic.ID && !w.gone.Load() },
		Replicas: func() iter.Seq[sweep.Replica] {
			return func(yield func(sweep.Replica) bool) {
				for _, r := range w.replicas {
					if !w.gone.Load() && !yield(r) {
						return
					}
				}
			}
		},
		Interval: time.Second, ManifestInterval: 3 * time.Second, DeleteDelay: 20 * time.Second, ScrubInterval: -1,
	}
	return w
}

func (w *world) start() {
	w.s = sweep.New(w.cfg)
	w.s.Start()
	w.a = archive.New(archive.Config{
		Store: w.store, Ownership: w.own, Submitter: w.catalog, Catalog: w.catalog, Interval: time.Second, UploadDeadline: w.uploads,
		Replicas: func() iter.Seq[archive.Replica] {
			return func(yield func(archive.Replica) bool) {
				for _, r := range w.replicas {
					if !w.gone.Load() && !yield(r) {
						return
					}
				}
			}
		},
		Replica: func(tp cluster.TopicPartition) (archive.Replica, bool) {
			if w.gone.Load() {
				return nil, false
			}
			return w.replicas[tp.Partition], true
		},
	})
	w.a.Start()
	w.t.Cleanup(w.stop)
}

func (w *world) stop() {
	require.NoError(w.t, w.a.Close())
	require.NoError(w.t, w.s.Close())
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) keys(suffix string) (out []string) {
	for info, err := range w.store.Store.List(context.Background(), "", "") {
		require.NoError(w.t, err)
		if strings.Contains(info.Key, suffix) {
			out = append(out, info.Key)
		}
	}
	return out
}

func (w *world) writer() manifest.Writer {
	id, _ := w.own.Location()
	return manifest.Writer{Store: w.store.Store, Layout: manifest.Layout{Store: w.store.Location(), Location: id}}
}

func (w *world) live(r *tiertest.Replica) (out []catalog.Segment) {
	for s, err := range w.catalog.Live(r.TP, 0) {
		require.NoError(w.t, err)
		out = append(out, s)
	}
	return out
}

func (w *world) manifest(r *tiertest.Replica) *manifest.Manifest {
	m, err := w.writer().Latest(context.Background(), r.TP)
	require.NoError(w.t, err)
	return m
}

// requireInStep compares bucket, catalog and manifests.
func (w *world) requireInStep() {
	w.t.Helper()
	var named []string
	for _, r := range w.replicas {
		m := w.manifest(r)
		var inManifest []string
		for s, err := range w.writer().Live(context.Background(), m) {
			require.NoError(w.t, err)
			inManifest = append(inManifest, s.Key)
		}
		var inCatalog []string
		for _, s := range w.live(r) {
			inCatalog = append(inCatalog, s.Key)
		}
		require.Equal(w.t, inCatalog, inManifest)
		named = append(named, inCatalog...)
	}
	require.ElementsMatch(w.t, named, w.keys(manifest.SegmentSuffix))
}

func TestManifestsFollowTheCatalog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		for _, r := range w.replicas {
			for range 3 {
				r.AddSegment(3, 100)
			}
		}
		w.start()
		w.pass(5 * time.Second)
		w.requireInStep()
		m := w.manifest(w.replicas[1])
		require.Equal(t, "orders", m.TopicName)
		require.Equal(t, "c", m.ClusterID)
		require.EqualValues(t, 2, m.PartitionCount)
		require.Equal(t, w.topic.Configs, m.Configs)
		require.Equal(t, manifest.Version{LeaderEpoch: 1, Sequence: 1}, m.Version)
		require.Equal(t, w.replicas[1].Segments()[2].Next, m.RemoteEnd)
		require.False(t, m.Deleted)

		w.pass(time.Minute)
		require.Equal(t, m, w.manifest(w.replicas[1]), "nothing new, nothing written")
		w.replicas[1].AddSegment(3, 100)
		w.pass(6 * time.Second)
		w.requireInStep()
		require.EqualValues(t, 2, w.manifest(w.replicas[1]).Sequence)

		// Under a new leader epoch, after a restart.
		w.stop()
		w.replicas[1].SetLeader(2, true)
		w.replicas[1].AddSegment(3, 100)
		w.start()
		w.pass(6 * time.Second)
		require.Equal(t, manifest.Version{LeaderEpoch: 2, Sequence: 1}, w.manifest(w.replicas[1]).Version)
		w.requireInStep()
		require.Len(t, w.keys("manifest-"), 2, "superseded ones are gone")
		report, err := w.s.Scrub(context.Background())
		require.NoError(t, err)
		require.Zero(t, report.Orphans+report.Missing+report.WrongSize)
	})
}

// RT-05: time and size in one pass; the stricter wins.
func TestRetention(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *config.Topic, segmentBytes int64)
		left   int
	}{
		{"size", func(s *config.Topic, n int64) { s.RetentionBytes, s.RetentionTime = 2*n, time.Hour }, 2},
		{"time", func(s *config.Topic, n int64) { s.RetentionBytes, s.RetentionTime = 100*n, 10*time.Minute }, 2},
		{"both", func(s *config.Topic, n int64) { s.RetentionBytes, s.RetentionTime = 2*n, 10*time.Minute }, 2},
		{"neither", func(*config.Topic, int64) {}, 6},
		{"compacted", func(s *config.Topic, n int64) {
			s.CleanupPolicy, s.RetentionTime = config.CleanupCompact, time.Minute
		}, 6},
		{"everything", func(s *config.Topic, n int64) { s.RetentionTime = time.Second }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				r := w.replicas[0]
				for i := range 6 {
					r.SetClock(time.Now().Add(-time.Duration(6-i)*4*time.Minute + time.Minute).UnixMilli())
					r.AddSegment(20, 100)
				}
				w.start()
				w.pass(5 * time.Second)
				require.Len(t, w.live(r), 6)
				largest := int64(0)
				for _, s := range r.Segments() {
					largest = max(largest, s.Bytes)
				}
				r.Change(func(s *config.Topic) { c.change(s, largest) })
				w.pass(time.Second)
				live := w.live(r)
				if c.name == "size" || c.name == "both" {
					require.InDelta(t, c.left, len(live), 1)
				} else {
					require.Len(t, live, c.left)
				}
				sum, _ := w.catalog.Summary(r.TP)
				start := sum.RemoteEnd
				if len(live) > 0 {
					start = live[0].Base
				}
				require.Equal(t, start, sum.LogStart)
				require.Equal(t, start, r.LogStartOffset())
				requests := len(w.catalog.Requests())
				w.pass(2 * time.Second)
				require.Len(t, w.catalog.Requests(), requests, "RT-07: a second pass changes nothing")
				require.Len(t, w.keys(manifest.SegmentSuffix), 6, "the grace time has not passed")
				w.pass(30 * time.Second)
				require.Len(t, w.keys(manifest.SegmentSuffix), len(live))
				w.requireInStep()
				sum, _ = w.catalog.Summary(r.TP)
				require.Zero(t, sum.DeadCount)
			})
		})
	}
}

// The tier turned off with remote.log.delete.on.disable: what is only remote goes
// at once, what is local too stays readable.
func TestTierTurnedOffWithItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		for range 6 {
			r.AddSegment(20, 100)
		}
		w.start()
		w.pass(5 * time.Second)
		require.Len(t, w.live(r), 6)
		r.DropLocal(r.Segments()[4].Base)
		local := r.Status().LocalLogStartOffset
		r.Change(func(s *config.Topic) { s.Tiered = false })
		w.pass(2 * time.Second)
		require.Len(t, w.live(r), 6, "without permission nothing is deleted")
		r.Change(func(s *config.Topic) { s.TierDeleteAllowed = true })
		w.pass(2 * time.Second)
		require.Equal(t, local, r.LogStartOffset())
		require.Len(t, w.live(r), 2)
		w.pass(30 * time.Second)
		require.Len(t, w.keys(manifest.SegmentSuffix), 2)
	})
}

// RT-01: one record stamped far in the future does not keep a topic for ever.
func TestFutureTimestamps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		r.SetClock(time.Now().AddDate(10, 0, 0).UnixMilli())
		r.AddSegment(1, 100)
		r.SetClock(time.Now().UnixMilli())
		r.AddSegment(1, 100)
		w.start()
		w.pass(3 * time.Second)
		require.Len(t, w.live(r), 2)
		r.Change(func(s *config.Topic) { s.RetentionTime = time.Minute })
		w.pass(30 * time.Second)
		require.Len(t, w.live(r), 2)
		w.pass(time.Minute)
		require.Empty(t, w.live(r))
	})
}

// W2: no object goes before a durable manifest omits it.
func TestNothingIsDeletedBeforeItsManifest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		for range 4 {
			r.AddSegment(3, 100)
		}
		w.start()
		w.pass(10 * time.Second)
		var refused atomic.Int64
		var refusing atomic.Bool
		refusing.Store(true)
		w.store.fail = func(verb objstore.Verb, key string) error {
			if refusing.Load() && verb == objstore.VerbPut && strings.Contains(key, "manifest-") {
				refused.Add(1)
				return &objstore.Error{Op: verb, Key: key, Class: objstore.ErrThrottled}
			}
			return nil
		}
		_, err := r.AdvanceLogStart(context.Background(), r.Segments()[2].Base)
		require.NoError(t, err)
		w.pass(10 * time.Minute)
		require.Len(t, w.keys(manifest.SegmentSuffix), 4)
		require.Greater(t, refused.Load(), int64(10), "tried again and again")
		require.EqualValues(t, 2, w.s.Status().WaitingObjects)
		refusing.Store(false)
		w.pass(15 * time.Second)
		w.requireInStep()
		require.Len(t, w.keys(manifest.SegmentSuffix), 2)
		require.Zero(t, w.s.Status().WaitingObjects)
	})
}

func TestRecoveryWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.cfg.RecoveryWindow = time.Hour
		r := w.replicas[0]
		r.AddSegment(3, 100)
		r.AddSegment(3, 100)
		w.start()
		w.pass(10 * time.Second)
		_, err := r.AdvanceLogStart(context.Background(), r.Segments()[1].Base)
		require.NoError(t, err)
		w.pass(50 * time.Minute)
		require.Len(t, w.keys(manifest.SegmentSuffix), 2)
		require.Len(t, w.keys("manifest-"), 2, "as of then")
		w.pass(15 * time.Minute)
		w.requireInStep()
		require.Len(t, w.keys("manifest-"), 1)
	})
}

// TI-13: what failed uploads left is cleaned up, and nothing else is.
func TestUnfinishedUploadsAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		r.AddSegment(3, 100)
		w.start()
		w.pass(5 * time.Second)
		// An uploader that died after its upload, before it published.
		layout := w.writer().Layout
		sum, _ := w.catalog.Summary(r.TP)
		span := request.SegmentSpan{ID: cluster.NewSegmentID(), Base: sum.RemoteEnd, End: sum.RemoteEnd + 5, Location: layout.Location}
		span.Key = layout.SegmentKey(r.TP, span.Base, span.ID)
		deadline := time.Now().Add(time.Minute)
		_, err := w.catalog.Submit(context.Background(), request.StartSegment{Partition: r.TP, LeaderEpoch: 1, Span: span, Deadline: deadline})
		require.NoError(t, err)
		_, err = w.store.Put(context.Background(), span.Key, objstore.NewBytesBody([]byte("half")), objstore.PutOptions{})
		require.NoError(t, err)
		w.pass(time.Until(deadline) + 15*time.Second)
		require.Contains(t, w.keys(".seg"), span.Key, "the grace time has not passed")
		w.pass(10 * time.Second)
		w.requireInStep()
		sum, _ = w.catalog.Summary(r.TP)
		require.Zero(t, sum.StartedCount)
		require.Len(t, w.live(r), 1)
	})
}

// OP-03: DELETE and LIST that fail for a while are tried again, and seen.
func TestDeletionIsTriedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		r.AddSegment(3, 100)
		r.AddSegment(3, 100)
		var log bytes.Buffer
		w.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		w.start()
		w.pass(10 * time.Second)
		var failing atomic.Bool
		failing.Store(true)
		w.store.fail = func(verb objstore.Verb, key string) error {
			if failing.Load() && verb == objstore.VerbDelete {
				return &objstore.Error{Op: verb, Key: key, Class: objstore.ErrThrottled}
			}
			return nil
		}
		_, err := r.AdvanceLogStart(context.Background(), r.Segments()[1].Base)
		require.NoError(t, err)
		w.pass(10 * time.Minute)
		require.Len(t, w.keys(manifest.SegmentSuffix), 2)
		require.Contains(t, w.s.Status().LastErrors[r.TP], "slow down")
		require.Contains(t, log.String(), fmt.Sprintf("topic=%s topic_id=%s partition=0 error=", r.Topic(), r.TP.Topic))
		require.Less(t, w.store.deletes.Load(), int64(200), "with pauses")
		failing.Store(false)
		w.pass(20 * time.Second)
		w.requireInStep()
		require.Empty(t, w.s.Status().LastErrors)
	})
}

// TI-15: a deleted topic leaves nothing, whatever the store does meanwhile.
func TestDeletedTopicLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.uploads = 2 * time.Minute
		for _, r := range w.replicas[:2] {
			for range 4 {
				r.AddSegment(3, 100)
			}
		}
		var down atomic.Bool
		w.store.fail = func(verb objstore.Verb, key string) error {
			if down.Load() {
				return &objstore.Error{Op: verb, Key: key, Class: objstore.ErrUnavailable}
			}
			return nil
		}
		w.start()
		w.pass(10 * time.Second)
		// One upload is under way: its object arrives after the deletion.
		layout := w.writer().Layout
		tp := w.replicas[0].TP
		sum, _ := w.catalog.Summary(tp)
		late := request.SegmentSpan{ID: cluster.NewSegmentID(), Base: sum.RemoteEnd, End: sum.RemoteEnd + 5, Location: layout.Location}
		late.Key = layout.SegmentKey(tp, late.Base, late.ID)
		_, err := w.catalog.Submit(context.Background(), request.StartSegment{Partition: tp, LeaderEpoch: 1, Span: late, Deadline: time.Now().Add(2 * time.Minute)})
		require.NoError(t, err)

		down.Store(true)
		w.gone.Store(true)
		w.catalog.DeleteTopic(tp.Topic, "orders", 3)
		w.pass(time.Minute)
		require.Len(t, w.keys(manifest.SegmentSuffix), 8)
		require.NotEmpty(t, w.s.Status().LastErrors)
		require.Equal(t, 1, w.s.Status().DeletedTopics)
		down.Store(false)
		w.pass(20 * time.Second)
		m := w.manifest(w.replicas[1])
		require.True(t, m.Deleted)
		require.Equal(t, "orders", m.TopicName)
		require.Equal(t, w.topic.Configs, m.Configs)
		_, err = w.store.Store.Put(context.Background(), late.Key, objstore.NewBytesBody([]byte("late")), objstore.PutOptions{})
		require.NoError(t, err)

		// Across a restart.
		w.stop()
		w.start()
		w.pass(40 * time.Second)
		require.Len(t, w.keys(""), 1, "all is gone but the owner object: %v", w.keys(""))
		require.Len(t, w.catalog.DeletedTopics(), 1, "what may still arrive is waited for")
		_, err = w.store.Store.Put(context.Background(), late.Key, objstore.NewBytesBody([]byte("later")), objstore.PutOptions{})
		require.NoError(t, err)
		w.pass(3 * time.Minute)
		require.Len(t, w.keys(""), 1, "the owner object: %v", w.keys(""))
		require.Empty(t, w.catalog.DeletedTopics())
		require.Zero(t, w.s.Status().DeletedTopics)
		require.Empty(t, w.s.Status().LastErrors)
	})
}

// TI-17: a topic created again under the same name has nothing of the old one.
func TestKeysCarryTheTopicID(t *testing.T) {
	l := manifest.Layout{Location: "x"}
	a := cluster.TopicPartition{Topic: cluster.NewTopicID()}
	b := cluster.TopicPartition{Topic: cluster.NewTopicID()}
	require.NotEqual(t, l.PartitionPrefix(a), l.PartitionPrefix(b))
	require.Contains(t, l.PartitionPrefix(a), a.Topic.String())
}

func TestForeignLocationIsNeitherWrittenNorDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		r.AddSegment(3, 100)
		r.AddSegment(3, 100)
		w.start()
		w.pass(10 * time.Second)
		id, _ := w.own.Location()
		other := manifest.NewOwnership(manifest.OwnershipConfig{Store: w.store, ClusterID: "copy"})
		require.NoError(t, other.Claim(context.Background(), manifest.Owner{LocationID: id, Generation: 2}))
		w.pass(time.Minute)
		keys := w.keys("")
		r.AddSegment(3, 100)
		_, err := r.AdvanceLogStart(context.Background(), r.Segments()[1].Base)
		require.NoError(t, err)
		w.pass(10 * time.Minute)
		require.Equal(t, keys, w.keys(""))
		require.Contains(t, w.a.Store().LastError, "belongs to another cluster")
	})
}

func TestScrubReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for _, r := range w.replicas {
			r.AddSegment(3, 100)
			r.AddSegment(3, 100)
		}
		w.cfg.ScrubInterval = time.Minute
		w.start()
		w.pass(10 * time.Second)
		ctx := context.Background()
		live := w.live(w.replicas[0])
		require.NoError(t, w.store.Store.Delete(ctx, live[0].Key))
		_, err := w.store.Store.Put(ctx, live[1].Key, objstore.NewBytesBody([]byte("short")), objstore.PutOptions{})
		require.NoError(t, err)
		layout := w.writer().Layout
		for _, key := range []string{
			layout.SegmentKey(w.replicas[1].TP, 7, cluster.NewSegmentID()),
			layout.SegmentKey(cluster.TopicPartition{Topic: cluster.NewTopicID()}, 7, cluster.NewSegmentID()),
			layout.Root() + "something/else",
		} {
			_, err := w.store.Store.Put(ctx, key, objstore.NewBytesBody([]byte("orphan")), objstore.PutOptions{})
			require.NoError(t, err)
		}
		for info, err := range w.store.Store.List(ctx, layout.PartitionPrefix(w.replicas[2].TP), "") {
			require.NoError(t, err)
			require.NoError(t, w.store.Store.Delete(ctx, info.Key))
		}
		report, err := w.s.Scrub(ctx)
		require.NoError(t, err)
		require.Zero(t, report.Orphans, "they may be uploads under way")
		w.pass(55 * time.Second)
		report = w.s.Status().LastScrub
		require.EqualValues(t, 3, report.Orphans)
		require.EqualValues(t, 18, report.OrphanBytes)
		require.EqualValues(t, 3, report.Missing, fmt.Sprint(report.Samples))
		require.EqualValues(t, 1, report.WrongSize)
		require.Len(t, report.Samples, 7)
		w.pass(10 * time.Minute)
		require.Len(t, w.keys("something/else"), 1, "reported, not repaired")
	})
}

func TestManyDeadSegmentsAreDeletedInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		for range 1100 {
			r.AddSegment(1, 10)
		}
		w.start()
		w.pass(30 * time.Second)
		require.Len(t, w.live(r), 1100)
		m := w.manifest(r)
		require.Empty(t, m.Runs)
		_, err := r.AdvanceLogStart(context.Background(), r.Segments()[1090].Base)
		require.NoError(t, err)
		w.pass(30 * time.Second)
		w.requireInStep()
		require.Len(t, w.keys(manifest.SegmentSuffix), 10)
		require.LessOrEqual(t, w.store.deletes.Load(), int64(20))
	})
}
