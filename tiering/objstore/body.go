package objstore

import (
	"bytes"
	"io"
)

// Body is what is uploaded: bytes at positions, so that parts go in parallel
// and a retry starts again, without anything being buffered. ReadAt must be
// safe for concurrent use and return the same bytes each time.
type Body interface {
	io.ReaderAt
	Size() int64
}

// RangeSummer is a Body that knows checksums of its ranges without reading
// them, so that an upload in parts reads each byte once.
type RangeSummer interface {
	Body
	// RangeCRC32C returns the CRC32C of n bytes from off, and false where it
	// is not known for just this range.
	RangeCRC32C(off, n int64) (uint32, bool)
}

// BytesBody is a Body in memory.
type BytesBody struct{ r *bytes.Reader }

// NewBytesBody returns b as a Body. b must not change until the put returned.
func NewBytesBody(b []byte) BytesBody { return BytesBody{bytes.NewReader(b)} }

// ReadAt implements Body.
func (b BytesBody) ReadAt(p []byte, off int64) (int, error) { return b.r.ReadAt(p, off) }

// Size implements Body.
func (b BytesBody) Size() int64 { return b.r.Size() }

// readerBody is a range of an io.ReaderAt.
type readerBody struct{ *io.SectionReader }

// NewReaderBody returns bytes [off, off+n) of r as a Body.
func NewReaderBody(r io.ReaderAt, off, n int64) Body {
	return readerBody{io.NewSectionReader(r, off, n)}
}
