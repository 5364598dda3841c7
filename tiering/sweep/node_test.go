package sweep_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/lifecycle"
	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/broker/replicas"
	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/node"
	"strandline/metadata/request"
	"strandline/tiering/archive"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/faultstore"
	"strandline/tiering/objstore/mem"
	"strandline/tiering/rangecache"
	"strandline/tiering/remotelog"
	"strandline/tiering/sweep"
)

// broker is a whole broker but for its sockets: the metadata plane, the replicas
// and the tier, on a disk and a store in memory.
type broker struct {
	t         *testing.T
	fs        disk.FS
	store     objstore.Store
	meta      *node.Node
	replicas  *replicas.Manager
	remote    *remotelog.Log
	ownership *manifest.Ownership
	archiver  *archive.Archiver
	sweeper   *sweep.Sweeper
	cache     *rangecache.Cache
	closers   []func() error
	killed    bool
}

func startBroker(t *testing.T, fs disk.FS, store objstore.Store) *broker {
	t.Helper()
	conf, _, err := config.ParseBroker(map[string]string{
		"node.id": "1", "log.dirs": "/logs", "metadata.log.dir": "/metadata", "remote.cache.dir": "/cache",
		"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100", "log.segment.delete.delay.ms": "100",
		"broker.heartbeat.interval.ms": "200",
	})
	require.NoError(t, err)
	b := &broker{t: t, fs: fs, store: store}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	b.meta, err = node.Open(node.Config{FS: fs, Dir: "/metadata", Broker: conf, LogDirs: conf.LogDirs, Fatal: func(error) {}})
	require.NoError(t, err)
	b.onClose(b.meta.Close)
	dirs, err := replicas.OpenDirs(replicas.DirsConfig{FS: fs, Dirs: conf.LogDirs, MetadataDir: "/metadata", NodeID: 1})
	require.NoError(t, err)
	b.onClose(dirs.Close)
	require.NoError(t, b.meta.Start(ctx, dirs.ClusterID()))
	require.NoError(t, dirs.Init(b.meta.ClusterID()))

	b.cache, err = rangecache.Open(rangecache.Config{FS: fs, Dir: "/cache", LimitBytes: 8 << 20})
	require.NoError(t, err)
	b.onClose(b.cache.Close)
	b.ownership = manifest.NewOwnership(manifest.OwnershipConfig{Store: store, ClusterID: b.meta.ClusterID()})
	b.remote = remotelog.New(remotelog.Config{Store: store, Catalog: b.meta.Catalog(), Submitter: b.meta, Cache: b.cache, Location: b.ownership.Location})
	b.onClose(b.remote.Close)
	b.replicas = replicas.New(replicas.Config{FS: fs, Dirs: dirs, Broker: conf, Watch: b.meta, Remote: b.remote, Keeper: b.remote})
	require.NoError(t, b.replicas.Start(ctx))
	b.onClose(func() error { return b.replicas.Close(context.Background()) })
	b.register(ctx, conf, dirs)
	b.startTier()
	t.Cleanup(b.stop)
	return b
}

func (b *broker) onClose(f func() error) { b.closers = append(b.closers, f) }

func (b *broker) register(ctx context.Context, conf config.Broker, dirs *replicas.Dirs) {
	l := lifecycle.Start(lifecycle.Config{
		Submit: b.meta, HeartbeatEvery: conf.HeartbeatInterval, RequestTimeout: conf.SessionTimeout / 2,
		Registration: request.RegisterBroker{
			Broker: 1, Incarnation: cluster.NewIncarnationID(), LogDirs: dirs.IDs(), Features: image.SupportedFeatures(),
			PreviousEpoch: dirs.PreviousEpoch(),
			Listeners:     []request.Listener{{Name: "PLAINTEXT", Host: "localhost", Port: 9092, Security: "PLAINTEXT"}},
		},
		Activate: b.replicas.Activate, AppliedIndex: b.replicas.AppliedIndex, OfflineDirs: b.replicas.OfflineDirs,
	})
	b.onClose(l.Close)
	require.NoError(b.t, l.WaitPhase(ctx, lifecycle.Running))
}

func (b *broker) startTier() {
	b.archiver = archive.New(archive.Config{
		Store: b.store, Ownership: b.ownership, Submitter: b.meta, Catalog: b.meta.Catalog(), Interval: 100 * time.Millisecond,
		UploadDeadline: 2 * time.Second,
		Replicas: func() iter.Seq[archive.Replica] {
			return func(yield func(archive.Replica) bool) {
				for p := range b.replicas.All() {
					if !yield(p) {
						return
					}
				}
			}
		},
		Replica: func(tp cluster.TopicPartition) (archive.Replica, bool) {
			p, err := b.replicas.Get(tp)
			return p, err == nil
		},
	})
	b.archiver.Start()
	b.onClose(b.archiver.Close)
	b.sweeper = sweep.New(sweep.Config{
		Store: b.store, Ownership: b.ownership, Submitter: b.meta, Catalog: b.meta.Catalog(), ClusterID: b.meta.ClusterID(),
		Topic:     func(id cluster.TopicID) (*image.Topic, bool) { return b.meta.Image().TopicByID(id) },
		Subscribe: b.meta.Subscribe, Interval: 100 * time.Millisecond, ManifestInterval: 100 * time.Millisecond,
		DeleteDelay: 300 * time.Millisecond, ScrubInterval: -1,
		Replicas: func() iter.Seq[sweep.Replica] {
			return func(yield func(sweep.Replica) bool) {
				for p := range b.replicas.All() {
					if !yield(p) {
						return
					}
				}
			}
		},
	})
	b.sweeper.Start()
	b.onClose(b.sweeper.Close)
}

func (b *broker) stop() {
	for i := len(b.closers) - 1; i >= 0; i-- {
		if err := b.closers[i](); !b.killed {
			require.NoError(b.t, err)
		}
	}
	b.closers = nil
}

func (b *broker) submit(req request.Request) request.Result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	res, err := b.meta.Submit(ctx, req)
	require.NoError(b.t, err)
	return res
}

func (b *broker) create(name string, partitions int32, configs map[string]string) cluster.TopicID {
	b.t.Helper()
	res := b.submit(request.CreateTopics{Topics: []request.NewTopic{{Name: name, Partitions: partitions, Replication: 1, Configs: configs}}})
	created := res.(request.CreateTopicsResult).Topics[0]
	require.NoError(b.t, created.Err)
	return created.ID
}

func (b *broker) eventually(what string, cond func() bool) {
	b.t.Helper()
	require.Eventually(b.t, cond, 30*time.Second, 10*time.Millisecond, what)
}

// leader returns a partition once it leads.
func (b *broker) leader(tp cluster.TopicPartition) *partition.Partition {
	b.t.Helper()
	var p *partition.Partition
	b.eventually("leader", func() bool {
		var err error
		if p, err = b.replicas.Get(tp); err != nil {
			return false
		}
		_, leading := p.Leading()
		return leading
	})
	return p
}

// produce appends batches and returns what was appended.
func (b *broker) produce(p *partition.Partition, batches, valueBytes int) []byte {
	b.t.Helper()
	var out []byte
	for i := range batches {
		build := recordbatch.NewBuilder(recordbatch.Options{})
		for j := range 3 {
			build.Add(time.Now().UnixMilli(), fmt.Appendf(nil, "k%d", j), bytes.Repeat([]byte{byte(i)}, valueBytes))
		}
		batch := build.Build()
		res, commit, err := p.Append(partition.AppendRequest{Records: batch, CurrentLeaderEpoch: cluster.NoLeaderEpoch, RequiredAcks: -1})
		require.NoError(b.t, err)
		if commit != nil {
			<-commit.Done()
			require.NoError(b.t, commit.Err())
		}
		require.Equal(b.t, res.BaseOffset, batch.BaseOffset())
		batch.SetPartitionLeaderEpoch(0)
		out = append(out, batch...)
	}
	return out
}

// consume reads everything from an offset on, leader epochs set to zero.
func (b *broker) consume(p *partition.Partition, o cluster.Offset) (out []byte, remote int) {
	b.t.Helper()
	for o < p.HighWatermark() {
		req := partition.ReadRequest{
			Offset: o, MaxBytes: 64 << 10, MinOneBatch: true, CurrentLeaderEpoch: cluster.NoLeaderEpoch,
			LastFetchedEpoch: cluster.NoLeaderEpoch, Replica: cluster.NoBroker,
		}
		res, err := p.Read(req)
		require.NoError(b.t, err)
		if res.Remote {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			res, err = p.ReadRemote(ctx, req)
			cancel()
			require.NoError(b.t, err)
			remote += res.Bytes
		}
		require.Positive(b.t, res.Bytes, "I8 at %d", o)
		for _, r := range res.Regions {
			data := make([]byte, r.Bytes)
			n, _ := r.ReadAt(data, 0)
			require.Len(b.t, data, n)
			out = append(out, data...)
		}
		res.Release()
		o = res.NextOffset
	}
	for rest := out; len(rest) > 0; {
		batch, next, err := recordbatch.First(rest)
		require.NoError(b.t, err)
		require.NoError(b.t, batch.Verify())
		batch.SetPartitionLeaderEpoch(0)
		rest = next
	}
	return out, remote
}

func (b *broker) keys(part string) (out []string) {
	for info, err := range b.store.List(context.Background(), "", "") {
		require.NoError(b.t, err)
		if strings.Contains(info.Key, part) {
			out = append(out, info.Key)
		}
	}
	return out
}

func (b *broker) live(tp cluster.TopicPartition) (out []catalog.Segment) {
	for s, err := range b.meta.Catalog().Live(tp, 0) {
		require.NoError(b.t, err)
		out = append(out, s)
	}
	return out
}

// settled waits until everything sealed is remote, and bucket, catalog and
// manifest agree.
func (b *broker) settled(p *partition.Partition) {
	b.t.Helper()
	tp := p.TopicPartition()
	b.eventually("everything sealed is remote", func() bool { return p.Status().PendingSegments == 0 })
	b.eventually("bucket, catalog and manifest agree", func() bool {
		location, known := b.ownership.Location()
		if !known {
			return false
		}
		w := manifest.Writer{Store: b.store, Layout: manifest.Layout{Store: b.store.Location(), Location: location}}
		m, err := w.Latest(context.Background(), tp)
		if err != nil || m == nil {
			return false
		}
		var named, want []string
		for s, err := range w.Live(context.Background(), m) {
			require.NoError(b.t, err)
			named = append(named, s.Key)
		}
		for _, s := range b.live(tp) {
			want = append(want, s.Key)
		}
		return fmt.Sprint(named) == fmt.Sprint(want) && len(b.keys(manifest.SegmentSuffix)) == len(want)
	})
}

func (b *broker) earliest(p *partition.Partition, ts int64) cluster.Offset {
	b.t.Helper()
	res, err := p.ListOffset(context.Background(), partition.ListOffsetRequest{Timestamp: ts, Replica: cluster.NoBroker, CurrentLeaderEpoch: cluster.NoLeaderEpoch})
	require.NoError(b.t, err)
	return res.Offset
}

// The main job: produced, sealed, copied up, trimmed, read back across both
// tiers; after a kill -9 (TI-11), after DeleteRecords, after retention of an
// idle topic (RT-03), and gone with its topic (TI-15).
func TestThroughARealNode(t *testing.T) {
	fs, store := disk.NewCrash(1), mem.New()
	b := startBroker(t, fs, store)
	id := b.create("orders", 1, map[string]string{
		"remote.storage.enable": "true", "internal.segment.bytes": "20000", "local.retention.bytes": "60000",
		"retention.ms": "-1", "retention.bytes": "-1",
	})
	tp := cluster.TopicPartition{Topic: id}
	p := b.leader(tp)
	want := b.produce(p, 200, 500)
	b.settled(p)
	b.eventually("local segments leave", func() bool { return p.Status().LocalBytes < 100_000 })
	require.Greater(t, b.earliest(p, partition.EarliestLocalTimestamp), cluster.Offset(0))
	require.Equal(t, cluster.Offset(0), b.earliest(p, partition.EarliestTimestamp))
	got, remote := b.consume(p, 0)
	require.True(t, bytes.Equal(want, got))
	require.Greater(t, remote, 200_000)

	// Killed while there is more to copy.
	want = append(want, b.produce(p, 50, 500)...)
	epoch, _ := p.Leading()
	after := fs.Kill()
	b.killed = true
	b.stop()
	b = startBroker(t, after, store)
	p = b.leader(tp)
	again, _ := p.Leading()
	require.Greater(t, again, epoch)
	require.Equal(t, cluster.Offset(0), b.earliest(p, partition.EarliestTimestamp))
	got, _ = b.consume(p, 0)
	require.True(t, bytes.Equal(want, got))
	want = append(want, b.produce(p, 50, 500)...)
	b.settled(p)
	got, _ = b.consume(p, 0)
	require.True(t, bytes.Equal(want, got))

	low, err := p.DeleteRecords(context.Background(), 301)
	require.NoError(t, err)
	require.Equal(t, cluster.Offset(301), low)
	b.settled(p)
	require.LessOrEqual(t, b.live(tp)[0].Base, cluster.Offset(301))
	_, err = p.Read(partition.ReadRequest{Offset: 300, MaxBytes: 1, CurrentLeaderEpoch: cluster.NoLeaderEpoch, LastFetchedEpoch: cluster.NoLeaderEpoch, Replica: cluster.NoBroker})
	require.ErrorIs(t, err, partition.ErrOffsetOutOfRange)
	got, _ = b.consume(p, 301)
	require.True(t, bytes.HasSuffix(want, got))

	b.submit(request.AlterConfigs{Resources: []request.AlterConfig{{
		Kind: request.TopicResource, Name: "orders",
		Ops: []request.ConfigOp{{Key: "retention.ms", Op: request.ConfigSet, Value: "500"}, {Key: "local.retention.ms", Op: request.ConfigSet, Value: "500"}},
	}}})
	b.eventually("an idle topic expires wholly", func() bool {
		return b.earliest(p, partition.EarliestTimestamp) == p.LogEndOffset() && len(b.keys(manifest.SegmentSuffix)) == 0 && p.Status().LocalBytes == 0
	})
	require.Equal(t, cluster.Offset(900), p.LogEndOffset())

	b.submit(request.DeleteTopics{Topics: []request.TopicRef{{Name: "orders"}}})
	b.eventually("a deleted topic leaves nothing", func() bool {
		return len(b.keys("")) == 1 && len(b.meta.Catalog().DeletedTopics()) == 0
	})
}

// TI-15 and TI-17: deleted while it is being copied up, and created again.
func TestTopicDeletedWhileUploading(t *testing.T) {
	b := startBroker(t, disk.NewCrash(2), mem.New())
	configs := map[string]string{"remote.storage.enable": "true", "internal.segment.bytes": "10000", "local.retention.bytes": "20000"}
	old := b.create("orders", 2, configs)
	for n := range int32(2) {
		b.produce(b.leader(cluster.TopicPartition{Topic: old, Partition: n}), 40, 500)
	}
	b.submit(request.DeleteTopics{Topics: []request.TopicRef{{Name: "orders"}}})
	id := b.create("orders", 4, configs)
	require.NotEqual(t, old, id)
	p := b.leader(cluster.TopicPartition{Topic: id, Partition: 3})
	want := b.produce(p, 40, 500)
	require.Equal(t, cluster.Offset(0), b.earliest(p, partition.EarliestTimestamp))
	b.eventually("copied up", func() bool { return p.Status().PendingSegments == 0 })
	got, _ := b.consume(p, 0)
	require.True(t, bytes.Equal(want, got))
	b.eventually("nothing of the old topic is left", func() bool { return len(b.keys(old.String())) == 0 })
	require.NotEmpty(t, b.keys(id.String()))
}

// OP-03, TI-35: a store that fails three calls in ten, loses answers and cuts
// bodies, and is away for a while, costs time and nothing else.
func TestFailingStoreThroughARealNode(t *testing.T) {
	faults := faultstore.New(mem.New(), 5)
	for _, verb := range objstore.Verbs() {
		faults.Add(faultstore.Rule{Verb: verb, Probability: 0.3, Class: objstore.ErrThrottled})
		faults.Add(faultstore.Rule{Verb: verb, Probability: 0.1, Class: objstore.ErrUnavailable, AfterEffect: true})
	}
	faults.Add(faultstore.Rule{Verb: objstore.VerbGet, Probability: 0.2, CutBody: 5000})
	guard := objstore.NewGuard(faults, objstore.GuardConfig{BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond})
	b := startBroker(t, disk.NewCrash(3), guard)
	id := b.create("orders", 3, map[string]string{
		"remote.storage.enable": "true", "internal.segment.bytes": "20000", "local.retention.bytes": "40000", "retention.ms": "-1",
	})
	var partitions []*partition.Partition
	want := make([][]byte, 3)
	for n := range want {
		partitions = append(partitions, b.leader(cluster.TopicPartition{Topic: id, Partition: int32(n)}))
		want[n] = b.produce(partitions[n], 60, 500)
	}
	faults.Outage(true)
	for n, p := range partitions { // writes and local reads go on
		want[n] = append(want[n], b.produce(p, 60, 500)...)
	}
	b.eventually("the outage is seen", func() bool { return !b.archiver.Store().OK })
	faults.Outage(false)
	for _, p := range partitions {
		b.eventually("everything arrives", func() bool { return p.Status().PendingSegments == 0 })
		b.eventually("local segments leave", func() bool { return p.Status().LocalBytes < 80_000 })
	}
	faults.Clear()
	for n, p := range partitions {
		got, remote := b.consume(p, 0)
		require.True(t, bytes.Equal(want[n], got))
		require.Positive(t, remote)
	}
	b.eventually("one object a segment", func() bool {
		live := 0
		for n := range partitions {
			live += len(b.live(cluster.TopicPartition{Topic: id, Partition: int32(n)}))
		}
		return len(b.keys(manifest.SegmentSuffix)) == live
	})
	require.NotEmpty(t, b.archiver.Store().LastError)
}
