package producerstate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

var start = time.UnixMilli(1_700_000_000_000)

// log is a manager with the offsets that a partition would assign.
type log struct {
	t   require.TestingT
	m   *producerstate.Manager
	now time.Time
	end cluster.Offset
}

func newLog(t require.TestingT, c producerstate.Config) *log {
	return &log{t: t, m: producerstate.New(c), now: start}
}

// batch is what a client would send.
func batch(id cluster.ProducerID, epoch cluster.ProducerEpoch, sequence int32, count int, transactional bool) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{
		Producer:      &recordbatch.Producer{ID: id, Epoch: epoch, BaseSequence: sequence},
		Transactional: transactional,
	})
	for i := range count {
		b.Add(start.UnixMilli()+int64(sequence)+int64(i), nil, nil)
	}
	return b.Build()
}

func marker(id cluster.ProducerID, epoch cluster.ProducerEpoch, coordinator int32, kind recordbatch.ControlType) recordbatch.Batch {
	return recordbatch.NewMarkerBatch(recordbatch.Options{Producer: &recordbatch.Producer{ID: id, Epoch: epoch}},
		start.UnixMilli(), recordbatch.Marker{Type: kind, CoordinatorEpoch: coordinator})
}

// append is what a leader does: check, assign, append, update.
func (l *log) append(b recordbatch.Batch) (producerstate.Verdict, error) {
	v, err := l.m.Check(b)
	if err != nil || v.Duplicate {
		return v, err
	}
	l.store(b)
	return v, nil
}

// store is what a follower does.
func (l *log) store(b recordbatch.Batch) (producerstate.EndedTxn, bool) {
	b.SetBaseOffset(l.end)
	ended, ok, err := l.m.Update(b, l.now)
	require.NoError(l.t, err)
	l.end = b.NextOffset()
	require.Equal(l.t, l.end, l.m.MapEnd())
	return ended, ok
}

func (l *log) accepts(id cluster.ProducerID, epoch cluster.ProducerEpoch, sequence int32, count int) {
	v, err := l.append(batch(id, epoch, sequence, count, false))
	require.NoError(l.t, err)
	require.False(l.t, v.Duplicate)
}

func (l *log) refuses(want error, id cluster.ProducerID, epoch cluster.ProducerEpoch, sequence int32, count int) {
	before := l.m.Entries()
	_, err := l.append(batch(id, epoch, sequence, count, false))
	require.ErrorIs(l.t, err, want)
	require.Equal(l.t, before, l.m.Entries(), "S4")
}

func (l *log) duplicate(base cluster.Offset, id cluster.ProducerID, epoch cluster.ProducerEpoch, sequence int32, count int) {
	b := batch(id, epoch, sequence, count, false)
	v, err := l.append(b)
	require.NoError(l.t, err)
	require.Equal(l.t, producerstate.Verdict{
		Duplicate: true, BaseOffset: base, LastOffset: base + cluster.Offset(count) - 1, Timestamp: b.MaxTimestamp(),
	}, v)
}

func entry(t testing.TB, m *producerstate.Manager, id cluster.ProducerID) producerstate.Entry {
	for _, e := range m.Entries() {
		if e.ProducerID == id {
			return e
		}
	}
	t.Fatalf("producer %d is not known", id)
	return producerstate.Entry{}
}
