package cleaner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/keyindex"
	"strandline/broker/locallog"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// history is everything that was appended, which nothing compacts.
type history struct {
	*bench
	rng     *rand.Rand
	batches []recordbatch.Batch
	ongoing map[cluster.ProducerID]cluster.Offset // first offset of its transaction
	aborted []producerstate.AbortedTxn
	next    map[cluster.ProducerID]int32 // sequence
	start   cluster.Offset               // log start
	serial  int
	keys    int
	deletes int // one record of so many is a tombstone
	limits  CompactionLimits
	stopped bool // not in order
}

func (h *history) record(o cluster.Offset) recordbatch.Record {
	r := recordbatch.Record{Offset: o, Timestamp: h.now.UnixMilli() + h.rng.Int64N(50)}
	r.Key = fmt.Appendf(nil, "key-%d", h.rng.IntN(h.keys))
	if h.rng.IntN(h.deletes) > 0 {
		h.serial++
		r.Value = fmt.Appendf([]byte{}, "value-%0*d", 1+h.rng.IntN(60), h.serial)
	}
	for range h.rng.IntN(4) {
		r.Headers = append(r.Headers, recordbatch.Header{Key: fmt.Sprint("h", h.rng.IntN(3)), Value: []byte{byte(h.rng.IntN(9))}})
	}
	return r
}

// append writes a batch, of a producer or of none, in a transaction or not.
func (h *history) append() {
	o := recordbatch.Options{BaseOffset: h.log.EndOffset(), LeaderEpoch: 1}
	if h.rng.IntN(8) == 0 {
		o.Codec = recordbatch.Codec(h.rng.IntN(5))
	}
	id := cluster.ProducerID(h.rng.IntN(6))
	if id < 4 {
		o.Producer = &recordbatch.Producer{ID: id, BaseSequence: h.next[id]}
		o.Transactional = id < 2
	}
	b := recordbatch.NewBuilder(o)
	for i := range 1 + h.rng.IntN(6) {
		require.NoError(h.t, b.AddRecord(h.record(o.BaseOffset+cluster.Offset(i))))
	}
	batch := b.Build()
	if id < 4 {
		h.next[id] += int32(b.Count())
	}
	if _, open := h.ongoing[id]; o.Transactional && !open {
		h.ongoing[id] = batch.BaseOffset()
	}
	h.put(batch)
}

func (h *history) put(b recordbatch.Batch) {
	_, err := h.log.Append(b)
	require.NoError(h.t, err)
	h.batches = append(h.batches, b)
}

// end ends a transaction.
func (h *history) end() {
	id := cluster.ProducerID(h.rng.IntN(2))
	first, open := h.ongoing[id]
	if !open {
		return
	}
	delete(h.ongoing, id)
	kind := recordbatch.ControlCommit
	at := h.log.EndOffset()
	if h.rng.IntN(3) == 0 {
		kind = recordbatch.ControlAbort
		h.aborted = append(h.aborted, producerstate.AbortedTxn{ProducerID: id, First: first, Last: at})
	}
	o := recordbatch.Options{BaseOffset: at, LeaderEpoch: 1, Producer: &recordbatch.Producer{ID: id}}
	h.put(recordbatch.NewMarkerBatch(o, h.now.UnixMilli(), recordbatch.Marker{Type: kind}))
}

// lost forgets what a power loss took away.
func (h *history) lost() {
	end := h.log.EndOffset()
	h.batches = slices.DeleteFunc(h.batches, func(b recordbatch.Batch) bool { return b.BaseOffset() >= end })
	h.aborted = slices.DeleteFunc(h.aborted, func(a producerstate.AbortedTxn) bool { return a.Last >= end })
	h.ongoing, h.next = map[cluster.ProducerID]cluster.Offset{}, map[cluster.ProducerID]int32{}
	for _, b := range h.batches {
		if !b.HasProducerID() {
			continue
		}
		if b.IsControl() {
			delete(h.ongoing, b.ProducerID())
			continue
		}
		h.next[b.ProducerID()] = b.LastSequence() + 1
		if _, open := h.ongoing[b.ProducerID()]; b.IsTransactional() && !open {
			h.ongoing[b.ProducerID()] = b.BaseOffset()
		}
	}
	h.start = h.log.StartOffset()
}

// check compares what is read from the log, from its start and from other
// offsets, with the history.
func (h *history) check() {
	h.t.Helper()
	stable := h.stable()
	all := recordsOf(h.t, h.batches)
	original := map[cluster.Offset]record{}
	for _, r := range all {
		original[r.Offset] = r
	}
	end := h.log.EndOffset()
	for i := range 5 {
		from := h.start
		if i > 0 && end > h.start {
			from += cluster.Offset(h.rng.Int64N(int64(end - h.start)))
		}
		var late []recordbatch.Batch
		for _, b := range h.batches {
			if b.NextOffset() > from {
				late = append(late, b)
			}
		}
		overlapping := slices.DeleteFunc(slices.Clone(h.aborted), func(a producerstate.AbortedTxn) bool { return a.Last < from })
		atLeast := func(records []record) []record {
			return slices.DeleteFunc(records, func(r record) bool { return r.Offset < from })
		}
		want := fold(atLeast(committedOf(h.t, late, overlapping, stable)))
		got := atLeast(h.committed(from))
		require.Equal(h.t, want, fold(got), "from %d of %d to %d", from, h.start, end)
		last := cluster.NoOffset
		for _, r := range got {
			require.Greater(h.t, r.Offset, last)
			require.Equal(h.t, original[r.Offset], r, "as it was produced")
			last = r.Offset
		}
	}
	h.checkProducers()
	h.checkTimestamps()
}

// checkTimestamps looks offsets up by time, and compares them with what is there.
func (h *history) checkTimestamps() {
	h.t.Helper()
	left := recordsOf(h.t, h.bench.batches(h.start))
	newest := int64(-1)
	for _, r := range left {
		newest = max(newest, r.Timestamp)
	}
	first := func(fits func(r record) bool) (locallog.Found, bool) {
		for _, r := range left {
			if fits(r) {
				return locallog.Found{Offset: r.Offset, Timestamp: r.Timestamp, LeaderEpoch: 1}, true
			}
		}
		return locallog.Found{}, false
	}
	want, any := first(func(r record) bool { return r.Timestamp == newest })
	got, ok, err := h.log.MaxTimestamp(h.log.EndOffset())
	require.NoError(h.t, err)
	require.Equal(h.t, any, ok, "greatest timestamp")
	if ok {
		require.Equal(h.t, want, got)
	}
	for range 5 {
		ts := startTime.UnixMilli() + h.rng.Int64N(h.now.Sub(startTime).Milliseconds()+60)
		want, any := first(func(r record) bool { return r.Timestamp >= ts && r.Offset >= h.start })
		got, ok, err := h.log.OffsetForTimestamp(ts, h.log.EndOffset())
		require.NoError(h.t, err)
		require.Equal(h.t, any, ok, "timestamp %d", ts)
		if ok {
			require.Equal(h.t, want, got)
		}
	}
}

// checkProducers goes by the batches alone, as who copies the log does: no
// producer has lost its place in its sequence, and no transaction its marker while
// a batch of it is left.
func (h *history) checkProducers() {
	h.t.Helper()
	next, markers := map[cluster.ProducerID]int32{}, map[cluster.Offset]bool{}
	left := h.bench.batches(h.start)
	for _, b := range left {
		if _, ok, _ := b.Marker(); ok {
			markers[b.BaseOffset()] = true
		} else if b.HasProducerID() && !b.IsControl() {
			next[b.ProducerID()] = b.LastSequence() + 1
		}
	}
	last := map[cluster.ProducerID]cluster.Offset{}
	marker := map[cluster.Offset]cluster.Offset{} // of a transaction's batch
	var waiting [4][]cluster.Offset
	for _, b := range h.batches {
		switch id := b.ProducerID(); {
		case b.IsControl():
			for _, o := range waiting[id] {
				marker[o] = b.BaseOffset()
			}
			waiting[id] = nil
		case b.HasProducerID():
			last[id] = b.LastOffset()
			if b.IsTransactional() {
				waiting[id] = append(waiting[id], b.BaseOffset())
			}
		}
	}
	for _, b := range left {
		if at, ok := marker[b.BaseOffset()]; ok && b.LastOffset() >= h.start {
			require.True(h.t, markers[at], "the marker at %d of the batch at %d is gone", at, b.BaseOffset())
		}
	}
	for id, o := range last {
		if o >= h.start {
			require.Equal(h.t, h.next[id], next[id], "sequence of producer %d", id)
		}
	}
}

func (h *history) step() {
	switch n := h.rng.IntN(100); {
	case n < 62:
		h.append()
	case n < 72:
		h.end()
	case n < 80:
		h.seal()
	case n < 84:
		h.now = h.now.Add(time.Duration(h.rng.IntN(60)) * time.Second)
	case n < 86:
		// DeleteRecords, and what retention removes after it.
		to := h.start + cluster.Offset(h.rng.Int64N(int64(h.stable()-h.start)+1))
		require.NoError(h.t, h.log.Flush(context.Background()))
		h.log.SetStartOffset(to)
		h.start = to
		h.cfg.LogStart = to
		_, _, err := h.log.DeleteSealedBelow(to)
		require.NoError(h.t, err)
		h.start = h.log.StartOffset()
	default:
		_, err := h.c.Compact(context.Background(), h.bench, h.limits)
		require.NoError(h.t, err)
		h.checkCounts()
	}
}

// checkCounts compares what the index says of each segment with its file. Once
// power was lost the index may count as dead what is not there any more.
func (h *history) checkCounts() {
	h.t.Helper()
	if h.stopped {
		return
	}
	index, err := h.index.Open(testTP)
	require.NoError(h.t, err)
	for _, info := range h.log.Segments() {
		known, ok := index.Segment(info.Base)
		if !ok || !info.Sealed || info.Next > index.Position().Offset || known.Bytes != info.Bytes {
			continue
		}
		want := keyindex.Segment{
			Base: info.Base, Next: info.Next, Bytes: info.Bytes, CleanedThrough: known.CleanedThrough, FilteredAt: known.FilteredAt,
			Transactions: known.Transactions,
		}
		dead := map[cluster.Offset]bool{}
		for o, err := range index.Dead(info.Base, info.Base+1) {
			require.NoError(h.t, err)
			dead[o] = true
		}
		s, err := h.log.Read(max(info.Base, h.log.StartOffset()), info.Next, 1<<30, true)
		require.NoError(h.t, err)
		bytes := int64(0)
		for _, b := range batchesOf(h.t, s) {
			if b.BaseOffset() >= info.Next {
				break
			}
			bytes += int64(len(b))
			h.count(&want, b, dead)
		}
		if bytes != info.Bytes {
			continue // some of it lies below the log start
		}
		// A batch that got its delete horizon has longer timestamps.
		longer := float64(9 * want.Records)
		require.InDelta(h.t, want.RecordBytes, known.RecordBytes, longer)
		require.InDelta(h.t, want.DeadBytes, known.DeadBytes, longer)
		want.RecordBytes, want.DeadBytes = known.RecordBytes, known.DeadBytes
		require.Equal(h.t, want, known)
	}
}

func (h *history) count(s *keyindex.Segment, b recordbatch.Batch, dead map[cluster.Offset]bool) {
	h.t.Helper()
	if b.RecordCount() == 0 {
		s.Emptied++
	}
	removable := b.IsControl() && b.RecordCount() > 0
	if removable {
		s.Markers++
	}
	if b.IsTransactional() || b.IsControl() {
		require.True(h.t, s.Transactions)
	}
	if !b.IsControl() {
		for r, err := range new(recordbatch.Decoder).Keys(b) {
			require.NoError(h.t, err)
			s.Records++
			s.RecordBytes += int64(r.Bytes)
			removable = removable || r.Tombstone && !h.wasAborted(b)
			switch {
			case dead[r.Offset]:
				s.DeadRecords++
				s.DeadBytes += int64(r.Bytes)
			case r.Tombstone:
				s.Tombstones++
			}
		}
	}
	switch {
	case !removable:
	case !b.HasDeleteHorizon():
		s.Unstamped++
	case s.Horizon == 0 || b.FirstTimestamp() < s.Horizon:
		s.Horizon = b.FirstTimestamp()
	}
}

func (h *history) wasAborted(b recordbatch.Batch) bool {
	return slices.ContainsFunc(h.aborted, func(a producerstate.AbortedTxn) bool {
		return b.IsTransactional() && a.ProducerID == b.ProducerID() && b.BaseOffset() >= a.First && b.BaseOffset() < a.Last
	})
}

// seeds is how many random runs there are.
func seeds(short int) int {
	if os.Getenv("STRANDLINE_LONG") != "" {
		return 500
	}
	if testing.Short() {
		return short / 2
	}
	return short
}

// TestAgainstAMap compacts random logs with random settings, stops in the middle
// of everything by power loss, by kill or in order, and compares what readers get,
// from the start and from other offsets, with a map of all that was written.
func TestAgainstAMap(t *testing.T) {
	for seed := range seeds(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { againstAMap(t, uint64(seed)) })
	}
}

func againstAMap(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 9))
	fs := disk.NewCrash(seed)
	h := &history{rng: rng, ongoing: map[cluster.ProducerID]cluster.Offset{}, next: map[cluster.ProducerID]int32{}}
	h.bench = newBench(t, fs)
	h.keys, h.deletes = []int{20, 20, 200, 1000}[rng.IntN(4)], []int{6, 300}[rng.IntN(2)]
	if rng.IntN(2) == 0 {
		h.cfg.Settings.SegmentBytes = 6000
		h.log.SetSettings(h.cfg.Settings)
	}
	h.log.AssignEpoch(1)
	h.limits = CompactionLimits{
		DirtyRatio: []float64{0, 0.01, 0.3, 0.9}[rng.IntN(4)], MaxLag: forever, SegmentBytes: h.cfg.Settings.SegmentBytes,
		DeleteRetention: []time.Duration{0, time.Second, time.Minute, forever}[rng.IntN(4)],
	}
	if rng.IntN(3) == 0 {
		h.limits.MaxLag = time.Minute
	}
	if rng.IntN(3) == 0 {
		h.limits.MinLag = 20 * time.Second
	}
	for range 6 {
		for range 60 {
			h.step()
		}
		h.check()
		switch rng.IntN(4) {
		case 0:
			h.close(true)
		case 1:
			fs = fs.Kill()
			h.stopped = true
			h.close(false)
		default:
			point := h.log.FlushedOffset()
			fs = crashDuring(h, fs)
			h.stopped = true
			h.close(false)
			h.cfg.RecoveryPoint = cluster.Offset(rng.IntN(2)) * point
		}
		h.fs = fs
		require.NoError(t, h.open())
		h.cfg.CleanStop, h.cfg.RecoveryPoint = false, 0
		h.log.AssignEpoch(1)
		h.lost()
		h.check()
	}
	h.close(false)
}

// crashDuring loses power at a random call on the disk of a pass.
func crashDuring(h *history, fs *disk.Crash) (after *disk.Crash) {
	calls := fs.Ops() + h.rng.Int64N(60)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h.c.Pace = func(ctx context.Context, _ int) error { return ctx.Err() }
	h.cfg.Hook = nil
	h.seal()
	fault := disk.NewFault(fs, func(op disk.Op) error {
		if strings.HasPrefix(op.Name, logDir) && after == nil && op.Kind.Mutates() && fs.Ops() >= calls {
			after = fs.Clone(h.rng)
			cancel()
		}
		return nil
	})
	// What the log does to the disk is what matters.
	h.close(true)
	h.cfg.FS, h.fs = fault, fault
	require.NoError(h.t, h.open())
	h.log.AssignEpoch(1)
	for range 10 {
		h.append()
	}
	h.seal()
	_, err := h.c.Compact(ctx, h.bench, CompactionLimits{DirtyRatio: 0, MaxLag: forever, SegmentBytes: 1500})
	if err != nil {
		require.ErrorIs(h.t, err, context.Canceled)
	}
	if after == nil {
		after = fs.Clone(h.rng)
	}
	return after
}
