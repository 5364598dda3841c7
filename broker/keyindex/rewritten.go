package keyindex

import (
	"cmp"
	"errors"
	"slices"

	"strandline/broker/recordbatch"
	"strandline/metadata/background"
	"strandline/metadata/cluster"
	"strandline/metadata/store"
)

// Tally counts the records of a segment that is being written anew; it knows that
// none of them is dead.
type Tally struct{ segment Segment }

// NewTally begins to count a segment. The caller sets Bytes, Next, CleanedThrough
// and FilteredAt of what Segment returns.
func NewTally(base cluster.Offset) *Tally { return &Tally{segment: Segment{Base: base}} }

// Add counts a batch. f says what the rewrite has left of it.
func (t *Tally) Add(b recordbatch.Batch, f recordbatch.Filtered) {
	s := &t.segment
	s.Transactions = s.Transactions || b.IsTransactional() || b.IsControl()
	if b.RecordCount() == 0 {
		s.Emptied++
		return
	}
	if b.IsControl() {
		s.Markers += int64(b.RecordCount())
		s.stamp(b, true)
		return
	}
	s.Records += int64(f.Kept)
	s.RecordBytes += f.KeptBytes
	s.Tombstones += int64(f.Tombstones)
	s.stamp(b, f.Tombstones > 0)
}

// Base is the base offset of the segment.
func (t *Tally) Base() cluster.Offset { return t.segment.Base }

// Segment is what was counted.
func (t *Tally) Segment() Segment { return t.segment }

// Replaced says that the segments with a base offset in [first, next) were
// replaced by others, which have been filtered with all that the index knew. An
// index that misses it counts them again.
func (p *Partition) Replaced(first, next cluster.Offset, by []Segment) error {
	b := p.db.NewWriteBatch()
	defer func() { _ = b.Close() }()
	b.DeleteRange(store.KeyIndexDead(p.meta.id, first, next))
	b.DeleteRange(store.KeyIndexSegments(p.meta.id, first, next))
	for _, s := range by {
		b.Set(store.KeyIndexSegmentKey(p.meta.id, s.Base), s.encode())
	}
	if err := b.Commit(store.NoSync); err != nil {
		return err
	}
	p.segments = slices.DeleteFunc(p.segments, func(s Segment) bool { return s.Base >= first && s.Base < next })
	for _, s := range by {
		p.put(s)
	}
	return nil
}

// forgetMax is how many keys a Forgetting holds.
const forgetMax = 1 << 16

// Forgetting removes the keys of tombstones that a rewrite has left out: nothing
// of theirs is in the log any more.
type Forgetting struct {
	p      *Partition
	hashes []hash
}

// Forgetting begins to forget keys.
func (p *Partition) Forgetting() *Forgetting { return &Forgetting{p: p} }

// Key forgets a key whose latest record is the tombstone.
func (f *Forgetting) Key(key []byte) error {
	f.hashes = append(f.hashes, f.p.meta.secret.sum(key))
	if len(f.hashes) < forgetMax {
		return nil
	}
	return f.Commit()
}

// Commit makes the database forget them.
func (f *Forgetting) Commit() error {
	if len(f.hashes) == 0 {
		return nil
	}
	p, b := f.p, f.p.db.NewWriteBatch()
	defer func() { _ = b.Close() }()
	slices.SortFunc(f.hashes, hash.compare)
	var key, text []byte
	for _, h := range f.hashes {
		text = h.append(text[:0])
		key = store.AppendKeyIndexEntryKey(key[:0], p.meta.id, text)
		b.Delete(key)
	}
	m := p.meta
	m.keys = max(0, m.keys-int64(len(f.hashes)))
	b.Set(store.KeyIndexMetaKey(p.tp), m.encode())
	if err := b.Commit(store.NoSync); err != nil {
		return err
	}
	p.meta = m
	f.hashes = f.hashes[:0]
	return nil
}

// Count counts a segment again, of which the index knows something that is not
// true of its file (K3): its records below the position are looked up, many at a
// time, in the order of their hashes.
type Count struct {
	p       *Partition
	segment Segment
	slots   []slot
	max     int
	dead    []cluster.Offset
	begun   bool
	decoder recordbatch.Decoder
}

// countMemoryBytes is what a record costs that is to be looked up: its slot, and what
// the list of them takes while it grows.
const countMemoryBytes = 4 * slotBytes

// Count begins to count the segment, with about that much memory at most.
func (p *Partition) Count(base, next cluster.Offset, bytes, memoryBytes int64) *Count {
	return &Count{p: p, segment: Segment{Base: base, Next: next, Bytes: bytes}, max: int(max(memoryBytes/countMemoryBytes, keysMin))}
}

// Add counts a batch, as Feed.Add takes it in; one at or above the position
// counts for nothing.
func (c *Count) Add(b recordbatch.Batch, aborted bool) error {
	if b.BaseOffset() >= c.p.meta.position.Offset {
		return nil
	}
	_, err := c.p.tally(&c.segment, &c.decoder, b, aborted,
		func(h hash, l latest) { c.slots = append(c.slots, newSlot(h, l)) },
		func(l latest) { c.dead = append(c.dead, l.offset) })
	if err != nil || len(c.slots)+len(c.dead) < c.max {
		return err
	}
	return c.merge()
}

// merge looks up what was gathered.
func (c *Count) merge() error {
	if !c.begun {
		// Until Commit the segment is one that nothing is known of.
		c.begun = true
		b := c.p.db.NewWriteBatch()
		defer func() { _ = b.Close() }()
		b.DeleteRange(store.KeyIndexDead(c.p.meta.id, c.segment.Base, c.segment.Base+1))
		b.Delete(store.KeyIndexSegmentKey(c.p.meta.id, c.segment.Base))
		if err := b.Commit(store.NoSync); err != nil {
			return err
		}
		c.p.put(c.segment)
	}
	if err := c.lookUp(); err != nil {
		return err
	}
	b := c.p.db.NewWriteBatch()
	defer func() { _ = b.Close() }()
	c.p.bury(batch{b}, c.dead)
	if err := b.Commit(store.NoSync); err != nil {
		return err
	}
	c.slots, c.dead = c.slots[:0], c.dead[:0]
	return nil
}

func (c *Count) lookUp() (err error) {
	id := c.p.meta.id
	slices.SortFunc(c.slots, func(a, b slot) int {
		return cmp.Or(a.hash.compare(b.hash), cmp.Compare(a.offset, b.offset))
	})
	seeker, err := c.p.db.NewSeeker(store.KeyIndexEntries(id))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seeker.Close()) }()
	var key, text []byte
	for i, s := range c.slots {
		if i%yieldEvery == 0 {
			background.Yield()
		}
		text = s.hash.append(text[:0])
		key = store.AppendKeyIndexEntryKey(key[:0], id, text)
		value, known, err := seeker.Get(key)
		if err != nil {
			return err
		}
		if !known {
			continue // its tombstone is gone: nothing older is left of it but this
		}
		l, err := decodeLatest(value)
		if err != nil {
			return err
		}
		if l.offset > s.offset {
			c.segment.kill(s.latest())
			c.dead = append(c.dead, s.offset)
		}
	}
	return nil
}

// Commit enters what was counted.
func (c *Count) Commit() error {
	if err := c.merge(); err != nil {
		return err
	}
	b := c.p.db.NewWriteBatch()
	defer func() { _ = b.Close() }()
	b.Set(store.KeyIndexSegmentKey(c.p.meta.id, c.segment.Base), c.segment.encode())
	if err := b.Commit(store.NoSync); err != nil {
		return err
	}
	c.p.put(c.segment)
	return nil
}
