package coordinator

import (
	"bytes"
	"errors"

	"strandline/metadata/store"
)

// What a view notes of a set of its keys: that the last change in it was a record,
// so that it has one, or a deletion, so that somebody has to look.
const (
	setFilled  = "f"
	setDoubted = "d"
)

// doubtsMax bounds the sets that are looked at after one step: of what is beyond
// it, whoever lists sets has to look.
const doubtsMax = 4096

// noteSet notes what the last change of a set was.
func (v *view) noteSet(b changes, set []byte, filled bool) {
	note := setDoubted
	if filled {
		note = setFilled
	}
	if v.note == note && bytes.Equal(v.noted, set) {
		return
	}
	v.noted, v.note = append(v.noted[:0], set...), note
	v.key = store.AppendViewSetKey(v.key[:0], v.tp, set)
	b.Set(v.key, []byte(note))
	switch {
	case filled && len(v.doubts) > 0:
		delete(v.doubts, string(set))
	case !filled && len(v.doubts) < doubtsMax:
		v.doubts[string(set)] = true
	}
}

// tidy forgets the sets that the last step has emptied. Until then, and where it
// does not come to it, readers look for themselves.
func (v *view) tidy() error {
	v.note = ""
	if len(v.doubts) == 0 {
		return nil
	}
	b := v.db.NewWriteBatch()
	for set := range v.doubts {
		delete(v.doubts, set)
		has, err := hasEntry(v.db, v.tp, []byte(set))
		if err != nil {
			return errors.Join(v.trouble(err), b.Close())
		}
		if !has {
			b.Delete(store.AppendViewSetKey(nil, v.tp, []byte(set)))
		}
	}
	if err := v.views.commit(b); err != nil {
		return v.trouble(err)
	}
	return nil
}
