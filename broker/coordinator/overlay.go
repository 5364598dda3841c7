package coordinator

import (
	"bytes"
	"slices"

	"strandline/metadata/cluster"
)

// overlay is what a leader appended, or is about to, and what is not yet in the
// view: the newest version of each key, and below it those that come back where
// an append fails. Its bound is Limits.InFlightBytes and one batch.
//
// Most of what is appended is in the view before anybody asks for it. So versions
// are found by their keys only from the next reader on: late are those, the
// newest, that no reader has made it enter yet.
type overlay struct {
	latest map[string]*version
	late   []*version
	// layers are the batches, oldest first; the last one is being filled.
	layers [][]*version

	slab  []version  // room for versions to come
	keys  []byte     // room for their view keys
	spare []*version // room for a layer
}

// version is one record of a key.
type version struct {
	key          string // "" while it is late
	entry        Entry  // Value nil: a tombstone
	older, newer *version
	entered      bool
}

// What is allocated at once, and the largest layer whose room is kept.
const (
	slabVersions = 32
	slabKeyBytes = 2 << 10
	spareMax     = 512
)

func newOverlay() *overlay {
	return &overlay{latest: map[string]*version{}, layers: make([][]*version, 1)}
}

// get returns the newest version of a key, which may be a tombstone.
func (o *overlay) get(viewKey []byte) (Entry, bool) {
	o.enter()
	if v := o.latest[string(viewKey)]; v != nil {
		return v.entry, true
	}
	return Entry{}, false
}

// matching returns the newest versions of the keys with a prefix, from one on,
// tombstones included, in the order of keys.
func (o *overlay) matching(prefix, from []byte) []Entry {
	o.enter()
	var found []Entry
	for _, v := range o.latest {
		if bytes.HasPrefix(v.entry.ViewKey, prefix) && bytes.Compare(v.entry.ViewKey, from) >= 0 {
			found = append(found, v.entry)
		}
	}
	slices.SortFunc(found, func(a, b Entry) int { return bytes.Compare(a.ViewKey, b.ViewKey) })
	return found
}

// enter has late versions be found.
func (o *overlay) enter() {
	for i, v := range o.late {
		o.late[i] = nil
		v.entered, v.key = true, string(v.entry.ViewKey)
		if v.older = o.latest[v.key]; v.older != nil {
			v.older.newer = v
		}
		o.latest[v.key] = v
	}
	o.late = o.late[:0]
}

// push puts a record on top, into the layer that is being filled. With an error
// of the schema it has done nothing.
func (o *overlay) push(schema Schema, r Record, timestamp int64) error {
	if cap(o.keys)-len(o.keys) < len(r.Key)+8 {
		o.keys = make([]byte, 0, max(slabKeyBytes, 2*len(r.Key)))
	}
	at := len(o.keys)
	keys, err := schema.AppendViewKey(o.keys, r.Key)
	if err != nil {
		return err
	}
	o.keys = keys
	if len(o.slab) == 0 {
		o.slab = make([]version, slabVersions)
	}
	v := &o.slab[0]
	o.slab = o.slab[1:]
	v.entry = Entry{
		ViewKey: keys[at:len(keys):len(keys)], Key: r.Key, Value: r.Value, Offset: cluster.NoOffset, Timestamp: timestamp,
	}
	o.late = append(o.late, v)
	top := len(o.layers) - 1
	o.layers[top] = append(o.layers[top], v)
	return nil
}

// mark is the place in the layer being filled that rollback goes back to.
func (o *overlay) mark() int { return len(o.layers[len(o.layers)-1]) }

// rollback takes back what was pushed after a mark, the newest first.
func (o *overlay) rollback(mark int) {
	top := len(o.layers) - 1
	o.take(o.layers[top][mark:])
	o.layers[top] = o.layers[top][:mark]
}

// seal ends the layer being filled at a mark; what came after it is the beginning
// of the next one.
func (o *overlay) seal(mark int) {
	top := len(o.layers) - 1
	filled := o.layers[top]
	o.layers[top] = filled[:mark:mark]
	o.layers = append(o.layers, append(o.spare, filled[mark:]...))
	o.spare = nil
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
	o.take(o.layers[n])
	o.layers = slices.Delete(o.layers, n, n+1)
}

// take takes versions back, the newest first.
func (o *overlay) take(versions []*version) {
	o.enter()
	for _, v := range slices.Backward(versions) {
		o.unlink(v)
	}
}

// settle forgets the oldest layer: the view has it.
func (o *overlay) settle() {
	late := 0
	for _, v := range o.layers[0] {
		if v.entered {
			o.unlink(v)
		} else {
			late++
		}
	}
	// Those of the oldest layer are the oldest of the late ones.
	clear(o.late[:late])
	if late == len(o.late) {
		o.late = o.late[:0]
	} else {
		o.late = o.late[late:]
	}
	clear(o.layers[0])
	if cap(o.layers[0]) <= spareMax {
		o.spare = o.layers[0][:0]
	}
	o.layers = slices.Delete(o.layers, 0, 1)
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
