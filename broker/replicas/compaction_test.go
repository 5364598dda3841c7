package replicas

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/keyindex"
	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/disk"
	"strandline/metadata/request"
)

// compacting is a node that compacts, with the settings of the cleaner.
func compacting(t *testing.T, fs disk.FS, ctl *controller, props map[string]string, dirs ...string) *node {
	t.Helper()
	if len(dirs) == 0 {
		dirs = []string{"/data/logs"}
	}
	require.NoError(t, disk.EnsureDir(fs, metadataDir))
	n := &node{t: t, fs: fs, ctl: ctl}
	logger := slog.New(slog.NewTextHandler(&n.log, nil))
	index, err := keyindex.Open(keyindex.Config{FS: fs, Dir: path.Join(metadataDir, "keyindex")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, index.Close()) })
	n.dirs, err = OpenDirs(DirsConfig{FS: fs, Dirs: dirs, MetadataDir: metadataDir, NodeID: self})
	require.NoError(t, err)
	require.NoError(t, n.dirs.Init(clusterID))
	n.m = New(Config{FS: fs, Dirs: n.dirs, Broker: brokerConfig(t, props), Watch: ctl, ImageComplete: true, Logger: logger, Index: index})
	require.NoError(t, n.m.Start(context.Background()))
	n.activate()
	return n
}

// compacted are a topic's settings under which everything is compacted soon.
func compacted(policy string) map[string]string {
	return map[string]string{
		"cleanup.policy": policy, "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "1000", "retention.ms": "-1",
	}
}

// keys writes records of the keys, each with about 60 bytes.
func (n *node) keys(topic cluster.TopicID, keys ...string) {
	n.t.Helper()
	for _, k := range keys {
		b := recordbatch.NewBuilder(recordbatch.Options{})
		b.Add(time.Now().UnixMilli(), []byte(k), make([]byte, 60))
		_, err := produce(n.get(topic, 0), b.Build())
		require.NoError(n.t, err)
	}
}

// offsets are those of all records that a consumer finds.
func (n *node) offsets(topic cluster.TopicID) []cluster.Offset {
	n.t.Helper()
	p := n.get(topic, 0)
	var out []cluster.Offset
	for from := p.LogStartOffset(); from < p.HighWatermark(); {
		r, err := p.Read(partition.ReadRequest{Offset: from, MaxBytes: 1 << 20, MinOneBatch: true, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, Replica: cluster.NoBroker})
		require.NoError(n.t, err)
		require.Greater(n.t, r.NextOffset, from)
		for _, region := range r.Regions {
			data := make([]byte, region.Bytes)
			if _, err := region.ReadAt(data, 0); err != nil {
				require.ErrorIs(n.t, err, io.EOF)
			}
			for len(data) > 0 {
				b, rest, err := recordbatch.First(data)
				require.NoError(n.t, err)
				for k, err := range new(recordbatch.Decoder).Keys(b) {
					require.NoError(n.t, err)
					if k.Offset >= p.LogStartOffset() && !b.IsControl() {
						out = append(out, k.Offset)
					}
				}
				data = rest
			}
		}
		r.Release()
		from = r.NextOffset
	}
	return out
}

func rounds(every time.Duration) {
	time.Sleep(3 * every)
	synctest.Wait()
}

// TestLogsAreCompacted: every compacted log is, within a back-off, and the cleaner
// then goes idle (CO-09).
func TestLogsAreCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		n := compacting(t, disk.NewCrash(1), ctl, map[string]string{"log.cleaner.backoff.ms": "1000", "log.cleaner.threads": "2"})
		one, two, other := ctl.create("one", 1, compacted("compact")), ctl.create("two", 1, compacted("compact,delete")), ctl.create("other", 1, compacted("delete"))
		synctest.Wait()
		for range 40 {
			n.keys(one, "a", "b")
			n.keys(two, "a", "b", "c")
			n.keys(other, "a")
		}
		rounds(time.Second)
		require.Less(t, len(n.offsets(one)), 25)
		require.Less(t, len(n.offsets(two)), 25)
		require.Len(t, n.offsets(other), 40)
		s := n.m.CompactionStats()
		require.Zero(t, s.Failures)
		require.Positive(t, s.RecordsRemoved)
		require.Positive(t, s.BytesReclaimed)
		// Markers and a log start within a segment leave nothing to do either.
		p := n.get(two, 0)
		_, err := p.DeleteRecords(context.Background(), p.HighWatermark()-5)
		require.NoError(t, err)
		rounds(time.Second)
		before := n.m.CompactionStats()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		after := n.m.CompactionStats()
		require.Equal(t, before.Passes, after.Passes, "idle")
		require.Equal(t, before.BytesRead, after.BytesRead)
		require.Less(t, after.MaxDirtyRatio, 0.01)
		n.stop()
		index, err := n.m.cfg.Index.Partitions()
		require.NoError(t, err)
		require.Len(t, index, 2)
	})
}

// TestOneLogThatFailsStopsNoOther is CO-07: records deleted up to the end, past
// what the cleaner knows, and a log with damage. The former is compacted, the
// latter is not any more, which is said and counted.
func TestOneLogThatFailsStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		fs := disk.NewCrash(1)
		n := compacting(t, fs, ctl, map[string]string{"log.cleaner.backoff.ms": "1000"})
		settings := compacted("compact,delete")
		damaged, deleted, whole := ctl.create("damaged", 1, settings), ctl.create("deleted", 1, settings), ctl.create("whole", 1, settings)
		synctest.Wait()
		all := []cluster.TopicID{damaged, deleted, whole}
		for range 30 {
			n.keys(whole, "a", "b")
			n.keys(deleted, "a", "b")
		}
		p := n.get(deleted, 0)
		_, err := p.DeleteRecords(context.Background(), p.HighWatermark()-1)
		require.NoError(t, err)
		for range 5 {
			n.keys(damaged, "a", "b")
		}
		f, err := fs.Open("/data/logs/damaged-0/00000000000000000000.log")
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{1, 2, 3}, 120)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		for range 3 {
			for range 20 {
				for _, topic := range all {
					n.keys(topic, "a", "b")
				}
			}
			rounds(time.Second)
		}
		require.Less(t, len(n.offsets(deleted)), 25)
		require.Less(t, len(n.offsets(whole)), 25)
		s := n.m.CompactionStats()
		require.Equal(t, 1, s.Uncleanable)
		require.Equal(t, int64(1), s.Failures)
		require.Contains(t, n.log.String(), "partition is not compacted any more")
		require.Contains(t, n.log.String(), "damaged-0")
		n.kill()
	})
}

// TestCompactionKeepsToItsRate: log.cleaner.io.max.bytes.per.second bounds what it
// reads and writes, and can be changed while it runs.
func TestCompactionKeepsToItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		n := compacting(t, disk.NewCrash(1), ctl, map[string]string{"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "1000"})
		settings := compacted("compact")
		settings["internal.segment.bytes"] = "100000"
		topic := ctl.create("t", 1, settings)
		synctest.Wait()
		for i := range 900 {
			n.keys(topic, fmt.Sprint("key-", i%10))
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		s := n.m.CompactionStats()
		require.Zero(t, s.Passes, "100 kB take more than a minute")
		require.Equal(t, 1, s.Running)
		require.Len(t, n.offsets(topic), 900)
		ctl.apply(command.ConfigsChanged{
			Kind: request.BrokerResource, Broker: cluster.NoBroker,
			Changes: []command.ConfigChange{{Key: "log.cleaner.io.max.bytes.per.second", Value: "1e9"}},
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Less(t, len(n.offsets(topic)), 300)
		n.stop()
	})
}

// TestIndexOfAPartitionThatLeft goes with it.
func TestIndexOfAPartitionThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		fs := disk.NewCrash(1)
		n := compacting(t, fs, ctl, map[string]string{"log.cleaner.backoff.ms": "100"})
		one, two := ctl.create("one", 1, compacted("compact")), ctl.create("two", 1, compacted("compact"))
		synctest.Wait()
		for range 30 {
			n.keys(one, "a")
			n.keys(two, "a")
		}
		rounds(time.Second)
		known, err := n.m.cfg.Index.Partitions()
		require.NoError(t, err)
		require.Len(t, known, 2)
		ctl.apply(command.TopicDeleted{Topic: one})
		time.Sleep(2 * forgetEvery)
		synctest.Wait()
		known, err = n.m.cfg.Index.Partitions()
		require.NoError(t, err)
		require.Equal(t, []cluster.TopicPartition{{Topic: two}}, known)
		n.stop()
	})
}

// TestCompactionBesideWrites: a log is written and read while it is compacted; the
// last record of each key is always there.
func TestCompactionBesideWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		n := compacting(t, disk.NewCrash(1), ctl, map[string]string{"log.cleaner.backoff.ms": "10"})
		topic := ctl.create("t", 1, compacted("compact"))
		synctest.Wait()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 300 {
				n.keys(topic, fmt.Sprint("key-", i%7))
				time.Sleep(5 * time.Millisecond)
			}
		}()
		for range 20 {
			time.Sleep(70 * time.Millisecond)
			got := n.offsets(topic)
			require.True(t, slices.IsSorted(got))
			if len(got) > 7 {
				latest := got[len(got)-1]
				for _, o := range got[len(got)-7:] {
					require.Less(t, latest-o, cluster.Offset(7), "the last record of each key is there")
				}
			}
		}
		<-done
		rounds(time.Second)
		require.Less(t, len(n.offsets(topic)), 30)
		n.stop()
	})
}

// TestCompactionAndMoves: a log is compacted and moved between two directories all
// the time; whichever comes first, nothing is lost.
func TestCompactionAndMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		n := compacting(t, disk.NewCrash(1), ctl, map[string]string{"log.cleaner.backoff.ms": "5", "log.cleaner.io.max.bytes.per.second": "200000"}, twoDirs...)
		topic := ctl.create("t", 1, compacted("compact,delete"))
		synctest.Wait()
		tp := cluster.TopicPartition{Topic: topic}
		for i := range 30 {
			for k := range 14 {
				n.keys(topic, fmt.Sprint("key-", k%7))
			}
			from, _ := n.m.DirOf(tp)
			require.NoError(t, n.m.Move(tp, twoDirs[slices.Index(twoDirs, from)^1]))
			time.Sleep(time.Duration(1+i%5) * 40 * time.Millisecond)
			if i%7 == 6 {
				p := n.get(topic, 0)
				_, err := p.DeleteRecords(context.Background(), p.HighWatermark()-10)
				require.NoError(t, err)
				_, _, err = p.TrimLocal(p.LogStartOffset())
				require.NoError(t, err)
			}
		}
		rounds(time.Second)
		got := n.offsets(topic)
		require.Less(t, len(got), 30)
		end := n.get(topic, 0).LogEndOffset()
		require.Equal(t, cluster.Offset(30*14), end)
		for k := range cluster.Offset(7) {
			require.Contains(t, got, end-7+k, "the last record of each key")
		}
		s := n.m.CompactionStats()
		require.Positive(t, s.RecordsRemoved)
		require.Zero(t, s.Failures, "%s", n.log.String())
		n.stop()
	})
}
