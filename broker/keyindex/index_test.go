package keyindex

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
	"strandline/metadata/store"
)

var tp = cluster.TopicPartition{Topic: cluster.TopicID{1, 2}, Partition: 3}

func testIndex(t testing.TB, fs disk.FS) *Index {
	t.Helper()
	x, err := Open(Config{FS: fs, Dir: "/meta/keyindex", MemTableBytes: 256 << 10, CacheBytes: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func fresh(t testing.TB, x *Index) *Partition {
	t.Helper()
	p, err := x.Open(tp)
	require.NoError(t, err)
	require.Equal(t, cluster.NoOffset, p.Position().Offset)
	require.NoError(t, p.Reset(0))
	return p
}

// twin is the index as maps.
type twin struct {
	latest   map[string]cluster.Offset
	dead     map[cluster.Offset]bool
	segments [][2]cluster.Offset
	batches  []recordbatch.Batch
	aborted  map[cluster.Offset]bool // by base offset
	next     cluster.Offset
}

func newTwin() *twin {
	return &twin{latest: map[string]cluster.Offset{}, dead: map[cluster.Offset]bool{}, aborted: map[cluster.Offset]bool{}}
}

// batch makes a random batch, and takes it in.
func (w *twin) batch(rng *rand.Rand, keys int) (recordbatch.Batch, bool) {
	w.next += cluster.Offset(rng.IntN(3)) // holes
	o := recordbatch.Options{BaseOffset: w.next, Transactional: rng.IntN(4) == 0, LeaderEpoch: 7}
	b := recordbatch.NewBuilder(o)
	aborted := o.Transactional && rng.IntN(2) == 0
	for range 1 + rng.IntN(10) {
		w.record(rng, b, keys, aborted)
	}
	batch := b.Build()
	w.batches = append(w.batches, batch)
	w.aborted[batch.BaseOffset()] = aborted
	return batch, aborted
}

func (w *twin) record(rng *rand.Rand, b *recordbatch.Builder, keys int, aborted bool) {
	at := w.next
	w.next++
	var value []byte
	if rng.IntN(4) > 0 {
		value = make([]byte, rng.IntN(30))
	}
	if rng.IntN(20) == 0 {
		b.Add(1, nil, value)
		w.dead[at] = true
		return
	}
	key := fmt.Sprint("key-", rng.IntN(keys))
	b.Add(1, []byte(key), value)
	if aborted {
		w.dead[at] = true
		return
	}
	if old, ok := w.latest[key]; ok {
		w.dead[old] = true
	}
	w.latest[key] = at
}

// check compares counts and lists of the dead with the twin's.
func (w *twin) check(t *testing.T, p *Partition) {
	t.Helper()
	require.Equal(t, int64(len(w.latest)), p.Keys())
	for _, s := range w.segments {
		var want []cluster.Offset
		for o := range w.dead {
			if o >= s[0] && o < s[1] {
				want = append(want, o)
			}
		}
		slices.Sort(want)
		var got []cluster.Offset
		for o, err := range p.Dead(s[0], s[0]+1) {
			require.NoError(t, err)
			got = append(got, o)
		}
		require.Equal(t, want, got)
		known, ok := p.Segment(s[0])
		require.True(t, ok)
		require.Equal(t, int64(len(want)), known.DeadRecords)
		var records, bytes, deadBytes, tombstones int64
		for _, b := range w.batches {
			if b.BaseOffset() < s[0] || b.BaseOffset() >= s[1] {
				continue
			}
			for r, err := range new(recordbatch.Decoder).Keys(b) {
				require.NoError(t, err)
				records++
				bytes += int64(r.Bytes)
				if w.dead[r.Offset] {
					deadBytes += int64(r.Bytes)
				} else if r.Tombstone {
					tombstones++
				}
			}
		}
		require.Equal(t, []int64{records, bytes, deadBytes, tombstones}, []int64{known.Records, known.RecordBytes, known.DeadBytes, known.Tombstones})
	}
}

// TestAgainstATwin feeds random batches, in feeds that end anywhere, through tables
// that are full all the time, and power losses after which the index goes on where
// it was, and compares it with maps.
func TestAgainstATwin(t *testing.T) {
	for seed := range uint64(15) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fs := disk.NewCrash(seed)
		cfg := Config{FS: fs, Dir: "/meta/keyindex", MemTableBytes: 256 << 10, CacheBytes: 1 << 20, BulkKeys: []int{0, 1, 40}[seed%3]}
		x, err := Open(cfg)
		require.NoError(t, err)
		p := fresh(t, x)
		w := newTwin()
		keys := []int{10, 300, 3000}[rng.IntN(3)]
		for range 8 {
			for range 1 + rng.IntN(3) { // segments
				base := w.next
				for range 1 + rng.IntN(30) {
					w.batch(rng, keys)
				}
				w.segments = append(w.segments, [2]cluster.Offset{base, w.next})
			}
			feedAll(t, p, w)
			w.check(t, p)
			switch rng.IntN(3) {
			case 0:
				require.NoError(t, x.Close())
			case 1: // what was not synced is lost, from the end
				lost := fs.Clone(rng)
				require.NoError(t, x.Close())
				fs = lost
			default:
				continue
			}
			cfg.FS = fs
			x, err = Open(cfg)
			require.NoError(t, err)
			p, err = x.Open(tp)
			require.NoError(t, err)
			if p.Position().Offset == cluster.NoOffset {
				require.NoError(t, p.Reset(0))
			}
			feedAll(t, p, w)
			w.check(t, p)
		}
		// Counting again from the records gives the same.
		before := p.Segments()
		for _, s := range w.segments {
			known, _ := p.Segment(s[0])
			c := p.Count(s[0], s[1], known.Bytes, 1)
			for _, b := range w.batches {
				if b.BaseOffset() >= s[0] && b.BaseOffset() < s[1] {
					require.NoError(t, c.Add(b, w.aborted[b.BaseOffset()]))
				}
			}
			require.NoError(t, c.Commit())
		}
		require.Equal(t, before, p.Segments())
		w.check(t, p)
		require.NoError(t, x.Close())
	}
}

// feedAll feeds what the index does not have.
func feedAll(t *testing.T, p *Partition, w *twin) {
	t.Helper()
	from := p.Position().Offset
	feed := p.Feed(1)
	for _, s := range w.segments {
		if s[1] <= from {
			continue
		}
		feed.Segment(s[0], s[1], int64(s[1]-s[0]))
		for _, b := range w.batches {
			if b.BaseOffset() >= s[0] && b.BaseOffset() < s[1] {
				require.NoError(t, feed.Add(b, w.aborted[b.BaseOffset()]))
			}
		}
	}
	stats, err := feed.Commit(Position{w.next, 7})
	require.NoError(t, err)
	require.Positive(t, stats.Merges)
	require.LessOrEqual(t, int64(stats.KeysMax), stats.Records)
	require.Equal(t, Position{w.next, 7}, p.Position())
}

// TestSegmentsThatEndInAHole: the position is past the hole, with the epoch of what
// lies below it.
func TestSegmentsThatEndInAHole(t *testing.T) {
	p := fresh(t, testIndex(t, disk.NewCrash(1)))
	w := newTwin()
	w.batch(rand.New(rand.NewPCG(1, 1)), 10)
	end := w.next
	feed := p.Feed(1)
	feed.Segment(0, end+5, 100)
	require.NoError(t, feed.Add(w.batches[0], false))
	_, err := feed.Commit(Position{end + 5, 9})
	require.NoError(t, err)
	require.Equal(t, Position{end + 5, 9}, p.Position())
	feed = p.Feed(1)
	feed.Segment(end+5, end+9, 100)
	_, err = feed.Commit(Position{end + 5, 3})
	require.NoError(t, err)
	require.Equal(t, Position{end + 5, 9}, p.Position(), "never back")
}

// TestCountKeepsToThePosition: of a segment that is fed in part only that is counted.
func TestCountKeepsToThePosition(t *testing.T) {
	p := fresh(t, testIndex(t, disk.NewCrash(1)))
	w := newTwin()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 6 {
		w.batch(rng, 1000)
	}
	end := w.next
	feed := p.Feed(1)
	feed.Segment(0, end, 100)
	for _, b := range w.batches[:3] {
		require.NoError(t, feed.Add(b, w.aborted[b.BaseOffset()]))
	}
	_, err := feed.Commit(Position{w.batches[2].NextOffset(), 7})
	require.NoError(t, err)
	before, ok := p.Segment(0)
	require.True(t, ok)
	count := p.Count(0, end, 100, 1)
	for _, b := range w.batches {
		require.NoError(t, count.Add(b, w.aborted[b.BaseOffset()]))
	}
	require.NoError(t, count.Commit())
	after, ok := p.Segment(0)
	require.True(t, ok)
	require.Equal(t, before, after)
}

func TestReplacedAndForgotten(t *testing.T) {
	x := testIndex(t, disk.NewCrash(1))
	p := fresh(t, x)
	w := newTwin()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 4 {
		base := w.next
		for range 20 {
			w.batch(rng, 30)
		}
		w.segments = append(w.segments, [2]cluster.Offset{base, w.next})
	}
	feedAll(t, p, w)
	first, next := w.segments[1][0], w.segments[2][1]
	by := Segment{Base: first, Next: next, Bytes: 77, Records: 5, CleanedThrough: w.next, FilteredAt: 9, Transactions: true}
	require.NoError(t, p.Replaced(first, next, []Segment{by}))
	check := func(p *Partition) {
		require.Equal(t, []cluster.Offset{0, first, w.segments[3][0]}, []cluster.Offset{p.Segments()[0].Base, p.Segments()[1].Base, p.Segments()[2].Base})
		got, ok := p.Segment(first)
		require.True(t, ok)
		require.Equal(t, by, got)
		for range p.Dead(first, next) {
			t.Fatal("its lists are gone")
		}
		for range p.Dead(0, 1) {
			return // the others are there
		}
		t.Fatal("lists of others are gone")
	}
	check(p)
	again, err := x.Open(tp)
	require.NoError(t, err)
	check(again)

	keys := p.Keys()
	f := p.Forgetting()
	require.NoError(t, f.Key([]byte("key-1")))
	require.NoError(t, f.Key([]byte("key-2")))
	require.NoError(t, f.Commit())
	require.Equal(t, keys-2, p.Keys())
	require.NoError(t, p.Retain(func(s Segment) bool { return s.Base >= first }))
	require.Len(t, p.Segments(), 2)
	removed, err := p.Sweep(w.segments[3][0])
	require.NoError(t, err)
	require.Positive(t, removed)
	left := int64(0)
	for k, o := range w.latest {
		if o >= w.segments[3][0] && k != "key-1" && k != "key-2" {
			left++
		}
	}
	require.Equal(t, left, p.Keys())
}

// TestPartitionsAreApart: two partitions have their own keys and secrets, and one
// that is dropped leaves nothing behind.
func TestPartitionsAreApart(t *testing.T) {
	x := testIndex(t, disk.NewCrash(1))
	p := fresh(t, x)
	w := newTwin()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		w.batch(rng, 30)
	}
	w.segments = append(w.segments, [2]cluster.Offset{0, w.next})
	feedAll(t, p, w)
	other := tp
	other.Partition = 4
	q, err := x.Open(other)
	require.NoError(t, err)
	require.NoError(t, q.Reset(0))
	require.NotEqual(t, p.meta.secret, q.meta.secret)
	require.NotEqual(t, p.meta.id, q.meta.id)
	require.Zero(t, q.Keys())
	feedAll(t, q, w)
	w.check(t, p)
	all, err := x.Partitions()
	require.NoError(t, err)
	require.Equal(t, []cluster.TopicPartition{tp, other}, all)
	require.NoError(t, x.Drop(tp))
	all, err = x.Partitions()
	require.NoError(t, err)
	require.Equal(t, []cluster.TopicPartition{other}, all)
	w.check(t, q)
	for _, r := range store.KeyIndex(p.meta.id) {
		for e := range p.db.Scan(r) {
			t.Fatalf("key %x is left", e.Key)
		}
	}
	secret := q.meta.secret
	require.NoError(t, q.Reset(5))
	require.NotEqual(t, secret, q.meta.secret, "another secret, for what an attacker may have learnt of the former one")
	require.Equal(t, cluster.Offset(5), q.Position().Offset)
	require.Empty(t, q.Segments())
}

// TestDamagedDatabase: what cannot be trusted is begun anew, and whoever holds a
// part of the old one is told.
func TestDamagedDatabase(t *testing.T) {
	fs := disk.NewCrash(1)
	x := testIndex(t, fs)
	p := fresh(t, x)
	require.False(t, x.Failed(store.ErrClosed))
	b := x.live().NewWriteBatch()
	b.Set(store.KeyIndexMetaKey(tp), []byte("rubbish"))
	require.NoError(t, b.Commit(store.NoSync))
	require.NoError(t, b.Close())
	_, err := x.Open(tp)
	require.ErrorIs(t, err, ErrCorrupt)
	require.True(t, x.Failed(err))
	require.ErrorIs(t, p.Reset(0), store.ErrClosed)
	again, err := x.Open(tp)
	require.NoError(t, err)
	require.Equal(t, cluster.NoOffset, again.Position().Offset)
	require.NoError(t, again.Reset(0))
	require.NoError(t, x.Close())

	names, err := fs.List("/meta/keyindex")
	require.NoError(t, err)
	for _, name := range names {
		f, err := fs.Open("/meta/keyindex/" + name)
		if err != nil {
			continue
		}
		require.NoError(t, f.Truncate(3))
		require.NoError(t, f.Close())
	}
	x = testIndex(t, fs)
	_, err = x.Open(tp)
	require.NoError(t, err)
}

func TestTableGrowsPastItsSize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	tab := newTable(100)
	put := func(h hash, l latest) (latest, bool) {
		old, replaced := tab.put(newSlot(h, l))
		return old.latest(), replaced
	}
	want := map[hash]latest{}
	for i := range 5000 {
		h := hash{rng.Uint64(), rng.Uint64()}
		if i%50 == 0 {
			h.hi = math.MaxUint64 - h.hi>>60 // of the last slots' places, more than there are
		}
		want[h] = latest{cluster.Offset(i), 1, false}
		_, replaced := put(h, want[h])
		require.False(t, replaced)
	}
	for h, l := range want {
		old, replaced := put(h, latest{9999, 5, true})
		require.True(t, replaced)
		require.Equal(t, l, old)
		want[h] = latest{9999, 5, true}
		break
	}
	got := tab.sorted()
	require.True(t, slices.IsSortedFunc(got, func(a, b slot) int { return a.hash.compare(b.hash) }))
	all := map[hash]latest{}
	for _, s := range got {
		all[s.hash] = s.latest()
	}
	require.Len(t, got, len(want))
	require.Equal(t, want, all)
	tab.clear()
	require.Empty(t, tab.sorted())
	require.Len(t, tab.slots, tableSlots+slotsSpare, "it had more than it is meant for")
}

func TestSortOffsets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, within := range []int64{1, 100, 1 << 20, math.MaxInt64} {
		for _, n := range []int{0, 1, sortAtOnce, sortAtOnce + 1, 100_000} {
			a := make([]cluster.Offset, n)
			for i := range a {
				a[i] = cluster.Offset(rng.Int64N(within))
				if i%2 == 0 {
					a[i] = a[i/2] // some twice, and many close together
				}
			}
			want := slices.Clone(a)
			slices.Sort(want)
			sortOffsets(a)
			require.Equal(t, want, a)
		}
	}
}

// TestFeedsMemory: a table has as many keys as fit in a quarter of the memory, at its
// densest, and what waits beside it is bounded too.
func TestFeedsMemory(t *testing.T) {
	p := fresh(t, testIndex(t, disk.NewCrash(1)))
	for memory, keys := range map[int64]int{1: keysMin, 1 << 20: 3 << 11, 100 << 20: 3 << 17, 128 << 20: 3 << 18} {
		f := p.Feed(memory)
		require.Equal(t, keys, f.table.max, "%d bytes", memory)
		require.LessOrEqual(t, int64(f.deadMax)*8, max(memory/8, 1<<10))
	}
}

func TestCodecs(t *testing.T) {
	s := Segment{1 << 40, 1<<40 + 5, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, true}
	got, err := decodeSegment(s.encode())
	require.NoError(t, err)
	require.Equal(t, s, got)
	m := meta{7, hashKey{8, 9}, Position{10, 11}, 12}
	back, err := decodeMeta(m.encode())
	require.NoError(t, err)
	require.Equal(t, m, back)
	l := latest{1 << 50, 1 << 30, true}
	value, err := decodeLatest(l.append(nil))
	require.NoError(t, err)
	require.Equal(t, l, value)
	for _, bad := range [][]byte{nil, {1}, s.encode()[:5], {0}} {
		_, err = decodeSegment(bad)
		require.ErrorIs(t, err, ErrCorrupt)
	}
	_, err = decodeMeta(m.encode()[:40])
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = decodeLatest([]byte{0x80})
	require.ErrorIs(t, err, ErrCorrupt)
}
