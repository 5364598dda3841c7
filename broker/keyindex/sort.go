package keyindex

import (
	"math/bits"
	"slices"

	"strandline/metadata/background"
	"strandline/metadata/cluster"
)

const (
	// sortAtOnce offsets are sorted in some tens of microseconds.
	sortAtOnce = 1 << 10
	// sortPart of them are looked at in as many.
	sortPart = 1 << 14
	sortBits = 8
)

// sortOffsets is slices.Sort that lets others have the processor meanwhile: it deals
// offsets out by their highest bits that differ, in place, until few are together.
func sortOffsets(a []cluster.Offset) {
	if len(a) <= sortAtOnce {
		slices.Sort(a)
		background.Yield()
		return
	}
	low, high := a[0], a[0]
	for part := range slices.Chunk(a, sortPart) {
		low, high = min(low, slices.Min(part)), max(high, slices.Max(part))
		background.Yield()
	}
	shift := max(0, bits.Len64(uint64(high-low))-sortBits)
	of := func(o cluster.Offset) int { return int(uint64(o-low) >> shift) }
	var next, end [1 << sortBits]int
	for part := range slices.Chunk(a, sortPart) {
		for _, o := range part {
			end[of(o)]++
		}
		background.Yield()
	}
	for i := range end {
		if i > 0 {
			next[i] = end[i-1]
		}
		end[i] += next[i]
	}
	begin := next
	for i := range next {
		for next[i] < end[i] {
			if next[i]%(sortPart/4) == 0 {
				background.Yield()
			}
			o := a[next[i]]
			for to := of(o); to != i; to = of(o) {
				a[next[to]], o = o, a[next[to]]
				next[to]++
			}
			a[next[i]] = o
			next[i]++
		}
	}
	if shift == 0 {
		return // each has one number
	}
	for i := range begin {
		sortOffsets(a[begin[i]:end[i]])
	}
}
