package cases

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

func TestReportedOfConsumers(t *testing.T) {
	addr := ""
	if reference() {
		addr = broker(t)
	} else {
		addr = kit.Start(t, reportedSettings).Addr
	}
	replay(t, addr, "testdata/consumers-kafka-4.4.0.json", reportedOfConsumers)
}

type beatChange = func(*kmsg.ConsumerGroupHeartbeatRequest)

// hello is the first heartbeat of a member.
func hello(group, member string, change beatChange, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, group, member, 30_000
	req.SubscribedTopicNames, req.Topics = topics, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if change != nil {
		change(req)
	}
	return req
}

// still is a heartbeat that says no more than that the member is there.
func still(group, member string, epoch int32, change beatChange) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = 1, group, member, epoch, -1
	if change != nil {
		change(req)
	}
	return req
}

func owning(tid [16]byte, partitions ...int32) beatChange {
	return func(r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		if len(partitions) > 0 {
			r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: tid, Partitions: partitions})
		}
	}
}

func as(instance string) beatChange {
	return func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = &instance }
}

// until beats without noting it until the member has an assignment of a size, and
// notes the answer that said so.
func (s *transcript) until(what string, partitions int, req *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	s.t.Helper()
	var resp *kmsg.ConsumerGroupHeartbeatResponse
	kit.Eventually(s.t, 20*time.Second, what, func() bool {
		resp = ask[*kmsg.ConsumerGroupHeartbeatResponse](s.c, req)
		n := 0
		if resp.Assignment != nil {
			for _, t := range resp.Assignment.Topics {
				n += len(t.Partitions)
			}
		}
		if resp.ErrorCode == 0 && req.MemberEpoch >= 0 {
			if req.MemberEpoch == 0 {
				req.RebalanceTimeoutMillis, req.SubscribedTopicNames, req.SubscribedTopicRegex, req.Topics = -1, nil, nil, nil
			}
			req.MemberEpoch = resp.MemberEpoch
		}
		return resp.ErrorCode != 0 || resp.Assignment != nil && n == partitions
	})
	s.note("%s: %d has %d partitions", what, resp.ErrorCode, partitions)
	return resp
}

// assigning is the sync of a leader that gives two partitions of a topic to a
// member.
func assigning(group string, r *kmsg.JoinGroupResponse, topic, member string) *kmsg.SyncGroupRequest {
	given := kmsg.NewConsumerMemberAssignment()
	given.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: topic, Partitions: []int32{0, 1}}}
	req := syncReq(group, r, member)
	req.GroupAssignment[0].MemberAssignment = given.AppendTo(nil)
	return req
}

// read is a topic that the coordinators know.
func (s *transcript) read(shown string, partitions int32) (string, [16]byte) {
	name, id := s.theTopic(shown, partitions)
	group := s.group()
	kit.Eventually(s.t, 20*time.Second, "the coordinator knows the topic", func() bool {
		resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](s.c, hello(group, "m", nil, name))
		return resp.Assignment != nil && len(resp.Assignment.Topics) == 1
	})
	ask[*kmsg.ConsumerGroupHeartbeatResponse](s.c, still(group, "m", -1, nil))
	return name, id
}

func (s *transcript) describeConsumers(group string) {
	s.tell("described", &kmsg.ConsumerGroupDescribeRequest{Version: 1, Groups: []string{group}})
}

var reportedOfConsumers = []reported{
	{name: "any order, 1", from: "KAFKA-19233, KAFKA-14462", play: beatAtRandom(1)},
	{name: "any order, 2", from: "KAFKA-19233, KAFKA-14462", play: beatAtRandom(2)},
	{name: "any order, 3", from: "KAFKA-19233, KAFKA-14462", play: beatAtRandom(3)},
	{name: "heartbeats that do not fit", from: "KAFKA-14391, KAFKA-19335", play: func(s *transcript) {
		topic, _ := s.read("topic", 2)
		id := s.theGroup("g")
		p := kmsg.StringPtr
		for _, c := range []struct {
			what   string
			change beatChange
		}{
			{"no member id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }},
			{"a blank member id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = " " }},
			{"no group id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" }},
			{"a blank group id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = " " }},
			{"an empty instance id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = p("") }},
			{"a blank instance id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = p(" ") }},
			{"an empty rack", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = p("") }},
			{"no timeout", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }},
			{"a timeout of 0", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = 0; r.MemberID = "zero" }},
			{"no subscription", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }},
			{"an empty subscription", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = []string{}; r.MemberID = "empty" }},
			{"an empty expression", func(r *kmsg.ConsumerGroupHeartbeatRequest) {
				r.SubscribedTopicNames, r.SubscribedTopicRegex, r.MemberID = nil, p(""), "empty expression"
			}},
			{"no partitions said", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }},
			{"partitions already", func(r *kmsg.ConsumerGroupHeartbeatRequest) { owning([16]byte{7}, 1)(r) }},
			{"an unknown assignor", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = p("odd") }},
			{"an empty assignor", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = p("") }},
			{"an assignor in capitals", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = p("Range") }},
			{"no expression", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = p("[") }},
			{"epoch -3", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -3 }},
			{"epoch -2 and no instance", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -2 }},
			{"epoch -1 of nobody", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -1; r.MemberID = "stranger" }},
			{"epoch -2 of nobody", func(r *kmsg.ConsumerGroupHeartbeatRequest) {
				r.MemberEpoch, r.InstanceID, r.MemberID = -2, p("i"), "stranger"
			}},
			{"epoch 4 of nobody", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 4; r.MemberID = "stranger" }},
			{"epoch 4 of no group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 4; r.Group += "-not" }},
			{"epoch -1 of no group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -1; r.Group += "-not" }},
			{"version 0 and no member id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Version, r.MemberID, r.MemberEpoch = 0, "", 4 }},
		} {
			s.tell(c.what, hello(id, "m", c.change, topic))
		}
		s.listed(id)
		first := ask[*kmsg.ConsumerGroupHeartbeatResponse](s.c, hello(s.theGroup("h"), "", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Version = 0 }, topic))
		s.note("version 0 is given an id: %t %d", first.MemberID != nil && *first.MemberID != "", first.ErrorCode)
	}},
	{name: "epochs", from: "KAFKA-19233, KAFKA-20442, librdkafka #4672", play: func(s *transcript) {
		topic, tid := s.read("topic", 4)
		id := s.theGroup("g")
		s.tell("a", hello(id, "a", nil, topic))
		s.tell("a commits", commitOf(9, id, "a", 2, topic, tid, 1))
		s.tell("a again", hello(id, "a", nil, topic))
		s.tell("b", hello(id, "b", nil, topic))
		s.describeConsumers(id)
		s.tell("a of an epoch to come", still(id, "a", 9, nil))
		s.tell("a goes on", still(id, "a", 2, nil))
		s.tell("a says what it has", still(id, "a", 2, owning(tid, 0, 1, 2, 3)))
		s.describeConsumers(id)
		s.tell("b waits", still(id, "b", 3, nil))
		s.tell("a gave up", still(id, "a", 2, owning(tid, 0, 1)))
		s.tell("a the same again, as if the answer was lost", still(id, "a", 2, owning(tid, 0, 1)))
		s.tell("a of the epoch before, with more", still(id, "a", 2, owning(tid, 0, 1, 2)))
		s.tell("a of the epoch before, and says nothing", still(id, "a", 2, nil))
		s.tell("b goes on", still(id, "b", 3, nil))
		s.tell("b says all", still(id, "b", 3, func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			owning(tid, 2, 3)(r)
			r.RebalanceTimeoutMillis, r.SubscribedTopicNames = 30_000, []string{topic}
		}))
		s.tell("a begins anew", hello(id, "a", nil, topic))
		s.describeConsumers(id)
		s.tell("a leaves", still(id, "a", -1, nil))
		s.tell("a leaves again", still(id, "a", -1, nil))
		s.tell("a goes on", still(id, "a", 3, nil))
		s.tell("b", still(id, "b", 3, owning(tid, 2, 3)))
		s.tell("b leaves", still(id, "b", -1, nil))
		s.describeConsumers(id)
		s.listed(id)
		s.tell("c of an epoch of an empty group", still(id, "c", 4, nil))
		s.tell("c", hello(id, "c", nil, topic))
	}},
	{name: "static members", from: "KAFKA-14516, KAFKA-16815, Apache Kafka #23542", play: func(s *transcript) {
		topic, tid := s.read("topic", 2)
		id := s.theGroup("g")
		s.tell("a", hello(id, "a", as("i"), topic))
		s.tell("another in its place", hello(id, "a2", as("i"), topic))
		s.tell("a anew", hello(id, "a", as("i"), topic))
		s.tell("another goes on", still(id, "a2", 2, as("i")))
		s.tell("a without its instance", still(id, "a", 2, nil))
		s.tell("a with another instance", still(id, "a", 2, as("j")))
		s.tell("another leaves as it", still(id, "a2", -1, as("i")))
		s.tell("another leaves for a time as it", still(id, "a2", -2, as("i")))
		s.tell("a leaves for a time", still(id, "a", -2, as("i")))
		s.describeConsumers(id)
		s.tell("a goes on", still(id, "a", 2, as("i")))
		s.tell("a new one", hello(id, "a3", as("i"), topic))
		s.tell("the old one goes on", still(id, "a", 2, as("i")))
		s.describeConsumers(id)
		s.tell("b", hello(id, "b", as("k"), topic))
		s.tell("the new one gives up", still(id, "a3", 2, func(r *kmsg.ConsumerGroupHeartbeatRequest) { owning(tid, 0)(r); as("i")(r) }))
		s.tell("the new one gives up again", still(id, "a3", 3, func(r *kmsg.ConsumerGroupHeartbeatRequest) { owning(tid, 0)(r); as("i")(r) }))
		s.tell("b goes on", still(id, "b", 3, as("k")))
		s.tell("b leaves for a time, without its id", still(id, "", -2, as("k")))
		s.tell("b leaves for a time", still(id, "b", -2, as("k")))
		s.tell("b leaves for good", still(id, "b", -1, as("k")))
		s.tell("b leaves for good again", still(id, "b", -1, as("k")))
		s.describeConsumers(id)
		p := kmsg.StringPtr
		s.tell("an administrator takes them out", leaveReq(id, kmsg.LeaveGroupRequestMember{InstanceID: p("k")}, kmsg.LeaveGroupRequestMember{InstanceID: p("i")}, kmsg.LeaveGroupRequestMember{MemberID: "a3"}, kmsg.LeaveGroupRequestMember{MemberID: "stranger"}))
		s.listed(id)
	}},
	{name: "a member that does not give up", from: "KAFKA-14462", play: func(s *transcript) {
		topic, tid := s.read("topic", 2)
		id := s.theGroup("g")
		s.tell("a", hello(id, "a", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = 2500 }, topic))
		s.tell("b", hello(id, "b", nil, topic))
		s.tell("a keeps", still(id, "a", 2, owning(tid, 0, 1)))
		pause(300 * time.Millisecond)
		s.tell("a keeps", still(id, "a", 2, owning(tid, 0, 1)))
		s.awaits("a keeps", still(id, "a", 2, owning(tid, 0, 1)), func(r kmsg.Response) bool { return r.(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode != 0 })
		s.until("b", 2, still(id, "b", 3, nil))
		s.describeConsumers(id)
	}},
	{name: "settings of a group", from: "KAFKA-14511, KAFKA-17618", play: func(s *transcript) {
		topic, _ := s.read("topic", 1)
		id := s.theGroup("g")
		alter := func(key, value string) {
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			r := kmsg.NewIncrementalAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = 32, id
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Value = key, &value
			r.Configs = append(r.Configs, c)
			req.Resources = append(req.Resources, r)
			req.Version = 1
			s.tell(key+"="+value, req)
		}
		alter("consumer.heartbeat.interval.ms", "50")
		alter("consumer.heartbeat.interval.ms", "900")
		alter("consumer.session.timeout.ms", "100")
		alter("consumer.session.timeout.ms", "800")
		alter("consumer.session.timeout.ms", "2000")
		alter("odd", "1")
		alter("consumer.session.timeout.ms", "x")
		pause(300 * time.Millisecond)
		s.tell("a", hello(id, "a", nil, topic))
		alter("consumer.heartbeat.interval.ms", "700")
		pause(300 * time.Millisecond)
		s.tell("a goes on", still(id, "a", 2, nil))
		req := &kmsg.ConsumerGroupDescribeRequest{Version: 1, Groups: []string{id}}
		s.awaits("a was silent", req, func(r kmsg.Response) bool { return r.(*kmsg.ConsumerGroupDescribeResponse).Groups[0].State == "Empty" })
		s.tell("a goes on", still(id, "a", 2, nil))
		s.listed(id)
		s.describeConsumers(id)
	}},
	{name: "a full group", from: "KAFKA-14462", play: func(s *transcript) {
		topic, _ := s.read("topic", 1)
		id := s.theGroup("g")
		for _, m := range []string{"a", "b", "c", "d", "e"} {
			resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](s.c, hello(id, m, nil, topic))
			s.note("%s: %d", m, resp.ErrorCode)
		}
		resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](s.c, hello(id, "a", nil, topic))
		s.note("a again: %d", resp.ErrorCode)
		s.join("one of the classic protocol", id, "", nil)
	}},
	{name: "topics that come and go", from: "franz-go #1357, OP-09", play: func(s *transcript) {
		name := s.named("later")
		id := s.theGroup("g")
		s.tell("a", hello(id, "a", nil, name))
		s.describeConsumers(id)
		out := createTopics(s.c, 7, false, newTopic(name, 2))
		s.as(s.brief(reflect.ValueOf(out[0].TopicID)), "id of later")
		got := s.until("a", 2, still(id, "a", 2, nil))
		more := &kmsg.CreatePartitionsRequest{Version: 3, Topics: []kmsg.CreatePartitionsRequestTopic{{Topic: name, Count: 4}}, TimeoutMillis: 10000}
		s.note("more: %d", ask[*kmsg.CreatePartitionsResponse](s.c, more).Topics[0].ErrorCode)
		got = s.until("a", 4, still(id, "a", got.MemberEpoch, nil))
		s.note("deleted: %d", deleteTopics(s.c, 6, byID(out[0].TopicID))[0].ErrorCode)
		kit.Eventually(s.t, 10*time.Second, "it is gone", func() bool {
			resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](s.c, still(id, "a", got.MemberEpoch, owning(out[0].TopicID, 0, 1, 2, 3)))
			return resp.Assignment != nil && len(resp.Assignment.Topics) == 0
		})
		s.tell("a gave up", still(id, "a", got.MemberEpoch, owning(out[0].TopicID)))
		s.describeConsumers(id)
	}},
	{name: "expressions", from: "KAFKA-17593, franz-go #1357", play: func(s *transcript) {
		one := s.named("expressions-one")
		two := s.named("expressions-two")
		createTopics(s.c, 7, false, newTopic(one, 2))
		id := s.theGroup("g")
		by := func(e string) beatChange {
			return func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames, r.SubscribedTopicRegex = nil, &e }
		}
		first := s.until("a", 2, hello(id, "a", by(one+"|"+two)))
		d := ask[*kmsg.ConsumerGroupDescribeResponse](s.c, &kmsg.ConsumerGroupDescribeRequest{Version: 1, Groups: []string{id}}).Groups[0]
		s.note("%s %q %v", d.State, *d.Members[0].SubscribedTopicRegex, d.Members[0].SubscribedTopics)
		createTopics(s.c, 7, false, newTopic(two, 3))
		s.until("a once the other is there", 5, still(id, "a", first.MemberEpoch, nil))
		for _, e := range []string{"(", "a{2,1}", "*", "(?=x)y", "\\p{L}+", "[[:alpha:]]+", "(?<n>x)", "\\Qa\\E", ".*+"} {
			resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](s.c, hello(id, "b", by(e)))
			s.note("%s: %d", e, resp.ErrorCode)
			if resp.ErrorCode == 0 {
				s.note("leaves: %d", ask[*kmsg.ConsumerGroupHeartbeatResponse](s.c, still(id, "b", -1, nil)).ErrorCode)
			}
		}
	}},
	{name: "the classic APIs of a newer group", from: "KAFKA-14503", play: func(s *transcript) {
		topic, _ := s.read("topic", 1)
		id := s.theGroup("g")
		s.tell("a", hello(id, "a", nil, topic))
		s.beat("beat", id, "a", 2)
		s.tell("sync", &kmsg.SyncGroupRequest{Version: 3, Group: id, MemberID: "a", Generation: 2})
		s.tell("described", &kmsg.DescribeGroupsRequest{Version: 5, Groups: []string{id}})
		s.tell("described, newer", &kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{id}})
		s.tell("leave", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: "stranger"}))
		s.tell("deleted", &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{id}})
		s.join("of another kind", id, "", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" })
		s.join("says nothing that can be read", id, "", func(r *kmsg.JoinGroupRequest) {
			r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("x")}}
		})
		s.tell("leave", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: "a"}))
		s.listed(id)
		s.describeConsumers(id)
		s.tell("described", &kmsg.DescribeGroupsRequest{Version: 5, Groups: []string{id}})
		s.beat("beat", id, "a", 2)
		s.join("a stranger", id, "stranger", nil)
		s.join("b", id, "", nil)
		s.listed(id)
		s.describeConsumers(id)
		s.tell("newer again", hello(id, "a", nil, topic))
		classic := s.theGroup("h")
		b := s.join("c", classic, "", nil)
		s.sync("c syncs", classic, b, b.MemberID)
		s.describeConsumers(classic)
		s.tell("of a classic group", still(classic, "a", 2, nil))
		s.tell("leaves a classic group", still(classic, b.MemberID, -1, nil))
	}},
	{name: "commits and fetches of members", from: "librdkafka #4672, KAFKA-14499", play: func(s *transcript) {
		topic, tid := s.read("topic", 1)
		id := s.theGroup("g")
		s.tell("a", hello(id, "a", nil, topic))
		for _, v := range []int16{7, 8, 9, 10} {
			s.note("version %d", v)
			s.tell("of its epoch", commitOf(v, id, "a", 2, topic, tid, 1))
			s.tell("of an epoch to come", commitOf(v, id, "a", 3, topic, tid, 2))
			s.tell("of an epoch gone by", commitOf(v, id, "a", 0, topic, tid, 3))
			s.tell("of no epoch", commitOf(v, id, "a", -1, topic, tid, 4))
			s.tell("of nobody", commitOf(v, id, "", -1, topic, tid, 5))
			s.tell("of a stranger", commitOf(v, id, "stranger", 2, topic, tid, 6))
		}
		s.all(id)
		fetch := func(what string, version int16, member *string, epoch int32) {
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group, g.MemberID, g.MemberEpoch = id, member, epoch
			g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, TopicID: tid, Partitions: []int32{0}}}
			s.tell(what, &kmsg.OffsetFetchRequest{Version: version, Groups: []kmsg.OffsetFetchRequestGroup{g}})
		}
		p := kmsg.StringPtr
		fetch("of its epoch", 9, p("a"), 2)
		fetch("of an epoch to come", 9, p("a"), 3)
		fetch("of an epoch gone by", 9, p("a"), 0)
		fetch("of no epoch", 9, p("a"), -1)
		fetch("of nobody", 9, nil, -1)
		fetch("of a stranger", 9, p("stranger"), 2)
		s.tell("its offsets deleted", &kmsg.OffsetDeleteRequest{Group: id, Topics: []kmsg.OffsetDeleteRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}})
		s.tell("a leaves", still(id, "a", -1, nil))
		s.tell("of nobody", commitOf(9, id, "", -1, topic, tid, 5))
		s.tell("of a member that left", commitOf(9, id, "a", 2, topic, tid, 6))
		fetch("of a member that left", 9, p("a"), 2)
		s.all(id)
		s.tell("its offsets deleted", &kmsg.OffsetDeleteRequest{Group: id, Topics: []kmsg.OffsetDeleteRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}})
		s.tell("deleted", &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{id}})
		s.describeConsumers(id)
		s.listed(id)
	}},
	{name: "a classic group changes while its members wait", from: "KAFKA-14048", play: func(s *transcript) {
		topic, _ := s.read("topic", 2)
		sub := func(r *kmsg.JoinGroupRequest) {
			r.Protocols = []kmsg.JoinGroupRequestProtocol{protocol("range", topic)}
		}
		id := s.theGroup("g")
		a := s.join("a", id, "", sub)
		s.tell("a syncs", assigning(id, a, topic, a.MemberID))
		b := s.begin("b", joinReq(id, "", sub)).waits()
		s.tell("c, newer", hello(id, "c", nil, topic))
		b.ends()
		s.listed(id)
		id = s.theGroup("h")
		d := s.join("d", id, "", sub)
		e := s.begin("e", joinReq(id, "", sub)).waits()
		d = s.join("d again", id, d.MemberID, sub)
		e1 := e.ends().(*kmsg.JoinGroupResponse)
		waits := s.begin("e syncs", syncReq(id, e1)).waits()
		f := ask[*kmsg.ConsumerGroupHeartbeatResponse](s.c, hello(id, "f", nil, topic))
		s.note("f, newer: %d", f.ErrorCode) // any one gets none
		waits.ends()
		s.beat("d beats", id, d.MemberID, d.Generation)
		s.listed(id)
		id = s.theGroup("i")
		g := s.join("of another kind", id, "", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" })
		s.sync("it syncs", id, g, g.MemberID)
		s.tell("h, newer", hello(id, "h", nil, topic))
		s.tell("it leaves", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: g.MemberID}))
		s.listed(id)
		s.tell("h, newer", hello(id, "h", nil, topic))
		s.listed(id)
	}},
	{name: "static members of both protocols", from: "KAFKA-14516", play: func(s *transcript) {
		topic, tid := s.read("topic", 2)
		i := "i"
		sub := func(r *kmsg.JoinGroupRequest) {
			r.Version, r.InstanceID = 9, &i
			r.Protocols = []kmsg.JoinGroupRequestProtocol{protocol("range", topic)}
		}
		id := s.theGroup("g")
		a := s.join("a", id, "", sub)
		s.tell("a syncs", assigning(id, a, topic, a.MemberID))
		s.tell("b, newer, in its place", hello(id, "b", as("i"), topic))
		s.beat("a beats", id, a.MemberID, a.Generation)
		s.listed(id)
		s.tell("b goes on", still(id, "b", 2, func(r *kmsg.ConsumerGroupHeartbeatRequest) { as("i")(r); owning(tid, 0, 1)(r) }))
		s.tell("b leaves for a time", still(id, "b", -2, as("i")))
		c := s.join("c, older, in its place", id, "", sub)
		s.sync("c syncs", id, c)
		s.listed(id)
		s.describe(id)
	}},
	{name: "a member of the classic protocol is missed", from: "KAFKA-14048", play: func(s *transcript) {
		topic, _ := s.read("topic", 2)
		sub := func(r *kmsg.JoinGroupRequest) {
			r.Protocols = []kmsg.JoinGroupRequestProtocol{protocol("range", topic)}
			r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 1500, 60_000
		}
		id := s.theGroup("g")
		s.tell("a, newer", hello(id, "a", nil, topic))
		b := s.join("b", id, "", sub)
		s.sync("b syncs", id, b)
		s.beat("b beats, of an epoch to come", id, b.MemberID, 9)
		list := &kmsg.ConsumerGroupDescribeRequest{Version: 1, Groups: []string{id}}
		s.awaits("b is silent", list, func(r kmsg.Response) bool { return len(r.(*kmsg.ConsumerGroupDescribeResponse).Groups[0].Members) == 1 })
		s.beat("b beats", id, b.MemberID, b.Generation)
		s.sync("b syncs", id, b)
		s.join("b again", id, b.MemberID, sub)
		s.listed(id)
	}},
	{name: "a member changes its mind", from: "KAFKA-17592", play: func(s *transcript) {
		one, oid := s.read("one", 2)
		two, _ := s.read("two", 2)
		id := s.theGroup("g")
		with := func(topics ...string) beatChange {
			return func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = topics }
		}
		p := kmsg.StringPtr
		s.tell("a", hello(id, "a", nil, one, one, "", "no such topic", long('n', 300)))
		s.describeConsumers(id)
		s.tell("a reads another", still(id, "a", 2, with(two)))
		s.tell("a gave up", still(id, "a", 2, owning(oid)))
		s.tell("a goes on", still(id, "a", 3, nil))
		s.tell("a asks for another assignor", still(id, "a", 3, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = p("range") }))
		s.tell("a moves", still(id, "a", 4, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = p("r") }))
		s.describeConsumers(id)
		s.tell("a reads nothing", still(id, "a", 4, func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicNames, r.SubscribedTopicRegex = []string{}, p("")
		}))
		s.describeConsumers(id)
	}},
	{name: "several are described", from: "KAFKA-14503, redpanda #5079", play: func(s *transcript) {
		topic, _ := s.read("topic", 1)
		id, classic := s.theGroup("g"), s.theGroup("h")
		s.tell("a", hello(id, "a", nil, topic))
		s.join("b", classic, "", nil)
		s.tell("of both kinds", &kmsg.ConsumerGroupDescribeRequest{Groups: []string{id, classic, "no-such-group", id, ""}})
		s.tell("of both kinds, older", &kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{id, classic, "no-such-group", classic}})
		s.tell("none", &kmsg.ConsumerGroupDescribeRequest{})
	}},
	{name: "settings of groups that are not there", from: "KAFKA-14510, KAFKA-14511", play: func(s *transcript) {
		id := s.theGroup("g")
		alter := func(what, name, key string, value *string, op kmsg.IncrementalAlterConfigOp) {
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			r := kmsg.NewIncrementalAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = 32, name
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Value, c.Op = key, value, op
			r.Configs = append(r.Configs, c)
			req.Resources = append(req.Resources, r)
			req.Version = 1
			s.tell(what, req)
		}
		p := kmsg.StringPtr
		describe := func(name string, keys ...string) {
			req := kmsg.NewPtrDescribeConfigsRequest()
			req.Version = 4
			r := kmsg.NewDescribeConfigsRequestResource()
			r.ResourceType, r.ResourceName, r.ConfigNames = 32, name, keys
			req.Resources = append(req.Resources, r)
			resp := ask[*kmsg.DescribeConfigsResponse](s.c, req).Resources[0]
			s.note("configs of %q: %d", resp.ResourceName, resp.ErrorCode)
			slices.SortFunc(resp.Configs, func(a, b kmsg.DescribeConfigsResponseResourceConfig) int { return strings.Compare(a.Name, b.Name) })
			for _, c := range resp.Configs {
				s.note("  %s=%s read-only %t source %d", c.Name, *c.Value, c.ReadOnly, c.Source)
			}
		}
		keys := []string{"consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"}
		describe(id, keys...)
		alter("set", id, "consumer.session.timeout.ms", p("50000"), 0)
		alter("of no name", "", "consumer.session.timeout.ms", p("50000"), 0)
		alter("appended", id, "consumer.session.timeout.ms", p("50000"), 2)
		alter("null", id, "consumer.session.timeout.ms", nil, 0)
		alter("the heartbeat longer than the session", id, "consumer.heartbeat.interval.ms", p("60000"), 0)
		alter("the session shorter than the heartbeat", id, "consumer.session.timeout.ms", p("600"), 0)
		alter("no such key", id, "retention.ms", p("1"), 0)
		for _, r := range ask[*kmsg.ListConfigResourcesResponse](s.c, &kmsg.ListConfigResourcesRequest{Version: 1, ResourceTypes: []int8{32}}).ConfigResources {
			if r.Name == id {
				s.note("listed: %d", r.Type)
			}
		}
		describe(id, keys...)
		alter("deleted", id, "consumer.session.timeout.ms", nil, 1)
		alter("deleted again", id, "consumer.session.timeout.ms", nil, 1)
		describe(id, keys...)
		describe("", keys...)
		describe(id, "odd")
	}},
	{name: "up and down between the protocols", from: "KAFKA-17272", play: func(s *transcript) {
		topic, _ := s.read("topic", 2)
		id := s.theGroup("g")
		sub := func(r *kmsg.JoinGroupRequest) {
			r.Protocols = []kmsg.JoinGroupRequestProtocol{protocol("range", topic)}
		}
		a := s.join("a", id, "", sub)
		s.tell("a syncs", assigning(id, a, topic, a.MemberID))
		s.tell("b, newer", hello(id, "b", nil, topic))
		s.listed(id)
		s.beat("a beats", id, a.MemberID, a.Generation)
		s.describeConsumers(id)
		a = s.join("a again", id, a.MemberID, sub)
		s.sync("a syncs", id, a)
		s.tell("b goes on", still(id, "b", 3, nil))
		s.tell("b leaves", still(id, "b", -1, nil))
		s.listed(id)
		s.describe(id)
		s.beat("a beats", id, a.MemberID, a.Generation)
	}},
}

// randomBeats has four members, two of them static, join, speak, leave and come back
// in any order, with partitions that they have or had, in epochs that are theirs or
// nearly.
type randomBeats struct {
	*transcript
	rng    *rand.Rand
	group  string
	topics []string
	ids    [][16]byte
}

type randomMember struct {
	id, instance string
	epoch        int32
	assigned     map[[16]byte][]int32
}

func beatAtRandom(seed uint64) func(*transcript) {
	return func(s *transcript) {
		r := &randomBeats{transcript: s, rng: rand.New(rand.NewPCG(seed, 7))}
		for _, partitions := range []int32{3, 4, 1} {
			topic, id := s.read(fmt.Sprint("topic", partitions), partitions)
			r.topics, r.ids = append(r.topics, topic), append(r.ids, id)
		}
		r.group = s.theGroup("g")
		members := []*randomMember{{id: "a"}, {id: "b"}, {id: "c", instance: "i"}, {id: "d", instance: "j"}}
		for step := range 60 {
			r.step(step, members[r.rng.IntN(len(members))])
		}
		s.describeConsumers(r.group)
	}
}

func (r *randomBeats) step(step int, m *randomMember) {
	id := m.id
	req := still(r.group, m.id, m.epoch, nil)
	if m.instance != "" {
		req.InstanceID = &m.instance
	}
	switch op := r.rng.IntN(16); {
	case op < 4:
		if m.instance != "" && r.rng.IntN(3) == 0 {
			id = fmt.Sprint(m.instance, step)
		}
		instance := req.InstanceID
		req = hello(r.group, id, nil, r.subscription()...)
		req.InstanceID, req.ServerAssignor = instance, kmsg.StringPtr("range") // which depends on nothing else
	case op < 11:
		r.owned(req, m)
	case op < 13:
		r.owned(req, m)
		req.SubscribedTopicNames = r.subscription()
	case op < 14:
		r.owned(req, m)
		req.MemberEpoch += int32(r.rng.IntN(3)) - 1
	case op < 15:
		req.MemberEpoch = -1
	default:
		req.MemberEpoch = -2
	}
	resp := r.tell(fmt.Sprintf("%d %s in %d", step, id, req.MemberEpoch), req).(*kmsg.ConsumerGroupHeartbeatResponse)
	if resp.ErrorCode != 0 {
		return
	}
	m.id, m.epoch = id, resp.MemberEpoch
	if resp.Assignment != nil {
		m.assigned = map[[16]byte][]int32{}
		for _, t := range resp.Assignment.Topics {
			m.assigned[t.TopicID] = t.Partitions
		}
	}
}

func (r *randomBeats) subscription() []string {
	some := []string{}
	for _, topic := range r.topics {
		if r.rng.IntN(2) == 0 {
			some = append(some, topic)
		}
	}
	return some
}

// owned says of a member's partitions nothing, the truth, or what is not true.
func (r *randomBeats) owned(req *kmsg.ConsumerGroupHeartbeatRequest, m *randomMember) {
	switch r.rng.IntN(4) {
	case 0:
	case 1, 2:
		owning([16]byte{})(req)
		for _, id := range r.ids {
			if p := m.assigned[id]; len(p) > 0 {
				req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: id, Partitions: p})
			}
		}
	default:
		owning(r.ids[0], 0, 1, 2)(req)
	}
}
