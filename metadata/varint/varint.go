package varint

import (
	"encoding/binary"
	"math"
)

// Uint appends an unsigned number.
func Uint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// Int appends a signed number (zigzag).
func Int(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

// Bool appends one byte.
func Bool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// String appends a length and the bytes.
func String(b []byte, s string) []byte {
	return append(Uint(b, uint64(len(s))), s...)
}

// Reader reads what the functions above append. After an error every method
// returns the zero value; see Err.
type Reader struct {
	b     []byte
	pos   int
	cause string
}

// NewReader reads b, which must not change meanwhile.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Position is where the next byte is read, or where the first error happened.
func (r *Reader) Position() int { return r.pos }

// Rest is the number of bytes not yet read.
func (r *Reader) Rest() int { return len(r.b) - r.pos }

// Failed tells whether an error happened.
func (r *Reader) Failed() bool { return r.cause != "" }

// Cause is the first error in words, "" where there was none.
func (r *Reader) Cause() string { return r.cause }

// Fail records an error found by the caller, unless there is one already.
func (r *Reader) Fail(cause string) {
	if r.cause == "" {
		r.cause = cause
	}
}

// End records an error if bytes are left.
func (r *Reader) End() {
	if r.Rest() != 0 {
		r.Fail("bytes after the end")
	}
}

// Uint reads an unsigned number in its shortest form.
func (r *Reader) Uint() uint64 {
	if r.Failed() {
		return 0
	}
	v, n := binary.Uvarint(r.b[r.pos:])
	if n <= 0 || n > 1 && r.b[r.pos+n-1] == 0 {
		r.Fail("bad number")
		return 0
	}
	r.pos += n
	return v
}

// Int reads a signed number.
func (r *Reader) Int() int64 {
	u := r.Uint()
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}

// Int32 reads a signed number that must fit 32 bits.
func (r *Reader) Int32() int32 {
	v := r.Int()
	if v < math.MinInt32 || v > math.MaxInt32 {
		r.Fail("number does not fit 32 bits")
		return 0
	}
	return int32(v)
}

// Int16 reads a signed number that must fit 16 bits.
func (r *Reader) Int16() int16 {
	v := r.Int()
	if v < math.MinInt16 || v > math.MaxInt16 {
		r.Fail("number does not fit 16 bits")
		return 0
	}
	return int16(v)
}

// Uint32 reads an unsigned number that must fit 32 bits.
func (r *Reader) Uint32() uint32 {
	v := r.Uint()
	if v > math.MaxUint32 {
		r.Fail("number does not fit 32 bits")
		return 0
	}
	return uint32(v)
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if !r.Failed() && r.Rest() < 1 {
		r.Fail("ends too early")
	}
	if r.Failed() {
		return 0
	}
	r.pos++
	return r.b[r.pos-1]
}

// Bool reads one byte that must be 0 or 1.
func (r *Reader) Bool() bool {
	v := r.Byte()
	if v > 1 {
		r.Fail("bad boolean")
	}
	return v == 1
}

// Bytes reads n bytes, a view of the input.
func (r *Reader) Bytes(n int) []byte {
	if !r.Failed() && (n < 0 || r.Rest() < n) {
		r.Fail("ends too early")
	}
	if r.Failed() {
		return nil
	}
	r.pos += n
	return r.b[r.pos-n : r.pos : r.pos]
}

// ID reads an identifier of 16 bytes.
func (r *Reader) ID() (id [16]byte) {
	copy(id[:], r.Bytes(16))
	return id
}

// String reads a string, copied.
func (r *Reader) String() string {
	n := r.Uint()
	if n > uint64(r.Rest()) {
		r.Fail("ends too early")
		return ""
	}
	return string(r.Bytes(int(n)))
}

// Count reads the length of a list of which every element takes at least
// elementBytes (at least 1) bytes, so that no length asks for more memory than
// the input pays for.
func (r *Reader) Count(elementBytes int) int {
	n := r.Uint()
	if n > uint64(r.Rest()/elementBytes) {
		r.Fail("list is longer than its bytes")
		return 0
	}
	return int(n)
}
