package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

const (
	testDir      = "/log"
	testInterval = 300
)

func testWhere(t testing.TB) Where {
	t.Helper()
	fs := disk.NewCrash(1)
	require.NoError(t, fs.MkdirAll(testDir))
	handles := disk.NewHandleCache(fs, 8)
	t.Cleanup(func() { require.NoError(t, handles.Close()) })
	return Where{FS: fs, Dir: testDir, Handles: handles}
}

func batchAtOffset(base cluster.Offset, records int, ts int64) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: base})
	for i := range records {
		b.Add(ts, nil, fmt.Appendf(nil, "record %d of batch at %d", i, base))
	}
	return b.Build()
}

// write makes a segment of batches of various sizes, whose timestamps rise and
// fall, and with holes between their offsets.
func write(t testing.TB, w Where, base cluster.Offset, count int) (*Segment, []Header) {
	t.Helper()
	s, err := Create(w, base, time.UnixMilli(1000))
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, uint64(base)))
	var headers []Header
	for i := range count {
		b := batchAtOffset(s.Next()+cluster.Offset(rng.IntN(3)), 1+rng.IntN(9), int64(1000+10*i-rng.IntN(100)))
		headers = append(headers, headerOf(b, s.Bytes()))
		require.NoError(t, s.Write(b))
		s.Commit(b, testInterval, time.UnixMilli(2000), 0)
	}
	return s, headers
}

func requireLookups(t testing.TB, s *Segment, headers []Header) {
	t.Helper()
	end := headers[len(headers)-1].Next
	for o := s.Base(); o <= end+1; o++ {
		var want Header
		found := false
		for _, h := range headers {
			if h.Next > o {
				want, found = h, true
				break
			}
		}
		got, ok, err := s.FindBatch(o)
		require.NoError(t, err)
		require.Equal(t, found, ok, "offset %d", o)
		require.Equal(t, want, got, "offset %d", o)
	}
	for ts := int64(880); ts < 2200; ts += 7 {
		want := cluster.NoOffset
		for _, h := range headers {
			if h.MaxTimestamp >= ts {
				want = h.Base
				break
			}
		}
		b, ok, err := s.FirstAtTime(ts, 0, 1<<40)
		require.NoError(t, err)
		require.Equal(t, want != cluster.NoOffset, ok, "timestamp %d", ts)
		if ok {
			require.Equal(t, want, b.BaseOffset(), "timestamp %d", ts)
		}
	}
}

func TestLookupsWhileWrittenAndSealed(t *testing.T) {
	w := testWhere(t)
	s, headers := write(t, w, 1000, 120)
	requireLookups(t, s, headers)
	before := s.Info()
	index, err := s.OffsetIndex()
	require.NoError(t, err)
	require.Greater(t, len(index), 10)
	require.NoError(t, s.Seal(5000))
	requireLookups(t, s, headers)
	s.Synced()
	requireLookups(t, s, headers)

	again, err := OpenSealed(w, 1000, 5000, testInterval)
	require.NoError(t, err)
	requireLookups(t, again, headers)
	info := again.Info()
	require.Equal(t, before.MaxTimestamp, info.MaxTimestamp)
	require.Equal(t, before.OffsetOfMaxTimestamp, info.OffsetOfMaxTimestamp)
	same, err := again.OffsetIndex()
	require.NoError(t, err)
	require.Equal(t, index, same)
	times, err := again.TimeIndex()
	require.NoError(t, err)
	require.Equal(t, before.MaxTimestamp, times[len(times)-1].Timestamp, "S3")
}

func TestOpenActiveGoesOnWhereItWas(t *testing.T) {
	w := testWhere(t)
	s, headers := write(t, w, 0, 60)
	before := s.Info()
	require.NoError(t, s.Finish())
	s.Close()
	s, err := OpenActive(w, 0, testInterval)
	require.NoError(t, err)
	after := s.Info()
	before.Created, before.Modified, after.Created, after.Modified = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	require.Equal(t, before, after)
	b := batchAtOffset(s.Next(), 3, 9000)
	headers = append(headers, headerOf(b, s.Bytes()))
	require.NoError(t, s.Write(b))
	s.Commit(b, testInterval, time.UnixMilli(2000), 0)
	requireLookups(t, s, headers)
}

// TestBadIndexesAreFoundAndMadeAnew breaks indexes in several ways; opening
// says so and recovery makes the same files again.
func TestBadIndexesAreFoundAndMadeAnew(t *testing.T) {
	breaks := map[string]func(data []byte) []byte{
		"empty":         func([]byte) []byte { return nil },
		"partial entry": func(d []byte) []byte { return d[:len(d)-3] },
		"past the log":  func(d []byte) []byte { copy(d[len(d)-8:], "\x7f\xff\xff\xff\x7f\xff\xff\xff"); return d },
		"zeroes":        func(d []byte) []byte { return append(d, make([]byte, 240)...) },
	}
	for _, suffix := range []string{IndexSuffix, TimeIndexSuffix} {
		for name, damage := range breaks {
			t.Run(suffix+" "+name, func(t *testing.T) {
				w := testWhere(t)
				s, headers := write(t, w, 0, 600)
				require.NoError(t, s.Seal(5000))
				s.Synced()
				file := testDir + "/" + Name(0, suffix)
				want, err := disk.ReadFile(w.FS, file)
				require.NoError(t, err)
				require.NoError(t, disk.WriteFileUnsynced(w.FS, file, damage(bytes.Clone(want))))
				_, err = OpenSealed(w, 0, 5000, 10)
				require.ErrorIs(t, err, ErrNeedsRecovery)
				require.NoError(t, w.FS.Remove(file))
				_, err = OpenActive(w, 0, testInterval)
				require.ErrorIs(t, err, ErrNeedsRecovery)

				s, r, err := Recover(w, 0, RecoverOptions{
					IntervalBytes: testInterval, DurableBelow: 5000,
					Visit: func(Located) (*producerstate.AbortedTxn, error) { return nil, nil },
				})
				require.NoError(t, err)
				require.Zero(t, r.CutBytes)
				require.Equal(t, headers[len(headers)-1].Next, r.Next)
				got, err := disk.ReadFile(w.FS, file)
				require.NoError(t, err)
				require.Equal(t, want, got)
				s.Close()
			})
		}
	}
}

// TestIndexesThatLieAreNotBelieved changes index entries so that opening sees
// nothing: lookups find the right batches all the same (S4).
func TestIndexesThatLieAreNotBelieved(t *testing.T) {
	w := testWhere(t)
	s, headers := write(t, w, 0, 60)
	require.NoError(t, s.Seal(5000))
	s.Synced()
	file := testDir + "/" + Name(0, IndexSuffix)
	good, err := disk.ReadFile(w.FS, file)
	require.NoError(t, err)
	for i := 0; i+8 < len(good); i++ {
		bad := bytes.Clone(good)
		bad[i] ^= 0x11
		require.NoError(t, disk.WriteFileUnsynced(w.FS, file, bad))
		w.Handles.Drop(file)
		s, err := OpenSealed(w, 0, 5000, testInterval)
		require.NoError(t, err)
		for _, h := range headers {
			got, ok, err := s.FindBatch(h.Next - 1)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, h, got)
		}
	}
}

func TestRecoverCutsAtEveryDamagedByte(t *testing.T) {
	w := testWhere(t)
	s, headers := write(t, w, 0, 12)
	s.Close()
	name := s.LogName()
	good, err := disk.ReadFile(w.FS, name)
	require.NoError(t, err)
	visit := func(Located) (*producerstate.AbortedTxn, error) { return nil, nil }
	for i := 0; i < len(good); i += 3 {
		in := 0
		for headers[in].End() <= int64(i) {
			in++
		}
		at := int64(i) - headers[in].Position
		if at >= 12 && at < 16 {
			continue // the leader epoch is under no checksum
		}
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		require.NoError(t, disk.WriteFileUnsynced(w.FS, name, bad))
		_, _, err := Recover(w, 0, RecoverOptions{IntervalBytes: testInterval, DurableBelow: 1 << 40, Visit: visit})
		if at < 8 && err == nil {
			continue // nor is the base offset: a higher one looks like a hole
		}
		var corrupt *CorruptError
		require.ErrorAs(t, err, &corrupt)
		require.Equal(t, name, corrupt.File)
		if at >= 8 {
			require.Equal(t, headers[in].Position, corrupt.Position)
		}
		kept, err := disk.ReadFile(w.FS, name)
		require.NoError(t, err)
		require.Equal(t, bad, kept, "what was durable is not cut")

		s, r, err := Recover(w, 0, RecoverOptions{IntervalBytes: testInterval, Visit: visit})
		require.NoError(t, err)
		require.Equal(t, corrupt.Position, s.Bytes())
		require.Equal(t, int64(len(good))-corrupt.Position, r.CutBytes)
		s.Close()
	}
}

func TestTruncatedFilesAreCutAtEveryLength(t *testing.T) {
	w := testWhere(t)
	s, headers := write(t, w, 0, 30)
	s.Close()
	good, err := disk.ReadFile(w.FS, s.LogName())
	require.NoError(t, err)
	for n := 0; n < len(good); n += 13 {
		require.NoError(t, disk.WriteFileUnsynced(w.FS, s.LogName(), good[:n]))
		s, r, err := Recover(w, 0, RecoverOptions{
			IntervalBytes: testInterval,
			Visit:         func(Located) (*producerstate.AbortedTxn, error) { return nil, nil },
		})
		require.NoError(t, err)
		want := int64(0)
		for _, h := range headers {
			if h.End() <= int64(n) {
				want = h.End()
			}
		}
		require.Equal(t, want, s.Bytes())
		require.Equal(t, int64(n)-want, r.CutBytes)
		s.Close()
	}
}

func TestTruncateFiles(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		for keep := 0; keep < 40; keep += 3 {
			w := testWhere(t)
			s, headers := write(t, w, 0, 40)
			if sealed {
				require.NoError(t, s.Seal(5000))
				s.Synced()
			}
			require.NoError(t, s.TruncateFiles(headers[keep].Position, headers[keep].Base))
			_, _, err := s.FindBatch(0)
			require.ErrorIs(t, err, ErrRemoved)
			s, err = OpenActive(w, 0, testInterval)
			require.NoError(t, err)
			require.Equal(t, headers[keep].Position, s.Bytes())
			if keep > 0 {
				requireLookups(t, s, headers[:keep])
				want := int64(0)
				for _, h := range headers[:keep] {
					want = max(want, h.MaxTimestamp)
				}
				require.Equal(t, want, s.Info().MaxTimestamp)
			}
			s.Close()
		}
	}
}

func TestNames(t *testing.T) {
	require.Equal(t, "00000000000000000175.log", Name(175, LogSuffix))
	o, suffix, ok := ParseName("00000000000000000175.timeindex")
	require.True(t, ok)
	require.Equal(t, cluster.Offset(175), o)
	require.Equal(t, TimeIndexSuffix, suffix)
	for _, bad := range []string{"", ".log", "175.log", "0000000000000000017x.log", "00000000000000000175.log.deleted", "99999999999999999999.log", "-0000000000000000175.log"} {
		_, _, ok := ParseName(bad)
		require.False(t, ok, bad)
	}
}

// countedReads counts what is read.
type countedReads struct {
	io.ReaderAt
	reads int
	bytes int64
}

func (c *countedReads) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	c.bytes += int64(len(p))
	return c.ReaderAt.ReadAt(p, off)
}

func TestTableSearchInFile(t *testing.T) {
	for _, n := range []int{0, 1, 2, 511, 512, 513, 5000} {
		var mem []byte
		for i := range n {
			mem = AppendOffsetEntry(mem, 0, OffsetEntry{cluster.Offset(3 * i), int64(7 * i)})
		}
		inMemory := table{mem: mem, count: n, width: OffsetEntryBytes}
		pages := (n*OffsetEntryBytes + tablePageBytes - 1) / tablePageBytes
		counted := &countedReads{ReaderAt: bytes.NewReader(mem)}
		inFile := table{src: counted, count: n, width: OffsetEntryBytes}
		for o := cluster.Offset(-1); o < cluster.Offset(3*n+3); o += 1 + cluster.Offset(n/500) {
			ok := func(p []byte) bool { return decodeOffsetEntry(p, 0).Offset <= o }
			want := -1
			if o >= 0 {
				want = min(int(o/3), n-1)
			}
			for _, guess := range []float64{-1, 0, 0.5, share(int64(o), int64(3*n)), 1, 2} {
				*counted = countedReads{ReaderAt: counted.ReaderAt}
				e, place, err := inFile.lastWhere(guess, ok)
				require.NoError(t, err)
				require.Equal(t, want, place)
				require.LessOrEqual(t, counted.reads, 1+bits.Len(uint(pages)), "pages of %d", pages)
				same, place, err := inMemory.lastWhere(guess, ok)
				require.NoError(t, err)
				require.Equal(t, want, place)
				require.Equal(t, same, e)
			}
		}
	}
}

func FuzzIndexes(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add(AppendOffsetEntry(nil, 5, OffsetEntry{9, 100}), int64(5))
	f.Add(AppendTimeEntry(nil, 5, TimeEntry{9, 100}), int64(5))
	f.Add(AppendTxnEntry(nil, producerstate.AbortedTxn{ProducerID: 1, First: 2, Last: 3, LastStableOffset: 4}), int64(0))
	f.Fuzz(func(t *testing.T, data []byte, base int64) {
		base = max(base, 0) % (1 << 50)
		offsets, err := ParseOffsetIndex(data, cluster.Offset(base), "x.index")
		var again []byte
		for _, e := range offsets {
			again = AppendOffsetEntry(again, cluster.Offset(base), e)
		}
		requireRoundTrip(t, data, again, OffsetEntryBytes, err)
		times, err := ParseTimeIndex(data, cluster.Offset(base), "x.timeindex")
		again = nil
		for _, e := range times {
			again = AppendTimeEntry(again, cluster.Offset(base), e)
		}
		requireRoundTrip(t, data, again, TimeEntryBytes, err)
		txns, err := ParseTxnIndex(data, "x.txnindex")
		again = encodeTxns(txns)
		requireRoundTrip(t, data, again, TxnEntryBytes, err)
	})
}

// requireRoundTrip: what was parsed encodes to the same bytes, and the rest is
// zeroes or an error names where it starts.
func requireRoundTrip(t *testing.T, data, again []byte, width int, err error) {
	require.True(t, bytes.HasPrefix(data, again))
	if err == nil {
		require.True(t, allZero(data[len(again):]))
		return
	}
	var corrupt *CorruptError
	require.True(t, errors.As(err, &corrupt))
	require.Equal(t, int64(len(again)), corrupt.Position)
	require.Zero(t, int(corrupt.Position)%width)
}

func FuzzLog(f *testing.F) {
	f.Add([]byte(batchAtOffset(7, 3, 10)))
	f.Add(append([]byte(batchAtOffset(0, 3, 10)), batchAtOffset(3, 1, 12)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		fs := disk.NewCrash(1)
		require.NoError(t, fs.MkdirAll(testDir))
		w := Where{FS: fs, Dir: testDir, Handles: disk.NewHandleCache(fs, 4)}
		require.NoError(t, disk.WriteFileUnsynced(fs, testDir+"/"+Name(0, LogSuffix), data))
		s, _, err := Recover(w, 0, RecoverOptions{
			IntervalBytes: 64,
			Visit:         func(Located) (*producerstate.AbortedTxn, error) { return nil, nil },
		})
		require.NoError(t, err)
		kept, err := disk.ReadFile(fs, s.LogName())
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(data, kept))
		var next cluster.Offset
		for b, err := range Batches(bytes.NewReader(kept), int64(len(kept)), 0, 0, "x") {
			require.NoError(t, err)
			require.GreaterOrEqual(t, b.Batch.BaseOffset(), next)
			next = b.Batch.NextOffset()
		}
		s.Close()
		_ = Dump(fs, s.LogName(), true, func(i Item) error { _ = i.String(); return nil })
	})
}

func TestDump(t *testing.T) {
	w := testWhere(t)
	s, headers := write(t, w, 0, 40)
	s.AddAborted(producerstate.AbortedTxn{ProducerID: 4, First: 2, Last: 9, LastStableOffset: 10})
	require.NoError(t, s.Seal(5000))
	s.Synced()
	m := producerstate.New(producerstate.Config{})
	_, _, err := m.Update(recordbatchOf(11), time.UnixMilli(5))
	require.NoError(t, err)
	require.NoError(t, disk.WriteFileUnsynced(w.FS, testDir+"/"+Name(5000, SnapshotSuffix), m.Snapshot()))
	epochs := leaderepoch.FromEntries([]leaderepoch.Entry{{Epoch: 3, Start: 0}, {Epoch: 4, Start: 17}})
	require.NoError(t, disk.WriteFileUnsynced(w.FS, testDir+"/"+EpochsName, epochs.Marshal()))

	count := func(name string, deep bool) (n int, last Item) {
		require.NoError(t, Dump(w.FS, testDir+"/"+name, deep, func(i Item) error {
			n++
			last = i
			require.NotEmpty(t, i.Fields())
			require.NotEmpty(t, i.String())
			return nil
		}), name)
		return n, last
	}
	n, last := count(Name(0, LogSuffix), false)
	require.Equal(t, len(headers), n)
	require.Equal(t, headers[39].Position, last.Position)
	records, last := count(Name(0, LogSuffix), true)
	require.Greater(t, records, 2*n)
	require.Equal(t, headers[39].Next-1, last.Record.Offset)
	n, last = count(Name(0, IndexSuffix), true)
	require.Greater(t, n, 5)
	require.Equal(t, int64(n-1)*8, last.Position)
	n, _ = count(Name(0, TimeIndexSuffix), true)
	require.Greater(t, n, 5)
	n, last = count(Name(0, TxnIndexSuffix), true)
	require.Equal(t, 1, n)
	require.Equal(t, "producerId: 4 firstOffset: 2 lastOffset: 9 lastStableOffset: 10", last.String())
	n, _ = count(Name(5000, SnapshotSuffix), true)
	require.Equal(t, 1, n)
	n, _ = count(EpochsName, true)
	require.Equal(t, 2, n)

	require.ErrorIs(t, Dump(w.FS, testDir+"/meta.properties", true, nil), ErrUnknownFile)
	ignore := func(Item) error { return nil }
	for _, name := range []string{Name(0, LogSuffix), Name(0, IndexSuffix), Name(0, TimeIndexSuffix), Name(0, TxnIndexSuffix), Name(5000, SnapshotSuffix), EpochsName} {
		full := testDir + "/" + name
		good, err := disk.ReadFile(w.FS, full)
		require.NoError(t, err)
		require.NoError(t, disk.WriteFileUnsynced(w.FS, full, good[:len(good)-1-len(good)%2]))
		err = Dump(w.FS, full, true, ignore)
		var corrupt *CorruptError
		if name == EpochsName && err == nil {
			continue // a number cut short is still a number
		}
		require.ErrorAs(t, err, &corrupt, name)
		require.Equal(t, full, corrupt.File)
		require.NoError(t, disk.WriteFileUnsynced(w.FS, full, good))
	}
	lie := AppendOffsetEntry(nil, 0, OffsetEntry{headers[5].Next, headers[5].Position})
	require.NoError(t, disk.WriteFileUnsynced(w.FS, testDir+"/"+Name(0, IndexSuffix), lie))
	require.NoError(t, Dump(w.FS, testDir+"/"+Name(0, IndexSuffix), false, ignore))
	require.ErrorIs(t, Dump(w.FS, testDir+"/"+Name(0, IndexSuffix), true, ignore), errIndexLies)
}

func recordbatchOf(id cluster.ProducerID) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{Producer: &recordbatch.Producer{ID: id}})
	b.Add(5, nil, []byte("v"))
	return b.Build()
}
