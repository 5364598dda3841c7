package recordbatch

import "encoding/binary"

// AppendUncompressed appends the batch to dst without compression, everything
// but codec, length and checksum as it is. It decompresses at most bytesMax
// bytes (B4), or DecodedBytesMax where that is 0.
func (b Batch) AppendUncompressed(dst []byte, bytesMax int) ([]byte, error) {
	if bytesMax <= 0 {
		bytesMax = DecodedBytesMax
	}
	at := len(dst)
	dst = append(dst, b[:HeaderBytes]...)
	dst, err := b.Compression().Decompress(dst, b.Payload(), bytesMax)
	if err != nil {
		return dst[:at], err
	}
	Batch(dst[at:]).setCodec(None)
	return dst, nil
}

// AppendCompressed appends an uncompressed batch to dst with another codec,
// everything but codec, length and checksum as it is.
func (b Batch) AppendCompressed(dst []byte, c Codec, level int) []byte {
	at := len(dst)
	dst = append(dst, b[:HeaderBytes]...)
	dst = c.CompressAt(level, dst, b.Payload())
	Batch(dst[at:]).setCodec(c)
	return dst
}

// setCodec makes a whole batch of a header that was copied and of records that
// were put behind it.
func (b Batch) setCodec(c Codec) {
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-PrefixBytes))
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(b.Attributes()&^attrCodecMask|int16(c)))
	b.setCRC()
}
