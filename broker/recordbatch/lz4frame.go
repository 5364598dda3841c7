package recordbatch

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The clients that wrote format v0 computed the checksum of an LZ4 frame's
// descriptor over the four bytes before it too. Their readers expect it so, and
// no LZ4 library does; in formats v1 and v2 it is as the LZ4 frame format says.
const (
	lz4MagicBytes = 4
	lz4FlagSize   = 0x08 // the descriptor has the content's size
)

// lz4DescriptorEnd is the position of the descriptor's checksum; 0 where the
// frame is too short to have one.
func lz4DescriptorEnd(frame []byte) int {
	end := lz4MagicBytes + 2
	if len(frame) > lz4MagicBytes && frame[lz4MagicBytes]&lz4FlagSize != 0 {
		end += 8
	}
	if len(frame) <= end {
		return 0
	}
	return end
}

// repairLZ4 is a frame of format v0 with the checksum that LZ4 wants, in a copy
// where it had another.
func repairLZ4(frame []byte) []byte {
	end := lz4DescriptorEnd(frame)
	if end == 0 {
		return frame
	}
	right := descriptorSum(frame[lz4MagicBytes:end])
	if frame[end] == right {
		return frame
	}
	out := bytes.Clone(frame)
	out[end] = right
	return out
}

// breakLZ4 gives a frame the checksum that readers of format v0 expect.
func breakLZ4(frame []byte) {
	if end := lz4DescriptorEnd(frame); end > 0 {
		frame[end] = descriptorSum(frame[:end])
	}
}

func descriptorSum(b []byte) byte { return byte(shortXXH32(b) >> 8) }

// shortXXH32 is the XXH32 hash, with seed 0, of fewer than 16 bytes.
func shortXXH32(b []byte) uint32 {
	const (
		prime1 = 2654435761
		prime2 = 2246822519
		prime3 = 3266489917
		prime4 = 668265263
		prime5 = 374761393
	)
	h := uint32(prime5) + uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*prime3, 17) * prime4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*prime5, 11) * prime1
	}
	h = (h ^ h>>15) * prime2
	h = (h ^ h>>13) * prime3
	return h ^ h>>16
}
