package keyindex

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHashIsSipHash compares with the reference implementation's vectors for the
// key 00 01 .. 0f and the input 00 01 .. n-1.
func TestHashIsSipHash(t *testing.T) {
	key := hashKey{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	for n, want := range map[int]string{
		0: "a3817f04ba25a8e66df67214c7550293",
		1: "da87c1d86b99af44347659119b22fc45",
	} {
		input := make([]byte, n)
		for i := range input {
			input[i] = byte(i)
		}
		require.Equal(t, want, hex.EncodeToString(key.sum(input).append(nil)), "%d bytes", n)
	}
	seen := map[hash]bool{}
	for n := range 100 {
		h := key.sum(make([]byte, n))
		require.False(t, seen[h])
		seen[h] = true
		require.NotEqual(t, h, hashKey{1, 2}.sum(make([]byte, n)))
	}
}

func BenchmarkHash(b *testing.B) {
	key := []byte("a record's key 12345678")
	for b.Loop() {
		hashKey{1, 2}.sum(key)
	}
}
