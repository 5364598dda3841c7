package producerstate

import (
	"cmp"
	"slices"

	"strandline/metadata/cluster"
)

// FirstUnstableOffset bounds the last stable offset (S5); false where nothing
// is unstable.
func (m *Manager) FirstUnstableOffset() (cluster.Offset, bool) {
	first, ok := m.FirstUndecidedOffset()
	if len(m.ended) > 0 && (!ok || m.ended[0].First < first) {
		return m.ended[0].First, true
	}
	return first, ok
}

// FirstUndecidedOffset is the first offset of the earliest open transaction.
func (m *Manager) FirstUndecidedOffset() (cluster.Offset, bool) {
	if len(m.open) == 0 {
		return cluster.NoOffset, false
	}
	return m.open[0].first, true
}

// AdvanceHighWatermark says that everything below hw is replicated: the
// transactions whose markers are there are stable.
func (m *Manager) AdvanceHighWatermark(hw cluster.Offset) {
	if len(m.ended) == 0 {
		return
	}
	m.ended = slices.DeleteFunc(m.ended, func(e EndedTxn) bool { return e.Last < hw })
}

// AdvanceLogStart says that the log now starts at start. Producers stay known:
// they expire by time.
func (m *Manager) AdvanceLogStart(start cluster.Offset) {
	m.AdvanceHighWatermark(start)
	m.mapEnd = max(m.mapEnd, start)
}

func (m *Manager) openTxn(t openTxn) {
	// Offsets rise, but a snapshot's producers come in order of their ids.
	i, _ := slices.BinarySearchFunc(m.open, t, compareOpen)
	m.open = slices.Insert(m.open, i, t)
}

func (m *Manager) closeTxn(e EndedTxn) {
	t := openTxn{first: e.First, producer: e.ProducerID}
	if i, ok := slices.BinarySearchFunc(m.open, t, compareOpen); ok {
		m.open = slices.Delete(m.open, i, i+1)
	}
	i, _ := slices.BinarySearchFunc(m.ended, e, func(a, b EndedTxn) int { return cmp.Compare(a.First, b.First) })
	m.ended = slices.Insert(m.ended, i, e)
}

// stableWithout is the first offset of the earliest transaction of another
// producer, else otherwise.
func (m *Manager) stableWithout(id cluster.ProducerID, otherwise cluster.Offset) cluster.Offset {
	for _, t := range m.open {
		if t.producer != id {
			return t.first
		}
	}
	return otherwise
}

func compareOpen(a, b openTxn) int {
	return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.producer, b.producer))
}
