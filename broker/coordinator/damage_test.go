package coordinator

import (
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
	"strandline/metadata/store"
)

// spoil flips every byte of the middle of the files of the views with an ending.
func spoil(t *testing.T, fs disk.FS, ending string) {
	names, err := fs.List("/m/views")
	require.NoError(t, err)
	found := false
	for _, name := range names {
		if !strings.HasSuffix(name, ending) && !strings.HasPrefix(name, ending) {
			continue
		}
		f, err := fs.Open(path.Join("/m/views", name))
		require.NoError(t, err)
		size, err := f.Size()
		require.NoError(t, err)
		if size > 8 {
			found = true
			b := make([]byte, size/2)
			_, err = f.ReadAt(b, 8)
			require.NoError(t, err)
			for i := range b {
				b[i] ^= 0xff
			}
			_, err = f.WriteAt(b, 8)
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
	}
	require.True(t, found)
}

// TestDamagedViewsHoldNobodyUp damages the views before a start: they are begun
// again, and built from the logs.
func TestDamagedViewsHoldNobodyUp(t *testing.T) {
	for _, ending := range []string{"MANIFEST", ".sst", ".log", "OPTIONS"} {
		t.Run(ending, func(t *testing.T) {
			bubble(t, func(t *testing.T, fs *disk.Crash) {
				k, log := filled(t, fs)
				if ending == ".sst" {
					require.NoError(t, k.views.db.Load().Flush())
				}
				k.close()
				spoil(t, fs, ending)
				k.openViews()
				k.cfg.Views = k.views
				k.r = New(k.cfg)
				log = log.reopened(6)
				log.auto = true
				k.r.Host(log)
				log.lead(2)
				time.Sleep(10 * retryEvery)
				synctest.Wait()
				require.Equal(t, log.folded(6), k.read(0))
				k.put(0, "x", "1")
				synctest.Wait()
				require.Equal(t, log.folded(7), k.read(0))
				k.close()
			})
		})
	}
}

// TestViewsDamagedWhileTheyAreUsedAreBuiltAgain spoils tables under a runtime that
// leads one partition and follows another.
func TestViewsDamagedWhileTheyAreUsedAreBuiltAgain(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		leading, following := newFakeLog(0), newFakeLog(1)
		leading.auto = true
		leading.lead(1)
		k.r.Host(leading)
		k.r.Host(following)
		synctest.Wait()
		for i := range 2000 { // more than one block
			k.put(0, fmt.Sprint("key", i), strings.Repeat("v", 100))
			following.fake(1, plainBatch(fmt.Sprint("key", i), strings.Repeat("v", 100)))
		}
		following.epochs = append(following.epochs, epochStart{1, 0})
		following.commit(-1)
		synctest.Wait()
		bad := k.views.db.Load()
		require.NoError(t, bad.Flush())
		require.NoError(t, bad.Close())
		// The same database, open again, has nothing of it in its cache.
		k.views.db.Store(nil)
		k.views.db.Store(must(k.views.open()))
		bad = k.views.db.Load()
		k.r.reopen()
		synctest.Wait()
		spoil(t, fs, ".sst")
		_, err := k.tryRead(0)
		require.Error(t, err)
		synctest.Wait()
		for _, m := range k.made()[:1] {
			require.Len(t, m.ended, 1)
			require.ErrorIs(t, m.ended[0], ErrNotCoordinator, "another tenure begins")
		}
		time.Sleep(10 * retryEvery)
		synctest.Wait()
		require.NotSame(t, bad, k.views.db.Load())
		require.Equal(t, leading.folded(leading.mark), k.read(0))
		require.Equal(t, following.mark, k.applied(following.tp))
		following.lead(2)
		synctest.Wait()
		require.Equal(t, following.folded(following.mark), k.read(1))
		k.put(0, "x", "1")
		synctest.Wait()
		require.Equal(t, leading.folded(leading.mark), k.read(0))
		k.close()
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestViewsAreNotThrownAwayForWantOfRoom keeps views where the disk is full, or no
// descriptor is left, for one of the files that they are read from at a start.
func TestViewsAreNotThrownAwayForWantOfRoom(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EMFILE} {
		refused := 0
		for at, more := 1, true; more; at++ {
			bubble(t, func(t *testing.T, fs *disk.Crash) {
				k, log := filled(t, fs)
				k.close()
				var calls atomic.Int64
				fault := disk.NewFault(fs, func(op disk.Op) error {
					if op.Kind == disk.OpOpenReadOnly && calls.Add(1) == int64(at) {
						return cause
					}
					return nil
				})
				views, err := OpenViews(ViewsConfig{FS: fault, Dir: "/m/views"})
				more = calls.Load() >= int64(at)
				if err == nil {
					require.NoError(t, views.Close())
				} else {
					require.ErrorIs(t, err, cause)
					refused++
				}
				k.openViews()
				k.cfg.Views = k.views
				k.r = New(k.cfg)
				log = log.reopened(6)
				k.r.Host(log)
				log.lead(2)
				synctest.Wait()
				require.Equal(t, log.folded(6), k.read(0))
				require.Zero(t, log.read, "nothing was replayed")
				k.close()
			})
		}
		require.Positive(t, refused)
	}
}

// TestViewsAreNotFarBehindAfterAPowerLoss holds that what is older than the sync
// interval is not replayed.
func TestViewsAreNotFarBehindAfterAPowerLoss(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k, log := filled(t, fs)
		time.Sleep(syncEvery + 2*retryEvery)
		synctest.Wait()
		k.put(0, "later", "1")
		synctest.Wait()
		lost := fs.Clone(nil)
		k.close()

		k2 := newKit(t, lost)
		log = log.reopened(0)
		k2.r.Host(log)
		log.lead(2)
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, log.folded(7), k2.read(0))
		require.Less(t, log.read, 150, "one batch is replayed")
		require.Zero(t, k2.r.Status().Rebuilt)
		k2.close()
	})
}

// TestAnEntryThatNobodyWroteIsDamage finds one when it is read, and when it is not.
func TestAnEntryThatNobodyWroteIsDamage(t *testing.T) {
	for _, key := range []string{"entry", "pending"} {
		bubble(t, func(t *testing.T, fs *disk.Crash) {
			k, log := filled(t, fs)
			defer k.close()
			bad := k.views.db.Load()
			b := bad.NewBatch()
			if key == "entry" {
				b.Set(entryKey(log.tp, "b"), []byte("short"))
			} else {
				b.Set(store.ViewPendingKey(log.tp, 1, 2), []byte("short"))
			}
			require.NoError(t, k.views.commit(b))
			if key == "entry" {
				_, err := k.tryRead(0)
				require.ErrorContains(t, err, "malformed")
			} else {
				log.lead(2) // what is pending is read when a tenure begins
			}
			time.Sleep(3 * retryEvery)
			synctest.Wait()
			require.NotSame(t, bad, k.views.db.Load())
			require.Equal(t, log.folded(6), k.read(0))
		})
	}
}

// TestAnOrderlyStopLeavesNothingBehind cuts the power after a stop.
func TestAnOrderlyStopLeavesNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k, log := filled(t, fs)
		require.NoError(t, k.r.Close())
		lost := fs.Clone(nil)
		require.NoError(t, k.views.Close())
		k = newKit(t, lost)
		log = log.reopened(6)
		k.r.Host(log)
		log.lead(2)
		synctest.Wait()
		require.Equal(t, log.folded(6), k.read(0))
		require.Zero(t, log.read)
		k.close()
	})
}

// A batch that is damaged is named by its offset, for whoever mends the log; what
// lies before it is neither lost nor taken twice.
func TestADamagedBatchIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(3)
		log.auto = true
		k.r.Host(log)
		log.lead(5)
		synctest.Wait()
		for i := range 5 {
			k.put(3, fmt.Sprint("k", i), "v")
			synctest.Wait()
		}
		k.r.Unhost(log.TopicPartition())
		synctest.Wait()
		log.batches[3][len(log.batches[3])-1] ^= 1
		var applied atomic.Int64
		v, err := openView(k.views, log.TopicPartition(), identity{}, &applied)
		require.NoError(t, err)
		require.NoError(t, v.restart(log.LogState()))
		_, err = v.advance(log, 1<<20)
		require.ErrorContains(t, err, "batch at offset 3: ")
		require.Zero(t, v.next)
	})
}
