package store_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/metadata/disk"
	"strandline/metadata/store"
)

func open(t *testing.T, fs disk.FS, dir string) *store.DB {
	t.Helper()
	db, err := store.Open(store.Config{FS: fs, Dir: dir})
	require.NoError(t, err)
	return db
}

func commit(t *testing.T, db *store.DB, durability store.Durability, pairs ...string) {
	t.Helper()
	b := db.NewBatch()
	for i := 0; i < len(pairs); i += 2 {
		b.Set([]byte(pairs[i]), []byte(pairs[i+1]))
	}
	require.NoError(t, b.Commit(durability))
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
}

func pairs(t *testing.T, seq iter.Seq2[store.Entry, error]) []string {
	t.Helper()
	out := []string{}
	for e, err := range seq {
		require.NoError(t, err)
		out = append(out, string(e.Key), string(e.Value))
	}
	return out
}

func keys(lower, upper string) store.Range {
	return store.Range{Lower: []byte(lower), Upper: []byte(upper)}
}

func noLeak(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

func TestReadersAndBatches(t *testing.T) {
	noLeak(t)
	db := open(t, disk.NewCrash(1), "/m/db")
	commit(t, db, store.NoSync, "a", "1", "b", "", "c", "3")

	snap, err := db.Snapshot()
	require.NoError(t, err)
	b := db.NewBatch()
	b.Set([]byte("d"), []byte("4"))
	b.Delete([]byte("a"))
	b.Delete([]byte("none"))
	b.DeleteRange(keys("b", "d"))
	require.Equal(t, []string{"d", "4"}, pairs(t, b.Scan(keys("a", "z"))), "a batch shows its own changes")
	require.NoError(t, b.Commit(store.Sync))
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Commit(store.Sync), store.ErrClosed)

	require.Equal(t, []string{"d", "4"}, pairs(t, db.Scan(keys("a", "z"))))
	require.Equal(t, []string{"a", "1", "b", "", "c", "3"}, pairs(t, snap.Scan(keys("a", "z"))))
	_, ok, err := db.Get([]byte("a"))
	require.NoError(t, err)
	require.False(t, ok)
	v, ok, err := snap.Get([]byte("b"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []byte{}, v)
	e, ok, err := snap.Last(keys("a", "c"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "b", string(e.Key))
	_, ok, err = db.Last(keys("a", "c"))
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, snap.Close())
	require.NoError(t, snap.Close())

	require.Positive(t, db.Stats().DiskBytes)
	require.NoError(t, db.Close())
	require.NoError(t, db.Close())
	_, _, err = db.Get([]byte("a"))
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = db.Snapshot()
	require.ErrorIs(t, err, store.ErrClosed)
	require.ErrorIs(t, db.NewBatch().Commit(store.Sync), store.ErrClosed)
	require.ErrorIs(t, db.Flush(), store.ErrClosed)
	for _, err := range db.Scan(keys("a", "z")) {
		require.ErrorIs(t, err, store.ErrClosed)
	}
}

func TestCheckpoint(t *testing.T) {
	noLeak(t)
	for name, fs := range map[string]disk.FS{"crash": disk.NewCrash(1), "os": disk.OS()} {
		t.Run(name, func(t *testing.T) {
			root := "/m"
			if name == "os" {
				root = t.TempDir()
			}
			db := open(t, fs, root+"/db")
			for i := range 500 {
				commit(t, db, store.NoSync, fmt.Sprintf("k%03d", i), "old")
			}
			require.NoError(t, db.Flush())
			commit(t, db, store.NoSync, "late", "in the log only")
			require.NoError(t, db.Checkpoint(root+"/copy"))
			require.Error(t, db.Checkpoint(root+"/copy"), "it exists")
			for i := range 500 {
				commit(t, db, store.NoSync, fmt.Sprintf("k%03d", i), "new")
			}
			require.NoError(t, db.Flush())
			require.NoError(t, db.Close())

			cp := open(t, fs, root+"/copy")
			v, _, err := cp.Get([]byte("k007"))
			require.NoError(t, err)
			require.Equal(t, "old", string(v))
			v, _, err = cp.Get([]byte("late"))
			require.NoError(t, err)
			require.Equal(t, "in the log only", string(v))
			require.NoError(t, cp.Close())
		})
	}
}

// bulk writes pairs as a Bulk; an empty key begins a table.
func bulk(t *testing.T, db *store.DB, pairs ...string) {
	t.Helper()
	b := db.NewBulk()
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] == "" {
			b.Table()
			continue
		}
		b.Set([]byte(pairs[i]), []byte(pairs[i+1]))
	}
	require.NoError(t, b.Commit())
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
}

// TestBulk: what it writes lies over everything before, in whatever form, and below
// what comes after; what was not committed leaves nothing.
func TestBulk(t *testing.T) {
	noLeak(t)
	for _, background := range []bool{false, true} {
		for name, fs := range map[string]disk.FS{"crash": disk.NewCrash(1), "os": disk.OS()} {
			t.Run(fmt.Sprint(name, background), func(t *testing.T) {
				dir := path.Join(t.TempDir(), "db")
				db, err := store.Open(store.Config{FS: fs, Dir: dir, Background: background})
				require.NoError(t, err)
				commit(t, db, store.NoSync, "a", "1", "b", "1", "c", "1")
				bulk(t, db, "b", "2", "d", "2", "", "", "", "", "a", "2", "", "")
				require.Equal(t, []string{"a", "2", "b", "2", "c", "1", "d", "2"}, pairs(t, db.Scan(keys("a", "z"))))
				require.NoError(t, db.Flush())
				bulk(t, db, "c", "3", "e", "3")
				commit(t, db, store.NoSync, "e", "4")
				bulk(t, db) // nothing
				want := []string{"a", "2", "b", "2", "c", "3", "d", "2", "e", "4"}
				require.Equal(t, want, pairs(t, db.Scan(keys("a", "z"))))

				b, other := db.NewBulk(), db.NewBulk()
				b.Set([]byte("x"), nil)
				other.Set([]byte("c"), []byte("5"))
				require.NoError(t, other.Commit())
				require.NoError(t, errors.Join(b.Close(), other.Close()))
				require.ErrorIs(t, b.Commit(), store.ErrClosed)
				want[5] = "5"
				b = db.NewBulk()
				b.Set([]byte("y"), nil)
				b.Set([]byte("x"), nil)
				require.ErrorContains(t, b.Commit(), "order")
				require.NoError(t, b.Close())
				left, err := fs.List(path.Join(dir, "bulk"))
				require.NoError(t, err)
				require.Empty(t, left)

				require.NoError(t, disk.WriteFileAtomic(fs, path.Join(dir, "bulk", "1"), []byte("of a killed process")))
				require.NoError(t, db.Close())
				require.ErrorIs(t, db.NewBulk().Commit(), store.ErrClosed)
				require.NoError(t, db.NewBulk().Close())
				db, err = store.Open(store.Config{FS: fs, Dir: dir, Background: background})
				require.NoError(t, err)
				require.Equal(t, want, pairs(t, db.Scan(keys("a", "z"))))
				_, err = fs.Stat(path.Join(dir, "bulk"))
				require.ErrorIs(t, err, os.ErrNotExist)
				require.NoError(t, db.Close())
			})
		}
	}
}

// After a power loss a DB shows a prefix of the batches, whole ones, that
// reaches at least to the last one committed with Sync (S1).
func TestPowerLoss(t *testing.T) {
	noLeak(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 4 {
		fs := disk.NewCrash(uint64(round))
		db := open(t, fs, "/m/db")
		synced := -1
		for n := range 120 {
			durability := store.Durability(rng.IntN(6) == 0)
			if rng.IntN(8) == 0 {
				durability = store.Sync
				bulk(t, db, fmt.Sprintf("n%03d", n), "", "", "", "x", fmt.Sprint(n), "y", fmt.Sprint(n))
			} else {
				commit(t, db, durability, "x", fmt.Sprint(n), "y", fmt.Sprint(n), fmt.Sprintf("n%03d", n), "")
			}
			if durability == store.Sync {
				synced = n
			}
			if rng.IntN(20) == 0 {
				require.NoError(t, db.Flush())
				synced = n
			}
			if rng.IntN(4) != 0 {
				continue
			}
			clone := open(t, fs.Clone(rng), "/m/db")
			x, ok, err := clone.Get([]byte("x"))
			require.NoError(t, err)
			y, _, err := clone.Get([]byte("y"))
			require.NoError(t, err)
			require.Equal(t, string(x), string(y), "a batch is whole")
			count := len(pairs(t, clone.Scan(keys("n", "o")))) / 2
			if ok {
				require.Equal(t, fmt.Sprint(count-1), string(x), "no gap")
			}
			require.Greater(t, count, synced, "what was synced survives")
			require.NoError(t, clone.Close())
		}
		require.NoError(t, db.Close())
	}
}

// attempt runs fn on a goroutine that the engine may end.
func attempt(fatal <-chan error, fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-fatal:
	}
}

// Whatever call to the disk fails, a commit that reported success is there
// after a power loss, and the store opens again (S3).
func TestEveryCallFails(t *testing.T) {
	var fatals, errs int
	for step := int64(0); ; step++ {
		crash := disk.NewCrash(uint64(step))
		fault := disk.NewFault(crash, disk.FailOnce(step))
		fatal := make(chan error, 16)
		var acked []string
		injected := false
		note := func(err error) bool {
			if err != nil {
				errs++
				injected = true
			}
			return err == nil
		}
		attempt(fatal, func() {
			db, err := store.Open(store.Config{FS: fault, Dir: "/m/db", Fatal: func(err error) {
				fatals++
				injected = true
				fatal <- err
			}})
			if !note(err) {
				return
			}
			for n := range 3 {
				b := db.NewBatch()
				b.Set(fmt.Appendf(nil, "k%d", n), []byte("v"))
				if note(b.Commit(store.Sync)) {
					acked = append(acked, fmt.Sprintf("k%d", n))
				}
				note(b.Close())
				if n == 0 {
					b := db.NewBulk()
					b.Set([]byte("l"), make([]byte, 1<<20)) // more than is written at once
					b.Table()
					b.Set([]byte("b"), nil)
					if note(b.Commit()) {
						acked = append(acked, "b", "l")
					}
					note(b.Close())
				}
				if n == 1 {
					note(db.Flush())
					note(db.Checkpoint("/m/copy"))
				}
			}
			note(db.Close())
		})
		db := open(t, crash.Clone(nil), "/m/db")
		for _, k := range acked {
			_, ok, err := db.Get([]byte(k))
			require.NoError(t, err)
			require.True(t, ok, "step %d: %s was acknowledged", step, k)
		}
		require.NoError(t, db.Close())
		if !injected && fault.Calls() <= step {
			break
		}
	}
	require.Positive(t, fatals)
	require.Positive(t, errs)
}

func TestCorruptTable(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	db := open(t, fs, "/m/db")
	commit(t, db, store.NoSync, "k", "v")
	require.NoError(t, db.Flush())
	require.NoError(t, db.Close())
	names, err := fs.List("/m/db")
	require.NoError(t, err)
	for _, name := range names {
		if path.Ext(name) != ".sst" {
			continue
		}
		f, err := fs.Open("/m/db/" + name)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, 10)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	db = open(t, fs, "/m/db")
	_, _, err = db.Get([]byte("k"))
	var corrupt *store.CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, "/m/db", corrupt.Dir)
	require.Equal(t, "6b", corrupt.Key)
	_, _, err = db.Last(keys("a", "z"))
	require.ErrorAs(t, err, &corrupt)
	for _, err := range db.Scan(keys("a", "z")) {
		require.ErrorAs(t, err, &corrupt)
	}
	require.NoError(t, db.Close())
}
