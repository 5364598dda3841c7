package recordbatch

import (
	"encoding/binary"
	"math"

	"strandline/metadata/cluster"
)

// Header is one of a record's headers; keys may repeat.
type Header struct {
	Key string
	// Value is nil where it is null.
	Value []byte
}

// Record is one decoded record. Its slices are views.
type Record struct {
	Offset cluster.Offset
	// Timestamp is in ms: the record's own, or the batch's with LogAppendTime.
	Timestamp int64
	// Key and Value are nil where they are null, and empty where they are empty.
	Key, Value []byte
	// Headers is nil where there are none.
	Headers []Header
	// Attributes has no bits in use.
	Attributes int8
	// OffsetDelta is Offset minus the batch's base offset.
	OffsetDelta int32
}

// cursor walks the records of a decompressed payload without allocating. It
// notes positions and cuts out the slices that are asked for.
type cursor struct {
	p   []byte
	pos int

	// The record that next stopped at: its bytes are p[...:end].
	end            int
	timestampDelta int64
	offsetDelta    int32
	attributes     int8
	keyBytes       int // negative for null
	keyPos         int
	valueBytes     int // negative for null
	valuePos       int
	headerCount    int32
	headersPos     int
}

func (c *cursor) key() []byte   { return cut(c.p, c.keyPos, c.keyBytes) }
func (c *cursor) value() []byte { return cut(c.p, c.valuePos, c.valueBytes) }

func cut(p []byte, pos, n int) []byte {
	if n < 0 {
		return nil
	}
	return p[pos : pos+n : pos+n]
}

// next moves to the next record, and reports false where its bytes are not a
// record. It is on the path of every uncompressed append: the short numbers,
// which nearly all are, are read by calls that the compiler inlines.
func (c *cursor) next() bool {
	p, pos := c.p, c.pos
	u, at := shortVarint(p, pos)
	if at < 0 {
		u, at = longVarint(p, pos)
	}
	size := int(unzigzag(u))
	if at < 0 || size <= 0 || size > len(p)-at {
		return false
	}
	end := at + size
	p = p[:end]
	c.attributes = int8(p[at])
	if c.timestampDelta, pos = varlong(p, at+1); pos < 0 {
		return false
	}
	if u, at = shortVarint(p, pos); at < 0 {
		u, at = longVarint(p, pos)
	}
	c.offsetDelta = unzigzag(u)
	if at < 0 {
		return false
	}
	if u, pos = shortVarint(p, at); pos < 0 {
		u, pos = longVarint(p, at)
	}
	n := int(unzigzag(u))
	if pos < 0 || n > end-pos {
		return false
	}
	c.keyPos, c.keyBytes = pos, n
	pos += max(n, 0)
	if u, at = shortVarint(p, pos); at < 0 {
		u, at = longVarint(p, pos)
	}
	n = int(unzigzag(u))
	if at < 0 || n > end-at {
		return false
	}
	c.valuePos, c.valueBytes = at, n
	pos = at + max(n, 0)
	c.pos, c.end = end, end
	if pos == end-1 && p[pos] == 0 {
		c.headerCount = 0
		return true
	}
	c.headerCount, c.headersPos = varint(p, pos)
	return c.headersPos >= 0 && c.headerCount >= 0 && checkHeaders(p, c.headersPos, c.headerCount)
}

// checkHeaders reports whether count headers are the rest of p.
func checkHeaders(p []byte, pos int, count int32) bool {
	for range count {
		n, next := varint(p, pos)
		if next < 0 || n < 0 || int(n) > len(p)-next {
			return false
		}
		n, next = varint(p, next+int(n))
		if next < 0 || int(n) > len(p)-next {
			return false
		}
		pos = next + int(max(n, 0))
	}
	return pos == len(p)
}

// appendHeaders decodes the headers of the current record.
func (c *cursor) appendHeaders(dst []Header) []Header {
	p, pos := c.p[:c.end], c.headersPos
	for range c.headerCount {
		n, at := varint(p, pos)
		key := string(cut(p, at, int(n)))
		n, at = varint(p, at+int(n))
		dst = append(dst, Header{Key: key, Value: cut(p, at, int(n))})
		pos = at + int(max(n, 0))
	}
	return dst
}

// varint reads a zigzag int32 of at most five bytes, and the position behind
// it, which is -1 where there is none. Like Kafka, it takes encodings that are
// longer than they need be.
func varint(p []byte, pos int) (int32, int) {
	u, next := shortVarint(p, pos)
	if next < 0 {
		u, next = longVarint(p, pos)
	}
	return unzigzag(u), next
}

func unzigzag(u uint32) int32 { return int32(u>>1) ^ -int32(u&1) }

// shortVarint reads an unsigned number of one or two bytes that is not at the
// very end of p.
func shortVarint(p []byte, pos int) (uint32, int) {
	if uint(pos+1) < uint(len(p)) {
		a, b := uint32(p[pos]), uint32(p[pos+1])
		if a < 0x80 {
			return a, pos + 1
		}
		if b < 0x80 {
			return a&0x7f | b<<7, pos + 2
		}
	}
	return 0, -1
}

func longVarint(p []byte, pos int) (uint32, int) {
	var u uint32
	for shift := 0; shift < 35 && uint(pos) < uint(len(p)); shift += 7 {
		b := p[pos]
		pos++
		u |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return u, pos
		}
	}
	return 0, -1
}

// varlong reads a zigzag int64 of at most ten bytes.
func varlong(p []byte, pos int) (int64, int) {
	var u uint64
	for shift := 0; shift < 70 && uint(pos) < uint(len(p)); shift += 7 {
		b := p[pos]
		pos++
		u |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return int64(u>>1) ^ -int64(u&1), pos
		}
	}
	return 0, -1
}

// addTimestamp adds a record's delta; like Kafka it wraps on overflow.
func addTimestamp(first, delta int64) int64 { return first + delta }

// recordBytes is the size of a record's body, its length field left out.
func recordBytes(timestampDelta int64, offsetDelta int32, key, value []byte, headers []Header) int {
	n := 1 + varlongBytes(timestampDelta) + varlongBytes(int64(offsetDelta)) +
		varbytesBytes(key) + varbytesBytes(value) + varlongBytes(int64(len(headers)))
	for _, h := range headers {
		n += varlongBytes(int64(len(h.Key))) + len(h.Key) + varbytesBytes(h.Value)
	}
	return n
}

func appendRecord(dst []byte, attributes int8, timestampDelta int64, offsetDelta int32, key, value []byte, headers []Header) []byte {
	dst = binary.AppendVarint(dst, int64(recordBytes(timestampDelta, offsetDelta, key, value, headers)))
	dst = append(dst, byte(attributes))
	dst = binary.AppendVarint(dst, timestampDelta)
	dst = binary.AppendVarint(dst, int64(offsetDelta))
	dst = appendVarbytes(dst, key)
	dst = appendVarbytes(dst, value)
	dst = binary.AppendVarint(dst, int64(len(headers)))
	for _, h := range headers {
		dst = binary.AppendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendVarbytes(dst, h.Value)
	}
	return dst
}

func appendVarbytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

func varlongBytes(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}

func varbytesBytes(b []byte) int {
	if b == nil {
		return 1
	}
	return varlongBytes(int64(len(b))) + len(b)
}

// offsetDeltaOf is false where an offset is not within an int32 above base.
func offsetDeltaOf(base, o cluster.Offset) (int32, bool) {
	d := int64(o) - int64(base)
	return int32(d), o >= base && d >= 0 && d <= math.MaxInt32
}
