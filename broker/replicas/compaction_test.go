package replicas

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync/atomic"
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
	n.m = New(Config{FS: fs, Dirs: n.dirs, Broker: brokerConfig(t, props), Watch: ctl, ImageComplete: true, Logger: logger, Index: index,
		OnCompaction: func(busy bool) { n.compacts = append(n.compacts, busy) }})
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
		o := n.outlook(one)
		require.True(t, o.Seen && o.Threads == 2 && !o.Running && o.Failed == nil, "%+v", o)
		require.Positive(t, o.Dirt.CleanBytes)
		require.Empty(t, o.Dirt.Due)
		require.Nil(t, n.outlook(other), "it is not compacted")
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
		require.ErrorContains(t, n.outlook(damaged).Failed, "corrupt")
		require.NoError(t, n.outlook(whole).Failed)
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

// outlook is what is told of the compaction of a topic's only partition.
func (n *node) outlook(topic cluster.TopicID) *CompactionOutlook {
	n.t.Helper()
	o, err := n.m.Outlook(cluster.TopicPartition{Topic: topic})
	require.NoError(n.t, err)
	return o.Compaction
}

// slow is a node whose passes take minutes until fast is called, and a topic with
// 900 records of ten keys that one runs over.
func slow(t *testing.T, fs disk.FS) (n *node, topic cluster.TopicID, fast func()) {
	t.Helper()
	ctl := newController(t)
	n = compacting(t, fs, ctl, map[string]string{"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "1000"})
	settings := compacted("compact")
	settings["internal.segment.bytes"] = "20000"
	topic = ctl.create("t", 1, settings)
	synctest.Wait()
	for i := range 900 {
		n.keys(topic, fmt.Sprint("key-", i%10))
	}
	time.Sleep(10 * time.Second)
	synctest.Wait()
	require.Equal(t, 1, n.m.CompactionStats().Running)
	require.True(t, n.outlook(topic).Running)
	return n, topic, func() {
		ctl.apply(command.ConfigsChanged{
			Kind: request.BrokerResource, Broker: cluster.NoBroker,
			Changes: []command.ConfigChange{{Key: "log.cleaner.io.max.bytes.per.second", Value: "1e9"}},
		})
		synctest.Wait()
	}
}

func (n *node) policy(topic cluster.TopicID, policy string) {
	n.ctl.apply(command.ConfigsChanged{Kind: request.TopicResource, Topic: topic, Changes: []command.ConfigChange{{Key: "cleanup.policy", Value: policy}}})
	synctest.Wait()
}

// TestPolicyChangesDuringAPass: a pass over a log that is not to be compacted any
// more ends, wherever it is, and one over a log that is compacted again begins.
func TestPolicyChangesDuringAPass(t *testing.T) {
	for _, after := range []time.Duration{0, 90 * time.Second, 3 * time.Minute} { // while reading, and while writing
		synctest.Test(t, func(t *testing.T) {
			n, topic, fast := slow(t, disk.NewCrash(1))
			time.Sleep(after)
			n.policy(topic, "delete")
			left := n.offsets(topic)
			time.Sleep(time.Minute)
			synctest.Wait()
			s := n.m.CompactionStats()
			require.Zero(t, s.Running)
			require.Zero(t, s.Uncleanable, "%s", n.log.String())
			require.Equal(t, left, n.offsets(topic), "nothing is removed any more")
			names, err := n.fs.List("/data/logs/t-0")
			require.NoError(t, err)
			for _, name := range names {
				require.False(t, strings.HasSuffix(name, ".cleaned"), name)
			}
			time.Sleep(forgetEvery)
			synctest.Wait()
			known, err := n.m.cfg.Index.Partitions()
			require.NoError(t, err)
			require.Empty(t, known)
			fast()
			n.policy(topic, "compact,delete")
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Less(t, len(n.offsets(topic)), 300)
			require.Zero(t, n.m.CompactionStats().Failures)
			n.stop()
		})
	}
}

// TestTopicIsDeletedDuringAPass: the pass ends without a word, its topic's folder
// and index go, and one of the same name is compacted.
func TestTopicIsDeletedDuringAPass(t *testing.T) {
	for _, after := range []time.Duration{0, 90 * time.Second, 3 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			n, topic, fast := slow(t, disk.NewCrash(1))
			time.Sleep(after)
			n.ctl.apply(command.TopicDeleted{Topic: topic})
			synctest.Wait()
			again := n.ctl.create("t", 1, compacted("compact"))
			fast()
			for range 40 {
				n.keys(again, "a", "b")
			}
			time.Sleep(2 * forgetEvery)
			synctest.Wait()
			require.Less(t, len(n.offsets(again)), 25)
			s := n.m.CompactionStats()
			require.Zero(t, s.Failures, "%s", n.log.String())
			require.Zero(t, s.Running)
			known, err := n.m.cfg.Index.Partitions()
			require.NoError(t, err)
			require.Equal(t, []cluster.TopicPartition{{Topic: again}}, known)
			names, err := n.fs.List("/data/logs")
			require.NoError(t, err)
			for _, name := range names {
				require.False(t, strings.HasSuffix(name, "-delete"), name)
			}
			n.stop()
		})
	}
}

// TestCompactionLeavesTheDiskRoom: what takes room before it gives some back waits
// where there is little, which is said, and is done once there is.
func TestCompactionLeavesTheDiskRoom(t *testing.T) {
	leavesRoom(t, 500_100, true)
	leavesRoom(t, 499_999, false) // not even the key index grows
}

func leavesRoom(t *testing.T, little int64, waiting bool) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		free.Store(1 << 30)
		ctl := newController(t)
		n := compacting(t, smallDisk{disk.NewCrash(1), &free}, ctl, map[string]string{"log.cleaner.backoff.ms": "1000", "disk.reserved.bytes": "1000000"})
		settings := compacted("compact")
		settings["min.cleanable.dirty.ratio"] = "1"
		topic := ctl.create("t", 1, settings)
		synctest.Wait()
		all := 0
		for i := range 400 {
			n.keys(topic, fmt.Sprint("once-", i), "a")
			all += 2
		}
		free.Store(little)
		pass()
		ctl.apply(command.ConfigsChanged{Kind: request.TopicResource, Topic: topic, Changes: []command.ConfigChange{{Key: "min.cleanable.dirty.ratio", Value: "0.01"}}})
		rounds(time.Second)
		require.Len(t, n.offsets(topic), all)
		require.Contains(t, n.log.String(), "segments wait for room")
		require.Zero(t, n.m.CompactionStats().Failures)
		index, err := n.m.cfg.Index.Open(cluster.TopicPartition{Topic: topic})
		require.NoError(t, err)
		require.Equal(t, waiting, index.Position().Offset > 0)
		free.Store(1 << 30)
		pass()
		rounds(time.Second)
		require.Less(t, len(n.offsets(topic)), all*6/10)
		n.stop()
	})
}

// TestKeyIndexThatIsCorrupt is made anew, and every log that went by it is
// compacted on.
func TestKeyIndexThatIsCorrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		n := compacting(t, disk.NewCrash(1), ctl, map[string]string{"log.cleaner.backoff.ms": "1000"})
		one, two := ctl.create("one", 1, compacted("compact")), ctl.create("two", 1, compacted("compact"))
		synctest.Wait()
		for range 2 {
			for range 30 {
				n.keys(one, "a", "b")
				n.keys(two, "a", "b")
			}
			rounds(time.Second)
			require.Less(t, len(n.offsets(one)), 25)
			require.Less(t, len(n.offsets(two)), 25)
			n.m.compactionFailed(n.m.lookup(cluster.TopicPartition{Topic: one}), fmt.Errorf("%w: a meta key", keyindex.ErrCorrupt))
			known, err := n.m.cfg.Index.Partitions()
			require.NoError(t, err)
			require.Empty(t, known)
		}
		s := n.m.CompactionStats()
		require.Zero(t, s.Failures)
		require.Zero(t, s.Uncleanable)
		n.stop()
	})
}

// TestDirtiestFirst: of the logs that are due the one with the highest share of
// dirt comes first, whatever their size, and one that is not due never.
func TestDirtiestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		n := compacting(t, disk.NewCrash(1), ctl, map[string]string{"log.cleaner.backoff.ms": "60000"})
		settings := compacted("compact")
		settings["min.cleanable.dirty.ratio"] = "0.25"
		dirt := map[string]int{"a": 400, "b": 90, "c": 10, "d": 200, "e": 2000}
		clean := map[string]int{"a": 200, "b": 10, "c": 200, "d": 400, "e": 1500}
		topics := map[string]cluster.TopicID{}
		for name := range dirt {
			topics[name] = ctl.create(name, 1, settings)
		}
		synctest.Wait()
		write := func(counts map[string]int, keys int) {
			for name, count := range counts {
				for i := range count {
					n.keys(topics[name], fmt.Sprint("key-", i%keys))
				}
			}
		}
		write(clean, 10000)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		write(dirt, 7)
		before := len(n.log.String())
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		var order []string
		for line := range strings.Lines(n.log.String()[before:]) {
			if strings.Contains(line, "log compacted") {
				_, rest, _ := strings.Cut(line, "partition=")
				order = append(order, rest[:1])
			}
		}
		require.Equal(t, []string{"b", "a", "e", "d"}, order)
		require.Positive(t, n.m.CompactionStats().MaxDirtyRatio)
		n.stop()
	})
}

// TestOnCompaction: it is told of the first pass and of the last, in turn, and
// that none runs once the manager is closed, in the middle of one.
func TestOnCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, topic, fast := slow(t, disk.NewCrash(1))
		require.Equal(t, []bool{true}, n.compacts)
		fast()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Less(t, len(n.offsets(topic)), 300)
		require.Len(t, n.compacts, 2)
		require.False(t, n.compacts[1])
		n.stop()
		require.Len(t, n.compacts, 2)
	})
	synctest.Test(t, func(t *testing.T) {
		n, _, _ := slow(t, disk.NewCrash(1))
		n.stop()
		require.Equal(t, []bool{true, false}, n.compacts)
	})
}

// TestCompactAndDelete: a log is compacted, and what is older than retention.ms goes
// all the same, the last record of a key or not; a log that is compacted alone keeps it.
func TestCompactAndDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		n := compacting(t, disk.NewCrash(1), ctl, map[string]string{"log.cleaner.backoff.ms": "1000"})
		topics := map[string]cluster.TopicID{}
		for _, policy := range []string{"compact", "compact,delete"} {
			settings := compacted(policy)
			settings["retention.ms"] = "3600000"
			topics[policy] = ctl.create(strings.ReplaceAll(policy, ",", "-"), 1, settings)
		}
		synctest.Wait()
		write := func(from int) {
			for _, topic := range topics {
				for i := range 40 {
					n.keys(topic, fmt.Sprint("once-", from+i), "again")
				}
			}
			rounds(time.Second)
		}
		write(0)
		for policy, topic := range topics {
			got := n.offsets(topic)
			require.Contains(t, got, cluster.Offset(0), policy)
			require.Less(t, len(got), 60, "%s: compacted", policy)
		}
		time.Sleep(2 * time.Hour)
		write(100)
		time.Sleep(30 * time.Minute)
		write(200)
		require.Contains(t, n.offsets(topics["compact"]), cluster.Offset(0))
		require.Len(t, slices.DeleteFunc(n.offsets(topics["compact"]), func(o cluster.Offset) bool { return o%2 == 1 }), 120, "every key that came once")
		both := n.get(topics["compact,delete"], 0)
		require.GreaterOrEqual(t, both.LogStartOffset(), cluster.Offset(70))
		got := n.offsets(topics["compact,delete"])
		require.Len(t, slices.DeleteFunc(slices.Clone(got), func(o cluster.Offset) bool { return o%2 == 1 || o < 80 }), 80)
		require.Equal(t, cluster.Offset(239), got[len(got)-1], "the last record of the key that came often")
		require.Less(t, len(got), 110)
		index, err := n.m.cfg.Index.Open(cluster.TopicPartition{Topic: topics["compact,delete"]})
		require.NoError(t, err)
		for _, s := range index.Segments() {
			require.Greater(t, s.Next, both.LogStartOffset(), "what left the log is forgotten")
		}
		require.Zero(t, n.m.CompactionStats().Failures)
		n.stop()
	})
}
