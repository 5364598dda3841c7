package locallog

import (
	"errors"
	"fmt"
	"slices"

	"strandline/broker/producerstate"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
)

var errOtherTxns = errors.New("not what the batches say")

// AbortedTxns lists the aborted transactions that overlap from (inclusive) to to
// (exclusive), as a read-committed consumer needs them. A transaction index that
// cannot be read is made anew from the batches.
func (l *Log) AbortedTxns(from, to cluster.Offset) ([]producerstate.AbortedTxn, error) {
	return l.abortedTxns(from, to, false)
}

// CheckedAbortedTxns is AbortedTxns for what is kept elsewhere: a transaction index
// that this process has not made, which may be readable and wrong, is compared with
// the batches once, and made anew where it is. Not that of the active segment.
func (l *Log) CheckedAbortedTxns(from, to cluster.Offset) ([]producerstate.AbortedTxn, error) {
	return l.abortedTxns(from, to, true)
}

func (l *Log) abortedTxns(from, to cluster.Offset, check bool) ([]producerstate.AbortedTxn, error) {
	var out []producerstate.AbortedTxn
	err := l.consistently(func(s *segments) error {
		out = nil
		for i := s.at(from); i < len(s.row); i++ {
			txns, open, err := l.abortedOf(s.row, i, to, check)
			if err != nil {
				return err
			}
			for _, t := range txns {
				if t.Last >= from && t.First < to {
					out = append(out, t)
				}
				// Every transaction that starts below is decided by then.
				if t.LastStableOffset >= to {
					return nil
				}
			}
			if !open {
				return nil
			}
		}
		return nil
	})
	return out, err
}

// abortedOf is the transaction index of a segment of a row. open is false where no
// transaction that starts below to is known to end after the segment.
func (l *Log) abortedOf(row []*segment.Segment, i int, to cluster.Offset, check bool) (txns []producerstate.AbortedTxn, open bool, err error) {
	seg := row[i]
	usable := func() bool {
		txns, err = seg.Aborted()
		if err != nil {
			return !seg.AbortedDamaged(err)
		}
		return !check || seg.AbortedKnown() || !seg.Info().Sealed
	}
	if usable() {
		return txns, true, err
	}
	l.remaking.Lock()
	defer l.remaking.Unlock()
	if usable() { // meanwhile
		return txns, true, err
	}
	made, first, err2 := l.abortedByBatches(row, i)
	if err2 != nil {
		return nil, false, errors.Join(err, err2)
	}
	if err == nil && !slices.Equal(made, txns) {
		err = fmt.Errorf("transaction index: %w", errOtherTxns)
	}
	seg.SetAborted(made, err)
	return made, first < to, nil
}

// abortedByBatches is what a segment's transaction index must be, by the producer
// state at its base and its batches. firstOpen is where the first transaction
// starts that is open at its end, or its end.
func (l *Log) abortedByBatches(row []*segment.Segment, i int) (txns []producerstate.AbortedTxn, firstOpen cluster.Offset, err error) {
	seg := row[i]
	m, err := l.producersAt(seg.Base(), row[:i])
	if err != nil {
		return nil, 0, err
	}
	handle, err := seg.Acquire()
	if err != nil {
		return nil, 0, err
	}
	defer handle.Release()
	now := l.now()
	for b, err := range segment.Batches(handle.File(), seg.Bytes(), 0, seg.Base(), seg.LogName()) {
		if err != nil {
			return nil, 0, fmt.Errorf("make the transaction index anew: %w", err)
		}
		if ended, ok, err := m.Update(b.Batch, now); err == nil && ok && ended.Aborted {
			txns = append(txns, ended.AbortedTxn())
		}
	}
	firstOpen = seg.Next()
	if first, ok := m.FirstUndecidedOffset(); ok {
		firstOpen = min(firstOpen, first)
	}
	return txns, firstOpen, nil
}
