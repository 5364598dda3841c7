package replicas

import (
	"context"
	"io"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/disk"
)

func TestProduceAndCleanRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctl := disk.NewCrash(1), newController(t)
		n := startNode(t, fs, ctl, nil, twoDirs...)
		require.Equal(t, cluster.NoBrokerEpoch, n.dirs.PreviousEpoch())
		require.Len(t, n.dirs.IDs(), 2)
		n.activate()
		topic := ctl.create("t", 4, nil)
		synctest.Wait()
		for i := range int32(5) {
			require.True(t, n.m.Settled(cluster.TopicPartition{Topic: topic, Partition: i}), "led, or none that is to be led: %d", i)
		}
		ready, reasons := n.m.Ready()
		require.True(t, ready, "%v", reasons)
		require.Equal(t, ctl.Image().Index(), n.m.AppliedIndex())
		for i := range int32(4) {
			n.produce(topic, i, 3)
		}
		for _, d := range n.m.DirStatuses() {
			require.Equal(t, 2, d.Replicas, "new replicas go to the directory with fewest")
		}
		epoch, leads := n.get(topic, 0).Leading()
		require.True(t, leads)
		n.stop()
		for _, d := range twoDirs {
			for _, name := range []string{cleanName, recoveryName, logStartName, replicationName, metaName} {
				require.True(t, exists(fs, path.Join(d, name)), "%s/%s", d, name)
			}
		}

		// The same disk, after a power loss right after the stop.
		fs = fs.Clone(newRand(3))
		again := startNode(t, fs, ctl.fork(t), nil, twoDirs...)
		require.Equal(t, n.epoch, again.dirs.PreviousEpoch())
		require.Equal(t, n.dirs.IDs(), again.dirs.IDs())
		require.False(t, exists(fs, path.Join(twoDirs[0], cleanName)), "a stop from here on is not clean")
		_, err := produce(again.get(topic, 0), records(1))
		require.ErrorIs(t, err, partition.ErrNotLeader, "M1: not before the registration")
		require.False(t, again.m.Settled(cluster.TopicPartition{Topic: topic}))
		again.activate()
		later, leads := again.get(topic, 0).Leading()
		require.True(t, leads)
		require.Greater(t, later, epoch)
		require.Equal(t, cluster.Offset(3), again.produce(topic, 0, 1).BaseOffset)
		again.stop()
	})
}

// TestNothingLedWhileFenced is M1: an image that shows this broker as leader
// does not make it lead while it is fenced, nor under another registration.
func TestNothingLedWhileFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		n := startNode(t, disk.NewCrash(1), ctl, nil, twoDirs...)
		topic := ctl.create("t", 1, nil)
		epoch := ctl.register()
		n.m.Activate(epoch)
		synctest.Wait()
		_, leads := n.get(topic, 0).Leading()
		require.False(t, leads)
		ready, _ := n.m.Ready()
		require.False(t, ready)
		ctl.unfence(epoch)
		synctest.Wait()
		_, leads = n.get(topic, 0).Leading()
		require.True(t, leads)
		ctl.apply(command.BrokerState{ID: self, Epoch: epoch, Fenced: true})
		synctest.Wait()
		_, leads = n.get(topic, 0).Leading()
		require.False(t, leads)
		ctl.register() // another process with this node id
		synctest.Wait()
		_, leads = n.get(topic, 0).Leading()
		require.False(t, leads)
		n.stop()
	})
}

func TestTopicDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctl := disk.NewCrash(1), newController(t)
		var steps []string
		n, err := tryNode(t, fs, ctl, nil, func(s string) { steps = append(steps, s) }, "/data/logs")
		require.NoError(t, err)
		n.activate()
		topic := ctl.create("t", 1, nil)
		synctest.Wait()
		n.produce(topic, 0, 10)
		p := n.get(topic, 0)
		_, err = p.DeleteRecords(context.Background(), 7)
		require.NoError(t, err)
		read, err := p.Read(partition.ReadRequest{Offset: 7, MaxBytes: 1000, Replica: cluster.NoBroker, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1})
		require.NoError(t, err)

		ctl.apply(command.TopicDeleted{Topic: topic})
		again := ctl.create("t", 1, nil)
		synctest.Wait()
		require.Contains(t, steps, StepTopicDeletion)
		_, err = n.m.Get(cluster.TopicPartition{Topic: topic})
		require.ErrorIs(t, err, ErrUnknownPartition)
		_, err = produce(p, records(1))
		require.ErrorIs(t, err, partition.ErrClosed)
		// A response under way still has its bytes.
		buf := make([]byte, read.Regions[0].Bytes)
		_, err = read.Regions[0].ReadAt(buf, 0)
		require.NoError(t, err)
		read.Release()
		// OP-09: the new topic begins at 0, whatever the checkpoints held.
		require.Equal(t, cluster.Offset(0), n.produce(again, 0, 1).BaseOffset)
		require.Equal(t, 1, countSuffix(list(t, fs, "/data/logs"), deleteSuffix))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Zero(t, countSuffix(list(t, fs, "/data/logs"), deleteSuffix))
		n.stop()
		after := startNode(t, fs, ctl.fork(t), nil, "/data/logs")
		after.activate()
		require.Equal(t, cluster.Offset(1), after.produce(again, 0, 1).BaseOffset)
		require.Equal(t, cluster.Offset(0), after.get(again, 0).LogStartOffset())
		after.stop()
	})
}

func countSuffix(names []string, suffix string) int {
	n := 0
	for _, name := range names {
		if strings.HasSuffix(name, suffix) {
			n++
		}
	}
	return n
}

// TestLeftovers: folders of topics deleted while the broker was down go, and so
// do folders half removed; one of a topic that this cluster never showed is kept
// aside (M2).
// A topic that was deleted and made again under its name while the node was down
// gets nothing of the old one, and keeps what it is given.
func TestTopicMadeAgainWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctl := disk.NewCrash(1), newController(t)
		n := startNode(t, fs, ctl, nil, twoDirs[0])
		n.activate()
		old := ctl.create("t", 1, flushedTopic)
		synctest.Wait()
		for range 5 {
			n.produce(old, 0, 4)
		}
		n.kill()
		fs, ctl = fs.Kill(), ctl.fork(t)
		ctl.apply(command.TopicDeleted{Topic: old})
		topic := ctl.create("t", 1, flushedTopic)

		again := startNode(t, fs, ctl, nil, twoDirs[0])
		synctest.Wait() // the image is applied, the registration is not there yet
		again.activate()
		require.Equal(t, cluster.Offset(0), again.get(topic, 0).HighWatermark())
		again.produce(topic, 0, 3)
		time.Sleep(time.Minute) // whatever is removed late is
		require.Equal(t, cluster.Offset(3), again.produce(topic, 0, 1).BaseOffset)
		again.stop()

		third := startNode(t, fs, ctl.fork(t), nil, twoDirs[0])
		third.activate()
		require.Equal(t, cluster.Offset(4), third.get(topic, 0).HighWatermark())
		third.stop()
	})
}

func TestLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctl := disk.NewCrash(1), newController(t)
		n := startNode(t, fs, ctl, nil, "/data/logs")
		n.activate()
		topic, kept := ctl.create("gone", 1, nil), ctl.create("kept", 1, nil)
		synctest.Wait()
		n.produce(topic, 0, 1)
		n.produce(kept, 0, 1)
		n.kill()
		ctl = ctl.fork(t)
		ctl.apply(command.TopicDeleted{Topic: topic})
		// Left by a stop in the middle of a deletion, and by one in the middle
		// of a creation.
		require.NoError(t, fs.MkdirAll("/data/logs/x-0.0123456789abcdef0123456789abcdef-delete"))
		require.NoError(t, fs.MkdirAll("/data/logs/halfway-0"))
		stray := folder{dir: &dir{path: "/data/logs"}, key: folderKey{"stray", 3}, meta: partitionMeta{topic: cluster.NewTopicID(), index: indexUnknown}}
		require.NoError(t, makeFolder(fs, stray))
		// One that has records and has lost its name.
		require.NoError(t, fs.MkdirAll("/data/logs/nameless-0"))
		require.NoError(t, disk.WriteFileUnsynced(fs, "/data/logs/nameless-0/00000000000000000000.log", []byte("records")))
		require.NoError(t, disk.WriteFileUnsynced(fs, "/data/logs/nameless-0/partition.metadata", []byte("garbage")))

		n = startNode(t, fs, ctl, nil, "/data/logs")
		require.True(t, exists(fs, "/data/logs/gone-0"), "nothing is decided before the image has caught up")
		n.activate()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		names := list(t, fs, "/data/logs")
		require.Zero(t, countSuffix(names, deleteSuffix), "%v", names)
		require.Equal(t, 2, countSuffix(names, straySuffix), "%v", names)
		log := n.log.String()
		require.Regexp(t, `cluster does not know: kept under another name, remove it by hand" partition=stray-3 `, log)
		require.Regexp(t, `cannot be told whose it is.*: kept under another name.* partition=nameless-0 .* remedy="its records are in there`, log)
		require.NotRegexp(t, `remove it by hand" partition=nameless`, log)
		require.False(t, exists(fs, "/data/logs/gone-0"))
		require.False(t, exists(fs, "/data/logs/halfway-0"))
		require.Equal(t, cluster.Offset(1), n.produce(kept, 0, 1).BaseOffset)
		n.stop()
	})
}

// TestConfigChangesAreLive: a topic's and the cluster's overrides reach open
// replicas.
func TestConfigChangesAreLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		n := startNode(t, disk.NewCrash(1), ctl, nil, "/data/logs")
		n.activate()
		topic := ctl.create("t", 1, nil)
		synctest.Wait()
		require.Equal(t, int64(1<<30), n.get(topic, 0).Settings().SegmentBytes)
		ctl.apply(command.ConfigsChanged{Kind: 2, Topic: topic, Changes: []command.ConfigChange{{Key: "segment.bytes", Value: "2097152"}}})
		synctest.Wait()
		require.Equal(t, int64(2<<20), n.get(topic, 0).Settings().SegmentBytes)
		ctl.apply(command.ConfigsChanged{Kind: 4, Broker: cluster.NoBroker, Changes: []command.ConfigChange{{Key: "message.max.bytes", Value: "1234"}}})
		synctest.Wait()
		require.Equal(t, int32(1234), n.get(topic, 0).Settings().MaxMessageBytes)
		n.stop()
	})
}

// TestFailedDirectory: a directory whose disk fails goes offline with its
// replicas; the others go on.
func TestFailedDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crash, ctl := disk.NewCrash(1), newController(t)
		fs := disk.NewFault(crash, nil)
		n := startNode(t, fs, ctl, nil, twoDirs...)
		n.activate()
		topic := ctl.create("t", 4, nil)
		synctest.Wait()
		fs.SetInjector(func(op disk.Op) error {
			if strings.HasPrefix(op.Name, twoDirs[0]) {
				return disk.ErrInjected
			}
			return nil
		})
		served, offline := 0, 0
		for round := range 2 {
			served, offline = 0, 0
			for i := range int32(4) {
				_, err := produce(n.get(topic, i), records(1))
				if err == nil {
					served++
				} else {
					require.ErrorIs(t, err, partition.ErrStorage)
					offline++
				}
			}
			synctest.Wait()
			_ = round
		}
		require.Equal(t, []int{2, 2}, []int{served, offline})
		require.Equal(t, n.dirs.IDs()[:1], n.m.OfflineDirs())
		more := ctl.create("more", 2, nil)
		synctest.Wait()
		n.produce(more, 0, 1)
		n.produce(more, 1, 1)
		require.Error(t, n.m.Close(context.Background()))
		require.False(t, exists(crash, path.Join(twoDirs[0], cleanName)))
		require.True(t, exists(crash, path.Join(twoDirs[1], cleanName)))
	})
}

// TestDiskThatFailsUnderAnAnswer: what is met while a file is sent, when no answer
// can tell it any more, counts like a read that fails; a file that ends early, as
// it does where a log is cut, does not.
func TestDiskThatFailsUnderAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, disk.NewCrash(1), newController(t), nil, twoDirs...)
		n.activate()
		topic := n.ctl.create("t", 2, nil)
		synctest.Wait()
		read := func(p int32) (partition.ReadResult, error) {
			return n.get(topic, p).Read(partition.ReadRequest{MaxBytes: 1 << 20, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, Replica: cluster.NoBroker})
		}
		fail := func(p int32, cause error) {
			n.produce(topic, p, 1)
			got, err := read(p)
			require.NoError(t, err)
			require.Len(t, got.Regions, 1)
			got.Regions[0].Handle.Fail(cause)
			got.Release()
		}
		fail(1, io.ErrUnexpectedEOF)
		_, err := read(1)
		require.NoError(t, err)
		require.Empty(t, n.m.OfflineDirs())
		fail(0, os.NewSyscallError("sendfile", syscall.EIO))
		_, err = read(0)
		require.ErrorIs(t, err, partition.ErrStorage)
		require.ErrorIs(t, err, syscall.EIO)
		synctest.Wait()
		require.Len(t, n.m.OfflineDirs(), 1)
		_, err = produce(n.get(topic, 0), records(1))
		require.ErrorIs(t, err, partition.ErrStorage)
		n.produce(topic, 1, 1)
		require.Error(t, n.m.Close(context.Background()))
	})
}

// TestManyPartitions opens and closes more replicas than one sweep looks at.
func TestManyPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = sweepAll + 10
		fs, ctl := disk.NewCrash(1), newController(t)
		n := startNode(t, fs, ctl, nil, twoDirs...)
		n.activate()
		topic := ctl.create("t", many, nil)
		synctest.Wait()
		for i := range int32(many) {
			n.produce(topic, i, 1)
		}
		count := 0
		for range n.m.All() {
			count++
		}
		require.Equal(t, many, count)
		time.Sleep(10 * time.Second) // passes over all of them
		n.stop()
		again := startNode(t, fs, ctl.fork(t), nil, twoDirs...)
		again.activate()
		ready, reasons := again.m.Ready()
		require.True(t, ready, "%v", reasons)
		again.stop()
	})
}

// TestReadyOnlyWhenLed: a partition whose only replica is here and that has no
// leader yet keeps the broker from being ready, whatever the lifecycle says.
func TestReadyOnlyWhenLed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newController(t)
		n := startNode(t, disk.NewCrash(1), ctl, nil, "/data/logs")
		n.activate()
		topic := ctl.create("t", 1, nil)
		synctest.Wait()
		_, now, ok := ctl.Image().Partition(cluster.TopicPartition{Topic: topic})
		require.True(t, ok)
		ctl.apply(command.PartitionsChanged{Topic: topic, Changes: []command.PartitionChange{{
			PartitionEpoch: now.PartitionEpoch + 1, Leader: cluster.NoBroker, LeaderEpoch: now.LeaderEpoch + 1, LastKnownELR: now.ISR,
		}}})
		synctest.Wait()
		ready, reasons := n.m.Ready()
		require.False(t, ready)
		require.Equal(t, []string{"replicas: 1 partitions are not led yet"}, reasons)
		n.stop()
	})
}
