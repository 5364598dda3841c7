package group

import "errors"

// What a request of a group can be answered with. Each is an answer of the
// protocol, not a failure of the machine that returns it; broker/api gives them
// their codes.
var (
	// ErrUnknownMember: the group has no member of that id.
	ErrUnknownMember = errors.New("the group has no such member")
	// ErrIllegalGeneration: the generation is not the group's.
	ErrIllegalGeneration = errors.New("not the generation of the group")
	// ErrInconsistentProtocol: no protocol that all members have, or not the
	// one that was chosen.
	ErrInconsistentProtocol = errors.New("the protocols do not agree with those of the group")
	// ErrRebalanceInProgress: the member has to join again.
	ErrRebalanceInProgress = errors.New("the group is rebalancing")
	// ErrFencedInstance: another member has taken the instance id over
	// (KIP-345).
	ErrFencedInstance = errors.New("another member has the group instance id")
	// ErrGroupMaxSize: the group has as many members as it may have (KIP-389).
	ErrGroupMaxSize = errors.New("the group is full")
	// ErrMemberIDRequired: the client is to join again with the id that it is
	// given (KIP-394).
	ErrMemberIDRequired = errors.New("the member has to join again with the id it was given")
	// ErrInvalidSessionTimeout: outside group.min.session.timeout.ms and
	// group.max.session.timeout.ms.
	ErrInvalidSessionTimeout = errors.New("the session timeout is not in the allowed range")
	// ErrInvalidGroupID: a group id that cannot be one, such as "".
	ErrInvalidGroupID = errors.New("not a group id")
	// ErrNonEmptyGroup: only possible while the group has no members.
	ErrNonEmptyGroup = errors.New("the group has members")
	// ErrGroupIDNotFound: there is no such group, or not of that type.
	ErrGroupIDNotFound = errors.New("no such group")
	// ErrSubscribedToTopic: members of the group read the topic (KIP-496).
	ErrSubscribedToTopic = errors.New("the group is subscribed to the topic")
	// ErrUnreleasedInstance: the static member that has the instance id is
	// still there (KIP-848).
	ErrUnreleasedInstance = errors.New("the group instance id is still in use")
	// ErrUnsupportedAssignor: no server-side assignor of that name (KIP-848).
	ErrUnsupportedAssignor = errors.New("no such assignor")
	// ErrStaleMemberEpoch: the member epoch is an older one (KIP-848).
	ErrStaleMemberEpoch = errors.New("the member epoch is stale")
	// ErrUnsupportedVersion: the group does not take the request from clients
	// as old as that.
	ErrUnsupportedVersion = errors.New("the version of the request is too old for the group")
	// ErrFencedMemberEpoch: the member has to give up its partitions and join
	// again (KIP-848).
	ErrFencedMemberEpoch = errors.New("the member is fenced by its epoch")
	// ErrInvalidRegex: a subscription that is no regular expression (KIP-848).
	ErrInvalidRegex = errors.New("not a regular expression")
	// ErrInvalidRequest: fields of the request that contradict each other.
	ErrInvalidRequest = errors.New("the request is malformed")
	// ErrInvalidCommitOffsetSize: the commit is larger than a batch may be.
	ErrInvalidCommitOffsetSize = errors.New("the committed offsets do not fit a batch")
	// ErrOffsetMetadataTooLarge: longer than offset.metadata.max.bytes.
	ErrOffsetMetadataTooLarge = errors.New("the metadata of the offset is too long")
	// ErrCoordinatorLoading: the coordinator is there and not ready yet.
	ErrCoordinatorLoading = errors.New("the coordinator is loading")
	// ErrNotCoordinator: another broker has the group.
	ErrNotCoordinator = errors.New("not the coordinator of the group")
	// ErrCoordinatorNotAvailable: no answer is possible now; asking again may
	// help.
	ErrCoordinatorNotAvailable = errors.New("the coordinator is not available")
	// ErrUnknownTopicOrPartition: no such topic or partition.
	ErrUnknownTopicOrPartition = errors.New("no such topic or partition")
	// ErrUnknownTopicID: no topic of that id (KIP-848).
	ErrUnknownTopicID = errors.New("no topic of that id")
	// ErrUnstableOffset: a transaction that commits the offset is open
	// (KIP-447).
	ErrUnstableOffset = errors.New("a transaction is about to change the offset")
)
