package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// pendingOf lists what is pending as an event sees it, or as a committed read
// does.
func (k *kit) pending(committed bool) []string {
	out := []string{}
	list := func(r Reader) error {
		for p, err := range r.Pending([]byte("k")) {
			if err != nil {
				return err
			}
			value := string(p.Value)
			if p.Value == nil {
				value = "-"
			}
			out = append(out, string(rune('0'+p.ProducerID))+string(p.Key)+"="+value)
		}
		return nil
	}
	if committed {
		require.NoError(k.t, k.r.Read(0, list))
	} else {
		require.NoError(k.t, k.r.Do(0, func(_ time.Time, _ Machine, tx *Tx) { require.NoError(k.t, list(tx.Reader())) }))
		synctest.Wait()
	}
	return out
}

// transactional appends for a producer through the runtime.
func (k *kit) transactional(producer cluster.ProducerID, key, value string) *outcome {
	o := &outcome{}
	require.NoError(k.t, k.r.Do(0, func(_ time.Time, _ Machine, tx *Tx) {
		tx.AppendTransactional(Producer{ID: producer, Epoch: 3}, Record{Key: []byte(key), Value: []byte(value)})
		tx.Then(o.then)
	}))
	synctest.Wait()
	return o
}

// TestTransactionsAreDecidedByTheirMarkers holds C2: what a transaction wrote is
// pending, through restarts, until its marker; then it counts by its own offset,
// or not at all.
func TestTransactionsAreDecidedByTheirMarkers(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		log := newFakeLog(0)
		log.auto = true
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		k.put(0, "k1", "plain")
		o := k.transactional(1, "k1", "one")
		require.Equal(t, []error{nil}, o.all(), "it is decided that it was written")
		k.transactional(2, "k2", "two")
		k.transactional(1, "x", "one")
		b := log.batches[1]
		require.True(t, b.IsTransactional())
		require.Equal(t, cluster.ProducerEpoch(3), b.ProducerEpoch())
		require.EqualValues(t, recordbatch.NoSequence, b.BaseSequence())
		require.Equal(t, map[string]string{"k1": "plain"}, k.read(0))
		require.Equal(t, []string{"1k1=one", "2k2=two"}, k.pending(true))
		require.Equal(t, []string{"1k1=one", "2k2=two"}, k.pending(false))

		log = log.reopened(log.mark)
		k.again(log)
		log.lead(2)
		synctest.Wait()
		require.Equal(t, []string{"1k1=one", "2k2=two"}, k.pending(true))
		log.foreign(markerBatch(1, true))
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, map[string]string{"k1": "one", "x": "one"}, k.read(0))
		require.Equal(t, []string{"2k2=two"}, k.pending(true))
		log.foreign(markerBatch(2, false))
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, map[string]string{"k1": "one", "x": "one"}, k.read(0))
		require.Empty(t, k.pending(true))

		// The later record counts, whichever is decided first.
		k.transactional(1, "k1", "early")
		k.transactional(2, "k1", "late")
		k.put(0, "k3", "plain")
		k.transactional(1, "k3", "early")
		k.put(0, "k3", "-")
		synctest.Wait()
		require.Equal(t, []string{"1k1=early", "2k1=late"}, k.pending(true), "a deletion is later than what is pending under its key")
		log.foreign(markerBatch(2, true))
		log.foreign(markerBatch(1, true))
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, map[string]string{"k1": "late", "x": "one"}, k.read(0))
		require.Equal(t, log.folded(log.mark), k.read(0))

		// And it is not lost because an earlier one was decided first.
		k.transactional(1, "k4", "early")
		k.transactional(2, "k4", "late")
		log.foreign(markerBatch(1, true))
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, "early", k.read(0)["k4"])
		require.Equal(t, []string{"2k4=late"}, k.pending(true))
		log.foreign(markerBatch(2, true))
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, "late", k.read(0)["k4"])

		// All of it in one piece, as a view that is built again reads it.
		want := k.read(0)
		k.close()
		require.NoError(t, fs.RemoveAll("/m/views"))
		k.openViews()
		k.cfg.Views = k.views
		k.r = New(k.cfg)
		log = log.reopened(log.mark)
		k.r.Host(log)
		log.lead(3)
		synctest.Wait()
		require.Equal(t, want, k.read(0))
		require.Equal(t, log.folded(log.mark), want)
		require.Empty(t, k.r.mu.replicas[log.tp].shard.view.pending)
		k.close()
	})
}

func TestAnEventAppendsForOneProducer(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(0)
		log.auto = true
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		gate := make(chan struct{})
		require.NoError(t, k.r.Do(0, func(time.Time, Machine, *Tx) { <-gate }))
		mixed := &outcome{}
		require.NoError(t, k.r.Do(0, func(_ time.Time, _ Machine, tx *Tx) {
			tx.Append(Record{Key: []byte("a"), Value: []byte("1")})
			tx.AppendTransactional(Producer{ID: 1}, Record{Key: []byte("b"), Value: []byte("1")})
			tx.Then(mixed.then)
		}))
		a := k.put(0, "a", "2")
		for producer := range cluster.ProducerID(2) {
			require.NoError(t, k.r.Do(0, func(_ time.Time, _ Machine, tx *Tx) {
				tx.AppendTransactional(Producer{ID: producer}, Record{Key: []byte("t"), Value: []byte("1")})
			}))
		}
		b := k.put(0, "b", "2")
		close(gate)
		synctest.Wait()
		require.Len(t, mixed.all(), 1)
		require.ErrorIs(t, mixed.all()[0], errMixed)
		require.Equal(t, []error{nil}, a.all())
		require.Equal(t, []error{nil}, b.all())
		require.Len(t, log.batches, 4, "a batch has one producer")
		require.Equal(t, map[string]string{"a": "2", "b": "2"}, k.read(0))
	})
}
