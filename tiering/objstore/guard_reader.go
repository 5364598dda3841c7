package objstore

import (
	"context"
	"errors"
	"io"
)

// guardReader is the body of a guarded Get. A retriable failure makes it ask
// for the rest, within one budget of attempts for the whole body. Not for
// concurrent use.
type guardReader struct {
	g   *Guard
	ctx context.Context
	key string
	// off and n are what is still to be read; n < 0: to the end.
	off, n int64

	attempts int
	current  *attempt // nil: none under way
	body     io.ReadCloser
	read     bool // something was read: off is no longer the caller's
	err      error
}

// open begins an attempt at the rest, or returns the error to give up with.
func (r *guardReader) open() error {
	bytes := r.n
	if bytes < 0 {
		bytes = unboundedBytes
	}
	for {
		r.attempts++
		actx, a, err := r.g.begin(r.ctx, VerbGet, r.key, bytes)
		if err != nil {
			return err
		}
		body, err := r.g.inner.Get(actx, r.key, r.off, r.n)
		if err == nil {
			a.dog.pause()
			r.current, r.body = a, &watchedReader{body, a.dog}
			return nil
		}
		err = a.outcome(err)
		a.end(err)
		if err := r.g.pause(r.ctx, VerbGet, r.key, r.attempts, err); err != nil {
			return err
		}
	}
}

// finish ends the attempt under way with an outcome.
func (r *guardReader) finish(err error) error {
	if r.current == nil {
		return nil
	}
	cerr := r.body.Close()
	r.current.end(err)
	r.current, r.body = nil, nil
	return cerr
}

func (r *guardReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.body.Read(p)
	r.g.cfg.Metrics.bytes.WithLabelValues(string(VerbGet)).Add(float64(n))
	r.off += int64(n)
	if r.n >= 0 {
		r.n -= int64(n)
	}
	r.read = r.read || n > 0
	switch {
	case err == nil:
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		r.err = io.EOF
		_ = r.finish(nil)
	default:
		r.err = r.resume(r.current.outcome(err))
	}
	return n, r.err
}

// resume is called where the body broke off.
func (r *guardReader) resume(err error) error {
	_ = r.finish(err)
	if r.n == 0 {
		return io.EOF
	}
	if err := r.g.pause(r.ctx, VerbGet, r.key, r.attempts, err); err != nil {
		return err
	}
	err = r.open()
	if errors.Is(err, ErrRange) && r.read {
		// Everything had been read when it broke off.
		return io.EOF
	}
	return err
}

// Close ends the request, read or not.
func (r *guardReader) Close() error {
	var err error
	if r.current != nil {
		err = r.finish(nil)
	}
	if r.err == nil {
		r.err = ErrClosed
	}
	return err
}
