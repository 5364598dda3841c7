package segment

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// sized is a batch of one record that takes just so many bytes.
func sized(t *testing.T, base cluster.Offset, bytes int, ts int64) recordbatch.Batch {
	t.Helper()
	for value := bytes - recordbatch.HeaderBytes; value >= 0; value-- {
		b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: base})
		b.Add(ts, nil, make([]byte, value))
		if p := b.Build(); len(p) == bytes {
			return p
		}
	}
	t.Fatalf("no batch has %d bytes", bytes)
	return nil
}

func visitAll(Located) (*producerstate.AbortedTxn, error) { return nil, nil }

// files is a segment as it lies on disk.
type files struct{ log, index, times, txns []byte }

func (f files) write(t *testing.T, w Where, base cluster.Offset) {
	t.Helper()
	for suffix, data := range map[string][]byte{LogSuffix: f.log, IndexSuffix: f.index, TimeIndexSuffix: f.times} {
		require.NoError(t, disk.WriteFileUnsynced(w.FS, testDir+"/"+Name(base, suffix), data))
	}
	if f.txns != nil {
		require.NoError(t, disk.WriteFileUnsynced(w.FS, testDir+"/"+Name(base, TxnIndexSuffix), f.txns))
	}
}

// TestWhatOpeningBelieves: the ends of the indexes are compared with the log.
// sealed and active name the file that needs recovery; empty: it opens.
func TestWhatOpeningBelieves(t *testing.T) {
	const base cluster.Offset = 100
	// Three batches of one record each, of 100 bytes, from offset 100 on.
	log := func(ts ...int64) (out []byte) {
		for i, at := range ts {
			out = append(out, sized(t, base+cluster.Offset(i), 100, at)...)
		}
		return out
	}
	offsets := func(e ...OffsetEntry) (out []byte) {
		for _, e := range e {
			out = AppendOffsetEntry(out, base, e)
		}
		return out
	}
	times := func(e ...TimeEntry) (out []byte) {
		for _, e := range e {
			out = AppendTimeEntry(out, base, e)
		}
		return out
	}
	txn := AppendTxnEntry(nil, producerstate.AbortedTxn{ProducerID: 1, First: 100, Last: 101, LastStableOffset: 102})
	good := log(10, 20, 30)
	torn := good[:250]
	goodTimes := times(TimeEntry{20, 101}, TimeEntry{30, 102})
	badHeader := bytes.Clone(good)
	badHeader[2*100+16] = 9
	badFirst := bytes.Clone(good)
	badFirst[16] = 9
	for _, c := range []struct {
		name           string
		files          files
		next           cluster.Offset
		sealed, active string
	}{
		{"as it should be", files{good, offsets(OffsetEntry{101, 100}), goodTimes, nil}, 103, "", ""},
		{"an entry for the last batch", files{good, offsets(OffsetEntry{102, 200}), goodTimes, nil}, 103, "", ""},
		{"an entry for the first batch", files{good, offsets(OffsetEntry{100, 0}), goodTimes, nil}, 103, "", ""},
		{"an aborted transaction", files{good, nil, goodTimes, txn}, 103, "", ""},
		{"a hole before the next", files{good, nil, goodTimes, nil}, 200, "", ""},
		{"no entries", files{good, nil, nil, nil}, 103, TimeIndexSuffix, ""},
		{"no time entry beside offsets", files{good, offsets(OffsetEntry{101, 100}), nil, nil}, 103, TimeIndexSuffix, TimeIndexSuffix},
		{"no batches", files{}, 100, "", ""},
		{"timestamp 0, once", files{log(0), nil, times(TimeEntry{0, 100}), nil}, 101, "", ""},
		{"offset below the base", files{good, offsets(OffsetEntry{99, 100}), goodTimes, nil}, 103, IndexSuffix, IndexSuffix},
		{"negative position", files{good, offsets(OffsetEntry{101, -100}), goodTimes, nil}, 103, IndexSuffix, IndexSuffix},
		{"position at the end", files{good, offsets(OffsetEntry{103, 300}), goodTimes, nil}, 104, IndexSuffix, IndexSuffix},
		{"position past the end", files{good, offsets(OffsetEntry{103, 301}), goodTimes, nil}, 104, IndexSuffix, IndexSuffix},
		{"second entry at 0", files{good, offsets(OffsetEntry{100, 0}, OffsetEntry{101, 0}), goodTimes, nil}, 103, IndexSuffix, IndexSuffix},
		{"last entry names another batch", files{good, offsets(OffsetEntry{100, 100}), goodTimes, nil}, 103, IndexSuffix, IndexSuffix},
		{"first entry names another batch", files{good, offsets(OffsetEntry{101, 0}), goodTimes, nil}, 103, IndexSuffix, IndexSuffix},
		{"an entry between batches", files{good, offsets(OffsetEntry{101, 120}), goodTimes, nil}, 103, LogSuffix, LogSuffix},
		{"entries that fall, before the last", files{good, offsets(OffsetEntry{101, 100}, OffsetEntry{100, 50}, OffsetEntry{102, 200}), goodTimes, nil}, 103, "", IndexSuffix},
		{"times that fall, before the last", files{good, nil, times(TimeEntry{20, 101}, TimeEntry{15, 101}, TimeEntry{30, 102}), nil}, 103, "", TimeIndexSuffix},
		{"transactions that fall", files{good, nil, goodTimes, append(bytes.Clone(txn), txn...)}, 103, "", TxnIndexSuffix},
		{"half a transaction", files{good, nil, goodTimes, txn[:33]}, 103, TxnIndexSuffix, TxnIndexSuffix},
		{"half a time", files{good, nil, goodTimes[:23], nil}, 103, TimeIndexSuffix, TimeIndexSuffix},
		{"half an offset", files{good, offsets(OffsetEntry{101, 100})[:7], goodTimes, nil}, 103, IndexSuffix, IndexSuffix},
		{"time below the base", files{good, nil, times(TimeEntry{30, 99}), nil}, 103, TimeIndexSuffix, TimeIndexSuffix},
		{"negative time", files{good, nil, times(TimeEntry{-1, 102}), nil}, 103, TimeIndexSuffix, TimeIndexSuffix},
		{"times allocated ahead", files{good, nil, append(bytes.Clone(goodTimes), make([]byte, 24)...), nil}, 103, TimeIndexSuffix, TimeIndexSuffix},
		{"offsets allocated ahead", files{good, offsets(OffsetEntry{101, 100}, OffsetEntry{100, 0}), goodTimes, nil}, 103, IndexSuffix, IndexSuffix},
		{"a time, then one allocated ahead", files{good, nil, append(times(TimeEntry{30, 102}), make([]byte, 12)...), nil}, 103, TimeIndexSuffix, TimeIndexSuffix},
		{"no entries, and a first batch of several", files{batchAtOffset(base, 3, 30), nil, times(TimeEntry{30, 102}), nil}, 103, "", ""},
		{"a time without batches", files{nil, nil, times(TimeEntry{5, 100}), nil}, 100, TimeIndexSuffix, TimeIndexSuffix},
		{"entry reaches the next", files{good, offsets(OffsetEntry{102, 200}), goodTimes, nil}, 102, IndexSuffix, ""},
		{"time reaches the next", files{good, nil, goodTimes, nil}, 102, TimeIndexSuffix, ""},
		{"the only time reaches the next", files{good, nil, times(TimeEntry{30, 102}), nil}, 102, TimeIndexSuffix, ""},
		{"log reaches the next", files{log(10, 20, 15), nil, times(TimeEntry{20, 101}), nil}, 102, LogSuffix, ""},
		{"log torn", files{torn, nil, times(TimeEntry{20, 101}), nil}, 103, LogSuffix, LogSuffix},
		{"damage in the first batch, before an entry", files{badFirst, offsets(OffsetEntry{102, 200}), goodTimes, nil}, 103, "", LogSuffix},
		{"magic of none", files{badHeader, nil, goodTimes, nil}, 103, LogSuffix, LogSuffix},
	} {
		t.Run(c.name, func(t *testing.T) {
			verdict := func(form, want string, open func(w Where) (*Segment, error)) {
				w := testWhere(t)
				c.files.write(t, w, base)
				s, err := open(w)
				if want == "" {
					require.NoError(t, err, form)
					info := s.Info()
					require.EqualValues(t, len(c.files.log), info.Bytes)
					require.Equal(t, len(c.files.txns)/TxnEntryBytes, info.AbortedCount)
					s.Close()
					return
				}
				require.ErrorIs(t, err, ErrNeedsRecovery, form)
				require.ErrorContains(t, err, testDir+"/"+Name(base, want)+": ", form)
			}
			verdict("sealed", c.sealed, func(w Where) (*Segment, error) { return OpenSealed(w, base, c.next, testInterval) })
			verdict("active", c.active, func(w Where) (*Segment, error) { return OpenActive(w, base, testInterval) })
		})
	}
	w := testWhere(t)
	files{log: log(10, 20), times: times(TimeEntry{20, 101})}.write(t, w, base)
	s, err := OpenSealed(w, base, 200, testInterval)
	require.NoError(t, err)
	require.EqualValues(t, 102, s.DataEnd(), "before the hole")
	require.EqualValues(t, 200, s.Next())
}

// TestTailsThatShouldHaveEntries: much log after the last index entry is right
// where a single batch makes it up, and else tells of an index that lost its end.
func TestTailsThatShouldHaveEntries(t *testing.T) {
	const interval = 1000
	const most = 16*interval + shortIndexBytes
	small := make([]int, most/100)
	for i := range small {
		small[i] = 100
	}
	for _, c := range []struct {
		name  string
		sizes []int
		bad   bool
		file  string
	}{
		{"small ones just as many as may be", small, false, ""},
		{"one large", []int{2 * most}, false, ""},
		{"a large one last", []int{100, 100, most}, false, ""},
		{"a large one second", []int{100, 2 * most}, false, ""},
		{"two large, the first without an entry", []int{2 * most, 100, 2 * most}, true, IndexSuffix},
		{"more than may be after the second", []int{100, 100, most + 1}, true, IndexSuffix},
		{"many small", append(small, small...), true, IndexSuffix},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f files
			for i, n := range c.sizes {
				f.log = append(f.log, sized(t, cluster.Offset(i), n, int64(i+1))...)
			}
			next := cluster.Offset(len(c.sizes))
			f.times = AppendTimeEntry(nil, 0, TimeEntry{int64(next), next - 1})
			w := testWhere(t)
			f.write(t, w, 0)
			for _, open := range []func() (*Segment, error){
				func() (*Segment, error) { return OpenSealed(w, 0, next, interval) },
				func() (*Segment, error) { return OpenActive(w, 0, interval) },
			} {
				_, err := open()
				if !c.bad {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, ErrNeedsRecovery)
				require.ErrorContains(t, err, Name(0, c.file))
			}
			// After an entry the same holds of what follows it.
			at := int64(len(f.log))
			f.index = AppendOffsetEntry(nil, 0, OffsetEntry{next, at})
			f.log = append(f.log, sized(t, next, 100, int64(next)+1)...)
			for i, n := range c.sizes[min(1, len(c.sizes)):] {
				f.log = append(f.log, sized(t, next+1+cluster.Offset(i), n, 5)...)
			}
			f.times = AppendTimeEntry(nil, 0, TimeEntry{int64(next) + 1, next})
			f.write(t, w, 0)
			_, err := OpenActive(w, 0, interval)
			if c.bad && c.sizes[0] == 100 {
				require.ErrorIs(t, err, ErrNeedsRecovery)
			} else if !c.bad {
				require.NoError(t, err)
			}
			// Damage in such a tail is the log's.
			torn := f
			torn.log = append(append([]byte(nil), f.log...), sized(t, 1<<20, 3*most, 5)[:2*most]...)
			torn.write(t, w, 0)
			_, err = OpenActive(w, 0, interval)
			require.ErrorIs(t, err, ErrNeedsRecovery)
		})
	}
}

// TestCreatedIsTheFirstBatchOrTheFile: the age of a segment counts from its first
// batch's timestamp where that is one of the past.
func TestCreatedIsTheFirstBatchOrTheFile(t *testing.T) {
	future := time.Now().Add(time.Hour).UnixMilli()
	for _, c := range []struct {
		ts   int64
		file bool
	}{{-1, true}, {0, true}, {1, false}, {1_600_000_000_000, false}, {future, true}} {
		w := testWhere(t)
		s, err := Create(w, 0, time.UnixMilli(7))
		require.NoError(t, err)
		require.Equal(t, time.UnixMilli(7), s.Info().Created)
		require.Equal(t, time.UnixMilli(7), s.Info().Modified)
		for i := range 2 {
			b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: cluster.Offset(i)})
			b.Add(c.ts+int64(i), nil, []byte("v"))
			p := b.Build()
			require.NoError(t, s.Write(p))
			s.Commit(p, testInterval, time.UnixMilli(int64(8+i)), 0)
		}
		require.Equal(t, time.UnixMilli(8), s.Info().Created, "the first append")
		require.Equal(t, time.UnixMilli(9), s.Info().Modified, "the last append")
		require.Equal(t, c.ts, s.Info().FirstTimestamp)
		require.NoError(t, s.Finish())
		s.Close()
		file, err := w.FS.Stat(s.LogName())
		require.NoError(t, err)
		want := file.Modified
		if !c.file {
			want = time.UnixMilli(c.ts)
		}
		s, err = OpenActive(w, 0, testInterval)
		require.NoError(t, err)
		created, ok := s.Created()
		require.True(t, ok)
		require.Equal(t, want, created, "timestamp %d", c.ts)
		require.Equal(t, file.Modified, s.Info().Modified)
		s.Close()
		if c.ts >= 0 {
			s, err = OpenSealed(w, 0, 10, testInterval)
			require.NoError(t, err)
			require.Equal(t, file.Modified, s.Info().Modified)
			created, _ = s.Created()
			require.Equal(t, file.Modified, created)
			s.Close()
		}
		s, _, err = Recover(w, 0, RecoverOptions{IntervalBytes: testInterval, Visit: visitAll})
		require.NoError(t, err)
		created, _ = s.Created()
		require.Equal(t, want, created, "timestamp %d", c.ts)
		require.Equal(t, file.Modified, s.Info().Modified)
		require.Equal(t, c.ts, s.Info().FirstTimestamp)
		s.Close()
	}
}

// TestTruncateFilesCutsTheIndexes: just what tells of the batches that are gone.
func TestTruncateFilesCutsTheIndexes(t *testing.T) {
	for keep := range 40 {
		crash := disk.NewCrash(1)
		require.NoError(t, crash.MkdirAll(testDir))
		w := Where{FS: crash, Dir: testDir, Handles: disk.NewHandleCache(crash, 8)}
		s, headers := write(t, w, 0, 40)
		for _, h := range headers {
			s.AddAborted(producerstate.AbortedTxn{ProducerID: 1, First: 0, Last: h.Base, LastStableOffset: h.Base + 1})
		}
		require.NoError(t, s.Finish())
		index, err := s.OffsetIndex()
		require.NoError(t, err)
		times, err := s.TimeIndex()
		require.NoError(t, err)
		crash.SyncAll()
		cut := headers[keep]
		require.NoError(t, s.TruncateFiles(cut.Position, cut.Base))
		require.True(t, s.Removed())
		require.NoError(t, w.Handles.Close())

		after := crash.Clone(nil)
		for range 12 {
			w = Where{FS: after, Dir: testDir, Handles: disk.NewHandleCache(after, 8)}
			s, err = OpenActive(w, 0, 1<<30)
			require.NoError(t, err, "durable, whatever a power loss takes")
			require.Equal(t, cut.Position, s.Bytes())
			after = crash.Clone(nil)
		}
		got, err := s.OffsetIndex()
		require.NoError(t, err)
		for len(index) > 0 && index[len(index)-1].Position >= cut.Position {
			index = index[:len(index)-1]
		}
		require.Equal(t, index, got)
		gotTimes, err := s.TimeIndex()
		require.NoError(t, err)
		for len(times) > 0 && times[len(times)-1].Offset >= cut.Base {
			times = times[:len(times)-1]
		}
		require.Equal(t, times, gotTimes)
		txns, err := s.Aborted()
		require.NoError(t, err)
		require.Len(t, txns, keep)
		s.Close()
	}
}

// TestTruncateFilesDropsTheOffsetItCutsAt: an entry at the first offset that is
// gone goes too, and what cannot be read of an index is cut.
func TestTruncateFilesDropsTheOffsetItCutsAt(t *testing.T) {
	w := testWhere(t)
	f := files{
		times: AppendTimeEntry(AppendTimeEntry(nil, 0, TimeEntry{1, 0}), 0, TimeEntry{2, 1}),
		index: AppendOffsetEntry(nil, 0, OffsetEntry{1, 100}),
		txns: encodeTxns([]producerstate.AbortedTxn{
			{ProducerID: 1, First: 0, Last: 0, LastStableOffset: 1}, {ProducerID: 1, First: 1, Last: 1, LastStableOffset: 2},
		}),
	}
	f.log = append(sized(t, 0, 100, 1), sized(t, 1, 100, 2)...)
	f.write(t, w, 0)
	s, err := OpenSealed(w, 0, 2, testInterval)
	require.NoError(t, err)
	require.NoError(t, s.TruncateFiles(100, 1))
	s, err = OpenActive(w, 0, testInterval)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Info().AbortedCount)
	times, err := s.TimeIndex()
	require.NoError(t, err)
	require.Equal(t, []TimeEntry{{1, 0}}, times)
	index, err := s.OffsetIndex()
	require.NoError(t, err)
	require.Empty(t, index)
	s.Close()

	f.write(t, w, 0)
	s, err = OpenSealed(w, 0, 2, testInterval)
	require.NoError(t, err)
	bad := f
	bad.txns = append(bytes.Clone(f.txns[:TxnEntryBytes]), 0, 9)
	bad.txns = append(bad.txns, f.txns[TxnEntryBytes+2:]...)
	bad.write(t, w, 0)
	w.Handles.Drop(s.txnName)
	require.NoError(t, s.TruncateFiles(200, 2))
	s, err = OpenActive(w, 0, testInterval)
	require.NoError(t, err)
	require.Equal(t, 1, s.Info().AbortedCount, "the good one before the bad")
	s.Close()
}
