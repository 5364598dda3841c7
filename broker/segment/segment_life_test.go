package segment

import (
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// TestFitsWhatItsIndexesCanSay: positions and relative offsets have 31 bits.
func TestFitsWhatItsIndexesCanSay(t *testing.T) {
	const base = 1000
	s, err := Create(testWhere(t), base, time.UnixMilli(1))
	require.NoError(t, err)
	s.mu.bytes = 70
	for _, c := range []struct {
		bytes int
		last  cluster.Offset
		want  bool
	}{
		{1, base, true},
		{math.MaxInt32 - 70, base + math.MaxInt32, true},
		{math.MaxInt32 - 69, base, false},
		{1, base + math.MaxInt32 + 1, false},
		{1 << 40, base + 1<<40, false},
	} {
		require.Equal(t, c.want, s.Fits(c.bytes, c.last), "%+v", c)
	}
}

// TestIndexFullCountsTheLastTime: an index is full before the entry that would not
// fit, and the time index keeps room for the one at sealing.
func TestIndexFullCountsTheLastTime(t *testing.T) {
	s := even(t, testWhere(t), 0, 11)
	require.Equal(t, 10, s.mu.indexCount)
	require.Equal(t, 10, s.mu.timeCount)
	require.False(t, s.IndexFull(12*TimeEntryBytes))
	require.True(t, s.IndexFull(12*TimeEntryBytes-1))
	// With timestamps that stand still it is the offset index that fills.
	s.mu.timeCount = 1
	require.False(t, s.IndexFull(11*OffsetEntryBytes))
	require.True(t, s.IndexFull(11*OffsetEntryBytes-1))
	s.mu.timeCount = 0
	s.mu.indexCount = 0
	require.False(t, s.IndexFull(2*TimeEntryBytes))
	require.True(t, s.IndexFull(2*TimeEntryBytes-1))
}

// TestIndexesAreWrittenByTheHundreds: an index is written when much of it is in
// memory only, and then no more than that.
func TestIndexesAreWrittenByTheHundreds(t *testing.T) {
	w := testWhere(t)
	size := func(name string) int64 {
		info, err := w.FS.Stat(name)
		require.NoError(t, err)
		return info.Bytes
	}
	s, err := Create(w, 0, time.UnixMilli(1))
	require.NoError(t, err)
	write := func(i, interval int) {
		b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: cluster.Offset(i)})
		b.Add(int64(1000+i), nil, []byte("v"))
		p := b.Build()
		require.NoError(t, s.Write(p))
		s.Commit(p, interval, time.UnixMilli(2), 0)
		require.NoError(t, s.WriteIndexes(false))
	}
	const timesAtOnce = (indexWriteBytes + TimeEntryBytes - 1) / TimeEntryBytes
	wantIndex, wantTimes := 0, 0
	for i := range 1300 {
		write(i, 0)
		if i-wantIndex >= 512 {
			wantIndex = i
		}
		if i-wantTimes >= timesAtOnce {
			wantTimes = i
		}
		require.EqualValues(t, wantIndex*OffsetEntryBytes, size(s.indexName), "after %d", i)
		require.EqualValues(t, wantTimes*TimeEntryBytes, size(s.timeName), "after %d", i)
	}
	require.Positive(t, wantIndex)
	write(1300, 1<<30)
	s.AddAborted(producerstate.AbortedTxn{ProducerID: 1, First: 1, Last: 2, LastStableOffset: 3})
	require.NoError(t, s.WriteIndexes(false))
	_, err = w.FS.Stat(s.txnName)
	require.Error(t, err, "it can wait")
	require.NoError(t, s.WriteIndexes(true))
	require.EqualValues(t, 1299*OffsetEntryBytes, size(s.indexName))
	require.EqualValues(t, 1299*TimeEntryBytes, size(s.timeName))
	require.EqualValues(t, TxnEntryBytes, size(s.txnName))
	s.AddAborted(producerstate.AbortedTxn{ProducerID: 1, First: 1, Last: 4, LastStableOffset: 5})
	require.Equal(t, 2, s.Info().AbortedCount)
	before, err := s.TimeIndex()
	require.NoError(t, err)
	require.NoError(t, s.Finish())
	require.EqualValues(t, 1300*TimeEntryBytes, size(s.timeName), "with the greatest of all (S3)")
	after, err := s.TimeIndex()
	require.NoError(t, err)
	require.Equal(t, append(before, TimeEntry{2300, 1300}), after)
	require.NoError(t, s.Finish())
	require.EqualValues(t, 1300*TimeEntryBytes, size(s.timeName), "once")
	require.EqualValues(t, 2*TxnEntryBytes, size(s.txnName))
	require.NoError(t, s.Seal(1301))
	txns, err := s.Aborted()
	require.NoError(t, err)
	require.Len(t, txns, 2)
	require.Empty(t, s.mu.index)
	require.Empty(t, s.mu.timeIndex)
	require.Empty(t, s.mu.txns, "in memory no more")
}

// TestEntriesAfterTheInterval: the first batch that starts more than the interval
// after the last entry's gets one, as in Kafka, and the first batch none.
func TestEntriesAfterTheInterval(t *testing.T) {
	for _, c := range []struct {
		interval int
		want     []OffsetEntry
	}{
		{0, []OffsetEntry{{1, 100}, {2, 200}, {3, 300}, {4, 400}, {5, 500}}},
		{99, []OffsetEntry{{1, 100}, {2, 200}, {3, 300}, {4, 400}, {5, 500}}},
		{100, []OffsetEntry{{2, 200}, {4, 400}}},
		{199, []OffsetEntry{{2, 200}, {4, 400}}},
		{200, []OffsetEntry{{3, 300}}},
		{600, nil},
	} {
		s, err := Create(testWhere(t), 0, time.UnixMilli(1))
		require.NoError(t, err)
		for i := range 6 {
			b := sized(t, cluster.Offset(i), 100, []int64{50, 70, 70, 60, 80, 75}[i])
			require.NoError(t, s.Write(b))
			s.Commit(b, c.interval, time.UnixMilli(2), 0)
		}
		index, err := s.OffsetIndex()
		require.NoError(t, err)
		require.Equal(t, append([]OffsetEntry{}, c.want...), index, "interval %d", c.interval)
		times, err := s.TimeIndex()
		require.NoError(t, err)
		switch c.interval {
		case 0:
			require.Equal(t, []TimeEntry{{70, 1}, {80, 4}}, times, "the first batch that has it")
		case 100:
			require.Equal(t, []TimeEntry{{70, 1}, {80, 4}}, times)
		case 200:
			require.Equal(t, []TimeEntry{{70, 1}}, times)
		}
		require.EqualValues(t, 50, s.Info().FirstTimestamp)
		require.EqualValues(t, 4, s.Info().OffsetOfMaxTimestamp)
	}
}

// TestIndexesBehindAreSyncedOnce: and a power loss takes nothing of them then.
func TestIndexesBehindAreSyncedOnce(t *testing.T) {
	for _, aborted := range []bool{false, true} {
		crash := disk.NewCrash(5)
		require.NoError(t, crash.MkdirAll(testDir))
		fs := disk.NewFault(crash, nil)
		w := Where{FS: fs, Dir: testDir, Handles: disk.NewHandleCache(fs, 8)}
		s, _ := write(t, w, 0, 40)
		if aborted {
			s.AddAborted(producerstate.AbortedTxn{ProducerID: 1, First: 1, Last: 2, LastStableOffset: 3})
		}
		calls := fs.Calls()
		require.NoError(t, s.SyncIndexes())
		require.Equal(t, calls, fs.Calls(), "there is nothing to sync")
		require.NoError(t, s.Seal(5000))
		next, err := s.SyncLog()
		require.NoError(t, err)
		require.EqualValues(t, 5000, next)
		require.NoError(t, s.SyncIndexes())
		calls = fs.Calls()
		require.NoError(t, s.SyncIndexes())
		require.Equal(t, calls, fs.Calls())
		require.NoError(t, crash.SyncDir("/"))
		require.NoError(t, crash.SyncDir(testDir))
		for seed := range 8 {
			after := crash.Clone(nil)
			again, err := OpenSealed(Where{FS: after, Dir: testDir, Handles: disk.NewHandleCache(after, 8)}, 0, 5000, testInterval)
			require.NoError(t, err, "power loss %d", seed)
			require.Equal(t, s.Info().AbortedCount, again.Info().AbortedCount)
			require.Equal(t, s.Bytes(), again.Bytes())
		}
	}
}

// TestCloseGivesUpEveryFile: those that the handle cache keeps, too; and a segment
// that was closed, or went away while a file was being opened, opens none again.
func TestCloseGivesUpEveryFile(t *testing.T) {
	w := testWhere(t)
	files := &openFiles{FS: w.FS}
	var during func()
	fault := disk.NewFault(files, func(op disk.Op) error {
		if during != nil && op.Kind == disk.OpOpenReadOnly {
			during()
		}
		return nil
	})
	w.FS, w.Handles = fault, disk.NewHandleCache(fault, 8)
	s := sealedAndSynced(t, w)
	look := func() error {
		_, err := s.Range(60, Limits{Bound: 90, MaxBytes: 800})
		return err
	}
	require.NoError(t, look())
	_, err := s.Aborted()
	require.NoError(t, err)
	require.Positive(t, files.open.Load())
	s.Close()
	require.Zero(t, files.open.Load())
	require.ErrorIs(t, look(), ErrRemoved)
	require.Zero(t, files.open.Load())

	s, err = OpenSealed(w, 0, 5000, testInterval)
	require.NoError(t, err)
	during = func() { s.closed.Store(true) }
	require.ErrorIs(t, look(), ErrRemoved)
	during = nil
	require.Zero(t, files.open.Load(), "closed while the file was opened")

	s, err = OpenSealed(w, 0, 5000, testInterval)
	require.NoError(t, err)
	require.NoError(t, look())
	s.Retire()
	require.True(t, s.Removed())
	require.Zero(t, files.open.Load())
	require.ErrorIs(t, look(), ErrRemoved)
}

// TestAFailureUnderAnAnswerIsTold: EIO that a response met while it was sent ends
// the next look into the segment; a file that ended early does not.
func TestAFailureUnderAnAnswerIsTold(t *testing.T) {
	w := testWhere(t)
	files := &openFiles{FS: w.FS}
	w.FS = files
	s, _ := write(t, w, 0, 5)
	h, err := s.Acquire()
	require.NoError(t, err)
	require.NoError(t, h.Failed())
	h.Release()
	h, err = s.Acquire()
	require.NoError(t, err)
	h.Fail(syscall.EIO)
	h.Release()
	_, err = s.Acquire()
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, s.logName)
	s.Close()
	require.Zero(t, files.open.Load())
}
