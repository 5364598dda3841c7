package locallog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/leaderepoch"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// twin is a log as a list of batches, the dumb way.
type twin struct {
	batches []recordbatch.Batch
	start   cluster.Offset
	end     cluster.Offset
	epochs  leaderepoch.List
	epoch   cluster.LeaderEpoch
	next    [3]int32 // sequence numbers of producers
	// rewrites says that segments are rewritten, too.
	rewrites bool
}

func (w *twin) truncate(end cluster.Offset) {
	for i, b := range w.batches {
		if b.NextOffset() > end {
			end = min(end, b.BaseOffset())
			w.batches = w.batches[:i]
			break
		}
	}
	w.end = min(w.end, end)
	if n := len(w.batches); n > 0 {
		w.end = w.batches[n-1].NextOffset()
	} else {
		w.end = w.start
	}
	w.epochs.TruncateFromEnd(w.end)
}

// cutBelow forgets batches that a log which starts its files at local has lost.
func (w *twin) cutBelow(local cluster.Offset) {
	for len(w.batches) > 0 && w.batches[0].NextOffset() <= local {
		w.batches = w.batches[1:]
	}
}

// newBatch makes a random batch for the end of the log, perhaps after a gap.
func (w *twin) newBatch(rng *rand.Rand) recordbatch.Batch {
	base := w.end
	if rng.IntN(10) == 0 {
		base += cluster.Offset(rng.IntN(50))
	}
	o := recordbatch.Options{LeaderEpoch: w.epoch}
	if rng.IntN(20) == 0 { // compressing takes most of the time otherwise
		o.Codec = recordbatch.Codec(rng.IntN(5))
	}
	n := 1 + rng.IntN(8)
	if id := rng.IntN(6); id < len(w.next) {
		o.Producer = &recordbatch.Producer{ID: cluster.ProducerID(id), BaseSequence: w.next[id]}
		w.next[id] += int32(n)
	}
	return batchOf(base, n, o)
}

func (w *twin) append(t *testing.T, l *Log, rng *rand.Rand) error {
	var p []byte
	end := w.end
	kept := w.batches
	epochs := w.epochs.Clone()
	for range 1 + rng.IntN(3) {
		b := w.newBatch(rng)
		p = append(p, b...)
		w.batches = append(w.batches, b)
		w.end = b.NextOffset()
		w.epochs.Assign(b.PartitionLeaderEpoch(), b.BaseOffset())
	}
	info, err := l.Append(p)
	if err != nil {
		w.batches, w.end, w.epochs = kept, end, *epochs
		return err
	}
	require.Equal(t, w.end-1, info.Last)
	return nil
}

func (w *twin) check(t *testing.T, l *Log, rng *rand.Rand) {
	t.Helper()
	require.Equal(t, w.end, l.EndOffset())
	require.Equal(t, w.start, l.StartOffset())
	require.Equal(t, w.epochs.Marshal(), l.Epochs().Marshal())
	require.LessOrEqual(t, l.FlushedOffset(), l.EndOffset())
	local := l.LocalStartOffset()
	for range 4 {
		if w.end < local {
			break
		}
		from := local + cluster.Offset(rng.Int64N(int64(w.end-local)+1))
		bound := local + cluster.Offset(rng.Int64N(int64(w.end-local)+1))
		maxBytes, minOne := rng.IntN(6000), rng.IntN(2) == 0
		s, err := l.Read(from, bound, maxBytes, minOne)
		require.NoError(t, err)
		requireBatches(t, expected(w.batches, from, bound, maxBytes, minOne), contents(t, s))
		w.checkTime(t, l, from, bound)
	}
}

func (w *twin) checkTime(t *testing.T, l *Log, o, bound cluster.Offset) {
	t.Helper()
	ts := startTime.UnixMilli() + int64(o)
	want := cluster.NoOffset
	for _, b := range w.batches {
		if b.LastOffset() >= o && want == cluster.NoOffset {
			want = max(b.BaseOffset(), o, l.StartOffset())
		}
	}
	f, ok, err := l.OffsetForTimestamp(ts, bound)
	require.NoError(t, err)
	require.Equal(t, want != cluster.NoOffset && want < bound, ok, "timestamp of offset %d below %d", o, bound)
	if ok {
		require.Equal(t, want, f.Offset)
		require.Equal(t, startTime.UnixMilli()+int64(want), f.Timestamp)
	}
}

// step does one random thing to both.
func (w *twin) step(t *testing.T, l *Log, rng *rand.Rand) error {
	switch n := rng.IntN(100); {
	case w.rewrites && n < 6:
		return w.rewrite(l, rng)
	case n < 70:
		return w.append(t, l, rng)
	case n < 76:
		_, err := l.Roll()
		return err
	case n < 84:
		return l.Flush(context.Background())
	case n < 90:
		w.epoch++
		l.AssignEpoch(w.epoch)
		w.epochs.Assign(w.epoch, w.end)
	case n < 95:
		end := w.end - cluster.Offset(rng.Int64N(40))
		if end < l.LocalStartOffset() {
			return nil
		}
		err := l.TruncateTo(end)
		if err == nil {
			w.truncate(end)
			// A leader enters its epoch again.
			w.epochs.Assign(w.epoch, w.end)
			l.AssignEpoch(w.epoch)
		}
		return err
	case n < 98:
		_, _, err := l.DeleteSealedBelow(l.LocalStartOffset() + cluster.Offset(rng.IntN(80)))
		if err == nil {
			w.start = max(w.start, l.Segments()[0].Base)
			w.epochs.TruncateFromStart(w.start)
			w.cutBelow(w.start)
		}
		return err
	default:
		_, err := l.RunDeferred(startTime.Add(time.Hour))
		return err
	}
	return nil
}

func TestAgainstATwin(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fs := disk.NewCrash(seed)
		cfg := config(fs)
		l := openLog(t, cfg)
		w := &twin{rewrites: seed%2 == 1}
		l.AssignEpoch(0)
		w.epochs.Assign(0, 0)
		for i := range 400 {
			require.NoError(t, w.step(t, l, rng))
			if i%10 == 0 {
				w.check(t, l, rng)
			}
			if i%67 == 0 {
				require.NoError(t, l.Close(true))
				cfg.CleanStop, cfg.LogStart = true, w.start
				l = openLog(t, cfg)
				w.epochs.TruncateFromEnd(w.end) // one without a batch is not kept
				w.check(t, l, rng)
			}
		}
		require.Equal(t, w.end, l.EndOffset())
	}
}

// TestPowerLoss loses power at random points and checks what is found: all that
// was flushed, and of the rest a prefix of what was appended (L2, L3).
func TestPowerLoss(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2))
		fs := disk.NewCrash(seed)
		cfg := config(fs)
		w := &twin{rewrites: seed%2 == 1}
		l := openLog(t, cfg)
		l.AssignEpoch(0)
		w.epochs.Assign(0, 0)
		var point cluster.Offset
		for range 4 {
			for range 20 + rng.IntN(60) {
				// The recovery point is persisted at times, and lowered before a truncation.
				if rng.IntN(4) == 0 {
					point = l.FlushedOffset()
				}
				require.NoError(t, w.step(t, l, rng))
				point = min(point, l.FlushedOffset())
			}
			flushed := l.FlushedOffset()
			cfg.FS = fs.Clone(rng)
			if rng.IntN(3) == 0 {
				cfg.FS = fs.Kill()
				flushed = l.EndOffset()
			}
			fs = cfg.FS.(*disk.Crash)
			cfg.RecoveryPoint, cfg.LogStart = point, w.start
			l = openLog(t, cfg)
			w.recovered(t, l, flushed)
			w.check(t, l, rng)
			point = l.FlushedOffset()
			require.NoError(t, l.producersMatch())
			l.AssignEpoch(w.epoch)
			w.epochs.Assign(w.epoch, w.end)
		}
	}
}

// recovered fits the twin to what a recovery found, if that is allowed.
func (w *twin) recovered(t *testing.T, l *Log, flushed cluster.Offset) {
	t.Helper()
	require.GreaterOrEqual(t, l.EndOffset(), flushed, "L2: what was flushed is there")
	require.LessOrEqual(t, l.EndOffset(), w.end)
	end := l.EndOffset()
	if n := len(w.batches); end < w.end || n > 0 && w.batches[n-1].NextOffset() < w.end {
		w.truncate(end)
	}
	// A hole at the end of the log that no batch has closed is not remembered,
	// unless a segment follows that begins after it.
	if w.rewrites && l.ActiveBase() == end {
		w.end = end
	}
	require.Equal(t, end, w.end)
	w.start = l.StartOffset()
	w.cutBelow(w.start)
	// An epoch that wrote nothing is not remembered either.
	var epochs leaderepoch.List
	for _, b := range w.batches {
		epochs.Assign(b.PartitionLeaderEpoch(), b.BaseOffset())
	}
	epochs.TruncateFromStart(w.start)
	got := l.Epochs()
	if e, ok := got.Latest(); ok && e.Start == end {
		got.TruncateFromEnd(end)
	}
	for _, e := range epochs.Entries() {
		at, ok := got.EpochAt(max(e.Start, w.start))
		require.True(t, ok)
		require.Equal(t, e.Epoch, at)
	}
	w.epochs = *l.Epochs()
}

// producersMatch compares the producer state with one made from the whole log.
func (l *Log) producersMatch() error {
	m, err := l.producersAt(l.EndOffset(), l.segments.Load().row)
	if err != nil {
		return err
	}
	if a, b := m.Entries(), l.producers.Entries(); !slices.Equal(a, b) {
		return fmt.Errorf("producer state %v, the log says %v", b, a)
	}
	return nil
}

// TestEveryFailingCall fails the i-th call for every i, until nothing fails: the
// error is a clean one, a log that went offline stays so, and what is found
// after reopening is a consistent prefix that holds everything flushed, and after
// a failure that the log survived everything acknowledged.
func TestEveryFailingCall(t *testing.T) {
	i := int64(0)
	for !failCall(t, i, disk.ErrInjected, "") {
		i++
	}
	require.Greater(t, i, int64(200))
	torn := fmt.Errorf("%w: %w", disk.ErrInjected, disk.ErrTorn)
	for _, cause := range []error{torn, fmt.Errorf("%w: %w", torn, syscall.ENOSPC)} {
		i = 0
		for !failCall(t, i, cause, disk.OpWriteAt) {
			i++
		}
		require.Greater(t, i, int64(20))
	}
}

func failCall(t *testing.T, i int64, cause error, kind disk.OpKind) (passed bool) {
	rng := rand.New(rand.NewPCG(7, 7))
	crash := disk.NewCrash(7)
	passed = true
	var failed disk.Op
	seen := int64(0)
	fault := disk.NewFault(crash, func(op disk.Op) error {
		if kind != "" && op.Kind != kind {
			return nil
		}
		if seen++; seen-1 == i {
			passed, failed = false, op
			return cause
		}
		return nil
	})
	cfg := config(fault)
	cfg.Settings.SegmentBytes = 1024
	w := &twin{}
	var flushed cluster.Offset
	clean, offline := false, false
	if l, err := Open(cfg); err != nil {
		require.ErrorIs(t, err, disk.ErrInjected)
	} else {
		flushed, offline = w.work(t, l, rng)
		err = l.Close(true)
		require.Equal(t, err, l.Close(true), "Close is idempotent")
		if offline {
			require.ErrorIs(t, err, ErrStorage)
		}
		if clean = err == nil; clean {
			flushed = w.end
		}
	}
	cfg.FS, cfg.CleanStop, cfg.RecoveryPoint = crash, clean, flushed
	l, err := Open(cfg)
	require.NoError(t, err, "call %v", failed)
	defer func() { require.NoError(t, l.Close(false)) }()
	require.GreaterOrEqual(t, l.EndOffset(), flushed, "call %v", failed)
	w.cutBelow(l.LocalStartOffset())
	got := readAll(t, l, l.LocalStartOffset(), 2000)
	for k := range min(len(w.batches), len(got)) {
		require.Equal(t, []byte(w.batches[k]), []byte(got[k]), "call %v", failed)
	}
	if !offline {
		require.GreaterOrEqual(t, len(got), len(w.batches), "call %v", failed)
	}
	return passed
}

// work is a fixed run of steps, stopped at the first error.
func (w *twin) work(t *testing.T, l *Log, rng *rand.Rand) (flushed cluster.Offset, offline bool) {
	l.AssignEpoch(0)
	for range 24 {
		err := w.step(t, l, rng)
		if err == nil && l.EndOffset() > 20 {
			var s Slice
			if s, err = l.Read(l.LocalStartOffset(), l.EndOffset(), 3000, true); err == nil {
				s.Release()
			}
		}
		if err != nil {
			require.ErrorIs(t, err, disk.ErrInjected)
			if l.Err() != nil {
				require.ErrorIs(t, l.Err(), ErrStorage)
				_, again := l.Append(batchOf(l.EndOffset(), 1, recordbatch.Options{LeaderEpoch: w.epoch}))
				require.ErrorIs(t, again, ErrStorage, "sticky")
				_, again = l.Read(l.LocalStartOffset(), l.EndOffset(), 1, true)
				require.ErrorIs(t, again, ErrStorage)
				require.ErrorIs(t, l.Flush(context.Background()), ErrStorage)
				return l.FlushedOffset(), true
			}
		}
	}
	return l.FlushedOffset(), false
}

func TestAppendIsOneWrite(t *testing.T) {
	fault := disk.NewFault(disk.NewCrash(1), nil)
	cfg := config(fault)
	cfg.Settings.SegmentBytes = 1 << 20
	l := openLog(t, cfg)
	ops := 0
	fault.SetInjector(func(op disk.Op) error {
		ops++
		require.Equal(t, disk.OpWriteAt, op.Kind)
		return nil
	})
	fill(t, l, 300)
	require.Equal(t, 100, ops)
	fault.SetInjector(nil)
}
