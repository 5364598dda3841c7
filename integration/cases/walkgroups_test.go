package cases

import (
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// group is a fresh group id, whose coordinator is ready.
func (w *world) group() string {
	w.t.Helper()
	id := w.name()
	kit.Eventually(w.t, 30*time.Second, "the coordinator is ready", func() bool {
		found := ask[*kmsg.FindCoordinatorResponse](w.c, &kmsg.FindCoordinatorRequest{Version: 4, CoordinatorKeys: []string{id}})
		return found.Coordinators[0].ErrorCode == 0 && w.offsets(id).ErrorCode == 0
	})
	return id
}

// offsets are all that a group has committed.
func (w *world) offsets(id string) kmsg.OffsetFetchResponseGroup {
	req := &kmsg.OffsetFetchRequest{Version: 8, Groups: []kmsg.OffsetFetchRequestGroup{{Group: id, MemberEpoch: -1}}}
	return ask[*kmsg.OffsetFetchResponse](w.c, req).Groups[0]
}

// membership is a member of a classic group.
type membership struct {
	id, instance string
	generation   int32
}

func joining(id, member string, instance *string, topics ...string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version = 9
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = id, member, instance, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.Reason = 30_000, 40_000, kmsg.StringPtr("a walk")
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = topics
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: meta.AppendTo(nil)}}
	return req
}

// member makes a group of one static member, which reads a topic and has an
// assignment.
func (w *world) member(id, topic string) membership {
	w.t.Helper()
	instance := "instance"
	joined := ask[*kmsg.JoinGroupResponse](w.c, joining(id, "", &instance, topic))
	same(w.t, nil, joined.ErrorCode)
	m := membership{id: joined.MemberID, instance: instance, generation: joined.Generation}
	synced := ask[*kmsg.SyncGroupResponse](w.c, syncing(5, id, m, "range"))
	same(w.t, nil, synced.ErrorCode)
	return m
}

func syncing(version int16, id string, m membership, protocol string) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version = version
	req.Group, req.MemberID, req.Generation, req.InstanceID = id, m.id, m.generation, staticID(m)
	req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), &protocol
	req.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: m.id, MemberAssignment: []byte("assigned")}}
	return req
}

func staticID(m membership) *string {
	if m.instance == "" {
		return nil
	}
	return &m.instance
}

func committing(id string, m membership, topic string, tid [16]byte, partition int32, metadata string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID, req.RetentionTimeMillis = id, m.id, m.generation, staticID(m), 7_777_777
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Timestamp, p.LeaderEpoch, p.Metadata = partition, 3, 1_900_000_000_000, 5, &metadata
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, TopicID: tid, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	return req
}

var nobody = membership{generation: -1}

// committed is what the world's group has; old versions have no leader epochs.
func committed(w *world) any {
	var out []any
	for _, t := range w.offsets(w.groupName()).Topics {
		for _, p := range t.Partitions {
			out = append(out, []any{t.Topic, p.Partition, p.Offset, p.Metadata, p.ErrorCode})
		}
	}
	return out
}

// groupName is the first of the world's names that no topic has.
func (w *world) groupName() string {
	i := slices.Index(w.ids, [16]byte{})
	require.GreaterOrEqual(w.t, i, 0)
	return w.names[i]
}

func nowhere(_ *world, resp kmsg.Response) {
	r := resp.(*kmsg.OffsetCommitResponse)
	p := &r.Topics[0].Partitions[0]
	p.ErrorCode = unnamed(p.ErrorCode)
	r.Topics[0].Topic, r.Topics[0].TopicID = "nowhere", [16]byte{7}
}

var offsetCommitRow = walkRow{scenarios: []scenario{
	{name: "a member's", from: 1, after: committed, ask: func(w *world, v int16) kmsg.Request {
		topic, tid := w.topic()
		id := w.group()
		m := w.member(id, topic)
		return committing(id, m, topic, tid, 1, "said")
	}},
	{name: "nobody's", after: committed, ask: func(w *world, _ int16) kmsg.Request {
		topic, tid := w.topic()
		return committing(w.group(), nobody, topic, tid, 1, "said")
	}},
	{name: "without metadata", after: committed, ask: func(w *world, _ int16) kmsg.Request {
		topic, tid := w.topic()
		req := committing(w.group(), nobody, topic, tid, 1, "")
		req.Topics[0].Partitions[0].Metadata = nil
		return req
	}},
	{name: "too much metadata", after: committed, ask: func(w *world, _ int16) kmsg.Request {
		topic, tid := w.topic()
		return committing(w.group(), nobody, topic, tid, 1, strings.Repeat("x", 4097))
	}},
	{name: "no such partition", ask: func(w *world, _ int16) kmsg.Request {
		topic, tid := w.topic()
		return committing(w.group(), nobody, topic, tid, 7, "said")
	}},
	{name: "no such topic", mean: nowhere, ask: func(w *world, _ int16) kmsg.Request {
		return committing(w.group(), nobody, w.name(), [16]byte{7, 7}, 1, "said")
	}},
	{name: "a stranger's", from: 1, after: committed, ask: func(w *world, _ int16) kmsg.Request {
		topic, tid := w.topic()
		id := w.group()
		w.member(id, topic)
		return committing(id, membership{id: "stranger", generation: 1}, topic, tid, 1, "said")
	}},
	{name: "of another generation", from: 1, after: committed, ask: func(w *world, _ int16) kmsg.Request {
		topic, tid := w.topic()
		id := w.group()
		m := w.member(id, topic)
		m.generation = 9
		return committing(id, m, topic, tid, 1, "said")
	}},
	{name: "of a fenced instance", from: 7, after: committed, ask: func(w *world, _ int16) kmsg.Request {
		topic, tid := w.topic()
		id := w.group()
		m := w.member(id, topic)
		m.id = "another"
		return committing(id, m, topic, tid, 1, "said")
	}},
	{name: "a member's of no group", from: 1, alone: true, after: committed, ask: func(w *world, _ int16) kmsg.Request {
		topic, tid := w.topic()
		return committing(w.group(), membership{id: "stranger", generation: 1}, topic, tid, 1, "said")
	}},
}}

// fetching asks for offsets in the form that the version has; no topics: all.
func fetching(version int16, id, member string, epoch int32, topic string, tid [16]byte, partitions ...int32) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	if version < 8 {
		req.Group = id
		if topic != "" {
			req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: partitions}}
		}
		return req
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = id, epoch
	if member != "" {
		g.MemberID = &member
	}
	if topic != "" {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, TopicID: tid, Partitions: partitions}}
	}
	req.Groups = []kmsg.OffsetFetchRequestGroup{g}
	return req
}

// oneForm gives answers of every version the form of version 7; leader epochs
// came later than offsets.
func oneForm(_ *world, resp kmsg.Response) {
	r := resp.(*kmsg.OffsetFetchResponse)
	for _, g := range r.Groups {
		r.ErrorCode = g.ErrorCode
		for _, t := range g.Topics {
			out := kmsg.OffsetFetchResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseTopicPartition{
					Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
				})
			}
			r.Topics = append(r.Topics, out)
		}
	}
}

func fetchingAfter(partitions []int32, all bool) func(*world, int16) kmsg.Request {
	return func(w *world, v int16) kmsg.Request {
		topic, tid := w.topic()
		id := w.group()
		req := committing(id, nobody, topic, tid, 1, "said")
		req.Version = 8
		same(w.t, nil, ask[*kmsg.OffsetCommitResponse](w.c, req).Topics[0].Partitions[0].ErrorCode)
		if all {
			topic = ""
		}
		return fetching(v, id, "", -1, topic, tid, partitions...)
	}
}

var offsetFetchRow = walkRow{scenarios: []scenario{
	{name: "one that was committed", mean: oneForm, ask: fetchingAfter([]int32{1}, false)},
	{name: "one that was not", mean: oneForm, ask: fetchingAfter([]int32{0}, false)},
	{name: "no such partition", mean: oneForm, ask: fetchingAfter([]int32{7}, false)},
	{name: "all", from: 2, mean: oneForm, ask: fetchingAfter(nil, true)},
	{name: "no such group", mean: oneForm, ask: func(w *world, v int16) kmsg.Request {
		topic, tid := w.topic()
		return fetching(v, w.group(), "", -1, topic, tid, 1)
	}},
	{name: "no such topic", alone: true, ask: func(w *world, v int16) kmsg.Request {
		return fetching(v, w.group(), "", -1, w.name(), [16]byte{7, 7}, 1)
	}},
	{name: "a member", from: 9, ask: func(w *world, v int16) kmsg.Request {
		topic, tid := w.topic()
		id := w.group()
		same(w.t, nil, ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, beating(id, "member", 0, topic)).ErrorCode)
		return fetching(v, id, "member", 1, topic, tid, 1)
	}},
	{name: "a member of another epoch", from: 9, ask: func(w *world, v int16) kmsg.Request {
		topic, tid := w.topic()
		id := w.group()
		same(w.t, nil, ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, beating(id, "member", 0, topic)).ErrorCode)
		return fetching(v, id, "member", 9, topic, tid, 1)
	}},
	{name: "a stranger", from: 9, ask: func(w *world, v int16) kmsg.Request {
		topic, tid := w.topic()
		id := w.group()
		same(w.t, nil, ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, beating(id, "member", 0, topic)).ErrorCode)
		return fetching(v, id, "stranger", 1, topic, tid, 1)
	}},
}}

// firstJoin joins a new group: from version 4 on with the id that it is given.
func firstJoin(w *world, v int16) kmsg.Request {
	id := w.group()
	req := joining(id, "", nil, "t")
	if v >= 4 {
		told := ask[*kmsg.JoinGroupResponse](w.c, req)
		require.Equal(w.t, int16(79), told.ErrorCode, "MEMBER_ID_REQUIRED")
		req.MemberID = told.MemberID
	}
	if v == 0 {
		req.RebalanceTimeoutMillis = -1
	}
	return req
}

var joinGroupRow = walkRow{scenarios: []scenario{
	{name: "the first", ask: firstJoin},
	{name: "without an id", from: 4, ask: func(w *world, _ int16) kmsg.Request { return joining(w.group(), "", nil, "t") }},
	{name: "a static one", from: 5, ask: func(w *world, _ int16) kmsg.Request {
		return joining(w.group(), "", kmsg.StringPtr("instance"), "t")
	}},
	{name: "the leader again", from: 5, alone: true, ask: func(w *world, _ int16) kmsg.Request {
		id := w.group()
		w.member(id, "t")
		return joining(id, "", kmsg.StringPtr("instance"), "t")
	}},
	{name: "a stranger", ask: func(w *world, _ int16) kmsg.Request {
		id := w.group()
		w.member(id, "t")
		return joining(id, "stranger", nil, "t")
	}},
	{name: "a stranger to no group", ask: func(w *world, _ int16) kmsg.Request { return joining(w.group(), "stranger", nil, "t") }},
	{name: "a fenced instance", from: 5, ask: func(w *world, _ int16) kmsg.Request {
		id := w.group()
		w.member(id, "t")
		return joining(id, "another", kmsg.StringPtr("instance"), "t")
	}},
	{name: "of another kind", ask: func(w *world, _ int16) kmsg.Request {
		id := w.group()
		w.member(id, "t")
		req := joining(id, "", nil, "t")
		req.ProtocolType = "connect"
		return req
	}},
	{name: "without protocols", ask: func(w *world, _ int16) kmsg.Request {
		req := joining(w.group(), "", nil, "t")
		req.Protocols = nil
		return req
	}},
	{name: "too short a session", ask: func(w *world, _ int16) kmsg.Request {
		req := joining(w.group(), "", nil, "t")
		req.SessionTimeoutMillis = 5
		return req
	}},
	{name: "no group id", ask: func(w *world, _ int16) kmsg.Request {
		w.group()
		return joining("", "", nil, "t")
	}},
}}

func heartbeating(change func(w *world, id string, m *membership)) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		id := w.group()
		m := w.member(id, "t")
		change(w, id, &m)
		return &kmsg.HeartbeatRequest{Group: id, Generation: m.generation, MemberID: m.id, InstanceID: staticID(m)}
	}
}

var heartbeatRow = walkRow{scenarios: []scenario{
	{name: "a member's", ask: heartbeating(func(*world, string, *membership) {})},
	{name: "a stranger's", ask: heartbeating(func(_ *world, _ string, m *membership) { m.id, m.instance = "stranger", "" })},
	{name: "of another generation", ask: heartbeating(func(_ *world, _ string, m *membership) { m.generation = 9 })},
	{name: "of a fenced instance", from: 3, ask: heartbeating(func(_ *world, _ string, m *membership) { m.id = "another" })},
	{name: "of no such instance", from: 3, ask: heartbeating(func(_ *world, _ string, m *membership) { m.instance = "another" })},
	{name: "in no such group", ask: func(w *world, _ int16) kmsg.Request {
		return &kmsg.HeartbeatRequest{Group: w.group(), Generation: 1, MemberID: "stranger"}
	}},
	{name: "no group id", ask: func(w *world, _ int16) kmsg.Request {
		w.group()
		return &kmsg.HeartbeatRequest{Generation: 1, MemberID: "stranger"}
	}},
}}

func leaving(change func(id *string, m *membership)) func(*world, int16) kmsg.Request {
	return func(w *world, v int16) kmsg.Request {
		id := w.group()
		m := w.member(id, "t")
		change(&id, &m)
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = id
		if v < 3 {
			req.MemberID = m.id
			return req
		}
		req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: m.id, InstanceID: staticID(m), Reason: kmsg.StringPtr("a walk")}}
		return req
	}
}

// shown is the world's group as DescribeGroups shows it.
func shown(w *world) any {
	g := ask[*kmsg.DescribeGroupsResponse](w.c, &kmsg.DescribeGroupsRequest{Version: 5, Groups: []string{w.groupName()}}).Groups[0]
	return []any{g.ErrorCode, g.State, g.ProtocolType, g.Protocol, len(g.Members)}
}

var leaveGroupRow = walkRow{scenarios: []scenario{
	{name: "a member", after: shown, ask: leaving(func(*string, *membership) {})},
	{name: "by its instance", from: 3, after: shown, ask: leaving(func(_ *string, m *membership) { m.id = "" })},
	{name: "a stranger", alone: true, after: shown, ask: leaving(func(_ *string, m *membership) { m.id, m.instance = "stranger", "" })},
	{name: "a fenced instance", from: 3, after: shown, ask: leaving(func(_ *string, m *membership) { m.id = "another" })},
	{name: "no such group", alone: true, ask: leaving(func(id *string, _ *membership) { *id += "-not" })},
	{name: "no group id", ask: leaving(func(id *string, _ *membership) { *id = "" })},
}}

func syncingAfter(change func(*kmsg.SyncGroupRequest)) func(*world, int16) kmsg.Request {
	return func(w *world, v int16) kmsg.Request {
		id := w.group()
		m := w.member(id, "t")
		req := syncing(v, id, m, "range")
		change(req)
		return req
	}
}

var syncGroupRow = walkRow{scenarios: []scenario{
	{name: "a member", ask: syncingAfter(func(*kmsg.SyncGroupRequest) {})},
	{name: "a stranger", ask: syncingAfter(func(r *kmsg.SyncGroupRequest) { r.MemberID, r.InstanceID = "stranger", nil })},
	{name: "of another generation", ask: syncingAfter(func(r *kmsg.SyncGroupRequest) { r.Generation = 9 })},
	{name: "of a fenced instance", from: 3, ask: syncingAfter(func(r *kmsg.SyncGroupRequest) { r.MemberID = "another" })},
	{name: "of another protocol", from: 5, ask: syncingAfter(func(r *kmsg.SyncGroupRequest) { r.Protocol = kmsg.StringPtr("sticky") })},
	{name: "of another kind", from: 5, ask: syncingAfter(func(r *kmsg.SyncGroupRequest) { r.ProtocolType = kmsg.StringPtr("connect") })},
	{name: "without a protocol", from: 5, ask: syncingAfter(func(r *kmsg.SyncGroupRequest) { r.Protocol = nil })},
	{name: "in no such group", ask: syncingAfter(func(r *kmsg.SyncGroupRequest) { r.Group += "-not" })},
	{name: "no group id", ask: syncingAfter(func(r *kmsg.SyncGroupRequest) { r.Group = "" })},
}}

func describingGroup(made func(w *world, id string)) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		id := w.group()
		made(w, id)
		return &kmsg.DescribeGroupsRequest{Groups: []string{id}, IncludeAuthorizedOperations: true}
	}
}

// someOffset gives a group an offset and no member.
func someOffset(w *world, id string) {
	topic, tid := w.topic()
	req := committing(id, nobody, topic, tid, 1, "said")
	req.Version = 8
	same(w.t, nil, ask[*kmsg.OffsetCommitResponse](w.c, req).Topics[0].Partitions[0].ErrorCode)
}

var describeGroupsRow = walkRow{scenarios: []scenario{
	{name: "a stable one", ask: describingGroup(func(w *world, id string) { w.member(id, "t") })},
	{name: "with offsets only", ask: describingGroup(someOffset)},
	{name: "none", alone: true, ask: describingGroup(func(*world, string) {})},
	{name: "of the other protocol", alone: true, ask: describingGroup(func(w *world, id string) {
		same(w.t, nil, ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, beating(id, "member", 0, "t")).ErrorCode)
	})},
}}

// ownGroups leaves the world's groups.
func ownGroups(_ *world, resp kmsg.Response) {
	r := resp.(*kmsg.ListGroupsResponse)
	r.Groups = slices.DeleteFunc(r.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return !strings.HasPrefix(g.Group, "name-") })
}

func listingGroups(states, types []string) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		w.member(w.group(), "t")
		someOffset(w, w.group())
		same(w.t, nil, ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, beating(w.group(), "member", 0, "no-such-topic")).ErrorCode)
		return &kmsg.ListGroupsRequest{StatesFilter: states, TypesFilter: types}
	}
}

var listGroupsRow = walkRow{scenarios: []scenario{
	{name: "all", mean: ownGroups, ask: listingGroups(nil, nil)},
	{name: "by state", from: 4, mean: ownGroups, ask: listingGroups([]string{"sTaBle", "Reconciling"}, nil)},
	{name: "by type", from: 5, mean: ownGroups, ask: listingGroups(nil, []string{"Classic"})},
	{name: "by both", from: 5, mean: ownGroups, ask: listingGroups([]string{"Empty"}, []string{"classic", "share"})},
	{name: "no such state", from: 4, mean: ownGroups, ask: listingGroups([]string{"odd"}, nil)},
	{name: "no such type", from: 5, mean: ownGroups, ask: listingGroups(nil, []string{"odd"})},
}}

var deleteGroupsRow = walkRow{scenarios: []scenario{
	{name: "one with offsets", after: committed, ask: func(w *world, _ int16) kmsg.Request {
		id := w.group()
		someOffset(w, id)
		return &kmsg.DeleteGroupsRequest{Groups: []string{id, id}}
	}},
	{name: "one with members", after: shown, ask: func(w *world, _ int16) kmsg.Request {
		id := w.group()
		w.member(id, "t")
		return &kmsg.DeleteGroupsRequest{Groups: []string{id}}
	}},
	{name: "none", ask: func(w *world, _ int16) kmsg.Request { return &kmsg.DeleteGroupsRequest{Groups: []string{w.group()}} }},
}}

func deletingOffsets(read bool, change func(*kmsg.OffsetDeleteRequest)) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		topic, tid := w.topic()
		id, m := w.group(), nobody
		if read {
			m = w.member(id, topic)
		}
		commit := committing(id, m, topic, tid, 1, "said")
		commit.Version = 8
		same(w.t, nil, ask[*kmsg.OffsetCommitResponse](w.c, commit).Topics[0].Partitions[0].ErrorCode)
		req := &kmsg.OffsetDeleteRequest{Group: id, Topics: []kmsg.OffsetDeleteRequestTopic{
			{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 1}, {Partition: 0}}},
		}}
		change(req)
		return req
	}
}

var offsetDeleteRow = walkRow{scenarios: []scenario{
	{name: "nobody reads it", after: committed, ask: deletingOffsets(false, func(*kmsg.OffsetDeleteRequest) {})},
	{name: "a member reads it", after: committed, ask: deletingOffsets(true, func(*kmsg.OffsetDeleteRequest) {})},
	{name: "no such partition", after: committed, ask: deletingOffsets(false, func(r *kmsg.OffsetDeleteRequest) { r.Topics[0].Partitions[0].Partition = 7 })},
	{name: "no such topic", ask: deletingOffsets(false, func(r *kmsg.OffsetDeleteRequest) { r.Topics[0].Topic += "-not" })},
	{name: "no such group", ask: deletingOffsets(false, func(r *kmsg.OffsetDeleteRequest) { r.Group += "-not" })},
	{name: "no group id", ask: deletingOffsets(false, func(r *kmsg.OffsetDeleteRequest) { r.Group = "" })},
}}

// beating is a heartbeat of KIP-848 that says everything.
func beating(id, member string, epoch int32, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version = 1
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = id, member, epoch, 45_000
	req.SubscribedTopicNames = topics
	req.RackID, req.ServerAssignor = kmsg.StringPtr("rack"), kmsg.StringPtr("range")
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return req
}

// someAssignment says of an assignment only that there is one: which heartbeat brings
// it depends on when it was computed.
func someAssignment(_ *world, resp kmsg.Response) {
	resp.(*kmsg.ConsumerGroupHeartbeatResponse).Assignment = nil
}

func consumerBeat(change func(w *world, r *kmsg.ConsumerGroupHeartbeatRequest)) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		topic, _ := w.topic()
		req := beating(w.group(), "member", 0, topic)
		change(w, req)
		return req
	}
}

// after has a member join first, and the change made to its next heartbeat.
func consumerBeatAfter(change func(w *world, r *kmsg.ConsumerGroupHeartbeatRequest)) func(*world, int16) kmsg.Request {
	return consumerBeat(func(w *world, r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.InstanceID = kmsg.StringPtr("instance")
		same(w.t, nil, ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, r).ErrorCode)
		r.MemberEpoch = 1
		change(w, r)
	})
}

var consumerHeartbeatRow = walkRow{scenarios: []scenario{
	{name: "the first", mean: someAssignment, ask: consumerBeat(func(*world, *kmsg.ConsumerGroupHeartbeatRequest) {})},
	{name: "by a regular expression", from: 1, mean: someAssignment, ask: consumerBeat(func(w *world, r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.SubscribedTopicNames, r.SubscribedTopicRegex = nil, kmsg.StringPtr(w.names[0])
	})},
	{name: "by no regular expression", from: 1, ask: consumerBeat(func(_ *world, r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.SubscribedTopicRegex = kmsg.StringPtr("(")
	})},
	{name: "the next", mean: someAssignment, ask: consumerBeatAfter(func(w *world, r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: w.ids[0], Partitions: []int32{1}}}
	})},
	{name: "of an epoch to come", ask: consumerBeatAfter(func(_ *world, r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 9 })},
	{name: "that leaves", ask: consumerBeatAfter(func(_ *world, r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -1 })},
	{name: "that leaves for a time", ask: consumerBeatAfter(func(_ *world, r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -2 })},
	{name: "of an instance in use", ask: consumerBeatAfter(func(_ *world, r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID, r.MemberEpoch = "another", 0 })},
	{name: "a stranger's", ask: consumerBeatAfter(func(_ *world, r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID, r.InstanceID = "stranger", nil })},
	{name: "in no such group", ask: consumerBeat(func(_ *world, r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 3 })},
	{name: "no such assignor", ask: consumerBeat(func(_ *world, r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = kmsg.StringPtr("odd") })},
	{name: "with partitions already", ask: consumerBeat(func(w *world, r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: w.ids[0], Partitions: []int32{1}}}
	})},
	{name: "without a timeout", ask: consumerBeat(func(_ *world, r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 })},
	{name: "of no epoch", ask: consumerBeat(func(_ *world, r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -7 })},
	{name: "no group id", ask: consumerBeat(func(_ *world, r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" })},
	{name: "to a classic group with other members", mean: someAssignment, ask: consumerBeat(func(w *world, r *kmsg.ConsumerGroupHeartbeatRequest) {
		req := joining(r.Group, "", kmsg.StringPtr("instance"), w.names[0])
		req.ProtocolType = "connect"
		same(w.t, nil, ask[*kmsg.JoinGroupResponse](w.c, req).ErrorCode)
	})},
}}

func describingConsumers(made func(w *world, id string)) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		id := w.group()
		made(w, id)
		return &kmsg.ConsumerGroupDescribeRequest{Groups: []string{id}, IncludeAuthorizedOperations: true}
	}
}

var consumerDescribeRow = walkRow{scenarios: []scenario{
	{name: "one with a member", ask: describingConsumers(func(w *world, id string) {
		req := beating(id, "member", 0, "no-such-topic")
		req.InstanceID = kmsg.StringPtr("instance")
		same(w.t, nil, ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, req).ErrorCode)
	})},
	{name: "an empty one", ask: describingConsumers(func(w *world, id string) {
		same(w.t, nil, ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, beating(id, "member", 0, "no-such-topic")).ErrorCode)
		same(w.t, nil, ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, beating(id, "member", -1)).ErrorCode)
	})},
	{name: "none", ask: describingConsumers(func(*world, string) {})},
	{name: "of the other protocol", ask: describingConsumers(func(w *world, id string) { w.member(id, "t") })},
}}

// findingCoordinator asks in the form that the version has.
func findingCoordinator(kind int8, key func(*world) string) func(*world, int16) kmsg.Request {
	return func(w *world, v int16) kmsg.Request {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType = kind
		if v < 4 {
			req.CoordinatorKey = key(w)
		} else {
			req.CoordinatorKeys = []string{key(w)}
		}
		return req
	}
}

// oneCoordinator gives answers of every version the form of version 3.
func oneCoordinator(_ *world, resp kmsg.Response) {
	r := resp.(*kmsg.FindCoordinatorResponse)
	for _, c := range r.Coordinators {
		r.ErrorCode, r.ErrorMessage, r.NodeID, r.Host, r.Port = c.ErrorCode, nil, c.NodeID, c.Host, c.Port
	}
	r.ErrorMessage = nil
}

var findCoordinatorRow = walkRow{scenarios: []scenario{
	{name: "of a group", mean: oneCoordinator, ask: findingCoordinator(0, (*world).group)},
	{name: "of another kind", from: 1, mean: oneCoordinator, ask: findingCoordinator(9, (*world).name)},
}}
