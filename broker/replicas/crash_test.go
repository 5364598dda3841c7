package replicas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/disk"
)

// promises is what clients were told: it must hold after any power loss that
// comes later.
type promises struct {
	ends   map[cluster.TopicPartition]cluster.Offset // acknowledged with flush.messages=1
	starts map[cluster.TopicPartition]cluster.Offset // answered by DeleteRecords
}

func (p promises) clone() promises {
	c := promises{map[cluster.TopicPartition]cluster.Offset{}, map[cluster.TopicPartition]cluster.Offset{}}
	for k, v := range p.ends {
		c.ends[k] = v
	}
	for k, v := range p.starts {
		c.starts[k] = v
	}
	return c
}

// loss is a disk as a power loss at one moment leaves it, the metadata of that
// moment (which is durable before anything is answered), and the promises made
// before.
type loss struct {
	fs   *disk.Crash
	ctl  *controller
	told promises
	at   string
}

// lossy takes losses at the named steps, which are half done then, and on call.
type lossy struct {
	t    testing.TB
	rng  *rand.Rand
	odds int // one in so many steps

	mu     sync.Mutex
	fs     *disk.Crash
	ctl    *controller
	told   promises
	losses []loss
}

func (l *lossy) step(at string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rng.IntN(l.odds) == 0 {
		told := l.told.clone()
		ctl := l.ctl.fork(l.t)
		l.losses = append(l.losses, loss{fs: l.fs.Clone(l.rng), ctl: ctl, told: told, at: at})
	}
}

func (l *lossy) tell(fn func(promises)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(l.told)
}

var flushedTopic = map[string]string{"flush.messages": "1", "internal.segment.bytes": "500", "retention.ms": "-1"}

// TestPowerLoss runs topics through appends, deletions of records and of topics,
// cuts the power at random steps, the ones of the recovery included, and checks
// every promise (LO-03 and design section 3, I2).
func TestPowerLoss(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lossy{t: t, rng: newRand(seed), odds: 12, fs: disk.NewCrash(seed), ctl: newController(t)}
				l.told = promises{map[cluster.TopicPartition]cluster.Offset{}, map[cluster.TopicPartition]cluster.Offset{}}
				workload(t, l)
				require.NotEmpty(t, l.losses)
				for _, one := range l.losses {
					recovered(t, one, l.rng, true)
				}
			})
		})
	}
}

func workload(t *testing.T, l *lossy) {
	n, err := tryNode(t, l.fs, l.ctl, nil, l.step, twoDirs...)
	require.NoError(t, err)
	n.activate()
	rng := newRand(l.rng.Uint64())
	topics := []cluster.TopicID{l.ctl.create("a", 2, flushedTopic), l.ctl.create("b", 1, flushedTopic)}
	synctest.Wait()
	for i := range 60 {
		topic := topics[rng.IntN(len(topics))]
		tp := cluster.TopicPartition{Topic: topic}
		p := n.get(topic, 0)
		switch rng.IntN(12) {
		case 0:
			start, err := p.DeleteRecords(context.Background(), cluster.Offset(rng.Int64N(int64(p.HighWatermark())+1)))
			require.NoError(t, err)
			l.tell(func(told promises) { told.starts[tp] = max(told.starts[tp], start) })
			if _, _, err := p.TrimLocal(start); err != nil {
				t.Fatal(err)
			}
		case 1:
			if i%4 == 0 && len(topics) > 1 {
				l.ctl.apply(command.TopicDeleted{Topic: topics[1]})
				topics[1] = l.ctl.create("b", 1, flushedTopic)
				synctest.Wait()
			}
		case 2:
			time.Sleep(time.Duration(rng.IntN(70)) * time.Second) // checkpoints, retention
		case 3:
			l.step("idle")
		default:
			result, err := produce(p, records(1+rng.IntN(4)))
			require.NoError(t, err)
			l.tell(func(told promises) { told.ends[tp] = result.LastOffset + 1 })
		}
	}
	n.kill()
}

// recovered starts a node on what a power loss left and checks the promises;
// with again it cuts the power once more while that node starts.
func recovered(t *testing.T, one loss, rng *rand.Rand, again bool) {
	l := &lossy{t: t, rng: rng, odds: 3, fs: one.fs, ctl: one.ctl, told: one.told}
	hook := func(string) {}
	if again {
		hook = l.step
	}
	n, err := tryNode(t, one.fs, one.ctl, nil, hook, twoDirs...)
	require.NoError(t, err, "after %s", one.at)
	require.Equal(t, cluster.NoBrokerEpoch, n.dirs.PreviousEpoch(), "after %s", one.at)
	n.activate()
	ready, reasons := n.m.Ready()
	require.True(t, ready, "after %s: %v", one.at, reasons)
	for topic := range one.ctl.Image().Topics() {
		tp := cluster.TopicPartition{Topic: topic.ID}
		p := n.get(topic.ID, 0)
		require.GreaterOrEqual(t, p.LogEndOffset(), one.told.ends[tp], "acknowledged records of %s after %s", topic.Name, one.at)
		require.GreaterOrEqual(t, p.LogStartOffset(), one.told.starts[tp], "deleted records of %s after %s", topic.Name, one.at)
		if _, err := produce(p, records(1)); err != nil {
			t.Fatalf("produce after %s: %v", one.at, err)
		}
		readAll(t, p)
	}
	n.kill()
	for _, next := range l.losses {
		recovered(t, next, rng, false)
	}
}

// readAll reads from the log start to the high watermark: whole valid batches,
// each where the last one ended.
func readAll(t *testing.T, p *partition.Partition) {
	next := p.LogStartOffset()
	for next < p.HighWatermark() {
		r, err := p.Read(partition.ReadRequest{Offset: next, MaxBytes: 700, MinOneBatch: true, Replica: cluster.NoBroker, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1})
		require.NoError(t, err)
		require.NotZero(t, r.Bytes)
		for _, region := range r.Regions {
			data := make([]byte, region.Bytes)
			_, _ = region.ReadAt(data, 0)
			for len(data) > 0 {
				b, rest, err := recordbatch.First(data)
				require.NoError(t, err)
				require.NoError(t, b.Verify())
				require.LessOrEqual(t, b.BaseOffset(), next)
				require.Greater(t, b.NextOffset(), next)
				next, data = b.NextOffset(), rest
			}
		}
		r.Release()
	}
}

// TestEveryFailingCall fails the i-th call of the disk during start, work and
// stop until a run passes: a refused start says why, nothing acknowledged is
// lost, nothing hangs.
func TestEveryFailingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := int64(1)
		for i := int64(0); ; i += step {
			if i > 60 {
				step = 7 // the calls repeat themselves
			}
			if !failingRun(t, i) {
				return
			}
			require.Less(t, i, int64(20_000))
		}
	})
}

// failingRun reports whether the fault was hit.
func failingRun(t *testing.T, i int64) bool {
	crash, ctl := disk.NewCrash(1), newController(t)
	var hit atomic.Bool
	once := disk.FailOnce(i)
	fs := disk.NewFault(crash, func(op disk.Op) error {
		err := once(op)
		if err != nil {
			hit.Store(true)
		}
		return err
	})
	topic := ctl.create("t", 1, flushedTopic)
	acked := cluster.Offset(0)
	n, err := tryNode(t, fs, ctl, nil, nil, "/data/logs")
	if err == nil {
		n.activate()
		for range 5 {
			p, err := n.m.Get(cluster.TopicPartition{Topic: topic})
			if err != nil {
				time.Sleep(2 * time.Second) // another try to make it
				continue
			}
			if result, err := produce(p, records(3)); err == nil {
				acked = result.LastOffset + 1
			}
			_, _ = p.DeleteRecords(context.Background(), 3)
		}
		closeErr := n.m.Close(context.Background())
		if len(n.m.OfflineDirs()) > 0 {
			require.Error(t, closeErr)
		}
	}
	fs.SetInjector(nil)
	after := startNode(t, crash, ctl.fork(t), nil, "/data/logs")
	after.activate()
	p := after.get(topic, 0)
	require.GreaterOrEqual(t, p.LogEndOffset(), acked, "call %d", i)
	readAll(t, p)
	after.stop()
	return hit.Load()
}

func TestUnreadableReplicaIsOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crash, ctl := disk.NewCrash(1), newController(t)
		n := startNode(t, crash, ctl, nil, "/data/logs")
		n.activate()
		topic := ctl.create("t", 2, nil)
		synctest.Wait()
		n.produce(topic, 0, 1)
		n.kill()
		fs := disk.NewFault(crash, func(op disk.Op) error {
			if op.Kind == disk.OpReadAt && op.Name == "/data/logs/t-0/00000000000000000000.log" {
				return disk.ErrInjected
			}
			return nil
		})
		again := startNode(t, fs, ctl.fork(t), nil, "/data/logs")
		_, err := again.m.Get(cluster.TopicPartition{Topic: topic})
		require.True(t, errors.Is(err, ErrOffline), "%v", err)
		again.kill()
	})
}
