package recordbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"

	"strandline/metadata/cluster"
)

// Positions in a message of format v0 or v1, as they lie in a message set.
const (
	msgPosSize       = 8
	msgPosCRC        = 12
	msgPosMagic      = 16
	msgPosAttributes = 17
	msgPosTimestamp  = 18 // v1 only

	// msgBytesMin is a message of v0 with neither key nor value.
	msgBytesMin = 26
	// stampBytes is what a message of v1 has more.
	stampBytes = 8
)

// Message is one message of format v0 or v1. Its slices are views.
type Message struct {
	Offset cluster.Offset
	// Timestamp is in ms, NoTimestamp in v0.
	Timestamp int64
	// LogAppendTime says that a broker set the timestamp.
	LogAppendTime bool
	Magic         int8
	// Codec is that of the compressed message around this one, or None.
	Codec Codec
	// Key and Value are nil where they are null.
	Key, Value []byte
}

// ErrNested: a compressed message that holds another one.
var ErrNested = fmt.Errorf("%w: compressed message within a compressed message", ErrCorrupt)

// Messages yields the messages of a set of format v0 or v1, those of compressed
// messages included, with absolute offsets: in v1 they are counted back from
// the compressed message's own offset. Every checksum is verified. It yields one
// error, as the last pair: ErrTruncated, ErrBadLength, ErrBadMagic, ErrBadCRC
// and the errors of decompression say that the bytes are not what was sent; what
// also matches ErrInvalid was sent so. All compressed messages of the set
// together decompress to at most the decoder's limit (B4).
func (d *Decoder) Messages(set []byte) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		left := d.Limit()
		for len(set) > 0 {
			m, rest, err := firstMessage(set)
			if err != nil {
				yield(Message{}, err)
				return
			}
			set = rest
			if m.codec() == None {
				if !yield(m.decode(), nil) {
					return
				}
				continue
			}
			inner, err := d.unwrap(m, left)
			if err != nil {
				yield(Message{}, err)
				return
			}
			left -= len(inner)
			if !inside(m, inner, yield) {
				return
			}
		}
	}
}

// message is one message with its offset and size, checked by firstMessage.
type message []byte

// firstMessage cuts the first message off a set and verifies it.
func firstMessage(set []byte) (message, []byte, error) {
	if len(set) < msgPosCRC {
		return nil, set, ErrTruncated
	}
	size := int32(binary.BigEndian.Uint32(set[msgPosSize:]))
	if size < msgBytesMin-msgPosCRC {
		return nil, set, fmt.Errorf("%w: message of %d bytes", ErrBadLength, size)
	}
	if int64(size) > int64(len(set)-msgPosCRC) {
		return nil, set, ErrTruncated
	}
	m := message(set[: msgPosCRC+int(size) : msgPosCRC+int(size)])
	if magic := m.magic(); magic < 0 || magic > 1 {
		return nil, set, fmt.Errorf("%w %d in a message set", ErrBadMagic, magic)
	}
	stored, computed := binary.BigEndian.Uint32(m[msgPosCRC:]), crc32.ChecksumIEEE(m[msgPosMagic:])
	if stored != computed {
		return nil, set, fmt.Errorf("%w: stored %08x, computed %08x", ErrBadCRC, stored, computed)
	}
	if !m.codec().Valid() {
		return nil, set, fmt.Errorf("%w %d", ErrUnknownCodec, m.codec())
	}
	if m.codec() == Zstd {
		return nil, set, fmt.Errorf("%w: zstd needs format v2", ErrUnknownCodec)
	}
	if !m.framed() {
		return nil, set, fmt.Errorf("%w: key and value do not fill the message", ErrBadRecord)
	}
	return m, set[len(m):], nil
}

// messageAt cuts the first message off a set that was verified.
func messageAt(set []byte) message {
	return message(set[:msgPosCRC+int(binary.BigEndian.Uint32(set[msgPosSize:]))])
}

func (m message) magic() int8            { return int8(m[msgPosMagic]) }
func (m message) codec() Codec           { return Codec(m[msgPosAttributes] & attrCodecMask) }
func (m message) offset() cluster.Offset { return cluster.Offset(binary.BigEndian.Uint64(m)) }
func (m message) stamped() bool {
	return m.magic() > 0 && m[msgPosAttributes]&attrLogAppendTime != 0
}

func (m message) timestamp() int64 {
	if m.magic() == 0 {
		return NoTimestamp
	}
	return int64(binary.BigEndian.Uint64(m[msgPosTimestamp:]))
}

func (m message) keyAt() int {
	if m.magic() == 0 {
		return msgPosTimestamp
	}
	return msgPosTimestamp + stampBytes
}

// framed tells whether key and value are the rest of the message.
func (m message) framed() bool {
	pos := m.keyAt()
	for range 2 {
		if pos > len(m)-4 {
			return false
		}
		n := int64(int32(binary.BigEndian.Uint32(m[pos:])))
		if pos += 4; n > int64(len(m)-pos) {
			return false
		}
		pos += int(max(n, 0))
	}
	return pos == len(m)
}

// field is the key or the value whose length is at pos, and where it ends.
func (m message) field(pos int) ([]byte, int) {
	n := int(int32(binary.BigEndian.Uint32(m[pos:])))
	pos += 4
	return cut(m, pos, n), pos + max(n, 0)
}

func (m message) decode() Message {
	key, pos := m.field(m.keyAt())
	value, _ := m.field(pos)
	return Message{
		Offset: m.offset(), Timestamp: m.timestamp(), LogAppendTime: m.stamped(), Magic: m.magic(), Key: key, Value: value,
	}
}

// unwrap decompresses a compressed message into the decoder's buffer.
func (d *Decoder) unwrap(m message, bytesMax int) ([]byte, error) {
	_, pos := m.field(m.keyAt())
	value, _ := m.field(pos)
	if value == nil {
		return nil, invalid(fmt.Errorf("%w: compressed message without a value", ErrBadRecord))
	}
	if cap(d.buf) > retainedBytesMax {
		d.buf = nil
	}
	if m.codec() == LZ4 && m.magic() == 0 {
		value = repairLZ4(value)
	}
	buf, err := m.codec().Decompress(d.buf[:0], value, bytesMax)
	if err != nil {
		return nil, err
	}
	d.buf = buf
	return buf, nil
}

// inside yields the messages of a compressed message; false: no more.
func inside(wrapper message, inner []byte, yield func(Message, error) bool) bool {
	base, err := innerBase(wrapper, inner)
	if err != nil {
		yield(Message{}, err)
		return false
	}
	for rest := inner; len(rest) > 0; {
		m := messageAt(rest)
		rest = rest[len(m):]
		out := m.decode()
		out.Offset += base
		out.Codec = wrapper.codec()
		if wrapper.stamped() {
			out.Timestamp, out.LogAppendTime = wrapper.timestamp(), true
		}
		if !yield(out, nil) {
			return false
		}
	}
	return true
}

// innerBase checks the messages within a compressed one and returns what their
// offsets add to.
func innerBase(wrapper message, inner []byte) (cluster.Offset, error) {
	if len(inner) == 0 {
		return 0, invalid(fmt.Errorf("%w: compressed message of no messages", ErrBadCount))
	}
	var last cluster.Offset
	for rest := inner; len(rest) > 0; {
		m, more, err := firstMessage(rest)
		if err != nil {
			if errors.Is(err, ErrTruncated) {
				return 0, fmt.Errorf("%w: within a compressed message: %w", ErrBadRecord, err)
			}
			return 0, err
		}
		switch {
		case m.codec() != None:
			return 0, invalid(ErrNested)
		case m.magic() != wrapper.magic():
			return 0, invalid(fmt.Errorf("%w: format v%d within v%d", ErrBadRecord, m.magic(), wrapper.magic()))
		}
		last, rest = m.offset(), more
	}
	if wrapper.magic() == 0 {
		return 0, nil
	}
	return wrapper.offset() - last, nil
}

// appendMessage appends a message; key and value nil are null.
func appendMessage(dst []byte, magic int8, attributes byte, offset cluster.Offset, timestamp int64, key, value []byte) []byte {
	be := binary.BigEndian
	at := len(dst)
	dst = be.AppendUint64(dst, uint64(offset))
	dst = be.AppendUint32(dst, uint32(messageBytes(magic, key, value)-msgPosCRC))
	dst = append(dst, 0, 0, 0, 0, byte(magic), attributes)
	if magic > 0 {
		dst = be.AppendUint64(dst, uint64(timestamp))
	}
	dst = appendField(appendField(dst, key), value)
	be.PutUint32(dst[at+msgPosCRC:], crc32.ChecksumIEEE(dst[at+msgPosMagic:]))
	return dst
}

func appendField(dst, b []byte) []byte {
	if b == nil {
		return binary.BigEndian.AppendUint32(dst, 1<<32-1)
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(b))), b...)
}

// messageBytes is the size of a message with its offset and size.
func messageBytes(magic int8, key, value []byte) int {
	n := msgBytesMin + len(key) + len(value)
	if magic > 0 {
		n += stampBytes
	}
	return n
}
