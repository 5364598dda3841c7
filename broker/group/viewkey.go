package group

import (
	"encoding/binary"
	"errors"
)

// ViewKind is the first byte of a view key.
type ViewKind byte

// The kinds of view keys.
//
//	'o' group topic partition     a committed offset
//	'g' group                     a classic group
//	'c' group type [member]       a record of a KIP-848 group
//	'x' record key                anything else, as it is
//
// Strings are written so that keys sort as their parts do and no key is a prefix
// of another group's: a zero byte as 00 ff, the end as 00 01. The partition is 4
// bytes, big endian, the type one byte.
const (
	OffsetKind   ViewKind = 'o'
	ClassicKind  ViewKind = 'g'
	ConsumerKind ViewKind = 'c'
	OtherKind    ViewKind = 'x'
)

// ErrNoKey: a record without a key cannot be in a compacted topic.
var ErrNoKey = errors.New("a group record without a key")

// ViewKey is where the view keeps the record of that key: the same for keys that
// mean the same, different for all others, and in the order of their parts.
// A key that is not understood is kept as it is. The only error is ErrNoKey.
func ViewKey(recordKey []byte) ([]byte, error) {
	if len(recordKey) == 0 {
		return nil, ErrNoKey
	}
	k, err := ParseRecordKey(recordKey)
	if err != nil {
		return append([]byte{byte(OtherKind)}, recordKey...), nil
	}
	return k.ViewKey(), nil
}

// ViewKey is where the view keeps the record of the key k.
func (k RecordKey) ViewKey() []byte {
	switch f, _ := k.Type.fields(); {
	case f == topicAndPartition:
		key := appendEscaped(ViewPrefix(OffsetKind, k.Group), k.Topic)
		return binary.BigEndian.AppendUint32(key, uint32(k.Partition))
	case k.Type == GroupMetadataRecord:
		return ViewPrefix(ClassicKind, k.Group)
	case f == member:
		return appendEscaped(append(ViewPrefix(ConsumerKind, k.Group), byte(k.Type)), k.Member)
	default:
		return append(ViewPrefix(ConsumerKind, k.Group), byte(k.Type))
	}
}

// ViewPrefix is what the view keys of a kind of record of a group begin with.
func ViewPrefix(kind ViewKind, group string) []byte {
	return appendEscaped([]byte{byte(kind)}, group)
}

// OffsetsViewPrefix is what the view keys of a group's offsets of a topic begin
// with.
func OffsetsViewPrefix(group, topic string) []byte {
	return appendEscaped(ViewPrefix(OffsetKind, group), topic)
}

func appendEscaped(dst []byte, s string) []byte {
	for i := range len(s) {
		if dst = append(dst, s[i]); s[i] == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 1)
}
