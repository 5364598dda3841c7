package replicas

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// otherDir is the directory of twoDirs that the replica is not in.
func (n *node) otherDir(tp cluster.TopicPartition) string {
	n.t.Helper()
	at, ok := n.m.DirOf(tp)
	require.True(n.t, ok)
	if at == twoDirs[0] {
		return twoDirs[1]
	}
	return twoDirs[0]
}

// moved waits until the replica is in a directory.
func (n *node) moved(tp cluster.TopicPartition, to string) bool {
	for range 50 {
		synctest.Wait()
		if at, _ := n.m.DirOf(tp); at == to {
			return true
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

// TestMove moves a replica there and back while it is written to. No append
// fails, everything is read back, what was deleted stays so, and the former
// folder goes.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctl := disk.NewCrash(1), newController(t)
		n := startNode(t, fs, ctl, nil, twoDirs...)
		n.activate()
		topic := ctl.create("t", 1, flushedTopic)
		synctest.Wait()
		tp := cluster.TopicPartition{Topic: topic}
		for range 60 {
			n.produce(topic, 0, 3)
		}
		_, err := n.get(topic, 0).DeleteRecords(context.Background(), 20)
		require.NoError(t, err)
		require.ErrorIs(t, n.m.Move(tp, "/data/elsewhere"), ErrNoSuchDir)
		require.ErrorIs(t, n.m.Move(cluster.TopicPartition{Topic: topic, Partition: 7}, twoDirs[0]), ErrUnknownPartition)
		acked := cluster.Offset(180)
		for range 3 {
			to := n.otherDir(tp)
			from, _ := n.m.DirOf(tp)
			stop := make(chan struct{})
			var writer sync.WaitGroup
			writer.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Microsecond):
						acked = n.produce(topic, 0, 2).LastOffset + 1
					}
				}
			})
			require.NoError(t, n.m.Move(tp, to))
			require.NoError(t, n.m.Move(tp, to), "again: nothing new")
			there := false
			for i := 0; i < 100 && !there; i++ {
				time.Sleep(time.Millisecond)
				at, _ := n.m.DirOf(tp)
				there = at == to
			}
			close(stop)
			writer.Wait()
			require.True(t, there, n.log.String())
			p := n.get(topic, 0)
			require.Equal(t, acked, p.LogEndOffset())
			require.Equal(t, cluster.Offset(20), p.LogStartOffset())
			readAll(t, p)
			require.True(t, exists(fs, path.Join(to, "t-0")))
			require.False(t, exists(fs, path.Join(from, "t-0")))
			time.Sleep(5 * time.Second)
			synctest.Wait()
			for _, dir := range twoDirs {
				for _, name := range list(t, fs, dir) {
					require.False(t, strings.HasSuffix(name, deleteSuffix) || strings.HasSuffix(name, futureSuffix), "%s in %s", name, dir)
				}
			}
		}
		sizes := n.m.DirSizes()
		require.Len(t, sizes, 2)
		require.Equal(t, 1, len(sizes[0].Replicas)+len(sizes[1].Replicas))
		n.stop()
		again := startNode(t, fs, ctl.fork(t), nil, twoDirs...)
		again.activate()
		p := again.get(topic, 0)
		require.Equal(t, acked, p.LogEndOffset())
		require.Equal(t, cluster.Offset(20), p.LogStartOffset())
		readAll(t, p)
		again.stop()
	})
}

// TestMoveToldToTheController: the controller learns where replicas lie.
func TestMoveToldToTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, ctl := disk.NewCrash(1), newController(t)
		n := startNode(t, fs, ctl, nil, twoDirs...)
		var mu sync.Mutex
		told := map[cluster.TopicPartition]cluster.DirectoryID{}
		n.m.cfg.Assign = func(_ context.Context, dirs map[cluster.TopicPartition]cluster.DirectoryID) error {
			mu.Lock()
			defer mu.Unlock()
			for tp, d := range dirs {
				told[tp] = d
			}
			return nil
		}
		n.activate()
		topic := ctl.create("t", 1, nil)
		synctest.Wait()
		tp := cluster.TopicPartition{Topic: topic}
		n.produce(topic, 0, 3)
		to := n.otherDir(tp)
		require.NoError(t, n.m.Move(tp, to))
		require.True(t, n.moved(tp, to))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		mu.Lock()
		require.Equal(t, n.m.dirAt(to).id, told[tp])
		mu.Unlock()
		n.stop()
	})
}

// TestPowerLossDuringAMove cuts the power before every change of the disk that a
// move makes, while the replica is written to: nothing acknowledged is lost,
// nothing deleted comes back, and the move goes on by itself.
func TestPowerLossDuringAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crash, ctl := disk.NewCrash(3), newController(t)
		l := &lossy{t: t, rng: newRand(3), odds: 2, fs: crash, ctl: ctl}
		l.told = promises{map[cluster.TopicPartition]cluster.Offset{}, map[cluster.TopicPartition]cluster.Offset{}}
		fs := disk.NewFault(crash, nil)
		n := startNode(t, fs, ctl, nil, twoDirs...)
		n.activate()
		topic := ctl.create("t", 1, flushedTopic)
		synctest.Wait()
		tp := cluster.TopicPartition{Topic: topic}
		write := func() {
			end := n.produce(topic, 0, 3).LastOffset + 1
			l.tell(func(told promises) { told.ends[tp] = end })
		}
		for range 20 {
			write()
		}
		start, err := n.get(topic, 0).DeleteRecords(context.Background(), 10)
		require.NoError(t, err)
		l.tell(func(told promises) { told.starts[tp] = start })
		to := n.otherDir(tp)
		fs.SetInjector(func(op disk.Op) error {
			if op.Kind.Mutates() {
				l.step(fmt.Sprintf("before %s of %s", op.Kind, op.Name))
			}
			return nil
		})
		require.NoError(t, n.m.Move(tp, to))
		for range 5 {
			write()
		}
		require.True(t, n.moved(tp, to))
		write()
		fs.SetInjector(nil)
		l.step("after")
		n.kill()
		require.Greater(t, len(l.losses), 20)
		for _, one := range l.losses {
			recovered(t, one, l.rng, false)
			// A second start finds one folder, whatever the first one had to do.
			again := startNode(t, one.fs, one.ctl.fork(t), nil, twoDirs...)
			again.activate()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			folders := 0
			for _, dir := range twoDirs {
				for _, name := range list(t, one.fs, dir) {
					if strings.HasPrefix(name, "t-0") {
						folders++
					}
				}
			}
			require.Equal(t, 1, folders, "after %s", one.at)
			again.kill()
		}
	})
}

// TestErrorDuringAMove fails every call of a move once, with a broken and with a
// full disk. The replica is in the one or the other directory, or offline with
// that; after a start with good disks everything is there.
func TestErrorDuringAMove(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		t.Run(cause.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i := int64(0); erringMove(t, cause, i); i++ {
					require.Less(t, i, int64(500))
				}
			})
		})
	}
}

func erringMove(t *testing.T, cause error, i int64) (hit bool) {
	crash, ctl := disk.NewCrash(uint64(i)), newController(t)
	fs := disk.NewFault(crash, nil)
	n := startNode(t, fs, ctl, nil, twoDirs...)
	n.activate()
	topic := ctl.create("t", 1, flushedTopic)
	synctest.Wait()
	tp := cluster.TopicPartition{Topic: topic}
	for range 10 {
		n.produce(topic, 0, 3)
	}
	to := n.otherDir(tp)
	var mu sync.Mutex
	calls := int64(0)
	fs.SetInjector(func(op disk.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == disk.OpUsage || op.Kind == disk.OpStat {
			return nil
		}
		if calls++; calls-1 != i {
			return nil
		}
		hit = true
		return fmt.Errorf("%s of %s: %w", op.Kind, op.Name, cause)
	})
	require.NoError(t, n.m.Move(tp, to))
	n.moved(tp, to)
	fs.SetInjector(nil)
	where := fmt.Sprintf("%v at call %d", cause, i)
	acked := cluster.Offset(30)
	if p, err := n.m.Get(tp); err == nil {
		result, err := produce(p, records(1))
		if err == nil {
			acked = result.LastOffset + 1
			readAll(t, p)
		} else {
			require.True(t, len(n.m.OfflineDirs()) > 0 || errors.Is(cause, syscall.ENOSPC), "%s: %v", where, err)
			require.ErrorIs(t, err, partition.ErrStorage, where)
		}
	}
	n.kill()
	after := startNode(t, crash, ctl.fork(t), nil, twoDirs...)
	after.activate()
	p := after.get(topic, 0)
	require.Equal(t, acked, p.LogEndOffset(), where)
	readAll(t, p)
	after.stop()
	return hit
}
