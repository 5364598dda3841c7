package group

import "time"

// Client is who sends a request: its client.id and its address.
type Client struct{ ID, Host string }

// Protocol is a protocol that a member of a classic group can follow, and what
// it tells the leader in that case; to the broker the metadata are opaque, those
// of ConsumerProtocol apart.
type Protocol struct {
	Name     string
	Metadata []byte
}

// DistinctProtocols is list without those whose name came before. list itself may
// be returned, and is not changed.
func DistinctProtocols(list []Protocol) []Protocol {
	seen := make(map[string]struct{}, len(list))
	for _, p := range list {
		seen[p.Name] = struct{}{}
	}
	if len(seen) == len(list) {
		return list
	}
	clear(seen)
	distinct := make([]Protocol, 0, len(list))
	for _, p := range list {
		if _, ok := seen[p.Name]; !ok {
			seen[p.Name] = struct{}{}
			distinct = append(distinct, p)
		}
	}
	return distinct
}

// JoinRequest asks for membership of a classic group, or for a new round of it.
type JoinRequest struct {
	Token Token
	// MemberID is "" where the client has none yet.
	MemberID string
	// InstanceID makes the member a static one (KIP-345); "" is a dynamic one.
	InstanceID string
	// NewMemberID is what a member without an id is named: see NewMemberID.
	NewMemberID string
	// RequireMemberID: a dynamic member without an id is to join again with the
	// one that it is given (KIP-394; from version 4).
	RequireMemberID bool
	// CanSkipAssignment: the client knows JoinResponse.SkipAssignment (KIP-814;
	// from version 9).
	CanSkipAssignment bool
	Client            Client
	ProtocolType      string
	// Protocols by preference, the best first.
	Protocols []Protocol
	// SessionTimeout is how long a member may be silent.
	SessionTimeout time.Duration
	// RebalanceTimeout is how long others wait for it; version 0 has none and
	// uses SessionTimeout.
	RebalanceTimeout time.Duration
	// Reason is the client's, for people (KIP-800).
	Reason string
}

// NewMemberID is the name of a new member: unique must not come twice.
func NewMemberID(clientID, instanceID, unique string) string {
	if instanceID != "" {
		return instanceID + "-" + unique
	}
	return clientID + "-" + unique
}

// JoinResponse says which generation the member is in. With an error only
// MemberID is set.
type JoinResponse struct {
	MemberID   string
	Generation int32
	// ProtocolType and Protocol are what the members agreed on; "" is none.
	ProtocolType string
	Protocol     string
	Leader       string
	// SkipAssignment tells a leader that the assignment of before holds
	// (KIP-814).
	SkipAssignment bool
	// Members is for the leader alone.
	Members []JoinMember
}

// JoinMember is a member as its leader sees it.
type JoinMember struct {
	MemberID   string
	InstanceID string
	Metadata   []byte
}

// SyncRequest asks for the member's assignment; the leader's brings all of them.
type SyncRequest struct {
	Token      Token
	MemberID   string
	InstanceID string
	Generation int32
	// ProtocolType and Protocol are "" where the client does not say (before
	// version 5).
	ProtocolType string
	Protocol     string
	Assignments  []Assignment
}

// Assignment is what a leader gives to a member; opaque to the broker.
type Assignment struct {
	MemberID   string
	Assignment []byte
}

// SyncResponse is a member's assignment.
type SyncResponse struct {
	ProtocolType string
	Protocol     string
	Assignment   []byte
}

// HeartbeatRequest keeps a classic member's session. It is answered with
// ErrRebalanceInProgress where the member has to join again.
type HeartbeatRequest struct {
	Token      Token
	MemberID   string
	InstanceID string
	Generation int32
}

// LeaveRequest takes members out of a classic group.
type LeaveRequest struct {
	Token   Token
	Members []LeavingMember
}

// LeavingMember is named by its id, by its instance id with an id of "", or by
// both.
type LeavingMember struct {
	MemberID   string
	InstanceID string
	// Reason is the client's, for people (KIP-800).
	Reason string
}

// LeaveResponse has the members of the request, in its order.
type LeaveResponse struct{ Members []LeaveResult }

// LeaveResult is what became of a LeavingMember; Err is nil where it left.
type LeaveResult struct {
	MemberID   string
	InstanceID string
	Err        error
}
