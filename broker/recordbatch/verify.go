package recordbatch

import (
	"encoding/binary"
	"fmt"
)

// PeekBytes tells the size of the batch that b starts with from its first
// PrefixBytes, without looking at the rest: for readers that have only so much
// of a file in memory. It returns ErrTruncated for fewer bytes and ErrBadLength
// for a size that no batch has.
func PeekBytes(b []byte) (int, error) {
	if len(b) < PrefixBytes {
		return 0, ErrTruncated
	}
	length := int32(binary.BigEndian.Uint32(b[posLength:]))
	if length < HeaderBytes-PrefixBytes {
		// Formats before v2 have smaller headers; say which error it is.
		if len(b) > posMagic && b[posMagic] != magicV2 {
			return 0, fmt.Errorf("%w %d", ErrBadMagic, int8(b[posMagic]))
		}
		return 0, fmt.Errorf("%w: length field %d", ErrBadLength, length)
	}
	return PrefixBytes + int(length), nil
}

// First cuts the first batch off b. Length and magic are checked, the rest is
// for Verify. It returns ErrTruncated where b has fewer bytes than the batch,
// b being empty included.
func First(b []byte) (batch Batch, rest []byte, err error) {
	size, err := PeekBytes(b)
	if err != nil {
		return nil, b, err
	}
	if len(b) > posMagic && b[posMagic] != magicV2 {
		return nil, b, fmt.Errorf("%w %d", ErrBadMagic, int8(b[posMagic]))
	}
	if len(b) < size {
		return nil, b, ErrTruncated
	}
	return Batch(b[:size:size]), b[size:], nil
}

// Verify checks what must hold of every batch, wherever it comes from: its
// length, magic, CRC-32C and codec, and that offsets and counts are possible.
// It does not look at the records, and allocates nothing where all is well
// (B2).
func (b Batch) Verify() error {
	if len(b) < HeaderBytes {
		return ErrTruncated
	}
	if b.Magic() != magicV2 {
		return fmt.Errorf("%w %d", ErrBadMagic, b.Magic())
	}
	if b.Bytes() != len(b) {
		return fmt.Errorf("%w: length field %d in %d bytes", ErrBadLength, b.int32At(posLength), len(b))
	}
	if crc := b.ComputeCRC(); crc != b.CRC() {
		return fmt.Errorf("%w: stored %08x, computed %08x", ErrBadCRC, b.CRC(), crc)
	}
	if b.RecordCount() < 0 || b.LastOffsetDelta() < 0 || int64(b.RecordCount()) > int64(b.LastOffsetDelta())+1 {
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrBadCount, b.RecordCount(), b.LastOffsetDelta())
	}
	if !b.Compression().Valid() {
		return fmt.Errorf("%w %d", ErrUnknownCodec, b.Compression())
	}
	return nil
}
