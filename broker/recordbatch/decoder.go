package recordbatch

import (
	"fmt"
	"iter"

	"strandline/metadata/cluster"
)

// DecodedBytesMax bounds what a Decoder decompresses from one batch where it
// was given no bound.
const DecodedBytesMax = 128 << 20

// retainedBytesMax is the largest buffer that a Decoder keeps for the next
// batch.
const retainedBytesMax = 8 << 20

// Decoder reads the records of one batch after the other and keeps its buffers
// in between. The zero value is ready and bounded by DecodedBytesMax. It is for
// one goroutine at a time; what it returned is valid until its next call.
type Decoder struct {
	bytesMax int
	buf      []byte
	headers  []Header

	// Of AppendFiltered: the records that stay, and what is put before them.
	kept, spare []byte
	header      [HeaderBytes]byte
}

// NewDecoder makes a Decoder that decompresses at most bytesMax from a batch
// (B4).
func NewDecoder(bytesMax int) *Decoder { return &Decoder{bytesMax: bytesMax} }

// SetLimit makes the batches to come decompress to at most bytesMax where it is
// above 0, and never to more than DecodedBytesMax.
func (d *Decoder) SetLimit(bytesMax int) { d.bytesMax = min(bytesMax, DecodedBytesMax) }

// Limit is how much a batch may decompress to.
func (d *Decoder) Limit() int {
	if d.bytesMax <= 0 {
		return DecodedBytesMax
	}
	return d.bytesMax
}

// Payload is the decompressed records of a batch: a view of the batch where it
// is not compressed, else of the decoder's buffer.
func (d *Decoder) Payload(b Batch) ([]byte, error) {
	codec := b.Compression()
	if codec == None {
		return b.Payload(), nil
	}
	if cap(d.buf) > retainedBytesMax {
		d.buf = nil
	}
	buf, err := codec.Decompress(d.buf[:0], b.Payload(), d.Limit())
	if err != nil {
		return nil, err
	}
	d.buf = buf
	return buf, nil
}

// Records yields the records of a batch in order. It yields one error, as the
// last pair, where the records do not decompress, do not parse, are fewer or
// more than the header says, or lie outside its offsets; the records before it
// are good.
func (d *Decoder) Records(b Batch) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		p, err := d.Payload(b)
		if err != nil {
			yield(Record{}, err)
			return
		}
		clear(d.headers)
		d.headers = d.headers[:0]
		w := newWalk(b, p)
		for w.next() {
			first := len(d.headers)
			d.headers = w.c.appendHeaders(d.headers)
			r := Record{
				Offset:      w.offset(),
				Timestamp:   w.timestamp(),
				Key:         w.c.key(),
				Value:       w.c.value(),
				Attributes:  w.c.attributes,
				OffsetDelta: w.c.offsetDelta,
			}
			if len(d.headers) > first {
				r.Headers = d.headers[first:len(d.headers):len(d.headers)]
			}
			if !yield(r, nil) {
				return
			}
		}
		if w.err != nil {
			yield(Record{}, w.err)
		}
	}
}

// walk is a cursor that checks each record against its batch's header.
type walk struct {
	b     Batch
	c     cursor
	index int32
	count int32
	err   error

	firstTimestamp int64
	maxTimestamp   int64
	logAppendTime  bool
	lastDelta      int32
	lastDeltaMax   int32
}

func newWalk(b Batch, payload []byte) walk {
	return walk{
		b: b, c: cursor{p: payload}, index: -1, count: b.RecordCount(),
		firstTimestamp: b.FirstTimestamp(), maxTimestamp: b.MaxTimestamp(),
		logAppendTime: b.LogAppendTime(), lastDelta: -1, lastDeltaMax: b.LastOffsetDelta(),
	}
}

// next moves to the next record; false means the end, or err.
func (w *walk) next() bool {
	if w.index+1 >= w.count {
		if w.c.pos != len(w.c.p) {
			w.err = fmt.Errorf("%w: %d bytes after the last of %d records", ErrBadCount, len(w.c.p)-w.c.pos, w.count)
		}
		return false
	}
	if w.c.pos == len(w.c.p) {
		w.err = fmt.Errorf("%w: %d records, the header says %d", ErrBadCount, w.index+1, w.count)
		return false
	}
	start := w.c.pos
	if !w.c.next() {
		w.err = fmt.Errorf("%w: index %d at byte %d of the records", ErrBadRecord, w.index+1, start)
		return false
	}
	w.index++
	if w.c.offsetDelta <= w.lastDelta || w.c.offsetDelta > w.lastDeltaMax {
		w.err = fmt.Errorf("%w: index %d has offset delta %d after %d in a batch to %d", ErrBadRecord, w.index, w.c.offsetDelta, w.lastDelta, w.lastDeltaMax)
		return false
	}
	w.lastDelta = w.c.offsetDelta
	return true
}

func (w *walk) offset() cluster.Offset { return w.b.BaseOffset() + cluster.Offset(w.c.offsetDelta) }

func (w *walk) timestamp() int64 {
	if w.logAppendTime {
		return w.maxTimestamp
	}
	return addTimestamp(w.firstTimestamp, w.c.timestampDelta)
}
