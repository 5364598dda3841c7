package cases

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// reportedSettings are those that the reference had, too: small limits, so that a
// scenario meets them at once.
var reportedSettings = map[string]string{
	"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500", "group.max.session.timeout.ms": "60000",
	"group.max.size": "4", "group.consumer.max.size": "4", "offsets.topic.num.partitions": "4",
	"group.consumer.min.session.timeout.ms": "500", "group.consumer.min.heartbeat.interval.ms": "100",
	"group.consumer.assignment.interval.ms": "0",
	"offset.metadata.max.bytes":             "100",
}

func TestReportedOfGroups(t *testing.T) {
	addr := ""
	if reference() {
		addr = broker(t)
	} else {
		addr = kit.Start(t, reportedSettings).Addr
	}
	replay(t, addr, "testdata/groups-kafka-4.4.0.json", reportedOfGroups)
}

// protocol is a protocol of a member that subscribes to topics.
func protocol(name string, topics ...string) kmsg.JoinGroupRequestProtocol {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = topics
	return kmsg.JoinGroupRequestProtocol{Name: name, Metadata: meta.AppendTo(nil)}
}

// join is one of version 3, which lets a dynamic member in at once, unless it is
// changed.
func (s *transcript) join(what, group, member string, change func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupResponse {
	return s.tell(what, joinReq(group, member, change)).(*kmsg.JoinGroupResponse)
}

func joinReq(group, member string, change func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupRequest {
	req := joining(group, member, nil, "t")
	req.Version = 3
	if change != nil {
		change(req)
	}
	return req
}

func syncReq(group string, r *kmsg.JoinGroupResponse, to ...string) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 3, group, r.MemberID, r.Generation
	for _, m := range to {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m, MemberAssignment: []byte("of a leader")})
	}
	return req
}

func (s *transcript) sync(what, group string, r *kmsg.JoinGroupResponse, to ...string) {
	s.tell(what, syncReq(group, r, to...))
}

func beatReq(group, member string, generation int32) *kmsg.HeartbeatRequest {
	return &kmsg.HeartbeatRequest{Version: 3, Group: group, MemberID: member, Generation: generation}
}

func (s *transcript) beat(what, group, member string, generation int32) {
	s.tell(what, beatReq(group, member, generation))
}

func leaveReq(group string, members ...kmsg.LeaveGroupRequestMember) *kmsg.LeaveGroupRequest {
	return &kmsg.LeaveGroupRequest{Version: 4, Group: group, Members: members}
}

func (s *transcript) describe(group string) {
	s.tell("described", &kmsg.DescribeGroupsRequest{Version: 5, Groups: []string{group}})
}

func (s *transcript) listed(group string) {
	resp := ask[*kmsg.ListGroupsResponse](s.c, &kmsg.ListGroupsRequest{Version: 5})
	for _, g := range resp.Groups {
		if g.Group == group {
			s.note("listed: %s %s %q", g.GroupState, g.GroupType, g.ProtocolType)
			return
		}
	}
	s.note("not listed")
}

func pause(d time.Duration) { <-time.After(d) }

// commitOf is a commit of one partition.
func commitOf(version int16, group, member string, generation int32, topic string, tid [16]byte, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation, req.RetentionTimeMillis = version, group, member, generation, -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.LeaderEpoch, p.Metadata = offset, -1, kmsg.StringPtr("m")
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, TopicID: tid, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	return req
}

func (s *transcript) all(group string) {
	req := &kmsg.OffsetFetchRequest{Version: 8, Groups: []kmsg.OffsetFetchRequestGroup{{Group: group, MemberEpoch: -1}}}
	s.tell("its offsets", req)
}

// untilGone waits for offsets to expire, and notes what is left.
func (s *transcript) untilGone(group string) {
	req := &kmsg.OffsetFetchRequest{Version: 8, Groups: []kmsg.OffsetFetchRequestGroup{{Group: group, MemberEpoch: -1}}}
	s.awaits("its offsets", req, func(r kmsg.Response) bool { return len(r.(*kmsg.OffsetFetchResponse).Groups[0].Topics) == 0 })
}

var reportedOfGroups = []reported{
	{name: "a client that was given an id", from: "KAFKA-7610", play: func(s *transcript) {
		id := s.theGroup("g")
		pending := s.join("first", id, "", func(r *kmsg.JoinGroupRequest) { r.Version = 4 })
		s.listed(id)
		s.describe(id)
		s.beat("beat", id, pending.MemberID, 0)
		s.beat("beat", id, pending.MemberID, -1)
		s.tell("sync", syncReq(id, pending))
		s.tell("commit", commitOf(7, id, pending.MemberID, 0, "t", [16]byte{}, 1))
		topic, tid := s.theTopic("topic", 1)
		s.tell("commit of nobody", commitOf(7, id, "", -1, topic, tid, 1))
		s.tell("deleted", &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{id}})
		s.listed(id)
		s.join("again", id, pending.MemberID, func(r *kmsg.JoinGroupRequest) { r.Version = 4 })
		s.describe(id)
	}},
	{name: "a client that was given an id and leaves", from: "KAFKA-7610", play: func(s *transcript) {
		id := s.theGroup("g")
		pending := s.join("first", id, "", func(r *kmsg.JoinGroupRequest) { r.Version = 4 })
		s.tell("leaves", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: pending.MemberID}))
		s.join("again", id, pending.MemberID, func(r *kmsg.JoinGroupRequest) { r.Version = 4 })
		s.describe(id)
	}},
	{name: "a client that was given an id and is not heard from", from: "KAFKA-9752", play: func(s *transcript) {
		id := s.theGroup("g")
		pending := s.join("first", id, "", func(r *kmsg.JoinGroupRequest) { r.Version = 4; r.SessionTimeoutMillis = 500 })
		pause(1200 * time.Millisecond)
		s.join("again", id, pending.MemberID, func(r *kmsg.JoinGroupRequest) { r.Version = 4 })
		s.describe(id)
		s.listed(id)
	}},
	{name: "members wait for a client that was given an id", from: "KAFKA-9752, AutoMQ #773", play: func(s *transcript) {
		id := s.theGroup("g")
		a := s.join("a", id, "", nil)
		s.sync("a syncs", id, a, a.MemberID)
		s.join("b", id, "", func(r *kmsg.JoinGroupRequest) { r.Version = 4; r.SessionTimeoutMillis = 4000 })
		s.beat("a beats", id, a.MemberID, a.Generation)
		c := s.begin("c", joinReq(id, "", nil)).waits()
		again := s.begin("a again", joinReq(id, a.MemberID, nil)).waits()
		c.ends()
		again.ends()
		s.describe(id)
	}},
	{name: "members that do not join again", from: "KAFKA-8104, kop #380, kafka-go #199", play: func(s *transcript) {
		s.anyLeader = true
		id := s.theGroup("g")
		short := func(r *kmsg.JoinGroupRequest) { r.RebalanceTimeoutMillis = 3000 }
		a := s.join("a", id, "", short)
		b := s.begin("b", joinReq(id, "", short)).waits()
		a = s.join("a again", id, a.MemberID, short)
		b1 := b.ends().(*kmsg.JoinGroupResponse)
		s.sync("a syncs", id, a, a.MemberID, b1.MemberID)
		s.sync("b syncs", id, b1)
		c := s.begin("c", joinReq(id, "", short)).waits()
		s.beat("a beats", id, a.MemberID, a.Generation)
		s.beat("b beats", id, b1.MemberID, b1.Generation)
		s.describe(id)
		again := s.begin("b again", joinReq(id, b1.MemberID, short)).waits()
		began := time.Now()
		again.ends()
		c.ends()
		s.note("after the rebalance timeout: %t", time.Since(began) > 500*time.Millisecond)
		s.beat("a beats", id, a.MemberID, a.Generation)
		s.join("a again", id, a.MemberID, short)
		s.describe(id)
	}},
	{name: "members that do not sync", from: "kaf #91", play: func(s *transcript) {
		id := s.theGroup("g")
		short := func(r *kmsg.JoinGroupRequest) { r.RebalanceTimeoutMillis = 3000 }
		a := s.join("a", id, "", short)
		b := s.begin("b", joinReq(id, "", short)).waits()
		a = s.join("a again", id, a.MemberID, short)
		b1 := b.ends().(*kmsg.JoinGroupResponse)
		parked := s.begin("b syncs", syncReq(id, b1)).waits()
		s.beat("a beats", id, a.MemberID, a.Generation)
		s.tell("a commits", commitOf(7, id, a.MemberID, a.Generation, "t", [16]byte{}, 1))
		parked.ends()
		s.beat("a beats", id, a.MemberID, a.Generation)
		s.beat("b beats", id, b1.MemberID, b1.Generation)
		s.describe(id)
		s.join("b again", id, b1.MemberID, short)
		s.describe(id)
	}},
	{name: "the leader leaves", from: "kafka-go #1215, librdkafka #2944", play: func(s *transcript) {
		id := s.theGroup("g")
		a := s.join("a", id, "", nil)
		b := s.begin("b", joinReq(id, "", nil)).waits()
		a = s.join("a again", id, a.MemberID, nil)
		b1 := b.ends().(*kmsg.JoinGroupResponse)
		s.sync("a syncs", id, a, a.MemberID, b1.MemberID)
		s.sync("b syncs", id, b1)
		s.describe(id)
		s.tell("a leaves", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: a.MemberID}))
		s.beat("b beats", id, b1.MemberID, b1.Generation)
		s.describe(id)
		s.sync("b syncs", id, b1)
		b1 = s.join("b again", id, b1.MemberID, nil)
		s.describe(id)
		s.sync("b syncs, of no leader", id, b1)
		s.describe(id)
		s.tell("b leaves", &kmsg.LeaveGroupRequest{Version: 1, Group: id, MemberID: b1.MemberID})
		s.describe(id)
		s.listed(id)
		s.tell("b leaves again", &kmsg.LeaveGroupRequest{Version: 1, Group: id, MemberID: b1.MemberID})
	}},
	{name: "the leader does not join again", from: "kafka-go #1215", play: func(s *transcript) {
		id := s.theGroup("g")
		short := func(r *kmsg.JoinGroupRequest) { r.RebalanceTimeoutMillis = 600 }
		a := s.join("a", id, "", short)
		s.sync("a syncs", id, a, a.MemberID)
		b := s.begin("b", joinReq(id, "", short)).waits().ends().(*kmsg.JoinGroupResponse)
		s.note("b leads: %t", b.LeaderID == b.MemberID)
		s.sync("b syncs", id, b, b.MemberID)
		s.beat("a beats", id, a.MemberID, a.Generation)
		s.describe(id)
	}},
	{name: "a follower joins again, and a leader", from: "kaffe #92, knative eventing-kafka-broker #4179", play: func(s *transcript) {
		id := s.theGroup("g")
		a := s.join("a", id, "", nil)
		b := s.begin("b", joinReq(id, "", nil)).waits()
		a = s.join("a again", id, a.MemberID, nil)
		b1 := b.ends().(*kmsg.JoinGroupResponse)
		s.join("a once more before anybody syncs", id, a.MemberID, nil)
		s.join("b once more before anybody syncs", id, b1.MemberID, nil)
		s.sync("a syncs", id, a, b1.MemberID, "a stranger")
		s.sync("b syncs", id, b1)
		s.sync("b syncs again", id, b1, b1.MemberID)
		s.join("b again", id, b1.MemberID, nil)
		again := s.begin("a again", joinReq(id, a.MemberID, nil)).waits()
		s.join("b with others", id, b1.MemberID, func(r *kmsg.JoinGroupRequest) {
			r.Protocols = []kmsg.JoinGroupRequestProtocol{protocol("range", "t", "u")}
		})
		again.ends()
		s.join("a with others, before they sync", id, a.MemberID, func(r *kmsg.JoinGroupRequest) { r.Version = 3; r.RebalanceTimeoutMillis = 500; r.Protocols = nil })
	}},
	{name: "one changes its metadata while others wait for the leader", from: "KAFKA-2557, brod #286", play: func(s *transcript) {
		id := s.theGroup("g")
		a := s.join("a", id, "", nil)
		b := s.begin("b", joinReq(id, "", nil)).waits()
		a = s.join("a again", id, a.MemberID, nil)
		b1 := b.ends().(*kmsg.JoinGroupResponse)
		waits := s.begin("b syncs", syncReq(id, b1)).waits()
		changed := s.begin("a with others", joinReq(id, a.MemberID, func(r *kmsg.JoinGroupRequest) {
			r.Protocols = []kmsg.JoinGroupRequestProtocol{protocol("range", "u")}
		})).waits()
		waits.ends()
		s.describe(id)
		s.join("b again", id, b1.MemberID, nil)
		changed.ends()
	}},
	{name: "a rolling change of protocols", from: "librdkafka #4783", play: func(s *transcript) {
		id := s.theGroup("g")
		with := func(names ...string) func(*kmsg.JoinGroupRequest) {
			return func(r *kmsg.JoinGroupRequest) {
				r.Protocols = nil
				for _, n := range names {
					r.Protocols = append(r.Protocols, protocol(n, "t"))
				}
			}
		}
		a := s.join("a", id, "", with("range"))
		s.sync("a syncs", id, a, a.MemberID)
		s.join("another", id, "", with("sticky"))
		b := s.begin("b", joinReq(id, "", with("sticky", "range"))).waits()
		a = s.join("a again", id, a.MemberID, with("range"))
		b1 := b.ends().(*kmsg.JoinGroupResponse)
		s.sync("a syncs", id, a, a.MemberID)
		s.join("b drops what all have", id, b1.MemberID, with("sticky"))
		moved := s.begin("a has both", joinReq(id, a.MemberID, with("sticky", "range"))).waits()
		b1 = s.join("b again", id, b1.MemberID, with("sticky", "range"))
		a = moved.ends().(*kmsg.JoinGroupResponse)
		s.sync("a syncs", id, a, a.MemberID)
		s.describe(id)
		last := s.begin("a has the new one", joinReq(id, a.MemberID, with("sticky"))).waits()
		s.join("b has both still", id, b1.MemberID, with("sticky", "range"))
		last.ends()
		s.describe(id)
	}},
	{name: "protocols that do not fit", from: "KAFKA-2464, crabka #45", play: func(s *transcript) {
		id := s.theGroup("g")
		s.join("of no kind", id, "", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" })
		s.join("with none", id, "", func(r *kmsg.JoinGroupRequest) { r.Protocols = nil })
		s.join("with one of no name", id, "", func(r *kmsg.JoinGroupRequest) {
			r.ProtocolType = "connect"
			r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "", Metadata: nil}}
		})
		s.describe(id)
		s.join("of another kind", id, "", nil)
		s.join("of another kind, to be given an id", id, "", func(r *kmsg.JoinGroupRequest) { r.Version = 4 })
		id = s.theGroup("h")
		a := s.join("a", id, "", nil)
		s.sync("syncs", id, a, a.MemberID)
		s.describe(id)
		s.tell("leaves", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: a.MemberID}))
		s.listed(id)
		s.join("of another kind, once it is empty", id, "", func(r *kmsg.JoinGroupRequest) {
			r.ProtocolType = "connect"
			r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "compatible", Metadata: []byte("x")}}
		})
		s.listed(id)
		s.describe(id)
	}},
	{name: "bounds of sessions", from: "azure-event-hubs-for-kafka #22, #112", play: func(s *transcript) {
		id := s.theGroup("g")
		for _, ms := range []int32{-1, 0, 499, 60_001, 1<<31 - 1} {
			s.join("too short or too long", id, "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = ms })
		}
		s.listed(id)
		for _, ms := range []int32{500, 60_000} {
			id := s.theGroup("h")
			a := s.join("the least and the most", id, "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = ms })
			s.tell("leaves", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: a.MemberID}))
		}
	}},
	{name: "odd rebalance timeouts", from: "azure-event-hubs-for-kafka #112", play: func(s *transcript) {
		for _, ms := range []int32{1<<31 - 1} {
			id := s.theGroup("g")
			a := s.join("a", id, "", func(r *kmsg.JoinGroupRequest) { r.RebalanceTimeoutMillis = ms })
			s.sync("a syncs", id, a, a.MemberID)
			s.describe(id)
		}
	}},
	{name: "a session ends", from: "kafka-python #571, #582, aiokafka #727", play: func(s *transcript) {
		id := s.theGroup("g")
		a := s.join("a", id, "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 600 })
		s.sync("a syncs", id, a, a.MemberID)
		pause(1300 * time.Millisecond)
		s.beat("a beats", id, a.MemberID, a.Generation)
		s.describe(id)
		s.listed(id)
		s.join("a again", id, a.MemberID, nil)
		s.join("a anew", id, "", nil)
	}},
	{name: "a full group", from: "KAFKA-7862", play: func(s *transcript) {
		s.anyLeader = true
		id := s.theGroup("g")
		var first *kmsg.JoinGroupResponse
		instance := func(name string) func(*kmsg.JoinGroupRequest) {
			return func(r *kmsg.JoinGroupRequest) { r.Version = 5; r.InstanceID = &name; r.RebalanceTimeoutMillis = 3000 }
		}
		first = s.join("a", id, "", instance("a"))
		s.sync("a syncs", id, first, first.MemberID)
		b, c, d := s.begin("b", joinReq(id, "", instance("b"))).waits(), s.begin("c", joinReq(id, "", instance("c"))).waits(), s.begin("d", joinReq(id, "", instance("d"))).waits()
		s.join("e", id, "", instance("e"))
		again := s.begin("a again", joinReq(id, first.MemberID, instance("a")))
		again.ends()
		b.ends()
		c.ends()
		d.ends()
		s.join("e", id, "", instance("e"))
		s.join("f", id, "", nil)
		s.join("f, to be given an id", id, "", func(r *kmsg.JoinGroupRequest) { r.Version = 4 })
		s.join("a stranger", id, "stranger", nil)
	}},
	{name: "static members come back", from: "KAFKA-7862, KAFKA-13435, crabka #212, franz-go #931", play: func(s *transcript) {
		id := s.theGroup("g")
		static := func(version int16, name string, topics ...string) func(*kmsg.JoinGroupRequest) {
			return func(r *kmsg.JoinGroupRequest) {
				r.Version, r.InstanceID = version, &name
				r.Protocols = []kmsg.JoinGroupRequestProtocol{protocol("range", topics...)}
			}
		}
		a := s.join("a", id, "", static(9, "a", "t"))
		b := s.begin("b", joinReq(id, "", static(9, "b", "t"))).waits()
		a = s.join("a again", id, a.MemberID, static(9, "a", "t"))
		b1 := b.ends().(*kmsg.JoinGroupResponse)
		s.sync("a syncs", id, a, a.MemberID, b1.MemberID)
		s.sync("b syncs", id, b1)
		b1 = s.join("b restarts", id, "", static(9, "b", "t"))
		s.sync("b syncs", id, b1)
		b1 = s.join("b restarts with others", id, "", static(9, "b", "t", "u"))
		s.sync("b syncs", id, b1)
		s.beat("a beats", id, a.MemberID, a.Generation)
		a2 := s.join("a restarts", id, "", static(9, "a", "t"))
		s.sync("a syncs", id, a2)
		a3 := s.join("a restarts, older", id, "", static(8, "a", "t"))
		s.sync("a syncs", id, a3)
		s.describe(id)
		s.join("the one before", id, a2.MemberID, static(9, "a", "t"))
		s.join("without its instance", id, a2.MemberID, static(9, "", "t"))
		s.join("of an id that is not its own", id, b1.MemberID, static(9, "a", "t"))
		s.join("of an instance that is not there", id, a3.MemberID, static(9, "z", "t"))
		s.tell("leaves for good", leaveReq(id, kmsg.LeaveGroupRequestMember{InstanceID: kmsg.StringPtr("b")}))
		s.describe(id)
	}},
	{name: "a static member comes back while others join", from: "KAFKA-9801, KAFKA-20985", play: func(s *transcript) {
		id := s.theGroup("g")
		static := func(name string) func(*kmsg.JoinGroupRequest) {
			return func(r *kmsg.JoinGroupRequest) { r.Version, r.InstanceID, r.RebalanceTimeoutMillis = 9, &name, 1500 }
		}
		a := s.join("a", id, "", static("a"))
		s.sync("a syncs", id, a, a.MemberID)
		first := s.begin("b", joinReq(id, "", static("b"))).waits()
		second := s.begin("b restarts", joinReq(id, "", static("b"))).waits()
		first.ends()
		s.join("a again", id, a.MemberID, static("a"))
		b := second.ends().(*kmsg.JoinGroupResponse)
		s.note("before they sync")
		waits := s.begin("b syncs", syncReq(id, b)).waits()
		third := s.begin("b restarts", joinReq(id, "", static("b"))).waits()
		waits.ends()
		s.join("a again", id, a.MemberID, static("a"))
		third.ends()
		s.describe(id)
	}},
	{name: "a static member whose protocol no longer fits", from: "KAFKA-9801", play: func(s *transcript) {
		id := s.theGroup("g")
		with := func(name string, protocols ...string) func(*kmsg.JoinGroupRequest) {
			return func(r *kmsg.JoinGroupRequest) {
				r.Version, r.InstanceID, r.Protocols = 9, &name, nil
				for _, p := range protocols {
					r.Protocols = append(r.Protocols, protocol(p, "t"))
				}
			}
		}
		a := s.join("a", id, "", with("a", "range", "sticky"))
		b := s.begin("b", joinReq(id, "", with("b", "range", "sticky"))).waits()
		a = s.join("a again", id, a.MemberID, with("a", "range", "sticky"))
		b1 := b.ends().(*kmsg.JoinGroupResponse)
		s.sync("a syncs", id, a, a.MemberID, b1.MemberID)
		s.sync("b syncs", id, b1)
		moved := s.begin("b restarts with another", joinReq(id, "", with("b", "sticky"))).waits()
		s.beat("a beats", id, a.MemberID, a.Generation)
		s.join("a again", id, a.MemberID, with("a", "range", "sticky"))
		moved.ends()
	}},
	{name: "static members outlive a rebalance that they miss", from: "crabka #212", play: func(s *transcript) {
		id := s.theGroup("g")
		static := func(name string) func(*kmsg.JoinGroupRequest) {
			return func(r *kmsg.JoinGroupRequest) {
				r.Version, r.InstanceID, r.RebalanceTimeoutMillis = 9, &name, 600
				if name == "" {
					r.Version, r.InstanceID = 3, nil
				}
			}
		}
		a := s.join("a", id, "", static("a"))
		s.sync("a syncs", id, a, a.MemberID)
		b := s.begin("b", joinReq(id, "", static(""))).waits().ends().(*kmsg.JoinGroupResponse)
		s.note("b leads: %t", b.LeaderID == b.MemberID)
		s.describe(id)
		s.sync("b syncs", id, b, a.MemberID, b.MemberID)
		s.beat("a beats, of the generation before", id, a.MemberID, a.Generation)
		a = s.join("a again", id, a.MemberID, static("a"))
		s.sync("a syncs", id, a)
		s.describe(id)
	}},
	{name: "several leave at once", from: "KAFKA-8225, mockforge #187", play: func(s *transcript) {
		id := s.theGroup("g")
		static := func(name string) func(*kmsg.JoinGroupRequest) {
			return func(r *kmsg.JoinGroupRequest) { r.Version, r.InstanceID = 5, &name }
		}
		a := s.join("a", id, "", static("a"))
		b, c := s.begin("b", joinReq(id, "", static("b"))).waits(), s.begin("c", joinReq(id, "", nil)).waits()
		a = s.join("a again", id, a.MemberID, static("a"))
		b1, c1 := b.ends().(*kmsg.JoinGroupResponse), c.ends().(*kmsg.JoinGroupResponse)
		s.sync("a syncs", id, a, a.MemberID, b1.MemberID, c1.MemberID)
		s.tell("nobody leaves", leaveReq(id))
		p := kmsg.StringPtr
		s.tell("they leave", leaveReq(id,
			kmsg.LeaveGroupRequestMember{MemberID: "stranger"},
			kmsg.LeaveGroupRequestMember{InstanceID: p("nobody")},
			kmsg.LeaveGroupRequestMember{MemberID: b1.MemberID, InstanceID: p("a")},
			kmsg.LeaveGroupRequestMember{InstanceID: p("a")},
			kmsg.LeaveGroupRequestMember{InstanceID: p("a")},
			kmsg.LeaveGroupRequestMember{MemberID: c1.MemberID, InstanceID: p("nobody")},
			kmsg.LeaveGroupRequestMember{MemberID: c1.MemberID},
			kmsg.LeaveGroupRequestMember{MemberID: c1.MemberID},
			kmsg.LeaveGroupRequestMember{},
		))
		s.describe(id)
		s.tell("the last", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: b1.MemberID, InstanceID: p("b")}))
		s.describe(id)
		s.listed(id)
		s.tell("a stranger of an empty group", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: "stranger"}))
		s.tell("a stranger of none", leaveReq(id+"x", kmsg.LeaveGroupRequestMember{MemberID: "stranger"}, kmsg.LeaveGroupRequestMember{InstanceID: p("i")}))
		s.tell("a stranger of none, older", &kmsg.LeaveGroupRequest{Version: 1, Group: id + "x", MemberID: "stranger"})
	}},
	{name: "leaving while others wait", from: "kop #380", play: func(s *transcript) {
		id := s.theGroup("g")
		a := s.join("a", id, "", nil)
		s.sync("a syncs", id, a, a.MemberID)
		b := s.begin("b", joinReq(id, "", nil)).waits()
		s.describe(id)
		s.tell("a leaves", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: a.MemberID}))
		b1 := b.ends().(*kmsg.JoinGroupResponse)
		s.note("b leads: %t", b1.LeaderID == b1.MemberID)
		c := s.begin("c", joinReq(id, "", nil)).waits()
		s.join("b again", id, b1.MemberID, nil)
		c1 := c.ends().(*kmsg.JoinGroupResponse)
		waits := s.begin("c syncs", syncReq(id, c1)).waits()
		s.tell("b leaves before it assigns", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: b1.MemberID}))
		waits.ends()
		s.describe(id)
	}},
	{name: "syncs that do not fit", from: "KAFKA-14500", play: func(s *transcript) {
		id := s.theGroup("g")
		a := s.join("a", id, "", nil)
		with := func(version int16, typ, name *string) *kmsg.SyncGroupRequest {
			r := syncReq(id, a, a.MemberID)
			r.Version, r.ProtocolType, r.Protocol = version, typ, name
			return r
		}
		p := kmsg.StringPtr
		s.tell("of another kind", with(5, p("connect"), p("range")))
		s.tell("of another name", with(5, p("consumer"), p("sticky")))
		s.tell("of no kind", with(5, nil, p("range")))
		s.tell("of no name", with(5, p("consumer"), nil))
		s.tell("of an empty name", with(5, p("consumer"), p("")))
		s.describe(id)
		s.tell("as it should be", with(5, p("consumer"), p("range")))
		s.tell("older", with(4, nil, nil))
		s.begin("b", joinReq(id, "", nil)).waits()
		s.tell("while others join", with(5, p("consumer"), p("range")))
		a.Generation = 7
		s.tell("of another generation", with(5, p("consumer"), p("range")))
	}},
	{name: "commits while members join and sync", from: "librdkafka #2933, #4059, #1605, KAFKA-19242, franz-go #1326", play: func(s *transcript) {
		id := s.theGroup("g")
		topic, tid := s.theTopic("topic", 1)
		a := s.join("a", id, "", nil)
		s.tell("a commits before it syncs", commitOf(7, id, a.MemberID, a.Generation, topic, tid, 1))
		s.sync("a syncs", id, a, a.MemberID)
		s.tell("a commits", commitOf(7, id, a.MemberID, a.Generation, topic, tid, 2))
		b := s.begin("b", joinReq(id, "", nil)).waits()
		s.tell("a commits while b joins", commitOf(7, id, a.MemberID, a.Generation, topic, tid, 3))
		s.tell("a commits of the generation before", commitOf(7, id, a.MemberID, a.Generation-1, topic, tid, 4))
		s.tell("a commits of no generation", commitOf(7, id, a.MemberID, -1, topic, tid, 5))
		s.tell("nobody commits", commitOf(7, id, "", -1, topic, tid, 6))
		s.tell("nobody commits, of a generation", commitOf(7, id, "", a.Generation, topic, tid, 7))
		s.tell("a stranger commits of no generation", commitOf(7, id, "stranger", -1, topic, tid, 8))
		fenced := commitOf(7, id, a.MemberID, a.Generation, topic, tid, 9)
		fenced.InstanceID = kmsg.StringPtr("none")
		s.tell("a commits as an instance that is not there", fenced)
		s.all(id)
		a = s.join("a again", id, a.MemberID, nil)
		b.ends()
		s.tell("a commits", commitOf(7, id, a.MemberID, a.Generation, topic, tid, 10))
		s.tell("a commits with version 2", commitOf(2, id, a.MemberID, a.Generation, topic, tid, 10))
		s.tell("a commits with version 10", commitOf(10, id, a.MemberID, a.Generation, topic, tid, 10))
		s.all(id)
	}},
	{name: "commits of an empty group", from: "hstream #1647, egeria #4681", play: func(s *transcript) {
		topic, tid := s.theTopic("topic", 1)
		for _, version := range []int16{2, 8, 9, 10} {
			id := s.theGroup("g")
			s.tell("of a member", commitOf(version, id, "m", 0, topic, tid, 1))
			s.tell("of a member and no generation", commitOf(version, id, "m", -1, topic, tid, 2))
			s.tell("of no member, generation -2", commitOf(version, id, "", -2, topic, tid, 3))
			s.tell("of no member, generation 0", commitOf(version, id, "", 0, topic, tid, 4))
			s.all(id)
			s.listed(id)
			s.describe(id)
		}
		id := s.theGroup("h")
		a := s.join("a", id, "", nil)
		s.sync("a syncs", id, a, a.MemberID)
		s.tell("a leaves", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: a.MemberID}))
		s.tell("a commits still", commitOf(7, id, a.MemberID, a.Generation, topic, tid, 4))
		s.tell("a commits of the next generation", commitOf(7, id, a.MemberID, a.Generation+1, topic, tid, 4))
		s.tell("nobody commits of the generation", commitOf(7, id, "", a.Generation+1, topic, tid, 4))
		s.tell("nobody commits", commitOf(7, id, "", -1, topic, tid, 5))
		s.beat("a beats", id, a.MemberID, a.Generation)
		s.sync("a syncs", id, a)
		s.all(id)
	}},
	{name: "odd commits", from: "azure-event-hubs-for-kafka #46, #65, franz-go #1312", play: func(s *transcript) {
		id := s.theGroup("g")
		topic, tid := s.theTopic("topic", 2)
		for _, offset := range []int64{-1, -2, -5, 1<<63 - 1} {
			s.tell("an odd offset", commitOf(8, id, "", -1, topic, tid, offset))
			s.all(id)
		}
		odd := commitOf(8, id, "", -1, topic, tid, 5)
		odd.Topics[0].Partitions[0].LeaderEpoch = 7
		odd.Topics[0].Partitions[0].Metadata = nil
		s.tell("null metadata", odd)
		s.all(id)
		odd.Topics[0].Partitions = append(odd.Topics[0].Partitions, odd.Topics[0].Partitions[0])
		odd.Topics[0].Partitions[1].Offset = 9
		s.tell("a partition twice", odd)
		s.all(id)
		odd.Topics = append(odd.Topics, odd.Topics[0])
		s.tell("a topic twice", odd)
		odd.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic}}
		s.tell("no partitions", odd)
		odd.Topics = nil
		s.tell("no topics", odd)
		mixed := commitOf(8, id, "", -1, topic, tid, 20)
		bad := mixed.Topics[0].Partitions[0]
		bad.Partition = 9
		long := mixed.Topics[0].Partitions[0]
		long.Partition, long.Metadata = 1, kmsg.StringPtr(string(make([]byte, 101)))
		negative := mixed.Topics[0].Partitions[0]
		negative.Partition = -1
		mixed.Topics[0].Partitions = append(mixed.Topics[0].Partitions, bad, long, negative)
		mixed.Topics = append(mixed.Topics, kmsg.OffsetCommitRequestTopic{Topic: "no-such-topic-here", Partitions: mixed.Topics[0].Partitions[:1]})
		s.tell("some good, some bad", mixed)
		s.all(id)
		mixed.Version = 10
		mixed.Topics[1].TopicID = [16]byte{9, 9}
		s.tell("some good, some bad, by id", mixed)
		mixed.Topics = append(mixed.Topics, kmsg.OffsetCommitRequestTopic{Partitions: mixed.Topics[0].Partitions[:1]})
		s.tell("and by no id", mixed)
		exact := commitOf(8, id, "", -1, topic, tid, 21)
		exact.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(string(make([]byte, 100)))
		s.tell("as much metadata as may be", exact)
		exact.Topics[0].Partitions[0].Metadata = kmsg.StringPtr("ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé")
		s.tell("metadata of two bytes a letter", exact)
	}},
	{name: "fetches of several groups", from: "KAFKA-12234, KAFKA-19246, redpanda #27794, KAFKA-14499", play: func(s *transcript) {
		topic, tid := s.theTopic("topic", 3)
		a, b, c := s.theGroup("a"), s.theGroup("b"), s.theGroup("c")
		s.tell("commit", commitOf(8, a, "", -1, topic, tid, 1))
		s.tell("commit", commitOf(8, b, "", -1, topic, tid, 2))
		of := func(group string, topics ...kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchRequestGroup {
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group, g.Topics, g.MemberEpoch = group, topics, -1
			return g
		}
		t := func(partitions ...int32) kmsg.OffsetFetchRequestGroupTopic {
			return kmsg.OffsetFetchRequestGroupTopic{Topic: topic, TopicID: tid, Partitions: partitions}
		}
		fetch := func(what string, version int16, groups ...kmsg.OffsetFetchRequestGroup) {
			s.tell(what, &kmsg.OffsetFetchRequest{Version: version, Groups: groups})
		}
		none := kmsg.OffsetFetchRequestGroupTopic{Topic: "no-such-topic-here", TopicID: [16]byte{7}, Partitions: []int32{0}}
		for _, version := range []int16{8, 9, 10} {
			s.note("version %d", version)
			fetch("of no group", version)
			fetch("all, some and none", version, of(a), of(b, t(0, 1)), of(c, t(2)))
			fetch("of groups with no offsets", version, of(c), of(""))
			fetch("of no topics", version, kmsg.OffsetFetchRequestGroup{Group: a, Topics: []kmsg.OffsetFetchRequestGroupTopic{}, MemberEpoch: -1})
			fetch("a group twice", version, of(a, t(0)), of(a, t(1)))
			fetch("a topic twice", version, of(a, t(0), t(0, 0)))
			fetch("odd partitions", version, of(a, t(-1, 99)))
			fetch("a topic that is not there", version, of(a, none, t(0)))
			fetch("of no partitions", version, of(a, t()))
			m := of(a, t(0))
			m.MemberID, m.MemberEpoch = kmsg.StringPtr("m"), 4
			fetch("of a member of a simple group", version, m)
		}
		s.tell("older, of no group", &kmsg.OffsetFetchRequest{Version: 7})
		s.tell("older, of no topics", &kmsg.OffsetFetchRequest{Version: 7, Group: a, Topics: []kmsg.OffsetFetchRequestTopic{}})
		s.tell("older, all", &kmsg.OffsetFetchRequest{Version: 7, Group: a})
		s.tell("old, of no topics", &kmsg.OffsetFetchRequest{Version: 1, Group: a, Topics: []kmsg.OffsetFetchRequestTopic{}})
	}},
	{name: "group ids", from: "rows of groups, by other names", play: func(s *transcript) {
		topic, tid := s.theTopic("topic", 1)
		s.theGroup("ready")
		names := []string{" ", "a\x00b", "\x01", "ünï\u2028", string(make([]byte, 300)), long('x', 32766), long('y', 32767)}
		for i, id := range names {
			kit.Eventually(s.t, 20*time.Second, "the coordinator is ready", func() bool { return s.offsets(id).ErrorCode == 0 })
			s.note("name %d", i)
			s.note("commit: %d", ask[*kmsg.OffsetCommitResponse](s.c, commitOf(8, id, "", -1, topic, tid, 4)).Topics[0].Partitions[0].ErrorCode)
			s.note("offsets: %d", len(s.offsets(id).Topics))
			a := ask[*kmsg.JoinGroupResponse](s.c, joinReq(id, "", func(r *kmsg.JoinGroupRequest) { r.Version = 6; r.InstanceID = kmsg.StringPtr("i") }))
			s.note("join: %d", a.ErrorCode)
			if a.ErrorCode == 0 {
				s.note("sync: %d", ask[*kmsg.SyncGroupResponse](s.c, syncReq(id, a, a.MemberID)).ErrorCode)
			}
			d := ask[*kmsg.DescribeGroupsResponse](s.c, &kmsg.DescribeGroupsRequest{Version: 5, Groups: []string{id}}).Groups[0]
			s.note("described: %d %s %d %t", d.ErrorCode, d.State, len(d.Members), d.Group == id)
			_ = ask[*kmsg.LeaveGroupResponse](s.c, leaveReq(id, kmsg.LeaveGroupRequestMember{InstanceID: kmsg.StringPtr("i")}))
			s.note("deleted: %d", ask[*kmsg.DeleteGroupsResponse](s.c, &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{id}}).Groups[0].ErrorCode)
		}
	}},
	{name: "no group id", from: "KAFKA-15909, mockforge #187", play: func(s *transcript) {
		topic, tid := s.theTopic("topic", 1)
		s.theGroup("ready")
		kit.Eventually(s.t, 20*time.Second, "the coordinator is ready", func() bool { return s.offsets("").ErrorCode == 0 })
		s.tell("join", joinReq("", "", func(r *kmsg.JoinGroupRequest) { r.Version = 9 }))
		s.tell("sync", &kmsg.SyncGroupRequest{Version: 3, MemberID: "m"})
		s.beat("beat", "", "m", 1)
		s.tell("leave", leaveReq("", kmsg.LeaveGroupRequestMember{MemberID: "m"}))
		s.tell("commit", commitOf(8, "", "", -1, topic, tid, 4))
		s.tell("commit of a member", commitOf(8, "", "m", 3, topic, tid, 4))
		s.all("")
		s.listed("")
		s.tell("described", &kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{"", ""}})
		s.tell("described as a newer one", &kmsg.ConsumerGroupDescribeRequest{Version: 1, Groups: []string{""}})
		s.tell("offsets deleted", &kmsg.OffsetDeleteRequest{Group: "", Topics: []kmsg.OffsetDeleteRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}})
		s.tell("deleted", &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{""}})
		s.tell("deleted again", &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{""}})
		s.all("")
		s.tell("described", &kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{}})
		s.tell("deleted", &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{}})
	}},
	{name: "offsets are deleted", from: "redpanda #8158, KAFKA-17218", play: func(s *transcript) {
		topic, tid := s.theTopic("topic", 2)
		other, oid := s.theTopic("other", 1)
		del := func(group string, topics ...string) *kmsg.OffsetDeleteRequest {
			req := &kmsg.OffsetDeleteRequest{Group: group}
			for _, t := range topics {
				req.Topics = append(req.Topics, kmsg.OffsetDeleteRequestTopic{Topic: t, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 1}, {Partition: -1}}})
			}
			return req
		}
		id := s.theGroup("g")
		s.tell("of no group", del(id, topic))
		s.tell("of no group and no topic", del(id))
		s.tell("commit", commitOf(8, id, "", -1, topic, tid, 4))
		s.tell("some", del(id, topic, other, "no-such-topic-here"))
		s.all(id)
		s.tell("commit", commitOf(8, id, "", -1, topic, tid, 4))
		a := s.join("a", id, "", func(r *kmsg.JoinGroupRequest) {
			r.Protocols = []kmsg.JoinGroupRequestProtocol{protocol("range", topic)}
		})
		s.tell("commit", commitOf(7, id, a.MemberID, a.Generation, other, oid, 4))
		s.tell("before it syncs", del(id, topic, other))
		s.sync("a syncs", id, a, a.MemberID)
		s.tell("commit", commitOf(7, id, a.MemberID, a.Generation, other, oid, 4))
		s.tell("with a member", del(id, topic, other))
		s.all(id)
		id = s.theGroup("h")
		a = s.join("a", id, "", func(r *kmsg.JoinGroupRequest) {
			r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("no subscription")}}
		})
		s.sync("a syncs", id, a, a.MemberID)
		s.tell("commit", commitOf(7, id, a.MemberID, a.Generation, other, oid, 4))
		s.tell("with a member that says nothing", del(id, topic, other))
		id = s.theGroup("i")
		a = s.join("a", id, "", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" })
		s.sync("a syncs", id, a, a.MemberID)
		s.tell("with a member of another kind", del(id, topic, other))
		s.tell("a leaves", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: a.MemberID}))
		s.tell("with none any more", del(id, topic, other))
	}},
	{name: "groups are deleted", from: "redpanda #5079, #7879", play: func(s *transcript) {
		topic, tid := s.theTopic("topic", 2)
		id, live := s.theGroup("g"), s.theGroup("h")
		s.tell("commit", commitOf(8, id, "", -1, topic, tid, 4))
		a := s.join("a", live, "", nil)
		s.tell("before it syncs", &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{live}})
		s.sync("a syncs", live, a, a.MemberID)
		s.tell("commit", commitOf(7, live, a.MemberID, a.Generation, topic, tid, 5))
		resp := ask[*kmsg.DeleteGroupsResponse](s.c, &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{id, live, id + "-not"}})
		s.noteAnswer("deleted", resp)
		s.tell("a leaves", leaveReq(live, kmsg.LeaveGroupRequestMember{MemberID: a.MemberID}))
		s.all(live)
		s.tell("once it is empty", &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{live}})
		s.all(live)
		s.tell("once it is gone", &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{live}})
		s.describe(live)
		s.tell("described, newer", &kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{live}})
		s.beat("a beats", live, a.MemberID, a.Generation)
		s.tell("commit of a member", commitOf(7, live, a.MemberID, a.Generation, topic, tid, 5))
		s.tell("commit of a member, newer", commitOf(9, live, a.MemberID, a.Generation, topic, tid, 5))
		b := s.join("anew", live, "", nil)
		s.note("generation %d", b.Generation)
	}},
	{name: "coordinators are found", from: "franz-go #37, redpanda #26835, zilla #653", play: func(s *transcript) {
		s.theGroup("ready")
		for _, kind := range []int8{0, 2, 3, -1} {
			for _, version := range []int16{3, 4, 5, 6} {
				req := kmsg.NewPtrFindCoordinatorRequest()
				req.Version, req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = version, kind, "a", []string{"a", "b", "a", ""}
				resp := ask[*kmsg.FindCoordinatorResponse](s.c, req)
				s.note("kind %d, version %d: %s", kind, version, s.brief(reflect.ValueOf(resp).Elem()))
			}
		}
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version = 4
		s.tell("none", req)
		req.Version = 3
		s.tell("of an empty key", req)
	}},
	{name: "the topic of groups", from: "redpanda #2130, KAFKA-4362", play: func(s *transcript) {
		s.theGroup("ready")
		s.note("produce: %d", send(s.c, 9, "__consumer_offsets", [16]byte{}, 0, stamped(0, 1_700_000_000_100)).ErrorCode)
		s.note("commit: %d", ask[*kmsg.OffsetCommitResponse](s.c, commitOf(8, s.theGroup("g"), "", -1, "__consumer_offsets", [16]byte{}, 4)).Topics[0].Partitions[0].ErrorCode)
		out := createTopics(s.c, 7, false, newTopic("__consumer_offsets", 2), newTopic("__transaction_state", 0))
		s.note("created: %d %d", out[0].ErrorCode, out[1].ErrorCode)
		del := &kmsg.DeleteRecordsRequest{Version: 2, TimeoutMillis: 5000, Topics: []kmsg.DeleteRecordsRequestTopic{{Topic: "__consumer_offsets", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: -1}}}}}
		s.note("records deleted: %d", ask[*kmsg.DeleteRecordsResponse](s.c, del).Topics[0].Partitions[0].ErrorCode)
		meta := kmsg.NewPtrMetadataRequest()
		meta.Version = 9
		meta.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("__consumer_offsets")}}
		m := ask[*kmsg.MetadataResponse](s.c, meta).Topics[0]
		s.note("metadata: %d internal %t", m.ErrorCode, m.IsInternal)
	}},
	{name: "filters of lists", from: "redpanda #2903, #2210, KAFKA-14503", play: func(s *transcript) {
		topic, tid := s.theTopic("topic", 1)
		simple, empty, stable, joining, syncing, newer := s.theGroup("simple"), s.theGroup("empty"), s.theGroup("stable"), s.theGroup("joining"), s.theGroup("syncing"), s.theGroup("newer")
		s.tell("commit", commitOf(8, simple, "", -1, topic, tid, 4))
		for _, id := range []string{empty, stable, joining, syncing} {
			a := s.join("a", id, "", nil)
			if id != syncing {
				s.sync("a syncs", id, a, a.MemberID)
			}
			switch id {
			case empty:
				s.tell("a leaves", leaveReq(id, kmsg.LeaveGroupRequestMember{MemberID: a.MemberID}))
			case joining:
				s.begin("b", joinReq(id, "", nil)).waits()
			}
		}
		s.tell("beat", beating(newer, "m", 0, topic))
		ours := []string{simple, empty, stable, joining, syncing, newer}
		list := func(version int16, states, types []string) {
			resp := ask[*kmsg.ListGroupsResponse](s.c, &kmsg.ListGroupsRequest{Version: version, StatesFilter: states, TypesFilter: types})
			s.note("version %d, %q, %q: %d", version, states, types, resp.ErrorCode)
			for _, id := range ours {
				for _, g := range resp.Groups {
					if g.Group == id {
						s.note("  %s %s %s %q", id, g.GroupState, g.GroupType, g.ProtocolType)
					}
				}
			}
		}
		for _, version := range []int16{0, 3, 4, 5} {
			list(version, nil, nil)
		}
		for _, states := range [][]string{{}, {"Empty"}, {"empty", "STABLE"}, {"PreparingRebalance"}, {"CompletingRebalance"}, {"Dead"}, {"Assigning", "Reconciling"}, {""}, {"odd", "Empty"}, {"NotReady"}, {"Unknown"}} {
			list(4, states, nil)
		}
		for _, types := range [][]string{{}, {"classic"}, {"CONSUMER"}, {"share"}, {"streams"}, {"unknown"}, {""}, {"odd", "Classic"}} {
			list(5, nil, types)
		}
		list(5, []string{"stable"}, []string{"consumer"})
	}},
}

// TestReportedOfExpiry looks for offsets that have expired all the time.
func TestReportedOfExpiry(t *testing.T) {
	addr := ""
	if reference() {
		addr = broker(t)
	} else {
		set := maps.Clone(reportedSettings)
		set["offsets.retention.check.interval.ms"] = "300"
		addr = kit.Start(t, set).Addr
	}
	replay(t, addr, "testdata/expiry-kafka-4.4.0.json", reportedOfExpiry)
}

var reportedOfExpiry = []reported{
	{name: "how long to keep an offset", from: "redpanda #7624, #7626, #8158", play: func(s *transcript) {
		topic, tid := s.theTopic("topic", 1)
		for _, ms := range []int64{0, 500, 1 << 40} {
			id := s.theGroup("g")
			req := commitOf(3, id, "", -1, topic, tid, 1)
			req.RetentionTimeMillis = ms
			s.tell("commit", req)
			s.untilGone(id)
			s.listed(id)
		}
	}},
	{name: "how long to keep a member's offset", from: "KAFKA-13636, redpanda #4011", play: func(s *transcript) {
		topic, tid := s.theTopic("topic", 1)
		other, oid := s.theTopic("other", 1)
		id := s.theGroup("g")
		a := s.join("a", id, "", func(r *kmsg.JoinGroupRequest) {
			r.Protocols = []kmsg.JoinGroupRequestProtocol{protocol("range", topic)}
		})
		s.sync("a syncs", id, a, a.MemberID)
		for _, t := range []struct {
			topic string
			tid   [16]byte
		}{{topic, tid}, {other, oid}} {
			req := commitOf(3, id, a.MemberID, a.Generation, t.topic, t.tid, 1)
			req.RetentionTimeMillis = 300
			s.tell("commit", req)
		}
		all := &kmsg.OffsetFetchRequest{Version: 8, Groups: []kmsg.OffsetFetchRequestGroup{{Group: id, MemberEpoch: -1}}}
		s.awaits("its offsets", all, func(r kmsg.Response) bool { return len(r.(*kmsg.OffsetFetchResponse).Groups[0].Topics) == 1 })
	}},
}

func long(c byte, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = c
	}
	return string(b)
}
