package segment

import (
	"errors"

	"strandline/broker/producerstate"
)

// reindexIntervalBytes is the index interval of indexes that a lookup has to make
// anew: the default of index.interval.bytes, since a sealed segment does not say
// which it was written with.
const reindexIntervalBytes = 4096

// IndexDamaged says whether an error is about a damaged offset or time index of
// the segment, which Reindex makes good.
func (s *Segment) IndexDamaged(err error) bool {
	var corrupt *CorruptError
	return errors.As(err, &corrupt) && (corrupt.File == s.indexName || corrupt.File == s.timeName)
}

// Reindex makes the offset and time index of a sealed segment anew from the
// headers of its batches, in memory: the files follow with SaveIndexes. cause is
// what was found wrong, for Where.Reindexed. Its error is a *CorruptError where
// the log itself is damaged. Concurrent calls, and lookups meanwhile, are right.
func (s *Segment) Reindex(cause error) error {
	h, err := s.Acquire()
	if err != nil {
		return err
	}
	defer h.Release()
	fresh := newSegment(s.where, s.base)
	st := fresh.mu.state
	w := headerWalk{src: h.File(), name: s.logName, limit: s.Bytes(), from: s.base}
	defer w.close()
	for w.next() {
		fresh.take(&st, w.h, reindexIntervalBytes)
	}
	if w.err != nil {
		return w.err
	}
	fresh.addTimeEntry(&st)
	s.mu.Lock()
	if !s.mu.sealed {
		s.mu.Unlock()
		return nil
	}
	s.mu.index, s.mu.indexCount = st.index, st.indexCount
	s.mu.timeIndex, s.mu.timeCount = st.timeIndex, st.timeCount
	s.mu.maxTimestamp, s.mu.offsetOfMaxTimestamp = st.maxTimestamp, st.offsetOfMaxTimestamp
	s.mu.Unlock()
	if s.where.Reindexed != nil {
		s.where.Reindexed(s.base, cause)
	}
	return nil
}

// reindexOnce is Reindex for a lookup, of which the first one that fails tries it:
// the others go without the index meanwhile, and for good where the log is
// damaged too. It reports whether the index may be used.
func (s *Segment) reindexOnce(cause error) bool {
	if !s.state().sealed || !s.reindexed.CompareAndSwap(false, true) {
		return false
	}
	return s.Reindex(cause) == nil
}

// AbortedDamaged says whether an error is about a damaged transaction index of the
// segment, which SetAborted makes good.
func (s *Segment) AbortedDamaged(err error) bool {
	var corrupt *CorruptError
	return errors.As(err, &corrupt) && corrupt.File == s.txnName
}

// AbortedKnown says whether Aborted is what the batches say, as far as is known,
// and not only what the file of the transaction index said when it was opened.
func (s *Segment) AbortedKnown() bool { return s.abortedKnown.Load() }

// SetAborted takes what the batches of a sealed segment, and of those before it,
// say of aborted transactions. Where that is another list than the file's, cause is
// what is wrong with that, for Where.Reindexed, and the file follows with
// SaveIndexes; nil: the file is right. Calls must not overlap; lookups may.
func (s *Segment) SetAborted(txns []producerstate.AbortedTxn, cause error) {
	if cause != nil {
		s.mu.Lock()
		s.mu.txns, s.mu.txnCount = txns, len(txns)
		s.mu.Unlock()
		s.abortedRemade.Store(true)
		if s.where.Reindexed != nil {
			s.where.Reindexed(s.base, cause)
		}
	}
	s.abortedKnown.Store(true)
}

// SaveIndexes writes the indexes that Reindex and SetAborted made to their files,
// durably, where there are any. Only whoever writes the log may call it.
func (s *Segment) SaveIndexes() error {
	st := s.state()
	if !st.sealed {
		return nil
	}
	if st.timeIndex != nil {
		if err := s.replace(s.indexName, st.index, true); err != nil {
			return err
		}
		if err := s.replace(s.timeName, st.timeIndex, true); err != nil {
			return err
		}
	}
	switch {
	case !s.abortedRemade.Load():
		return nil
	case len(st.txns) == 0:
		return removeIfThere(s.where.FS, s.txnName)
	}
	return s.replace(s.txnName, encodeTxns(st.txns), true)
}
