package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Errors that end a connection.
var (
	ErrFrameSize   = errors.New("frame size out of bounds")
	ErrMalformed   = errors.New("malformed request")
	ErrUnsupported = errors.New("API or version is not served")
)

const (
	sizeBytes   = 4
	headerBytes = 8 // key, version, correlation id

	startAhead = 4 << 10  // read-ahead of a new connection
	mostAhead  = 68 << 10 // largest frame read together with its successors
	trustBytes = 2<<20 + 64<<10
)

// Reader cuts a stream into frames. Small frames are views of one buffer that is
// filled with as few reads as possible; a large frame is read straight into a
// pooled buffer of its own. The memory of a very large one grows with the bytes
// that have arrived, so that a length alone costs nothing.
//
// A Reader is used by one goroutine.
type Reader struct {
	src      io.Reader
	maxBytes int

	buf   *Buffer // read-ahead; buf.B has full length
	r, w  int     // unread part of buf.B
	ahead int     // how far the next read may go
	large *Buffer // the frame last returned, where it was a large one
}

// NewReader returns a Reader that refuses frames of more than maxBytes.
func NewReader(src io.Reader, maxBytes int) *Reader {
	return &Reader{src: src, maxBytes: maxBytes, ahead: startAhead}
}

// Next returns the next frame without its length. io.EOF means that the stream
// ended between two frames. The frame is valid until the next call of Next,
// Buffered included in between or not, or of Close.
func (f *Reader) Next() ([]byte, error) {
	f.freeLarge()
	if f.buf == nil {
		f.setBuffer(startAhead)
	}
	if err := f.fill(sizeBytes); err != nil {
		return nil, err
	}
	size, err := f.frameSize()
	if err != nil {
		return nil, err
	}
	f.r += sizeBytes
	if size > mostAhead-sizeBytes {
		return f.readLarge(size)
	}
	if err := f.fill(size); err != nil {
		return nil, noEOF(err)
	}
	f.ahead = cap(f.buf.B)
	frame := f.buf.B[f.r : f.r+size : f.r+size]
	f.r += size
	return frame, nil
}

// Buffered tells whether Next would return a whole frame without reading.
func (f *Reader) Buffered() bool {
	if f.w-f.r < sizeBytes {
		return false
	}
	size := int32(binary.BigEndian.Uint32(f.buf.B[f.r:]))
	return size >= 0 && f.w-f.r-sizeBytes >= int(size)
}

// Partial tells whether part of a frame has arrived.
func (f *Reader) Partial() bool { return f.w > f.r }

// Close gives the buffers back.
func (f *Reader) Close() {
	f.freeLarge()
	if f.buf != nil {
		f.buf.Free()
		f.buf = nil
	}
	f.r, f.w = 0, 0
}

func (f *Reader) freeLarge() {
	if f.large != nil {
		f.large.Free()
		f.large = nil
	}
}

func (f *Reader) frameSize() (int, error) {
	size := int32(binary.BigEndian.Uint32(f.buf.B[f.r:]))
	if size < headerBytes || int64(size) > int64(f.maxBytes) {
		return 0, fmt.Errorf("%w: %d bytes, bounds are %d and %d", ErrFrameSize, size, headerBytes, f.maxBytes)
	}
	return int(size), nil
}

// fill makes at least n unread bytes available in buf.
func (f *Reader) fill(n int) error {
	if f.w-f.r >= n {
		return nil
	}
	if cap(f.buf.B) < n {
		f.setBuffer(n)
	}
	if f.r > 0 {
		f.w = copy(f.buf.B, f.buf.B[f.r:f.w])
		f.r = 0
	}
	for f.w < n {
		end := min(max(f.ahead, n), len(f.buf.B))
		m, err := f.src.Read(f.buf.B[f.w:end])
		f.w += m
		if err != nil && f.w < n {
			if f.w > 0 {
				err = noEOF(err)
			}
			return err
		}
	}
	return nil
}

// setBuffer replaces buf by one of at least n bytes, keeping what is unread.
func (f *Reader) setBuffer(n int) {
	b := GetBuffer(n)
	b.B = b.B[:cap(b.B)]
	if f.buf != nil {
		f.w = copy(b.B, f.buf.B[f.r:f.w])
		f.r = 0
		f.buf.Free()
	}
	f.buf = b
}

func (f *Reader) readLarge(size int) ([]byte, error) {
	b := GetBuffer(min(size, trustBytes))
	n := copy(b.B[:cap(b.B)], f.buf.B[f.r:f.w])
	b.B = b.B[:n]
	f.r, f.w = 0, 0
	f.ahead = startAhead
	f.large = b
	for len(b.B) < size {
		if len(b.B) == cap(b.B) {
			next := GetBuffer(min(size, 2*cap(b.B)))
			next.B = append(next.B, b.B...)
			b.Free()
			b, f.large = next, next
		}
		n, err := io.ReadFull(f.src, b.B[len(b.B):min(size, cap(b.B))])
		b.B = b.B[:len(b.B)+n]
		if err != nil {
			return nil, noEOF(err)
		}
	}
	return b.B[:size:size], nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
