package segmentobject

import (
	"encoding/binary"
	"sort"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
)

// Sizes of section entries.
const (
	offsetEntryBytes = 16
	timeEntryBytes   = 16
	abortedBytes     = 32
	epochBytes       = 12
)

// offsetEntry says that a batch with the base offset Base+relative starts at position.
type offsetEntry struct{ relative, position int64 }

func appendOffsetEntry(b []byte, e offsetEntry) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(e.relative))
	return binary.BigEndian.AppendUint64(b, uint64(e.position))
}

// timeEntry says that no batch before position has a timestamp above maxBefore,
// and that one of them has just that.
type timeEntry struct{ maxBefore, position int64 }

func appendTimeEntry(b []byte, e timeEntry) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(e.maxBefore))
	return binary.BigEndian.AppendUint64(b, uint64(e.position))
}

// pairs is a section of pairs of numbers, both rising, read where it lies.
type pairs []byte

func (p pairs) len() int             { return len(p) / 16 }
func (p pairs) first(i int) int64    { return int64(binary.BigEndian.Uint64(p[i*16:])) }
func (p pairs) position(i int) int64 { return int64(binary.BigEndian.Uint64(p[i*16+8:])) }

// searchFirst returns the smallest i with first(i) > v, or len.
func (p pairs) searchFirst(v int64) int {
	return sort.Search(p.len(), func(i int) bool { return p.first(i) > v })
}

// searchAtLeast returns the smallest i with first(i) >= v, or len.
func (p pairs) searchAtLeast(v int64) int {
	return sort.Search(p.len(), func(i int) bool { return p.first(i) >= v })
}

// lastBefore returns the highest position below end, or 0.
func (p pairs) lastBefore(end int64) int64 {
	i := sort.Search(p.len(), func(i int) bool { return p.position(i) >= end })
	if i == 0 {
		return 0
	}
	return p.position(i - 1)
}

// rising reports whether both columns rise strictly and positions stay below end.
func (p pairs) rising(end int64) bool {
	for i := range p.len() {
		if p.first(i) < 0 || p.position(i) < 0 || p.position(i) >= end {
			return false
		}
		if i > 0 && (p.first(i) <= p.first(i-1) || p.position(i) <= p.position(i-1)) {
			return false
		}
	}
	return true
}

func appendAborted(b []byte, txns []producerstate.AbortedTxn, base, end cluster.Offset) ([]byte, uint32) {
	var n uint32
	for _, t := range txns {
		if t.First >= end || t.Last < base {
			continue
		}
		for _, v := range []int64{int64(t.ProducerID), int64(t.First), int64(t.Last), int64(t.LastStableOffset)} {
			b = binary.BigEndian.AppendUint64(b, uint64(v))
		}
		n++
	}
	return b, n
}

func parseAborted(b []byte) []producerstate.AbortedTxn {
	txns := make([]producerstate.AbortedTxn, 0, len(b)/abortedBytes)
	for r := (fields{b: b}); len(r.b) >= abortedBytes; {
		txns = append(txns, producerstate.AbortedTxn{
			ProducerID: cluster.ProducerID(r.i64()), First: cluster.Offset(r.i64()),
			Last: cluster.Offset(r.i64()), LastStableOffset: cluster.Offset(r.i64()),
		})
	}
	return txns
}

func appendEpochs(b []byte, epochs []leaderepoch.Entry, end cluster.Offset) ([]byte, uint32) {
	var n uint32
	for _, e := range epochs {
		if e.Start >= end {
			continue
		}
		b = binary.BigEndian.AppendUint32(b, uint32(e.Epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.Start))
		n++
	}
	return b, n
}

func parseEpochs(b []byte) []leaderepoch.Entry {
	epochs := make([]leaderepoch.Entry, 0, len(b)/epochBytes)
	for r := (fields{b: b}); len(r.b) >= epochBytes; {
		epochs = append(epochs, leaderepoch.Entry{Epoch: cluster.LeaderEpoch(r.u32()), Start: cluster.Offset(r.i64())})
	}
	return epochs
}
