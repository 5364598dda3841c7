package remotelog

import (
	"errors"
	"fmt"
	"io"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// view is a contiguous part of an object's batches in Regions that it owns.
type view struct {
	start, end int64 // positions in the object
	regions    []disk.Region
}

func (v *view) add(regions []disk.Region) {
	for _, r := range regions {
		v.end += r.Bytes
	}
	v.regions = append(v.regions, regions...)
}

func (v *view) release() {
	releaseAll(v.regions)
	v.regions, v.end = nil, v.start
}

// readAt fills p from a position in the object; all of it lies in the view.
func (v *view) readAt(p []byte, position int64) error {
	at := v.start
	for _, r := range v.regions {
		if position < at+r.Bytes {
			n := min(int64(len(p)), at+r.Bytes-position)
			if err := readFull(r, p[:n], position-at); err != nil {
				return err
			}
			p, position = p[n:], position+n
			if len(p) == 0 {
				return nil
			}
		}
		at += r.Bytes
	}
	return io.ErrUnexpectedEOF
}

// cut gives up the view for the Regions of [from, to).
func (v *view) cut(from, to int64) []disk.Region {
	var out []disk.Region
	at := v.start
	for _, r := range v.regions {
		begin, end := max(from, at), min(to, at+r.Bytes)
		next := at + r.Bytes
		if begin < end {
			r.Position += begin - at
			r.Bytes = end - begin
			out = append(out, r)
		} else {
			r.Release()
		}
		at = next
	}
	v.regions = nil
	return out
}

func readFull(r io.ReaderAt, p []byte, off int64) error {
	if n, err := r.ReadAt(p, off); n < len(p) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// batch is what a batch's header says.
type batch struct {
	position, bytes int64
	base, next      cluster.Offset
	maxTimestamp    int64
	leaderEpoch     cluster.LeaderEpoch
}

func (b batch) end() int64 { return b.position + b.bytes }

// errBeyondView tells that the header at hand is not wholly in the view.
var errBeyondView = errors.New("past the chunks at hand")

// errMalformed tells that there is no batch where one should be.
var errMalformed = errors.New("no record batch where one should be")

const (
	// smallBatchBytes separates batches that are walked through a window of
	// windowBytes from those of which only the header is read.
	smallBatchBytes = 4 << 10
	windowBytes     = 16 << 10
)

// walker goes from batch to batch by their headers.
type walker struct {
	v        *view
	position int64 // of the next batch
	limit    int64 // end of the batches in the object
	lastNext cluster.Offset
	lastSize int64

	window   []byte
	windowAt int64
}

// next returns the next batch; io.EOF after the last one.
func (w *walker) next() (batch, error) {
	if w.position == w.limit {
		return batch{}, io.EOF
	}
	if w.position+recordbatch.HeaderBytes > w.limit {
		return batch{}, fmt.Errorf("%w: position %d", errMalformed, w.position)
	}
	if w.position+recordbatch.HeaderBytes > w.v.end {
		return batch{}, errBeyondView
	}
	h, err := w.header()
	if err != nil {
		return batch{}, err
	}
	b := batch{
		position: w.position, bytes: int64(h.Bytes()),
		base: h.BaseOffset(), next: h.NextOffset(),
		maxTimestamp: h.MaxTimestamp(), leaderEpoch: h.PartitionLeaderEpoch(),
	}
	if h.Magic() != 2 || b.bytes < recordbatch.HeaderBytes || b.end() > w.limit || b.base < w.lastNext || b.next <= b.base {
		return batch{}, fmt.Errorf("%w: position %d", errMalformed, w.position)
	}
	w.position, w.lastNext, w.lastSize = b.end(), b.next, b.bytes
	return b, nil
}

// header reads the header at the position; it lies in the view.
func (w *walker) header() (recordbatch.Batch, error) {
	if off := w.position - w.windowAt; off >= 0 && off+recordbatch.HeaderBytes <= int64(len(w.window)) {
		return recordbatch.Batch(w.window[off : off+recordbatch.HeaderBytes]), nil
	}
	n := int64(recordbatch.HeaderBytes)
	if w.lastSize > 0 && w.lastSize <= smallBatchBytes {
		n = min(windowBytes, w.v.end-w.position)
	}
	if int64(cap(w.window)) < n {
		w.window = make([]byte, n)
	}
	w.window, w.windowAt = w.window[:n], w.position
	if err := w.v.readAt(w.window, w.position); err != nil {
		return nil, err
	}
	return recordbatch.Batch(w.window[:recordbatch.HeaderBytes]), nil
}
