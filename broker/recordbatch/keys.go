package recordbatch

import (
	"iter"

	"strandline/metadata/cluster"
)

// KeyedRecord is what compaction needs to know of a record.
type KeyedRecord struct {
	Offset cluster.Offset
	// Key is nil where it is null. It is a view, valid until the next step.
	Key []byte
	// Bytes is the size of the whole record without compression.
	Bytes int
	// Tombstone says that the value is null.
	Tombstone bool
}

// Keys yields the records of a batch in order, without their values and headers.
// Errors are those of Records.
func (d *Decoder) Keys(b Batch) iter.Seq2[KeyedRecord, error] {
	return func(yield func(KeyedRecord, error) bool) {
		p, err := d.Payload(b)
		if err != nil {
			yield(KeyedRecord{}, err)
			return
		}
		w := newWalk(b, p)
		for start := 0; w.next(); start = w.c.pos {
			if !yield(w.keyed(start), nil) {
				return
			}
		}
		if w.err != nil {
			yield(KeyedRecord{}, w.err)
		}
	}
}

// keyed is the record that the walk is at, which starts at start.
func (w *walk) keyed(start int) KeyedRecord {
	return KeyedRecord{Offset: w.offset(), Key: w.c.key(), Bytes: w.c.pos - start, Tombstone: w.c.valueBytes < 0}
}
