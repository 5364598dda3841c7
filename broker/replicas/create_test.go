package replicas

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// TestCreationWaitsForNoDisk makes many partitions without a sync for each, and
// writes to one with flush.messages=1, which has to survive a power loss that
// takes everything that was not synced. The others begin anew after it.
func TestCreationWaitsForNoDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 50
		crash := disk.NewCrash(1)
		fs := disk.NewFault(crash, nil)
		ctl := newController(t)
		n := startNode(t, fs, ctl, nil, "/a")
		n.activate()
		synctest.Wait()
		var syncs atomic.Int64
		fs.SetInjector(func(op disk.Op) error {
			if op.Kind == disk.OpSyncData || op.Kind == disk.OpSyncDir {
				syncs.Add(1)
			}
			return nil
		})
		topic := ctl.create("many", many, map[string]string{"flush.messages": "1"})
		synctest.Wait()
		for i := range int32(many) {
			require.NotNil(t, n.get(topic, i))
		}
		require.Less(t, syncs.Load(), int64(many/2))
		const written = 7
		n.produce(topic, written, 3)
		lost := crash.Clone(nil)
		n.kill()

		n = startNode(t, lost, ctl.fork(t), nil, "/a")
		n.activate()
		synctest.Wait()
		for i := range int32(many) {
			want := cluster.Offset(0)
			if i == written {
				want = 3
			}
			require.Equal(t, want, n.get(topic, i).LogEndOffset())
		}
		n.stop()
	})
}

// TestEveryReplicaIsSwept holds that of many replicas none waits longer than a
// round for its flush.ms.
func TestEveryReplicaIsSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = sweepAll + 40
		ctl := newController(t)
		n := startNode(t, disk.NewCrash(1), ctl, nil, "/a")
		n.activate()
		topic := ctl.create("many", many, map[string]string{"flush.ms": "1"})
		synctest.Wait()
		time.Sleep(3 * housekeepingEvery) // in the middle of a round
		for i := range int32(many) {
			n.produce(topic, i, 1)
		}
		time.Sleep(2 * sweepRounds * housekeepingEvery)
		synctest.Wait()
		for i := range int32(many) {
			require.Equal(t, cluster.Offset(1), n.get(topic, i).FlushedOffset())
		}
		n.stop()
	})
}
