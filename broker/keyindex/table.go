package keyindex

import (
	"slices"

	"strandline/metadata/cluster"
)

// slot is a record in a table. A slot without bytes is free: no record has none.
type slot struct {
	hash   hash
	offset cluster.Offset
	meta   uint64 // bytes << 1 | tombstone
}

const slotBytes = 32

func (s slot) latest() latest { return latest{s.offset, int64(s.meta >> 1), s.meta&1 != 0} }

func newSlot(h hash, l latest) slot {
	return slot{h, l.offset, uint64(l.bytes)<<1 | uint64(flag(l.tombstone))}
}

// table holds the latest record of each of a bounded number of keys.
type table struct {
	slots []slot
	used  int
	max   int
}

// newTable makes a table of at most max keys.
func newTable(max int) *table {
	size := 16
	for size*3/4 < max {
		size *= 2
	}
	return &table{slots: make([]slot, size), max: max}
}

// put enters a record and returns the one of the same key that it replaces.
func (t *table) put(s slot) (old slot, replaced bool) {
	mask := uint64(len(t.slots) - 1)
	for i := s.hash.lo & mask; ; i = (i + 1) & mask {
		switch at := &t.slots[i]; {
		case at.meta == 0:
			*at = s
			t.used++
			return slot{}, false
		case at.hash == s.hash:
			old, *at = *at, s
			return old, true
		}
	}
}

func (t *table) full() bool { return t.used >= t.max }

// sorted returns what is in the table by hash, in the table's own memory; clear
// empties it then.
func (t *table) sorted() []slot {
	n := 0
	for _, s := range t.slots {
		if s.meta != 0 {
			t.slots[n] = s
			n++
		}
	}
	out := t.slots[:n]
	slices.SortFunc(out, func(a, b slot) int { return a.hash.compare(b.hash) })
	return out
}

func (t *table) clear() {
	clear(t.slots)
	t.used = 0
}
