package coordinator

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
)

func TestEventsAreAppendedCommittedAndRead(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(3)
		require.ErrorIs(t, k.r.Do(3, nil), ErrNotCoordinator)
		k.r.Host(log)
		synctest.Wait()
		require.ErrorIs(t, k.r.Do(3, nil), ErrNotCoordinator, "a follower")
		log.lead(5)
		synctest.Wait()
		loaded, loading := k.r.Led()
		require.Equal(t, []int32{3}, loaded)
		require.Empty(t, loading)

		a := k.put(3, "a", "1")
		synctest.Wait()
		require.Empty(t, a.all(), "nothing is decided yet")
		require.Empty(t, k.read(3))
		reader, machine := k.seen(3)
		require.Equal(t, map[string]string{"a": "1"}, reader)
		require.Equal(t, reader, machine)

		log.commit(-1)
		synctest.Wait()
		require.Equal(t, []error{nil}, a.all())
		require.Equal(t, map[string]string{"a": "1"}, k.read(3))

		k.put(3, "b", "2")
		gone := k.put(3, "a", "-")
		synctest.Wait()
		reader, _ = k.seen(3)
		require.Equal(t, map[string]string{"b": "2"}, reader)
		require.Equal(t, map[string]string{"a": "1"}, k.read(3))
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, []error{nil}, gone.all())
		require.Equal(t, map[string]string{"b": "2"}, k.read(3))
		require.Equal(t, log.folded(log.mark), k.read(3))
	})
}

func TestTimersRunOnTheClock(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(0)
		log.auto = true
		k.r.Host(log)
		log.lead(1)
		synctest.Wait()
		began := time.Now()
		require.NoError(t, k.r.Do(0, func(now time.Time, m Machine, _ *Tx) { m.(*ledger).due = now.Add(90 * time.Second) }))
		synctest.Wait()
		time.Sleep(90*time.Second - time.Nanosecond)
		synctest.Wait()
		require.Empty(t, k.read(0))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, map[string]string{"tick": "1"}, k.read(0))
		require.Equal(t, 90*time.Second, time.Since(began))
		time.Sleep(time.Hour)
		require.Equal(t, 1, k.machine(0).ticks)
	})
}

// Whoever asks all partitions must know of those that nobody has begun to load,
// or loads again only after a while.
func TestEveryLedPartitionIsLoadedOrLoading(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		k.failLoads(errors.New("not now"))
		log := newFakeLog(3)
		k.r.Host(log)
		log.lead(5)
		for range 2 { // at once, and while the next try is far
			loaded, loading := k.r.Led()
			require.Empty(t, loaded)
			require.Equal(t, []int32{3}, loading)
			synctest.Wait()
		}
		_, loading, failed := k.r.Loaded()
		require.Empty(t, loading)
		require.Equal(t, []int32{3}, failed, "nobody needs to wait for it")
		k.failLoads(nil)
		time.Sleep(2 * retryEvery)
		synctest.Wait()
		loaded, loading, failed := k.r.Loaded()
		require.Equal(t, []int32{3}, loaded)
		require.Empty(t, loading)
		require.Empty(t, failed)
		k.r.Unhost(log.TopicPartition())
		loaded, loading = k.r.Led()
		require.Empty(t, loaded)
		require.Empty(t, loading)
	})
}
