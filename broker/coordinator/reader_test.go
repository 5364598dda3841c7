package coordinator

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
	"strandline/metadata/store"
)

func collect(t testing.TB, seq iter.Seq2[Entry, error]) []string {
	t.Helper()
	out := []string{}
	for e, err := range seq {
		require.NoError(t, err)
		require.Equal(t, string(e.Key), string(e.ViewKey))
		out = append(out, string(e.Key)+"="+string(e.Value))
	}
	return out
}

// compareSets compares the sets that a reader knows with its entries.
func compareSets(t testing.TB, r Reader) {
	t.Helper()
	want := []string{}
	for e, err := range r.Scan(nil) {
		require.NoError(t, err)
		if n := (identity{}).SetBytes(e.ViewKey); n > 0 && !slices.Contains(want, string(e.ViewKey[:n])) {
			want = append(want, string(e.ViewKey[:n]))
		}
	}
	for _, prefix := range []string{"", "a"} {
		got := []string{}
		for set, err := range r.Sets([]byte(prefix)) {
			require.NoError(t, err)
			got = append(got, string(set))
		}
		require.Equal(t, slices.DeleteFunc(slices.Clone(want), func(s string) bool { return !strings.HasPrefix(s, prefix) }), got)
	}
	for range r.Sets(nil) {
		break // it may be left
	}
}

// TestASetThatIsEmptiedLeavesNothing looks at what a view notes of its sets.
func TestASetThatIsEmptiedLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(0)
		log.auto = true
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		notes := func() (out []string) {
			for e, err := range k.views.db.Load().Scan(store.ViewSets(log.tp, nil)) {
				require.NoError(t, err)
				out = append(out, string(store.ViewSet(e.Key))+"="+string(e.Value))
			}
			return out
		}
		for _, pair := range []string{"a1=1", "a2=1", "b1=1", "x=1"} {
			k.put(0, pair[:len(pair)-2], "1")
		}
		synctest.Wait()
		require.Equal(t, []string{"a=f", "b=f"}, notes())
		k.put(0, "a1", "-")
		synctest.Wait()
		require.Equal(t, []string{"a=d", "b=f"}, notes(), "somebody has to look")
		require.Equal(t, map[string]string{"a2": "1", "b1": "1", "x": "1"}, k.read(0))
		k.put(0, "b1", "-")
		k.put(0, "a2", "-")
		synctest.Wait()
		require.Empty(t, notes())
		k.put(0, "a2", "-")
		k.put(0, "a2", "2")
		synctest.Wait()
		require.Equal(t, []string{"a=f"}, notes())
		require.Equal(t, map[string]string{"a2": "2", "x": "1"}, k.read(0))
	})
}

// TestScansShowViewAndOverlayAsOne compares scans by prefix and from a key with a
// map, where entries are in the view, above it, both, or deleted above it.
func TestScansShowViewAndOverlayAsOne(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(0)
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		rng := rand.New(rand.NewPCG(1, 1))
		all := map[string]string{}
		key := func() string {
			return strings.Repeat("a", rng.IntN(3)) + strings.Repeat("\xff", rng.IntN(2)) + string(rune('a'+rng.IntN(4)))
		}
		want := func(pairs map[string]string, prefix, from string) []string {
			out := []string{}
			for _, k := range slices.Sorted(maps.Keys(pairs)) {
				if strings.HasPrefix(k, prefix) && k >= from {
					out = append(out, k+"="+pairs[k])
				}
			}
			return out
		}
		compare := func(r Reader, pairs map[string]string) {
			for range 10 {
				prefix, from := key()[:rng.IntN(2)], key()
				require.Equal(t, want(pairs, prefix, ""), collect(t, r.Scan([]byte(prefix))), "%q", prefix)
				require.Equal(t, want(pairs, prefix, from), collect(t, r.ScanFrom([]byte(prefix), []byte(from))), "%q from %q", prefix, from)
				e, ok, err := r.Get([]byte(from))
				require.NoError(t, err)
				value, there := pairs[from]
				require.Equal(t, there, ok)
				require.Equal(t, value, string(e.Value))
			}
			for range r.Scan(nil) {
				break // a scan may be left
			}
			compareSets(t, r)
		}
		committed := map[string]string{}
		for round := range 200 {
			require.NoError(t, k.r.Do(0, func(_ time.Time, m Machine, tx *Tx) {
				for range rng.IntN(4) {
					name, value := key(), fmt.Sprint(round)
					if rng.IntN(3) == 0 {
						value = "-"
						delete(all, name)
					} else {
						all[name] = value
					}
					m.(*ledger).put(tx, name, value, func(error) {})
				}
				compare(tx.Reader(), all)
			}))
			synctest.Wait()
			if rng.IntN(3) == 0 {
				log.commit(-1)
				synctest.Wait()
				committed = maps.Clone(all)
			}
			require.NoError(t, k.r.Read(0, func(r Reader) error { compare(r, committed); return nil }))
		}
	})
}

// TestAScanIsOfOneMoment appends while it scans, as who deletes what it finds does.
func TestAScanIsOfOneMoment(t *testing.T) {
	bubble(t, func(t *testing.T, fs *disk.Crash) {
		k := newKit(t, fs)
		defer k.close()
		log := newFakeLog(0)
		log.lead(1)
		k.r.Host(log)
		synctest.Wait()
		for i := range 6 {
			k.put(0, fmt.Sprint("k", i), "v")
			synctest.Wait()
			if i == 2 {
				log.commit(-1)
			}
		}
		var seen []string
		require.NoError(t, k.r.Do(0, func(_ time.Time, m Machine, tx *Tx) {
			for e, err := range tx.Reader().Scan([]byte("k")) {
				require.NoError(t, err)
				seen = append(seen, string(e.Key))
				m.(*ledger).put(tx, string(e.Key), "-", func(error) {})
				m.(*ledger).put(tx, "k"+string(e.Key), "v", func(error) {})
			}
		}))
		synctest.Wait()
		require.Equal(t, []string{"k0", "k1", "k2", "k3", "k4", "k5"}, seen)
		log.commit(-1)
		synctest.Wait()
		require.Equal(t, []string{"kk0", "kk1", "kk2", "kk3", "kk4", "kk5"}, slices.Sorted(maps.Keys(k.read(0))))
	})
}
