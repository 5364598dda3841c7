package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"strandline/metadata/cluster"
)

// First bytes of keys of the key index database.
const (
	prefixKeyIndexMeta    = 'm'
	prefixKeyIndexNext    = 'n'
	prefixKeyIndexEntry   = 'k'
	prefixKeyIndexSegment = 's'
	prefixKeyIndexDead    = 'd'
)

// KeyIndexMetaKey is the key of what is known of a partition's key index.
func KeyIndexMetaKey(tp cluster.TopicPartition) []byte {
	return partitionKey(prefixKeyIndexMeta, tp, 0)
}

// KeyIndexMetas is the keys of all partitions' key indexes.
func KeyIndexMetas() Range { return prefixRange([]byte{prefixKeyIndexMeta}) }

// KeyIndexPartition returns the partition in a key of KeyIndexMetas, false where
// it is none.
func KeyIndexPartition(key []byte) (cluster.TopicPartition, bool) {
	var tp cluster.TopicPartition
	if len(key) != 1+len(tp.Topic)+4 || key[0] != prefixKeyIndexMeta {
		return tp, false
	}
	copy(tp.Topic[:], key[1:])
	tp.Partition = int32(binary.BigEndian.Uint32(key[1+len(tp.Topic):]))
	return tp, true
}

// KeyIndexNextKey is the key of the next id to give to a partition's key index.
func KeyIndexNextKey() []byte { return []byte{prefixKeyIndexNext} }

func keyIndexKey(prefix byte, id uint32, extra int) []byte {
	key := make([]byte, 1, 5+extra)
	key[0] = prefix
	return binary.BigEndian.AppendUint32(key, id)
}

// AppendKeyIndexEntryKey appends the key of the latest offset of a record key with
// that hash (16 bytes) in the index with that id.
func AppendKeyIndexEntryKey(dst []byte, id uint32, hash []byte) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, prefixKeyIndexEntry), id)
	return append(dst, hash...)
}

// KeyIndexEntries is the keys of all entries of an index.
func KeyIndexEntries(id uint32) Range { return prefixRange(keyIndexKey(prefixKeyIndexEntry, id, 0)) }

// KeyIndexEntryHash returns the hash in a key of KeyIndexEntries.
func KeyIndexEntryHash(key []byte) []byte { return key[5:] }

// KeyIndexSegmentKey is the key of what an index knows of a segment.
func KeyIndexSegmentKey(id uint32, base cluster.Offset) []byte {
	return binary.BigEndian.AppendUint64(keyIndexKey(prefixKeyIndexSegment, id, 8), uint64(base))
}

// KeyIndexSegments is the keys of the segments of an index with a base offset in
// [from, to).
func KeyIndexSegments(id uint32, from, to cluster.Offset) Range {
	return Range{Lower: KeyIndexSegmentKey(id, from), Upper: KeyIndexSegmentKey(id, to)}
}

// KeyIndexDeadKey is the key of a list of dead offsets of a segment that begins
// with first.
func KeyIndexDeadKey(id uint32, base, first cluster.Offset) []byte {
	key := binary.BigEndian.AppendUint64(keyIndexKey(prefixKeyIndexDead, id, 16), uint64(base))
	return binary.BigEndian.AppendUint64(key, uint64(first))
}

// KeyIndexDead is the keys of the dead offsets of segments with a base offset in
// [from, to).
func KeyIndexDead(id uint32, from, to cluster.Offset) Range {
	return Range{Lower: KeyIndexDeadKey(id, from, 0), Upper: KeyIndexDeadKey(id, to, 0)}
}

// KeyIndexDeadFirst returns the first offset in a key of KeyIndexDead.
func KeyIndexDeadFirst(key []byte) cluster.Offset {
	return cluster.Offset(binary.BigEndian.Uint64(key[len(key)-8:]))
}

// KeyIndex is all keys of an index, its meta apart.
func KeyIndex(id uint32) []Range {
	var out []Range
	for _, prefix := range []byte{prefixKeyIndexEntry, prefixKeyIndexSegment, prefixKeyIndexDead} {
		out = append(out, prefixRange(keyIndexKey(prefix, id, 0)))
	}
	return out
}

// Seeker looks keys of a range up in rising order, which costs little where they
// lie close to each other. It shows the DB as of its making, holds it open until
// Close, and is for one goroutine.
type Seeker struct {
	db *DB
	it *pebble.Iterator
}

// NewSeeker returns a seeker over a range.
func (d *DB) NewSeeker(r Range) (*Seeker, error) {
	if !d.gate.enter() {
		return nil, ErrClosed
	}
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: r.Lower, UpperBound: r.Upper})
	if err != nil {
		d.gate.leave()
		return nil, wrap(d.dir, r.Lower, err)
	}
	return &Seeker{db: d, it: it}, nil
}

// Get returns the value of a key, at or above that of the call before, and false
// where there is none. It is valid until the next call.
func (s *Seeker) Get(key []byte) ([]byte, bool, error) {
	if !s.it.SeekGE(key) {
		return nil, false, wrap(s.db.dir, key, s.it.Error())
	}
	if !bytes.Equal(s.it.Key(), key) {
		return nil, false, nil
	}
	value, err := s.it.ValueAndErr()
	return value, err == nil, wrap(s.db.dir, key, err)
}

// Close ends the seeker; a second Close does nothing.
func (s *Seeker) Close() error {
	if s.it == nil {
		return nil
	}
	err := s.it.Close()
	s.it = nil
	s.db.gate.leave()
	return err
}

// WriteBatch is a Batch that is not read before it is committed: many changes
// cost less memory and time. It is for one goroutine, and must be Closed.
type WriteBatch struct {
	db    *DB
	batch *pebble.Batch
	err   error
}

// NewWriteBatch returns an empty batch.
func (d *DB) NewWriteBatch() *WriteBatch {
	if !d.gate.enter() {
		return &WriteBatch{db: d, err: ErrClosed}
	}
	return &WriteBatch{db: d, batch: d.db.NewBatch()}
}

// Set stores a value; it keeps neither slice.
func (b *WriteBatch) Set(key, value []byte) {
	if b.err == nil {
		b.err = b.batch.Set(key, value, nil)
	}
}

// Delete removes a key; it need not exist.
func (b *WriteBatch) Delete(key []byte) {
	if b.err == nil {
		b.err = b.batch.Delete(key, nil)
	}
}

// DeleteRange removes every key of a range.
func (b *WriteBatch) DeleteRange(r Range) {
	if b.err == nil {
		b.err = b.batch.DeleteRange(r.Lower, r.Upper, nil)
	}
}

// Bytes is the size of the changes so far.
func (b *WriteBatch) Bytes() int {
	if b.batch == nil {
		return 0
	}
	return b.batch.Len()
}

// Commit makes the changes happen; see Batch.Commit.
func (b *WriteBatch) Commit(durability Durability) error {
	if b.err != nil {
		return b.err
	}
	opts := pebble.NoSync
	if durability == Sync {
		opts = pebble.Sync
	}
	if err := b.batch.Commit(opts); err != nil {
		return fmt.Errorf("committing to metadata store %s: %w", b.db.dir, err)
	}
	return nil
}

// Close gives the batch's memory back; what was not committed is forgotten. A
// second Close does nothing.
func (b *WriteBatch) Close() error {
	if b.batch == nil {
		return nil
	}
	err := b.batch.Close()
	b.batch, b.err = nil, errors.Join(b.err, ErrClosed)
	b.db.gate.leave()
	return err
}
