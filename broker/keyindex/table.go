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

// table holds the latest record of each of a number of keys.
type table struct {
	slots []slot
	used  int
	max   int
}

// tableSlots is how many slots a table has at first; it grows with its keys.
const tableSlots = 1 << 10

// newTable makes a table that is meant for at most max keys.
func newTable(max int) *table { return &table{slots: make([]slot, tableSlots), max: max} }

// roomFor says whether the table stays within its size with n more keys.
func (t *table) roomFor(n int) bool { return t.used+n <= t.max }

// put enters a record and returns the one of the same key that it replaces.
func (t *table) put(s slot) (old slot, replaced bool) {
	if t.used >= len(t.slots)*3/4 {
		t.grow()
	}
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

func (t *table) grow() {
	small := t.slots
	t.slots, t.used = make([]slot, 2*len(small)), 0
	for _, s := range small {
		if s.meta != 0 {
			t.put(s)
		}
	}
}

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
	t.used = 0
	if len(t.slots) > 4*t.max && len(t.slots) > tableSlots { // one batch had more keys than the table is meant for
		t.slots = make([]slot, tableSlots)
		return
	}
	clear(t.slots)
}
