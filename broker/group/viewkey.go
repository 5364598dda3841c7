package group

import (
	"bytes"
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
func ViewKey(recordKey []byte) ([]byte, error) { return AppendViewKey(nil, recordKey) }

// AppendViewKey appends ViewKey to dst, and dst as it was with an error.
func AppendViewKey(dst, recordKey []byte) ([]byte, error) {
	if len(recordKey) == 0 {
		return dst, ErrNoKey
	}
	k, ok := splitKey(recordKey)
	if !ok {
		return append(append(dst, byte(OtherKind)), recordKey...), nil
	}
	return appendViewKey(dst, k.typ, k.group, k.topic, k.partition, k.member), nil
}

// ViewKey is where the view keeps the record of the key k.
func (k RecordKey) ViewKey() []byte {
	room := len(k.Group) + len(k.Topic) + len(k.Member) + 16
	return appendViewKey(make([]byte, 0, room), k.Type, k.Group, k.Topic, k.Partition, k.Member)
}

// ViewKeyGroup returns the group of a view key and the length of what all view
// keys of the group and its kind begin with (ViewPrefix). A view key that is of no
// group has "" and its own length.
func ViewKeyGroup(viewKey []byte) (id string, prefix int) {
	prefix = ViewPrefixBytes(viewKey)
	if prefix < 3 || ViewKind(viewKey[0]) == OtherKind || !bytes.Equal(viewKey[prefix-2:prefix], []byte{0, 1}) {
		return "", prefix
	}
	name := viewKey[1 : prefix-2]
	if bytes.IndexByte(name, 0) < 0 {
		return string(name), prefix
	}
	return string(bytes.ReplaceAll(name, []byte{0, 0xff}, []byte{0})), prefix
}

// ViewPrefixBytes is the second result of ViewKeyGroup.
func ViewPrefixBytes(viewKey []byte) int {
	if len(viewKey) == 0 || ViewKind(viewKey[0]) == OtherKind {
		return len(viewKey)
	}
	for at := 1; ; at += 2 {
		end := bytes.IndexByte(viewKey[at:], 0)
		if at += end; end < 0 || at+1 >= len(viewKey) {
			return len(viewKey)
		}
		if viewKey[at+1] == 1 {
			return at + 2
		}
	}
}

// text is the strings of a key.
type text interface{ string | []byte }

func appendViewKey[T text](dst []byte, typ RecordType, group, topic T, partition int32, memberID T) []byte {
	switch f, _ := typ.fields(); {
	case f == topicAndPartition:
		dst = appendEscaped(appendPrefix(dst, OffsetKind, group), topic)
		return binary.BigEndian.AppendUint32(dst, uint32(partition))
	case typ == GroupMetadataRecord:
		return appendPrefix(dst, ClassicKind, group)
	case f == member:
		return appendEscaped(append(appendPrefix(dst, ConsumerKind, group), byte(typ)), memberID)
	default:
		return append(appendPrefix(dst, ConsumerKind, group), byte(typ))
	}
}

// ViewPrefix is what the view keys of a kind of record of a group begin with.
func ViewPrefix(kind ViewKind, group string) []byte {
	return appendPrefix(make([]byte, 0, len(group)+3), kind, group)
}

// OffsetsViewPrefix is what the view keys of a group's offsets of a topic begin
// with.
func OffsetsViewPrefix(group, topic string) []byte {
	return appendEscaped(ViewPrefix(OffsetKind, group), topic)
}

func appendPrefix[T text](dst []byte, kind ViewKind, group T) []byte {
	return appendEscaped(append(dst, byte(kind)), group)
}

func appendEscaped[T text](dst []byte, s T) []byte {
	for i := range len(s) {
		if dst = append(dst, s[i]); s[i] == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 1)
}
