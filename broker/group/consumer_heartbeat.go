package group

import (
	"time"

	"strandline/metadata/cluster"
)

// TopicPartitions are partitions of a topic.
type TopicPartitions struct {
	Topic      cluster.TopicID
	Partitions []int32
}

// Epochs of a ConsumerHeartbeatRequest that say what the member wants.
const (
	// JoinEpoch: to join, or to begin again.
	JoinEpoch int32 = 0
	// LeaveEpoch: to leave.
	LeaveEpoch int32 = -1
	// LeaveStaticEpoch: to leave and come back under its instance id.
	LeaveStaticEpoch int32 = -2
)

// ConsumerHeartbeatRequest joins a KIP-848 group, stays in it, or leaves it. A
// nil field has not changed since the member's last request.
type ConsumerHeartbeatRequest struct {
	Token    Token
	MemberID string
	// InstanceID makes the member a static one; "" is a dynamic one.
	InstanceID  string
	MemberEpoch int32
	Client      Client
	RackID      *string
	// RebalanceTimeout is how long the member may take to give partitions up;
	// negative: not changed.
	RebalanceTimeout time.Duration
	SubscribedTopics []string
	SubscribedRegex  *string
	Assignor         *string
	// Owned are the partitions that the member has.
	Owned []TopicPartitions
}

// ConsumerHeartbeatResponse tells a member of a KIP-848 group where it stands.
type ConsumerHeartbeatResponse struct {
	MemberID    string
	MemberEpoch int32
	// HeartbeatInterval is when the next heartbeat is wanted.
	HeartbeatInterval time.Duration
	// HasAssignment is false where nothing has changed for the member.
	HasAssignment bool
	Assignment    []TopicPartitions
}
