package locallog

import (
	"context"
	"fmt"
	"io"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

const testDir = "/logs/topic-0"

// startTime is what the tests' clock and records start at.
var startTime = time.UnixMilli(1_700_000_000_000)

// config is a log with small segments on a file system of the test's own.
func config(fs disk.FS) Config {
	return Config{
		FS: fs, Dir: testDir, Partition: "topic-0", LogStart: cluster.NoOffset,
		Settings: Settings{SegmentBytes: 2048, IndexBytes: 1 << 20, IndexIntervalBytes: 200, FileDeleteDelay: time.Minute},
		Now:      func() time.Time { return startTime },
	}
}

func openLog(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(false)) })
	return l
}

// batchOf makes a batch of that many records at base; each record's timestamp is
// its offset in ms after startTime, its value names its offset.
func batchOf(base cluster.Offset, records int, o recordbatch.Options) recordbatch.Batch {
	o.BaseOffset = base
	b := recordbatch.NewBuilder(o)
	for i := range records {
		at := int64(base) + int64(i)
		b.Add(startTime.UnixMilli()+at, nil, fmt.Appendf(nil, "value of record %06d", at))
	}
	return b.Build()
}

func appendBatch(t testing.TB, l *Log, records int) recordbatch.Batch {
	t.Helper()
	latest, _ := l.LatestEpoch()
	b := batchOf(l.EndOffset(), records, recordbatch.Options{LeaderEpoch: latest.Epoch})
	info, err := l.Append(b)
	require.NoError(t, err)
	require.Equal(t, b.BaseOffset(), info.First)
	require.Equal(t, b.LastOffset(), info.Last)
	return b
}

// fill appends batches of 1 to 5 records up to an offset at or above end.
func fill(t testing.TB, l *Log, end cluster.Offset) (batches []recordbatch.Batch) {
	t.Helper()
	for i := 0; l.EndOffset() < end; i++ {
		batches = append(batches, appendBatch(t, l, 1+i%5))
	}
	return batches
}

// contents reads a slice's batches and releases it.
func contents(t testing.TB, s Slice) []recordbatch.Batch {
	t.Helper()
	var out []recordbatch.Batch
	var bytes int64
	for _, r := range s.Regions {
		p := make([]byte, r.Bytes)
		_, err := r.ReadAt(p, 0)
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
		}
		for len(p) > 0 {
			var b recordbatch.Batch
			b, p, err = recordbatch.First(p)
			require.NoError(t, err)
			require.NoError(t, b.Verify())
			out = append(out, b)
		}
		bytes += r.Bytes
	}
	require.Equal(t, bytes, s.Bytes)
	s.Release()
	return out
}

func readAll(t testing.TB, l *Log, from cluster.Offset, maxBytes int) []recordbatch.Batch {
	t.Helper()
	var out []recordbatch.Batch
	for from < l.EndOffset() {
		s, err := l.Read(from, l.EndOffset(), maxBytes, true)
		require.NoError(t, err)
		require.Greater(t, s.NextOffset, from, "a read makes progress")
		next := s.NextOffset
		got := contents(t, s)
		require.NotEmpty(t, got)
		require.Greater(t, got[0].NextOffset(), from, "L4")
		require.GreaterOrEqual(t, next, got[len(got)-1].NextOffset())
		out = append(out, got...)
		from = next
	}
	return out
}

func requireBatches(t testing.TB, want, got []recordbatch.Batch) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for i := range want {
		require.Equal(t, []byte(want[i]), []byte(got[i]), "batch %d", i)
	}
}

func TestAppendAndReadAcrossSegments(t *testing.T) {
	l := openLog(t, config(disk.NewCrash(1)))
	want := fill(t, l, 300)
	require.Greater(t, len(l.Segments()), 3)
	for _, maxBytes := range []int{1, 100, 500, 2000, 5000, 1 << 20} {
		requireBatches(t, want, readAll(t, l, 0, maxBytes))
	}
	s, err := l.Read(0, l.EndOffset(), 1<<20, false)
	require.NoError(t, err)
	require.Equal(t, len(l.Segments()), len(s.Regions), "one read spans segments")
	s.Release()

	var next cluster.Offset
	var bytes int64
	for i, info := range l.Segments() {
		require.Equal(t, next, info.Base)
		require.Equal(t, i < len(l.Segments())-1, info.Sealed)
		require.LessOrEqual(t, info.Bytes, int64(2048))
		require.Equal(t, startTime.UnixMilli()+int64(info.Next)-1, info.MaxTimestamp)
		next, bytes = info.Next, bytes+info.Bytes
	}
	require.Equal(t, l.EndOffset(), next)
	require.Equal(t, bytes, l.Bytes())
}

func TestReadBounds(t *testing.T) {
	l := openLog(t, config(disk.NewCrash(1)))
	want := fill(t, l, 100)
	end := l.EndOffset()
	for from := cluster.Offset(0); from <= end; from++ {
		for _, bound := range []cluster.Offset{0, 1, 17, 50, 63, end - 1, end} {
			for _, maxBytes := range []int{0, 90, 400, 3000} {
				for _, minOne := range []bool{true, false} {
					s, err := l.Read(from, bound, maxBytes, minOne)
					require.NoError(t, err)
					next := s.NextOffset
					got := contents(t, s)
					expect := expected(want, from, bound, maxBytes, minOne)
					requireBatches(t, expect, got)
					if len(got) == 0 {
						require.Equal(t, from, next)
					} else {
						require.Equal(t, got[len(got)-1].NextOffset(), next)
					}
				}
			}
		}
	}
	for _, from := range []cluster.Offset{-1, end + 1} {
		_, err := l.Read(from, end, 100, true)
		require.ErrorIs(t, err, ErrOffsetOutOfRange)
	}
}

// expected is Read by a walk over all batches.
func expected(all []recordbatch.Batch, from, bound cluster.Offset, maxBytes int, minOne bool) []recordbatch.Batch {
	var out []recordbatch.Batch
	for _, b := range all {
		if from >= bound || b.NextOffset() > bound {
			break
		}
		if b.NextOffset() <= from {
			continue
		}
		if len(b) > maxBytes && !(minOne && len(out) == 0) {
			break
		}
		out = append(out, b)
		maxBytes -= len(b)
	}
	return out
}

func TestBadAppendsChangeNothing(t *testing.T) {
	l := openLog(t, config(disk.NewCrash(1)))
	want := fill(t, l, 10)
	end := l.EndOffset()
	good := batchOf(end, 2, recordbatch.Options{})
	for name, p := range map[string][]byte{
		"nothing":     {},
		"below end":   batchOf(end-1, 1, recordbatch.Options{}),
		"torn":        good[:len(good)-1],
		"tail":        append(append([]byte{}, good...), 1, 2, 3),
		"overlapping": append(append([]byte{}, good...), good...),
	} {
		_, err := l.Append(p)
		require.ErrorIs(t, err, ErrBadAppend, name)
	}
	require.Equal(t, end, l.EndOffset())
	requireBatches(t, want, readAll(t, l, 0, 1000))

	l.AssignEpoch(7)
	_, err := l.Append(batchOf(end, 1, recordbatch.Options{LeaderEpoch: 6}))
	require.ErrorIs(t, err, ErrBadAppend)
}

func TestGapsInOffsetsAreRead(t *testing.T) {
	l := openLog(t, config(disk.NewCrash(1)))
	var want []recordbatch.Batch
	for _, base := range []cluster.Offset{5, 6, 40, 1000, 5000, 1 << 40, 1<<40 + 7} {
		b := batchOf(base, 3, recordbatch.Options{})
		if base < l.EndOffset() {
			continue
		}
		_, err := l.Append(b)
		require.NoError(t, err)
		want = append(want, b)
	}
	requireBatches(t, want, readAll(t, l, 0, 1))
	s, err := l.Read(41, l.EndOffset(), 1, true)
	require.NoError(t, err)
	requireBatches(t, want[1:2], contents(t, s))
	s, err = l.Read(2000, l.EndOffset(), 1, true)
	require.NoError(t, err)
	requireBatches(t, want[3:4], contents(t, s))
	require.Equal(t, cluster.Offset(1<<40), l.ActiveBase(), "a relative offset has 31 bits")
}

func TestCleanReopenScansNothing(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	cfg.Settings.SegmentBytes = 64 << 10
	cfg.Settings.IndexIntervalBytes = 4096
	l := openLog(t, cfg)
	want := fill(t, l, 5000)
	require.NoError(t, l.Close(true))

	counted := &countReads{FS: fs}
	cfg.FS, cfg.CleanStop, cfg.RecoveryPoint = counted, true, 0
	l = openLog(t, cfg)
	segments := int64(len(l.Segments()))
	require.Greater(t, segments, int64(2))
	require.Less(t, counted.logBytes, segments*(4096+1000)+200, "L6: at most one index interval of headers of each")
	require.Equal(t, want[len(want)-1].NextOffset(), l.EndOffset())
	require.Equal(t, l.EndOffset(), l.FlushedOffset())
	requireBatches(t, want, readAll(t, l, 0, 10_000))
	require.Equal(t, l.EndOffset(), l.Producers().MapEnd())
	appendBatch(t, l, 3)
}

// countReads counts the bytes read from .log files.
type countReads struct {
	disk.FS
	logBytes int64
}

type countedFile struct {
	disk.File
	c *countReads
}

func (c *countReads) Open(name string) (disk.File, error) { return c.wrap(c.FS.Open(name)) }

func (c *countReads) OpenReadOnly(name string) (disk.File, error) {
	return c.wrap(c.FS.OpenReadOnly(name))
}

func (c *countReads) wrap(f disk.File, err error) (disk.File, error) {
	if err == nil && path.Ext(f.Name()) == segment.LogSuffix {
		f = countedFile{f, c}
	}
	return f, err
}

func (f countedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.c.logBytes += int64(n)
	return n, err
}

func TestOnlySegmentsPastTheRecoveryPointAreScanned(t *testing.T) {
	fs := disk.NewCrash(1)
	l := openLog(t, config(fs))
	want := fill(t, l, 300)
	require.NoError(t, l.Flush(context.Background()))
	infos := l.Segments()
	cfg := config(&countReads{FS: fs.Kill()})
	cfg.RecoveryPoint = infos[len(infos)-2].Base + 1
	l = openLog(t, cfg)
	scanned := infos[len(infos)-1].Bytes + infos[len(infos)-2].Bytes
	counted := cfg.FS.(*countReads).logBytes
	require.GreaterOrEqual(t, counted, scanned)
	require.Less(t, counted, scanned+2048, "no other segment, but for a few headers")
	requireBatches(t, want, readAll(t, l, 0, 1000))
}

func TestUncleanReopenKeepsEverythingAfterAKill(t *testing.T) {
	fs := disk.NewCrash(1)
	l := openLog(t, config(fs))
	want := fill(t, l, 300)
	before := l.Segments()
	l = openLog(t, config(fs.Kill()))
	requireBatches(t, want, readAll(t, l, 0, 1000))
	after := l.Segments()
	require.Equal(t, len(before), len(after))
	for i := range before {
		require.Equal(t, before[i].Bytes, after[i].Bytes)
		require.Equal(t, before[i].MaxTimestamp, after[i].MaxTimestamp)
	}
	require.Less(t, l.FlushedOffset(), l.EndOffset(), "what was appended last is durable with the next sync")
	require.NoError(t, l.Flush(context.Background()))
	require.Equal(t, l.EndOffset(), l.FlushedOffset())
}

func TestRollBySizeAgeAndIndex(t *testing.T) {
	cfg := config(disk.NewCrash(1))
	now := startTime
	cfg.Now = func() time.Time { return now }
	cfg.Settings.SegmentBytes, cfg.Settings.SegmentAge = 1<<20, time.Hour
	l := openLog(t, cfg)
	appendAt := func(ms int64) AppendInfo {
		b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: l.EndOffset()})
		b.Add(ms, nil, []byte("v"))
		info, err := l.Append(b.Build())
		require.NoError(t, err)
		return info
	}
	hour := time.Hour.Milliseconds()
	require.False(t, appendAt(1000).Rolled)
	require.False(t, appendAt(1000+hour).Rolled)
	require.True(t, appendAt(1001+hour).Rolled, "by the batches' timestamps, as Kafka does")
	require.False(t, appendAt(0).Rolled, "an old timestamp rolls nothing")

	rolled, err := l.RollIfDue(now.Add(time.Hour))
	require.NoError(t, err)
	require.False(t, rolled)
	now = now.Add(time.Hour + time.Millisecond)
	rolled, err = l.RollIfDue(now)
	require.NoError(t, err)
	require.True(t, rolled, "an idle segment rolls by the clock")
	rolled, err = l.RollIfDue(now.Add(100 * time.Hour))
	require.NoError(t, err)
	require.False(t, rolled, "an empty one does not")
	rolled, err = l.Roll()
	require.NoError(t, err)
	require.False(t, rolled)

	s := *l.settings.Load()
	s.SegmentAge, s.IndexBytes, s.IndexIntervalBytes = 0, 5*segment.TimeEntryBytes, 1
	l.SetSettings(s)
	base := l.ActiveBase()
	for range 10 {
		appendAt(int64(l.EndOffset()))
	}
	require.Greater(t, l.ActiveBase(), base, "a full index rolls")
	for _, info := range l.Segments() {
		v, err := l.Sealed(info.Base)
		if !info.Sealed {
			require.ErrorIs(t, err, ErrNoSegment)
			continue
		}
		require.NoError(t, err)
		require.LessOrEqual(t, len(v.TimeIndex), 5)
		v.Release()
	}
}

func TestTrim(t *testing.T) {
	fs := disk.NewCrash(1)
	l := openLog(t, config(fs))
	want := fill(t, l, 300)
	infos := l.Segments()
	held, err := l.Read(0, l.EndOffset(), 1000, true)
	require.NoError(t, err)
	view, err := l.Sealed(0)
	require.NoError(t, err)

	n, bytes, err := l.DeleteSealedBelow(infos[2].Base + 1)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, infos[0].Bytes+infos[1].Bytes, bytes)
	require.Equal(t, infos[2].Base, l.LocalStartOffset())
	require.Equal(t, infos[2].Base, l.StartOffset())
	n, _, err = l.DeleteSealedBelow(infos[2].Base + 1)
	require.NoError(t, err)
	require.Zero(t, n, "a second pass finds nothing (RT-07)")
	_, err = l.Read(0, l.EndOffset(), 1000, true)
	require.ErrorIs(t, err, ErrOffsetOutOfRange)

	// L5: what was given out is still there, also without its name.
	next, err := l.RunDeferred(startTime)
	require.NoError(t, err)
	require.Equal(t, startTime.Add(time.Minute), next)
	next, err = l.RunDeferred(startTime.Add(time.Minute))
	require.NoError(t, err)
	require.Zero(t, next)
	names, err := fs.List(testDir)
	require.NoError(t, err)
	for _, name := range names {
		require.NotContains(t, name, segment.DeletedSuffix)
	}
	require.Equal(t, []byte(want[0]), []byte(contents(t, held)[0]))
	p := make([]byte, view.Bytes)
	_, err = view.Handle.File().ReadAt(p, 0)
	require.NoError(t, err)
	view.Release()
	view.Release()

	// The active segment stays, whatever is asked.
	n, _, err = l.DeleteSealedBelow(l.EndOffset() + 100)
	require.NoError(t, err)
	require.Equal(t, len(infos)-3, n)
	require.Equal(t, l.ActiveBase(), l.LocalStartOffset())
	require.NoError(t, l.Flush(context.Background()))
}

func TestTrimUnderARemoteTierKeepsTheLogStart(t *testing.T) {
	cfg := config(disk.NewCrash(1))
	cfg.RemoteBelow, cfg.LogStart = true, 0
	l := openLog(t, cfg)
	l.AssignEpoch(3)
	for l.EndOffset() < 200 {
		_, err := l.Append(batchOf(l.EndOffset(), 4, recordbatch.Options{LeaderEpoch: 3}))
		require.NoError(t, err)
	}
	base := l.Segments()[2].Base
	_, _, err := l.DeleteSealedBelow(base)
	require.NoError(t, err)
	require.Equal(t, cluster.Offset(0), l.StartOffset())
	require.Equal(t, base, l.LocalStartOffset())
	_, err = l.Read(0, l.EndOffset(), 1000, true)
	require.ErrorIs(t, err, ErrNotLocal)
	e, ok := l.EpochAt(0)
	require.True(t, ok, "epochs are trimmed by the log start, not by the local one")
	require.Equal(t, cluster.LeaderEpoch(3), e)
	l.SetStartOffset(10)
	_, err = l.Read(5, l.EndOffset(), 1000, true)
	require.ErrorIs(t, err, ErrOffsetOutOfRange)
	require.NoError(t, l.Close(true))

	cfg.CleanStop, cfg.LogStart = true, 10
	l = openLog(t, cfg)
	require.Equal(t, cluster.Offset(10), l.StartOffset())
	require.Equal(t, base, l.LocalStartOffset())
	require.Equal(t, cluster.Offset(10), l.Epochs().Entries()[0].Start)
}

func TestProducerStateAndSnapshots(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	l := openLog(t, cfg)
	sequence := int32(0)
	for l.EndOffset() < 200 {
		b := batchOf(l.EndOffset(), 3, recordbatch.Options{Producer: &recordbatch.Producer{ID: 9, Epoch: 1, BaseSequence: sequence}})
		sequence += 3
		_, err := l.Append(b)
		require.NoError(t, err)
	}
	want := l.Producers().Entries()
	require.Equal(t, sequence-1, want[0].LastSequence)
	infos := l.Segments()
	view, err := l.Sealed(infos[1].Base)
	require.NoError(t, err)
	m := producerstate.New(producerstate.Config{})
	require.NoError(t, m.Load(view.ProducerSnapshot, infos[2].Base, startTime))
	require.Equal(t, infos[2].Base-1, m.Entries()[0].LastOffset)
	view.Release()

	killed := cfg
	killed.FS = fs.Kill()
	again := openLog(t, killed)
	require.Equal(t, want, again.Producers().Entries())

	// Without any snapshot it comes from the log.
	require.NoError(t, l.Flush(context.Background()))
	for _, o := range l.snapshotOffsets() {
		require.NoError(t, fs.Remove(l.snapshotName(o)))
	}
	view, err = l.Sealed(infos[1].Base)
	require.NoError(t, err)
	require.NoError(t, m.Load(view.ProducerSnapshot, infos[2].Base, startTime))
	require.Equal(t, infos[2].Base-1, m.Entries()[0].LastOffset)
	view.Release()
	require.NoError(t, l.Close(true))
	cfg.CleanStop = true
	l = openLog(t, cfg)
	require.Equal(t, want, l.Producers().Entries())
	require.Equal(t, []cluster.Offset{l.EndOffset()}, l.snapshotOffsets())
}

// someTransactions writes transactions of three producers through several segments,
// of which two abort.
func someTransactions(t *testing.T, l *Log) {
	t.Helper()
	write := func(id cluster.ProducerID) {
		_, err := l.Append(batchOf(l.EndOffset(), 2, recordbatch.Options{Transactional: true, Producer: &recordbatch.Producer{ID: id}}))
		require.NoError(t, err)
	}
	end := func(id cluster.ProducerID, typ recordbatch.ControlType) {
		o := recordbatch.Options{BaseOffset: l.EndOffset(), Producer: &recordbatch.Producer{ID: id}}
		_, err := l.Append(recordbatch.NewMarkerBatch(o, startTime.UnixMilli(), recordbatch.Marker{Type: typ}))
		require.NoError(t, err)
	}
	for range 10 {
		write(1)
		write(2)
		fill(t, l, l.EndOffset()+20)
		end(1, recordbatch.ControlAbort)
		write(3)
		end(2, recordbatch.ControlCommit)
		end(3, recordbatch.ControlAbort)
	}
}

func TestAbortedTransactions(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	l := openLog(t, cfg)
	someTransactions(t, l)
	all, err := l.AbortedTxns(0, l.EndOffset())
	require.NoError(t, err)
	require.Len(t, all, 20)
	check := func(l *Log) {
		for from := cluster.Offset(0); from < l.EndOffset(); from += 7 {
			for to := from; to <= l.EndOffset(); to += 13 {
				got, err := l.AbortedTxns(from, to)
				require.NoError(t, err)
				var want []producerstate.AbortedTxn
				for _, a := range all {
					if a.Last >= from && a.First < to {
						want = append(want, a)
					}
				}
				require.Equal(t, want, got)
			}
		}
	}
	check(l)
	require.Greater(t, len(l.Segments()), 2)
	killed := cfg
	killed.FS = fs.Kill()
	check(openLog(t, killed))
	require.NoError(t, l.Close(true))
	cfg.CleanStop = true
	l = openLog(t, cfg)
	check(l)

	cut := all[10].Last
	require.NoError(t, l.TruncateTo(cut))
	got, err := l.AbortedTxns(0, 1<<40)
	require.NoError(t, err)
	require.Equal(t, all[:10], got)
	require.True(t, l.Producers().HasOpenTxn(all[10].ProducerID))
}
