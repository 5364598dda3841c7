package group

// Type is a kind of group, as ListGroups names it (KIP-848).
type Type string

// The types of groups.
const (
	Classic  Type = "classic"
	Consumer Type = "consumer"
)

// State is the state of a group, as ListGroups and DescribeGroups name it.
type State string

// The states of groups: PreparingRebalance and CompletingRebalance are of the
// classic protocol alone, Assigning and Reconciling of KIP-848's.
const (
	// Empty: no members; offsets may be there.
	Empty State = "Empty"
	// PreparingRebalance: members are awaited to join.
	PreparingRebalance State = "PreparingRebalance"
	// CompletingRebalance: the leader's assignment is awaited.
	CompletingRebalance State = "CompletingRebalance"
	// Assigning: the target assignment is older than the group.
	Assigning State = "Assigning"
	// Reconciling: a member is on the way to its target assignment.
	Reconciling State = "Reconciling"
	// Stable: every member has its assignment.
	Stable State = "Stable"
	// Dead: there is no such group any more.
	Dead State = "Dead"
)

// ConsumerProtocol is the protocol type of consumers: the classic groups of
// that type carry subscriptions and assignments that the broker can read.
const ConsumerProtocol = "consumer"

// Description is a classic group as DescribeGroups shows it.
type Description struct {
	State        State
	ProtocolType string
	// Protocol and the members' Metadata are told while the group is Stable.
	Protocol string
	Members  []MemberDescription
}

// MemberDescription is a member of a Description. The slices are the group's:
// not to be changed.
type MemberDescription struct {
	MemberID   string
	InstanceID string
	Client     Client
	Metadata   []byte
	Assignment []byte
}
