package coordinator

import (
	"bytes"
	"slices"

	"strandline/metadata/cluster"
)

// overlay is what a leader appended, or is about to, and what is not yet in the
// view: the newest version of each key, and below it those that come back where
// an append fails. Its bound is Limits.InFlightBytes and one batch.
type overlay struct {
	latest map[string]*version
	// layers are the batches, oldest first; the last one is being filled.
	layers [][]*version
}

// version is one record of a key.
type version struct {
	key          string
	entry        Entry // Value nil: a tombstone
	older, newer *version
}

func newOverlay() *overlay {
	return &overlay{latest: map[string]*version{}, layers: make([][]*version, 1)}
}

// get returns the newest version of a key, which may be a tombstone.
func (o *overlay) get(viewKey []byte) (Entry, bool) {
	if v := o.latest[string(viewKey)]; v != nil {
		return v.entry, true
	}
	return Entry{}, false
}

// matching returns the newest versions of the keys with a prefix, from one on,
// tombstones included, in the order of keys.
func (o *overlay) matching(prefix, from []byte) []Entry {
	var found []Entry
	for _, v := range o.latest {
		if bytes.HasPrefix(v.entry.ViewKey, prefix) && bytes.Compare(v.entry.ViewKey, from) >= 0 {
			found = append(found, v.entry)
		}
	}
	slices.SortFunc(found, func(a, b Entry) int { return bytes.Compare(a.ViewKey, b.ViewKey) })
	return found
}

// push puts a record on top, into the layer that is being filled.
func (o *overlay) push(viewKey []byte, r Record, timestamp int64) {
	v := &version{key: string(viewKey), entry: Entry{
		ViewKey: viewKey, Key: r.Key, Value: r.Value, Offset: cluster.NoOffset, Timestamp: timestamp,
	}}
	if v.older = o.latest[v.key]; v.older != nil {
		v.older.newer = v
	}
	o.latest[v.key] = v
	top := len(o.layers) - 1
	o.layers[top] = append(o.layers[top], v)
}

// mark is the place in the layer being filled that rollback goes back to.
func (o *overlay) mark() int { return len(o.layers[len(o.layers)-1]) }

// rollback takes back what was pushed after a mark, the newest first.
func (o *overlay) rollback(mark int) {
	top := len(o.layers) - 1
	for i := len(o.layers[top]) - 1; i >= mark; i-- {
		o.unlink(o.layers[top][i])
	}
	o.layers[top] = o.layers[top][:mark]
}

// seal ends the layer being filled at a mark; what came after it is the beginning
// of the next one.
func (o *overlay) seal(mark int) {
	top := len(o.layers) - 1
	filled := o.layers[top]
	o.layers[top] = filled[:mark:mark]
	o.layers = append(o.layers, slices.Clone(filled[mark:]))
}

// placed tells the offsets of the layer before the one being filled.
func (o *overlay) placed(base cluster.Offset) {
	for i, v := range o.layers[len(o.layers)-2] {
		v.entry.Offset = base + cluster.Offset(i)
	}
}

// fail takes back the layer before the one being filled, whose append failed.
func (o *overlay) fail() {
	n := len(o.layers) - 2
	for i := len(o.layers[n]) - 1; i >= 0; i-- {
		o.unlink(o.layers[n][i])
	}
	o.layers = slices.Delete(o.layers, n, n+1)
}

// settle forgets the oldest layer: the view has it.
func (o *overlay) settle() {
	for _, v := range o.layers[0] {
		o.unlink(v)
	}
	o.layers[0] = nil
	o.layers = o.layers[1:]
}

func (o *overlay) unlink(v *version) {
	if v.older != nil {
		v.older.newer = v.newer
	}
	switch {
	case v.newer != nil:
		v.newer.older = v.older
	case v.older != nil:
		o.latest[v.key] = v.older
	default:
		delete(o.latest, v.key)
	}
}
