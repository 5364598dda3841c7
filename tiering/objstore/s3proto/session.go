package s3proto

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"

	"strandline/tiering/objstore"
)

// Session is what a driver knows of its bucket besides the client: it is embedded
// in the driver's Store.
type Session struct {
	Config   Config
	location objstore.Location
	// idle ends idle connections; nil: there is nothing to end.
	idle   func()
	closed atomic.Bool
}

// NewSession checks the settings. Nothing is sent.
func NewSession(cfg Config) (*Session, error) {
	cfg, err := cfg.normalise()
	if err != nil {
		return nil, &objstore.Error{Bucket: cfg.Bucket, Endpoint: cfg.Endpoint, Class: objstore.ErrInvalid, Cause: err}
	}
	s := &Session{Config: cfg, location: objstore.Location{Scheme: objstore.SchemeS3, Bucket: cfg.Bucket, Prefix: cfg.Prefix}}
	if u, err := url.Parse(cfg.Endpoint); err == nil {
		s.location.Endpoint = u.Host
	}
	return s, nil
}

// OnClose sets what ends idle connections, if transport can.
func (s *Session) OnClose(transport any) {
	if t, ok := transport.(interface{ CloseIdleConnections() }); ok {
		s.idle = t.CloseIdleConnections
	}
}

// Check is what every call begins with.
func (s *Session) Check(ctx context.Context, op objstore.Verb, keys ...string) error {
	if s.closed.Load() {
		return s.Classed(op, "", objstore.ErrClosed, nil)
	}
	if ctx.Err() != nil {
		return s.Classed(op, "", objstore.ErrUnavailable, context.Cause(ctx))
	}
	for _, key := range keys {
		if err := objstore.ValidateKey(key); err != nil {
			return s.Classed(op, key, objstore.ErrInvalidKey, err)
		}
	}
	return nil
}

// Classed is an error of a known class.
func (s *Session) Classed(op objstore.Verb, key string, class, cause error) error {
	return &objstore.Error{Op: op, Key: key, Endpoint: s.location.Endpoint, Bucket: s.Config.Bucket, Class: class, Cause: cause}
}

// refuse is an error that says what to set.
func (s *Session) refuse(op objstore.Verb, key, remedy string, cause error) error {
	return &objstore.Error{
		Op: op, Key: key, Endpoint: s.location.Endpoint, Bucket: s.Config.Bucket,
		Class: objstore.ErrInvalid, Cause: cause, Remedy: remedy,
	}
}

// Fail turns an error of the client library into ours; nil stays nil.
func (s *Session) Fail(ctx context.Context, op objstore.Verb, key string, err error, a Answer) error {
	if err == nil {
		return nil
	}
	e := &objstore.Error{Op: op, Key: key, Endpoint: s.location.Endpoint, Bucket: s.Config.Bucket, Cause: err}
	if ctx.Err() != nil {
		// The cause says more than the client: a stall, or the caller's end.
		e.Class, e.Cause = objstore.ErrUnavailable, context.Cause(ctx)
		return e
	}
	v, ok := a.judge()
	if !ok {
		v = judgeTransport(s.location.Endpoint, err)
	}
	e.Class, e.Remedy = v.class, v.remedy
	return e
}

// FailPut is Fail for an upload of body: it tells one that could not be read from
// a store that failed.
func (s *Session) FailPut(ctx context.Context, op objstore.Verb, key string, body *Reader, err error, a Answer) error {
	if err != nil && body.err != nil && ctx.Err() == nil {
		return s.Classed(op, key, objstore.ErrInvalid, fmt.Errorf("reading the body: %w", body.err))
	}
	return s.Fail(ctx, op, key, err, a)
}

// CheckParts refuses an upload of more parts than S3 takes.
func (s *Session) CheckParts(key string, size int64) error {
	if size <= s.Config.PartBytes*maxParts {
		return nil
	}
	return s.refuse(objstore.VerbBegin, key, "raise remote.store.part.size.bytes",
		fmt.Errorf("%d bytes in parts of %d are over %d parts", size, s.Config.PartBytes, maxParts))
}

// Range is the header for n bytes from off; "" for all of an object.
func (s *Session) Range(key string, off, n int64) (string, error) {
	switch {
	case off < 0 || n == 0:
		return "", s.Classed(objstore.VerbGet, key, objstore.ErrRange, fmt.Errorf("%d bytes at %d", n, off))
	case n > 0:
		return fmt.Sprintf("bytes=%d-%d", off, off+n-1), nil
	case off > 0:
		return fmt.Sprintf("bytes=%d-", off), nil
	}
	return "", nil
}

// CheckRange compares the Content-Range of an answer with what was asked: a store
// or proxy that ignores ranges would hand out other bytes.
func (s *Session) CheckRange(key, asked string, off int64, got string) error {
	if asked == "" || strings.HasPrefix(got, fmt.Sprintf("bytes %d-", off)) {
		return nil
	}
	return s.Classed(objstore.VerbGet, key, objstore.ErrUnavailable, fmt.Errorf("asked for range %q, the answer has %q", asked, got))
}

// Location implements objstore.Store.
func (s *Session) Location() objstore.Location { return s.location }

// PartBytes implements objstore.PartUploader.
func (s *Session) PartBytes() int64 { return s.Config.PartBytes }

// Close implements objstore.Store.
func (s *Session) Close() error {
	if !s.closed.Swap(true) && s.idle != nil {
		s.idle()
	}
	return nil
}

// DecodeKey undoes the encoding of a listing.
func DecodeKey(key string, encoded bool) (string, error) {
	if !encoded {
		return key, nil
	}
	return url.QueryUnescape(key)
}

// errUnconfirmed: the answer to an upload has no checksum.
var errUnconfirmed = errors.New("the store did not confirm the CRC32C")
