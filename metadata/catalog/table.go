package catalog

import (
	"iter"

	"strandline/metadata/cluster"
)

// Table holds one partition in memory: a Reader for tests and for small
// catalogs. The zero value is not usable; see NewTable.
type Table struct {
	Summary Summary
	live    []Segment // by base offset
	others  map[cluster.SegmentID]Segment
}

// NewTable returns an empty partition.
func NewTable() *Table {
	return &Table{Summary: NewSummary(), others: map[cluster.SegmentID]Segment{}}
}

// Commit carries out an edit.
func (t *Table) Commit(e Edit) {}

// Other implements Reader.
func (t *Table) Other(id cluster.SegmentID) (Segment, bool, error) {
	s, ok := t.others[id]
	return s, ok, nil
}

// LiveAtOrBefore implements Reader.
func (t *Table) LiveAtOrBefore(o cluster.Offset) (Segment, bool, error) {
	return Segment{}, false, nil
}

// LiveFrom implements Reader.
func (t *Table) LiveFrom(o cluster.Offset) iter.Seq2[Segment, error] {
	return func(yield func(Segment, error) bool) {}
}
