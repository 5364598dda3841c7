package catalog

import (
	"iter"
	"slices"
	"sort"

	"strandline/metadata/cluster"
)

// Table holds one partition in memory: a Reader for tests and for small
// catalogs. The zero value is not usable; see NewTable.
type Table struct {
	Summary Summary
	live    []cluster.SegmentID // by base offset
	byID    map[cluster.SegmentID]Segment
}

// NewTable returns an empty partition.
func NewTable() *Table {
	return &Table{Summary: NewSummary(), byID: map[cluster.SegmentID]Segment{}}
}

// Commit carries out an edit.
func (t *Table) Commit(e Edit) {
	t.Summary = e.Summary
	for _, id := range e.Delete {
		t.unlink(id)
		delete(t.byID, id)
	}
	for _, s := range e.Put {
		t.unlink(s.ID)
		t.byID[s.ID] = s
		if s.State == Live {
			t.live = slices.Insert(t.live, t.firstFrom(s.Base), s.ID)
		}
	}
}

func (t *Table) unlink(id cluster.SegmentID) {
	if s, ok := t.byID[id]; ok && s.State == Live {
		at := t.firstFrom(s.Base)
		t.live = slices.Delete(t.live, at, at+1)
	}
}

// firstFrom is the index of the first live segment that starts at or after o.
func (t *Table) firstFrom(o cluster.Offset) int {
	return sort.Search(len(t.live), func(i int) bool { return t.byID[t.live[i]].Base >= o })
}

// All gives every segment, by base offset and then by id.
func (t *Table) All() []Segment {
	all := make([]Segment, 0, len(t.byID))
	for _, s := range t.byID {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Segment) int {
		if a.Base != b.Base {
			return int(max(-1, min(1, a.Base-b.Base)))
		}
		return slices.Compare(a.ID[:], b.ID[:])
	})
	return all
}

// Segment implements Reader.
func (t *Table) Segment(id cluster.SegmentID) (Segment, bool, error) {
	s, ok := t.byID[id]
	return s, ok, nil
}

// LiveAtOrBefore implements Reader.
func (t *Table) LiveAtOrBefore(o cluster.Offset) (Segment, bool, error) {
	at := sort.Search(len(t.live), func(i int) bool { return t.byID[t.live[i]].Base > o })
	if at == 0 {
		return Segment{}, false, nil
	}
	return t.byID[t.live[at-1]], true, nil
}

// LiveFrom implements Reader.
func (t *Table) LiveFrom(o cluster.Offset) iter.Seq2[Segment, error] {
	return func(yield func(Segment, error) bool) {
		for _, id := range t.live[t.firstFrom(o):] {
			if !yield(t.byID[id], nil) {
				return
			}
		}
	}
}
