package consumer

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"strandline/broker/group"
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
}

// An expression that cannot be compiled any more matches nothing.
func TestExpressionsOfOldLogs(t *testing.T) {
	w := newWorld()
	w.set("a", 1, nil)
	require.Equal(t, map[string][]string{"(": nil, "a": {"a"}}, match(w, []string{"(", "a"}))
}
