package cleaner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/locallog"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

func TestCompactionKeepsTheLastOfEachKey(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	b.keyed(recordbatch.Options{}, "a", "1", "b", "1", "a", "2")
	b.keyed(recordbatch.Options{}, "a", "3")
	b.seal()
	b.keyed(recordbatch.Options{}, "b", "2", "c", "1")
	b.seal()
	b.keyed(recordbatch.Options{}, "c", "2") // in the active segment: it does not count
	r := b.compact(limits())
	require.Equal(t, DueDirty, r.Due)
	require.Equal(t, int64(6), r.Records)
	require.Equal(t, int64(3), r.RecordsRemoved)
	require.Equal(t, []string{"3 a=3", "4 b=2", "5 c=1", "6 c=2"}, values(recordsOf(t, b.batches(0))))
	require.Equal(t, cluster.Offset(7), b.log.EndOffset())
	require.Empty(t, b.compact(limits()).Due, "nothing is left to do")
}

// TestTombstonesGoWhenTheirTimeHasCome: a tombstone gets its delete horizon with
// the first pass and goes with one after that; nothing older comes back.
func TestTombstonesGoWhenTheirTimeHasCome(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	b.keyed(recordbatch.Options{}, "a", "1", "b", "1")
	b.seal()
	b.keyed(recordbatch.Options{}, "a", "-", "c", "1")
	b.seal()
	b.keyed(recordbatch.Options{}, "d", "1")
	b.compact(limits())
	require.Equal(t, []string{"1 b=1", "2 a deleted", "3 c=1", "4 d=1"}, values(recordsOf(t, b.batches(0))))
	require.Zero(t, b.log.CompactedTombstonesBelow())
	batch := b.batches(2)[0]
	require.True(t, batch.HasDeleteHorizon())
	require.Equal(t, b.now.Add(time.Minute).UnixMilli(), batch.FirstTimestamp())
	b.now = b.now.Add(59 * time.Second)
	require.Empty(t, b.compact(limits()).Due)
	b.now = b.now.Add(time.Second)
	r := b.compact(limits())
	require.Equal(t, DueHorizon, r.Due)
	require.Equal(t, []string{"1 b=1", "3 c=1", "4 d=1"}, values(recordsOf(t, b.batches(0))))
	require.Equal(t, cluster.Offset(3), b.log.CompactedTombstonesBelow())
	require.Empty(t, b.compact(limits()).Due)
	index, err := b.c.Index.Open(testTP)
	require.NoError(t, err)
	require.Equal(t, int64(2), index.Keys(), "a's is forgotten, d's not known yet")
}

// TestTombstonesWaitForWhatHadNoRoom: where a segment that still holds a deleted
// value cannot be rewritten, its tombstone stays, however long that lasts.
func TestTombstonesWaitForWhatHadNoRoom(t *testing.T) {
	for _, how := range []string{"no room", "overtaken"} {
		b := newBench(t, disk.NewCrash(1))
		b.keyed(recordbatch.Options{}, "deleted", "value", "once", "value", "twice", "1")
		b.seal()
		b.keyed(recordbatch.Options{}, "deleted", "-", "twice", "2")
		b.seal()
		b.unique(1)
		l := limits()
		l.SegmentBytes = 1 // nothing is joined
		refuse := true
		if how == "no room" {
			first := true
			b.c.Room = func(int64) bool {
				refused := refuse && first
				first = false
				return !refused
			}
			for range 4 {
				first = true
				require.Equal(t, 1, b.compact(l).NoRoom)
				b.now = b.now.Add(2 * l.DeleteRetention)
				b.keyed(recordbatch.Options{}, "other", "value")
				b.seal()
			}
		} else {
			commits := 0
			b.onCommit = func() error {
				if commits++; refuse && commits == 1 {
					return fmt.Errorf("%w, says the test", locallog.ErrOvertaken)
				}
				return nil
			}
			for range 4 {
				commits = 0
				b.compact(l)
				b.now = b.now.Add(2 * l.DeleteRetention)
				b.keyed(recordbatch.Options{}, "other", "value")
				b.seal()
			}
		}
		left := values(recordsOf(t, b.batches(0)))
		require.Contains(t, left, "0 deleted=value", how)
		require.Contains(t, left, "3 deleted deleted", how)
		refuse = false
		for range 3 {
			b.compact(l)
			b.now = b.now.Add(2 * l.DeleteRetention)
			b.keyed(recordbatch.Options{}, "other", "value")
			b.seal()
		}
		left = values(recordsOf(t, b.batches(0)))
		require.NotContains(t, left, "0 deleted=value", how)
		require.NotContains(t, left, "3 deleted deleted", how)
		require.Contains(t, left, "1 once=value", how)
		b.close(false)
	}
}

// lazy are limits under which only segments with much garbage are rewritten.
func lazy() CompactionLimits {
	l := limits()
	l.DirtyRatio = 0.9
	return l
}

// unique appends records of keys that come once.
func (b *bench) unique(n int) {
	b.t.Helper()
	for range n {
		b.serial++
		b.keyed(recordbatch.Options{}, fmt.Sprintf("unique-%05d", b.serial), "value")
	}
}

// TestAbortedDataThatStays: what was aborted stays until its segment pays for a
// rewrite; meanwhile its marker and the word about it stay, too.
func TestAbortedDataThatStays(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	b.cfg.Settings.SegmentBytes = 1 << 20
	b.log.SetSettings(b.cfg.Settings)
	p := recordbatch.Producer{ID: 7}
	b.unique(20)
	b.keyed(recordbatch.Options{Producer: &p, Transactional: true}, "aborted", "1")
	b.unique(20)
	b.seal()
	b.marker(p, recordbatch.ControlAbort)
	b.marker(recordbatch.Producer{ID: 8}, recordbatch.ControlCommit) // of a transaction without data here
	b.keyed(recordbatch.Options{}, "k", "1", "k", "2")
	b.seal()
	b.unique(1)
	l := lazy()
	l.SegmentBytes = 1 // nothing is joined
	r := b.compact(l)
	require.Equal(t, int64(1), r.RecordsRemoved, "k=1")
	require.Len(t, b.committed(0), 42)
	all := values(recordsOf(t, b.batches(0)))
	require.Contains(t, all, "20 aborted=1")
	require.Contains(t, all, "41 marker")
	aborted, err := b.log.AbortedTxns(0, 41)
	require.NoError(t, err)
	require.Len(t, aborted, 1)
	// A marker whose transaction left nothing gets its time; the other one waits.
	for _, batch := range b.batches(41) {
		if batch.IsControl() {
			require.Equal(t, batch.ProducerID() == 8, batch.HasDeleteHorizon())
		}
	}
	// With the data gone the marker follows, once nothing has to be known of the
	// producer any more: until then its last data batch stays, empty.
	for i := range 4 {
		b.keyed(recordbatch.Options{}, "k", "3", "k", "4")
		b.seal()
		b.compact(limits())
		require.Equal(t, i == 3, !slices.Contains(values(recordsOf(t, b.batches(0))), "41 marker"))
		b.now = b.now.Add(25 * time.Hour)
		b.log.Producers().Expire(b.now)
	}
	require.Len(t, b.committed(0), 42)
	for _, v := range values(recordsOf(t, b.batches(0))) {
		require.NotContains(t, v, "marker")
		require.NotContains(t, v, "aborted")
	}
	require.Equal(t, cluster.Offset(43), b.log.CompactedTombstonesBelow())
}

// TestLastBatchStays: the last batch that a pass may touch stays, empty, so that
// the log's last offset is not a matter of a file's name alone.
func TestLastBatchStays(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	p := recordbatch.Producer{ID: 7}
	b.keyed(recordbatch.Options{}, "a", "1")
	b.keyed(recordbatch.Options{Producer: &p, Transactional: true}, "b", "1")
	b.keyed(recordbatch.Options{Producer: &recordbatch.Producer{ID: 7, BaseSequence: 1}, Transactional: true}, "b", "2")
	b.marker(p, recordbatch.ControlAbort)
	b.keyed(recordbatch.Options{}, "a", "-")
	b.seal()
	l := limits()
	l.DeleteRetention = 0
	b.compact(l)
	b.unique(1)
	b.seal()
	b.compact(l)
	batches := b.batches(0)
	// The producer's last data batch is there with its sequence, though empty, and
	// so is its marker.
	require.Equal(t, []string{"3 marker", "5 unique-00001=value"}, values(recordsOf(t, batches)))
	require.Equal(t, cluster.Offset(2), batches[0].BaseOffset())
	require.Zero(t, batches[0].RecordCount())
	require.Equal(t, int32(1), batches[0].LastSequence())
	b.keyed(recordbatch.Options{}, "unique-00001", "-")
	b.seal()
	b.compact(l)
	b.compact(l)
	last := b.batches(0)
	require.Equal(t, cluster.Offset(6), last[len(last)-1].BaseOffset())
	require.Equal(t, cluster.Offset(7), b.log.EndOffset())
}

// TestIndexIsMadeAnewWhereTheLogDisagrees is I10: the log was cut below what the
// index knows, or is of another epoch there.
func TestIndexIsMadeAnewWhereTheLogDisagrees(t *testing.T) {
	for _, again := range []int{1, 20} {
		b := newBench(t, disk.NewCrash(1))
		b.log.AssignEpoch(1)
		for range 6 {
			b.keyed(recordbatch.Options{LeaderEpoch: 1}, "a", "old", "b", "old", "c", "old")
			b.seal()
		}
		b.compact(limits())
		require.NoError(t, b.log.TruncateTo(4))
		require.Less(t, b.log.EndOffset(), cluster.Offset(4))
		b.log.AssignEpoch(2)
		for range again {
			b.keyed(recordbatch.Options{LeaderEpoch: 2}, "a", "new")
			b.seal()
		}
		before := fold(recordsOf(t, b.batches(0)))
		r := b.compact(limits())
		require.Equal(t, b.log.EndOffset(), r.Indexed)
		require.Equal(t, before, fold(recordsOf(t, b.batches(0))))
		b.keyed(recordbatch.Options{LeaderEpoch: 2}, "b", "new")
		b.seal()
		b.compact(limits())
		require.Equal(t, map[string]string{"a": "new", "b": "new"}, fold(recordsOf(t, b.batches(0))))
		b.close(false)
	}
}

// TestDeadRecordsOfALogThatWasCut: what a record that was cut off had made dead is
// the latest of its key again, however far the log has grown since.
func TestDeadRecordsOfALogThatWasCut(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	b.log.AssignEpoch(1)
	first := []string{"b", "old"}
	for i := range 10 {
		first = append(first, fmt.Sprint("once-", i), "value")
	}
	b.keyed(recordbatch.Options{LeaderEpoch: 1}, first...)
	b.seal()
	cut := b.log.EndOffset()
	b.keyed(recordbatch.Options{LeaderEpoch: 1}, "b", "new")
	b.seal()
	l := lazy()
	l.SegmentBytes = 1 // nothing is joined
	b.compact(l)
	require.Contains(t, values(recordsOf(t, b.batches(0))), "0 b=old", "it does not pay yet")
	require.NoError(t, b.log.TruncateTo(cut))
	b.log.AssignEpoch(2)
	for range 5 {
		b.keyed(recordbatch.Options{LeaderEpoch: 2}, "a", "1")
		b.seal()
	}
	r := b.compact(limits())
	require.Equal(t, b.log.EndOffset(), r.Indexed)
	require.Contains(t, values(recordsOf(t, b.batches(0))), "0 b=old")
}

// TestIndexIsLost: a database that is gone is made anew, with the same outcome.
func TestIndexIsLost(t *testing.T) {
	fs := disk.NewCrash(1)
	b := newBench(t, fs)
	b.keyed(recordbatch.Options{}, "a", "1", "b", "1")
	b.seal()
	b.compact(limits())
	b.close(true)
	require.NoError(t, fs.RemoveAll(indexDir))
	require.NoError(t, b.open())
	b.keyed(recordbatch.Options{}, "a", "2")
	b.seal()
	r := b.compact(limits())
	require.Equal(t, int64(3), r.Records)
	require.Equal(t, []string{"1 b=1", "2 a=2"}, values(recordsOf(t, b.batches(0))))
	b.close(false)
}

// TestRecordsWithoutAKey, of the time before the topic was compacted, go.
func TestRecordsWithoutAKey(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	builder := recordbatch.NewBuilder(recordbatch.Options{})
	builder.Add(1, nil, []byte("no key"))
	builder.Add(1, []byte{}, []byte("an empty key"))
	_, err := b.log.Append(builder.Build())
	require.NoError(t, err)
	b.seal()
	b.compact(limits())
	require.Equal(t, []string{"1 =an empty key"}, values(recordsOf(t, b.batches(0))))
}

// TestOnlyDecidedDataCounts: records of an open transaction, and all after them,
// are neither removed nor do they remove others.
func TestOnlyDecidedDataCounts(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	b.keyed(recordbatch.Options{}, "a", "1")
	b.seal()
	b.keyed(recordbatch.Options{Producer: &recordbatch.Producer{ID: 7}, Transactional: true}, "a", "2")
	b.seal()
	b.keyed(recordbatch.Options{}, "a", "3")
	b.seal()
	b.compact(limits())
	require.Equal(t, []string{"0 a=1", "1 a=2", "2 a=3"}, values(recordsOf(t, b.batches(0))))
	b.marker(recordbatch.Producer{ID: 7}, recordbatch.ControlAbort)
	b.seal()
	b.compact(limits())
	require.Equal(t, []string{"2 a=3", "3 marker"}, values(recordsOf(t, b.batches(0))))
	require.Equal(t, map[string]string{"a": "3"}, fold(b.committed(0)))
}

// TestSmallSegmentsAreJoined, but not past segment.bytes or the 31 bits of offsets
// (CO-11).
func TestSmallSegmentsAreJoined(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	for range 12 {
		b.keyed(recordbatch.Options{}, "a", "1", "b", "2", "c", "3")
		b.seal()
	}
	r := b.compact(limits())
	require.GreaterOrEqual(t, r.SegmentsBefore, 11)
	require.Less(t, r.SegmentsAfter, 5)
	require.Equal(t, []string{"33 a=1", "34 b=2", "35 c=3"}, values(recordsOf(t, b.batches(0))))
}

// TestJoinedSegmentsKeepTheirSize: what stays of batches that were compressed well
// together is larger than its share of them; no segment gets larger than
// segment.bytes for it.
func TestJoinedSegmentsKeepTheirSize(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	rng := rand.New(rand.NewPCG(1, 1))
	want := map[string]string{}
	for i := range 40 {
		value := make([]byte, 150)
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		var pairs []string
		for k := range 20 {
			pairs = append(pairs, fmt.Sprint("same-", k), string(value))
			want[fmt.Sprint("same-", k)] = string(value)
		}
		pairs = append(pairs, fmt.Sprint("once-", i), string(value))
		want[fmt.Sprint("once-", i)] = string(value)
		b.keyed(recordbatch.Options{Codec: recordbatch.Zstd}, pairs...)
	}
	b.seal()
	r := b.compact(limits())
	require.Greater(t, r.SegmentsBefore, r.SegmentsAfter)
	require.Equal(t, want, fold(recordsOf(t, b.batches(0))))
	require.Greater(t, r.BytesAfter, 5*b.cfg.Settings.SegmentBytes)
	for _, s := range b.log.Segments() {
		require.LessOrEqual(t, s.Bytes, b.cfg.Settings.SegmentBytes)
	}
}

// TestSparseOffsets is CO-11: segments whose offsets lie further apart than an
// index can tell are not joined, and nothing is lost.
func TestSparseOffsets(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	var want []string
	for i := range 6 {
		base := cluster.Offset(i) << 30
		builder := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: base})
		builder.Add(1, []byte("same"), []byte("x"))
		builder.Add(1, fmt.Appendf(nil, "key-%d", i), []byte("y"))
		_, err := b.log.Append(builder.Build())
		require.NoError(t, err)
		if i == 5 {
			want = append(want, fmt.Sprintf("%d same=x", base))
		}
		want = append(want, fmt.Sprintf("%d key-%d=y", base+1, i))
		b.seal()
	}
	r := b.compact(limits())
	require.Equal(t, int64(5), r.RecordsRemoved)
	require.Equal(t, want, values(recordsOf(t, b.batches(0))))
	require.Greater(t, len(b.log.Segments()), 2)
	for _, s := range b.log.Segments() {
		require.LessOrEqual(t, int64(s.Next-s.Base), int64(1)<<31)
		if !s.Sealed {
			continue
		}
		v, err := b.log.Sealed(s.Base)
		require.NoError(t, err)
		for _, e := range v.OffsetIndex {
			require.GreaterOrEqual(t, e.Offset, s.Base)
			require.Less(t, e.Offset, s.Next)
		}
		v.Release()
	}
}

// TestLagsBoundWhatIsCompacted: not before min.compaction.lag.ms, and not after
// max.compaction.lag.ms whatever the ratio.
func TestLagsBoundWhatIsCompacted(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	b.keyed(recordbatch.Options{}, "a", "1", "a", "2")
	b.seal()
	l := limits()
	l.MinLag = time.Minute
	require.Empty(t, b.compact(l).Due)
	b.now = b.now.Add(time.Minute + time.Millisecond)
	b.keyed(recordbatch.Options{}, "a", "3", "a", "4")
	b.seal()
	require.Equal(t, DueDirty, b.compact(l).Due)
	require.Equal(t, []string{"1 a=2", "2 a=3", "3 a=4"}, values(recordsOf(t, b.batches(0))))
	l.MinLag, l.MaxLag, l.DirtyRatio = 0, time.Hour, 1
	require.Empty(t, b.compact(l).Due)
	b.now = b.now.Add(time.Hour + time.Millisecond)
	require.Equal(t, DueLag, b.compact(l).Due)
	require.Equal(t, []string{"3 a=4"}, values(recordsOf(t, b.batches(0))))
}

// TestHugeKeys: keys and batches that are larger than what a pass reads at a time,
// and than what it may hold.
func TestHugeKeys(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	b.cfg.Settings.SegmentBytes = 8 << 20
	b.log.SetSettings(b.cfg.Settings)
	huge := strings.Repeat("k", 1<<20)
	for i, codec := range []recordbatch.Codec{recordbatch.None, recordbatch.Gzip, recordbatch.Zstd} {
		b.keyed(recordbatch.Options{Codec: codec}, huge+"1", fmt.Sprint(i), huge+"2", fmt.Sprint(i), "k", huge)
		b.seal()
	}
	r := b.compact(limits())
	require.Equal(t, int64(6), r.RecordsRemoved)
	require.Equal(t, map[string]string{huge + "1": "2", huge + "2": "2", "k": huge}, fold(recordsOf(t, b.batches(0))))
}

// TestWrongTransactionIndex: what says of committed records that their transaction
// was aborted does not remove them.
func TestWrongTransactionIndex(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	p := recordbatch.Producer{ID: 7}
	b.keyed(recordbatch.Options{Producer: &p, Transactional: true}, "committed", "value")
	b.marker(p, recordbatch.ControlCommit)
	b.seal()
	b.unique(1)
	b.seal()
	b.close(true)
	name := path.Join(logDir, segment.Name(0, segment.TxnIndexSuffix))
	wrong := segment.AppendTxnEntry(nil, producerstate.AbortedTxn{ProducerID: 7, First: 0, Last: 1, LastStableOffset: 2})
	require.NoError(t, disk.WriteFileAtomic(b.fs, name, wrong))
	require.NoError(t, b.open())
	defer b.close(false)
	b.compact(limits())
	require.Contains(t, values(recordsOf(t, b.batches(0))), "0 committed=value")
	require.Equal(t, map[string]string{"committed": "value", "unique-00001": "value"}, fold(b.committed(0)))
}

// TestIndexWithoutRoom: where the key index may not grow, what it knows is
// compacted all the same, and the rest waits.
func TestIndexWithoutRoom(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	b.cfg.Settings.SegmentBytes = 64 << 20
	b.log.SetSettings(b.cfg.Settings)
	room := true
	b.c.IndexRoom = func() bool { return room }
	b.keyed(recordbatch.Options{}, "a", "1", "b", "1", "a", "2")
	b.seal()
	refused := b.c.Room
	b.c.Room = func(int64) bool { return false }
	require.Equal(t, 1, b.compact(limits()).NoRoom)
	b.c.Room, room = refused, false
	huge := strings.Repeat("v", 3<<20)
	for range 3 {
		b.keyed(recordbatch.Options{}, "b", huge)
	}
	b.seal()
	r := b.compact(limits())
	require.Equal(t, 1, r.NoRoom)
	require.Zero(t, r.Records)
	require.Equal(t, int64(1), r.RecordsRemoved, "of what the index knows")
	asked := 0
	b.c.IndexRoom = func() bool {
		asked++
		return asked == 1
	}
	r = b.compact(limits())
	require.Equal(t, 2, asked)
	require.Equal(t, 1, r.NoRoom)
	require.Equal(t, map[string]string{"a": "2", "b": huge}, fold(recordsOf(t, b.batches(0))))
	b.c.IndexRoom = func() bool { return true }
	r = b.compact(limits())
	require.Equal(t, int64(3), r.Records)
	require.Equal(t, int64(3), r.RecordsRemoved)
	require.Equal(t, map[string]string{"a": "2", "b": huge}, fold(recordsOf(t, b.batches(0))))
}

// TestNothingToLeaveOut: a segment of which nothing goes keeps its file, and is not
// tried again at once.
func TestNothingToLeaveOut(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	l := limits()
	l.SegmentBytes = 1 // nothing is joined
	b.keyed(recordbatch.Options{Producer: &recordbatch.Producer{ID: 7}}, "k", "1")
	b.seal()
	b.keyed(recordbatch.Options{}, "k", "2")
	b.seal()
	require.Equal(t, int64(1), b.compact(l).RecordsRemoved, "the batch stays, empty")
	filtered := func() int64 {
		index, err := b.index.Open(testTP)
		require.NoError(t, err)
		s, ok := index.Segment(0)
		require.True(t, ok)
		require.Equal(t, int64(1), s.Emptied)
		return s.FilteredAt
	}
	for _, later := range []time.Duration{2 * time.Hour, time.Minute} {
		tried := later > time.Hour
		b.now = b.now.Add(later)
		b.unique(1)
		b.seal()
		before := b.log.Segments()[0]
		r := b.compact(l)
		require.Equal(t, DueDirty, r.Due)
		require.Zero(t, r.SegmentsBefore)
		require.Equal(t, tried, r.BytesWritten > 0)
		require.Equal(t, tried, filtered() == b.now.UnixMilli())
		require.Equal(t, before, b.log.Segments()[0])
		b.requireNoStrays("nothing was left out")
	}
}

// TestMarkersOfOneProducer: a marker goes once its own transaction's data has, though
// data of an earlier transaction of its producer stays, with its marker.
func TestMarkersOfOneProducer(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	p := recordbatch.Producer{ID: 7}
	b.keyed(recordbatch.Options{Producer: &p, Transactional: true}, "stays", "1")
	b.marker(p, recordbatch.ControlCommit)
	b.keyed(recordbatch.Options{Producer: &recordbatch.Producer{ID: 7, BaseSequence: 1}, Transactional: true}, "k", "0")
	b.marker(p, recordbatch.ControlCommit)
	// Of another producer nothing is known but a marker, and so its epoch.
	b.marker(recordbatch.Producer{ID: 8, Epoch: 3}, recordbatch.ControlAbort)
	b.seal()
	for range 4 {
		b.keyed(recordbatch.Options{}, "k", "1", "k", "2")
		b.seal()
		b.compact(limits())
		known, err := b.LastOfProducers()
		require.NoError(t, err)
		if _, ok := known[8]; ok {
			epoch := int16(-1)
			for _, batch := range b.batches(0) {
				if batch.ProducerID() == 8 {
					epoch = int16(batch.ProducerEpoch())
				}
			}
			require.Equal(t, int16(3), epoch)
		}
		b.now = b.now.Add(2 * time.Hour)
	}
	for range 4 {
		b.keyed(recordbatch.Options{}, "k", "1", "k", "2")
		b.seal()
		b.compact(limits())
		b.now = b.now.Add(25 * time.Hour)
		b.log.Producers().Expire(b.now)
	}
	left := values(recordsOf(t, b.batches(0)))
	require.Contains(t, left, "0 stays=1")
	require.Contains(t, left, "1 marker")
	require.NotContains(t, left, "3 marker")
	require.NotContains(t, left, "4 marker")
}

// TestIndexMissesARewrite: where a stop kept it from hearing of a rewrite, or power
// was lost since, the index counts the new segments again.
func TestIndexMissesARewrite(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	for range 4 {
		b.keyed(recordbatch.Options{}, "a", "1", "b", "1", "a", "2")
		b.seal()
	}
	stop := errors.New("stop")
	b.afterCommit = func() error { return stop }
	_, err := b.c.Compact(context.Background(), b, limits())
	require.ErrorIs(t, err, stop)
	b.afterCommit = nil
	require.Equal(t, []string{"10 b=1", "11 a=2"}, values(recordsOf(t, b.batches(0))))
	b.keyed(recordbatch.Options{}, "c", "1")
	b.seal()
	b.compact(limits())
	index, err := b.index.Open(testTP)
	require.NoError(t, err)
	var records, dead int64
	for _, info := range b.log.Segments() {
		if s, ok := index.Segment(info.Base); info.Sealed {
			require.True(t, ok)
			require.Equal(t, []int64{int64(info.Next), info.Bytes}, []int64{int64(s.Next), s.Bytes})
			records, dead = records+s.Records, dead+s.DeadRecords
		}
	}
	require.Equal(t, int64(3), records)
	require.Zero(t, dead)
}

// TestKeysThatLeftTheLog are forgotten where they are many.
func TestKeysThatLeftTheLog(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	b.cfg.Settings.SegmentBytes = 64 << 20
	b.log.SetSettings(b.cfg.Settings)
	b.c.MemoryBytes = 16 << 20
	var pairs []string
	for i := range sweepMin + 100 {
		pairs = append(pairs, fmt.Sprint("key-", i), "value")
	}
	b.keyed(recordbatch.Options{}, pairs...)
	b.seal()
	b.compact(limits())
	b.keyed(recordbatch.Options{}, "a", "1")
	b.seal()
	b.log.SetStartOffset(sweepMin + 100)
	_, _, err := b.log.DeleteSealedBelow(sweepMin + 100)
	require.NoError(t, err)
	for range 2 {
		b.keyed(recordbatch.Options{}, "b", "1")
		b.seal()
		b.compact(limits())
	}
	index, err := b.index.Open(testTP)
	require.NoError(t, err)
	require.Equal(t, int64(2), index.Keys())
}

// TestLongestLagOfWhatIsLeft: where records were deleted up to the middle of a
// segment, max.compaction.lag.ms holds for what is left of it.
func TestLongestLagOfWhatIsLeft(t *testing.T) {
	b := newBench(t, disk.NewCrash(1))
	defer b.close(false)
	b.keyed(recordbatch.Options{}, "a", "1")
	b.now = b.now.Add(30 * time.Minute)
	b.keyed(recordbatch.Options{}, "a", "2")
	b.keyed(recordbatch.Options{}, "a", "3")
	b.seal()
	b.log.SetStartOffset(1)
	l := limits()
	l.DirtyRatio, l.MaxLag = 1, time.Hour
	b.now = b.now.Add(59 * time.Minute)
	require.Empty(t, b.compact(l).Due, "what was too old was deleted")
	b.now = b.now.Add(time.Minute + time.Millisecond)
	require.Equal(t, DueLag, b.compact(l).Due)
	require.Equal(t, []string{"2 a=3"}, values(recordsOf(t, b.batches(1))))
}
