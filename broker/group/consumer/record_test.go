package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"strandline/broker/group"
	"strandline/broker/group/classic"
)

// What is decoded from any bytes is encoded to bytes that mean the same, and no
// value takes more memory than its bytes allow.
func FuzzDecodeValue(f *testing.F) {
	for _, s := range samples() {
		if s.v != nil {
			f.Add(int16(s.kind), s.v.encode())
		}
	}
	f.Add(int16(kindPartitions), partitionsValue{}.encode())
	f.Fuzz(func(t *testing.T, k int16, b []byte) {
		if b == nil {
			b = []byte{}
		}
		v, err := decodeValue(kind(k), b)
		if err != nil {
			require.Nil(t, v)
			require.True(t, errors.Is(err, group.ErrMalformedRecord) || errors.Is(err, group.ErrUnknownRecord), "%v", err)
			return
		}
		again, err := decodeValue(kind(k), v.encode())
		require.NoError(t, err)
		require.Equal(t, v.encode(), again.encode())
	})
}

// A group is loaded from any records, or refused; it never panics, nor does it
// when it is used.
func FuzzLoad(f *testing.F) {
	for _, s := range samples() {
		r := group.Record{Key: group.RecordKey{Type: s.kind, Group: "gruppe-ä", Member: s.name}.Append(nil)}
		if s.v != nil {
			r.Value = s.v.encode()
		}
		f.Add(r.Key, r.Value, r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 []byte) {
		now := time.UnixMilli(5)
		w := newWorld()
		w.set("a", 3, nil)
		env := Env{Config: DefaultConfig(), Topics: w}
		g, err := Load(now, env.Config, "gruppe-ä", []group.Record{{Key: k1, Value: v1}, {Key: k2, Value: v2}})
		if err != nil {
			return
		}
		g.Describe(env)
		req := group.ConsumerHeartbeatRequest{MemberID: "m", SubscribedTopics: []string{"a"}, Owned: []group.TopicPartitions{}}
		g.Heartbeat(now, env, req)
		g.Tick(now.Add(time.Hour), env)
	})
}

func TestRecordsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		epoch := rapid.Int32Range(-2, 1<<31-1)
		name := rapid.StringN(0, 20, 60)
		maybe := func(what string) *string {
			if rapid.Bool().Draw(t, what+" is there") {
				s := name.Draw(t, what)
				return &s
			}
			return nil
		}
		names := func(what string) []string {
			if list := nameSet(rapid.SliceOfN(name, 0, 4).Draw(t, what)); len(list) > 0 {
				return list
			}
			return nil
		}
		hold := func() holding {
			h := holding{}
			for range rapid.IntRange(0, 5).Draw(t, "partitions") {
				h.add(idOf(name.Draw(t, "topic"), 0), rapid.Int32Min(0).Draw(t, "partition"), rapid.Int32Min(0).Draw(t, "epoch"))
			}
			return h
		}
		at := time.UnixMilli(rapid.Int64Range(1, 1<<45).Draw(t, "time"))
		member := memberValue{
			instance: maybe("instance"), rack: maybe("rack"), clientID: name.Draw(t, "client"), clientHost: name.Draw(t, "host"),
			topics: names("topics"), regex: maybe("regex"), assignor: maybe("assignor"),
			rebalanceTimeout: time.Duration(rapid.Int32Min(-1).Draw(t, "timeout")) * time.Millisecond,
		}
		if rapid.Bool().Draw(t, "classic") {
			member.classic = &classicMember{sessionTimeout: time.Duration(rapid.Int32Min(0).Draw(t, "session")) * time.Millisecond}
			for range rapid.IntRange(0, 3).Draw(t, "protocols") {
				metadata := append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "metadata")...)
				member.classic.protocols = append(member.classic.protocols, group.Protocol{Name: name.Draw(t, "protocol"), Metadata: metadata})
			}
		}
		target := assignment{}
		for topic := range hold() {
			target[topic] = []int32{0, 5, 7}
		}
		for k, v := range map[kind]value{
			kindGroup:        groupValue{epoch: epoch.Draw(t, "epoch"), hash: rapid.Uint64().Draw(t, "hash")},
			kindMember:       member,
			kindTarget:       targetValue{epoch: epoch.Draw(t, "epoch"), at: at},
			kindTargetMember: targetMemberValue{target},
			kindCurrent: currentValue{
				epoch: epoch.Draw(t, "epoch"), previous: epoch.Draw(t, "previous"),
				state: rapid.SampledFrom([]memberState{stable, unrevoked, unreleased, unknown}).Draw(t, "state"), assigned: hold(), revoking: hold(),
			},
			kindRegex: regexValue{topics: names("topics"), version: rapid.Int64().Draw(t, "version"), at: at},
		} {
			b := v.encode()
			got, err := decodeValue(k, b)
			require.NoError(t, err)
			require.Equal(t, v, got)
			for n := range b {
				if _, err := decodeValue(k, b[:n]); err == nil {
					t.Fatalf("%d of %d bytes of %T are accepted", n, len(b), v)
				}
			}
			if c, ok := v.(memberValue); ok {
				require.True(t, c.equal(got.(memberValue)))
				require.True(t, c.equal(c.clone()))
			}
		}
	})
}

// Fields that a later version has written are passed over, where they are marked
// as such; a later version of the whole is not understood.
func TestLaterRecords(t *testing.T) {
	for name, s := range samples() {
		if s.v == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := s.v.encode()
			_, err := decodeValue(s.kind, append([]byte{0, 1}, b[2:]...))
			require.ErrorIs(t, err, group.ErrUnknownRecord)
			if b[len(b)-1] != 0 {
				return // its last bytes are a tagged field
			}
			got, err := decodeValue(s.kind, append(bytes.Clone(b[:len(b)-1]), 1, 77, 3, 'n', 'e', 'w'))
			if s.kind == kindMember {
				return // ends with tags of its own
			}
			require.NoError(t, err)
			require.Equal(t, s.v, got)
		})
	}
	v, err := decodeValue(kindCurrent, currentValue{state: 9, assigned: holding{}, revoking: holding{}}.encode())
	require.NoError(t, err)
	require.Equal(t, unknown, v.(currentValue).state)
	_, err = decodeValue(99, []byte{0, 0})
	require.ErrorIs(t, err, group.ErrUnknownRecord)
	v, err = decodeValue(kindGroup, nil)
	require.NoError(t, err)
	require.Nil(t, v)
}

func TestLoadRefusesOtherGroups(t *testing.T) {
	of := func(id string, k kind) group.Record {
		return group.Record{Key: group.RecordKey{Type: k, Group: id}.Append(nil), Value: groupValue{epoch: 1}.encode()}
	}
	_, err := Load(zeroTime, DefaultConfig(), "g", []group.Record{of("h", kindGroup)})
	require.ErrorIs(t, err, group.ErrMalformedRecord)
	_, err = Load(zeroTime, DefaultConfig(), "g", []group.Record{{Key: group.MetadataKey("g").Append(nil), Value: []byte{0, 3}}})
	require.ErrorIs(t, err, group.ErrUnknownRecord)
	_, err = Load(zeroTime, DefaultConfig(), "g", []group.Record{{Key: []byte{0}}})
	require.ErrorIs(t, err, group.ErrMalformedRecord)
	broken := of("g", kindGroup)
	broken.Value = broken.Value[:3]
	_, err = Load(zeroTime, DefaultConfig(), "g", []group.Record{broken})
	require.ErrorIs(t, err, group.ErrMalformedRecord)
	g, err := Load(zeroTime, DefaultConfig(), "g", []group.Record{of("g", kindGroup)})
	require.NoError(t, err)
	require.Equal(t, int32(1), g.epoch)
}

// What Apache Kafka 4.0 kept of topics is deleted with the next epoch.
func TestOldPartitionsRecordGoes(t *testing.T) {
	w := newWorld()
	env := Env{Config: DefaultConfig(), Topics: w}
	v := view{}
	v.add(t, []group.Record{{Key: group.RecordKey{Type: kindPartitions, Group: "g"}.Append(nil), Value: partitionsValue{}.encode()}})
	g, err := Load(zeroTime, env.Config, "g", v.records())
	require.NoError(t, err)
	require.True(t, g.partitionsRecord)
	fx := g.Heartbeat(time.UnixMilli(1), env, group.ConsumerHeartbeatRequest{MemberID: "m", SubscribedTopics: []string{"a"}, Owned: []group.TopicPartitions{}})
	require.NoError(t, fx.Replies[0].Err)
	v.add(t, fx.Records)
	require.False(t, g.partitionsRecord)
	checkGroup(t, g, env.Config, v)
}

// A member in a state of a later version begins again.
func TestUnknownStateBeginsAgain(t *testing.T) {
	w := newWorld()
	w.set("a", 1, nil)
	topic, _ := w.Topic("a")
	env := Env{Config: DefaultConfig(), Topics: w}
	now := time.UnixMilli(1)
	load := func() *Group {
		g := New("g")
		e := &event{Group: g, Env: env, now: now}
		e.put(kindMember, "m", memberValue{topics: []string{"a"}, rebalanceTimeout: time.Minute})
		e.put(kindGroup, "", groupValue{epoch: 4, hash: hashTopics(w, g.topicNames())})
		e.put(kindTarget, "", targetValue{epoch: 4})
		e.put(kindTargetMember, "m", targetMemberValue{assignment{topic.ID: {0}}})
		e.put(kindCurrent, "m", currentValue{epoch: 3, previous: 2, state: unknown, assigned: holding{}, revoking: holding{}})
		return g
	}
	for _, owned := range [][]group.TopicPartitions{nil, {{Topic: topic.ID, Partitions: []int32{0}}}} {
		fx := load().Heartbeat(now, env, group.ConsumerHeartbeatRequest{MemberID: "m", MemberEpoch: 3, RebalanceTimeout: -1, Owned: owned})
		require.ErrorIs(t, fx.Replies[0].Err, group.ErrFencedMemberEpoch)
		require.Empty(t, fx.Records)
	}
	fx := load().Heartbeat(now, env, group.ConsumerHeartbeatRequest{MemberID: "m", MemberEpoch: 3, RebalanceTimeout: -1, Owned: []group.TopicPartitions{}})
	require.NoError(t, fx.Replies[0].Err)
	require.Equal(t, &group.ConsumerHeartbeatResponse{
		MemberID: "m", MemberEpoch: 4, HeartbeatInterval: 5 * time.Second, HasAssignment: true,
		Assignment: []group.TopicPartitions{{Topic: topic.ID, Partitions: []int32{0}}},
	}, fx.Replies[0].ConsumerHeartbeat)
	require.True(t, lastCurrent(fx).equal(currentValue{epoch: 4, previous: 4, assigned: holding{topic.ID: {0: 4}}, revoking: holding{}}))
}

// lastCurrent is the last record of what an event has made of a member.
func lastCurrent(fx group.Effects) currentValue {
	v, _ := decodeValue(kindCurrent, fx.Records[len(fx.Records)-1].Value)
	return v.(currentValue)
}

// Lists that another one wrote in no order are sets all the same, and what does
// not fit its bytes is refused.
func TestOddValues(t *testing.T) {
	id := idOf("a", 0)
	entry := func(partitions ...byte) []byte {
		b := append([]byte{}, id[:]...)
		b = append(b, byte(len(partitions)+1))
		for _, p := range partitions {
			b = append(b, 0, 0, 0, p)
		}
		return append(b, 0)
	}
	b := append([]byte{0, 0, 3}, entry(5, 1, 5)...)
	b = append(append(b, entry(2)...), 0)
	v, err := decodeValue(kindTargetMember, b)
	require.NoError(t, err)
	require.Equal(t, targetMemberValue{assignment{id: {1, 2, 5}}}, v)
	v, err = decodeValue(kindRegex, append([]byte{0, 0, 4, 2, 'b', 2, 'a', 2, 'b'}, make([]byte, 17)...))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, v.(regexValue).topics)
	for name, b := range map[string][]byte{
		"a list that is null":             {0, 0, 0, 0},
		"a list longer than its bytes":    append(append([]byte{0, 0, 2}, id[:]...), 4, 0, 0, 0, 1, 0, 0, 0),
		"a tag without its content":       {0, 0, 1, 1, 9, 5, 1},
		"a list of more than can be left": {0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0},
	} {
		_, err := decodeValue(kindTargetMember, b)
		require.ErrorIs(t, err, group.ErrMalformedRecord, name)
	}
	for name, b := range map[string][]byte{
		"a hash of three bytes": {0, 0, 0, 0, 0, 1, 1, 0, 3, 1, 2, 3},
		"no hash at all":        {0, 0, 0, 0, 0, 1, 1, 0, 0},
	} {
		_, err := decodeValue(kindGroup, b)
		require.ErrorIs(t, err, group.ErrMalformedRecord, name)
	}
	// Epochs that are fewer than the partitions are not believed.
	one := append(append([]byte{0, 0, 0, 0, 0, 7, 0, 0, 0, 6, 0, 2}, id[:]...), 3, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 5, 2, 0, 0, 0, 3)
	v, err = decodeValue(kindCurrent, append(one, 1, 0))
	require.NoError(t, err)
	require.Equal(t, holding{id: {1: 7, 2: 7}}, v.(currentValue).assigned)
	// So are none at all, in the words that mean just that.
	null := append(append([]byte{0, 0, 0, 0, 0, 7, 0, 0, 0, 6, 0, 2}, id[:]...), 2, 0, 0, 0, 1, 1, 0, 1, 0)
	v, err = decodeValue(kindCurrent, append(null, 1, 0))
	require.NoError(t, err)
	require.Equal(t, holding{id: {1: 7}}, v.(currentValue).assigned)
}

// What a member that joins says of itself is recorded as Apache Kafka does.
func TestAJoinIsRecordedAsApacheKafkaDoes(t *testing.T) {
	w := newWorld()
	fx := New("gruppe-ä").Heartbeat(time.UnixMilli(1), Env{Config: DefaultConfig(), Topics: w}, group.ConsumerHeartbeatRequest{
		MemberID: "m", Client: group.Client{ID: "c", Host: "/10.0.0.1"}, SubscribedTopics: []string{"b", "a"}, RebalanceTimeout: 1234 * time.Millisecond,
		Owned: []group.TopicPartitions{},
	})
	require.NoError(t, fx.Replies[0].Err)
	require.Contains(t, goldenLines(t, "record"), fmt.Sprintf("member %x %x", fx.Records[0].Key, fx.Records[0].Value))
}

// A request's memory is its caller's again once it is answered.
func TestRequestsAreNotKept(t *testing.T) {
	w := newWorld()
	w.set("a", 1, nil)
	env, v := Env{Config: DefaultConfig(), Topics: w}, view{}
	var memory [][]byte
	lend := func(s string) string {
		b := []byte(s)
		memory = append(memory, b)
		return unsafe.String(&b[0], len(b))
	}
	lendPtr := func(s string) *string { return ptr(lend(s)) }
	said := kmsg.ConsumerMemberMetadata{Topics: []string{"a"}, Version: 3, Rack: ptr("r")}
	metadata := said.AppendTo(nil)
	memory = append(memory, metadata)
	g, now := New("g"), time.UnixMilli(1)
	v.add(t, g.Heartbeat(now, env, group.ConsumerHeartbeatRequest{
		MemberID: lend("m"), InstanceID: lend("i"), Client: group.Client{ID: lend("c"), Host: lend("h")}, RackID: lendPtr("r"),
		SubscribedTopics: []string{lend("a")}, SubscribedRegex: lendPtr("b.*"), Assignor: lendPtr("range"), Owned: []group.TopicPartitions{},
	}).Records)
	v.add(t, g.Join(now, env, group.JoinRequest{
		MemberID: lend("n"), Client: group.Client{ID: lend("c"), Host: lend("h")}, ProtocolType: lend("consumer"),
		SessionTimeout: time.Minute, Protocols: []group.Protocol{{Name: lend("range"), Metadata: metadata}},
	}).Records)
	v.add(t, g.Heartbeat(now, env, group.ConsumerHeartbeatRequest{
		MemberID: lend("m"), InstanceID: lend("i"), MemberEpoch: group.LeaveStaticEpoch, Client: group.Client{ID: lend("c"), Host: lend("h")}, RebalanceTimeout: -1,
	}).Records)
	v.add(t, g.Heartbeat(now, env, group.ConsumerHeartbeatRequest{
		MemberID: lend("m2"), InstanceID: lend("i"), Client: group.Client{ID: lend("c"), Host: lend("h")},
		SubscribedTopics: []string{lend("a")}, Owned: []group.TopicPartitions{},
	}).Records)
	require.Len(t, g.members, 2)
	for _, b := range memory {
		for i := range b {
			b[i] = '?'
		}
	}
	checkGroup(t, g, env.Config, v)
}

// The group stays what it is where a member's metadata, to the protocol that the
// members would agree on, cannot be read.
func TestDowngradeThatCannotBe(t *testing.T) {
	w := newWorld()
	w.set("a", 2, nil)
	env, v := Env{Config: DefaultConfig(), Topics: w}, view{}
	g, now := New("g"), time.UnixMilli(1)
	v.add(t, g.Heartbeat(now, env, group.ConsumerHeartbeatRequest{MemberID: "m", InstanceID: "i", SubscribedTopics: []string{"a"}, Owned: []group.TopicPartitions{}}).Records)
	good := (&kmsg.ConsumerMemberMetadata{Topics: []string{"a"}, Version: 1}).AppendTo(nil)
	for id, protocols := range map[string][]group.Protocol{
		"b": {{Name: "range", Metadata: good}, {Name: "sticky", Metadata: []byte{0}}},
		"c": {{Name: "sticky", Metadata: good}, {Name: "range", Metadata: good}},
		"d": {{Name: "sticky", Metadata: good}, {Name: "range", Metadata: good}},
	} {
		fx := g.Join(now, env, group.JoinRequest{MemberID: id, ProtocolType: group.ConsumerProtocol, SessionTimeout: time.Minute, Protocols: protocols})
		require.NoError(t, fx.Replies[0].Err)
		v.add(t, fx.Records)
	}
	again := g.Join(now, env, group.JoinRequest{
		NewMemberID: "m2", InstanceID: "i", ProtocolType: group.ConsumerProtocol, SessionTimeout: time.Minute, Protocols: []group.Protocol{{Name: "sticky", Metadata: good}},
	})
	require.NoError(t, again.Replies[0].Err)
	require.Equal(t, "m2", again.Replies[0].Join.MemberID)
	v.add(t, again.Records)
	require.Nil(t, g.Successor())
	checkGroup(t, g, env.Config, v)
	fx := g.Leave(now, env, group.LeaveRequest{Members: []group.LeavingMember{{MemberID: "m2"}}})
	v.add(t, fx.Records)
	require.Nil(t, g.Successor())
	require.Len(t, g.members, 3)
	checkGroup(t, g, env.Config, v)
}

// A member of a classic group goes on with what it said to the protocol that was
// chosen.
func TestUpgradeTakesTheChosenProtocol(t *testing.T) {
	w := newWorld()
	w.set("a", 2, nil)
	w.set("b", 2, nil)
	env, now := Env{Config: DefaultConfig(), Topics: w}, time.UnixMilli(1)
	metadata := func(topic string) []byte {
		return (&kmsg.ConsumerMemberMetadata{Topics: []string{topic}}).AppendTo(nil)
	}
	old, err := classic.Downgrade(env.Config.Classic, "g", now, 7, []classic.Member{
		{MemberID: "x", SessionTimeout: time.Minute, Protocols: []group.Protocol{{Name: "p", Metadata: metadata("a")}, {Name: "q", Metadata: metadata("b")}}},
		{MemberID: "y", SessionTimeout: time.Minute, Protocols: []group.Protocol{{Name: "q", Metadata: metadata("b")}}},
	}, func(classic.Member, string) ([]byte, error) { return nil, nil })
	require.NoError(t, err)
	g, fx := Upgrade(now, env, old, group.ConsumerHeartbeatRequest{MemberID: "m", SubscribedTopics: []string{"a"}, Owned: []group.TopicPartitions{}})
	require.NoError(t, fx.Replies[0].Err)
	require.Equal(t, []string{"b"}, g.members["x"].topics)
	require.Equal(t, int32(7), g.members["x"].epoch)
	require.Equal(t, group.Dead, old.State())
}

// An expression that cannot be compiled any more matches nothing.
func TestExpressionsOfOldLogs(t *testing.T) {
	w := newWorld()
	w.set("a", 1, nil)
	require.Equal(t, map[string][]string{"(": nil, "a": {"a"}}, match(w, []string{"(", "a"}))
}
