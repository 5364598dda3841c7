package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// filled is a kit whose partition 0 leads under epoch 1 with six decided pairs,
// one batch each, of which the last deletes the first one's key.
func filled(t *testing.T, fs disk.FS) (*kit, *fakeLog) {
	k := newKit(t, fs)
	log := newFakeLog(0)
	log.auto = true
	log.lead(1)
	k.r.Host(log)
	synctest.Wait()
	for _, pair := range [][2]string{{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}, {"e", "5"}, {"a", "-"}} {
		k.put(0, pair[0], pair[1])
		synctest.Wait()
	}
	require.Len(t, k.read(0), 4)
	require.Equal(t, cluster.Offset(6), log.mark)
	return k, log
}

// again closes the runtime and opens another one over the same views and a log.
func (k *kit) again(log *fakeLog) {
	k.close()
	k.openViews()
	k.cfg.Views = k.views
	k.r = New(k.cfg)
	k.r.Host(log)
	synctest.Wait()
}

// TestViewsThatAreNotOfTheirLogAreBuiltAgain goes through design I10: each way in
// which a log may not be the one that its view was fed from, found at a start and
// while the broker runs.
func TestViewsThatAreNotOfTheirLogAreBuiltAgain(t *testing.T) {
	for _, row := range []struct {
		name    string
		damage  func(l *fakeLog)
		rebuilt int64
	}{
		{"nothing happened", func(*fakeLog) {}, 0},
		{"the high watermark was forgotten", func(l *fakeLog) { l.mark = 2 }, 0},
		{"the log ends below the view's offset", func(l *fakeLog) { l.truncateLocked(3) }, 1},
		{"the log is empty", func(l *fakeLog) { l.truncateLocked(0) }, 1},
		{"another epoch at the same offset", func(l *fakeLog) {
			l.truncateLocked(3)
			l.epochs = append(l.epochs, epochStart{2, 3})
			l.fakeLocked(2, plainBatch("x", "9"), plainBatch("b", "-"), plainBatch("y", "9"))
		}, 1},
		{"another epoch at the same offset, and more", func(l *fakeLog) {
			l.truncateLocked(5)
			l.epochs = append(l.epochs, epochStart{2, 5})
			l.fakeLocked(2, plainBatch("x", "9"), plainBatch("b", "-"), plainBatch("y", "9"))
		}, 1},
		{"the same epoch goes on", func(l *fakeLog) { l.fakeLocked(1, plainBatch("x", "9")) }, 0},
		{"the log starts past the view's offset", func(l *fakeLog) {
			l.fakeLocked(1, plainBatch("x", "9"), plainBatch("y", "9"))
			l.mark = l.end
			l.trimLocked(7)
		}, 1},
		{"the log starts at the view's offset, and nothing can be compared", func(l *fakeLog) { l.trimLocked(6) }, 1},
		{"compaction took a deletion that the view has seen", func(l *fakeLog) { l.compactLocked(6) }, 0},
		{"compaction took deletions that it has not seen", func(l *fakeLog) {
			l.fakeLocked(1, plainBatch("b", "-"), plainBatch("x", "9"))
			l.mark = l.end
			l.compactLocked(8)
		}, 1},
	} {
		for _, when := range []string{"at a start", "following", "between tenures"} {
			t.Run(row.name+", "+when, func(t *testing.T) {
				bubble(t, func(t *testing.T, fs *disk.Crash) {
					k, log := filled(t, fs)
					defer func() { k.close() }()
					switch when {
					case "at a start":
						log = log.reopened(6)
						log.set(func() { row.damage(log) })
						k.again(log)
					case "following":
						log.follow(2)
						synctest.Wait()
						log.set(func() { row.damage(log) })
						log.commit(-1)
						synctest.Wait()
					case "between tenures":
						log.follow(2)
						log.set(func() { row.damage(log) })
					}
					log.commit(-1)
					synctest.Wait()
					log.lead(3)
					synctest.Wait()
					require.Equal(t, row.rebuilt, k.r.Status().Rebuilt)
					want := log.folded(log.mark)
					if row.name == "the log starts past the view's offset" || log.start == 6 {
						require.NotContains(t, want, "b")
					}
					require.Equal(t, want, k.read(0))
					reader, machine := k.seen(0)
					require.Equal(t, want, reader)
					require.Equal(t, want, machine)
					k.put(0, "z", "1")
					synctest.Wait()
					require.Equal(t, log.folded(log.mark), k.read(0))
					require.Zero(t, k.r.Status().Lag)
				})
			})
		}
	}
}

func (l *fakeLog) fake(epoch cluster.LeaderEpoch, batches ...[]byte) {
	l.set(func() { l.fakeLocked(epoch, batches...) })
}

// fakeLocked appends what is not the runtime's, under an epoch.
func (l *fakeLog) fakeLocked(epoch cluster.LeaderEpoch, batches ...[]byte) {
	before := l.epoch
	l.epoch = epoch
	for _, b := range batches {
		l.appendLocked(b)
	}
	l.epoch = before
}

func TestLostViewsAreBuiltAgain(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k, log := filled(t, fs)
		k.close()
		require.NoError(t, fs.RemoveAll("/m/views"))
		k.openViews()
		k.cfg.Views = k.views
		k.r = New(k.cfg)
		log = log.reopened(0)
		k.r.Host(log)
		log.lead(2)
		synctest.Wait()
		require.ErrorIs(t, k.r.Do(0, nil), ErrLoading, "what is in the log is not decided yet")
		_, err := k.tryRead(0)
		require.ErrorIs(t, err, ErrLoading)
		_, loading := k.r.Led()
		require.Equal(t, []int32{0}, loading)
		require.Equal(t, Status{Partitions: 1, Leading: 1, Loading: 1}, k.r.Status())
		log.commit(3)
		synctest.Wait()
		require.ErrorIs(t, k.r.Do(0, nil), ErrLoading)
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, log.folded(6), k.read(0))
		require.Zero(t, k.r.Status().Rebuilt, "there was none")
		k.close()
	})
}

// TestAViewOfAnotherFormatIsBuiltAgain stands for a binary that reads views of
// another version.
func TestAViewOfAnotherFormatIsBuiltAgain(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k, log := filled(t, fs)
		db := k.views.db.Load()
		require.NoError(t, k.r.Close())
		b := db.NewBatch()
		key := positionKey(log.tp)
		value, ok, err := db.Get(key)
		require.NoError(t, err)
		require.True(t, ok)
		value[0]++
		b.Set(key, value)
		b.Set(entryKey(log.tp, "stale"), []byte("of another form"))
		require.NoError(t, k.views.commit(b))
		log = log.reopened(6)
		k.again(log)
		log.lead(2)
		synctest.Wait()
		require.Equal(t, log.folded(6), k.read(0))
		k.close()
	})
}

// TestAFailoverReplaysNothing holds that a follower that becomes the leader has
// everything in its view, and reads nothing of its log but what is not decided.
func TestAFailoverReplaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(0)
		log.epochs = append(log.epochs, epochStart{0, 0})
		log.epoch = 0
		k.r.Host(log)
		for range 500 {
			log.foreign(plainBatch("k", "v", "l", "w"))
		}
		log.commit(-1)
		synctest.Wait()
		require.Zero(t, k.r.Status().Lag)
		log.foreign(plainBatch("k", "last"))
		read := log.read
		log.lead(1)
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, map[string]string{"k": "last", "l": "w"}, k.read(0))
		require.Less(t, log.read-read, 200)
	})
}

// TestATenureWaitsForTheOneBefore replaces a replica whose shard is still busy:
// two must never move one view.
func TestATenureWaitsForTheOneBefore(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k, log := filled(t, fs)
		defer k.close()
		hold, held := make(chan struct{}), make(chan struct{})
		require.NoError(t, k.r.Do(0, func(time.Time, Machine, *Tx) { close(held); <-hold }))
		<-held
		again := log.reopened(6)
		log.set(func() { log.offline = errRefused })
		k.r.Host(again)
		again.lead(2)
		synctest.Wait()
		require.ErrorIs(t, k.r.Do(0, nil), ErrLoading)
		close(hold)
		synctest.Wait()
		require.NoError(t, k.r.Do(0, func(time.Time, Machine, *Tx) {}))
		require.Equal(t, []error{ErrNotCoordinator}, k.machine(0).ended)
		require.Equal(t, again.folded(6), k.read(0))
		require.Equal(t, Status{Partitions: 1, Leading: 1}, k.r.Status())
	})
}

func TestAViewIsDroppedWithItsReplica(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k, log := filled(t, fs)
		defer k.close()
		k.r.Unhost(log.tp)
		synctest.Wait()
		require.ErrorIs(t, k.r.Do(0, nil), ErrNotCoordinator)
		require.Equal(t, Status{}, k.r.Status())
		require.Empty(t, k.keys())

		// A replica with the same name begins with nothing.
		again := newFakeLog(0)
		again.auto = true
		again.lead(1)
		k.r.Host(again)
		synctest.Wait()
		require.Empty(t, k.read(0))
	})
}

func TestViewsOfDeletedTopicsAreDroppedAtAStart(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k, log := filled(t, fs)
		other := newFakeLog(1)
		other.auto = true
		other.lead(1)
		k.r.Host(other)
		synctest.Wait()
		k.put(1, "x", "y")
		synctest.Wait()
		require.NoError(t, k.r.Close())
		require.NoError(t, k.views.Retain(func(tp cluster.TopicPartition) bool { return tp == other.tp }))
		for _, key := range k.keys() {
			require.Equal(t, other.tp, keyPartition(key))
		}
		_ = log
		k.again(other.reopened(1))
		k.close()
	})
}

// TestALogThatContradictsItselfIsNotReadForEver has batches of another leader epoch
// than the log says.
func TestALogThatContradictsItselfIsNotReadForEver(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs, func(c *Config) { c.Limits.ApplyBytes = 1 })
		defer k.close()
		log := newFakeLog(0)
		for range 10 {
			log.fake(5, plainBatch("a", "1"))
		}
		log.epochs = append(log.epochs, epochStart{4, 0})
		log.commit(-1)
		log.lead(6)
		k.r.Host(log)
		synctest.Wait()
		require.ErrorIs(t, k.r.Do(0, nil), ErrLoading)
		require.EqualValues(t, 1, k.r.Status().Rebuilt)
		time.Sleep(10 * retryEvery)
		synctest.Wait()
		require.LessOrEqual(t, k.r.Status().Rebuilt, int64(11))
		log.set(func() { log.epochs = []epochStart{{5, 0}, {6, 10}} })
		time.Sleep(2 * retryEvery)
		synctest.Wait()
		require.Equal(t, map[string]string{"a": "1"}, k.read(0))
	})
}

// TestAViewIsBuiltFromACompactedLog begins a view after compaction has taken
// deletions, stops halfway, and goes on: what it never had it does not miss.
func TestAViewIsBuiltFromACompactedLog(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs, func(c *Config) { c.Limits.ApplyBytes = 1 })
		log := newFakeLog(0)
		for i := range 10 {
			log.fake(1, plainBatch("a", "1", "b", string(rune('0'+i))), plainBatch("a", "-"))
		}
		log.epochs = append(log.epochs, epochStart{1, 0})
		log.commit(-1)
		log.compact(30)
		require.Equal(t, cluster.Offset(30), log.compacted)
		log.mark = 12
		k.r.Host(log)
		synctest.Wait()
		require.Equal(t, cluster.Offset(12), k.applied(log.tp))
		log = log.reopened(12)
		k.again(log)
		log.commit(-1)
		log.lead(2)
		synctest.Wait()
		require.Equal(t, log.folded(30), k.read(0))
		require.Zero(t, k.r.Status().Rebuilt)

		// More is taken, all of which it has seen.
		log.follow(3)
		synctest.Wait()
		log.fake(2, plainBatch("b", "-"))
		log.commit(-1)
		synctest.Wait()
		log.compact(31)
		log.lead(4)
		synctest.Wait()
		require.Empty(t, k.read(0))
		require.Zero(t, k.r.Status().Rebuilt)
		k.close()
	})
}

// TestRecordsBelowTheLogsStartDoNotCount begins a view in the middle of a batch.
func TestRecordsBelowTheLogsStartDoNotCount(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(0)
		log.fake(1, plainBatch("a", "1", "b", "1", "c", "1"), plainBatch("d", "1"))
		log.epochs = append(log.epochs, epochStart{1, 0})
		log.commit(-1)
		log.trim(1)
		log.lead(2)
		k.r.Host(log)
		synctest.Wait()
		require.Equal(t, map[string]string{"b": "1", "c": "1", "d": "1"}, k.read(0))
	})
}

// TestAFollowersViewGoesOnAfterTrouble has a log that contradicts itself, and then a
// replica that is offline, behind a follower's view.
func TestAFollowersViewGoesOnAfterTrouble(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs, func(c *Config) { c.Limits.ApplyBytes = 1 })
		defer k.close()
		log := newFakeLog(0)
		for range 10 {
			log.fake(5, plainBatch("a", "1"))
		}
		log.epochs = append(log.epochs, epochStart{4, 0})
		log.commit(-1)
		k.r.Host(log)
		time.Sleep(5 * retryEvery)
		synctest.Wait()
		require.Less(t, k.applied(log.tp), cluster.Offset(10))
		log.set(func() { log.epochs = []epochStart{{5, 0}} })
		time.Sleep(2 * retryEvery)
		synctest.Wait()
		require.Equal(t, cluster.Offset(10), k.applied(log.tp))

		log.set(func() {
			log.fakeLocked(5, plainBatch("a", "2"))
			log.mark, log.offline = log.end, errRefused
		})
		time.Sleep(2 * retryEvery)
		synctest.Wait()
		require.Equal(t, cluster.Offset(10), k.applied(log.tp))
		log.set(func() { log.offline = nil })
		synctest.Wait()
		require.Equal(t, cluster.Offset(11), k.applied(log.tp))
	})
}
