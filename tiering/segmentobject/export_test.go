package segmentobject

import (
	"bytes"
	"encoding/binary"
	"io"

	"strandline/tiering/objstore"
)

// ParseIndexForTesting parses an index whose summary is not known.
func ParseIndexForTesting(key string, b []byte, objectBytes int64) (*Index, error) {
	return parseIndex(key, b, objectBytes)
}

// ResealForTesting makes the footer's checksum right, so that a fuzzer gets past
// it.
func ResealForTesting(b []byte) []byte {
	n, err := footerBytes("", b, int64(len(b)))
	if err != nil || n > int64(len(b)) {
		return b
	}
	b = bytes.Clone(b)
	footer := b[int64(len(b))-n:]
	binary.BigEndian.PutUint32(footer[n-12:], objstore.CRC32C(footer[:n-12]))
	return b
}

// AppendForTesting encodes a footer as it is, right or wrong, with its checksum.
func (f *Footer) AppendForTesting(b []byte) []byte { return f.append(b) }

// MaxFooterBytesForTesting and OpenTailBytesForTesting are bounds of a reader.
const (
	MaxFooterBytesForTesting = maxFooterBytes
	OpenTailBytesForTesting  = openTailBytes
)

// SourceForTesting is where an object reads its batches from.
func SourceForTesting(o *Object) *io.ReaderAt { return &o.src.Batches }
