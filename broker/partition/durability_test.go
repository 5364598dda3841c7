package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/locallog"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
)

// syncGate holds the syncs of .log files until it is opened.
type syncGate struct {
	entered chan struct{}
	open    chan struct{}
}

func holdSyncs(f *fixture) *syncGate {
	g := &syncGate{entered: make(chan struct{}, 100), open: make(chan struct{})}
	f.fs.SetInjector(func(op disk.Op) error {
		if op.Kind == disk.OpSyncData && strings.HasSuffix(op.Name, ".log") {
			g.entered <- struct{}{}
			<-g.open
		}
		return nil
	})
	return g
}

// TestAckWaitsForSync is P2 with a disk whose sync does not come back: nothing is
// acknowledged or visible meanwhile, and everything that arrived in between
// shares the next sync.
func TestAckWaitsForSync(t *testing.T) {
	settings := testSettings()
	settings.FlushMessages = 1
	f := leadAlone(t, settings)
	gate := holdSyncs(f)
	var commits []*Commit
	for i := range 10 {
		acks := int16(-1)
		if i%2 == 0 {
			acks = 1
		}
		_, commit, err := f.p.Append(AppendRequest{Records: f.batch(1), CurrentLeaderEpoch: cluster.NoLeaderEpoch, RequiredAcks: acks})
		require.NoError(t, err)
		require.NotNil(t, commit)
		commits = append(commits, commit)
	}
	<-gate.entered
	require.Equal(t, cluster.Offset(0), f.p.HighWatermark())
	r, err := f.p.Read(consumer(0))
	require.NoError(t, err)
	require.Zero(t, r.Bytes)
	for _, c := range commits {
		select {
		case <-c.Done():
			t.Fatal("acknowledged before the sync")
		default:
		}
	}
	close(gate.open)
	for _, c := range commits {
		require.NoError(t, c.Err())
	}
	require.Equal(t, cluster.Offset(10), f.p.HighWatermark())
	require.LessOrEqual(t, len(gate.entered), 1, "the appends that waited share a sync")
}

// TestWaiterIsWokenByCommit: a long poll is woken when the sync lets the high
// watermark rise (FE-01).
func TestWaiterIsWokenByCommit(t *testing.T) {
	settings := testSettings()
	settings.FlushMessages = 1
	f := leadAlone(t, settings)
	w := NewWaiter()
	f.p.AddWaiter(w)
	defer f.p.RemoveWaiter(w)
	f.append(f.batch(1))
	<-w.C
	r, err := f.p.Read(consumer(0))
	require.NoError(t, err)
	require.NotZero(t, r.Bytes)
	r.Release()
	_, err = f.p.DeleteRecords(context.Background(), 1)
	require.NoError(t, err)
	<-w.C
	f.p.Resign()
	<-w.C
}

func TestFailedSyncTakesReplicaOffline(t *testing.T) {
	settings := testSettings()
	settings.FlushMessages = 1
	f := newFixture(t, settings)
	told := make(chan error, 1)
	f.p.cfg.OnOffline = func(err error) { told <- err }
	f.lead(1)
	f.fs.SetInjector(disk.FailFrom(0, disk.OpSyncData))
	_, err := f.try(f.batch(1), -1)
	require.ErrorIs(t, err, ErrStorage)
	require.ErrorIs(t, <-told, ErrStorage)
	f.fs.SetInjector(nil)
	_, err = f.try(f.batch(1), 1)
	require.ErrorIs(t, err, ErrStorage, "a failed sync is never tried again on the same file")
	_, err = f.p.Read(consumer(0))
	require.ErrorIs(t, err, ErrStorage)
	_, leads := f.p.Leading()
	require.False(t, leads)
	require.Error(t, f.p.Close(true))
}

func TestFullDiskRefusesAndRecovers(t *testing.T) {
	f := newFixture(t, testSettings())
	full := true
	f.p.cfg.DiskFull = func() bool { return full }
	f.lead(1)
	_, err := f.try(f.batch(1), 1)
	require.ErrorIs(t, err, ErrDiskFull)
	full = false
	f.append(f.batch(1))
}

func TestCloseFailsWhatWaits(t *testing.T) {
	settings := testSettings()
	settings.MinInsyncReplicas = 2
	f := newFixture(t, settings)
	two := []cluster.BrokerID{self, 2}
	require.NoError(t, f.p.Become(context.Background(), Leadership{Leader: self, LeaderEpoch: 1, Replicas: two, ISR: two}))
	_, commit, err := f.p.Append(AppendRequest{Records: f.batch(1), CurrentLeaderEpoch: cluster.NoLeaderEpoch, RequiredAcks: -1})
	require.NoError(t, err)
	require.NoError(t, f.p.Close(true))
	require.NoError(t, f.p.Close(true))
	require.ErrorIs(t, commit.Err(), ErrClosed)
	_, _, err = f.p.Append(AppendRequest{Records: f.batch(1), CurrentLeaderEpoch: cluster.NoLeaderEpoch})
	require.ErrorIs(t, err, ErrClosed)
}

// TestAcknowledgedSurvivesPowerLoss clones the disk as a power loss would leave
// it at random points, with flush.messages=1, and opens the log again: every
// acknowledged batch is there, in order, and what is left is a prefix.
func TestAcknowledgedSurvivesPowerLoss(t *testing.T) {
	settings := testSettings()
	settings.FlushMessages = 1
	settings.SegmentBytes = 600
	rng := rand.New(rand.NewPCG(7, 7))
	for round := range 12 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			f := leadAlone(t, settings)
			acked := 0
			var open []*Commit
			for i := range 1 + rng.IntN(20) {
				_, commit, err := f.p.Append(AppendRequest{Records: f.batch(2, idempotent(5, 0, int32(2*i))), CurrentLeaderEpoch: cluster.NoLeaderEpoch, RequiredAcks: -1})
				require.NoError(t, err)
				if commit != nil {
					open = append(open, commit)
				}
				if rng.IntN(3) == 0 {
					for _, c := range open {
						require.NoError(t, c.Err())
					}
					open, acked = nil, 2*(i+1)
				}
			}
			after := f.crash.Clone(rng)
			f.p.flushers.Wait()
			g := &fixture{t: t, crash: after, fs: disk.NewFault(after, nil), now: f.now, config: f.config}
			g.open(locallog.Config{LogStart: cluster.NoOffset})
			defer func() { _ = g.p.Close(false) }()
			g.lead(2)
			require.GreaterOrEqual(t, int(g.p.LogEndOffset()), acked)
			g.waitVisible()
			next := cluster.Offset(0)
			for next < g.p.HighWatermark() {
				r, err := g.p.Read(consumer(next))
				require.NoError(t, err)
				for _, b := range batchesOf(t, bytesOf(t, &r)) {
					require.NoError(t, b.Verify())
					require.Equal(t, next, b.BaseOffset())
					next = b.NextOffset()
				}
			}
			// LO-03: the producer goes on where the log ends, and a batch that
			// survived is a duplicate.
			end := int32(g.p.LogEndOffset())
			if end > 0 {
				result := g.append(g.batch(2, idempotent(5, 0, end-2)))
				require.True(t, result.Duplicate)
			}
			result := g.append(g.batch(2, idempotent(5, 0, end)))
			require.Equal(t, cluster.Offset(end), result.BaseOffset)
		})
	}
}

// waitVisible returns once the high watermark has reached the log's end.
func (f *fixture) waitVisible() {
	w := NewWaiter()
	f.p.AddWaiter(w)
	defer f.p.RemoveWaiter(w)
	for f.p.HighWatermark() < f.p.LogEndOffset() {
		<-w.C
	}
}

// TestEveryFailingCall injects an error at the i-th call of the disk until a
// whole run passes: no acknowledged batch is lost, no error is silent, nothing
// panics, and the replica is offline or goes on.
func TestEveryFailingCall(t *testing.T) {
	settings := testSettings()
	settings.SegmentBytes = 400
	settings.FlushMessages = 1
	for i := int64(0); ; i++ {
		require.Less(t, i, int64(2000), "the run never passed")
		f := leadAlone(t, settings)
		var failed atomic.Bool
		once := disk.FailOnce(i)
		f.fs.SetInjector(func(op disk.Op) error {
			err := once(op)
			if err != nil {
				failed.Store(true)
			}
			return err
		})
		acked := f.exercise()
		f.fs.SetInjector(nil)
		f.p.flushers.Wait()
		_ = f.p.Close(false)
		g := &fixture{t: t, crash: f.crash, fs: disk.NewFault(f.crash, nil), now: f.now, config: f.config}
		g.open(locallog.Config{LogStart: cluster.NoOffset})
		require.GreaterOrEqual(t, int(g.p.LogEndOffset()), acked, "call %d", i)
		_ = g.p.Close(false)
		if !failed.Load() {
			return
		}
	}
}

// exercise appends, rolls, advances the log start and trims, and returns the
// end of what was acknowledged.
func (f *fixture) exercise() int {
	acked := 0
	for i := range 8 {
		if result, err := f.try(f.batch(2), -1); err == nil {
			acked = int(result.LastOffset) + 1
		} else {
			require.True(f.t, errors.Is(err, ErrStorage) || errors.Is(err, ErrDiskFull), "%v", err)
		}
		if i == 5 {
			_, _ = f.p.AdvanceLogStart(context.Background(), 4)
			_, _, _ = f.p.TrimLocal(4)
		}
	}
	return acked
}

func TestDecompressionBombStaysOnline(t *testing.T) {
	f := leadAlone(t, testSettings())
	b := recordbatch.NewBuilder(recordbatch.Options{Codec: recordbatch.Zstd})
	b.Add(startTime.UnixMilli(), []byte("k"), make([]byte, 1000))
	batch := b.Build()
	// Claims to be compressed, is not: the header and checksum are right.
	junk := append(append([]byte(nil), batch[:recordbatch.HeaderBytes]...), "this is not zstd"...)
	bad := recordbatch.Batch(junk)
	bad[11] = byte(len(junk) - recordbatch.PrefixBytes)
	bad[8], bad[9], bad[10] = 0, 0, byte((len(junk)-recordbatch.PrefixBytes)>>8)
	crc := bad.ComputeCRC()
	bad[17], bad[18], bad[19], bad[20] = byte(crc>>24), byte(crc>>16), byte(crc>>8), byte(crc)
	f.append(bad)
	_, err := f.p.ListOffset(context.Background(), ListOffsetRequest{Timestamp: startTime.UnixMilli(), Replica: cluster.NoBroker, CurrentLeaderEpoch: cluster.NoLeaderEpoch})
	require.ErrorIs(t, err, ErrCorruptBatch)
	f.append(f.batch(1))
}

func TestBatchesThatGrowTooMuchAreRefused(t *testing.T) {
	b := recordbatch.NewBuilder(recordbatch.Options{Codec: recordbatch.Zstd})
	b.Add(startTime.UnixMilli(), []byte("k"), make([]byte, 100_000))
	settings := testSettings()
	settings.CleanupPolicy = config.CleanupCompact // the keys must be looked at
	settings.MaxDecompressedBytes = 101_000
	f := leadAlone(t, settings)
	f.append(b.Build())
	settings.MaxDecompressedBytes = 99_000
	f = leadAlone(t, settings)
	_, err := f.try(b.Build(), -1)
	require.ErrorIs(t, err, ErrInvalidRecord)
}

// TestAppendsThatAreFlushedLater leave the sync to FlushAppended, which does it on
// its caller's goroutine, or leaves it to whoever is at it.
func TestAppendsThatAreFlushedLater(t *testing.T) {
	settings := testSettings()
	settings.FlushMessages = 1
	f := leadAlone(t, settings)
	later := func() {
		t.Helper()
		_, commit, err := f.p.Append(AppendRequest{
			Records: f.batch(1), CurrentLeaderEpoch: cluster.NoLeaderEpoch, RequiredAcks: -1, Origin: FromCoordinator, FlushLater: true,
		})
		require.NoError(t, err)
		require.Nil(t, commit)
	}
	var syncs atomic.Int64
	f.fs.SetInjector(func(op disk.Op) error {
		if op.Kind == disk.OpSyncData && strings.HasSuffix(op.Name, ".log") {
			syncs.Add(1)
		}
		return nil
	})
	later()
	later()
	require.Zero(t, f.p.HighWatermark())
	require.Zero(t, syncs.Load(), "nobody has synced")
	f.p.FlushAppended()
	require.Equal(t, cluster.Offset(2), f.p.HighWatermark())
	f.p.FlushAppended()
	require.EqualValues(t, 1, syncs.Load(), "there was nothing to sync")

	gate := holdSyncs(f)
	later()
	done := make(chan struct{})
	go func() { f.p.FlushAppended(); close(done) }()
	<-gate.entered
	later()
	f.p.FlushAppended() // another is at it, and syncs again
	_, commit, err := f.p.Append(AppendRequest{Records: f.batch(1), CurrentLeaderEpoch: cluster.NoLeaderEpoch, RequiredAcks: -1})
	require.NoError(t, err)
	require.Equal(t, cluster.Offset(2), f.p.HighWatermark())
	close(gate.open)
	<-done
	require.NoError(t, commit.Err())
	require.Equal(t, cluster.Offset(5), f.p.HighWatermark())

	f.fs.SetInjector(disk.FailFrom(0, disk.OpSyncData))
	later()
	f.p.FlushAppended()
	require.Equal(t, cluster.Offset(5), f.p.HighWatermark(), "what is not synced is not decided")
	_, leads := f.p.Leading()
	require.False(t, leads)
	f.p.FlushAppended()
}
