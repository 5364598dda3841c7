package s3proto

import (
	"errors"
	"io"

	"strandline/tiering/objstore"
)

// Reader is what a client library sends: seekable, so that it asks for the length
// without reading, and nothing else, so that it is read in one pass. It remembers
// why reading failed.
type Reader struct {
	io.ReadSeeker
	size, read int64
	err        error
}

// NewReader reads a body from its start.
func NewReader(body objstore.Body) *Reader {
	return &Reader{ReadSeeker: io.NewSectionReader(body, 0, body.Size()), size: body.Size()}
}

func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.ReadSeeker.Read(p)
	r.read += int64(n)
	if errors.Is(err, io.EOF) && r.read < r.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.err = err
	}
	return n, err
}

// Response is the body of a Get: it turns what breaks off into an error.
type Response struct {
	Body io.ReadCloser
	// Left is how many bytes are to come; -1: not said.
	Left int64
	// Fail makes the driver's error of one that reading met.
	Fail func(error) error
}

func (b *Response) Read(p []byte) (int, error) {
	n, err := b.Body.Read(p)
	if b.Left >= 0 {
		b.Left -= int64(n)
	}
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && b.Left <= 0 {
		return n, err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, b.Fail(err)
}

// Close implements io.Closer.
func (b *Response) Close() error { return b.Body.Close() }
