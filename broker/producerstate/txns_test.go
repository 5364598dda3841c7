package producerstate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

func (l *log) unstable() cluster.Offset {
	o, ok := l.m.FirstUnstableOffset()
	require.Equal(l.t, ok, o != cluster.NoOffset)
	return o
}

func TestTransactionHoldsTheStableOffsetUntilItsMarkerIsReplicated(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	require.EqualValues(t, -1, l.unstable())
	l.accepts(1, 0, 0, 5)
	_, err := l.append(batch(2, 0, 0, 5, true)) // 5..9
	require.NoError(t, err)
	require.EqualValues(t, 5, l.unstable())
	_, err = l.append(batch(2, 0, 5, 5, true)) // 10..14
	require.NoError(t, err)
	require.EqualValues(t, 5, l.unstable())
	require.EqualValues(t, 5, entry(t, l.m, 2).CurrentTxnFirst)

	ended, ok := l.store(marker(2, 0, 3, recordbatch.ControlCommit)) // 15
	require.True(t, ok)
	require.Equal(t, producerstate.EndedTxn{ProducerID: 2, First: 5, Last: 15, LastStableOffset: 16}, ended)
	require.False(t, l.m.HasOpenTxn(2))
	undecided, ok := l.m.FirstUndecidedOffset()
	require.False(t, ok)
	require.EqualValues(t, -1, undecided)
	require.EqualValues(t, 5, l.unstable(), "S5: the marker is not replicated yet")
	l.m.AdvanceHighWatermark(15)
	require.EqualValues(t, 5, l.unstable())
	l.m.AdvanceHighWatermark(16)
	require.EqualValues(t, -1, l.unstable())
	require.EqualValues(t, 3, entry(t, l.m, 2).CoordinatorEpoch)

	_, err = l.append(batch(2, 0, 10, 1, true))
	require.NoError(t, err, "the sequence goes on after a marker")
}

func TestAbortedTransactionsForTheIndex(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	for id := cluster.ProducerID(1); id <= 3; id++ { // 0, 1, 2
		_, err := l.append(batch(id, 0, 0, 1, true))
		require.NoError(t, err)
	}
	ended, ok := l.store(marker(2, 0, 0, recordbatch.ControlAbort)) // 3
	require.True(t, ok)
	require.True(t, ended.Aborted)
	require.Equal(t, producerstate.AbortedTxn{ProducerID: 2, First: 1, Last: 3, LastStableOffset: 0}, ended.AbortedTxn())
	ended, _ = l.store(marker(1, 0, 0, recordbatch.ControlAbort)) // 4
	require.EqualValues(t, 2, ended.LastStableOffset)
	ended, _ = l.store(marker(3, 0, 0, recordbatch.ControlAbort)) // 5
	require.EqualValues(t, 6, ended.LastStableOffset)
	require.EqualValues(t, 0, l.unstable())
	l.m.AdvanceHighWatermark(5)
	require.EqualValues(t, 2, l.unstable())
	l.m.AdvanceLogStart(6)
	require.EqualValues(t, -1, l.unstable())

	_, ok = l.store(marker(3, 0, 0, recordbatch.ControlAbort))
	require.False(t, ok, "a transaction without data needs no index entry")
	_, ok = l.store(marker(4, 0, 0, recordbatch.ControlCommit))
	require.False(t, ok)
	require.EqualValues(t, -1, entry(t, l.m, 4).LastSequence)
}

func TestTransactionalRules(t *testing.T) {
	l := newLog(t, producerstate.Config{Expiration: time.Minute})
	_, err := l.append(batch(1, 4, 0, 1, true))
	require.NoError(t, err)
	l.refuses(producerstate.ErrInvalidTxnState, 1, 4, 1, 1)
	require.Zero(t, l.m.Expire(l.now.Add(time.Hour)), "S3")

	for _, c := range []struct {
		epoch       cluster.ProducerEpoch
		coordinator int32
		want        error
	}{{3, 9, producerstate.ErrInvalidProducerEpoch}, {4, 9, nil}, {5, 9, nil}, {4, -1, nil}} {
		_, err := l.m.Check(marker(1, c.epoch, c.coordinator, recordbatch.ControlCommit))
		require.ErrorIs(t, err, c.want)
		require.ErrorIs(t, l.m.CheckFromCoordinator(marker(1, c.epoch, c.coordinator, recordbatch.ControlCommit)), c.want)
	}
	l.store(marker(1, 5, 9, recordbatch.ControlAbort)) // the coordinator fences with a higher epoch
	_, err = l.m.Check(marker(1, 5, 9, recordbatch.ControlCommit))
	require.NoError(t, err)
	_, err = l.m.Check(marker(1, 5, 8, recordbatch.ControlCommit))
	require.ErrorIs(t, err, producerstate.ErrCoordinatorFenced)
	_, err = l.append(batch(1, 4, 1, 1, true))
	require.ErrorIs(t, err, producerstate.ErrInvalidProducerEpoch)
	l.refuses(producerstate.ErrOutOfOrderSequence, 1, 5, 1, 1)
	l.accepts(1, 5, 0, 1)
	require.Equal(t, 1, l.m.Expire(l.now.Add(time.Hour)))
}

func TestCoordinatorsBatchesHaveNoSequence(t *testing.T) {
	l := newLog(t, producerstate.Config{})
	offsets := func(epoch cluster.ProducerEpoch) recordbatch.Batch {
		return batch(1, epoch, recordbatch.NoSequence, 1, true)
	}
	require.NoError(t, l.m.CheckFromCoordinator(offsets(2)))
	l.store(offsets(2))
	require.NoError(t, l.m.CheckFromCoordinator(offsets(2)))
	l.store(offsets(2))
	require.ErrorIs(t, l.m.CheckFromCoordinator(offsets(1)), producerstate.ErrInvalidProducerEpoch)
	require.ErrorIs(t, l.m.CheckFromCoordinator(batch(1, 2, recordbatch.NoSequence, 1, false)), producerstate.ErrInvalidTxnState)
	require.True(t, l.m.HasOpenTxn(1))
}

// control is a control batch that is no marker: of another type, or broken.
func control(epoch cluster.ProducerEpoch, key []byte) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{
		Producer: &recordbatch.Producer{ID: 1, Epoch: epoch, BaseSequence: recordbatch.NoSequence}, Transactional: true, Control: true,
	})
	b.Add(start.UnixMilli(), key, make([]byte, 6))
	return b.Build()
}

func TestControlBatchesThatAreNoMarkersOnlyMoveTheEnd(t *testing.T) {
	for _, c := range []struct {
		name string
		key  []byte
		want error
	}{{"another type", []byte{0, 0, 0, 9}, nil}, {"cut short", []byte{0, 0, 0}, recordbatch.ErrBadRecord}} {
		t.Run(c.name, func(t *testing.T) {
			l := newLog(t, producerstate.Config{})
			_, err := l.append(batch(1, 4, 0, 1, true))
			require.NoError(t, err)
			l.store(marker(2, 0, 7, recordbatch.ControlCommit))
			before := l.m.Entries()
			for _, epoch := range []cluster.ProducerEpoch{3, 4, 5} {
				b := control(epoch, c.key)
				_, err := l.m.Check(b)
				require.ErrorIs(t, err, c.want)
				require.ErrorIs(t, l.m.CheckFromCoordinator(b), c.want)
				b.SetBaseOffset(9)
				_, ended, err := l.m.Update(b, l.now)
				require.ErrorIs(t, err, c.want)
				require.False(t, ended)
				require.EqualValues(t, 10, l.m.MapEnd())
				require.Equal(t, before, l.m.Entries())
			}
			require.EqualValues(t, 0, l.unstable())
		})
	}
}

func TestMarkersCountAsWriting(t *testing.T) {
	l := newLog(t, producerstate.Config{Expiration: time.Minute})
	_, err := l.append(batch(1, 0, 5, 1, true))
	require.NoError(t, err)
	l.now = l.now.Add(40 * time.Second)
	l.store(marker(1, 0, 0, recordbatch.ControlCommit))
	require.Equal(t, start.UnixMilli(), entry(t, l.m, 1).LastTimestamp, "the marker's")
	require.Zero(t, l.m.Expire(l.now.Add(time.Minute-1)))
	require.Equal(t, 1, l.m.Expire(l.now.Add(time.Minute)))
}

// What is unstable, against the list of all transactions.
func TestStableOffsetAgreesWithTheListOfTransactions(t *testing.T) {
	type txn struct{ first, marker cluster.Offset }
	rapid.Check(t, func(t *rapid.T) {
		l := newLog(t, producerstate.Config{})
		var txns []*txn
		open := map[cluster.ProducerID]*txn{}
		sequence := map[cluster.ProducerID]int32{}
		hw := cluster.Offset(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := cluster.ProducerID(rapid.IntRange(0, 3).Draw(t, "producer"))
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				if open[id] == nil {
					open[id] = &txn{first: l.end, marker: -1}
					txns = append(txns, open[id])
				}
				_, err := l.append(batch(id, 0, sequence[id], 1, true))
				require.NoError(t, err)
				sequence[id]++
			case 1:
				at := l.end
				_, ok := l.store(marker(id, 0, 0, recordbatch.ControlAbort))
				require.Equal(t, open[id] != nil, ok)
				if open[id] != nil {
					open[id].marker = at
					delete(open, id)
				}
			case 2:
				hw = cluster.Offset(rapid.Int64Range(int64(hw), int64(l.end)).Draw(t, "high watermark"))
				l.m.AdvanceHighWatermark(hw)
			}
			want := cluster.NoOffset
			for _, x := range txns {
				if (x.marker < 0 || x.marker >= hw) && (want < 0 || x.first < want) {
					want = x.first
				}
			}
			require.Equal(t, want, l.unstable())
		}
	})
}
