package coordinator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/locallog"
	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
)

const self = cluster.BrokerID(1)

// offsetsTopic is how __consumer_offsets is created, with small segments.
func offsetsTopic() config.Topic {
	return config.Topic{
		CleanupPolicy: config.CleanupCompact, RetentionTime: config.Forever, RetentionBytes: config.Unlimited,
		LocalRetentionTime: config.Forever, LocalRetentionBytes: config.Unlimited,
		SegmentBytes: 4096, SegmentAge: 7 * 24 * time.Hour, IndexBytes: 1 << 16, IndexInterval: 512,
		FlushMessages: 1, FlushInterval: config.Forever, MaxMessageBytes: 1 << 20,
		TimestampBeforeMax: config.Forever, TimestampAfterMax: time.Hour, MinInsyncReplicas: 1, FileDeleteDelay: time.Minute,
		CompressionType: "producer",
	}
}

// openPartition opens a real replica; with clean it was closed in order.
func openPartition(t testing.TB, fs disk.FS, dir string, settings config.Topic, recovery, mark cluster.Offset) *partition.Partition {
	require.NoError(t, disk.EnsureDir(fs, dir))
	log, err := locallog.Open(locallog.Config{
		FS: fs, Dir: dir, Partition: "__consumer_offsets-0", Settings: partition.LogSettings(settings),
		LogStart: cluster.NoOffset, RecoveryPoint: recovery, Recent: locallog.NewRecent(0),
	})
	require.NoError(t, err)
	return partition.New(partition.Config{
		TopicPartition: cluster.TopicPartition{Topic: cluster.TopicID{7}}, Topic: "__consumer_offsets", Self: self, Settings: settings, Log: log, HighWatermark: mark,
	})
}

func lead(t testing.TB, p *partition.Partition, epoch cluster.LeaderEpoch) {
	one := []cluster.BrokerID{self}
	require.NoError(t, p.Become(context.Background(), partition.Leadership{Leader: self, LeaderEpoch: epoch, Replicas: one, ISR: one}))
}

// TestAcknowledgedPairsSurvivePowerLosses runs the runtime over a real replica of
// a topic as it is created, on one disk with its views, and cuts the power at
// random moments: what was acknowledged is there, from whatever was left of log and
// views.
func TestAcknowledgedPairsSurvivePowerLosses(t *testing.T) {
	for seed := range seedsOr(15) {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *disk.Crash) { powerLosses(t, uint64(seed)) })
		})
	}
}

func powerLosses(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	fs := disk.NewCrash(seed)
	acked, asked := map[string]int{}, map[string]int{} // the highest value of a key
	mark := cluster.NoOffset
	for epoch := cluster.LeaderEpoch(0); epoch < 8; epoch++ {
		k := newKit(t, fs, func(c *Config) { c.Limits.ApplyBytes = 1 + rng.IntN(4000) })
		p := openPartition(t, fs, "/logs/o-0", offsetsTopic(), 0, mark)
		k.r.Host(p)
		lead(t, p, epoch)
		synctest.Wait()
		for key, value := range k.read(0) {
			got, err := strconv.Atoi(value)
			require.NoError(t, err)
			require.LessOrEqual(t, acked[key], got, "an acknowledged value of %s went back", key)
			require.LessOrEqual(t, got, asked[key], "a value of %s that nobody asked for", key)
			acked[key] = got // it may have survived without an answer
		}
		for key := range acked {
			require.Contains(t, k.read(0), key)
		}
		steps, lossAt := 20+rng.IntN(40), rng.IntN(60)
		var lost *disk.Crash
		var off atomic.Bool
		for step := range steps {
			for range 1 + rng.IntN(5) {
				key := fmt.Sprint("k", rng.IntN(8))
				asked[key]++
				value := asked[key]
				require.NoError(t, k.r.Do(0, func(_ time.Time, m Machine, tx *Tx) {
					m.(*ledger).put(tx, key, strconv.Itoa(value), func(err error) {
						if err == nil && !off.Load() {
							acked[key] = max(acked[key], value)
						}
					})
				}))
			}
			if step == lossAt {
				off.Store(true)
				mark = p.HighWatermark() // as it may be checkpointed on the same disk
				lost = fs.Clone(rng)     // in the middle of it
			}
			if rng.IntN(2) == 0 {
				synctest.Wait()
			}
			if rng.IntN(20) == 0 {
				time.Sleep(syncEvery)
			}
		}
		if lost == nil {
			off.Store(true)
			mark, lost = p.HighWatermark(), fs.Kill()
		}
		mark = cluster.Offset(rng.Int64N(int64(mark) + 1))
		require.NoError(t, k.r.Close())
		require.NoError(t, k.views.Close())
		require.NoError(t, p.Close(false))
		synctest.Wait()
		fs = lost
	}
}

// TestARealFollowerIsFed holds that a replica that does not lead is read below its
// high watermark.
func TestARealFollowerIsFed(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		p := openPartition(t, fs, "/logs/o-0", offsetsTopic(), 0, cluster.NoOffset)
		lead(t, p, 1)
		k.r.Host(p)
		synctest.Wait()
		for i := range 200 { // several segments
			k.put(0, fmt.Sprint("k", i%7), fmt.Sprint(i))
			synctest.Wait()
		}
		want := k.read(0)
		require.Len(t, want, 7)
		require.NoError(t, p.Become(context.Background(), partition.Leadership{Leader: 2, LeaderEpoch: 2, Replicas: []cluster.BrokerID{1, 2}}))
		synctest.Wait()
		require.ErrorIs(t, k.r.Do(0, nil), ErrNotCoordinator)
		require.NoError(t, k.r.Close())
		require.NoError(t, k.views.Close())
		require.NoError(t, fs.RemoveAll("/m/views"))
		k.openViews()
		k.cfg.Views = k.views
		k.r = New(k.cfg)
		k.r.Host(p)
		synctest.Wait()
		require.Equal(t, p.HighWatermark(), k.applied(p.TopicPartition()))
		lead(t, p, 3)
		synctest.Wait()
		require.Equal(t, want, k.read(0))
		k.close()
		require.NoError(t, p.Close(true))
	})
}
