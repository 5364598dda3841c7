package cleaner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"strandline/broker/keyindex"
	"strandline/broker/locallog"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
)

// Source is a replica whose log is compacted.
type Source interface {
	TopicPartition() cluster.TopicPartition
	// Decided is the bound of what is decided and durable.
	Decided() cluster.Offset
	// Step runs fn with the log, which keeps its place in the file system meanwhile;
	// changes counts what fn's caller must not miss: truncations and starts at
	// another offset.
	Step(fn func(log *locallog.Log) error) (changes int64, err error)
	// Commit puts a rewrite in place, see partition.Partition.CommitRewrite.
	Commit(rw *locallog.Rewrite, removedBelow cluster.Offset) error
	// LastOfProducers is what every producer that is remembered has written last.
	LastOfProducers() (map[cluster.ProducerID]producerstate.Entry, error)
}

// ErrInterrupted: the log changed under a pass; the next one begins again.
var ErrInterrupted = errors.New("log changed during compaction")

// Compactor compacts logs. Its methods may be called for several partitions at
// once, for one by one goroutine at a time.
type Compactor struct {
	Index *keyindex.Index
	// MemoryBytes bounds the memory of a pass (log.cleaner.dedupe.buffer.size).
	MemoryBytes int64
	// StepBytes is how much is read at a time.
	StepBytes int
	// Pace is called with the bytes read or written since its last call, and may
	// wait. Its error ends the pass.
	Pace func(ctx context.Context, bytes int) error
	// Room says whether there is room on the disk for so many more bytes for a
	// while. Nil: always.
	Room func(bytes int64) bool
	// IndexRoom says whether there is room on the disk for the key index to grow. Nil:
	// always.
	IndexRoom func() bool
	Now       func() time.Time
	Logger    *slog.Logger
}

// errNoIndexRoom ends a pass that has no room for the key index any more.
var errNoIndexRoom = errors.New("no room for the key index")

// roomEvery is after how many bytes read it is looked whether there is.
const roomEvery = 4 << 20

// syncEvery is after how many bytes written a rewrite is synced, so that no sync
// of others waits for much of it.
const syncEvery = 8 << 20

// Result is what a pass did.
type Result struct {
	Due                     DueReason // "": none was due, and nothing was done
	Indexed                 cluster.Offset
	Records                 int64 // newly indexed
	RecordsRemoved          int64
	BytesRead, BytesWritten int64
	BytesBefore, BytesAfter int64 // of the segments that were rewritten
	SegmentsBefore          int
	SegmentsAfter           int
	KeysMax                 int // of a merge into the index
	// NoRoom is how many rewrites had to wait for room on the disk, or the key index.
	NoRoom int
}

// pass is one pass over one log.
type pass struct {
	c       *Compactor
	ctx     context.Context
	src     Source
	limits  CompactionLimits
	now     time.Time
	index   *keyindex.Partition
	log     *locallog.Log // as of the beginning, to tell that it is another
	changes int64
	buf     []byte
	result  Result
}

// Examine tells what of a log is to be compacted.
func (c *Compactor) Examine(src Source, limits CompactionLimits) (Dirt, error) {
	p, err := c.begin(context.Background(), src, limits)
	if err != nil {
		return Dirt{}, err
	}
	s, err := p.state()
	return Dirtiness(s, limits), err
}

// Compact runs a pass where one is due.
func (c *Compactor) Compact(ctx context.Context, src Source, limits CompactionLimits) (Result, error) {
	p, err := c.begin(ctx, src, limits)
	if err != nil {
		return Result{}, err
	}
	s, err := p.state()
	if err != nil {
		return p.result, err
	}
	d := Dirtiness(s, limits)
	if d.Due == "" {
		return p.result, nil
	}
	p.result.Due = d.Due
	err = p.run(d.Bound)
	p.result.Indexed = p.index.Position().Offset
	return p.result, err
}

// begin opens the index and holds it against the log (I10).
func (c *Compactor) begin(ctx context.Context, src Source, limits CompactionLimits) (*pass, error) {
	p := &pass{c: c, ctx: ctx, src: src, limits: limits, now: c.Now(), buf: make([]byte, 0, c.StepBytes)}
	var start, end cluster.Offset
	var fits bool
	index, err := c.Index.Open(src.TopicPartition())
	if err != nil {
		return nil, err
	}
	p.index = index
	at := index.Position()
	p.changes, err = src.Step(func(l *locallog.Log) error {
		p.log = l
		start, end = l.Segments()[0].Base, l.EndOffset()
		if at.Offset > l.StartOffset() && at.Offset <= end {
			epoch, known := l.EpochAt(at.Offset - 1)
			fits = at.LeaderEpoch == cluster.NoLeaderEpoch || known && epoch == at.LeaderEpoch
		} else {
			fits = at.Offset >= start && at.Offset <= end
		}
		return nil
	})
	if err != nil || fits {
		return p, err
	}
	if at.Offset != cluster.NoOffset {
		c.Logger.Info("key index does not fit the log and is made anew", "partition", src.TopicPartition().String(), "indexed", at.Offset, "log_start", start, "log_end", end)
	}
	return p, index.Reset(start)
}

// step runs fn with the log that the pass began with.
func (p *pass) step(fn func(l *locallog.Log) error) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	changes, err := p.src.Step(func(l *locallog.Log) error {
		if l != p.log {
			return ErrInterrupted
		}
		return fn(l)
	})
	if err == nil && changes != p.changes {
		err = ErrInterrupted
	}
	return interrupted(err)
}

// interrupted makes ErrInterrupted of what says that the log is not as it was.
func interrupted(err error) error {
	if errors.Is(err, locallog.ErrOvertaken) || errors.Is(err, locallog.ErrNotLocal) || errors.Is(err, locallog.ErrOffsetOutOfRange) {
		return fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return err
}

// state is the replica as the policy sees it.
func (p *pass) state() (CompactionState, error) {
	s := CompactionState{Now: p.now, Decided: p.src.Decided(), Indexed: p.index.Position().Offset}
	err := p.step(func(l *locallog.Log) error {
		start := l.StartOffset()
		for _, seg := range l.Segments() {
			if seg.Sealed && seg.Next <= start {
				continue // retention removes it
			}
			c := CompactionSegment{Base: seg.Base, Next: seg.Next, Bytes: seg.Bytes, MaxTimestamp: seg.MaxTimestamp, Sealed: seg.Sealed}
			c.Counts, c.Known = p.index.Segment(seg.Base)
			c.Known = c.Known && c.Counts.Next == seg.Next && c.Counts.Bytes == seg.Bytes
			if p.limits.MaxLag < forever && seg.Sealed && seg.Next > s.Indexed {
				if b, err := l.FindBatch(max(seg.Base, start)); err == nil {
					c.FirstTimestamp = b.MaxTimestamp
				}
			}
			s.Segments = append(s.Segments, c)
		}
		return nil
	})
	return s, err
}

// run brings the index to bound, and rewrites what pays.
func (p *pass) run(bound cluster.Offset) error {
	s, err := p.state()
	if err != nil {
		return err
	}
	if err := p.tidy(s); err != nil {
		return err
	}
	if err := p.feed(s, bound); errors.Is(err, errNoIndexRoom) {
		p.result.NoRoom++
		return nil
	} else if err != nil {
		return err
	}
	if s, err = p.state(); err != nil {
		return err
	}
	txns := p.transactions(s)
	clear := s.Indexed
	for _, run := range Runs(s, p.limits, bound) {
		run.TombstonesBelow = min(run.TombstonesBelow, clear)
		done, err := p.tryRewrite(run, bound, txns)
		if err != nil {
			return err
		}
		if !done {
			clear = min(clear, s.cleanThrough(run))
		}
	}
	return nil
}

// tryRewrite rewrites a run, unless there is no room for it, or it is not as it was:
// the next pass sees to it then.
func (p *pass) tryRewrite(run Run, bound cluster.Offset, txns *transactions) (done bool, err error) {
	if p.c.Room != nil && !p.c.Room(run.LiveBytes) {
		p.result.NoRoom++
		return false, nil
	}
	err = p.rewrite(run, bound, txns)
	if errors.Is(err, ErrInterrupted) && p.step(func(*locallog.Log) error { return nil }) == nil {
		return false, nil // not flushed yet, or trimmed
	}
	return err == nil, err
}

// tidy makes the index forget what left the log, and count again what it does not
// know.
func (p *pass) tidy(s CompactionState) error {
	here := map[cluster.Offset]bool{}
	for _, seg := range s.Segments {
		here[seg.Base] = true
	}
	if err := p.index.Retain(func(k keyindex.Segment) bool { return here[k.Base] }); err != nil {
		return err
	}
	live := int64(0)
	for _, seg := range s.Segments {
		if seg.Known || !seg.Sealed || seg.Base >= s.Indexed {
			live += seg.Counts.Live()
			continue
		}
		count := p.index.Count(seg.Base, seg.Next, seg.Bytes, p.c.MemoryBytes)
		if err := p.read(seg.Base, seg.Next, count.Add); err != nil {
			return err
		}
		if err := count.Commit(); err != nil {
			return err
		}
		counted, _ := p.index.Segment(seg.Base)
		live += counted.Live()
	}
	if p.index.Keys() > 2*live+sweepMin {
		removed, err := p.index.Sweep(s.Segments[0].Base)
		if err != nil {
			return err
		}
		p.c.Logger.Debug("key index forgot keys that left the log", "partition", p.src.TopicPartition().String(), "keys", removed)
	}
	return nil
}

// sweepMin is how many keys too many an index may have in any case.
const sweepMin = 10_000

// feed takes the segments from the index's position to bound in.
func (p *pass) feed(s CompactionState, bound cluster.Offset) error {
	from := p.index.Position().Offset
	if from >= bound {
		return nil
	}
	room := func() bool { return p.c.IndexRoom == nil || p.c.IndexRoom() }
	if !room() {
		p.result.NoRoom++
		return nil // what is in it already is compacted
	}
	feed := p.index.Feed(p.c.MemoryBytes)
	looked := p.result.BytesRead
	add := func(b recordbatch.Batch, aborted bool) error {
		if p.result.BytesRead-looked >= roomEvery {
			looked = p.result.BytesRead
			if !room() {
				return errNoIndexRoom
			}
		}
		return feed.Add(b, aborted)
	}
	for _, seg := range s.Segments {
		if seg.Next <= from || seg.Next > bound {
			continue
		}
		feed.Segment(seg.Base, seg.Next, seg.Bytes)
		if err := p.read(max(from, seg.Base), seg.Next, add); err != nil {
			return err
		}
	}
	at := keyindex.Position{Offset: bound, LeaderEpoch: cluster.NoLeaderEpoch}
	err := p.step(func(l *locallog.Log) error {
		if epoch, ok := l.EpochAt(bound - 1); ok {
			at.LeaderEpoch = epoch
		}
		return nil
	})
	if err != nil {
		return err
	}
	stats, err := feed.Commit(at)
	p.result.Records += stats.Records
	p.result.KeysMax = max(p.result.KeysMax, stats.KeysMax)
	return err
}

// read gives the batches of a part of one segment to fn, and whether their
// transaction was aborted.
func (p *pass) read(from, to cluster.Offset, fn func(b recordbatch.Batch, aborted bool) error) error {
	var aborted abortedTxns
	err := p.step(func(l *locallog.Log) error {
		from = max(from, l.StartOffset())
		txns, err := l.CheckedAbortedTxns(from, to)
		aborted = newAbortedTxns(txns)
		return err
	})
	if err != nil {
		return err
	}
	return p.batches(from, to, func(b recordbatch.Batch) error { return fn(b, aborted.has(b)) })
}

// batches gives the batches from the one that reaches past from to fn, as long as
// they lie below to. Each is checked.
func (p *pass) batches(from, to cluster.Offset, fn func(b recordbatch.Batch) error) error {
	for from < to {
		next := to
		err := p.step(func(l *locallog.Log) (err error) {
			from = max(from, l.StartOffset()) // what lies below may be trimmed
			next, err = p.load(l, from, to)
			return err
		})
		if err != nil {
			return err
		}
		p.result.BytesRead += int64(len(p.buf))
		if err := p.c.Pace(p.ctx, len(p.buf)); err != nil {
			return err
		}
		for rest := p.buf; len(rest) > 0; {
			var b recordbatch.Batch
			if b, rest, err = recordbatch.First(rest); err == nil {
				err = b.Verify()
			}
			if err != nil {
				return &segment.CorruptError{File: p.src.TopicPartition().String(), Cause: fmt.Errorf("batch between offsets %d and %d: %w", from, next, err)}
			}
			if err := fn(b); err != nil {
				return err
			}
		}
		from = next
	}
	return nil
}

// load reads some batches into the pass's buffer; next is where to go on.
func (p *pass) load(l *locallog.Log, from, to cluster.Offset) (next cluster.Offset, err error) {
	p.buf = p.buf[:0]
	if from >= to {
		return to, nil
	}
	slice, err := l.Read(from, to, p.c.StepBytes, true)
	if err != nil {
		return from, err
	}
	defer slice.Release()
	for _, r := range slice.Regions {
		at := len(p.buf)
		if need := at + int(r.Bytes); cap(p.buf) < need {
			p.buf = append(make([]byte, 0, need), p.buf...)
		}
		p.buf = p.buf[:at+int(r.Bytes)]
		if n, err := r.ReadAt(p.buf[at:], 0); n < int(r.Bytes) {
			return from, fmt.Errorf("read for compaction: %w", err)
		}
	}
	if slice.Bytes == 0 {
		return to, nil // a hole
	}
	return slice.NextOffset, nil
}
