package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/s2"
)

// Java's snappy library frames its blocks: a magic, two versions, then blocks,
// each with its compressed size in 4 bytes. Kafka's Java clients write and
// expect it; others write one bare block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	xerialHeaderBytes = 16
	xerialBlockBytes  = 32 << 10
)

var (
	errXerialHeader = errors.New("snappy stream header cut short")
	errXerialBlock  = errors.New("snappy stream block cut short")
)

// appendXerial compresses src in Java's framing, which every client reads.
func appendXerial(dst, src []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = append(dst, 0, 0, 0, 1, 0, 0, 0, 1)
	for len(src) > 0 {
		block := src[:min(len(src), xerialBlockBytes)]
		src = src[len(block):]
		at := len(dst)
		dst = growTo(dst, at+4+s2.MaxEncodedLen(len(block)))
		encoded := s2.EncodeSnappy(dst[at+4:cap(dst)], block)
		binary.BigEndian.PutUint32(dst[at:at+4], uint32(len(encoded)))
		dst = dst[:at+4+len(encoded)]
	}
	return dst
}

// decodeSnappy reads a bare block or Java's framing.
func decodeSnappy(dst, src []byte, bytesMax int) ([]byte, error) {
	start := len(dst)
	if !bytes.HasPrefix(src, xerialMagic) {
		return decodeSnappyBlock(dst, src, start, bytesMax)
	}
	if len(src) < xerialHeaderBytes {
		return dst, badCompression(Snappy, errXerialHeader)
	}
	src = src[xerialHeaderBytes:]
	for len(src) > 0 {
		if len(src) < 4 {
			return dst[:start], badCompression(Snappy, errXerialBlock)
		}
		size := binary.BigEndian.Uint32(src)
		src = src[4:]
		if uint64(size) > uint64(len(src)) {
			return dst[:start], badCompression(Snappy, errXerialBlock)
		}
		var err error
		if dst, err = decodeSnappyBlock(dst, src[:size], start, bytesMax); err != nil {
			return dst[:start], err
		}
		src = src[size:]
	}
	return dst, nil
}

// decodeSnappyBlock appends one block; start is where the output began.
func decodeSnappyBlock(dst, block []byte, start, bytesMax int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return dst, badCompression(Snappy, err)
	}
	if n > bytesMax-(len(dst)-start) {
		return dst, tooLarge(bytesMax)
	}
	at := len(dst)
	if cap(dst)-at < n {
		dst = growTo(dst, max(at+n, min(2*cap(dst), start+bytesMax)))
	}
	if _, err := s2.Decode(dst[at:at+n], block); err != nil {
		return dst, badCompression(Snappy, err)
	}
	return dst[:at+n], nil
}
