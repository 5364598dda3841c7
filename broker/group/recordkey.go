package group

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// RecordType is what a record of __consumer_offsets is about: the number that
// its key begins with.
type RecordType int16

// The record types that are understood here. Others (share and streams groups)
// are kept as they are.
const (
	// LegacyOffsetCommitRecord has the same key as OffsetCommitRecord, under the
	// number that was used before Kafka 0.9.
	LegacyOffsetCommitRecord RecordType = 0
	OffsetCommitRecord       RecordType = 1
	GroupMetadataRecord      RecordType = 2

	ConsumerGroupMetadataRecord            RecordType = 3
	ConsumerPartitionMetadataRecord        RecordType = 4
	ConsumerMemberMetadataRecord           RecordType = 5
	ConsumerTargetAssignmentMetadataRecord RecordType = 6
	ConsumerTargetAssignmentMemberRecord   RecordType = 7
	ConsumerCurrentAssignmentRecord        RecordType = 8
	ConsumerRegularExpressionRecord        RecordType = 16
)

// RecordKey is the key of a record.
type RecordKey struct {
	Type  RecordType
	Group string
	// Topic and Partition are those of a committed offset.
	Topic     string
	Partition int32
	// Member is the member id of a KIP-848 record, or the regular expression
	// (ConsumerRegularExpressionRecord); "" in one that is about the group.
	Member string
}

// ErrUnknownRecord: a key of a type, or a value of a version, that is not
// understood here.
var ErrUnknownRecord = errors.New("not a record that is understood here")

// ErrMalformedRecord: bytes that are not what their type and version say.
var ErrMalformedRecord = errors.New("malformed group record")

// fields says what follows the group in keys of the type.
type fields uint8

const (
	groupOnly fields = iota
	topicAndPartition
	member
)

func (t RecordType) fields() (fields, bool) {
	switch t {
	case LegacyOffsetCommitRecord, OffsetCommitRecord:
		return topicAndPartition, true
	case GroupMetadataRecord, ConsumerGroupMetadataRecord, ConsumerPartitionMetadataRecord, ConsumerTargetAssignmentMetadataRecord:
		return groupOnly, true
	case ConsumerMemberMetadataRecord, ConsumerTargetAssignmentMemberRecord, ConsumerCurrentAssignmentRecord, ConsumerRegularExpressionRecord:
		return member, true
	}
	return groupOnly, false
}

// Append adds the bytes of the key to dst. No string may be longer than 32767
// bytes, and the type has to be one of those above.
func (k RecordKey) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(k.Type))
	dst = appendString(dst, k.Group)
	switch f, _ := k.Type.fields(); f {
	case topicAndPartition:
		dst = binary.BigEndian.AppendUint32(appendString(dst, k.Topic), uint32(k.Partition))
	case member:
		dst = appendString(dst, k.Member)
	}
	return dst
}

// ParseRecordKey reads a key. Errors: ErrUnknownRecord, ErrMalformedRecord.
func ParseRecordKey(key []byte) (RecordKey, error) {
	k, ok := splitKey(key)
	if ok {
		return RecordKey{Type: k.typ, Group: string(k.group), Topic: string(k.topic), Partition: k.partition, Member: string(k.member)}, nil
	}
	if len(key) < 2 {
		return RecordKey{}, fmt.Errorf("record key of %d bytes: %w", len(key), ErrMalformedRecord)
	}
	why := ErrMalformedRecord
	if _, known := k.typ.fields(); !known {
		why = ErrUnknownRecord
	}
	return RecordKey{}, fmt.Errorf("record key of type %d: %w", k.typ, why)
}

// IsOffsetKey says whether a key is of the type of a committed offset's.
func IsOffsetKey(key []byte) bool {
	if len(key) < 2 {
		return false
	}
	t := RecordType(binary.BigEndian.Uint16(key))
	return t == OffsetCommitRecord || t == LegacyOffsetCommitRecord
}

// keyParts is a RecordKey whose strings are views of its bytes.
type keyParts struct {
	typ                  RecordType
	group, topic, member []byte
	partition            int32
}

// splitKey reads a key; false where it is not understood, of which then only the
// type may be there.
func splitKey(key []byte) (keyParts, bool) {
	r := keyReader{rest: key}
	k := keyParts{typ: RecordType(r.int16())}
	f, known := k.typ.fields()
	if r.bad || !known {
		return k, false
	}
	k.group = r.bytes()
	switch f {
	case topicAndPartition:
		k.topic, k.partition = r.bytes(), r.int32()
	case member:
		k.member = r.bytes()
	}
	return k, !r.bad && len(r.rest) == 0
}

func appendString(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}

// keyReader reads a key from its front; bad once it was too short.
type keyReader struct {
	rest []byte
	bad  bool
}

var noBytes [4]byte

// next returns n bytes, or up to 4 zero ones where they are not there.
func (r *keyReader) next(n int) []byte {
	if r.bad || n < 0 || n > len(r.rest) {
		r.bad = true
		return noBytes[:max(0, min(n, len(noBytes)))]
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *keyReader) int16() int16  { return int16(binary.BigEndian.Uint16(r.next(2))) }
func (r *keyReader) int32() int32  { return int32(binary.BigEndian.Uint32(r.next(4))) }
func (r *keyReader) bytes() []byte { return r.next(int(r.int16())) }

func (r *keyReader) string() string { return string(r.bytes()) }
