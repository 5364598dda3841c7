package recordbatch

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The frames of v0 that kafka-python writes have a checksum of their own kind;
// those of v1 have the right one.
func TestLZ4FramesOfV0(t *testing.T) {
	for name, repaired := range map[string]bool{"kafka-python-v0-lz4": true, "kafka-python-v1-lz4": false, "sarama-v1-lz4": false} {
		set, err := os.ReadFile("testdata/" + name + ".set")
		require.NoError(t, err)
		m, _, err := firstMessage(set)
		require.NoError(t, err)
		_, pos := m.field(m.keyAt())
		frame, _ := m.field(pos)
		right := repairLZ4(frame)
		require.Equal(t, repaired, !bytes.Equal(frame, right), name)
		_, err = LZ4.Decompress(nil, right, 1<<20)
		require.NoError(t, err, name)
		if repaired {
			_, err = LZ4.Decompress(nil, frame, 1<<20)
			require.Error(t, err, "the library checks it")
			breakLZ4(right)
			require.Equal(t, frame, right)
		}
	}
	for _, short := range [][]byte{nil, {4}, {4, 0x22, 0x4d, 0x18}, {4, 0x22, 0x4d, 0x18, 0x68, 0x40}} {
		require.Equal(t, short, repairLZ4(short))
		breakLZ4(short)
	}
}

func TestShortXXH32(t *testing.T) {
	// As published with the hash.
	require.Equal(t, uint32(0x02cc5d05), shortXXH32(nil))
	require.Equal(t, uint32(0x550d7456), shortXXH32([]byte("a")))
	require.Equal(t, uint32(0x32d153ff), shortXXH32([]byte("abc")))
}
