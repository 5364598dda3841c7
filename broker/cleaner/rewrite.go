package cleaner

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"strandline/broker/keyindex"
	"strandline/broker/locallog"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/background"
	"strandline/metadata/cluster"
)

// rewriter makes the new segments of one run.
type rewriter struct {
	*pass
	run   Run
	bound cluster.Offset // of the pass: the batch that ends there stays, even empty
	rw    *locallog.Rewrite

	dead      deadOffsets
	producers map[cluster.ProducerID]producerstate.Entry
	aborted   abortedTxns
	txns      *transactions
	forget    *keyindex.Forgetting
	decoder   recordbatch.Decoder

	// What is not written yet: batches, what the filter left of each, and aborted
	// transactions whose markers are among them.
	out     []byte
	pending []recordbatch.Filtered
	aborts  []producerstate.AbortedTxn

	tallies  []*keyindex.Tally // of the new segments
	removed  cluster.Offset    // one past the highest tombstone or marker that is left out
	dropped  int64             // records
	changed  bool
	unsynced int
}

// rewrite makes one run anew and puts it in place.
func (p *pass) rewrite(run Run, bound cluster.Offset, txns *transactions) error {
	if err := txns.reach(run.First); err != nil {
		return err
	}
	r := &rewriter{pass: p, run: run, bound: bound, txns: txns, forget: p.index.Forgetting()}
	var err error
	if r.producers, err = p.src.LastOfProducers(); err != nil {
		return err
	}
	var before []locallog.SegmentInfo
	err = p.step(func(l *locallog.Log) error {
		txns, err := l.CheckedAbortedTxns(max(run.First, l.StartOffset()), run.Next)
		if err != nil {
			return err
		}
		r.aborted = newAbortedTxns(txns)
		for _, s := range l.Segments() {
			if s.Base >= run.First && s.Base < run.Next {
				before = append(before, s)
			}
		}
		r.rw, err = l.BeginRewrite(run.First, run.Next)
		return err
	})
	if r.rw == nil {
		return err
	}
	if err == nil {
		err = r.fill()
	}
	if txns.at = run.Next; err != nil {
		txns.begin() // some of the run was not seen
	}
	if err == nil && (r.changed || len(before) > 1) {
		if err = interrupted(p.src.Commit(r.rw, r.removed)); err == nil {
			return r.committed(before)
		}
	}
	abort := func(*locallog.Log) error { return r.rw.Abort() }
	if _, e := p.src.Step(abort); e != nil && err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return r.unchanged()
}

// fill copies what stays of the run.
func (r *rewriter) fill() error {
	r.dead = newDeadOffsets(r.index.Dead(r.run.First, r.run.Next))
	defer r.dead.stop()
	r.tallies = []*keyindex.Tally{keyindex.NewTally(r.run.First)}
	if err := r.batches(r.run.First, r.run.Next, r.take); err != nil {
		return err
	}
	return r.flush()
}

// take puts what stays of a batch into out.
func (r *rewriter) take(b recordbatch.Batch) error {
	background.Yield()
	at := len(r.out)
	var f recordbatch.Filtered
	var err error
	if b.IsControl() {
		f, err = r.takeControl(b)
	} else {
		f, err = r.takeData(b)
	}
	if err != nil {
		return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	if len(r.out) == at && r.staysEmpty(b) {
		r.out = b.AppendEmptied(r.out)
	}
	r.dropped += int64(f.Dropped)
	r.changed = r.changed || f.Dropped > 0 || f.Stamped || len(r.out)-at != len(b)
	if len(r.out) > at {
		r.pending = append(r.pending, f)
	}
	if len(r.out) < r.c.StepBytes {
		return nil
	}
	return r.flush()
}

func (r *rewriter) takeData(b recordbatch.Batch) (f recordbatch.Filtered, err error) {
	if b.IsTransactional() {
		r.txns.see(b.ProducerID(), false)
	}
	filter := recordbatch.Filter{}
	if b.NextOffset() <= r.run.TombstonesBelow {
		filter.DeleteHorizon = r.horizon()
	}
	expired := r.expired(b)
	var failed error
	filter.Keep = func(k recordbatch.KeyedRecord) bool {
		dead, err := r.dead.has(k.Offset)
		if err != nil {
			failed = err
		}
		if dead || k.Key == nil {
			return false
		}
		if k.Tombstone && expired && k.Offset < r.run.TombstonesBelow {
			r.removed = max(r.removed, k.Offset+1)
			if err := r.forget.Key(k.Key); err != nil {
				failed = err
			}
			return false
		}
		return true
	}
	r.out, f, err = r.decoder.AppendFiltered(r.out, b, filter)
	return f, errors.Join(err, failed)
}

// takeControl keeps a marker until all of its transaction is gone, and then until
// the delete horizon that it gets.
func (r *rewriter) takeControl(b recordbatch.Batch) (f recordbatch.Filtered, err error) {
	needed := r.txns.see(b.ProducerID(), true)
	if b.RecordCount() == 0 {
		return f, nil
	}
	if !needed && r.expired(b) {
		r.removed = max(r.removed, b.NextOffset())
		return recordbatch.Filtered{Dropped: int(b.RecordCount())}, nil
	}
	filter := recordbatch.Filter{Keep: func(recordbatch.KeyedRecord) bool { return true }}
	if !needed {
		filter.DeleteHorizon = r.horizon()
	} else if t, ok := r.aborted.endedAt(b.ProducerID(), b.BaseOffset()); ok {
		r.aborts = append(r.aborts, t)
	}
	r.out, f, err = r.decoder.AppendFiltered(r.out, b, filter)
	return f, err
}

// horizon is the delete horizon of what gets one now.
func (r *rewriter) horizon() int64 {
	if r.limits.DeleteRetention >= forever {
		return 0
	}
	return max(1, r.now.Add(r.limits.DeleteRetention).UnixMilli())
}

func (r *rewriter) expired(b recordbatch.Batch) bool {
	return b.HasDeleteHorizon() && b.FirstTimestamp() <= r.now.UnixMilli()
}

// staysEmpty says that a batch stays although no record of it does: it is the last
// of its producer, whose sequence or epoch it keeps, or the last that the pass may
// touch, which keeps the offset that the log ends at.
func (r *rewriter) staysEmpty(b recordbatch.Batch) bool {
	if b.NextOffset() == r.bound {
		return true
	}
	last, known := r.producers[b.ProducerID()]
	if !known || !b.HasProducerID() {
		return false
	}
	if last.LastOffset != cluster.NoOffset {
		return b.LastOffset() == last.LastOffset
	}
	return b.IsControl() && b.ProducerEpoch() == last.ProducerEpoch
}

// flush writes out.
func (r *rewriter) flush() error {
	if len(r.out) == 0 {
		return nil
	}
	files := r.rw.Files()
	if err := r.rw.Append(r.out); err != nil {
		return err
	}
	for _, t := range r.aborts {
		r.rw.AddAborted(t)
	}
	rest := r.out
	for i, f := range r.pending {
		b, more, err := recordbatch.First(rest)
		if err != nil {
			return err
		}
		if i == 0 && r.rw.Files() > files {
			r.tallies = append(r.tallies, keyindex.NewTally(b.BaseOffset()))
		}
		r.tallies[len(r.tallies)-1].Add(b, f)
		rest = more
	}
	bytes := len(r.out)
	r.result.BytesWritten += int64(bytes)
	r.out, r.pending, r.aborts = r.out[:0], r.pending[:0], r.aborts[:0]
	if r.unsynced += bytes; r.unsynced >= syncEvery {
		r.unsynced = 0
		if err := r.rw.SyncSome(); err != nil {
			return err
		}
	}
	return r.c.Pace(r.ctx, bytes)
}

// committed tells the index what the new segments hold.
func (r *rewriter) committed(before []locallog.SegmentInfo) error {
	var segments []keyindex.Segment
	for _, info := range r.rw.Segments() {
		i := slices.IndexFunc(r.tallies, func(t *keyindex.Tally) bool { return t.Base() == info.Base })
		if i < 0 {
			continue // counted by the next pass
		}
		s := r.tallies[i].Segment()
		s.Next, s.Bytes = info.Next, info.Bytes
		s.CleanedThrough, s.FilteredAt = r.index.Position().Offset, r.now.UnixMilli()
		segments = append(segments, s)
		r.result.BytesAfter += info.Bytes
	}
	for _, s := range before {
		r.result.BytesBefore += s.Bytes
	}
	r.result.RecordsRemoved += r.dropped
	r.result.SegmentsBefore += len(before)
	r.result.SegmentsAfter += len(segments)
	if err := r.index.Replaced(r.run.First, r.run.Next, segments); err != nil {
		return err
	}
	return r.forget.Commit()
}

// unchanged notes that a segment was filtered and nothing was to be left out.
func (r *rewriter) unchanged() error {
	s, ok := r.index.Segment(r.run.First)
	if !ok {
		return nil
	}
	s.CleanedThrough, s.FilteredAt = r.index.Position().Offset, r.now.UnixMilli()
	s.DeadRecords, s.DeadBytes = 0, 0
	return r.index.Replaced(r.run.First, r.run.Next, []keyindex.Segment{s})
}

// deadOffsets is asked for rising offsets.
type deadOffsets struct {
	next func() (cluster.Offset, error, bool)
	stop func()
	at   cluster.Offset
	more bool
	err  error
}

func newDeadOffsets(all iter.Seq2[cluster.Offset, error]) deadOffsets {
	d := deadOffsets{at: cluster.NoOffset, more: true}
	d.next, d.stop = iter.Pull2(all)
	return d
}

func (d *deadOffsets) has(o cluster.Offset) (bool, error) {
	for d.more && d.err == nil && d.at < o {
		d.at, d.err, d.more = d.next()
	}
	return d.more && d.at == o, d.err
}
