package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/broker/producerstate"
	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/request"
	"strandline/tiering/archive"
	"strandline/tiering/archive/tiertest"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/mem"
	"strandline/tiering/segmentobject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a store in memory that fails on request.
type store struct {
	objstore.Store
	put  func(ctx context.Context, key string) error // before the put
	post func(key string) error                      // after it
	list func() error
	puts atomic.Int64
}

func (s *store) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Info, error) {
	if strings.HasSuffix(key, manifest.SegmentSuffix) {
		s.puts.Add(1)
	}
	if s.put != nil {
		if err := s.put(ctx, key); err != nil {
			return objstore.Info{}, err
		}
	}
	info, err := s.Store.Put(ctx, key, body, o)
	if err == nil && s.post != nil {
		err = s.post(key)
	}
	return info, err
}

func (s *store) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	if s.list != nil {
		if err := s.list(); err != nil {
			return func(yield func(objstore.Info, error) bool) { yield(objstore.Info{}, err) }
		}
	}
	return s.Store.List(ctx, prefix, after)
}

func unavailable(key string) error {
	return &objstore.Error{Op: objstore.VerbPut, Key: key, Class: objstore.ErrUnavailable, Remedy: "look at it"}
}

// world is an archiver over doubles, on a fake clock.
type world struct {
	t        *testing.T
	fs       *disk.Crash
	store    *store
	catalog  *tiertest.Catalog
	replicas []*tiertest.Replica
	cfg      archive.Config
	a        *archive.Archiver
}

func newWorld(t *testing.T, partitions int) *world {
	w := &world{t: t, fs: disk.NewCrash(1), store: &store{Store: mem.New()}, catalog: tiertest.NewCatalog()}
	for i := range partitions {
		w.replicas = append(w.replicas, tiertest.NewReplica(w.fs, w.catalog, "orders", int32(i)))
	}
	w.cfg = archive.Config{
		Store: w.store, Ownership: manifest.NewOwnership(manifest.OwnershipConfig{Store: w.store, ClusterID: "c"}),
		Submitter: w.catalog, Catalog: w.catalog, Interval: time.Second, Workers: 2,
		Replicas: func() iter.Seq[archive.Replica] {
			return func(yield func(archive.Replica) bool) {
				for _, r := range w.replicas {
					if !yield(r) {
						return
					}
				}
			}
		},
		Replica: func(tp cluster.TopicPartition) (archive.Replica, bool) {
			i := slices.IndexFunc(w.replicas, func(r *tiertest.Replica) bool { return r.TP == tp })
			if i < 0 {
				return nil, false
			}
			return w.replicas[i], true
		},
	}
	return w
}

func (w *world) start() {
	w.a = archive.New(w.cfg)
	w.a.Start()
	w.t.Cleanup(func() { require.NoError(w.t, w.a.Close()) })
}

// pass lets fake time go by.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) live(r *tiertest.Replica) (out []catalog.Segment) {
	for s, err := range w.catalog.Live(r.TP, 0) {
		require.NoError(w.t, err)
		out = append(out, s)
	}
	return out
}

// requireArchived compares the tier with the local segments up to an offset.
func (w *world) requireArchived(r *tiertest.Replica, end cluster.Offset) {
	w.t.Helper()
	sum, ok := w.catalog.Summary(r.TP)
	require.True(w.t, ok)
	require.Equal(w.t, end, sum.RemoteEnd)
	for _, s := range w.live(r) {
		_, err := segmentobject.Verify(context.Background(), w.store.Store, s.Key, s.Object.ObjectBytes)
		require.NoError(w.t, err)
	}
}

func (w *world) keys() (out []string) {
	for info, err := range w.store.Store.List(context.Background(), "", "") {
		require.NoError(w.t, err)
		out = append(out, info.Key)
	}
	return out
}

func TestSealedSegmentsAreCopiedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		var steps []string
		w.cfg.Workers = 1
		w.cfg.Hook = func(step string) { steps = append(steps, step) }
		for _, r := range w.replicas {
			for range 4 {
				r.AddSegment(5, 100)
			}
		}
		w.replicas[2].SetStable(w.replicas[2].Segments()[1].Next + 1)
		w.start()
		synctest.Wait()
		require.Empty(t, w.live(w.replicas[0]), "begins after the interval")
		w.pass(time.Second)
		for i, r := range w.replicas {
			segments := r.Segments()
			if i == 2 {
				segments = segments[:2]
			}
			w.requireArchived(r, segments[len(segments)-1].Next)
			live := w.live(r)
			require.Len(t, live, len(segments))
			for j, s := range live {
				require.Equal(t, segments[j].Base, s.Base)
				require.Equal(t, cluster.LeaderEpoch(1), s.LeaderEpoch)
				require.Contains(t, s.Key, r.TP.Topic.String())
				require.Contains(t, s.Key, fmt.Sprintf("%020d-%s.seg", s.Base, s.ID))
				require.Equal(t, segments[j].Bytes, s.Object.SegmentBytes)
			}
		}
		require.Equal(t, []string{archive.StepUpload, archive.StepPublish}, steps[:2])
		require.Len(t, steps, 20)
		segments, bytes, oldest := w.a.Pending()
		require.Equal(t, 2, segments)
		require.Positive(t, bytes)
		require.Equal(t, time.Second, oldest)
		require.True(t, w.a.Store().OK)
		require.Empty(t, w.a.Store().LastError)

		// A wake finds a new segment at once.
		s := w.replicas[0].AddSegment(3, 100)
		w.a.Wake(w.replicas[0].TP)
		synctest.Wait()
		w.requireArchived(w.replicas[0], s.Next)
	})
}

// TI-35, TI-13: a partition whose uploads fail wedges neither itself nor others.
func TestFailuresStayWithTheirPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6)
		bad := w.replicas[0]
		var log bytes.Buffer
		w.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		var failures atomic.Int64
		w.store.put = func(_ context.Context, key string) error {
			if w.partitionOf(key) == bad.TP && failures.Load() < 30 {
				failures.Add(1)
				return unavailable(key)
			}
			return nil
		}
		for _, r := range w.replicas {
			for range 3 {
				r.AddSegment(3, 100)
			}
		}
		w.start()
		w.pass(3 * time.Second)
		for _, r := range w.replicas[1:] {
			w.requireArchived(r, r.Segments()[2].Next)
		}
		require.Empty(t, w.live(bad))
		status := w.a.Status()
		require.Contains(t, status[0].LastError, "look at it")
		require.Contains(t, log.String(), fmt.Sprintf("topic=orders topic_id=%s partition=0 error=", bad.TP.Topic))
		require.Equal(t, 3, status[0].PendingSegments)
		require.Empty(t, status[1].LastError)
		require.Contains(t, w.a.Store().LastError, "look at it")
		sum, _ := w.catalog.Summary(bad.TP)
		require.Zero(t, sum.LiveBytes, "what failed is not counted")

		w.pass(10 * time.Minute)
		require.EqualValues(t, 30, failures.Load())
		w.requireArchived(bad, bad.Segments()[2].Next)
		require.Len(t, w.live(bad), 3)
		require.Len(t, w.keys(), 3*6+1, "one copy of each, and the owner object")
		require.Empty(t, w.a.Status()[0].LastError)
		require.True(t, w.a.Store().OK)
	})
}

func (w *world) partitionOf(key string) cluster.TopicPartition {
	location, _ := w.cfg.Ownership.Location()
	tp, _, _ := manifest.Layout{Store: w.store.Location(), Location: location}.ParseKey(key)
	return tp
}

// OP-03, TI-33: a store that is away delays uploads and nothing else.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		var down atomic.Bool
		down.Store(true)
		w.store.list = func() error {
			if down.Load() {
				return unavailable("")
			}
			return nil
		}
		w.store.put = func(_ context.Context, key string) error { return w.store.list() }
		for _, r := range w.replicas {
			r.AddSegment(3, 100)
		}
		w.start() // returns at once
		w.pass(time.Minute)
		require.False(t, w.a.Store().OK)
		require.Contains(t, w.a.Store().LastError, "look at it")
		require.Zero(t, w.store.puts.Load(), "no upload is tried")
		for _, r := range w.replicas {
			r.AddSegment(3, 100)
		}
		down.Store(false)
		w.pass(11 * time.Second)
		for _, r := range w.replicas {
			w.requireArchived(r, r.Segments()[1].Next)
		}
		require.True(t, w.a.Store().OK)
		require.NotEmpty(t, w.a.Store().LastError, "says what happened")

		// It goes away again under load.
		down.Store(true)
		w.replicas[0].AddSegment(3, 100)
		w.pass(time.Minute)
		require.False(t, w.a.Store().OK)
		down.Store(false)
		w.pass(11 * time.Second)
		w.requireArchived(w.replicas[0], w.replicas[0].Segments()[2].Next)
	})
}

func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		r.AddSegment(3, 100)
		r.AddSegment(3, 100)
		var mu sync.Mutex
		lost := map[string]bool{}
		once := func(what string, err error) error {
			mu.Lock()
			defer mu.Unlock()
			if lost[what] {
				return nil
			}
			lost[what] = true
			return err
		}
		w.store.post = func(key string) error {
			if w.partitionOf(key) == r.TP {
				return once("put", unavailable(key))
			}
			return nil
		}
		w.catalog.Refuse = func(req request.Request, done bool) error {
			if !done {
				return once(fmt.Sprintf("before %T", req), request.ErrNotController)
			}
			return once(fmt.Sprintf("after %T", req), request.ErrOutcomeUnknown)
		}
		w.start()
		w.pass(time.Minute)
		w.requireArchived(r, r.Segments()[1].Next)
		require.Len(t, w.live(r), 2)
		require.Len(t, lost, 5)
		require.Len(t, w.keys(), 3, "one object a segment")
	})
}

// I3: a leader that is none any more publishes nothing.
func TestOldLeaderEpochIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		r.AddSegment(3, 100)
		w.cfg.Hook = func(step string) {
			if step == archive.StepUpload {
				w.catalog.SetEpoch(r.TP, 2) // the election, which the replica has not heard of
			}
		}
		w.start()
		w.pass(2 * time.Second)
		require.Empty(t, w.live(r))
		r.SetLeader(2, true)
		w.pass(20 * time.Second)
		w.requireArchived(r, r.Segments()[0].Next)
		require.Equal(t, cluster.LeaderEpoch(2), w.live(r)[0].StartEpoch)
		sum, _ := w.catalog.Summary(r.TP)
		require.EqualValues(t, 1, sum.StartedCount, "the intent of the old epoch waits for the sweeper")
	})
}

func TestUploadIsCancelledBeforeItsIntentEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		r.AddSegment(3, 100)
		w.cfg.UploadDeadline = 5 * time.Second
		var hangs atomic.Bool
		hangs.Store(true)
		var cancelled atomic.Int64
		w.store.put = func(ctx context.Context, key string) error {
			if hangs.Load() && w.partitionOf(key) == r.TP {
				<-ctx.Done()
				cancelled.Store(time.Now().UnixMilli())
				return unavailable(key)
			}
			return nil
		}
		w.start()
		w.pass(7 * time.Second)
		var started []catalog.Segment
		for s := range w.catalog.Segments(r.TP, 0) {
			started = append(started, s)
		}
		require.NotEmpty(t, started)
		slices.SortFunc(started, func(a, b catalog.Segment) int { return int(a.DeadlineMs - b.DeadlineMs) })
		require.True(t, started[0].Abandoned)
		require.GreaterOrEqual(t, started[0].DeadlineMs, cancelled.Load()+1000)
		hangs.Store(false)
		w.pass(20 * time.Second)
		w.requireArchived(r, r.Segments()[0].Next)
	})
}

func TestCloseDoesNotWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.replicas[0].AddSegment(3, 100)
		w.replicas[1].AddSegment(3, 100)
		w.store.put = func(ctx context.Context, key string) error {
			if w.partitionOf(key).Topic.IsZero() {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		w.start()
		w.pass(2 * time.Second)
		began := time.Now()
		require.NoError(t, w.a.Close())
		require.Zero(t, time.Since(began))
	})
}

// A leader whose segments are cut otherwise than those of the one before goes on
// exactly at the remote end.
func TestUploadBeginsAtTheRemoteEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		s := r.AddSegment(10, 100)
		middle := s.Batches[4]
		w.cfg.Hook = nil
		r.SetStart(middle.BaseOffset()) // the tier is switched on for a log that has lost its front
		w.start()
		w.pass(2 * time.Second)
		live := w.live(r)
		require.Len(t, live, 1)
		require.Equal(t, middle.BaseOffset(), live[0].Base)
		require.Equal(t, s.Bytes-middle.Position, live[0].Object.SegmentBytes)
		w.requireArchived(r, s.Next)
		sum, _ := w.catalog.Summary(r.TP)
		require.Equal(t, middle.BaseOffset(), sum.LogStart)

		// DeleteRecords into the middle of a batch that is not remote yet.
		next := r.AddSegment(10, 100)
		batch := next.Batches[3]
		_, err := r.AdvanceLogStart(context.Background(), batch.BaseOffset())
		require.NoError(t, err)
		w.pass(2 * time.Second)
		live = w.live(r)
		require.Len(t, live, 1, "the others expired")
		require.Equal(t, batch.BaseOffset(), live[0].Base)
		require.Equal(t, next.Next, live[0].End)
	})
}

func TestGapIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		r.SetStart(50)
		r.AddSegment(3, 100)
		r.SetStart(0)
		w.start()
		w.pass(2 * time.Second)
		require.Empty(t, w.live(r))
		require.Contains(t, w.a.Status()[0].LastError, "do not continue")
	})
}

func TestWhatRetentionExpiresIsNotUploaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		for _, r := range w.replicas {
			r.SetClock(time.Now().Add(-time.Hour).UnixMilli())
			r.AddSegment(3, 100)
			r.SetClock(time.Now().UnixMilli())
			r.AddSegment(3, 100)
		}
		byTime, bySize := w.replicas[0], w.replicas[1]
		byTime.Change(func(s *config.Topic) { s.RetentionTime = time.Minute })
		size := bySize.Segments()[1].Bytes
		bySize.Change(func(s *config.Topic) { s.RetentionBytes = size })
		w.start()
		w.pass(5 * time.Second)
		for _, r := range w.replicas {
			require.Empty(t, w.live(r))
			require.Zero(t, w.store.puts.Load())
			_, err := r.AdvanceLogStart(context.Background(), r.Segments()[1].Base)
			require.NoError(t, err)
		}
		w.pass(5 * time.Second)
		for _, r := range w.replicas {
			require.Len(t, w.live(r), 1)
			w.requireArchived(r, r.Segments()[1].Next)
		}
	})
}

func TestNotTieredIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for _, r := range w.replicas {
			r.AddSegment(3, 100)
		}
		w.replicas[0].Change(func(s *config.Topic) { s.Tiered = false })
		w.replicas[1].Change(func(s *config.Topic) { s.TierCopyDisabled = true })
		w.replicas[2].SetLeader(1, false)
		w.start()
		w.pass(5 * time.Second)
		require.Empty(t, w.catalog.Requests())
		w.replicas[2].SetLeader(2, true)
		w.pass(5 * time.Second)
		w.requireArchived(w.replicas[2], w.replicas[2].Segments()[0].Next)
	})
}

func TestForeignLocationIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		other := manifest.NewOwnership(manifest.OwnershipConfig{Store: w.store, ClusterID: "other"})
		_, err := other.Check(context.Background())
		require.NoError(t, err)
		w.replicas[0].AddSegment(3, 100)
		w.start()
		w.pass(time.Minute)
		require.Len(t, w.keys(), 1)
		require.Contains(t, w.a.Store().LastError, "claimed by cluster other")
	})
}

func TestAbortedTransactionsGoAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		first, second := r.AddSegment(4, 100), r.AddSegment(4, 100)
		// The marker lies in the second segment.
		txn := producerstate.AbortedTxn{ProducerID: 7, First: first.Base + 1, Last: second.Base + 1, LastStableOffset: second.Base + 2}
		r.Aborted = append(r.Aborted, txn)
		w.start()
		w.pass(2 * time.Second)
		for _, s := range w.live(r) {
			x, err := segmentobject.ReadIndex(context.Background(), w.store.Store, s.Key, s.Object)
			require.NoError(t, err)
			require.Equal(t, []producerstate.AbortedTxn{txn}, x.Aborted(s.Base, s.End))
		}
	})
}

func TestDamagedLocalSegmentIsNotUploaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		bad, good := w.replicas[0], w.replicas[1]
		s := bad.AddSegment(3, 100)
		good.AddSegment(3, 100)
		names, err := w.fs.List("/orders-0")
		require.NoError(t, err)
		f, err := w.fs.Open("/orders-0/" + names[0])
		require.NoError(t, err)
		_, err = f.WriteAt([]byte("x"), s.Bytes-3)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		w.start()
		w.pass(10 * time.Second)
		require.Empty(t, w.live(bad))
		require.Contains(t, w.a.Status()[0].LastError, "orrupt")
		w.requireArchived(good, good.Segments()[0].Next)
	})
}

func TestLocalReadFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		r.AddSegment(3, 100)
		var failing atomic.Bool
		failing.Store(true)
		r.Opened = func(cluster.Offset) error {
			if failing.Load() {
				return errors.New("disk on strike")
			}
			return nil
		}
		w.start()
		w.pass(5 * time.Second)
		require.Contains(t, w.a.Status()[0].LastError, "disk on strike")
		failing.Store(false)
		w.pass(15 * time.Second)
		w.requireArchived(r, r.Segments()[0].Next)
	})
}

// Records, or the whole partition, that are deleted while their segment is on its
// way up leave nothing to be said, and what follows goes on at once.
func TestDeletedDuringItsUpload(t *testing.T) {
	for _, step := range []string{"before the object is there", archive.StepUpload} {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprint(step, ", all: ", all), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, 1)
					r := w.replicas[0]
					first := r.AddSegment(5, 100)
					second := r.AddSegment(5, 100)
					var log bytes.Buffer
					w.cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
					var gone atomic.Bool
					every, one := w.cfg.Replicas, w.cfg.Replica
					w.cfg.Replicas = func() iter.Seq[archive.Replica] {
						if gone.Load() {
							return func(func(archive.Replica) bool) {}
						}
						return every()
					}
					w.cfg.Replica = func(tp cluster.TopicPartition) (archive.Replica, bool) {
						r, ok := one(tp)
						return r, ok && !gone.Load()
					}
					remove := sync.OnceFunc(func() {
						gone.Store(all)
						_, err := r.AdvanceLogStart(context.Background(), first.Next+1)
						require.NoError(t, err)
						r.DropLocal(second.Base)
					})
					w.cfg.Hook = func(at string) {
						if at == step {
							remove()
						}
					}
					w.store.put = func(_ context.Context, key string) error {
						if step != archive.StepUpload && strings.HasSuffix(key, manifest.SegmentSuffix) {
							remove()
						}
						return nil
					}
					w.start()
					w.pass(5 * time.Second)
					require.Empty(t, log.String())
					for _, s := range w.a.Status() {
						require.Empty(t, s.LastError)
					}
					if !all {
						w.requireArchived(r, second.Next)
					}
				})
			})
		}
	}
}

// Records were deleted into the middle of a batch past the remote end, and the
// only replica's disk was lost then: its log begins anew at the log start, and
// uploads go on there.
func TestLogThatBeganAnewGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := w.replicas[0]
		r.AddSegment(3, 100)
		w.start()
		w.pass(time.Second)
		s := r.AddSegment(5, 100)
		i := slices.IndexFunc(s.Batches, func(b tiertest.Batch) bool { return b.NextOffset()-b.BaseOffset() > 1 })
		start := s.Batches[i].BaseOffset() + 1
		_, err := r.AdvanceLogStart(t.Context(), start)
		require.NoError(t, err)
		sum, _ := w.catalog.Summary(r.TP)
		require.Equal(t, s.Batches[i].BaseOffset(), sum.RemoteEnd)
		r.DropLocal(s.Next)
		next := r.AddSegment(3, 100)
		require.Equal(t, start, next.Base)
		w.pass(time.Minute)
		w.requireArchived(r, next.Next)
		live := w.live(r)
		require.Len(t, live, 1)
		require.Equal(t, start, live[0].Base)
		require.Empty(t, w.a.Status()[0].LastError)
	})
}
