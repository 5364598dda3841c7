package wire

import (
	"encoding/binary"
	"fmt"
)

// Request is a frame with its header decoded.
type Request struct {
	Key           int16
	Version       int16
	CorrelationID int32
	// ClientID is a view of the frame; nil where the client sent null.
	ClientID []byte
	// Body is a view of the frame.
	Body []byte
	// Bytes is the size of the frame, its length excluded.
	Bytes int
}

// ParseRequest decodes the header of a frame. Where the API or the version is
// not served it returns ErrUnsupported, and the request with key, version and
// correlation id set.
func ParseRequest(frame []byte) (Request, error) {
	if len(frame) < headerBytes {
		return Request{}, fmt.Errorf("%w: header of %d bytes", ErrMalformed, len(frame))
	}
	q := Request{
		Key:           int16(binary.BigEndian.Uint16(frame)),
		Version:       int16(binary.BigEndian.Uint16(frame[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(frame[4:])),
		Bytes:         len(frame),
	}
	api, ok := Lookup(q.Key)
	if !ok || q.Version < api.Lowest() || q.Version > api.Max {
		return q, fmt.Errorf("%w: key %d version %d", ErrUnsupported, q.Key, q.Version)
	}
	c := cursor{b: frame[headerBytes:]}
	if n := c.int16(); n >= 0 {
		q.ClientID = c.take(int(n))
	}
	if api.IsFlexible(q.Version) {
		c.skipTags()
	}
	if c.bad {
		return q, fmt.Errorf("%w: header of key %d version %d", ErrMalformed, q.Key, q.Version)
	}
	q.Body = c.b
	return q, nil
}

// cursor walks over encoded bytes; bad is set at the first thing that does not
// fit, and everything after reads as nothing.
type cursor struct {
	b    []byte
	bad  bool
	tags int // tagged fields seen
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad, c.b = true, nil
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) int16() int16 {
	if v := c.take(2); v != nil {
		return int16(binary.BigEndian.Uint16(v))
	}
	return 0
}

func (c *cursor) int32() int32 {
	if v := c.take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (c *cursor) uvarint() int {
	v, n := binary.Uvarint(c.b)
	if n <= 0 || n > 5 || v > 1<<31-1 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[n:]
	return int(v)
}

func (c *cursor) skipTags() {
	for n := c.uvarint(); n > 0 && !c.bad; n-- {
		c.uvarint()
		c.take(c.uvarint())
		if c.tags++; c.tags > MaxTags {
			c.bad, c.b = true, nil
		}
	}
}
