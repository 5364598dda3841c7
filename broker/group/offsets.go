package group

import (
	"time"

	"strandline/metadata/cluster"
)

// CommittedOffset is what a group has said of a partition.
type CommittedOffset struct {
	// Offset is the next one to read.
	Offset cluster.Offset
	// LeaderEpoch is that of the last record read, or NoLeaderEpoch (KIP-320).
	LeaderEpoch cluster.LeaderEpoch
	// Metadata is the client's, opaque.
	Metadata string
	// CommitTime is when the coordinator had it.
	CommitTime time.Time
	// ExpireTime is set by clients of OffsetCommit 2 to 4 and wins over
	// offsets.retention.minutes; zero: not set.
	ExpireTime time.Time
	// TopicID is zero where the client did not use ids (KIP-848).
	TopicID cluster.TopicID
}

// CommitRequest commits offsets of a group of either type.
type CommitRequest struct {
	Token Token
	// MemberID is "" and Generation negative for a client that is no member.
	MemberID   string
	InstanceID string
	// Generation of a classic group, member epoch of a KIP-848 group.
	Generation int32
	// NoMemberEpochs: the client's version of OffsetCommit, below 9, knows no
	// member epochs (KIP-848).
	NoMemberEpochs bool
	// Retention is how long the offsets are kept, from now on; negative: as
	// configured (OffsetCommit 2 to 4 alone can say it).
	Retention time.Duration
	// Transactional: sent for a transaction (KIP-98).
	Transactional bool
	Partitions    []CommitPartition
}

// CommitPartition is a partition of a CommitRequest.
type CommitPartition struct {
	Topic       string
	TopicID     cluster.TopicID
	Partition   int32
	Offset      cluster.Offset
	LeaderEpoch cluster.LeaderEpoch
	Metadata    string
}

// CommitResponse has an error, or nil, for each partition of the request, in
// its order.
type CommitResponse struct{ Partitions []error }

// OffsetDeleteRequest deletes offsets that a group has committed (KIP-496).
type OffsetDeleteRequest struct {
	Token      Token
	Partitions []PartitionName
}

// PartitionName names a partition by its topic's name.
type PartitionName struct {
	Topic     string
	Partition int32
}

// OffsetDeleteResponse has an error, or nil, for each partition of the request,
// in its order.
type OffsetDeleteResponse struct{ Partitions []error }
