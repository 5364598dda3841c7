package recordbatch

import (
	"encoding/binary"
)

// Filter says what compaction leaves of a batch.
type Filter struct {
	// Keep says whether a record stays. It is asked once for each, in order.
	Keep func(r KeyedRecord) bool
	// DeleteHorizon, where not 0, is stamped on a batch that has none yet (KIP-534)
	// and of which a tombstone stays, or which is a control batch: the time in ms
	// after which those may go.
	DeleteHorizon int64
}

// Filtered says what a Filter did to a batch.
type Filtered struct {
	Kept, Dropped int // records
	// KeptBytes is the size of the records that stayed, without compression.
	KeptBytes int64
	// Tombstones are those among the records that stayed.
	Tombstones int
	// Stamped says that the batch got its delete horizon now.
	Stamped bool
}

// Unchanged says that the batch was appended as it was.
func (f Filtered) Unchanged() bool { return f.Dropped == 0 && !f.Stamped }

// AppendFiltered appends what a filter leaves of a batch to dst: nothing where
// no record stays, the very same bytes where all do and no horizon is stamped,
// else a batch with the same offsets, codec, epochs, producer and sequence, of
// which the records that stay are as they were (B5). The decompressed records of
// one batch and those that stay are in memory at a time.
func (d *Decoder) AppendFiltered(dst []byte, b Batch, filter Filter) ([]byte, Filtered, error) {
	var f Filtered
	payload, err := d.Payload(b)
	if err != nil {
		return dst, f, err
	}
	greatest, err := d.choose(b, payload, filter, &f)
	if err != nil || f.Kept == 0 {
		return dst, f, err
	}
	f.Stamped = filter.DeleteHorizon != 0 && !b.HasDeleteHorizon() && (f.Tombstones > 0 || b.IsControl())
	if f.Unchanged() {
		return append(dst, b...), f, nil
	}
	out := Batch(d.header[:])
	copy(out, b)
	if f.Stamped {
		d.spare, d.kept = d.kept, rebase(d.spare[:0], d.kept, b.FirstTimestamp()-filter.DeleteHorizon)
		binary.BigEndian.PutUint16(out[posAttributes:], uint16(b.Attributes()|attrDeleteHorizon))
		binary.BigEndian.PutUint64(out[posFirstTimestamp:], uint64(filter.DeleteHorizon))
	}
	if !b.LogAppendTime() {
		binary.BigEndian.PutUint64(out[posMaxTimestamp:], uint64(greatest))
	}
	binary.BigEndian.PutUint32(out[posRecordCount:], uint32(f.Kept))
	at := len(dst)
	dst = append(dst, out...)
	dst = b.Compression().Compress(dst, d.kept)
	Batch(dst[at:]).setCodec(b.Compression())
	return dst, f, nil
}

// choose gathers the records that stay in d.kept, as they are, and returns their
// greatest timestamp.
func (d *Decoder) choose(b Batch, payload []byte, filter Filter, f *Filtered) (int64, error) {
	if cap(d.kept) > retainedBytesMax || cap(d.spare) > retainedBytesMax {
		d.kept, d.spare = nil, nil
	}
	d.kept = d.kept[:0]
	greatest := NoTimestamp
	w := newWalk(b, payload)
	for start := 0; w.next(); start = w.c.pos {
		r := w.keyed(start)
		if !filter.Keep(r) {
			f.Dropped++
			continue
		}
		f.Kept++
		f.KeptBytes += int64(r.Bytes)
		if r.Tombstone {
			f.Tombstones++
		}
		greatest = max(greatest, w.timestamp())
		d.kept = append(d.kept, payload[start:w.c.pos]...)
	}
	return greatest, w.err
}

// rebase appends well-formed records to dst with their timestamp deltas moved.
func rebase(dst, records []byte, by int64) []byte {
	for len(records) > 0 {
		size, n := binary.Varint(records)
		body := records[n : n+int(size)]
		records = records[n+int(size):]
		delta, at := varlong(body, 1)
		delta += by
		rest := body[at:]
		dst = binary.AppendVarint(dst, int64(1+varlongBytes(delta)+len(rest)))
		dst = append(dst, body[0])
		dst = binary.AppendVarint(dst, delta)
		dst = append(dst, rest...)
	}
	return dst
}

// AppendEmptied appends the batch to dst without its records: what keeps its
// offsets, and its producer's place in the sequence, once all records are gone.
func (b Batch) AppendEmptied(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, b[:HeaderBytes]...)
	out := Batch(dst[at:])
	noTimestamp := NoTimestamp
	binary.BigEndian.PutUint16(out[posAttributes:], uint16(b.Attributes()&^attrDeleteHorizon))
	binary.BigEndian.PutUint64(out[posFirstTimestamp:], uint64(noTimestamp))
	binary.BigEndian.PutUint32(out[posRecordCount:], 0)
	out.setCodec(None)
	return dst
}
