package objstore

import (
	"errors"
	"hash/crc32"
	"io"
)

// castagnoli is the table of CRC32C, which hash/crc32 computes in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C returns the Castagnoli checksum of b.
func CRC32C(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// UpdateCRC32C returns the checksum of what crc covers followed by b.
func UpdateCRC32C(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// CombineCRC32C returns the checksum of A followed by B, given those of A and
// of B and B's length.
func CombineCRC32C(a, b uint32, bytesOfB int64) uint32 {
	return mulModP(xPowModP(uint64(bytesOfB)*8), a) ^ b
}

// polyReflected is the Castagnoli polynomial, bits reflected as in crc32.
const polyReflected = crc32.Castagnoli

// mulModP multiplies two polynomials over GF(2) modulo the CRC's, both in
// reflected form (the highest bit is x^0).
func mulModP(a, b uint32) uint32 {
	var p uint32
	for m := uint32(1) << 31; m != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ polyReflected
		} else {
			b >>= 1
		}
	}
	return p
}

// xPowModP returns x^n modulo the CRC's polynomial.
func xPowModP(n uint64) uint32 {
	result, square := uint32(1)<<31, uint32(1)<<30 // x^0, x^1
	for ; n != 0; n >>= 1 {
		if n&1 != 0 {
			result = mulModP(square, result)
		}
		square = mulModP(square, square)
	}
	return result
}

// readBufferBytes is the unit in which bodies are read for a checksum.
const readBufferBytes = 256 << 10

// RangeCRC32C returns the CRC32C of n bytes of body from off, reading them only
// where the body does not know it (RangeSummer).
func RangeCRC32C(body Body, off, n int64) (uint32, error) {
	if rs, ok := body.(RangeSummer); ok {
		if crc, ok := rs.RangeCRC32C(off, n); ok {
			return crc, nil
		}
	}
	if n == 0 {
		return 0, nil
	}
	h := crc32.New(castagnoli)
	buf := make([]byte, min(n, readBufferBytes))
	got, err := io.CopyBuffer(onlyWriter{h}, onlyReader{io.NewSectionReader(body, off, n)}, buf)
	if err != nil {
		return 0, err
	}
	if got != n {
		return 0, errShortBody
	}
	return h.Sum32(), nil
}

// errShortBody is a body that has fewer bytes than its Size.
var errShortBody = errors.New("the body is shorter than its size")

// onlyReader and onlyWriter hide WriterTo and ReaderFrom, so that io.CopyBuffer
// uses the buffer it is given.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// CRC32CCombiner is CombineCRC32C for many pieces of the same few lengths, whose
// operators it keeps. The zero value is the checksum of nothing.
type CRC32CCombiner struct {
	crc   uint32
	bytes int64
	// length and operator belong to the last piece.
	length   int64
	operator uint32
}

// Add appends a piece of n bytes with the checksum crc.
func (c *CRC32CCombiner) Add(crc uint32, n int64) {
	if n != c.length || c.operator == 0 {
		c.length, c.operator = n, xPowModP(uint64(n)*8)
	}
	c.crc = mulModP(c.operator, c.crc) ^ crc
	c.bytes += n
}

// Sum is the checksum of all pieces.
func (c *CRC32CCombiner) Sum() uint32 { return c.crc }

// Bytes is the length of all pieces.
func (c *CRC32CCombiner) Bytes() int64 { return c.bytes }
