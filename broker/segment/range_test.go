package segment

import (
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// forms are a segment's lives; each is made of one that is being written.
var forms = []struct {
	name string
	make func(t *testing.T, w Where, s *Segment) *Segment
}{
	{"written", func(_ *testing.T, _ Where, s *Segment) *Segment { return s }},
	{"sealed", func(t *testing.T, _ Where, s *Segment) *Segment {
		require.NoError(t, s.Seal(5000))
		return s
	}},
	{"synced", func(t *testing.T, _ Where, s *Segment) *Segment {
		require.NoError(t, s.Seal(5000))
		s.Synced()
		return s
	}},
	{"opened", func(t *testing.T, w Where, s *Segment) *Segment {
		require.NoError(t, s.Seal(5000))
		s.Close()
		s, err := OpenSealed(w, s.Base(), 5000, testInterval)
		require.NoError(t, err)
		return s
	}},
	{"opened, with an index of lies", func(t *testing.T, w Where, s *Segment) *Segment {
		require.NoError(t, s.Seal(5000))
		s.Close()
		data, err := disk.ReadFile(w.FS, s.indexName)
		require.NoError(t, err)
		for i := 3; i+OffsetEntryBytes < len(data); i += OffsetEntryBytes {
			data[i]++ // each offset but the last one
		}
		require.NoError(t, disk.WriteFileUnsynced(w.FS, s.indexName, data))
		s, err = OpenSealed(w, s.Base(), 5000, testInterval)
		require.NoError(t, err)
		return s
	}},
	{"opened, with an index of other batches' positions", func(t *testing.T, w Where, s *Segment) *Segment {
		require.NoError(t, s.Seal(5000))
		s.Close()
		data, err := disk.ReadFile(w.FS, s.indexName)
		require.NoError(t, err)
		for i := 4; i+2*OffsetEntryBytes < len(data); i += OffsetEntryBytes {
			copy(data[i:i+4], data[i+OffsetEntryBytes:])
		}
		require.NoError(t, disk.WriteFileUnsynced(w.FS, s.indexName, data))
		s, err = OpenSealed(w, s.Base(), 5000, testInterval)
		require.NoError(t, err)
		return s
	}},
}

func inEveryForm(t *testing.T, base cluster.Offset, count int, fn func(t *testing.T, s *Segment, headers []Header)) {
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			w := testWhere(t)
			files := &openFiles{FS: w.FS}
			w.FS, w.Handles = files, disk.NewHandleCache(files, 8)
			s, headers := write(t, w, base, count)
			s = f.make(t, w, s)
			fn(t, s, headers)
			s.Close()
			require.Zero(t, files.open.Load(), "files that lookups left open")
		})
	}
}

// openFiles counts the files that are open.
type openFiles struct {
	disk.FS
	open atomic.Int64
}

type openFile struct {
	disk.File
	fs *openFiles
}

func (o *openFiles) count(f disk.File, err error) (disk.File, error) {
	if err != nil {
		return nil, err
	}
	o.open.Add(1)
	return &openFile{f, o}, nil
}

func (o *openFiles) Create(name string) (disk.File, error) { return o.count(o.FS.Create(name)) }
func (o *openFiles) Open(name string) (disk.File, error)   { return o.count(o.FS.Open(name)) }
func (o *openFiles) OpenReadOnly(name string) (disk.File, error) {
	return o.count(o.FS.OpenReadOnly(name))
}

func (f *openFile) Close() error {
	f.fs.open.Add(-1)
	return f.File.Close()
}

// requireRange compares a Range with what a scan over all headers gives.
func requireRange(t *testing.T, s *Segment, headers []Header, from cluster.Offset, lim Limits) {
	t.Helper()
	got, err := s.Range(from, lim)
	require.NoError(t, err)
	in := headers
	for len(in) > 0 && in[0].Next <= from {
		in = in[1:]
	}
	if len(in) == 0 {
		require.Equal(t, Range{s.Bytes(), s.Bytes(), from, true}, got, "from %d, %+v", from, lim)
		return
	}
	start, end, n := in[0].Position, in[0].Position, 0
	for _, h := range in {
		fits := h.End()-start <= lim.MaxBytes || lim.MinOne && n == 0
		if !fits || h.Next > lim.Bound {
			break
		}
		end = h.End()
		n++
	}
	require.Equal(t, [2]int64{start, end}, [2]int64{got.Start, got.End}, "from %d, %+v", from, lim)
	require.Equal(t, end == s.Bytes(), got.AtEnd, "from %d, %+v", from, lim)
	next := []cluster.Offset{from}
	if n > 0 {
		next[0] = in[n-1].Next
		if n < len(in) {
			next = append(next, in[n].Base)
		} else {
			next = append(next, s.Next())
		}
	}
	require.Contains(t, next, got.Next, "from %d, %+v", from, lim)
}

// TestRangesAreThoseOfAScan: whatever is asked in whatever order, so with the
// hints that one answer leaves to the next, a range is the batches that a scan
// finds: from the one that reaches past the offset, below the bound, in the bytes.
func TestRangesAreThoseOfAScan(t *testing.T) {
	inEveryForm(t, 1000, 24, func(t *testing.T, s *Segment, headers []Header) {
		end := headers[len(headers)-1].Next
		for o := s.Base() - 1; o <= end+1; o++ {
			for _, bound := range []cluster.Offset{0, s.Base(), o, o + 1, o + 5, end - 1, end, 5000, 1 << 40} {
				for _, most := range []int64{-5, 0, 1, 700, 1 << 40} {
					requireRange(t, s, headers, o, Limits{Bound: bound, MaxBytes: most})
					requireRange(t, s, headers, o, Limits{Bound: bound, MaxBytes: most, MinOne: true})
				}
			}
		}
		// Sizes that end just at, before and behind a batch.
		for i, h := range headers {
			for j := i; j < min(i+8, len(headers)); j++ {
				for d := int64(-1); d <= 1; d++ {
					requireRange(t, s, headers, h.Base, Limits{Bound: 1 << 40, MaxBytes: headers[j].End() - h.Position + d})
					requireRange(t, s, headers, h.Base, Limits{Bound: headers[j].Next + cluster.Offset(d), MaxBytes: 1 << 40})
				}
			}
		}
		rng := rand.New(rand.NewPCG(7, 7))
		for range 1000 {
			from := s.Base() + cluster.Offset(rng.Int64N(int64(end-s.Base())))
			requireRange(t, s, headers, from, Limits{
				Bound:    s.Base() + cluster.Offset(rng.Int64N(int64(end-s.Base())+9)),
				MaxBytes: rng.Int64N(s.Bytes()), MinOne: rng.IntN(2) == 0,
			})
		}
	})
}

// TestFirstAtTimeFromAndBelow: an offset to start from and a bound, in every form.
func TestFirstAtTimeFromAndBelow(t *testing.T) {
	inEveryForm(t, 1000, 30, func(t *testing.T, s *Segment, headers []Header) {
		end := headers[len(headers)-1].Next
		for from := s.Base() - 1; from <= end+1; from += 3 {
			for ts := int64(880); ts < 1700; ts += 31 {
				var want *Header
				for i, h := range headers {
					if h.Next > from && h.MaxTimestamp >= ts {
						want = &headers[i]
						break
					}
				}
				bounds := []cluster.Offset{0, 1 << 40}
				if want != nil {
					bounds = append(bounds, want.Base, want.Base+1)
				}
				for _, bound := range bounds {
					b, ok, err := s.FirstAtTime(ts, from, bound)
					require.NoError(t, err)
					require.Equal(t, want != nil && want.Base < bound, ok, "timestamp %d from %d below %d", ts, from, bound)
					if ok {
						require.Equal(t, want.Base, b.BaseOffset(), "timestamp %d from %d below %d", ts, from, bound)
					}
				}
			}
		}
	})
}

// TestMaxTimestampBetweenOffsets: the greatest timestamp of whole batches
// between two offsets, and which headers a walk sees.
func TestMaxTimestampBetweenOffsets(t *testing.T) {
	inEveryForm(t, 1000, 20, func(t *testing.T, s *Segment, headers []Header) {
		end := headers[len(headers)-1].Next
		for from := s.Base() - 1; from <= end+1; from++ {
			for bound := from - 1; bound <= end+1; bound += 1 + (end-from)/40 {
				want, found := noTimestamp, false
				for _, h := range headers {
					if h.Next > from && h.Next <= bound {
						want, found = max(want, h.MaxTimestamp), true
					}
				}
				got, ok, err := s.MaxTimestamp(from, bound)
				require.NoError(t, err)
				require.Equal(t, found, ok, "[%d, %d)", from, bound)
				require.Equal(t, want, got, "[%d, %d)", from, bound)
			}
			in := headers
			for len(in) > 0 && in[0].Next <= from {
				in = in[1:]
			}
			for _, most := range []int{1, 3, len(headers)} {
				var seen []Header
				require.NoError(t, s.Headers(from, func(h Header) bool {
					seen = append(seen, h)
					return len(seen) < most
				}))
				require.Equal(t, append([]Header(nil), in[:min(most, len(in))]...), seen)
			}
		}
		// The bounds just at the batch that has the greatest timestamp of all.
		at := s.Info().OffsetOfMaxTimestamp
		for _, d := range []cluster.Offset{-1, 0, 1} {
			for _, e := range []cluster.Offset{0, 1, 2} {
				want, found := noTimestamp, false
				for _, h := range headers {
					if h.Next > at+d && h.Next <= at+e {
						want, found = max(want, h.MaxTimestamp), true
					}
				}
				got, ok, err := s.MaxTimestamp(at+d, at+e)
				require.NoError(t, err)
				require.Equal(t, found, ok)
				require.Equal(t, want, got)
			}
		}
	})
}

func TestLookupsInAnEmptySegment(t *testing.T) {
	w := testWhere(t)
	s, err := Create(w, 70, time.UnixMilli(1000))
	require.NoError(t, err)
	for _, sealed := range []bool{false, true} {
		if sealed {
			require.NoError(t, s.Seal(70))
			s.Synced()
			s, err = OpenSealed(w, 70, 70, testInterval)
			require.NoError(t, err)
		}
		for from := cluster.Offset(69); from <= 71; from++ {
			r, err := s.Range(from, Limits{Bound: 100, MaxBytes: 100, MinOne: true})
			require.NoError(t, err)
			require.Equal(t, Range{0, 0, from, true}, r)
			_, ok, err := s.FindBatch(from)
			require.NoError(t, err)
			require.False(t, ok)
			_, ok, err = s.FirstAtTime(-1, from, 100)
			require.NoError(t, err)
			require.False(t, ok)
			_, ok, err = s.MaxTimestamp(from, 100)
			require.NoError(t, err)
			require.False(t, ok)
			require.NoError(t, s.Headers(from, func(Header) bool { t.Fatal("a header"); return false }))
		}
		_, ok := s.Created()
		require.False(t, ok, "no batch was written")
		require.EqualValues(t, noTimestamp, s.Info().MaxTimestamp)
		txns, err := s.Aborted()
		require.NoError(t, err)
		require.Empty(t, txns)
	}
}

// even writes batches of one size, with an entry for each but the first.
func even(t *testing.T, w Where, base cluster.Offset, count int) *Segment {
	t.Helper()
	s, err := Create(w, base, time.UnixMilli(1000))
	require.NoError(t, err)
	var all []byte
	for i := range count {
		b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: base + cluster.Offset(i)})
		b.Add(int64(1000+i), nil, []byte("one size"))
		all = append(all, b.Build()...)
	}
	require.NoError(t, s.Write(all))
	s.Commit(all, 0, time.UnixMilli(2000), 0)
	return s
}

// TestReadsOfALookup: in a sealed segment of even batches a lookup reads one page
// of the offset index and one chunk of the log at most; where earlier answers or
// the segment's ends tell, nothing.
func TestReadsOfALookup(t *testing.T) {
	crash := disk.NewCrash(1)
	require.NoError(t, crash.MkdirAll(testDir))
	read := map[string]int{}
	fs := disk.NewFault(crash, func(op disk.Op) error {
		if op.Kind == disk.OpReadAt {
			read[op.Name]++
		}
		return nil
	})
	w := Where{FS: fs, Dir: testDir, Handles: disk.NewHandleCache(fs, 8)}
	const base cluster.Offset = 100_000
	s := even(t, w, base, 4000)
	require.NoError(t, s.Seal(base+4000))
	s.Synced()
	index, err := s.OffsetIndex()
	require.NoError(t, err)
	require.Len(t, index, 3999)
	require.Equal(t, OffsetEntry{base + 1, s.Bytes() / 4000}, index[0], "none for the first batch")
	size := s.Bytes() / 4000
	for o := cluster.Offset(0); o < 4000; o += 7 {
		clear(read)
		h, ok, err := s.FindBatch(base + o)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, base+o, h.Base)
		require.LessOrEqual(t, read[s.indexName], 1, "offset %d", o)
		require.LessOrEqual(t, read[s.logName], 1, "offset %d", o)
	}
	part := func(from, to cluster.Offset) Range {
		return Range{int64(from) * size, int64(to) * size, base + to, to == 4000}
	}
	for o := cluster.Offset(3); o < 3900; o += 100 {
		r, err := s.Range(base+o, Limits{Bound: base + 4000, MaxBytes: 10*size + size/2})
		require.NoError(t, err)
		require.Equal(t, part(o, o+10), r)
		clear(read)
		r, err = s.Range(base+o+10, Limits{Bound: base + 4000, MaxBytes: 20*size + size/2})
		require.NoError(t, err)
		require.Equal(t, part(o+10, o+30), r)
		require.Equal(t, map[string]int{s.indexName: 1, s.logName: 1}, read, "the start is known, the end is looked up")
		clear(read)
		r, err = s.Range(base+o+10, Limits{Bound: base + o + 30, MaxBytes: 1 << 30})
		require.NoError(t, err)
		require.Equal(t, part(o+10, o+30), r)
		require.Empty(t, read, "both ends are known")
	}
	clear(read)
	r, err := s.Range(base+4000, Limits{Bound: base + 4000, MaxBytes: 1 << 30})
	require.NoError(t, err)
	require.Equal(t, Range{s.Bytes(), s.Bytes(), base + 4000, true}, r)
	for _, bytes := range []int64{s.Bytes(), 1 << 30} {
		r, err = s.Range(base, Limits{Bound: base + 4000, MaxBytes: bytes})
		require.NoError(t, err)
		require.Equal(t, part(0, 4000), r)
	}
	require.Empty(t, read, "the ends of the segment are known")
}

// TestReadsAmongLargeBatches: a lookup starts at the entry that is nearest, and
// reads no header that it need not.
func TestReadsAmongLargeBatches(t *testing.T) {
	crash := disk.NewCrash(1)
	require.NoError(t, crash.MkdirAll(testDir))
	reads := 0
	fs := disk.NewFault(crash, func(op disk.Op) error {
		if op.Kind == disk.OpReadAt {
			reads++
		}
		return nil
	})
	w := Where{FS: fs, Dir: testDir, Handles: disk.NewHandleCache(fs, 8)}
	s, err := Create(w, 0, time.UnixMilli(1))
	require.NoError(t, err)
	const size = 3 * headerChunkBytes
	for i := range 24 { // two records each, an entry for every third batch
		b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: cluster.Offset(2 * i)})
		b.Add(int64(i+1), nil, make([]byte, size-recordbatch.HeaderBytes-28))
		b.Add(int64(i+1), nil, make([]byte, 10))
		p := b.Build()
		require.Equal(t, size, len(p))
		require.NoError(t, s.Write(p))
		s.Commit(p, 2*size+1000, time.UnixMilli(2), 0)
	}
	// A consumer at the end knows where what comes next starts.
	reads = 0
	r, err := s.Range(46, Limits{Bound: 48, MaxBytes: 1 << 30})
	require.NoError(t, err)
	require.Equal(t, Range{23 * size, 24 * size, 48, true}, r)
	require.Zero(t, reads)
	// Written, the index is in memory, so that all reads are of the log.
	index, err := s.OffsetIndex()
	require.NoError(t, err)
	require.Len(t, index, 7)
	require.Equal(t, OffsetEntry{7, 3 * size}, index[0])
	for o := cluster.Offset(0); o < 48; o++ {
		reads = 0
		h, ok, err := s.FindBatch(o)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, o/2*2, h.Base)
		// From the entry at or below the offset: an entry tells a batch's last one.
		want := int(o/2)%3 + 1
		if o%6 == 0 && o >= 6 {
			want = 4
		} else if o < 6 {
			want = int(o/2) + 1
		}
		require.Equal(t, want, reads, "offset %d", o)
	}
	for batches := int64(1); batches < 20; batches++ {
		_, err := s.Range(7, Limits{Bound: 48, MaxBytes: 0}) // nothing to remember
		require.NoError(t, err)
		reads = 0
		r, err := s.Range(8, Limits{Bound: 48, MaxBytes: batches*size + 7})
		require.NoError(t, err)
		require.Equal(t, Range{4 * size, (4 + batches) * size, cluster.Offset(8 + 2*batches), false}, r)
		// The start from the entry before it; the end from the last entry in
		// reach, or from the start, and the header that is too much.
		toEnd := (4+batches)%3 + 1
		if (4+batches)/3*3 < 4 {
			toEnd = batches + 1
		}
		require.EqualValues(t, 2+toEnd, reads, "%d batches", batches)
	}
}

// TestReadsOfALookupByTime: from the last time entry below the timestamp on.
func TestReadsOfALookupByTime(t *testing.T) {
	for _, records := range []int{1, 2} {
		crash := disk.NewCrash(1)
		require.NoError(t, crash.MkdirAll(testDir))
		reads := 0
		fs := disk.NewFault(crash, func(op disk.Op) error {
			if op.Kind == disk.OpReadAt {
				reads++
			}
			return nil
		})
		w := Where{FS: fs, Dir: testDir, Handles: disk.NewHandleCache(fs, 8)}
		s, err := Create(w, 0, time.UnixMilli(1))
		require.NoError(t, err)
		const size = 3 * headerChunkBytes
		for i := range 24 { // an entry for every third batch
			b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: cluster.Offset(records * i)})
			for range records {
				b.Add(int64(i+1), nil, make([]byte, size/records))
			}
			p := b.Build()
			require.NoError(t, s.Write(p))
			s.Commit(p, 2*size+1000, time.UnixMilli(2), 0)
		}
		times, err := s.TimeIndex()
		require.NoError(t, err)
		require.Len(t, times, 7)
		for i := range 24 {
			reads = 0
			b, ok, err := s.FirstAtTime(int64(i+1), 0, 1<<40)
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, records*i, b.BaseOffset())
			// Two headers for where to start, those up to the batch, the batch.
			want := 2 + (i-1)%3 + 1 + 1
			if i <= 3 {
				want = 1 + i + 1 + 1
			}
			require.Equal(t, want, reads, "batch %d of %d records", i, records)
		}
		reads = 0
		_, ok, err := s.FirstAtTime(1, s.Next(), 1<<40)
		require.NoError(t, err)
		require.False(t, ok)
		require.Zero(t, reads, "nothing lies there")
	}
}

// TestLookupByTimeVerifiesWhatItAnswers: the batch that it reads, and no other.
func TestLookupByTimeVerifiesWhatItAnswers(t *testing.T) {
	w := testWhere(t)
	s, headers := write(t, w, 0, 20)
	require.NoError(t, s.Finish())
	s.Close()
	log, err := disk.ReadFile(w.FS, s.logName)
	require.NoError(t, err)
	log[headers[9].Position+recordbatch.HeaderBytes+2] ^= 1
	require.NoError(t, disk.WriteFileUnsynced(w.FS, s.logName, log))
	s, err = OpenSealed(w, 0, 5000, testInterval)
	require.NoError(t, err)
	b, ok, err := s.FirstAtTime(-1, headers[8].Base, 5000)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, headers[8].Base, b.BaseOffset())
	_, ok, err = s.FirstAtTime(-1, headers[9].Base, 5000)
	requireCorrupt(t, err, s.logName, int(headers[9].Position), recordbatch.ErrBadCRC)
	require.False(t, ok)
}

// TestRemovedSegmentsAreNotRead: whoever looks into one that went away is told.
func TestRemovedSegmentsAreNotRead(t *testing.T) {
	w := testWhere(t)
	files := &openFiles{FS: w.FS}
	w.FS, w.Handles = files, disk.NewHandleCache(files, 8)
	s, _ := write(t, w, 0, 40)
	s.AddAborted(producerstate.AbortedTxn{ProducerID: 1, First: 1, Last: 2, LastStableOffset: 3})
	require.NoError(t, s.Seal(5000))
	s.Synced()
	h, err := s.Acquire()
	require.NoError(t, err)
	halves := 0
	gone, err := s.Remove(func() {
		halves++
		_, err := w.FS.Stat(s.logName)
		require.ErrorIs(t, err, os.ErrNotExist)
		_, err = w.FS.Stat(s.indexName)
		require.NoError(t, err, "between the first and the second")
	})
	require.NoError(t, err)
	require.Equal(t, 1, halves)
	require.Equal(t, []string{
		s.logName + DeletedSuffix, s.indexName + DeletedSuffix, s.timeName + DeletedSuffix, s.txnName + DeletedSuffix,
	}, gone)
	require.True(t, s.Removed())
	_, err = h.File().ReadAt(make([]byte, 10), 0)
	require.NoError(t, err, "what was given out stays readable")
	h.Release()
	require.Zero(t, files.open.Load(), "and closes with its last reader")
	for name, look := range map[string]func() error{
		"range":     func() error { _, err := s.Range(1, Limits{Bound: 9, MaxBytes: 9}); return err },
		"batch":     func() error { _, _, err := s.FindBatch(1); return err },
		"time":      func() error { _, _, err := s.FirstAtTime(1, 1, 9); return err },
		"greatest":  func() error { _, _, err := s.MaxTimestamp(1, 9); return err },
		"aborted":   func() error { _, err := s.Aborted(); return err },
		"index":     func() error { _, err := s.OffsetIndex(); return err },
		"timeindex": func() error { _, err := s.TimeIndex(); return err },
		"sync":      func() error { _, err := s.SyncLog(); return err },
	} {
		require.ErrorIs(t, look(), ErrRemoved, name)
	}
	left, err := w.FS.List(testDir)
	require.NoError(t, err)
	require.Len(t, left, 4)
	gone, err = s.Remove(nil)
	require.NoError(t, err, "files that are gone already are no error")
	require.Empty(t, gone)
}
