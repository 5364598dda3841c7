package replicas

import (
	"context"
	"errors"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/cleaner"
	"strandline/broker/partition"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/disk"
)

// stamped makes a batch of one record of about 1000 bytes.
func stamped(at time.Time) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{})
	b.Add(at.UnixMilli(), []byte("k"), make([]byte, 1000))
	return b.Build()
}

func (n *node) produceAt(topic cluster.TopicID, at time.Time) {
	n.t.Helper()
	_, err := produce(n.get(topic, 0), stamped(at))
	require.NoError(n.t, err)
}

func retentionNode(t *testing.T, configs map[string]string) (*node, cluster.TopicID) {
	ctl := newController(t)
	n := startNode(t, disk.NewCrash(1), ctl, nil, "/data/logs")
	n.activate()
	topic := ctl.create("t", 1, configs)
	synctest.Wait()
	return n, topic
}

// pass waits for the next retention passes.
func pass() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

// TestIdleTopicExpires is RT-03: no more writes, and the active segment goes too,
// its files after the delay.
func TestIdleTopicExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, topic := retentionNode(t, map[string]string{"retention.ms": "15000"})
		for range 10 {
			n.produceAt(topic, time.Now())
		}
		p := n.get(topic, 0)
		time.Sleep(14 * time.Second)
		synctest.Wait()
		require.Equal(t, cluster.Offset(0), p.LogStartOffset())
		o, err := n.m.Outlook(p.TopicPartition())
		require.NoError(t, err)
		require.Empty(t, o.Plan.Removals)
		require.WithinDuration(t, time.Now().Add(7*24*time.Hour), o.SealsBy, time.Minute)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		s := p.Status()
		require.Equal(t, []cluster.Offset{10, 10, 10}, []cluster.Offset{s.LogStartOffset, s.HighWatermark, s.LogEndOffset})
		require.Zero(t, s.LocalBytes)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for _, name := range list(t, n.fs, "/data/logs/t-0") {
			require.NotContains(t, name, ".deleted")
		}
		require.Equal(t, int64(1), n.m.Stats().SegmentsRemoved)
		n.produceAt(topic, time.Now())
		n.stop()
	})
}

// TestRetentionOfWhatIsDeleted: a pass that meets a replica which was deleted
// since the pass began has not failed.
func TestRetentionOfWhatIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, topic := retentionNode(t, map[string]string{"retention.bytes": "3000", "internal.segment.bytes": "2200"})
		for range 20 {
			n.produceAt(topic, time.Now())
		}
		r := n.m.lookup(n.get(topic, 0).TopicPartition())
		plan, _ := n.m.plan(r, false)
		require.NotEmpty(t, plan.Removals, "there is something to do")
		n.ctl.apply(command.TopicDeleted{Topic: topic})
		synctest.Wait()
		_, err := n.m.retain(r)
		require.ErrorIs(t, err, partition.ErrClosed)
		n.m.retainOne(r)
		require.Zero(t, n.m.Stats().RetentionFailures)
		require.NotContains(t, n.log.String(), "level=WARN")
		n.stop()
	})
}

// TestSizeAndTime is RT-05 (c) and RT-07 end to end: size, time and DeleteRecords
// in one pass.
func TestSizeAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, topic := retentionNode(t, map[string]string{"retention.ms": "3600000", "retention.bytes": "5000", "internal.segment.bytes": "2200"})
		for range 20 {
			n.produceAt(topic, time.Now())
		}
		p := n.get(topic, 0)
		pass()
		s := p.Status()
		require.LessOrEqual(t, s.LocalBytes, int64(5000+2200))
		require.GreaterOrEqual(t, s.LocalBytes, int64(5000))
		require.Equal(t, s.Segments[0].Base, s.LogStartOffset)
		mark := p.HighWatermark()
		_, err := p.DeleteRecords(context.Background(), mark-3)
		require.NoError(t, err)
		o, err := n.m.Outlook(p.TopicPartition())
		require.NoError(t, err)
		require.Equal(t, cleaner.ReasonLogStart, o.Plan.Removals[0].Reason)
		pass()
		require.LessOrEqual(t, p.Status().Segments[0].Base, mark-3)
		require.Greater(t, p.Status().Segments[0].Next, mark-3)
		n.stop()
	})
}

// TestFutureStamp is RT-01: one record ten years ahead keeps nothing for ever.
func TestFutureStamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, topic := retentionNode(t, map[string]string{"retention.ms": "10000", "internal.segment.bytes": "2200"})
		_, err := produce(n.get(topic, 0), stamped(time.Now().Add(10*365*24*time.Hour)))
		require.ErrorIs(t, err, partition.ErrInvalidTimestamp)
		n.ctl.apply(command.ConfigsChanged{Kind: 2, Topic: topic, Changes: []command.ConfigChange{{Key: "message.timestamp.after.max.ms", Value: "9223372036854775807"}}})
		synctest.Wait()
		n.produceAt(topic, time.Now().Add(10*365*24*time.Hour))
		for range 10 {
			n.produceAt(topic, time.Now())
		}
		pass()
		require.Equal(t, int64(1), n.m.Stats().FutureStamped)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Equal(t, cluster.Offset(11), n.get(topic, 0).LogStartOffset())
		n.stop()
	})
}

// tier is a catalog in memory: enough to trim by.
type tier struct {
	mu         sync.Mutex
	known      bool
	start, end cluster.Offset
}

func (r *tier) set(end cluster.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.end = true, end
}

func (r *tier) RemoteEndOffset(cluster.TopicPartition) (cluster.Offset, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end, r.known
}

func (r *tier) LogStartOffset(cluster.TopicPartition) (cluster.Offset, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.start, r.known
}

func (r *tier) Advance(_ context.Context, _ cluster.TopicPartition, _ cluster.LeaderEpoch, o, base cluster.Offset) (cluster.Offset, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.start = true, max(r.start, o)
	if o > r.end {
		r.end = base
	}
	return r.start, nil
}

var errNoObjects = errors.New("no objects here")

func (r *tier) LiveBytes(cluster.TopicPartition) int64 { return 0 }
func (r *tier) Read(context.Context, cluster.TopicPartition, partition.RemoteRead) (partition.RemoteSlice, error) {
	return partition.RemoteSlice{}, errNoObjects
}

func (r *tier) OffsetForTimestamp(context.Context, cluster.TopicPartition, int64, cluster.Offset) (partition.TimestampOffset, bool, error) {
	return partition.TimestampOffset{}, false, errNoObjects
}

func (r *tier) EpochEnd(cluster.TopicPartition, cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset, bool) {
	return cluster.NoLeaderEpoch, cluster.NoOffset, false
}

func (r *tier) Aborted(context.Context, cluster.TopicPartition, cluster.Offset, cluster.Offset) ([]producerstate.AbortedTxn, error) {
	return nil, errNoObjects
}

func (r *tier) State(context.Context, cluster.TopicPartition) (partition.RemoteState, error) {
	return partition.RemoteState{}, errNoObjects
}

func tieredNode(t *testing.T, fs disk.FS, ctl *controller, remote *tier) *node {
	require.NoError(t, disk.EnsureDir(fs, metadataDir))
	n := &node{t: t, fs: fs, ctl: ctl}
	var err error
	n.dirs, err = OpenDirs(DirsConfig{FS: fs, Dirs: []string{"/data/logs"}, MetadataDir: metadataDir, NodeID: self})
	require.NoError(t, err)
	require.NoError(t, n.dirs.Init(clusterID))
	n.m = New(Config{FS: fs, Dirs: n.dirs, Broker: brokerConfig(t, nil), Watch: ctl, Remote: remote, Keeper: remote})
	require.NoError(t, n.m.Start(context.Background()))
	n.activate()
	return n
}

// TestLocalTrim: TI-33 (nothing goes before it is published, however long the
// local retention is past), TI-11 (earliest stays over restarts of every kind,
// with and without the local checkpoints), and total retention of what was never
// uploaded.
func TestLocalTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctl, remote := disk.NewCrash(1), newController(t), &tier{}
		n := tieredNode(t, fs, ctl, remote)
		topic := ctl.create("t", 1, map[string]string{
			"remote.storage.enable": "true", "local.retention.ms": "1000", "retention.ms": "3600000", "internal.segment.bytes": "2200",
		})
		synctest.Wait()
		for range 9 {
			n.produceAt(topic, time.Now())
		}
		p := n.get(topic, 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, cluster.Offset(0), p.Status().LocalLogStartOffset)
		require.Equal(t, 4, p.Status().PendingSegments)
		segments, _ := p.Archivable(0)
		require.Len(t, segments, 4)

		remote.set(segments[1].Next)
		pass()
		s := p.Status()
		require.Equal(t, []cluster.Offset{0, 4, 4, 9}, []cluster.Offset{s.LogStartOffset, s.LocalLogStartOffset, s.RemoteEndOffset, s.LogEndOffset})
		read, err := p.Read(partition.ReadRequest{Offset: 1, MaxBytes: 100, MinOneBatch: true, Replica: cluster.NoBroker, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1})
		require.NoError(t, err)
		require.True(t, read.Remote)

		for _, how := range []string{"clean", "kill", "no checkpoints"} {
			if how == "clean" {
				n.stop()
			} else {
				n.kill()
			}
			if how == "no checkpoints" {
				for _, name := range []string{recoveryName, logStartName, replicationName} {
					_ = fs.Remove(path.Join("/data/logs", name))
				}
			}
			ctl = ctl.fork(t)
			n = tieredNode(t, fs, ctl, remote)
			s := n.get(topic, 0).Status()
			require.Equal(t, []cluster.Offset{0, 4, 9, 9}, []cluster.Offset{s.LogStartOffset, s.LocalLogStartOffset, s.HighWatermark, s.LogEndOffset}, how)
		}

		// The tier expires its part; the rest was never uploaded and goes with it.
		remote.mu.Lock()
		remote.start = 4
		remote.mu.Unlock()
		n.get(topic, 0).RemoteAdvanced()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		s = n.get(topic, 0).Status()
		require.Equal(t, []cluster.Offset{9, 9, 9}, []cluster.Offset{s.LogStartOffset, s.LocalLogStartOffset, s.LogEndOffset})
		require.Equal(t, cluster.Offset(9), remote.start)
		n.stop()
	})
}

// TestLocalRetentionFollowsTotal is TI-31: -2 is the total limit.
func TestLocalRetentionFollowsTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctl, remote := disk.NewCrash(1), newController(t), &tier{}
		n := tieredNode(t, fs, ctl, remote)
		topic := ctl.create("t", 1, map[string]string{
			"remote.storage.enable": "true", "local.retention.ms": "-2", "retention.ms": "600000", "internal.segment.bytes": "2200",
		})
		synctest.Wait()
		for range 5 {
			n.produceAt(topic, time.Now())
		}
		remote.set(4)
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		require.Equal(t, cluster.Offset(0), n.get(topic, 0).Status().LocalLogStartOffset)
		time.Sleep(90 * time.Second)
		synctest.Wait()
		require.Equal(t, cluster.Offset(4), n.get(topic, 0).Status().LocalLogStartOffset)
		n.stop()
	})
}

// smallDisk reports what is told as free space.
type smallDisk struct {
	disk.FS
	free *atomic.Int64
}

func (d smallDisk) Usage(string) (disk.Usage, error) {
	return disk.Usage{FreeBytes: d.free.Load(), TotalBytes: 1 << 40}, nil
}

// TestDiskReserve: below one and a half times the reserve what is in the tier
// leaves early, below the reserve clients are refused, and it recovers by itself.
func TestDiskReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		free.Store(1 << 30)
		ctl := newController(t)
		fs := smallDisk{disk.NewCrash(1), &free}
		n := startNode(t, fs, ctl, map[string]string{"disk.reserved.bytes": "1000000"}, "/data/logs")
		n.activate()
		topic := ctl.create("t", 1, nil)
		synctest.Wait()
		n.produceAt(topic, time.Now())
		free.Store(999_999)
		pass()
		_, err := produce(n.get(topic, 0), stamped(time.Now()))
		require.ErrorIs(t, err, partition.ErrDiskFull)
		require.Equal(t, int64(999_999), n.m.DirStatuses()[0].FreeBytes)
		free.Store(1_600_000)
		pass()
		n.produceAt(topic, time.Now())
		n.stop()
	})
}

// TestCheckpointsAreWritten: the files hold what Apache Kafka's would.
func TestCheckpointsAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, topic := retentionNode(t, map[string]string{"flush.ms": "1000"})
		for range 5 {
			n.produceAt(topic, time.Now())
		}
		_, err := n.get(topic, 0).DeleteRecords(context.Background(), 2)
		require.NoError(t, err)
		read := func(name string) string {
			data, err := disk.ReadFile(n.fs, path.Join("/data/logs", name))
			require.NoError(t, err)
			return string(data)
		}
		require.Equal(t, "0\n1\nt 0 2\n", read(logStartName), "M5: at once")
		n.produceAt(topic, time.Now())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, "0\n1\nt 0 6\n", read(recoveryName))
		require.Equal(t, "0\n1\nt 0 6\n", read(replicationName))
		n.stop()
	})
}
