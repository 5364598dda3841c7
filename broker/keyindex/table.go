package keyindex

import (
	"math/bits"
	"slices"

	"strandline/metadata/background"
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

// table holds the latest record of each of a number of keys. A slot's place is told by
// the highest bits of its hash: the table is all but sorted.
type table struct {
	slots []slot // a power of two, and slotsSpare
	shift int    // of hash.hi to the right, gives the place
	used  int
	max   int
}

const (
	// tableSlots is how many slots a table has at first; it grows with its keys.
	tableSlots = 1 << 10
	// slotsSpare are for what finds no place before the end.
	slotsSpare = 1 << 8
	// yieldSlots are after how many others may have the processor.
	yieldSlots = 1 << 12
	// Of tableFull/4 of its slots on a table grows.
	tableFull = 3
)

// newTable makes a table that is meant for at most max keys.
func newTable(max int) *table {
	t := &table{max: max}
	t.make(tableSlots)
	return t
}

func (t *table) make(slots int) {
	t.slots, t.used = make([]slot, slots+slotsSpare), 0
	t.shift = bits.LeadingZeros64(uint64(slots - 1))
}

// roomFor says whether the table stays within its size with n more keys.
func (t *table) roomFor(n int) bool { return t.used+n <= t.max }

// put enters a record and returns the one of the same key that it replaces.
func (t *table) put(s slot) (old slot, replaced bool) {
	if t.used >= (len(t.slots)-slotsSpare)*tableFull/4 {
		t.grow()
	}
	for {
		for i := int(s.hash.hi >> t.shift); i < len(t.slots); i++ {
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
		t.grow()
	}
}

func (t *table) grow() {
	small := t.slots
	t.make(2 * (len(small) - slotsSpare))
	for i, s := range small {
		if i%yieldSlots == 0 {
			background.Yield()
		}
		if s.meta != 0 {
			t.put(s)
		}
	}
}

// sorted returns what is in the table by hash, in the table's own memory; clear
// empties it then.
func (t *table) sorted() []slot {
	n := 0
	for j, s := range t.slots {
		if j%yieldSlots == 0 {
			background.Yield()
		}
		if s.meta == 0 {
			continue
		}
		// It is as far from its place as it is from its slot, at most: a few.
		i := n
		for ; i > 0 && s.hash.compare(t.slots[i-1].hash) < 0; i-- {
			t.slots[i] = t.slots[i-1]
		}
		t.slots[i] = s
		n++
	}
	return t.slots[:n]
}

func (t *table) clear() {
	t.used = 0
	if len(t.slots) > 4*t.max+slotsSpare && len(t.slots) > tableSlots+slotsSpare { // one batch had more keys than the table is meant for
		t.make(tableSlots)
		return
	}
	for part := range slices.Chunk(t.slots, yieldSlots) {
		clear(part)
		background.Yield()
	}
}
