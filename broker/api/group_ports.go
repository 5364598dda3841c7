package api

import (
	"context"

	"strandline/broker/group"
	"strandline/broker/group/consumer"
)

// Groups serves the members of consumer groups. A call waits for its answer: the
// log has what it promises. Where ctx ends first, what was asked for may happen
// all the same. Tokens of requests are not looked at.
//
// Besides the errors of package group that each request can have, every method
// has ErrInvalidGroupID, ErrNotCoordinator, ErrCoordinatorLoading,
// ErrCoordinatorNotAvailable and ctx's error.
type Groups interface {
	// Join answers with a member id where it fails, too.
	Join(ctx context.Context, groupID string, req group.JoinRequest) (group.JoinResponse, error)
	Sync(ctx context.Context, groupID string, req group.SyncRequest) (group.SyncResponse, error)
	Heartbeat(ctx context.Context, groupID string, req group.HeartbeatRequest) error
	// Leave fails as a whole with ErrUnknownMember where there is no group.
	Leave(ctx context.Context, groupID string, req group.LeaveRequest) (group.LeaveResponse, error)
	ConsumerHeartbeat(ctx context.Context, groupID string, req group.ConsumerHeartbeatRequest) (group.ConsumerHeartbeatResponse, error)
	// Commit takes offsets of topics that exist. It fails as a whole where the
	// group does not take them: with ErrGroupIDNotFound where a member commits
	// to a group that is not there.
	Commit(ctx context.Context, groupID string, req group.CommitRequest) (group.CommitResponse, error)
	// FetchOffsets shows committed offsets only. A group that is not there has
	// none.
	FetchOffsets(ctx context.Context, groupID string, req group.OffsetFetchRequest) (group.OffsetFetchResponse, error)
}

// GroupAdmin shows and deletes groups, for people and their tools. Errors are
// those of Groups.
type GroupAdmin interface {
	// List shows the groups of every partition that this broker coordinates, in
	// no order. It fails with ErrCoordinatorLoading where one is not ready.
	List(ctx context.Context, filter group.ListFilter) ([]group.Listed, error)
	// Describe shows a classic group; ErrGroupIDNotFound where there is none.
	Describe(ctx context.Context, groupID string) (group.Description, error)
	// DescribeConsumer shows a KIP-848 group; ErrGroupIDNotFound where there is
	// none.
	DescribeConsumer(ctx context.Context, groupID string) (consumer.Description, error)
	// Delete deletes an empty group with its offsets. Errors: ErrNonEmptyGroup,
	// ErrGroupIDNotFound.
	Delete(ctx context.Context, groupID string) error
	// DeleteOffsets deletes offsets of topics that the group does not read.
	DeleteOffsets(ctx context.Context, groupID string, req group.OffsetDeleteRequest) (group.OffsetDeleteResponse, error)
}

// noGroups stands for a broker without groups.
type noGroups struct{}

func (noGroups) Join(_ context.Context, _ string, req group.JoinRequest) (group.JoinResponse, error) {
	return group.JoinResponse{MemberID: req.MemberID}, group.ErrCoordinatorNotAvailable
}

func (noGroups) Sync(context.Context, string, group.SyncRequest) (group.SyncResponse, error) {
	return group.SyncResponse{}, group.ErrCoordinatorNotAvailable
}

func (noGroups) Heartbeat(context.Context, string, group.HeartbeatRequest) error {
	return group.ErrCoordinatorNotAvailable
}

func (noGroups) Leave(context.Context, string, group.LeaveRequest) (group.LeaveResponse, error) {
	return group.LeaveResponse{}, group.ErrCoordinatorNotAvailable
}

func (noGroups) ConsumerHeartbeat(context.Context, string, group.ConsumerHeartbeatRequest) (group.ConsumerHeartbeatResponse, error) {
	return group.ConsumerHeartbeatResponse{}, group.ErrCoordinatorNotAvailable
}

func (noGroups) Commit(context.Context, string, group.CommitRequest) (group.CommitResponse, error) {
	return group.CommitResponse{}, group.ErrCoordinatorNotAvailable
}

func (noGroups) FetchOffsets(context.Context, string, group.OffsetFetchRequest) (group.OffsetFetchResponse, error) {
	return group.OffsetFetchResponse{}, group.ErrCoordinatorNotAvailable
}

func (noGroups) List(context.Context, group.ListFilter) ([]group.Listed, error) {
	return nil, group.ErrCoordinatorNotAvailable
}

func (noGroups) Describe(context.Context, string) (group.Description, error) {
	return group.Description{}, group.ErrCoordinatorNotAvailable
}

func (noGroups) DescribeConsumer(context.Context, string) (consumer.Description, error) {
	return consumer.Description{}, group.ErrCoordinatorNotAvailable
}

func (noGroups) Delete(context.Context, string) error { return group.ErrCoordinatorNotAvailable }

func (noGroups) DeleteOffsets(context.Context, string, group.OffsetDeleteRequest) (group.OffsetDeleteResponse, error) {
	return group.OffsetDeleteResponse{}, group.ErrCoordinatorNotAvailable
}
