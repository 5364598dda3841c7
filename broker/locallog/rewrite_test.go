package locallog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// rewriteKeeping rewrites a run of segments with the batches that keep chooses.
func rewriteKeeping(l *Log, first, next cluster.Offset, removedBelow cluster.Offset, keep func(b recordbatch.Batch) bool) error {
	rw, err := l.BeginRewrite(first, next)
	if err != nil {
		return err
	}
	err = func() error {
		slice, err := l.Read(max(first, l.StartOffset()), next, 1<<30, true)
		if err != nil {
			return err
		}
		defer slice.Release()
		for _, r := range slice.Regions {
			p := make([]byte, r.Bytes)
			if _, err := r.ReadAt(p, 0); err != nil {
				return err
			}
			for len(p) > 0 {
				var b recordbatch.Batch
				if b, p, err = recordbatch.First(p); err != nil {
					return err
				}
				if keep(b) {
					if err := rw.Append(b); err != nil {
						return err
					}
				}
			}
		}
		return rw.Prepare(removedBelow)
	}()
	if err != nil {
		return errorsJoin(err, rw.Abort())
	}
	if err := rw.Publish(); err != nil {
		return err
	}
	return rw.Finish()
}

// errorsJoin keeps the first error's identity where the second is nil.
func errorsJoin(err, other error) error {
	if other == nil {
		return err
	}
	return fmt.Errorf("%w, and %w", err, other)
}

// run picks a run of flushed sealed segments.
func (w *twin) run(l *Log, rng *rand.Rand) (first, next cluster.Offset, ok bool) {
	var sealed []SegmentInfo
	for _, s := range l.Segments() {
		if s.Sealed && s.Next <= l.FlushedOffset() {
			sealed = append(sealed, s)
		}
	}
	if len(sealed) == 0 {
		return 0, 0, false
	}
	i := rng.IntN(len(sealed))
	j := min(len(sealed)-1, i+rng.IntN(3))
	return sealed[i].Base, sealed[j].Next, true
}

// rewrite drops half of a run's batches.
func (w *twin) rewrite(l *Log, rng *rand.Rand) error {
	first, next, ok := w.run(l, rng)
	if !ok {
		return nil
	}
	drop := map[cluster.Offset]bool{}
	for _, b := range w.batches {
		drop[b.BaseOffset()] = b.BaseOffset() >= first && b.BaseOffset() < next && rng.IntN(2) == 0
	}
	err := rewriteKeeping(l, first, next, 0, func(b recordbatch.Batch) bool { return !drop[b.BaseOffset()] })
	if errors.Is(err, ErrOvertaken) {
		return nil // sealed since the last sync
	}
	if err != nil {
		return err
	}
	w.batches = slices.DeleteFunc(w.batches, func(b recordbatch.Batch) bool { return drop[b.BaseOffset()] })
	return nil
}

// segmented is a log of several sealed segments, all flushed.
func segmented(t testing.TB, fs disk.FS) (Config, *Log, []recordbatch.Batch) {
	t.Helper()
	cfg := config(fs)
	l, err := Open(cfg)
	require.NoError(t, err)
	l.AssignEpoch(1)
	batches := fill(t, l, 200)
	require.NoError(t, l.Flush(context.Background()))
	require.Greater(t, len(l.Segments()), 4)
	return cfg, l, batches
}

// TestRewriteOfSegments joins three segments into one, under which a reader goes
// on, and which is there after a restart of any kind.
func TestRewriteOfSegments(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg, l, batches := segmented(t, fs)
	cfg.Settings.SegmentBytes *= 3
	l.SetSettings(cfg.Settings)
	segments := l.Segments()
	first, next := segments[1].Base, segments[3].Next
	before, err := l.Read(first, next, 1<<20, true)
	require.NoError(t, err)
	keep := func(b recordbatch.Batch) bool {
		return b.BaseOffset() < first || b.BaseOffset() >= next || b.BaseOffset()%3 == 0
	}
	require.NoError(t, rewriteKeeping(l, first, next, 77, keep))
	var want, old []recordbatch.Batch
	for _, b := range batches {
		if keep(b) {
			want = append(want, b)
		}
		if b.BaseOffset() >= first && b.BaseOffset() < next {
			old = append(old, b)
		}
	}
	requireBatches(t, old, contents(t, before))
	check := func(l *Log) {
		requireBatches(t, want, readAll(t, l, 0, 700))
		require.Len(t, l.Segments(), len(segments)-2)
		require.Equal(t, cluster.Offset(77), l.CompactedTombstonesBelow())
		require.True(t, l.Compacted())
		for o := cluster.Offset(0); o < l.EndOffset(); o++ { // L4, from every offset
			s, err := l.Read(o, l.EndOffset(), 1, true)
			require.NoError(t, err)
			got := contents(t, s)
			require.Greater(t, got[0].NextOffset(), o)
		}
		sealed := l.Segments()[1]
		require.Equal(t, first, sealed.Base)
		require.Equal(t, next, sealed.Next)
		v, err := l.Sealed(first)
		require.NoError(t, err)
		require.NotEmpty(t, v.OffsetIndex)
		require.Equal(t, sealed.MaxTimestamp, v.TimeIndex[len(v.TimeIndex)-1].Timestamp)
		v.Release()
	}
	check(l)
	killed := fs.Kill()
	require.NoError(t, l.Close(true))
	cfg.CleanStop = true
	check(openLog(t, cfg))
	cfg.CleanStop, cfg.FS = false, killed
	check(openLog(t, cfg))
	// What was rewritten was durable: nothing of it is scanned, whatever was persisted.
	cfg.FS = killed.Clone(rand.New(rand.NewPCG(1, 1)))
	again := openLog(t, cfg)
	require.Equal(t, want[:5], readAll(t, again, 0, 700)[:5])
	require.GreaterOrEqual(t, again.EndOffset(), next)
	_, err = again.RunDeferred(startTime.Add(time.Hour))
	require.NoError(t, err)
}

// TestRewriteIsAllOrNothing loses power, and stops, after each of a rewrite's
// calls on the disk: then all of it is there, or nothing.
func TestRewriteIsAllOrNothing(t *testing.T) {
	for _, outs := range []int{1, 2} {
		t.Run(fmt.Sprint(outs), func(t *testing.T) { allOrNothing(t, outs) })
	}
}

// allOrNothing rewrites three segments, which become that many.
func allOrNothing(t *testing.T, outs int) {
	undone, done := 0, 0
	for i := int64(0); ; i++ {
		crash := disk.NewCrash(uint64(i))
		fs := disk.NewFault(crash, nil)
		cfg, l, batches := segmented(t, fs)
		segments := l.Segments()
		first, next := segments[0].Base, segments[2].Next
		crash.SyncAll()
		hit := false
		calls := int64(0)
		fs.SetInjector(func(op disk.Op) error {
			if !op.Kind.Mutates() {
				return nil
			}
			if calls++; calls <= i {
				return nil
			}
			hit = true
			return fmt.Errorf("%s of %s: %w", op.Kind, op.Name, syscall.EIO)
		})
		keep := func(b recordbatch.Batch) bool {
			if outs > 1 {
				// Some of each, so that none of the new ones but the first begins where an old one does.
				return b.BaseOffset() >= next || b.BaseOffset()%3 != 1
			}
			return b.BaseOffset() >= next || b.BaseOffset() >= segments[1].Base && b.BaseOffset() < segments[1].Base+9
		}
		err := rewriteKeeping(l, first, next, 5, keep)
		if !hit {
			require.NoError(t, err)
			require.Len(t, l.Segments(), len(segments)-3+outs)
		}
		var after []recordbatch.Batch
		for _, b := range batches {
			if keep(b) {
				after = append(after, b)
			}
		}
		for seed := range uint64(24) {
			found := crash.Kill()
			if seed > 0 {
				found = crash.Clone(rand.New(rand.NewPCG(seed, uint64(i))))
			}
			cfg.FS, cfg.RecoveryPoint = found, cluster.Offset(seed%2)*l.FlushedOffset()
			again, err := Open(cfg)
			require.NoError(t, err, "call %d", i)
			got := readAll(t, again, again.StartOffset(), 900)
			if len(got) == len(batches) {
				requireBatches(t, batches, got)
				undone++
			} else {
				requireBatches(t, after, got)
				require.Equal(t, cluster.Offset(5), again.CompactedTombstonesBelow())
				done++
			}
			names, err := found.List(testDir)
			require.NoError(t, err)
			for _, name := range names {
				require.False(t, isLeftover(name) || strings.Contains(name, replacedSuffix), "%s is left after call %d", name, i)
			}
			require.NoError(t, again.producersMatch())
			fill(t, again, again.EndOffset()+20)
			require.NoError(t, again.Close(true))
		}
		_ = l.Close(false)
		if !hit {
			break
		}
	}
	require.Greater(t, undone, 50)
	require.Greater(t, done, 20)
}

// TestErrorAtEveryCallOfARewrite makes one call fail: the log goes on as it was,
// or it is offline and opens again as before or after.
func TestErrorAtEveryCallOfARewrite(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EMFILE, syscall.EIO} {
		gone := 0
		for i := int64(0); ; i++ {
			fs := disk.NewFault(disk.NewCrash(uint64(i)), nil)
			cfg, l, batches := segmented(t, fs)
			segments := l.Segments()
			hit := false
			calls := int64(0)
			fs.SetInjector(func(op disk.Op) error {
				if calls++; calls-1 != i {
					return nil
				}
				hit = true
				return fmt.Errorf("%s of %s: %w", op.Kind, op.Name, cause)
			})
			next := segments[2].Next
			keep := func(b recordbatch.Batch) bool { return b.BaseOffset() >= next || b.BaseOffset()%2 == 0 }
			err := rewriteKeeping(l, segments[1].Base, next, 5, keep)
			fs.SetInjector(nil)
			if !hit {
				require.NoError(t, err)
				require.NoError(t, l.Close(true))
				break
			}
			if l.Err() != nil {
				gone++
				require.NoError(t, errorsJoin(nil, l.Close(false)))
				if l, err = Open(cfg); err != nil {
					require.NoError(t, err)
				}
			} else if err != nil {
				require.True(t, strings.Contains(err.Error(), cause.Error()), "%v", err)
				requireBatches(t, batches, readAll(t, l, 0, 900))
				require.NoError(t, rewriteKeeping(l, segments[1].Base, next, 5, keep), "another try works")
			}
			got := readAll(t, l, 0, 900)
			require.LessOrEqual(t, len(got), len(batches))
			fill(t, l, l.EndOffset()+10)
			require.NoError(t, l.Close(true))
		}
		require.Less(t, gone, 40)
	}
}

// TestRewriteOvertaken: what is trimmed or truncated under a rewrite ends it.
func TestRewriteOvertaken(t *testing.T) {
	for _, change := range []func(l *Log, at cluster.Offset) error{
		func(l *Log, at cluster.Offset) error { _, _, err := l.DeleteSealedBelow(l.ActiveBase()); return err },
		func(l *Log, at cluster.Offset) error { return l.TruncateTo(at + 3) },
		func(l *Log, at cluster.Offset) error { return l.Reset(at, nil, nil) },
	} {
		_, l, _ := segmented(t, disk.NewCrash(1))
		s := l.Segments()[0]
		rw, err := l.BeginRewrite(s.Base, s.Next)
		require.NoError(t, err)
		require.NoError(t, change(l, s.Base))
		require.ErrorIs(t, rw.Prepare(0), ErrOvertaken)
		require.NoError(t, rw.Abort())
		require.NoError(t, l.Close(true))
	}
	_, l, _ := segmented(t, disk.NewCrash(1))
	for _, bounds := range [][2]cluster.Offset{{1, 20}, {0, 3}, {l.ActiveBase(), l.EndOffset()}} {
		_, err := l.BeginRewrite(bounds[0], bounds[1])
		require.ErrorIs(t, err, ErrOvertaken)
	}
	require.NoError(t, l.Close(false))
}

// TestRewriteTakesWhatIsInOrder: no batch out of order, below the run or past it.
func TestRewriteTakesWhatIsInOrder(t *testing.T) {
	_, l, batches := segmented(t, disk.NewCrash(1))
	s := l.Segments()[1]
	rw, err := l.BeginRewrite(s.Base, s.Next)
	require.NoError(t, err)
	var of []recordbatch.Batch
	for _, b := range batches {
		if b.BaseOffset() >= s.Base && b.BaseOffset() < s.Next {
			of = append(of, b)
		}
	}
	require.ErrorIs(t, rw.Append(batches[0]), ErrBadAppend)
	require.NoError(t, rw.Append(of[1]))
	for _, b := range []recordbatch.Batch{of[0], of[1], batches[len(batches)-1]} {
		require.ErrorIs(t, rw.Append(b), ErrBadAppend)
	}
	require.ErrorIs(t, rw.Append(append(slices.Clone(of[3]), of[2]...)), ErrBadAppend)
	require.NoError(t, rw.Append(of[2]))
	require.NoError(t, rw.SyncSome())
	require.NoError(t, rw.Abort())
	requireBatches(t, batches, readAll(t, l, 0, 900))
	require.NoError(t, l.Close(false))
}

// TestRewrittenSegmentsKeepTheirTimes: retention goes by them where records have no
// timestamps.
func TestRewrittenSegmentsKeepTheirTimes(t *testing.T) {
	cfg := config(disk.NewCrash(1))
	now := startTime
	cfg.Now = func() time.Time { return now }
	l := openLog(t, cfg)
	for range 3 {
		fill(t, l, l.EndOffset()+5)
		now = now.Add(time.Hour)
		_, err := l.Roll()
		require.NoError(t, err)
	}
	require.NoError(t, l.Flush(context.Background()))
	segments := l.Segments()
	require.NoError(t, rewriteKeeping(l, 0, segments[1].Next, 0, func(recordbatch.Batch) bool { return true }))
	joined := l.Segments()[0]
	require.Equal(t, segments[1].Next, joined.Next)
	require.Equal(t, segments[0].Created, joined.Created)
	require.Equal(t, segments[1].Modified, joined.Modified)
	require.NotEqual(t, segments[0].Modified, joined.Modified)
}

// TestRewriteKeepsToSegmentBytes: nothing is joined past them.
func TestRewriteKeepsToSegmentBytes(t *testing.T) {
	_, l, batches := segmented(t, disk.NewCrash(1))
	segments := l.Segments()
	next := segments[3].Next
	require.NoError(t, rewriteKeeping(l, 0, next, 0, func(b recordbatch.Batch) bool { return b.BaseOffset() >= next || b.BaseOffset()%3 != 0 }))
	require.Less(t, len(l.Segments()), len(segments))
	require.Greater(t, len(l.Segments()), len(segments)-3)
	for i, s := range l.Segments() {
		require.LessOrEqual(t, s.Bytes, l.settings.Load().SegmentBytes)
		if i > 0 {
			require.Equal(t, l.Segments()[i-1].Next, s.Base)
		}
	}
	want := slices.DeleteFunc(slices.Clone(batches), func(b recordbatch.Batch) bool { return b.BaseOffset() < next && b.BaseOffset()%3 == 0 })
	requireBatches(t, want, readAll(t, l, 0, 900))
	require.NoError(t, l.Close(false))
}

// TestRewriteSplits: what does not fit one segment's index becomes several.
func TestRewriteSplits(t *testing.T) {
	crash := disk.NewCrash(3)
	cfg, l, batches := segmented(t, crash)
	settings := cfg.Settings
	settings.IndexBytes, settings.IndexIntervalBytes = 48, 100
	l.SetSettings(settings)
	segments := l.Segments()
	require.NoError(t, rewriteKeeping(l, 0, segments[3].Next, 0, func(recordbatch.Batch) bool { return true }))
	require.Greater(t, len(l.Segments()), len(segments))
	for i, s := range l.Segments()[1:] {
		require.Equal(t, l.Segments()[i].Next, s.Base)
	}
	requireBatches(t, batches, readAll(t, l, 0, 900))
	require.NoError(t, l.Close(true))
	cfg.CleanStop = true
	requireBatches(t, batches, readAll(t, openLog(t, cfg), 0, 900))
}

// TestCopyOfARewrittenLog: a copy has the holes, and what is known of them.
func TestCopyOfARewrittenLog(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg, l, _ := segmented(t, fs)
	segments := l.Segments()
	require.NoError(t, rewriteKeeping(l, segments[0].Base, segments[1].Next, 9, func(recordbatch.Batch) bool { return false }))
	require.NoError(t, rewriteKeeping(l, segments[3].Base, segments[3].Next, 12, func(b recordbatch.Batch) bool { return b.BaseOffset() == segments[3].Base }))
	want := readAll(t, l, 0, 900)
	cfg.Dir = "/logs/other"
	dst, err := Open(cfg)
	require.NoError(t, err)
	require.NoError(t, l.BeginCopy(dst))
	for {
		n, err := l.CopyOn(dst, 500)
		require.NoError(t, err)
		if n == 0 {
			break
		}
	}
	require.NoError(t, l.EndCopy(dst))
	cfg.CleanStop = true
	again := openLog(t, cfg)
	requireBatches(t, want, readAll(t, again, 0, 900))
	require.Equal(t, cluster.Offset(12), again.CompactedTombstonesBelow())
	require.NoError(t, l.Close(false))
}

// TestRewriteWithAbortedTransactions: the transaction index goes along.
func TestRewriteWithAbortedTransactions(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg := config(fs)
	l := openLog(t, cfg)
	producer := func(seq int32) recordbatch.Options {
		return recordbatch.Options{Transactional: true, Producer: &recordbatch.Producer{ID: 7, BaseSequence: seq}}
	}
	_, err := l.Append(batchOf(0, 3, producer(0)))
	require.NoError(t, err)
	o := producer(0)
	o.BaseOffset = 3
	_, err = l.Append(recordbatch.NewMarkerBatch(o, startTime.UnixMilli(), recordbatch.Marker{Type: recordbatch.ControlAbort}))
	require.NoError(t, err)
	_, err = l.Roll()
	require.NoError(t, err)
	fill(t, l, 10)
	require.NoError(t, l.Flush(context.Background()))
	aborted, err := l.AbortedTxns(0, 4)
	require.NoError(t, err)
	want := []producerstate.AbortedTxn{{ProducerID: 7, First: 0, Last: 3, LastStableOffset: 4}}
	require.Equal(t, want, aborted)
	rw, err := l.BeginRewrite(0, 4)
	require.NoError(t, err)
	s, err := l.Read(0, 4, 1<<20, true)
	require.NoError(t, err)
	for _, b := range contents(t, s) {
		require.NoError(t, rw.Append(b))
	}
	rw.AddAborted(want[0])
	require.NoError(t, rw.Prepare(0))
	require.NoError(t, rw.Publish())
	require.NoError(t, rw.Finish())
	for range 2 {
		aborted, err = l.AbortedTxns(0, 4)
		require.NoError(t, err)
		require.Equal(t, want, aborted)
		require.NoError(t, l.Close(true))
		cfg.CleanStop = true
		l = openLog(t, cfg)
	}
}

// TestDamagedWordAboutARewrite: an open that cannot tell what a rewrite that counts
// replaces removes nothing.
func TestDamagedWordAboutARewrite(t *testing.T) {
	for _, text := range []string{"", "0 40", "0 40 x", "0 40 0 rubbish"} {
		fs := disk.NewCrash(1)
		cfg, l, _ := segmented(t, fs)
		require.NoError(t, l.Close(true))
		before, err := fs.List(cfg.Dir)
		require.NoError(t, err)
		name := replacedName(0) + segment.SwapSuffix
		require.NoError(t, disk.WriteFileAtomic(fs, cfg.Dir+"/"+name, []byte(text)))
		cfg.CleanStop = true
		_, err = Open(cfg)
		var corrupt *segment.CorruptError
		require.ErrorAs(t, err, &corrupt, "%q", text)
		after, err := fs.List(cfg.Dir)
		require.NoError(t, err)
		for _, name := range before {
			require.Contains(t, after, name, "%q", text)
		}
	}
}

func TestCompactionCheckpoint(t *testing.T) {
	c := compaction{known: true, removedBelow: 5, durableBelow: 9}
	got, err := parseCompaction(c.encode())
	require.NoError(t, err)
	require.Equal(t, c, got)
	for _, bad := range []string{"", "version: 0\n", "version: 0\nremoved_below: -1\nrewritten_below: 2\n", "rubbish"} {
		_, err := parseCompaction([]byte(bad))
		require.ErrorIs(t, err, errBadCompaction, "%q", bad)
	}
	later := []byte("version: 1\nremoved_below: 1\nrewritten_below: 2\n")
	_, err = parseCompaction(later)
	require.ErrorIs(t, err, errLaterCompaction)
	fs := disk.NewCrash(1)
	cfg := config(fs)
	require.NoError(t, fs.MkdirAll(cfg.Dir))
	require.NoError(t, disk.WriteFileAtomic(fs, cfg.Dir+"/"+CompactionName, later))
	_, err = Open(cfg)
	require.ErrorIs(t, err, errLaterCompaction)
	var corrupt *segment.CorruptError
	require.ErrorAs(t, err, &corrupt, "it is this log, not its disk")
}

// A damaged file says nothing: what may have been is taken to have been.
func TestDamagedCompactionCheckpoint(t *testing.T) {
	for _, text := range []string{"", "rubbish", "version: 0\nremoved_below8 350\nrewritten_below: 400\n"} {
		fs := disk.NewCrash(1)
		cfg, l, _ := segmented(t, fs)
		segments := l.Segments()
		require.NoError(t, rewriteKeeping(l, 0, segments[2].Next, 3, func(b recordbatch.Batch) bool { return b.BaseOffset()%2 == 0 }))
		want := readAll(t, l, 0, 1<<20)
		active := l.ActiveBase()
		require.NoError(t, disk.WriteFileAtomic(fs, cfg.Dir+"/"+CompactionName, []byte(text)))
		for range 2 {
			cfg.FS, cfg.RecoveryPoint = fs.Clone(rand.New(rand.NewPCG(2, 2))), 0
			again := openLog(t, cfg)
			require.Equal(t, want, readAll(t, again, 0, 1<<20), "%q", text)
			require.True(t, again.Compacted())
			require.Equal(t, active, again.CompactedTombstonesBelow())
			require.NoError(t, again.Close(false))
			fs = cfg.FS.(*disk.Crash)
		}
		require.NoError(t, l.Close(false))
	}
}

// TestTruncationOfARewrittenLog: what was rewritten and cut off is no longer
// known to be durable.
func TestTruncationOfARewrittenLog(t *testing.T) {
	fs := disk.NewCrash(1)
	cfg, l, _ := segmented(t, fs)
	segments := l.Segments()
	next := segments[2].Next
	require.NoError(t, rewriteKeeping(l, 0, next, 0, func(b recordbatch.Batch) bool { return b.BaseOffset()%2 == 0 }))
	require.NoError(t, l.TruncateTo(20))
	end := l.EndOffset()
	require.LessOrEqual(t, end, cluster.Offset(20))
	fill(t, l, 30)
	cfg.FS, cfg.RecoveryPoint = fs.Clone(rand.New(rand.NewPCG(2, 2))), 0
	again := openLog(t, cfg)
	require.GreaterOrEqual(t, again.EndOffset(), end)
	require.NoError(t, l.Close(false))
}
