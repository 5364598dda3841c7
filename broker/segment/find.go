package segment

import (
	"errors"
	"io"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Range is whole batches of one file.
type Range struct {
	Start, End int64 // positions, End exclusive
	// Next is one past the last batch's last offset (or the next batch's base
	// offset, where compaction left a hole); the asked offset if empty.
	Next cluster.Offset
	// AtEnd says that the range reaches the end of the segment's file.
	AtEnd bool
}

// Limits bound a Range.
type Limits struct {
	// Bound: only batches that lie below it wholly (exclusive).
	Bound cluster.Offset
	// MaxBytes: no more than that, unless MinOne: then one batch of any size.
	MaxBytes int64
	MinOne   bool
}

// Range finds the batches from the one that reaches past from, within the
// limits. Empty with AtEnd means that nothing in the segment reaches past from.
func (s *Segment) Range(from cluster.Offset, lim Limits) (Range, error) {
	r, err := s.rangeIndexed(from, lim, true)
	if err == nil {
		return r, nil
	}
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		// Perhaps only the index is wrong (S4).
		fixed := s.reindexOnce(err)
		if r, err = s.rangeIndexed(from, lim, fixed); fixed && errors.As(err, &corrupt) {
			return s.rangeIndexed(from, lim, false)
		}
	}
	return r, err
}

func (s *Segment) rangeIndexed(from cluster.Offset, lim Limits, useIndex bool) (Range, error) {
	v, err := s.view(useIndex)
	if err != nil {
		return Range{}, err
	}
	defer v.release()
	start, ok, err := v.start(from)
	if err != nil || !ok {
		return Range{Start: v.bytes, End: v.bytes, Next: from, AtEnd: true}, err
	}
	limit := v.bytes
	if lim.MaxBytes < limit-start {
		limit = start + max(lim.MaxBytes, 0)
	}
	if limit == v.bytes && lim.Bound >= v.next {
		return Range{start, limit, v.next, true}, nil
	}
	if end, ok := v.hint(lim.Bound); ok && end <= limit && end > start {
		return Range{start, end, lim.Bound, end == v.bytes}, nil
	}
	r, err := v.cut(start, limit, from, lim)
	if err == nil && r.End > r.Start {
		s.mu.Lock()
		s.mu.hints.add(r.Next, r.End)
		s.mu.Unlock()
	}
	return r, err
}

// view is what a lookup needs of a segment, held still.
type view struct {
	s *Segment
	state
	log      io.ReaderAt
	useIndex bool
	held     [4]*disk.Handle // the log, and an index that is looked at up to three times
	heldNow  int
}

func (s *Segment) view(useIndex bool) (view, error) {
	h, err := s.Acquire()
	if err != nil {
		return view{}, err
	}
	v := view{s: s, state: s.state(), log: h.File(), useIndex: useIndex}
	v.hold(h)
	return v, nil
}

func (v *view) hold(h *disk.Handle) {
	v.held[v.heldNow] = h
	v.heldNow++
}

func (v *view) release() {
	for _, h := range v.held[:v.heldNow] {
		h.Release()
	}
}

func (v *view) hint(next cluster.Offset) (int64, bool) {
	if !v.useIndex {
		return 0, false
	}
	v.s.mu.RLock()
	defer v.s.mu.RUnlock()
	return v.s.mu.hints.find(next)
}

// table returns an index of the segment.
func (v *view) table(name string, mem []byte, count, width int) (table, error) {
	t := table{mem: mem, count: count, width: width}
	if !v.sealed || count == 0 || mem != nil {
		return t, nil
	}
	h, err := v.s.cached(name)
	if err != nil {
		return t, err
	}
	v.hold(h)
	t.src = h.File()
	return t, nil
}

// lastEntry is the last offset index entry for which ok holds; the start of the
// file where there is none.
func (v *view) lastEntry(guess float64, ok func(e OffsetEntry) bool) (OffsetEntry, bool, error) {
	none := OffsetEntry{Offset: v.s.base, Position: 0}
	if !v.useIndex {
		return none, false, nil
	}
	t, err := v.table(v.s.indexName, v.index, v.indexCount, OffsetEntryBytes)
	if err != nil {
		return none, false, err
	}
	e, place, err := t.lastWhere(guess, func(p []byte) bool { return ok(decodeOffsetEntry(p, v.s.base)) })
	if err != nil || place < 0 {
		return none, false, err
	}
	return decodeOffsetEntry(e[:], v.s.base), true, nil
}

// start is the position of the first batch that reaches past from; false where
// there is none.
func (v *view) start(from cluster.Offset) (int64, bool, error) {
	if from <= v.s.base && v.bytes > 0 {
		return 0, true, nil
	}
	if pos, ok := v.hint(from); ok {
		return pos, pos < v.bytes, nil
	}
	h, ok, err := v.find(from)
	return h.Position, ok, err
}

// find is the first batch that reaches past o.
func (v *view) find(o cluster.Offset) (Header, bool, error) {
	if o >= v.next {
		return Header{}, false, nil
	}
	e, indexed, err := v.lastEntry(share(int64(o-v.s.base), int64(v.next-v.s.base)), func(e OffsetEntry) bool { return e.Offset <= o })
	if err != nil {
		return Header{}, false, err
	}
	w := v.walk(e.Position)
	defer w.close()
	if err := v.believe(e, indexed, &w); err != nil {
		return Header{}, false, err
	}
	for more := w.h.Bytes > 0 || w.next(); more; more = w.next() {
		if w.h.Next > o {
			return w.h, true, nil
		}
	}
	return Header{}, false, w.err
}

// believe moves a walk that starts at an index entry to its first batch, and
// compares the two (S1).
func (v *view) believe(e OffsetEntry, indexed bool, w *headerWalk) error {
	if !indexed {
		return nil
	}
	if ok := w.next(); w.err != nil {
		return w.err
	} else if !ok || w.h.Next-1 != e.Offset {
		return &CorruptError{v.s.indexName, 0, errIndexLies}
	}
	return nil
}

var errIndexLies = errors.New("index names another batch than the one at its position")

func share(part, whole int64) float64 { return float64(part) / float64(max(whole, 1)) }

func (v *view) walk(pos int64) headerWalk {
	return headerWalk{src: v.log, name: v.s.logName, pos: pos, limit: v.bytes, from: v.s.base}
}

// cut finds the last batch boundary at or below limit and the bound, walking
// from the last index entry that is below both.
func (v *view) cut(start, limit int64, from cluster.Offset, lim Limits) (Range, error) {
	e, indexed, err := v.lastEntry(share(limit, v.bytes), func(e OffsetEntry) bool { return e.Position <= limit && e.Offset < lim.Bound })
	if err != nil {
		return Range{}, err
	}
	indexed = indexed && e.Position >= start
	r := Range{Start: start, End: max(start, e.Position), Next: from}
	w := v.walk(r.End)
	defer w.close()
	if err := v.believe(e, indexed, &w); err != nil {
		return r, err
	}
	for more := w.h.Bytes > 0 || w.next(); more; more = w.next() {
		fits := w.h.End() <= limit || lim.MinOne && w.h.Position == start
		if !fits || w.h.Next > lim.Bound {
			if r.End > start && r.End == w.h.Position && r.Next == from {
				r.Next = w.h.Base
			}
			return r, nil
		}
		r.End, r.Next = w.h.End(), w.h.Next
	}
	r.AtEnd = r.End == v.bytes
	return r, w.err
}

// FindBatch is the first batch that reaches past o; false where there is none.
func (s *Segment) FindBatch(o cluster.Offset) (Header, bool, error) {
	var h Header
	var ok bool
	err := s.lookup(func(v *view) (err error) {
		h, ok, err = v.find(o)
		return err
	})
	return h, ok, err
}

// lookup runs fn with the index and, if that ends at something corrupt, again
// with the index made anew, or without (S4).
func (s *Segment) lookup(fn func(v *view) error) error {
	err := s.lookupOnce(true, fn)
	if err == nil {
		return nil
	}
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) {
		return err
	}
	fixed := s.reindexOnce(err)
	if err = s.lookupOnce(fixed, fn); fixed && errors.As(err, &corrupt) {
		return s.lookupOnce(false, fn)
	}
	return err
}

func (s *Segment) lookupOnce(useIndex bool, fn func(v *view) error) error {
	v, err := s.view(useIndex)
	if err != nil {
		return err
	}
	defer v.release()
	return fn(&v)
}

// FirstAtTime finds the first batch that reaches past from and has a timestamp
// of at least ts in its header, and reads it. False where there is none below
// bound (exclusive, of the batch's base offset).
func (s *Segment) FirstAtTime(ts int64, from, bound cluster.Offset) (recordbatch.Batch, bool, error) {
	var b recordbatch.Batch
	err := s.lookup(func(v *view) (err error) {
		b, err = v.firstAtTime(ts, from, bound)
		return err
	})
	return b, b != nil, err
}

func (v *view) firstAtTime(ts int64, from, bound cluster.Offset) (recordbatch.Batch, error) {
	// No batch up to the last time entry below ts has it.
	pos := int64(0)
	if v.useIndex {
		t, err := v.table(v.s.timeName, v.timeIndex, v.timeCount, TimeEntryBytes)
		if err != nil {
			return nil, err
		}
		e, place, err := t.lastWhere(0.5, func(p []byte) bool { return decodeTimeEntry(p, v.s.base).Timestamp < ts })
		if err != nil {
			return nil, err
		}
		if place >= 0 {
			from = max(from, decodeTimeEntry(e[:], v.s.base).Offset+1)
		}
		h, ok, err := v.find(from)
		if err != nil || !ok {
			return nil, err
		}
		pos = h.Position
	}
	w := v.walk(pos)
	defer w.close()
	for w.next() {
		if w.h.Base >= bound {
			return nil, nil
		}
		if w.h.Next > from && w.h.MaxTimestamp >= ts {
			return v.read(w.h)
		}
	}
	return nil, w.err
}

func (v *view) read(h Header) (recordbatch.Batch, error) {
	p := make([]byte, h.Bytes)
	if err := readFull(v.log, p, h.Position); err != nil {
		return nil, err
	}
	b := recordbatch.Batch(p)
	if err := b.Verify(); err != nil {
		return nil, &CorruptError{v.s.logName, h.Position, err}
	}
	return b, nil
}

// MaxTimestamp is the greatest timestamp of the batches that reach past from and
// lie below bound, by their headers; false where there is none.
func (s *Segment) MaxTimestamp(from, bound cluster.Offset) (int64, bool, error) {
	st := s.state()
	if st.bytes > 0 && from <= st.offsetOfMaxTimestamp && st.offsetOfMaxTimestamp < bound {
		return st.maxTimestamp, true, nil
	}
	greatest, any := noTimestamp, false
	err := s.Headers(from, func(h Header) bool {
		if h.Next > bound {
			return false
		}
		greatest, any = max(greatest, h.MaxTimestamp), true
		return true
	})
	return greatest, any, err
}

// MaxTimestampOfRecords is MaxTimestamp of the batches that hold records. It reads
// all headers.
func (s *Segment) MaxTimestampOfRecords(from, bound cluster.Offset) (int64, bool, error) {
	greatest, any := noTimestamp, false
	err := s.Headers(from, func(h Header) bool {
		if h.Next > bound {
			return false
		}
		if !h.Empty {
			greatest, any = max(greatest, h.MaxTimestamp), true
		}
		return true
	})
	return greatest, any, err
}

// Aborted returns the segment's transaction index.
func (s *Segment) Aborted() ([]producerstate.AbortedTxn, error) {
	st := s.state()
	if st.txnCount == 0 || !st.sealed || st.txns != nil {
		return st.txns, nil
	}
	h, err := s.cached(s.txnName)
	if err != nil {
		return nil, err
	}
	defer h.Release()
	data := make([]byte, st.txnCount*TxnEntryBytes)
	if err := readFull(h.File(), data, 0); err != nil {
		return nil, err
	}
	return ParseTxnIndex(data, s.txnName)
}

// Headers calls visit with each batch's header from the one that reaches past
// from, until it returns false. Where an index is wrong it starts over.
func (s *Segment) Headers(from cluster.Offset, visit func(h Header) bool) error {
	return s.lookup(func(v *view) error {
		h, ok, err := v.find(from)
		if err != nil || !ok {
			return err
		}
		w := v.walk(h.Position)
		defer w.close()
		for w.next() && visit(w.h) {
		}
		return w.err
	})
}

// OffsetIndex returns the entries of the offset index.
func (s *Segment) OffsetIndex() ([]OffsetEntry, error) {
	st := s.state()
	data, err := s.image(s.indexName, st.index, st.indexCount*OffsetEntryBytes, st.sealed)
	if err != nil {
		return nil, err
	}
	return ParseOffsetIndex(data, s.base, s.indexName)
}

// TimeIndex returns the entries of the time index.
func (s *Segment) TimeIndex() ([]TimeEntry, error) {
	st := s.state()
	data, err := s.image(s.timeName, st.timeIndex, st.timeCount*TimeEntryBytes, st.sealed)
	if err != nil {
		return nil, err
	}
	return ParseTimeIndex(data, s.base, s.timeName)
}

func (s *Segment) image(name string, mem []byte, bytes int, sealed bool) ([]byte, error) {
	if !sealed || bytes == 0 || mem != nil {
		return mem, nil
	}
	h, err := s.cached(name)
	if err != nil {
		return nil, err
	}
	defer h.Release()
	data := make([]byte, bytes)
	if err := readFull(h.File(), data, 0); errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, &CorruptError{name, 0, err} // it was longer when it was opened
	} else if err != nil {
		return nil, err
	}
	return data, nil
}
