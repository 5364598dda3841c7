package producerstate_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// PR-01: each of the last five batches, sent again, is answered with its first
// place.
func TestLastFiveBatchesAreDuplicates(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	for i := range int32(5) {
		l.accepts(7, 0, i, 1)
	}
	for i := range int32(5) {
		l.duplicate(cluster.Offset(i), 7, 0, i, 1)
	}
	require.EqualValues(t, 5, l.end)

	l.accepts(7, 0, 5, 3)
	l.duplicate(5, 7, 0, 5, 3)
	l.duplicate(1, 7, 0, 1, 1)
	l.refuses(producerstate.ErrOutOfOrderSequence, 7, 0, 0, 1) // the sixth last is forgotten
	l.refuses(producerstate.ErrOutOfOrderSequence, 7, 0, 5, 1) // the same first, another last sequence
	l.refuses(producerstate.ErrOutOfOrderSequence, 7, 0, 6, 2)
}

func TestSequenceMustContinue(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	l.accepts(7, 0, 0, 10)
	l.refuses(producerstate.ErrOutOfOrderSequence, 7, 0, 11, 1)
	l.refuses(producerstate.ErrOutOfOrderSequence, 7, 0, 9, 1)
	l.accepts(7, 0, 10, 1)
	l.accepts(8, 0, 0, 1) // each producer has its own
	l.accepts(7, 0, 11, 1)
	require.Equal(t, producerstate.Entry{
		ProducerID: 7, ProducerEpoch: 0, CoordinatorEpoch: -1, LastSequence: 11, LastOffset: 12,
		LastTimestamp: start.UnixMilli() + 11, CurrentTxnFirst: -1,
	}, entry(t, l.m, 7))
}

func TestSequenceWraps(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	l.accepts(7, 0, math.MaxInt32-1, 1)
	l.accepts(7, 0, math.MaxInt32, 1)
	l.refuses(producerstate.ErrOutOfOrderSequence, 7, 0, 1, 1)
	l.accepts(7, 0, 0, 1)
	l.duplicate(1, 7, 0, math.MaxInt32, 1)

	l.accepts(8, 0, math.MaxInt32-1, 5) // wraps within the batch
	l.duplicate(3, 8, 0, math.MaxInt32-1, 5)
	require.EqualValues(t, 2, entry(t, l.m, 8).LastSequence)
	l.accepts(8, 0, 3, 1)
}

func TestEpochs(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	l.accepts(7, 3, 0, 5)
	l.refuses(producerstate.ErrInvalidProducerEpoch, 7, 2, 5, 1)
	l.refuses(producerstate.ErrInvalidProducerEpoch, 7, 2, 0, 1)
	l.refuses(producerstate.ErrOutOfOrderSequence, 7, 4, 5, 1) // a new epoch begins at 0
	l.accepts(7, 4, 0, 5)
	l.refuses(producerstate.ErrInvalidProducerEpoch, 7, 3, 0, 5) // not a duplicate any more
	l.duplicate(5, 7, 4, 0, 5)
	l.accepts(7, 9, 0, 1) // epochs may be skipped
}

// PR-03: a producer that was forgotten goes on where it was.
func TestUnknownProducerMayBeginAnywhere(t *testing.T) {
	l := newLog(t, producerstate.Config{Expiration: 10 * time.Second})
	l.accepts(7, 0, 0, 7)
	l.now = l.now.Add(10*time.Second - 1)
	require.Zero(t, l.m.Expire(l.now))
	l.now = l.now.Add(1)
	require.Equal(t, 1, l.m.Expire(l.now))
	require.Zero(t, l.m.Len())
	l.accepts(7, 0, 7, 8)
	l.duplicate(7, 7, 0, 7, 8)
	l.refuses(producerstate.ErrOutOfOrderSequence, 7, 0, 16, 1)
}

func TestExpiryCountsFromTheLastBatchNotItsTimestamps(t *testing.T) {
	l := newLog(t, producerstate.Config{Expiration: time.Minute})
	l.now = start.Add(30 * 24 * time.Hour) // records are a month old
	l.accepts(1, 0, 0, 1)
	l.accepts(2, 0, 0, 1)
	require.Zero(t, l.m.Expire(l.now))
	l.now = l.now.Add(40 * time.Second)
	l.accepts(1, 0, 1, 1)
	l.now = l.now.Add(30 * time.Second)
	require.Equal(t, 1, l.m.Expire(l.now))
	l.duplicate(2, 1, 0, 1, 1)

	l.m.SetConfig(producerstate.Config{Expiration: time.Second})
	require.Equal(t, 1, l.m.Expire(l.now))
}

// Whoever is known expires in the end, in whatever order they wrote.
func TestNobodyIsLeftOutOfExpiry(t *testing.T) {
	l := newLog(t, producerstate.Config{Expiration: time.Minute})
	for id := cluster.ProducerID(1); id <= 3; id++ {
		l.accepts(id, 0, 0, 1)
	}
	l.accepts(2, 0, 1, 1) // from the middle
	l.accepts(1, 0, 1, 1) // from the end that is oldest
	require.Equal(t, 3, l.m.Expire(l.now.Add(time.Minute)))
	l.accepts(4, 0, 0, 1)
	l.accepts(5, 0, 0, 1)
	require.Equal(t, 2, l.m.Expire(l.now.Add(time.Minute)))

	l.accepts(6, 0, 0, 1)
	restarted := producerstate.New(producerstate.Config{Expiration: time.Minute})
	require.NoError(t, restarted.Load(l.m.Snapshot(), l.m.MapEnd(), l.now))
	require.Equal(t, 1, restarted.Expire(l.now.Add(time.Minute)))
}

func TestResetForgetsEverything(t *testing.T) {
	l := newLog(t, producerstate.Config{Expiration: time.Minute})
	for id := cluster.ProducerID(1); id <= 2; id++ {
		_, err := l.append(batch(id, 0, 0, 1, true))
		require.NoError(t, err)
	}
	l.store(marker(2, 0, 0, recordbatch.ControlCommit))
	l.m.Reset(4)
	require.EqualValues(t, 4, l.m.MapEnd())
	require.Empty(t, l.m.Entries())
	require.EqualValues(t, -1, l.unstable())
	require.Zero(t, l.m.Expire(l.now.Add(time.Minute)))
}

func TestProducersAreBounded(t *testing.T) {
	l := newLog(t, producerstate.Config{ProducersMax: 3})
	_, err := l.append(batch(1, 0, 0, 1, true)) // S3
	require.NoError(t, err)
	for id := cluster.ProducerID(2); id <= 4; id++ {
		l.accepts(id, 0, 0, 1)
	}
	require.Equal(t, 3, l.m.Len())
	require.EqualValues(t, 1, l.m.Evicted())
	require.True(t, l.m.HasOpenTxn(1))
	l.accepts(3, 0, 1, 1)
	l.accepts(5, 0, 0, 1) // now 4 has been idle longest
	l.duplicate(5, 5, 0, 0, 1)
	require.Equal(t, []cluster.ProducerID{1, 3, 5}, ids(l.m))

	all := newLog(t, producerstate.Config{ProducersMax: 1})
	for id := cluster.ProducerID(1); id <= 3; id++ {
		_, err := all.append(batch(id, 0, 0, 1, true))
		require.NoError(t, err)
	}
	require.Equal(t, 3, all.m.Len(), "open transactions stay, whatever the bound")
}

func ids(m *producerstate.Manager) []cluster.ProducerID {
	var out []cluster.ProducerID
	for _, e := range m.Entries() {
		out = append(out, e.ProducerID)
	}
	return out
}

func TestBatchesWithoutProducerOnlyMoveTheEnd(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	b := recordbatch.NewBuilder(recordbatch.Options{})
	b.Add(1, nil, nil)
	for range 3 {
		v, err := l.append(b.Build())
		require.NoError(t, err)
		require.Zero(t, v)
	}
	require.EqualValues(t, 3, l.m.MapEnd())
	require.Zero(t, l.m.Len())
	l.m.AdvanceLogStart(9)
	require.EqualValues(t, 9, l.m.MapEnd())
	l.m.Reset(4)
	require.EqualValues(t, 4, l.m.MapEnd())
}

// A follower does not judge: what the leader took is a fact.
func TestUpdateTakesWhatCheckRefuses(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	l.store(batch(7, 5, 0, 1, false))
	l.store(batch(7, 5, 99, 1, false))
	require.EqualValues(t, 99, entry(t, l.m, 7).LastSequence)
	l.store(batch(7, 4, 3, 1, false))
	require.EqualValues(t, 4, entry(t, l.m, 7).ProducerEpoch)
}

// twin is the same rules, told from the whole history of a producer.
type twin struct {
	epoch   cluster.ProducerEpoch
	batches [][3]int64 // first and last sequence, base offset
}

func (w *twin) judge(epoch cluster.ProducerEpoch, first, last int64) (dup bool, base int64, err error) {
	if len(w.batches) == 0 {
		return false, 0, nil
	}
	if epoch < w.epoch {
		return false, 0, producerstate.ErrInvalidProducerEpoch
	}
	if epoch > w.epoch {
		if first != 0 {
			return false, 0, producerstate.ErrOutOfOrderSequence
		}
		return false, 0, nil
	}
	for i := max(0, len(w.batches)-5); i < len(w.batches); i++ {
		if b := w.batches[i]; b[0] == first && b[1] == last {
			return true, b[2], nil
		}
	}
	if first != (w.batches[len(w.batches)-1][1]+1)%(1<<31) {
		return false, 0, producerstate.ErrOutOfOrderSequence
	}
	return false, 0, nil
}

func TestAgreesWithWholeHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLog(t, producerstate.Config{})
		twins := map[cluster.ProducerID]*twin{}
		for range rapid.IntRange(1, 60).Draw(t, "batches") {
			id := cluster.ProducerID(rapid.IntRange(0, 2).Draw(t, "producer"))
			w := twins[id]
			if w == nil {
				w = &twin{}
				twins[id] = w
			}
			epoch := max(0, w.epoch+cluster.ProducerEpoch(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, -1}).Draw(t, "epoch")))
			count := rapid.IntRange(1, 4).Draw(t, "count")
			first := rapid.SampledFrom([]int64{0, 1, math.MaxInt32 - 2}).Draw(t, "sequence")
			if n := len(w.batches); n > 0 && rapid.IntRange(0, 3).Draw(t, "kind") > 0 {
				if again := n - rapid.IntRange(0, 7).Draw(t, "again"); again < n && again >= 0 {
					first = w.batches[again][0]
					count = int((w.batches[again][1]-first+1<<31)%(1<<31)) + 1
				} else {
					first = (w.batches[n-1][1] + 1) % (1 << 31)
				}
			}
			last := (first + int64(count) - 1) % (1 << 31)
			dup, base, want := w.judge(epoch, first, last)
			at := l.end
			v, err := l.append(batch(id, epoch, int32(first), count, false))
			require.ErrorIs(t, err, want)
			require.Equal(t, dup, v.Duplicate)
			if dup {
				require.EqualValues(t, base, v.BaseOffset)
			}
			if err == nil && !dup {
				if epoch != w.epoch {
					*w = twin{epoch: epoch}
				}
				w.batches = append(w.batches, [3]int64{first, last, int64(at)})
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				restarted := producerstate.New(producerstate.Config{})
				require.NoError(t, restarted.Load(l.m.Snapshot(), l.m.MapEnd(), l.now))
				require.Equal(t, l.m.Entries(), restarted.Entries())
				l.m = restarted
			}
		}
	})
}
