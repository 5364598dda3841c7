package keyindex

import (
	"encoding/binary"
	"math/bits"
)

// hashKey is the secret of an index.
type hashKey struct{ k0, k1 uint64 }

// hash is the 128-bit hash of a record key, as two big-endian halves.
type hash struct{ hi, lo uint64 }

func (h hash) compare(o hash) int {
	switch {
	case h.hi < o.hi || h.hi == o.hi && h.lo < o.lo:
		return -1
	case h == o:
		return 0
	}
	return 1
}

func (h hash) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, h.hi)
	return binary.BigEndian.AppendUint64(dst, h.lo)
}

// sum is SipHash-2-4 with 128 bits of output (Aumasson and Bernstein): who does
// not know the key cannot find two inputs with one hash.
func (k hashKey) sum(p []byte) hash {
	s := sipState{
		v0: k.k0 ^ 0x736f6d6570736575, v1: k.k1 ^ 0x646f72616e646f6d ^ 0xee,
		v2: k.k0 ^ 0x6c7967656e657261, v3: k.k1 ^ 0x7465646279746573,
	}
	last := uint64(len(p)) << 56
	for len(p) >= 8 {
		s.block(binary.LittleEndian.Uint64(p))
		p = p[8:]
	}
	for i, b := range p {
		last |= uint64(b) << (8 * i)
	}
	s.block(last)
	s.v2 ^= 0xee
	s.rounds(4)
	first := s.v0 ^ s.v1 ^ s.v2 ^ s.v3
	s.v1 ^= 0xdd
	s.rounds(4)
	return hash{bits.ReverseBytes64(first), bits.ReverseBytes64(s.v0 ^ s.v1 ^ s.v2 ^ s.v3)}
}

type sipState struct{ v0, v1, v2, v3 uint64 }

func (s *sipState) block(m uint64) {
	s.v3 ^= m
	s.rounds(2)
	s.v0 ^= m
}

func (s *sipState) rounds(n int) {
	v0, v1, v2, v3 := s.v0, s.v1, s.v2, s.v3
	for range n {
		v0 += v1
		v1 = bits.RotateLeft64(v1, 13) ^ v0
		v0 = bits.RotateLeft64(v0, 32)
		v2 += v3
		v3 = bits.RotateLeft64(v3, 16) ^ v2
		v0 += v3
		v3 = bits.RotateLeft64(v3, 21) ^ v0
		v2 += v1
		v1 = bits.RotateLeft64(v1, 17) ^ v2
		v2 = bits.RotateLeft64(v2, 32)
	}
	s.v0, s.v1, s.v2, s.v3 = v0, v1, v2, v3
}
