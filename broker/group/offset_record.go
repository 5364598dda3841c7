package group

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
)

const (
	newestOffsetCommit   = 4
	offsetCommitExpiring = 1 // the only version that carries ExpireTime
)

// OffsetKey is the key of the record of a committed offset.
func OffsetKey(group, topic string, partition int32) RecordKey {
	return RecordKey{Type: OffsetCommitRecord, Group: group, Topic: topic, Partition: partition}
}

// OffsetRecord is the record of a committed offset: version 4 of Apache Kafka's
// schema, or version 1, which has neither leader epoch nor topic id, where
// ExpireTime is set. Times are kept to the millisecond.
func OffsetRecord(group, topic string, partition int32, o CommittedOffset) Record {
	r, _ := appendOffsetRecord(make([]byte, 0, offsetRecordBytes(group, topic, o.Metadata)), group, topic, partition, o)
	return r
}

// offsetRecordBytes is at least what a record of a committed offset takes.
func offsetRecordBytes(group, topic, metadata string) int {
	return 64 + len(group) + len(topic) + len(metadata)
}

// appendOffsetRecord writes an OffsetRecord behind buf, and returns it with the
// longer buf.
func appendOffsetRecord(buf []byte, group, topic string, partition int32, o CommittedOffset) (Record, []byte) {
	v := kmsg.OffsetCommitValue{
		Version:         newestOffsetCommit,
		Offset:          int64(o.Offset),
		LeaderEpoch:     int32(o.LeaderEpoch),
		Metadata:        o.Metadata,
		CommitTimestamp: o.CommitTime.UnixMilli(),
		TopicID:         o.TopicID,
	}
	if !o.ExpireTime.IsZero() {
		v.Version, v.ExpireTimestamp = offsetCommitExpiring, o.ExpireTime.UnixMilli()
	}
	at := len(buf)
	buf = OffsetKey(group, topic, partition).Append(buf)
	middle := len(buf)
	buf = v.AppendTo(buf)
	return Record{Key: buf[at:middle:middle], Value: buf[middle:len(buf):len(buf)]}, buf
}

// OffsetTombstone deletes a committed offset.
func OffsetTombstone(group, topic string, partition int32) Record {
	return Record{Key: OffsetKey(group, topic, partition).Append(nil)}
}

// ParseOffset reads the value of a committed offset's record, of any version.
// Errors: ErrUnknownRecord, ErrMalformedRecord.
func ParseOffset(value []byte) (CommittedOffset, error) {
	v := kmsg.OffsetCommitValue{LeaderEpoch: int32(cluster.NoLeaderEpoch), ExpireTimestamp: -1}
	if err := parseValue("committed offset", value, newestOffsetCommit, v.ReadFrom); err != nil {
		return CommittedOffset{}, err
	}
	o := CommittedOffset{
		Offset:      cluster.Offset(v.Offset),
		LeaderEpoch: cluster.NoLeaderEpoch,
		Metadata:    v.Metadata,
		CommitTime:  time.UnixMilli(v.CommitTimestamp),
		TopicID:     v.TopicID,
	}
	if v.LeaderEpoch >= 0 && v.Version >= 3 {
		o.LeaderEpoch = cluster.LeaderEpoch(v.LeaderEpoch)
	}
	if v.ExpireTimestamp >= 0 && v.Version == offsetCommitExpiring {
		o.ExpireTime = time.UnixMilli(v.ExpireTimestamp)
	}
	return o, nil
}

// parseValue has read decode a value that begins with a version no newer than
// newest.
func parseValue(what string, value []byte, newest int16, read func([]byte) error) error {
	b := kbin.Reader{Src: value}
	version := b.Int16()
	if !b.Ok() {
		return fmt.Errorf("%s of %d bytes: %w", what, len(value), ErrMalformedRecord)
	}
	if version < 0 || version > newest {
		return fmt.Errorf("%s of version %d: %w", what, version, ErrUnknownRecord)
	}
	if err := read(value); err != nil {
		return fmt.Errorf("%s of version %d: %w: %w", what, version, ErrMalformedRecord, err)
	}
	return nil
}
