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

// cursor walks the records of a decompressed payload without allocating.
type cursor struct {
	p   []byte
	pos int

	// The record that next stopped at.
	attributes     int8
	timestampDelta int64
	offsetDelta    int32
	key, value     []byte
	headerCount    int32
	headers        []byte // undecoded, but known to be well formed
}

// next moves to the next record, and reports false where its bytes are not a
// record. It is on the path of every uncompressed append, hence the first bytes
// looked at in place: most numbers of most records are one byte long.
func (c *cursor) next() bool {
	size, pos, ok := varint(c.p, c.pos)
	if !ok || size <= 0 || int(size) > len(c.p)-pos {
		return false
	}
	end := pos + int(size)
	p := c.p[:end:end]
	c.attributes = int8(p[pos])
	if c.timestampDelta, pos, ok = varlong(p, pos+1); !ok {
		return false
	}
	if c.offsetDelta, pos, ok = varint(p, pos); !ok {
		return false
	}
	if c.key, pos, ok = varbytes(p, pos); !ok {
		return false
	}
	if c.value, pos, ok = varbytes(p, pos); !ok {
		return false
	}
	c.pos = end
	if pos == end-1 && p[pos] == 0 {
		c.headerCount, c.headers = 0, nil
		return true
	}
	return c.nextHeaders(p, pos)
}

// nextHeaders checks the headers, which end the record.
func (c *cursor) nextHeaders(p []byte, pos int) bool {
	var ok bool
	if c.headerCount, pos, ok = varint(p, pos); !ok || c.headerCount < 0 {
		return false
	}
	c.headers = p[pos:]
	for range c.headerCount {
		var key []byte
		if key, pos, ok = varbytes(p, pos); !ok || key == nil {
			return false
		}
		if _, pos, ok = varbytes(p, pos); !ok {
			return false
		}
	}
	return pos == len(p)
}

// appendHeaders decodes the headers of the current record.
func (c *cursor) appendHeaders(dst []Header) []Header {
	pos := 0
	for range c.headerCount {
		var key, value []byte
		key, pos, _ = varbytes(c.headers, pos)
		value, pos, _ = varbytes(c.headers, pos)
		dst = append(dst, Header{Key: string(key), Value: value})
	}
	return dst
}

// varint reads a zigzag int32 of at most five bytes; like Kafka, it takes
// encodings that are longer than they need be.
func varint(p []byte, pos int) (int32, int, bool) {
	if uint(pos) < uint(len(p)) && p[pos] < 0x80 {
		u := uint32(p[pos])
		return int32(u>>1) ^ -int32(u&1), pos + 1, true
	}
	return varintLong(p, pos)
}

func varintLong(p []byte, pos int) (int32, int, bool) {
	var u uint32
	for shift := 0; shift < 35; shift += 7 {
		if uint(pos) >= uint(len(p)) {
			return 0, pos, false
		}
		b := p[pos]
		pos++
		u |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return int32(u>>1) ^ -int32(u&1), pos, true
		}
	}
	return 0, pos, false
}

// varlong reads a zigzag int64 of at most ten bytes.
func varlong(p []byte, pos int) (int64, int, bool) {
	var u uint64
	for shift := 0; shift < 70; shift += 7 {
		if uint(pos) >= uint(len(p)) {
			return 0, pos, false
		}
		b := p[pos]
		pos++
		u |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return int64(u>>1) ^ -int64(u&1), pos, true
		}
	}
	return 0, pos, false
}

// varbytes reads a length and as many bytes; a negative length is null.
func varbytes(p []byte, pos int) ([]byte, int, bool) {
	n, pos, ok := varint(p, pos)
	if !ok || n < 0 {
		return nil, pos, ok
	}
	if int(n) > len(p)-pos {
		return nil, pos, false
	}
	end := pos + int(n)
	return p[pos:end:end], end, true
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
