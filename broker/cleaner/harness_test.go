package cleaner

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/keyindex"
	"strandline/broker/locallog"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

const (
	logDir   = "/logs/topic-0"
	indexDir = "/meta/keyindex"
)

var (
	testTP    = cluster.TopicPartition{Topic: cluster.TopicID{1}, Partition: 0}
	startTime = time.UnixMilli(1_700_000_000_000)
)

// bench is a log, its key index and a compactor, on one disk.
type bench struct {
	t        testing.TB
	fs       disk.FS
	now      time.Time
	cfg      locallog.Config
	log      *locallog.Log
	index    *keyindex.Index
	indexDir string
	c        *Compactor
	holds    cluster.Offset // what is not decided, where above 0
	serial   int
	onStep   func() // before each step of a pass
	onCommit func() error
	// afterCommit is what Commit says once all is done.
	afterCommit func() error
	changes     int64
}

func newBench(t testing.TB, fs disk.FS) *bench {
	t.Helper()
	b := newBenchIn(t, fs, logDir, indexDir)
	require.NoError(t, b.open())
	return b
}

// newBenchIn is a bench that is not open yet.
func newBenchIn(t testing.TB, fs disk.FS, logDir, indexDir string) *bench {
	b := &bench{t: t, fs: fs, now: startTime, indexDir: indexDir}
	b.cfg = locallog.Config{
		FS: fs, Dir: logDir, Partition: "topic-0", LogStart: cluster.NoOffset,
		Settings: locallog.Settings{SegmentBytes: 1500, IndexBytes: 1 << 20, IndexIntervalBytes: 200, FileDeleteDelay: time.Minute},
		Now:      func() time.Time { return b.now },
	}
	return b
}

func (b *bench) open() (err error) {
	b.cfg.FS = b.fs
	if b.log, err = locallog.Open(b.cfg); err != nil {
		return err
	}
	b.index, err = keyindex.Open(keyindex.Config{FS: b.fs, Dir: b.indexDir, MemTableBytes: 256 << 10, CacheBytes: 1 << 20, BulkKeys: 5})
	if err != nil {
		_ = b.log.Close(false)
		return err
	}
	b.c = &Compactor{
		Index: b.index, MemoryBytes: 1, StepBytes: 700,
		Pace:   func(ctx context.Context, _ int) error { return ctx.Err() },
		Now:    func() time.Time { return b.now },
		Logger: slog.New(slog.DiscardHandler),
	}
	return nil
}

func (b *bench) close(clean bool) {
	b.t.Helper()
	require.NoError(b.t, b.log.Close(clean))
	require.NoError(b.t, b.index.Close())
	b.cfg.CleanStop = clean
}

// bench is its compactor's Source.
func (b *bench) TopicPartition() cluster.TopicPartition { return testTP }

func (b *bench) Decided() cluster.Offset {
	decided := min(b.log.FlushedOffset(), b.stable())
	if b.holds > 0 {
		decided = min(decided, b.holds)
	}
	return decided
}

// stable is the last stable offset, everything appended being committed.
func (b *bench) stable() cluster.Offset {
	b.log.Producers().AdvanceHighWatermark(b.log.EndOffset())
	if first, ok := b.log.Producers().FirstUnstableOffset(); ok {
		return first
	}
	return b.log.EndOffset()
}

func (b *bench) Step(fn func(l *locallog.Log) error) (int64, error) {
	if b.onStep != nil {
		b.onStep()
	}
	return b.changes, fn(b.log)
}

func (b *bench) Commit(rw *locallog.Rewrite, removedBelow cluster.Offset) error {
	if b.onCommit != nil {
		if err := b.onCommit(); err != nil {
			return err
		}
	}
	if err := rw.Prepare(removedBelow); err != nil {
		return err
	}
	if err := rw.Publish(); err != nil {
		return err
	}
	if err := rw.Finish(); err != nil || b.afterCommit == nil {
		return err
	}
	return b.afterCommit()
}

func (b *bench) LastOfProducers() (map[cluster.ProducerID]producerstate.Entry, error) {
	out := map[cluster.ProducerID]producerstate.Entry{}
	for _, e := range b.log.Producers().Entries() {
		out[e.ProducerID] = e
	}
	return out, nil
}

// requireNoStrays: no file of a rewrite is left in the log's folder.
func (b *bench) requireNoStrays(where string) {
	b.t.Helper()
	names, err := b.fs.List(logDir)
	require.NoError(b.t, err)
	for _, name := range names {
		for _, part := range []string{segment.CleanedSuffix, segment.SwapSuffix, ".replaced", ".tmp"} {
			require.NotContains(b.t, name, part, where)
		}
	}
}

// limits compact everything at once.
func limits() CompactionLimits {
	return CompactionLimits{DirtyRatio: 0.01, MaxLag: forever, DeleteRetention: time.Minute, SegmentBytes: 1500}
}

func (b *bench) seal() {
	b.t.Helper()
	_, err := b.log.Roll()
	require.NoError(b.t, err)
	require.NoError(b.t, b.log.Flush(context.Background()))
}

func (b *bench) compact(l CompactionLimits) Result {
	b.t.Helper()
	r, err := b.c.Compact(context.Background(), b, l)
	require.NoError(b.t, err)
	return r
}

// keyed appends a batch of records; a value "-" is a tombstone.
func (b *bench) keyed(o recordbatch.Options, pairs ...string) recordbatch.Batch {
	b.t.Helper()
	o.BaseOffset = b.log.EndOffset()
	builder := recordbatch.NewBuilder(o)
	for i := 0; i < len(pairs); i += 2 {
		value := []byte(pairs[i+1])
		if pairs[i+1] == "-" {
			value = nil
		}
		builder.Add(b.now.UnixMilli(), []byte(pairs[i]), value)
	}
	batch := builder.Build()
	_, err := b.log.Append(batch)
	require.NoError(b.t, err)
	return batch
}

// marker ends a transaction.
func (b *bench) marker(p recordbatch.Producer, kind recordbatch.ControlType) recordbatch.Batch {
	b.t.Helper()
	o := recordbatch.Options{BaseOffset: b.log.EndOffset(), Producer: &p}
	batch := recordbatch.NewMarkerBatch(o, b.now.UnixMilli(), recordbatch.Marker{Type: kind})
	_, err := b.log.Append(batch)
	require.NoError(b.t, err)
	return batch
}

// batches reads the log from an offset.
func (b *bench) batches(from cluster.Offset) []recordbatch.Batch {
	b.t.Helper()
	var out []recordbatch.Batch
	for from < b.log.EndOffset() {
		s, err := b.log.Read(from, b.log.EndOffset(), 500, true)
		require.NoError(b.t, err)
		require.Greater(b.t, s.NextOffset, from, "I8")
		next := s.NextOffset
		got := batchesOf(b.t, s)
		require.NotEmpty(b.t, got, "I8: from %d", from)
		require.Greater(b.t, got[0].NextOffset(), from, "I8")
		out = append(out, got...)
		from = next
	}
	return out
}

func batchesOf(t testing.TB, s locallog.Slice) []recordbatch.Batch {
	t.Helper()
	defer s.Release()
	var out []recordbatch.Batch
	for _, r := range s.Regions {
		p := make([]byte, r.Bytes)
		if _, err := r.ReadAt(p, 0); err != nil {
			require.ErrorIs(t, err, io.EOF)
		}
		for len(p) > 0 {
			batch, rest, err := recordbatch.First(p)
			require.NoError(t, err)
			require.NoError(t, batch.Verify())
			out = append(out, batch)
			p = rest
		}
	}
	return out
}

// record is one record as a reader sees it.
type record struct {
	recordbatch.Record
	control bool
}

func recordsOf(t testing.TB, batches []recordbatch.Batch) []record {
	t.Helper()
	var out []record
	for _, b := range batches {
		for r, err := range new(recordbatch.Decoder).Records(b) {
			require.NoError(t, err)
			r.OffsetDelta = 0
			r.Key, r.Value = slices.Clone(r.Key), slices.Clone(r.Value)
			r.Headers = slices.Clone(r.Headers)
			out = append(out, record{r, b.IsControl()})
		}
	}
	return out
}

// committed are the records that a consumer of committed data gets: it goes by
// the list of aborted transactions and the markers.
func (b *bench) committed(from cluster.Offset) []record {
	b.t.Helper()
	aborted, err := b.log.AbortedTxns(from, b.log.EndOffset())
	require.NoError(b.t, err)
	return committedOf(b.t, b.batches(from), aborted, b.stable())
}

func committedOf(t testing.TB, batches []recordbatch.Batch, aborted []producerstate.AbortedTxn, stable cluster.Offset) []record {
	t.Helper()
	slices.SortFunc(aborted, func(a, b producerstate.AbortedTxn) int { return int(a.First - b.First) })
	skipping := map[cluster.ProducerID]bool{}
	var out []record
	for _, batch := range batches {
		if batch.BaseOffset() >= stable {
			break
		}
		for len(aborted) > 0 && aborted[0].First <= batch.LastOffset() {
			skipping[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		if batch.IsControl() {
			if m, ok, err := batch.Marker(); err == nil && ok && m.Type == recordbatch.ControlAbort {
				delete(skipping, batch.ProducerID())
			}
			continue
		}
		if batch.IsTransactional() && skipping[batch.ProducerID()] {
			continue
		}
		out = append(out, recordsOf(t, []recordbatch.Batch{batch})...)
	}
	return out
}

// fold makes a map of records, the last of each key.
func fold(records []record) map[string]string {
	m := map[string]string{}
	for _, r := range records {
		if r.Value == nil {
			delete(m, string(r.Key))
			continue
		}
		m[string(r.Key)] = string(r.Value)
	}
	return m
}

// values writes down what is left, as "offset key=value".
func values(records []record) []string {
	var out []string
	for _, r := range records {
		switch {
		case r.control:
			out = append(out, fmt.Sprintf("%d marker", r.Offset))
		case r.Value == nil:
			out = append(out, fmt.Sprintf("%d %s deleted", r.Offset, r.Key))
		default:
			out = append(out, fmt.Sprintf("%d %s=%s", r.Offset, r.Key, r.Value))
		}
	}
	return out
}
