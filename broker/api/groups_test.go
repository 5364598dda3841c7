package api_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/api"
	"strandline/broker/group"
	"strandline/broker/group/consumer"
	"strandline/broker/server"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
)

// groupsDouble answers as its test says, and keeps what it was asked.
type groupsDouble struct {
	err   error
	mu    sync.Mutex
	asked any
	id    string
	gate  func() // called by every request

	join     group.JoinResponse
	sync     group.SyncResponse
	leave    group.LeaveResponse
	beat     group.ConsumerHeartbeatResponse
	commit   group.CommitResponse
	fetch    func(id string, req group.OffsetFetchRequest) (group.OffsetFetchResponse, error)
	list     []group.Listed
	describe group.Description
	consumer consumer.Description
	deleted  group.OffsetDeleteResponse
}

func (g *groupsDouble) note(id string, req any) error {
	g.mu.Lock()
	g.id, g.asked = id, req
	g.mu.Unlock()
	if g.gate != nil {
		g.gate()
	}
	return g.err
}

func (g *groupsDouble) Join(_ context.Context, id string, req group.JoinRequest) (group.JoinResponse, error) {
	return g.join, g.note(id, req)
}

func (g *groupsDouble) Sync(_ context.Context, id string, req group.SyncRequest) (group.SyncResponse, error) {
	return g.sync, g.note(id, req)
}

func (g *groupsDouble) Heartbeat(_ context.Context, id string, req group.HeartbeatRequest) error {
	return g.note(id, req)
}

func (g *groupsDouble) Leave(_ context.Context, id string, req group.LeaveRequest) (group.LeaveResponse, error) {
	return g.leave, g.note(id, req)
}

func (g *groupsDouble) ConsumerHeartbeat(_ context.Context, id string, req group.ConsumerHeartbeatRequest) (group.ConsumerHeartbeatResponse, error) {
	return g.beat, g.note(id, req)
}

func (g *groupsDouble) Commit(_ context.Context, id string, req group.CommitRequest) (group.CommitResponse, error) {
	return g.commit, g.note(id, req)
}

func (g *groupsDouble) FetchOffsets(_ context.Context, id string, req group.OffsetFetchRequest) (group.OffsetFetchResponse, error) {
	if err := g.note(id, req); err != nil || g.fetch == nil {
		return group.OffsetFetchResponse{}, err
	}
	return g.fetch(id, req)
}

func (g *groupsDouble) List(_ context.Context, filter group.ListFilter) ([]group.Listed, error) {
	return g.list, g.note("", filter)
}

func (g *groupsDouble) Describe(_ context.Context, id string) (group.Description, error) {
	return g.describe, g.note(id, nil)
}

func (g *groupsDouble) DescribeConsumer(_ context.Context, id string) (consumer.Description, error) {
	return g.consumer, g.note(id, nil)
}

func (g *groupsDouble) Delete(_ context.Context, id string) error { return g.note(id, nil) }

func (g *groupsDouble) DeleteOffsets(_ context.Context, id string, req group.OffsetDeleteRequest) (group.OffsetDeleteResponse, error) {
	return g.deleted, g.note(id, req)
}

// TestCodesOfGroups has each error of a group answered, also where it is wrapped.
func TestCodesOfGroups(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	for err, want := range map[error]int16{
		nil: 0, group.ErrUnknownMember: 25, group.ErrIllegalGeneration: 22, group.ErrInconsistentProtocol: 23, group.ErrRebalanceInProgress: 27,
		group.ErrFencedInstance: 82, group.ErrGroupMaxSize: 81, group.ErrMemberIDRequired: 79, group.ErrInvalidSessionTimeout: 26,
		group.ErrInvalidGroupID: 24, group.ErrNonEmptyGroup: 68, group.ErrGroupIDNotFound: 69, group.ErrSubscribedToTopic: 86,
		group.ErrUnreleasedInstance: 111, group.ErrUnsupportedAssignor: 112, group.ErrStaleMemberEpoch: 113, group.ErrUnsupportedVersion: 35, group.ErrFencedMemberEpoch: 110,
		group.ErrInvalidRegex: 128, group.ErrInvalidRequest: 42, group.ErrInvalidCommitOffsetSize: 28, group.ErrOffsetMetadataTooLarge: 12,
		group.ErrCoordinatorLoading: 14, group.ErrNotCoordinator: 16, group.ErrCoordinatorNotAvailable: 15, group.ErrUnknownTopicOrPartition: 3,
		group.ErrUnknownTopicID: 100, group.ErrUnstableOffset: 88, context.Canceled: 15, context.DeadlineExceeded: 15, errors.New("odd"): -1,
	} {
		for _, err := range []error{err, fmt.Errorf("more of it: %w", err)} {
			if want == 0 {
				err = nil
			}
			k.groups.err = err
			resp := ask[*kmsg.SyncGroupResponse](c, &kmsg.SyncGroupRequest{Group: "g", MemberID: "m", Generation: 1}, 3)
			require.Equal(t, want, resp.ErrorCode, "%v", err)
		}
	}
	k.groups.err = group.ErrCoordinatorLoading
	require.Zero(t, ask[*kmsg.HeartbeatResponse](c, &kmsg.HeartbeatRequest{Group: "g"}, 4).ErrorCode, "nothing is known against the member")
	require.Equal(t, int16(14), ask[*kmsg.ListGroupsResponse](c, &kmsg.ListGroupsRequest{}, 5).ErrorCode)
}

func TestJoinGroup(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = "g", "m", "consumer", 7000, 9000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("first")}}
	k.groups.join = group.JoinResponse{
		MemberID: "m", Generation: 3, ProtocolType: "consumer", Protocol: "range", Leader: "m", SkipAssignment: true,
		Members: []group.JoinMember{{MemberID: "m", InstanceID: "i", Metadata: []byte("x")}},
	}
	var kept [][]byte
	for version := int16(0); version <= 9; version++ {
		resp := ask[*kmsg.JoinGroupResponse](c, req, version)
		require.Zero(t, resp.ErrorCode)
		require.Equal(t, int32(3), resp.Generation)
		require.Equal(t, "range", *resp.Protocol)
		require.Equal(t, version >= 9, resp.SkipAssignment)
		require.Equal(t, version >= 5, resp.Members[0].InstanceID != nil)
		asked := k.groups.asked.(group.JoinRequest)
		require.Equal(t, version >= 4, asked.RequireMemberID)
		require.Equal(t, version >= 9, asked.CanSkipAssignment)
		require.Equal(t, 7*time.Second, asked.SessionTimeout)
		rebalance := 9 * time.Second
		if version == 0 {
			rebalance = asked.SessionTimeout
		}
		require.Equal(t, rebalance, asked.RebalanceTimeout)
		require.Equal(t, group.Client{ID: "test", Host: "/127.0.0.1"}, asked.Client)
		require.Regexp(t, "^test-[0-9a-f-]{36}$", asked.NewMemberID)
		kept = append(kept, asked.Protocols[0].Metadata)
		req.Protocols[0].Metadata = []byte("other")
	}
	require.Equal(t, "first", string(kept[0]), "what a group keeps is not the connection's buffer")

	k.groups.join, k.groups.err = group.JoinResponse{MemberID: "given"}, group.ErrMemberIDRequired
	for version := int16(0); version <= 9; version++ {
		resp := ask[*kmsg.JoinGroupResponse](c, req, version)
		require.Equal(t, int16(79), resp.ErrorCode)
		require.Equal(t, "given", resp.MemberID)
		require.Equal(t, int32(-1), resp.Generation)
		require.Equal(t, version >= 7, resp.Protocol == nil)
	}
}

func TestSyncGroup(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = "g", "m", 3
	req.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "m", MemberAssignment: []byte("a")}}
	require.Equal(t, int16(23), ask[*kmsg.SyncGroupResponse](c, req, 5).ErrorCode, "it must say which protocol")
	req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	k.groups.sync = group.SyncResponse{ProtocolType: "consumer", Protocol: "range", Assignment: []byte("mine")}
	resp := ask[*kmsg.SyncGroupResponse](c, req, 5)
	require.Equal(t, "mine", string(resp.MemberAssignment))
	require.Equal(t, group.SyncRequest{
		MemberID: "m", Generation: 3, ProtocolType: "consumer", Protocol: "range", Assignments: []group.Assignment{{MemberID: "m", Assignment: []byte("a")}},
	}, k.groups.asked)
}

func TestLeaveGroup(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	one := func(version int16) *kmsg.LeaveGroupResponse {
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group, req.MemberID = "g", "m"
		req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: "m", InstanceID: kmsg.StringPtr("i")}, {MemberID: "n"}}
		return ask[*kmsg.LeaveGroupResponse](c, req, version)
	}
	k.groups.leave = group.LeaveResponse{Members: []group.LeaveResult{{MemberID: "m", InstanceID: "i", Err: group.ErrFencedInstance}}}
	require.Equal(t, int16(82), one(2).ErrorCode, "of the only member")
	require.Equal(t, group.LeaveRequest{Members: []group.LeavingMember{{MemberID: "m"}}}, k.groups.asked)
	resp := one(5)
	require.Zero(t, resp.ErrorCode)
	require.Equal(t, int16(82), resp.Members[0].ErrorCode)
	require.Equal(t, group.LeaveRequest{Members: []group.LeavingMember{{MemberID: "m", InstanceID: "i"}, {MemberID: "n"}}}, k.groups.asked)
	k.groups.err = fmt.Errorf("%w: no such group", group.ErrUnknownMember)
	require.Equal(t, int16(25), one(1).ErrorCode)
	resp = one(3)
	require.Zero(t, resp.ErrorCode)
	require.Len(t, resp.Members, 2)
	require.Equal(t, int16(25), resp.Members[1].ErrorCode, "each of them is in no group")
	k.groups.err = group.ErrNotCoordinator
	require.Equal(t, int16(16), one(5).ErrorCode)
}

func TestOffsetCommit(t *testing.T) {
	k := newKit(t, func(b *config.Broker) { b.LegacyClients = true })
	c := k.dial()
	id := k.topic("t", 2)
	ask1 := func(version int16) *kmsg.OffsetCommitResponse {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.MemberID, req.Generation, req.InstanceID, req.RetentionTimeMillis = "g", "m", 4, kmsg.StringPtr("i"), 5000
		for _, topic := range []string{"nowhere", "t"} {
			rt := kmsg.NewOffsetCommitRequestTopic()
			if rt.Topic = topic; topic == "t" {
				rt.TopicID = id
			} else {
				rt.TopicID = [16]byte{9}
			}
			for _, p := range []int32{1, 7, 0} {
				rp := kmsg.NewOffsetCommitRequestTopicPartition()
				rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p, int64(10+p), 2, kmsg.StringPtr("said")
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
		}
		return ask[*kmsg.OffsetCommitResponse](c, req, version)
	}
	k.groups.commit = group.CommitResponse{Partitions: []error{nil, group.ErrOffsetMetadataTooLarge}}
	for version := int16(0); version <= 10; version++ {
		resp := ask1(version)
		var got []int16
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				got = append(got, p.ErrorCode)
			}
		}
		missing := int16(3)
		if version >= 10 {
			missing = 100
		}
		require.Equal(t, []int16{missing, missing, missing, 0, 3, 12}, got, "version %d", version)
		req := k.groups.asked.(group.CommitRequest)
		want := group.CommitRequest{Retention: -1, Partitions: []group.CommitPartition{
			{Topic: "t", TopicID: id, Partition: 1, Offset: 11, LeaderEpoch: cluster.NoLeaderEpoch, Metadata: "said"},
			{Topic: "t", TopicID: id, Partition: 0, Offset: 10, LeaderEpoch: cluster.NoLeaderEpoch, Metadata: "said"},
		}, MemberID: "m", Generation: 4, NoMemberEpochs: version < 9}
		if version == 0 {
			want.MemberID, want.Generation = "", -1
		}
		if version >= 2 && version <= 4 {
			want.Retention = 5 * time.Second
		}
		if version >= 6 {
			want.Partitions[0].LeaderEpoch, want.Partitions[1].LeaderEpoch = 2, 2
		}
		if version >= 7 {
			want.InstanceID = "i"
		}
		require.Equal(t, want, req, "version %d", version)
	}
	for err, codes := range map[error][2]int16{ // before version 9, and from it on
		group.ErrGroupIDNotFound: {22, 69}, group.ErrRebalanceInProgress: {27, 27},
		group.ErrCoordinatorLoading: {14, 14},
	} {
		k.groups.err = err
		for i, version := range []int16{8, 9} {
			resp := ask1(version)
			require.Equal(t, int16(3), resp.Topics[0].Partitions[0].ErrorCode)
			require.Equal(t, codes[i], resp.Topics[1].Partitions[0].ErrorCode, "%v", err)
			require.Equal(t, int16(3), resp.Topics[1].Partitions[1].ErrorCode)
		}
	}
	k.groups.asked = nil
	empty := kmsg.NewPtrOffsetCommitRequest()
	empty.Group = "g"
	ask[*kmsg.OffsetCommitResponse](c, empty, 8)
	require.Nil(t, k.groups.asked, "there is nothing to ask")
}

// TestOffsetFetch asks in every version. A partition without an offset is
// answered with -1, -1 and "", and no error (WI-09).
func TestOffsetFetch(t *testing.T) {
	k := newKit(t, func(b *config.Broker) { b.LegacyClients = true })
	c := k.dial()
	id := k.topic("t", 2)
	k.groups.fetch = func(_ string, req group.OffsetFetchRequest) (group.OffsetFetchResponse, error) {
		one := group.FetchedOffset{PartitionName: group.PartitionName{Topic: "t", Partition: 1}, Offset: 7, LeaderEpoch: 2, Metadata: "said"}
		if req.All {
			return group.OffsetFetchResponse{Offsets: []group.FetchedOffset{
				{PartitionName: group.PartitionName{Topic: "gone"}, Offset: 1}, group.NothingCommitted(group.PartitionName{Topic: "t"}, group.ErrUnstableOffset), one,
			}}, nil
		}
		var resp group.OffsetFetchResponse
		for _, p := range req.Partitions {
			o := group.NothingCommitted(group.PartitionName{Topic: p.Topic, Partition: p.Partition}, nil)
			if p.Topic == "t" && p.Partition == 1 && p.TopicID == id {
				o = one
			}
			resp.Offsets = append(resp.Offsets, o)
		}
		return resp, nil
	}
	type part struct {
		topic     string
		partition int32
		offset    int64
		epoch     int32
		metadata  string
		code      int16
	}
	fetch := func(version int16, all bool) (parts []part, code int16) {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.RequireStable = true
		rg := kmsg.NewOffsetFetchRequestGroup()
		rg.Group, rg.MemberID, rg.MemberEpoch = "g", kmsg.StringPtr("m"), 3
		req.Group = "g"
		for _, topic := range []string{"nowhere", "t"} {
			if all {
				break
			}
			tid := [16]byte{9}
			if topic == "t" {
				tid = id
			}
			req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: topic, Partitions: []int32{1, 0}})
			rg.Topics = append(rg.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: topic, TopicID: tid, Partitions: []int32{1, 0}})
		}
		if req.Groups = []kmsg.OffsetFetchRequestGroup{rg}; version < 8 {
			req.Groups = nil
		} else {
			req.Topics = nil
		}
		resp := ask[*kmsg.OffsetFetchResponse](c, req, version)
		if version < 8 {
			for _, topic := range resp.Topics {
				for _, p := range topic.Partitions {
					parts = append(parts, part{topic.Topic, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata, p.ErrorCode})
				}
			}
			return parts, resp.ErrorCode
		}
		for _, topic := range resp.Groups[0].Topics {
			name := topic.Topic
			if version >= 10 {
				if name = "nowhere"; topic.TopicID == id {
					name = "t"
				}
			}
			for _, p := range topic.Partitions {
				parts = append(parts, part{name, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata, p.ErrorCode})
			}
		}
		return parts, resp.Groups[0].ErrorCode
	}
	for version := int16(0); version <= 10; version++ {
		want := []part{{"nowhere", 1, -1, -1, "", 0}, {"nowhere", 0, -1, -1, "", 0}, {"t", 1, 7, 2, "said", 0}, {"t", 0, -1, -1, "", 0}}
		if version < 5 {
			want[2].epoch = -1
		}
		if version >= 10 {
			want[0].code, want[1].code = 100, 100
		}
		k.groups.err = nil
		got, code := fetch(version, false)
		require.Zero(t, code)
		require.Equal(t, want, got, "version %d", version)
		asked := k.groups.asked.(group.OffsetFetchRequest)
		require.Equal(t, version >= 7, asked.RequireStable)
		if version >= 9 {
			require.Equal(t, "m", asked.MemberID)
			require.EqualValues(t, 3, asked.MemberEpoch)
		} else {
			require.Equal(t, "", asked.MemberID)
			require.EqualValues(t, -1, asked.MemberEpoch)
		}
		if version >= 2 {
			got, code = fetch(version, true)
			require.Zero(t, code)
			all := []part{{"gone", 0, 1, 0, "", 0}, {"t", 0, -1, -1, "", 88}, {"t", 1, 7, 2, "said", 0}}
			if version < 5 {
				all[0].epoch, all[2].epoch = -1, -1
			}
			if version >= 10 {
				all = all[1:] // no id is known of what is gone
			}
			require.Equal(t, all, got, "version %d", version)
		}

		k.groups.err = group.ErrNotCoordinator
		got, code = fetch(version, false)
		if version < 2 {
			require.Zero(t, code)
			require.Equal(t, []part{{"nowhere", 1, -1, -1, "", 16}, {"nowhere", 0, -1, -1, "", 16}, {"t", 1, -1, -1, "", 16}, {"t", 0, -1, -1, "", 16}}, got)
		} else {
			require.Equal(t, int16(16), code)
			require.Empty(t, got)
		}
	}
}

func TestSeveralGroupsAreFetchedEachOnItsOwn(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	k.groups.fetch = func(id string, _ group.OffsetFetchRequest) (group.OffsetFetchResponse, error) {
		if id == "bad" {
			return group.OffsetFetchResponse{}, group.ErrStaleMemberEpoch
		}
		return group.OffsetFetchResponse{}, nil
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	for _, id := range []string{"good", "bad", "good too"} {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = id
		req.Groups = append(req.Groups, g)
	}
	resp := ask[*kmsg.OffsetFetchResponse](c, req, 9)
	require.Len(t, resp.Groups, 3)
	for i, want := range []int16{0, 113, 0} {
		require.Equal(t, req.Groups[i].Group, resp.Groups[i].Group)
		require.Equal(t, want, resp.Groups[i].ErrorCode)
	}
}

func TestDescribeAndListGroups(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	k.groups.describe = group.Description{State: group.Stable, ProtocolType: "consumer", Protocol: "range", Members: []group.MemberDescription{
		{MemberID: "m", InstanceID: "i", Client: group.Client{ID: "c", Host: "/h"}, Metadata: []byte("x"), Assignment: []byte("y")},
	}}
	for version := int16(0); version <= 6; version++ {
		g := ask[*kmsg.DescribeGroupsResponse](c, &kmsg.DescribeGroupsRequest{Groups: []string{"g"}, IncludeAuthorizedOperations: true}, version).Groups[0]
		require.Equal(t, "Stable", g.State)
		require.Equal(t, "y", string(g.Members[0].MemberAssignment))
		require.Equal(t, version >= 3, g.AuthorizedOperations > 0)
	}
	g := ask[*kmsg.DescribeGroupsResponse](c, &kmsg.DescribeGroupsRequest{Groups: []string{"g"}}, 6).Groups[0]
	require.Equal(t, int32(-1<<31), g.AuthorizedOperations, "nobody asked")
	k.groups.err = group.ErrGroupIDNotFound
	g = ask[*kmsg.DescribeGroupsResponse](c, &kmsg.DescribeGroupsRequest{Groups: []string{"g"}}, 5).Groups[0]
	require.Equal(t, "Dead", g.State)
	require.Zero(t, g.ErrorCode)
	g = ask[*kmsg.DescribeGroupsResponse](c, &kmsg.DescribeGroupsRequest{Groups: []string{"g"}}, 6).Groups[0]
	require.Equal(t, int16(69), g.ErrorCode)
	require.Equal(t, "Group g not found.", *g.ErrorMessage)

	k.groups.err, k.groups.list = nil, []group.Listed{{GroupID: "g", ProtocolType: "consumer", State: group.Empty, Type: group.Classic}}
	list := ask[*kmsg.ListGroupsResponse](c, &kmsg.ListGroupsRequest{StatesFilter: []string{"eMPTY", "odd"}, TypesFilter: []string{"CONSUMER"}}, 5)
	require.Equal(t, []kmsg.ListGroupsResponseGroup{{Group: "g", ProtocolType: "consumer", GroupState: "Empty", GroupType: "classic"}}, list.Groups)
	require.Equal(t, group.ListFilter{States: []group.State{group.Empty, "odd"}, Types: []group.Type{group.Consumer}}, k.groups.asked)

	k.groups.err = group.ErrNonEmptyGroup
	deleted := ask[*kmsg.DeleteGroupsResponse](c, &kmsg.DeleteGroupsRequest{Groups: []string{"g", "h", "g"}}, 2)
	require.Equal(t, []kmsg.DeleteGroupsResponseGroup{{Group: "g", ErrorCode: 68}, {Group: "h", ErrorCode: 68}}, deleted.Groups)
}

// Groups that are named in one request are asked for together, a bounded number at
// a time, and answered in order.
func TestManyGroupsOfOneRequest(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("g", i))
	}
	var at, most atomic.Int64
	full := make(chan struct{})
	var once sync.Once
	k.groups.gate = func() {
		n := at.Add(1)
		if n == 64 {
			once.Do(func() { close(full) })
		}
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-full:
		case <-time.After(20 * time.Second):
			t.Error("they are asked for one by one")
		}
		at.Add(-1)
	}
	deleted := ask[*kmsg.DeleteGroupsResponse](c, &kmsg.DeleteGroupsRequest{Groups: names}, 2)
	described := ask[*kmsg.DescribeGroupsResponse](c, &kmsg.DescribeGroupsRequest{Groups: names}, 5)
	consumers := ask[*kmsg.ConsumerGroupDescribeResponse](c, &kmsg.ConsumerGroupDescribeRequest{Groups: names}, 1)
	for i, name := range names {
		require.Equal(t, name, deleted.Groups[i].Group)
		require.Equal(t, name, described.Groups[i].Group)
		require.Equal(t, name, consumers.Groups[i].Group)
	}
	require.EqualValues(t, 64, most.Load())
}

func TestOffsetDelete(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	k.topic("t", 2)
	part := func(n int32) kmsg.OffsetDeleteRequestTopicPartition {
		return kmsg.OffsetDeleteRequestTopicPartition{Partition: n}
	}
	req := &kmsg.OffsetDeleteRequest{Group: "g", Topics: []kmsg.OffsetDeleteRequestTopic{
		{Topic: "nowhere", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{part(0)}},
		{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{part(1), part(9), part(0)}},
	}}
	k.groups.deleted = group.OffsetDeleteResponse{Partitions: []error{nil, group.ErrSubscribedToTopic}}
	resp := ask[*kmsg.OffsetDeleteResponse](c, req, 0)
	var got []int16
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			got = append(got, p.ErrorCode)
		}
	}
	require.Equal(t, []int16{3, 0, 3, 86}, got)
	require.Equal(t, group.OffsetDeleteRequest{Partitions: []group.PartitionName{{Topic: "t", Partition: 1}, {Topic: "t", Partition: 0}}}, k.groups.asked)
	k.groups.err = group.ErrGroupIDNotFound
	resp = ask[*kmsg.OffsetDeleteResponse](c, req, 0)
	require.Equal(t, int16(69), resp.ErrorCode)
	require.Empty(t, resp.Topics)
}

func TestConsumerGroups(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.InstanceID = "g", kmsg.StringPtr("i")
	req.SubscribedTopicNames = []string{"t"}
	require.Equal(t, int16(35), ask[*kmsg.ConsumerGroupHeartbeatResponse](c, req, 0).ErrorCode, "group.version is not finalised")
	require.Equal(t, int16(35), ask[*kmsg.ConsumerGroupDescribeResponse](c, &kmsg.ConsumerGroupDescribeRequest{Groups: []string{"g"}}, 0).Groups[0].ErrorCode)
	k.finalise()

	k.groups.beat = group.ConsumerHeartbeatResponse{
		MemberID: "m", MemberEpoch: 4, HeartbeatInterval: 5 * time.Second, HasAssignment: true,
		Assignment: []group.TopicPartitions{{Topic: cluster.TopicID{1}, Partitions: []int32{2, 3}}},
	}
	resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](c, req, 0)
	require.Equal(t, "m", *resp.MemberID)
	require.EqualValues(t, 5000, resp.HeartbeatIntervalMillis)
	require.Equal(t, []int32{2, 3}, resp.Assignment.Topics[0].Partitions)
	asked := k.groups.asked.(group.ConsumerHeartbeatRequest)
	require.NotEmpty(t, asked.MemberID, "version 0 is given one")
	require.Nil(t, asked.Owned, "it did not say")
	require.Negative(t, asked.RebalanceTimeout)
	require.Equal(t, "i", asked.InstanceID)
	require.Equal(t, []string{"t"}, asked.SubscribedTopics)

	req.MemberID, req.RebalanceTimeoutMillis, req.Topics = "own", 9000, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	req.SubscribedTopicNames, req.SubscribedTopicRegex, req.RackID = nil, kmsg.StringPtr("t.*"), kmsg.StringPtr("r")
	k.groups.beat.HasAssignment = false
	require.Nil(t, ask[*kmsg.ConsumerGroupHeartbeatResponse](c, req, 1).Assignment)
	asked = k.groups.asked.(group.ConsumerHeartbeatRequest)
	require.Equal(t, "own", asked.MemberID)
	require.NotNil(t, asked.Owned)
	require.Nil(t, asked.SubscribedTopics)
	require.Equal(t, "t.*", *asked.SubscribedRegex)

	k.groups.err = fmt.Errorf("%w: a sentence about it", group.ErrFencedMemberEpoch)
	resp = ask[*kmsg.ConsumerGroupHeartbeatResponse](c, req, 1)
	require.Equal(t, int16(110), resp.ErrorCode)
	require.Equal(t, "a sentence about it", *resp.ErrorMessage)
	k.groups.err = group.ErrUnreleasedInstance
	require.Equal(t, group.ErrUnreleasedInstance.Error(), *ask[*kmsg.ConsumerGroupHeartbeatResponse](c, req, 1).ErrorMessage)
	req.InstanceID = kmsg.StringPtr("")
	require.Equal(t, int16(42), ask[*kmsg.ConsumerGroupHeartbeatResponse](c, req, 1).ErrorCode)

	k.groups.err, k.groups.consumer = nil, consumer.Description{State: group.Stable, Epoch: 3, AssignmentEpoch: 2, Assignor: "uniform", Members: []consumer.MemberDescription{
		{MemberID: "m", Epoch: 3, SubscribedTopics: []string{"t"}, Assigned: []consumer.NamedPartitions{{Topic: consumer.Topic{ID: cluster.TopicID{1}, Name: "t"}, Partitions: []int32{1}}}},
		{MemberID: "old", InstanceID: "i", RackID: "r", Classic: true},
	}}
	g := ask[*kmsg.ConsumerGroupDescribeResponse](c, &kmsg.ConsumerGroupDescribeRequest{Groups: []string{"g"}}, 1).Groups[0]
	require.Equal(t, "uniform", g.AssignorName)
	require.Equal(t, int8(1), g.Members[0].MemberType)
	require.Equal(t, "t", g.Members[0].Assignment.TopicPartitions[0].Topic)
	require.Nil(t, g.Members[0].RackID)
	require.Equal(t, int8(0), g.Members[1].MemberType)
	require.Equal(t, "i", *g.Members[1].InstanceID)
	k.groups.err = group.ErrGroupIDNotFound
	g = ask[*kmsg.ConsumerGroupDescribeResponse](c, &kmsg.ConsumerGroupDescribeRequest{Groups: []string{"g"}}, 1).Groups[0]
	require.Equal(t, int16(69), g.ErrorCode)
}

// TestABrokerWithoutGroups has a handler made without any.
func TestABrokerWithoutGroups(t *testing.T) {
	k := newKit(t, nil)
	k.finalise()
	handler := api.New(api.Config{Cluster: k, Replicas: k, Broker: k.broker})
	srv := server.New(server.Config{Handler: handler, Metrics: server.NewMetrics(prometheus.NewRegistry()), Dirs: []string{k.dir}})
	port, err := srv.Listen("PLAINTEXT", "127.0.0.1", 0)
	require.NoError(t, err)
	require.NoError(t, srv.Serve())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, srv.Close(ctx))
		require.NoError(t, handler.Close())
	})
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := &client{t: t, c: conn, format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))}
	for _, req := range []kmsg.Request{
		kmsg.NewPtrJoinGroupRequest(), kmsg.NewPtrSyncGroupRequest(), kmsg.NewPtrHeartbeatRequest(), kmsg.NewPtrLeaveGroupRequest(),
		kmsg.NewPtrListGroupsRequest(), kmsg.NewPtrOffsetDeleteRequest(), kmsg.NewPtrConsumerGroupHeartbeatRequest(),
	} {
		c.send(req, 0)
		resp := req.ResponseKind()
		c.receive(c.correlation, resp, 0)
		require.EqualValues(t, 15, reflect.ValueOf(resp).Elem().FieldByName("ErrorCode").Int(), "%T", req)
	}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	require.Equal(t, int16(15), ask[*kmsg.OffsetFetchResponse](c, fetch, 5).ErrorCode)
	require.Equal(t, int16(15), ask[*kmsg.DescribeGroupsResponse](c, &kmsg.DescribeGroupsRequest{Groups: []string{"g"}}, 5).Groups[0].ErrorCode)
	require.Equal(t, int16(15), ask[*kmsg.ConsumerGroupDescribeResponse](c, &kmsg.ConsumerGroupDescribeRequest{Groups: []string{"g"}}, 1).Groups[0].ErrorCode)
	require.Equal(t, int16(15), ask[*kmsg.DeleteGroupsResponse](c, &kmsg.DeleteGroupsRequest{Groups: []string{"g"}}, 2).Groups[0].ErrorCode)
}
