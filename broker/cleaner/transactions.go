package cleaner

import (
	"strandline/broker/locallog"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
)

// abortedTxns are aborted transactions by producer.
type abortedTxns map[cluster.ProducerID][]producerstate.AbortedTxn

func newAbortedTxns(txns []producerstate.AbortedTxn) abortedTxns {
	if len(txns) == 0 {
		return nil
	}
	a := abortedTxns{}
	for _, t := range txns {
		a[t.ProducerID] = append(a[t.ProducerID], t)
	}
	return a
}

// has says that a data batch belongs to one of them.
func (a abortedTxns) has(b recordbatch.Batch) bool {
	if len(a) == 0 || !b.IsTransactional() || b.IsControl() {
		return false
	}
	for _, t := range a[b.ProducerID()] {
		if b.BaseOffset() >= t.First && b.LastOffset() < t.Last {
			return true
		}
	}
	return false
}

// endedAt is the transaction whose marker is at an offset.
func (a abortedTxns) endedAt(id cluster.ProducerID, marker cluster.Offset) (producerstate.AbortedTxn, bool) {
	for _, t := range a[id] {
		if t.Last == marker {
			return t, true
		}
	}
	return producerstate.AbortedTxn{}, false
}

// transactions follows, in the order of the log, which producers have a data batch
// of a transaction whose marker has not come yet: a marker goes only after all of
// its transaction.
type transactions struct {
	pass  *pass
	need  bool           // whether any segment has markers
	first cluster.Offset // of the first segment
	open  map[cluster.ProducerID]struct{}
	at    cluster.Offset
}

func (p *pass) transactions(s CompactionState) *transactions {
	t := &transactions{pass: p, need: needsTransactions(s), first: s.Segments[0].Base}
	t.begin()
	return t
}

// begin goes back to the start of the log.
func (t *transactions) begin() { t.open, t.at = map[cluster.ProducerID]struct{}{}, t.first }

func needsTransactions(s CompactionState) bool {
	for _, seg := range s.Segments {
		if seg.Known && seg.Counts.Markers > 0 {
			return true
		}
	}
	return false
}

// headersStep is how many headers are looked at in one step.
const headersStep = 1 << 14

// reach brings the state to an offset by the headers of the segments that are not
// rewritten.
func (t *transactions) reach(to cluster.Offset) error {
	for t.need && t.at < to {
		s, known := t.pass.index.Segment(t.at)
		if known && !s.Transactions && s.Next <= to {
			t.at = s.Next
			continue
		}
		err := t.pass.step(func(l *locallog.Log) (err error) {
			left := headersStep
			t.at, err = l.Headers(max(t.at, l.StartOffset()), to, func(h segment.Header) bool {
				t.see(h.ProducerID, h.Control)
				left--
				return left > 0
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	t.at = max(t.at, to)
	return nil
}

// see takes in a batch of a transaction; NoProducerID is none.
func (t *transactions) see(id cluster.ProducerID, control bool) (hadData bool) {
	if id == cluster.NoProducerID {
		return false
	}
	if !control {
		t.open[id] = struct{}{}
		return true
	}
	_, hadData = t.open[id]
	delete(t.open, id)
	return hadData
}
