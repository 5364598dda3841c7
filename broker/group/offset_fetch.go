package group

import "strandline/metadata/cluster"

// OffsetFetchRequest asks for offsets that a group has committed.
type OffsetFetchRequest struct {
	// MemberID is "" and MemberEpoch negative for a client that is no member of
	// a KIP-848 group.
	MemberID    string
	MemberEpoch int32
	// RequireStable refuses offsets that an open transaction is about to change
	// (KIP-447).
	RequireStable bool
	// All asks for every offset of the group, in order of topic and partition;
	// Partitions is then not looked at.
	All        bool
	Partitions []FetchPartition
}

// FetchPartition is a partition of an OffsetFetchRequest. A TopicID that is not
// zero hides the offset of another topic of the same name.
type FetchPartition struct {
	Topic     string
	TopicID   cluster.TopicID
	Partition int32
}

// OffsetFetchResponse has an entry for each partition of the request, in its
// order, or for each offset of the group.
type OffsetFetchResponse struct{ Offsets []FetchedOffset }

// FetchedOffset is what a group has committed for a partition. Where it has
// nothing, Offset is cluster.NoOffset and Err nil; ErrUnstableOffset goes with
// the same.
type FetchedOffset struct {
	PartitionName
	Offset      cluster.Offset
	LeaderEpoch cluster.LeaderEpoch
	Metadata    string
	Err         error
}

// NothingCommitted is the answer for a partition without an offset.
func NothingCommitted(p PartitionName, err error) FetchedOffset {
	return FetchedOffset{PartitionName: p, Offset: cluster.NoOffset, LeaderEpoch: cluster.NoLeaderEpoch, Err: err}
}
