package store

import (
	"encoding/binary"

	"strandline/metadata/cluster"
)

// First bytes of keys.
const (
	prefixRaftLog    = 'l'
	prefixRaftStable = 's'
	prefixApplied    = 'a'
	prefixImage      = 'i'
	prefixSummary    = 'p'
	prefixLive       = 'g'
	prefixOther      = 'o'
	prefixLiveID     = 'h'
	prefixDeleted    = 'd'

	prefixViewPosition = 'v'
	prefixViewEntry    = 'e'
	prefixViewPending  = 't'
	prefixViewSet      = 's'
)

// Range is the keys from Lower (inclusive) to Upper (exclusive).
type Range struct{ Lower, Upper []byte }

func prefixRange(prefix []byte) Range {
	return Range{Lower: prefix, Upper: after(prefix)}
}

// after returns the first key that is larger than every key with the prefix.
func after(prefix []byte) []byte {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] != 0xff {
			upper := append([]byte(nil), prefix[:n]...)
			upper[n-1]++
			return upper
		}
	}
	return nil
}

// RaftLogKey is the key of a Raft log entry.
func RaftLogKey(index uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixRaftLog}, index)
}

// RaftLogRange is the keys of the Raft log entries from first to last, both
// inclusive.
func RaftLogRange(first, last uint64) Range {
	return Range{Lower: RaftLogKey(first), Upper: append(RaftLogKey(last), 0)}
}

// RaftLog is the keys of all Raft log entries.
func RaftLog() Range { return prefixRange([]byte{prefixRaftLog}) }

// RaftLogIndex returns the index in a key of RaftLog, false where it is none.
func RaftLogIndex(key []byte) (uint64, bool) {
	if len(key) != 9 || key[0] != prefixRaftLog {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
}

// RaftStableKey is the key of a value of the Raft stable store.
func RaftStableKey(name []byte) []byte {
	return append([]byte{prefixRaftStable}, name...)
}

// AppliedKey is the key of what the state has applied.
func AppliedKey() []byte { return []byte{prefixApplied} }

// ImageKey is the key of a piece of the image.
func ImageKey(entry []byte) []byte { return append([]byte{prefixImage}, entry...) }

// Image is the keys of all pieces of the image.
func Image() Range { return prefixRange([]byte{prefixImage}) }

// ImageEntry returns the entry key in a key of Image.
func ImageEntry(key []byte) []byte { return key[1:] }

func partitionKey(prefix byte, tp cluster.TopicPartition, extra int) []byte {
	key := make([]byte, 0, 1+len(tp.Topic)+4+extra)
	key = append(key, prefix)
	key = append(key, tp.Topic[:]...)
	return binary.BigEndian.AppendUint32(key, uint32(tp.Partition))
}

// SummaryKey is the key of a partition's catalog summary.
func SummaryKey(tp cluster.TopicPartition) []byte { return partitionKey(prefixSummary, tp, 0) }

// Summaries is the keys of all summaries.
func Summaries() Range { return prefixRange([]byte{prefixSummary}) }

// SummaryPartition returns the partition in a key of Summaries, false where it
// is none.
func SummaryPartition(key []byte) (cluster.TopicPartition, bool) {
	var tp cluster.TopicPartition
	if len(key) != 1+len(tp.Topic)+4 || key[0] != prefixSummary {
		return tp, false
	}
	copy(tp.Topic[:], key[1:])
	tp.Partition = int32(binary.BigEndian.Uint32(key[1+len(tp.Topic):]))
	return tp, true
}

// LiveKey is the key of a live remote segment.
func LiveKey(tp cluster.TopicPartition, base cluster.Offset) []byte {
	return binary.BigEndian.AppendUint64(partitionKey(prefixLive, tp, 8), uint64(base))
}

// LiveFrom is the keys of a partition's live segments whose base offset is at
// or after from.
func LiveFrom(tp cluster.TopicPartition, from cluster.Offset) Range {
	return Range{Lower: LiveKey(tp, max(from, 0)), Upper: after(partitionKey(prefixLive, tp, 0))}
}

// LiveUpTo is the keys of a partition's live segments whose base offset is at
// or before last.
func LiveUpTo(tp cluster.TopicPartition, last cluster.Offset) Range {
	return Range{Lower: partitionKey(prefixLive, tp, 0), Upper: append(LiveKey(tp, max(last, 0)), 0)}
}

// LiveIDKey is the key under which a live segment's base offset is found by the
// segment's id.
func LiveIDKey(tp cluster.TopicPartition, id cluster.SegmentID) []byte {
	return append(partitionKey(prefixLiveID, tp, len(id)), id[:]...)
}

// OtherKey is the key of a remote segment that is not live.
func OtherKey(tp cluster.TopicPartition, id cluster.SegmentID) []byte {
	return append(partitionKey(prefixOther, tp, len(id)), id[:]...)
}

// Others is the keys of a partition's segments that are not live.
func Others(tp cluster.TopicPartition) Range {
	return prefixRange(partitionKey(prefixOther, tp, 0))
}

// DeletedKey is the key of a deleted topic.
func DeletedKey(topic cluster.TopicID) []byte {
	return append([]byte{prefixDeleted}, topic[:]...)
}

// Deleted is the keys of all deleted topics.
func Deleted() Range { return prefixRange([]byte{prefixDeleted}) }

// DeletedTopic returns the topic in a key of Deleted, false where it is none.
func DeletedTopic(key []byte) (cluster.TopicID, bool) {
	var topic cluster.TopicID
	if len(key) != 1+len(topic) || key[0] != prefixDeleted {
		return topic, false
	}
	copy(topic[:], key[1:])
	return topic, true
}

// TopicCatalog is the ranges of keys that hold everything the catalog knows of
// a topic, its tombstone included.
func TopicCatalog(topic cluster.TopicID) []Range {
	var out []Range
	for _, prefix := range []byte{prefixSummary, prefixLive, prefixLiveID, prefixOther, prefixDeleted} {
		out = append(out, prefixRange(append([]byte{prefix}, topic[:]...)))
	}
	return out
}

// ViewPositionKey is the key of how far a partition's log is in its view.
func ViewPositionKey(tp cluster.TopicPartition) []byte {
	return partitionKey(prefixViewPosition, tp, 0)
}

// ViewPositions is the keys of the positions of all views.
func ViewPositions() Range { return prefixRange([]byte{prefixViewPosition}) }

// ViewPositionPartition returns the partition in a key of ViewPositions, false
// where it is none.
func ViewPositionPartition(key []byte) (cluster.TopicPartition, bool) {
	var tp cluster.TopicPartition
	if len(key) != 1+len(tp.Topic)+4 || key[0] != prefixViewPosition {
		return tp, false
	}
	copy(tp.Topic[:], key[1:])
	tp.Partition = int32(binary.BigEndian.Uint32(key[1+len(tp.Topic):]))
	return tp, true
}

// viewKeyBytes is what lies before the view key in a key of ViewEntries.
const viewKeyBytes = 1 + 16 + 4

// AppendViewEntryKey appends the key of the entry under a view key to dst.
func AppendViewEntryKey(dst []byte, tp cluster.TopicPartition, viewKey []byte) []byte {
	dst = append(dst, prefixViewEntry)
	dst = append(dst, tp.Topic[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(tp.Partition))
	return append(dst, viewKey...)
}

// ViewEntries is the keys of the entries of a partition's view whose view key
// has the prefix.
func ViewEntries(tp cluster.TopicPartition, prefix []byte) Range {
	return prefixRange(AppendViewEntryKey(nil, tp, prefix))
}

// ViewKey returns the view key in a key of ViewEntries.
func ViewKey(key []byte) []byte { return key[viewKeyBytes:] }

// AppendViewSetKey appends the key of what a view notes of a set of its keys to dst.
func AppendViewSetKey(dst []byte, tp cluster.TopicPartition, set []byte) []byte {
	dst = append(dst, prefixViewSet)
	dst = append(dst, tp.Topic[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(tp.Partition))
	return append(dst, set...)
}

// ViewSets is the keys of the notes of a view's sets that begin with the prefix.
func ViewSets(tp cluster.TopicPartition, prefix []byte) Range {
	return prefixRange(AppendViewSetKey(nil, tp, prefix))
}

// ViewSet returns the set in a key of ViewSets.
func ViewSet(key []byte) []byte { return key[viewKeyBytes:] }

// ViewPendingKey is the key of a record of a producer's open transaction.
func ViewPendingKey(tp cluster.TopicPartition, producer cluster.ProducerID, o cluster.Offset) []byte {
	key := binary.BigEndian.AppendUint64(partitionKey(prefixViewPending, tp, 16), uint64(producer))
	return binary.BigEndian.AppendUint64(key, uint64(o))
}

// ViewPending is the keys of the records of all open transactions of a partition.
func ViewPending(tp cluster.TopicPartition) Range {
	return prefixRange(partitionKey(prefixViewPending, tp, 0))
}

// ViewPendingOf is the keys of the records of one producer's open transaction.
func ViewPendingOf(tp cluster.TopicPartition, producer cluster.ProducerID) Range {
	return prefixRange(binary.BigEndian.AppendUint64(partitionKey(prefixViewPending, tp, 8), uint64(producer)))
}

// ViewPendingRecord returns the producer and the offset in a key of ViewPending,
// false where it is none.
func ViewPendingRecord(key []byte) (cluster.ProducerID, cluster.Offset, bool) {
	if len(key) != viewKeyBytes+16 || key[0] != prefixViewPending {
		return cluster.NoProducerID, cluster.NoOffset, false
	}
	producer := binary.BigEndian.Uint64(key[viewKeyBytes:])
	return cluster.ProducerID(producer), cluster.Offset(binary.BigEndian.Uint64(key[viewKeyBytes+8:])), true
}

// View is the ranges of keys that hold everything of a partition's view.
func View(tp cluster.TopicPartition) []Range {
	var out []Range
	for _, prefix := range []byte{prefixViewPosition, prefixViewEntry, prefixViewPending, prefixViewSet} {
		out = append(out, prefixRange(partitionKey(prefix, tp, 0)))
	}
	return out
}
