package segment

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"sync"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// Header is what a walk over a .log file tells of a batch.
type Header struct {
	Position     int64
	Bytes        int64
	Base, Next   cluster.Offset // Next is exclusive
	LeaderEpoch  cluster.LeaderEpoch
	MaxTimestamp int64
	// ProducerID is that of a batch of a transaction, or of its marker where
	// Control; else NoProducerID.
	ProducerID cluster.ProducerID
	Control    bool
	Empty      bool // no record is left of it
}

// End is the position of the next batch.
func (h Header) End() int64 { return h.Position + h.Bytes }

const (
	headerChunkBytes = 4096
	batchChunkBytes  = 256 << 10
)

var headerChunks = sync.Pool{New: func() any { return new([headerChunkBytes]byte) }}

// spanMax is how many offsets a segment has at most: relative ones have 31 bits.
const spanMax = math.MaxInt32 + 1

// headerWalk steps from batch to batch reading headers only. It checks that
// offsets rise, as far as they may in one segment, and that batches end within the
// file (their first limit bytes).
type headerWalk struct {
	src   io.ReaderAt
	name  string
	pos   int64 // of the next batch
	limit int64
	from  cluster.Offset // lowest base offset that the next batch may have
	past  cluster.Offset // one past the highest offset; 0: spanMax from the first from

	chunk      *[headerChunkBytes]byte
	chunkStart int64
	chunkBytes int

	h   Header // the batch that next moved to
	err error
}

func (w *headerWalk) next() bool {
	if w.pos >= w.limit || w.err != nil {
		return false
	}
	if w.limit-w.pos < recordbatch.HeaderBytes {
		return w.corrupt(ErrTornTail)
	}
	if !w.fill() {
		return false
	}
	p := w.chunk[w.pos-w.chunkStart : w.chunkBytes]
	size, err := recordbatch.PeekBytes(p)
	if err != nil {
		return w.corrupt(err)
	}
	b := recordbatch.Batch(p[:recordbatch.HeaderBytes])
	if b.Magic() != 2 {
		return w.corrupt(fmt.Errorf("%w %d", recordbatch.ErrBadMagic, b.Magic()))
	}
	h := Header{
		Position: w.pos, Bytes: int64(size), Base: b.BaseOffset(), Next: b.NextOffset(),
		LeaderEpoch: b.PartitionLeaderEpoch(), MaxTimestamp: b.MaxTimestamp(),
		ProducerID: txnProducer(b), Control: b.IsControl(), Empty: b.RecordCount() == 0,
	}
	if h.End() > w.limit {
		return w.corrupt(fmt.Errorf("%w: %d bytes of %d", ErrTornTail, w.limit-w.pos, h.Bytes))
	}
	if w.past == 0 {
		w.past = w.from + spanMax
	}
	if err := inOrder(h.Base, h.Next, w.from, w.past); err != nil {
		return w.corrupt(err)
	}
	w.h, w.pos, w.from = h, h.End(), h.Next
	return true
}

// inOrder says what is wrong with the offsets of a batch that may have those in
// [from, past). No checksum covers the base offset.
func inOrder(base, next, from, past cluster.Offset) error {
	if base < from || next <= base || next > past {
		return fmt.Errorf("offsets %d to %d, want from %d, below %d: %w", base, next-1, from, past, ErrUnordered)
	}
	return nil
}

// txnProducer is the producer of a transaction's batch.
func txnProducer(b recordbatch.Batch) cluster.ProducerID {
	if b.IsTransactional() || b.IsControl() {
		return b.ProducerID()
	}
	return cluster.NoProducerID
}

// fill has the next header in the chunk. Among large batches it reads no more
// than the header.
func (w *headerWalk) fill() bool {
	if w.chunk == nil {
		w.chunk = headerChunks.Get().(*[headerChunkBytes]byte)
	} else if at := w.pos - w.chunkStart; at >= 0 && at+recordbatch.HeaderBytes <= int64(w.chunkBytes) {
		return true
	}
	want := int64(headerChunkBytes)
	if w.h.Bytes >= headerChunkBytes {
		want = recordbatch.HeaderBytes
	}
	n := int(min(want, w.limit-w.pos))
	if err := readFull(w.src, w.chunk[:n], w.pos); err != nil {
		w.err = fmt.Errorf("%s: %w", w.name, err)
		return false
	}
	w.chunkStart, w.chunkBytes = w.pos, n
	return true
}

func (w *headerWalk) corrupt(cause error) bool {
	w.err = &CorruptError{w.name, w.pos, cause}
	return false
}

func (w *headerWalk) close() {
	if w.chunk != nil {
		headerChunks.Put(w.chunk)
		w.chunk = nil
	}
}

// Located is a batch and where it lies in its file.
type Located struct {
	Position int64
	Batch    recordbatch.Batch
}

// Batches yields the batches in the first size bytes of a .log file from a
// position on, each verified (checksum included) and in rising order of offsets
// from base, as far as one segment has them. A batch is valid until the next step. It yields one error, last: a
// *CorruptError that names the file and the position of the bad batch, or that
// of a read.
func Batches(src io.ReaderAt, size int64, from int64, base cluster.Offset, name string) iter.Seq2[Located, error] {
	return func(yield func(Located, error) bool) {
		buf := make([]byte, 0, min(batchChunkBytes, max(size-from, 0)))
		bufStart := from
		past := base + spanMax
		for pos := from; pos < size; {
			b, err := batchAt(src, size, pos, &buf, &bufStart)
			if err == nil {
				err = b.Verify()
			}
			if err == nil {
				err = inOrder(b.BaseOffset(), b.NextOffset(), base, past)
			}
			if err != nil {
				if !errors.As(err, new(readError)) {
					err = &CorruptError{name, pos, err}
				}
				yield(Located{Position: pos}, err)
				return
			}
			if !yield(Located{pos, b}, nil) {
				return
			}
			pos += int64(len(b))
			base = b.NextOffset()
		}
	}
}

// readError is a failed read, as opposed to wrong bytes.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// batchAt returns the batch at pos from buf, which starts at *bufStart in the
// file, reading on where needed.
func batchAt(src io.ReaderAt, size, pos int64, buf *[]byte, bufStart *int64) (recordbatch.Batch, error) {
	need := int64(recordbatch.HeaderBytes)
	for {
		if size-pos < need {
			return nil, fmt.Errorf("%w: %d bytes of %d", ErrTornTail, size-pos, need)
		}
		at := pos - *bufStart
		if at+need > int64(len(*buf)) {
			n := min(max(need, batchChunkBytes), size-pos)
			if int64(cap(*buf)) < n {
				*buf = make([]byte, 0, n)
			}
			*buf = (*buf)[:n]
			*bufStart, at = pos, 0
			if err := readFull(src, *buf, pos); err != nil {
				return nil, readError{err}
			}
		}
		p := (*buf)[at:]
		bytes, err := recordbatch.PeekBytes(p)
		if err != nil {
			return nil, err
		}
		if int64(bytes) <= need || int64(len(p)) >= int64(bytes) {
			b, _, err := recordbatch.First(p)
			return b, err
		}
		need = int64(bytes)
	}
}
