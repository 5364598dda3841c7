package coordinator

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// TestAnAppendThatFailsTakesBackWhatItsEventsDid holds C4 where the log refuses:
// the reader shows what was there before, what was in flight before goes on, and
// what comes after is none the worse.
func TestAnAppendThatFailsTakesBackWhatItsEventsDid(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(0)
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		first := k.put(0, "a", "1")
		synctest.Wait()

		log.set(func() { log.refuse = errRefused })
		var order []string
		done := make(chan struct{})
		require.NoError(t, k.r.Do(0, func(time.Time, Machine, *Tx) { <-done })) // so that the next ones share a batch
		var refused []*outcome
		for i, pair := range [][2]string{{"a", "2"}, {"b", "1"}, {"a", "-"}} {
			o := &outcome{}
			refused = append(refused, o)
			require.NoError(t, k.r.Do(0, func(_ time.Time, m Machine, tx *Tx) {
				m.(*ledger).put(tx, pair[0], pair[1], func(err error) { order = append(order, fmt.Sprint(i)); o.then(err) })
			}))
		}
		close(done)
		synctest.Wait()
		for _, o := range refused {
			require.Equal(t, []error{errRefused}, o.all())
		}
		require.Equal(t, []string{"0", "1", "2"}, order)
		require.Empty(t, first.all(), "it is still in flight")
		reader, machine := k.seen(0)
		require.Equal(t, map[string]string{"a": "1"}, reader)
		require.Equal(t, reader, machine)

		log.set(func() { log.refuse = nil })
		after := k.put(0, "b", "3")
		synctest.Wait()
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, []error{nil}, first.all())
		require.Equal(t, []error{nil}, after.all())
		require.Equal(t, map[string]string{"a": "1", "b": "3"}, k.read(0))
		require.Empty(t, k.r.mu.replicas[log.tp].shard.overlay.latest)
	})
}

// TestOneEventIsOneBatch bounds batches by records and bytes, and refuses an event
// that fits none.
func TestOneEventIsOneBatch(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs, func(c *Config) { c.Limits.BatchRecords = 5 })
		defer k.close()
		log := newFakeLog(0)
		log.max = 1000
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		event := func(records, bytes int) *outcome {
			o := &outcome{}
			require.NoError(t, k.r.Do(0, func(_ time.Time, m Machine, tx *Tx) {
				for i := range records {
					m.(*ledger).put(tx, fmt.Sprint(records, bytes, i), strings.Repeat("x", bytes/records), func(error) {})
				}
				tx.Then(o.then)
			}))
			return o
		}
		gate := make(chan struct{})
		require.NoError(t, k.r.Do(0, func(time.Time, Machine, *Tx) { <-gate }))
		all := []*outcome{event(2, 10), event(2, 20), event(2, 30), event(7, 70), event(1, 600), event(1, 400), event(1, 2000), event(1, 30)}
		close(gate)
		synctest.Wait()
		var counts []int
		for _, b := range log.batches {
			counts = append(counts, int(b.RecordCount()))
			require.LessOrEqual(t, len(b), log.max)
		}
		require.Equal(t, []int{4, 2, 7, 1, 2}, counts)
		require.ErrorIs(t, all[6].all()[0], ErrTooLarge)
		reader, machine := k.seen(0)
		require.Equal(t, reader, machine, "what did not fit is taken back")
		require.NotContains(t, machine, "120000")
		log.commit(-1)
		synctest.Wait()
		for i, o := range all {
			if i != 6 {
				require.Equal(t, []error{nil}, o.all())
			}
		}
		require.Equal(t, reader, k.read(0))
	})
}

// TestAnEventFallsWithTheBatchThatItSaw has a batch fail that had to be appended
// to make room: the event after it saw what it would have appended.
func TestAnEventFallsWithTheBatchThatItSaw(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs, func(c *Config) { c.Limits.BatchRecords = 1 })
		defer k.close()
		log := newFakeLog(0)
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		gate := make(chan struct{})
		require.NoError(t, k.r.Do(0, func(time.Time, Machine, *Tx) { <-gate }))
		a, b, c := k.put(0, "a", "1"), k.put(0, "b", "1"), k.put(0, "c", "1")
		log.set(func() { log.refuse = errRefused })
		close(gate)
		synctest.Wait()
		for _, o := range []*outcome{a, b, c} {
			require.Len(t, o.all(), 1)
			require.ErrorIs(t, o.all()[0], errRefused)
		}
		require.Equal(t, 2, log.appends, "the second one was not tried")
		reader, machine := k.seen(0)
		require.Empty(t, reader)
		require.Empty(t, machine)
	})
}

// TestAppendsDoNotWaitForCommits has several batches in flight, and tells who
// waits in order, as far as the log is decided.
func TestAppendsDoNotWaitForCommits(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(0)
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		var order []int
		ask := func(i int, append bool) {
			require.NoError(t, k.r.Do(0, func(_ time.Time, m Machine, tx *Tx) {
				then := func(err error) {
					require.NoError(t, err)
					order = append2(order, i)
				}
				if append {
					m.(*ledger).put(tx, fmt.Sprint("k", i), "v", then)
				} else {
					tx.Then(then)
				}
			}))
			synctest.Wait()
		}
		ask(0, false)
		require.Equal(t, []int{0}, order, "there is nothing to wait for")
		for i := 1; i <= 6; i++ {
			ask(i, i != 3)
		}
		require.Len(t, log.batches, 5)
		require.Equal(t, []int{0}, order)
		log.commit(2)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3}, order, "one without records saw what those before it appended")
		log.commit(1)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3}, order)
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, order)
	})
}

func append2(s []int, v int) []int { return append(s, v) }

// TestBoundsAreKept fills the queue and what may be in flight.
func TestBoundsAreKept(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs, func(c *Config) { c.Limits = Limits{QueueMax: 3, InFlightBytes: 130} })
		defer k.close()
		log := newFakeLog(0)
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		for i := range 2 { // 70 bytes a batch
			k.put(0, fmt.Sprint(i), "v")
			synctest.Wait()
		}
		require.Zero(t, k.hits(LimitInFlight))
		waiting := []*outcome{k.put(0, "a", "1"), k.put(0, "b", "1"), k.put(0, "c", "1")}
		synctest.Wait()
		require.Len(t, log.batches, 2)
		require.Equal(t, 1, k.hits(LimitInFlight))
		require.ErrorIs(t, k.r.Do(0, nil), ErrBusy)
		require.Equal(t, 1, k.hits(LimitQueue))
		log.commit(-1)
		synctest.Wait()
		require.Contains(t, []int{3, 4}, len(log.batches), "the first may have been taken before the others came")
		for _, o := range waiting {
			require.Equal(t, 1, o.ran)
		}
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, []error{nil}, waiting[2].all())
		k.put(0, "d", "1")
	})
}

// TestOneTurnKeepsTheBoundToo has more waiting than may be in flight when it may
// run again.
func TestOneTurnKeepsTheBoundToo(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs, func(c *Config) { c.Limits = Limits{BatchRecords: 1, InFlightBytes: 200} })
		defer k.close()
		log := newFakeLog(0)
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		gate := make(chan struct{})
		require.NoError(t, k.r.Do(0, func(time.Time, Machine, *Tx) { <-gate }))
		var all []*outcome
		for i := range 20 {
			all = append(all, k.put(0, fmt.Sprint(i), "v"))
		}
		close(gate)
		synctest.Wait()
		require.LessOrEqual(t, len(log.batches), 4)
		for n := 0; n < 20; n++ {
			log.commit(-1)
			synctest.Wait()
			require.LessOrEqual(t, int(log.end-log.mark), 4)
		}
		for _, o := range all {
			require.Equal(t, []error{nil}, o.all())
		}
	})
}

// TestADeadlineThatDoesNotMoveTakesNoProcessor ticks a machine that is always due.
func TestADeadlineThatDoesNotMoveTakesNoProcessor(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		m := &stuck{}
		k := newKit(t, fs, func(c *Config) { c.NewMachine = func(int32, cluster.LeaderEpoch) Machine { return m } })
		defer k.close()
		log := newFakeLog(0)
		log.lead(1)
		k.r.Host(log)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.LessOrEqual(t, m.ticks.Load(), int64(102))
		require.GreaterOrEqual(t, m.ticks.Load(), int64(90))
	})
}

type stuck struct{ ticks atomic.Int64 }

func (*stuck) Load(time.Time, Reader) error { return nil }
func (*stuck) Deadline() time.Time          { return time.Unix(1, 0) }
func (m *stuck) Tick(time.Time, *Tx)        { m.ticks.Add(1) }
func (*stuck) Unload(error)                 {}

// TestLeadershipIsLostInTheMiddle holds C5 and C6: what is in flight fails in
// order, what is queued runs once and fails, the machine is unloaded last, and the
// next tenure begins with what the log says.
func TestLeadershipIsLostInTheMiddle(t *testing.T) {
	for _, how := range []string{"follower", "led again", "offline", "unhosted", "closed"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, fs *disk.Crash) {
				k := newKit(t, fs)
				defer k.close()
				log := newFakeLog(0)
				log.lead(1)
				k.r.Host(log)
				synctest.Wait()
				decided := k.put(0, "a", "1")
				synctest.Wait()
				log.commit(-1)
				synctest.Wait()
				flying := k.put(0, "a", "2")
				synctest.Wait()
				gate := make(chan struct{})
				require.NoError(t, k.r.Do(0, func(time.Time, Machine, *Tx) { <-gate }))
				queued := []*outcome{k.put(0, "b", "1")} // taken with the one that holds the shard up
				synctest.Wait()
				queued = append(queued, k.put(0, "a", "3")) // and one that waits
				synctest.Wait()
				want, closed := ErrNotCoordinator, make(chan struct{})
				switch how {
				case "follower":
					log.follow(2)
					log.truncate(1)
				case "led again":
					log.lead(2)
				case "offline":
					log.set(func() { log.offline = partition.ErrStorage })
				case "unhosted":
					k.r.Unhost(log.tp)
				case "closed":
					want = ErrClosed
					go func() { _ = k.r.Close(); close(closed) }()
					synctest.Wait()
				}
				close(gate)
				synctest.Wait()
				require.Equal(t, []error{nil}, decided.all())
				require.Equal(t, []error{want}, flying.all())
				for _, o := range queued {
					require.Equal(t, 1, o.ran)
					require.Equal(t, []error{want}, o.all())
				}
				require.Equal(t, []error{want}, k.machine(0).ended)
				switch how {
				case "led again": // what was in flight is in the log, and decided later
					require.ErrorIs(t, k.r.Do(0, nil), ErrLoading)
					log.commit(-1)
					synctest.Wait()
					require.Equal(t, map[string]string{"a": "2"}, k.read(0))
				case "follower":
					require.ErrorIs(t, k.r.Do(0, nil), ErrNotCoordinator)
					log.lead(3)
					synctest.Wait()
					require.Equal(t, map[string]string{"a": "1"}, k.read(0))
					reader, machine := k.seen(0)
					require.Equal(t, map[string]string{"a": "1"}, reader)
					require.Equal(t, reader, machine)
				case "closed":
					<-closed
					require.ErrorIs(t, k.r.Do(0, nil), ErrClosed)
					_, err := k.tryRead(0)
					require.ErrorIs(t, err, ErrClosed)
					k.r.Host(log)
				default:
					require.ErrorIs(t, k.r.Do(0, nil), ErrNotCoordinator)
					_, err := k.tryRead(0)
					require.ErrorIs(t, err, ErrNotCoordinator)
				}
			})
		})
	}
}

func TestALoadThatFailsIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		k.failLoads(errRefused)
		log := newFakeLog(0)
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		require.ErrorIs(t, k.r.Do(0, nil), ErrLoading)
		_, err := k.tryRead(0)
		require.ErrorIs(t, err, ErrLoading)
		time.Sleep(10 * retryEvery)
		synctest.Wait()
		require.LessOrEqual(t, len(k.made()), 12)
		require.GreaterOrEqual(t, len(k.made()), 8)
		k.failLoads(nil)
		time.Sleep(2 * retryEvery)
		synctest.Wait()
		k.put(0, "a", "1")
		for _, m := range k.made() {
			require.Empty(t, m.ended, "what was not loaded is not unloaded")
		}
	})
}

// TestARecordThatCannotBeReadStopsItsPartition keeps the others going, and goes on
// once it can be read.
func TestARecordThatCannotBeReadStopsItsPartition(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		bad, good := newFakeLog(0), newFakeLog(1)
		bad.fake(0, plainBatch("a", "1"), plainBatch("poison", "1"), plainBatch("b", "1"))
		bad.commit(-1)
		good.auto = true
		for _, l := range []*fakeLog{bad, good} {
			l.lead(1)
			k.r.Host(l)
		}
		synctest.Wait()
		require.Error(t, k.r.Do(0, nil))
		k.put(1, "a", "1")
		time.Sleep(5 * retryEvery)
		synctest.Wait()
		require.Equal(t, map[string]string{"a": "1"}, k.read(1))
		require.Equal(t, cluster.Offset(0), k.applied(bad.tp), "nothing of the batches that were read with it counts")

		// An event that wants such a record fails alone.
		o := k.put(1, "poison", "1")
		synctest.Wait()
		require.Len(t, o.all(), 1)
		require.Error(t, o.all()[0])
		k.put(1, "b", "2")
		synctest.Wait()
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, k.read(1))
		require.Len(t, good.batches, 2)
	})
}

// TestADamagedBatchIsNotApplied flips a bit of a decided batch.
func TestADamagedBatchIsNotApplied(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(0)
		log.fake(0, plainBatch("a", "1"))
		flip := func() { log.batches[0][len(log.batches[0])-2] ^= 1 }
		log.set(flip)
		log.commit(-1)
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		require.Error(t, k.r.Do(0, nil))
		require.Empty(t, k.made())
		log.set(flip)
		time.Sleep(2 * retryEvery)
		synctest.Wait()
		require.Equal(t, map[string]string{"a": "1"}, k.read(0))
	})
}

func TestWhatIsAppendedIsCompressed(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs, func(c *Config) { c.Codec = recordbatch.LZ4 })
		defer k.close()
		log := newFakeLog(0)
		log.auto = true
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		k.put(0, "a", strings.Repeat("x", 10000))
		synctest.Wait()
		require.Equal(t, recordbatch.LZ4, log.batches[0].Compression())
		require.Len(t, k.read(0)["a"], 10000)
	})
}

// TestEmptyValuesAreNoDeletions tells null from empty on the way through overlay,
// log and view.
func TestEmptyValuesAreNoDeletions(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(0)
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		get := func() (e Entry, ok bool) {
			require.NoError(t, k.r.Do(0, func(_ time.Time, _ Machine, tx *Tx) {
				var err error
				e, ok, err = tx.Reader().Get([]byte("a"))
				require.NoError(t, err)
			}))
			synctest.Wait()
			return e, ok
		}
		k.put(0, "a", "")
		synctest.Wait()
		e, ok := get()
		require.True(t, ok)
		require.NotNil(t, e.Value)
		require.Equal(t, cluster.Offset(0), e.Offset, "in flight, it has its offset")
		require.Equal(t, time.Now().UnixMilli(), e.Timestamp)
		log.commit(-1)
		synctest.Wait()
		e, ok = get()
		require.True(t, ok)
		require.NotNil(t, e.Value)
		require.Empty(t, e.Value)
		require.Equal(t, []any{"a", "a", cluster.Offset(0), time.Now().UnixMilli()}, []any{string(e.Key), string(e.ViewKey), e.Offset, e.Timestamp})
		k.put(0, "a", "-")
		_, ok = get()
		require.False(t, ok)
	})
}
