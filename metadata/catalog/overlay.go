package catalog

import (
	"cmp"
	"iter"
	"slices"

	"strandline/metadata/cluster"
)

// Overlay reads a partition as it will be once edits that are not stored yet
// are carried out. The number of edits is meant to be small.
type Overlay struct {
	base    Reader
	changed map[cluster.SegmentID]*Segment // nil: deleted
}

// NewOverlay returns an overlay without edits over base.
func NewOverlay(base Reader) *Overlay {
	return &Overlay{base: base, changed: map[cluster.SegmentID]*Segment{}}
}

// Add puts one more edit on top.
func (o *Overlay) Add(e Edit) {
	for _, id := range e.Delete {
		o.changed[id] = nil
	}
	for _, s := range e.Put {
		o.changed[s.ID] = &s
	}
}

// Segment implements Reader.
func (o *Overlay) Segment(id cluster.SegmentID) (Segment, bool, error) {
	if s, ok := o.changed[id]; ok {
		if s == nil {
			return Segment{}, false, nil
		}
		return *s, true, nil
	}
	return o.base.Segment(id)
}

// LiveAtOrBefore implements Reader.
func (o *Overlay) LiveAtOrBefore(at cluster.Offset) (Segment, bool, error) {
	var best Segment
	found := false
	for next := at; ; {
		s, ok, err := o.base.LiveAtOrBefore(next)
		if err != nil {
			return Segment{}, false, err
		}
		if !ok {
			break
		}
		if _, hidden := o.changed[s.ID]; !hidden {
			best, found = s, true
			break
		}
		if s.Base == 0 {
			break
		}
		next = s.Base - 1
	}
	for _, s := range o.changed {
		if s != nil && s.State == Live && s.Base <= at && (!found || s.Base > best.Base) {
			best, found = *s, true
		}
	}
	return best, found, nil
}

// LiveFrom implements Reader.
func (o *Overlay) LiveFrom(from cluster.Offset) iter.Seq2[Segment, error] {
	var added []Segment
	for _, s := range o.changed {
		if s != nil && s.State == Live && s.Base >= from {
			added = append(added, *s)
		}
	}
	slices.SortFunc(added, func(a, b Segment) int { return cmp.Compare(a.Base, b.Base) })
	return func(yield func(Segment, error) bool) {
		rest := added
		for s, err := range o.base.LiveFrom(from) {
			if err != nil {
				yield(Segment{}, err)
				return
			}
			if _, hidden := o.changed[s.ID]; hidden {
				continue
			}
			for len(rest) > 0 && rest[0].Base < s.Base {
				if !yield(rest[0], nil) {
					return
				}
				rest = rest[1:]
			}
			if !yield(s, nil) {
				return
			}
		}
		for _, s := range rest {
			if !yield(s, nil) {
				return
			}
		}
	}
}
