package partition

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/locallog"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// TestReadersNeverSeeSeam runs an appender, readers at random offsets, and a
// tier that publishes and trims as fast as it can. Every read in range returns
// batches that reach past its offset and are the ones appended (I7, I8); offsets
// of an answer are in order and never fall (I1); no read in range is ever out of
// range (TI-23, I4).
func TestReadersNeverSeeSeam(t *testing.T) {
	settings := testSettings()
	settings.Tiered = true
	settings.SegmentBytes = 1200
	f := leadAlone(t, settings)
	const appends = 400
	var (
		wg      sync.WaitGroup
		written sync.Map // base offset -> bytes with the epoch zeroed
		done    = make(chan struct{})
		trimmed = make(chan struct{}, 1)
	)
	wg.Go(func() {
		defer close(done)
		for i := range appends {
			// Known before it can be read, under the offset it will have.
			end := f.p.LogEndOffset()
			b := stampedByOffset(end, 1+i%5)
			b.SetBaseOffset(end)
			written.Store(end, zeroEpoch(b))
			b.SetBaseOffset(0)
			if _, err := f.try(b, 1); err != nil {
				t.Error(err)
				return
			}
			if i%40 == 39 {
				<-trimmed // so that the tier keeps up
			}
		}
	})
	wg.Go(func() {
		defer close(trimmed)
		for running(done) {
			f.p.FlushSoon()
			end, _ := f.remote.RemoteEndOffset(testTP)
			segments, _ := f.p.Archivable(end)
			for _, s := range segments {
				f.remote.publish(t, f.p, s)
				if _, _, err := f.p.TrimLocal(s.Next); err != nil {
					t.Error(err)
					return
				}
				select {
				case trimmed <- struct{}{}:
				default:
				}
			}
		}
	})
	for reader := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(reader), 1))
			var last ReadResult
			for running(done) && !t.Failed() {
				last = checkedRead(t, f, &written, f.anOffset(rng), last)
			}
		})
	}
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(9, 1))
		for running(done) && !t.Failed() {
			want := f.anOffset(rng)
			if want == f.p.HighWatermark() {
				continue
			}
			r, err := f.p.ListOffset(context.Background(), ListOffsetRequest{Timestamp: startTime.UnixMilli() + int64(want), Replica: cluster.NoBroker, CurrentLeaderEpoch: cluster.NoLeaderEpoch})
			if err != nil && !errors.Is(err, ErrOffsetNotAvailable) || err == nil && r.Offset != want {
				t.Errorf("lookup of the time of offset %d: %v, %v", want, r, err)
			}
		}
	})
	wg.Wait()
	whole := 0
	for next := cluster.Offset(0); next < f.p.HighWatermark() && !t.Failed(); whole++ {
		next = checkedRead(t, f, &written, next, ReadResult{}).NextOffset
	}
	end, _ := f.remote.RemoteEndOffset(testTP)
	require.Positive(t, end, "the tier has taken nothing: the test shows nothing")
}

// stampedByOffset makes a batch whose timestamps tell its records' offsets.
func stampedByOffset(base cluster.Offset, n int) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{})
	for i := range n {
		b.Add(startTime.UnixMilli()+int64(base)+int64(i), []byte("k"), []byte("value"))
	}
	return b.Build()
}

// anOffset draws one that a consumer may ask for, often one beside the seam.
func (f *fixture) anOffset(rng *rand.Rand) cluster.Offset {
	mark := f.p.HighWatermark()
	if rng.IntN(2) == 0 {
		return min(max(f.p.log.LocalStartOffset()+cluster.Offset(rng.IntN(3))-1, 0), mark)
	}
	return cluster.Offset(rng.Int64N(int64(mark) + 1))
}

func running(done chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
		return true
	}
}

func zeroEpoch(b recordbatch.Batch) []byte {
	c := recordbatch.Batch(bytes.Clone(b))
	c.SetPartitionLeaderEpoch(0)
	return c
}

func checkedRead(t *testing.T, f *fixture, written *sync.Map, offset cluster.Offset, before ReadResult) ReadResult {
	req := consumer(offset)
	req.MaxBytes = 500
	r, err := f.read(req)
	if err != nil {
		t.Errorf("read %d: %v", offset, err)
		return before
	}
	if r.LogStartOffset > r.LastStableOffset || r.LastStableOffset > r.HighWatermark || r.HighWatermark > f.p.LogEndOffset() {
		t.Errorf("bounds out of order: %+v", r)
	}
	if r.LogStartOffset < before.LogStartOffset || r.LastStableOffset < before.LastStableOffset || r.HighWatermark < before.HighWatermark {
		t.Errorf("bounds fell: %+v after %+v", r, before)
	}
	if offset >= r.HighWatermark {
		r.Release()
		return r
	}
	batches := batchesOf(t, bytesOf(t, &r))
	if len(batches) == 0 || batches[0].BaseOffset() > offset || batches[0].LastOffset() < offset {
		t.Errorf("read %d below the high watermark %d did not reach past it: %d batches", offset, r.HighWatermark, len(batches))
		return r
	}
	for _, b := range batches {
		want, ok := written.Load(b.BaseOffset())
		if !ok || !bytes.Equal(want.([]byte), zeroEpoch(b)) {
			t.Errorf("batch at %d is not what was appended", b.BaseOffset())
		}
	}
	return r
}

// TestLeaderRebuildsFromRemote is I9: the local log is lost past what was
// published; the leader starts at RemoteEndOffset with epochs and producers.
func TestLeaderRebuildsFromRemote(t *testing.T) {
	settings := testSettings()
	settings.Tiered = true
	settings.SegmentBytes = 400
	f := leadAlone(t, settings)
	for i := range 6 {
		f.append(f.batch(2, idempotent(3, 0, int32(2*i))))
	}
	require.NoError(t, f.p.Roll())
	f.p.flushers.Wait()
	segments, _ := f.p.Archivable(0)
	for _, s := range segments {
		f.remote.publish(t, f.p, s)
	}
	end, _ := f.remote.RemoteEndOffset(testTP)
	require.Equal(t, cluster.Offset(12), end)

	empty := disk.NewCrash(2)
	g := &fixture{t: t, crash: empty, fs: disk.NewFault(empty, nil), remote: f.remote, now: f.now, config: f.config}
	require.NoError(t, g.fs.MkdirAll("/logs"))
	g.open(locallog.Config{LogStart: cluster.NoOffset})
	defer func() { _ = g.p.Close(false) }()

	// The store is down: it does not lead, and says why; later it does.
	g.remote.down = errors.New("503")
	one := []cluster.BrokerID{self}
	leadership := Leadership{Leader: self, LeaderEpoch: 2, Replicas: one, ISR: one}
	require.ErrorIs(t, g.p.Become(context.Background(), leadership), ErrRemote)
	_, err := g.p.Read(consumer(0))
	require.ErrorIs(t, err, ErrNotLeader)
	g.remote.down = nil
	require.NoError(t, g.p.Become(context.Background(), leadership))

	s := g.p.Status()
	require.Equal(t, []cluster.Offset{0, 12, 12, 12, 12}, []cluster.Offset{s.LogStartOffset, s.LocalLogStartOffset, s.RemoteEndOffset, s.HighWatermark, s.LogEndOffset})
	duplicate := g.append(g.batch(2, idempotent(3, 0, 10)))
	require.True(t, duplicate.Duplicate)
	require.Equal(t, cluster.Offset(10), duplicate.BaseOffset)
	require.Equal(t, cluster.Offset(12), g.append(g.batch(2, idempotent(3, 0, 12))).BaseOffset)
	r, err := g.read(consumer(0))
	require.NoError(t, err)
	require.Equal(t, cluster.Offset(0), batchesOf(t, bytesOf(t, &r))[0].BaseOffset())
	epoch, epochEnd, err := g.p.EpochEnd(cluster.NoLeaderEpoch, 1)
	require.NoError(t, err)
	require.Equal(t, cluster.LeaderEpoch(1), epoch)
	require.Equal(t, cluster.Offset(12), epochEnd)
}

// TestLogStartOutlivesLog: DeleteRecords was decided in the catalog and the log
// lost; new records begin at the log start, not below it.
func TestLogStartOutlivesLog(t *testing.T) {
	settings := testSettings()
	settings.Tiered = true
	f := newFixture(t, settings)
	f.remote.known, f.remote.start, f.remote.end = true, 40, 30
	f.lead(1)
	require.Equal(t, cluster.Offset(40), f.append(f.batch(1)).BaseOffset)
	s := f.p.Status()
	require.Equal(t, cluster.Offset(40), s.LogStartOffset)
	require.Equal(t, cluster.Offset(41), s.HighWatermark)
}

func TestSlowRemoteReadTimesOut(t *testing.T) {
	settings := testSettings()
	settings.Tiered = true
	settings.SegmentBytes = 200
	f := leadAlone(t, settings)
	for range 3 {
		f.append(f.batch(2))
	}
	f.p.flushers.Wait()
	segments, _ := f.p.Archivable(0)
	f.remote.publish(t, f.p, segments[0])
	_, _, err := f.p.TrimLocal(100)
	require.NoError(t, err)

	f.remote.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(0, cancel)
	_, err = f.p.ReadRemote(ctx, consumer(0))
	require.ErrorIs(t, err, ErrRemoteTimeout)
	close(f.remote.hold)
	r, err := f.p.ReadRemote(context.Background(), consumer(0))
	require.NoError(t, err)
	require.NotZero(t, r.Bytes)
	r.Release()

	// What has expired in the catalog meanwhile is out of range, not an error
	// of the tier.
	f.remote.start = 4
	_, err = f.p.ReadRemote(context.Background(), consumer(0))
	require.ErrorIs(t, err, ErrOffsetOutOfRange)
	require.Equal(t, cluster.Offset(4), f.p.LogStartOffset())
}

// TestDeleteRecordsNeedsCatalog: nothing changes, and nothing is answered, where
// the catalog cannot take the log start.
func TestDeleteRecordsNeedsCatalog(t *testing.T) {
	settings := testSettings()
	settings.Tiered = true
	f := leadAlone(t, settings)
	f.append(f.batch(5))
	f.remote.down = errors.New("no controller")
	_, err := f.p.DeleteRecords(context.Background(), 3)
	require.ErrorContains(t, err, "no controller")
	require.Equal(t, cluster.Offset(0), f.p.LogStartOffset())
	f.remote.down = nil
	low, err := f.p.DeleteRecords(context.Background(), 3)
	require.NoError(t, err)
	require.Equal(t, cluster.Offset(3), low)
	require.Equal(t, []cluster.Offset{3}, f.remote.kept)
}

// TestIdleDuties: segment.ms seals an idle segment, flush.ms syncs, an idle
// producer is forgotten (PR-03), and a trimmed file goes after its delay.
func TestIdleDuties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := testSettings()
		settings.SegmentAge, settings.FlushInterval = time.Minute, 10*time.Second
		f := newFixture(t, settings)
		defer func() { require.NoError(t, f.p.Close(true)) }()
		f.lead(1)
		f.append(f.batch(1, idempotent(4, 0, 7)))
		f.now = f.now.Add(11 * time.Second)
		require.NoError(t, f.p.RollIfDue())
		require.NoError(t, f.p.Sweep())
		require.True(t, f.p.FlushDue())
		f.p.FlushSoon()
		synctest.Wait()
		require.False(t, f.p.Flushing())
		require.Equal(t, cluster.Offset(1), f.p.FlushedOffset())
		require.Len(t, f.p.Status().Segments, 1)
		f.now = f.now.Add(time.Minute)
		require.NoError(t, f.p.RollIfDue())
		synctest.Wait()
		require.Len(t, f.p.Status().Segments, 2)
		producers, err := f.p.Producers()
		require.NoError(t, err)
		require.Len(t, producers, 1)
		f.now = f.now.Add(25 * time.Hour)
		require.NoError(t, f.p.Sweep())
		producers, err = f.p.Producers()
		require.NoError(t, err)
		require.Empty(t, producers)
		require.Equal(t, cluster.Offset(1), f.append(f.batch(1, idempotent(4, 0, 8))).BaseOffset)
	})
}
