package serve

import (
	"bytes"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/coordinator"
	"strandline/broker/groups"
	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// undecided is a partition that is led; of its log nothing is decided until a later
// tenure finds it empty.
type undecided struct {
	tp    cluster.TopicPartition
	later atomic.Bool
	woken atomic.Pointer[partition.Waiter]
}

func (u *undecided) TopicPartition() cluster.TopicPartition { return u.tp }

func (u *undecided) LogState() partition.LogState {
	if u.later.Load() {
		return partition.LogState{Leading: true, LeaderEpoch: 1}
	}
	return partition.LogState{Leading: true, LogEndOffset: 1}
}

func (u *undecided) EpochAt(cluster.Offset) (cluster.LeaderEpoch, bool) {
	return cluster.NoLeaderEpoch, false
}

func (u *undecided) ReadDecided(dst []byte, _ cluster.Offset, _ int) ([]byte, error) { return dst, nil }

func (u *undecided) Append(partition.AppendRequest) (partition.AppendResult, *partition.Commit, error) {
	return partition.AppendResult{}, nil, partition.ErrNotLeader
}

func (u *undecided) FlushAppended()                 {}
func (u *undecided) AddWaiter(w *partition.Waiter)  { u.woken.Store(w) }
func (u *undecided) RemoveWaiter(*partition.Waiter) {}

// quiet is a machine that does nothing.
type quiet struct{}

func (quiet) Load(time.Time, coordinator.Reader) error { return nil }
func (quiet) Deadline() time.Time                      { return time.Time{} }
func (quiet) Tick(time.Time, *coordinator.Tx)          {}
func (quiet) Unload(error)                             {}

func TestAStartWaitsForCoordinatorsAndNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		views, err := coordinator.OpenViews(coordinator.ViewsConfig{FS: disk.NewCrash(1), Dir: "/views"})
		require.NoError(t, err)
		var logged bytes.Buffer
		n := &Node{cfg: Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, coordinated: coordinated{}}
		r := coordinator.New(coordinator.Config{
			Topic: groups.Topic, Views: views, Schema: groups.Schema{},
			NewMachine: func(int32, cluster.LeaderEpoch) coordinator.Machine { return quiet{} },
		})
		n.coordinated[groups.Topic] = r
		defer func() {
			require.NoError(t, r.Close())
			require.NoError(t, views.Close())
		}()
		require.True(t, n.awaitCoordinators(0), "nothing is led")
		require.Empty(t, logged.String())

		p := &undecided{}
		r.Host(p)
		synctest.Wait()
		require.False(t, n.awaitCoordinators(coordinatorsPatience-1))
		ready, reasons := n.coordinatorsReady()
		require.False(t, ready)
		require.Equal(t, []string{"coordinators: 1 partitions of __consumer_offsets are loading"}, reasons)
		require.True(t, n.awaitCoordinators(coordinatorsPatience), "not for ever")
		require.Contains(t, logged.String(), "still loading")
		logged.Reset()

		p.later.Store(true)
		p.woken.Load().C <- struct{}{}
		time.Sleep(2 * time.Second)
		require.True(t, n.awaitCoordinators(0))
		require.Contains(t, logged.String(), `msg="coordinators loaded" topic=__consumer_offsets partitions=1 failed=0`)
		n.coordinates.Store(true)
		ready, reasons = n.coordinatorsReady()
		require.True(t, ready)
		require.Empty(t, reasons)
	})
}
