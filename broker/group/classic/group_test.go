package classic

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/group"
)

var generous = Config{MaxSessionTimeout: time.Hour, MaxSize: 10}

func request(token group.Token, id string) group.JoinRequest {
	return group.JoinRequest{
		Token: token, NewMemberID: id, ProtocolType: group.ConsumerProtocol, SessionTimeout: time.Minute,
		Protocols: []group.Protocol{{Name: "range", Metadata: metadata("t")}},
	}
}

func TestWhatAGroupShowsOfItself(t *testing.T) {
	g := New(generous, "g", start)
	require.Equal(t, "g", g.ID())
	require.Equal(t, group.Classic, g.Type())
	require.NoError(t, g.CheckFetch("", -1))
	require.Empty(t, g.Protocol())

	g.Join(start, request(1, "m1"))
	g.Tick(start)
	require.Equal(t, "range", g.Protocol())
	require.Equal(t, group.ConsumerProtocol, g.ProtocolType())
	require.Equal(t, group.Listed{GroupID: "g", ProtocolType: "consumer", State: group.CompletingRebalance, Type: group.Classic}, g.Listed())
	require.NoError(t, g.CheckFetch("anyone", 7))

	g.Upgrade(start)
	require.ErrorIs(t, g.CheckFetch("", -1), group.ErrGroupIDNotFound)
	require.ErrorIs(t, g.CheckUpgrade(10), group.ErrGroupIDNotFound)
	require.Empty(t, g.Rebalance(start, "dead"))
	_, err := g.Delete(start)
	require.ErrorIs(t, err, group.ErrGroupIDNotFound)
}

// A new member's id is the caller's to choose; one that is taken is no harm.
func TestANewMembersIDIsNew(t *testing.T) {
	g := New(generous, "g", start)
	require.Empty(t, g.Join(start, request(1, "m1")).Replies)
	pending := request(2, "m2")
	pending.RequireMemberID = true
	g.Join(start, pending)
	for _, id := range []string{"", "m1", "m2"} {
		fx := g.Join(start, request(3, id))
		require.ErrorIs(t, fx.Replies[0].Err, group.ErrInvalidRequest, id)
	}
	require.Equal(t, 1, g.NumMembers())
	require.Equal(t, []group.Token{1}, g.Parked())
}

// A client's reason is kept, but not all of a long one, and no half letter of it.
func TestReasons(t *testing.T) {
	g := New(generous, "g", start)
	req := request(1, "m1")
	req.Reason = "x" + strings.Repeat("ä", 300)
	g.Join(start, req)
	require.Equal(t, "member m1 joins: x"+strings.Repeat("ä", 127), g.Reason())
}

func TestRecordsThatCannotBeLoaded(t *testing.T) {
	key := group.MetadataKey("g").Append(nil)
	_, err := Load(generous, "g", start, []group.Record{{Key: key, Value: []byte("x")}})
	require.ErrorIs(t, err, group.ErrMalformedRecord)
	_, err = Load(generous, "g", start, []group.Record{{Key: key, Value: []byte("\x00\x09")}})
	require.ErrorIs(t, err, group.ErrUnknownRecord)

	// Those of others, and of offsets, are not the group's; of its own the last counts.
	records := []group.Record{
		group.MetadataRecord("g", group.Metadata{Generation: 3}),
		group.MetadataRecord("g", group.Metadata{Generation: 4}),
		group.MetadataRecord("h", group.Metadata{Generation: 5}),
		group.OffsetRecord("g", "t", 0, group.CommittedOffset{}),
		{Key: []byte("x")},
	}
	g, err := Load(generous, "g", start, records)
	require.NoError(t, err)
	require.Equal(t, int32(4), g.Generation())
	g, err = Load(generous, "g", start, append(records, group.MetadataTombstone("g")))
	require.NoError(t, err)
	require.Zero(t, g.Generation())
}

// A record that names members twice, or a leader who is none, makes a sound group.
func TestARecordThatContradictsItself(t *testing.T) {
	m := group.MemberMetadata{MemberID: "m1", InstanceID: "A", SessionTimeout: time.Second}
	twin, namesake := m, m
	twin.InstanceID, namesake.MemberID = "B", "m2"
	g, err := Load(generous, "g", start, []group.Record{group.MetadataRecord("g", group.Metadata{
		ProtocolType: "consumer", Protocol: "range", Leader: "m9", Generation: 1, Members: []group.MemberMetadata{m, twin, namesake},
	})})
	require.NoError(t, err)
	require.Equal(t, 1, g.NumMembers())
	require.Equal(t, "m1", g.Leader())
	check(t, g, nil)
}

// The log of before Kafka 2.1 does not say since when a group is empty: its
// offsets then count from their commits.
func TestExpiryOfAnOldEmptyGroup(t *testing.T) {
	g, err := Load(generous, "g", start, []group.Record{group.MetadataRecord("g", group.Metadata{ProtocolType: "consumer", Generation: 1})})
	require.NoError(t, err)
	expiry, ok := g.Expiry()
	require.True(t, ok)
	require.Equal(t, group.Expiry{}, expiry)
}

func TestADowngradeNeedsAProtocol(t *testing.T) {
	members := []Member{
		{MemberID: "a", Protocols: []group.Protocol{{Name: "range"}}},
		{MemberID: "b", Protocols: []group.Protocol{{Name: "rr"}}},
	}
	assign := func(Member, string) ([]byte, error) { return nil, group.ErrMalformedRecord }
	_, err := Downgrade(generous, "g", start, 5, members, assign)
	require.ErrorIs(t, err, group.ErrInconsistentProtocol)
	_, err = Downgrade(generous, "g", start, 5, members[:1], assign)
	require.ErrorIs(t, err, group.ErrMalformedRecord)
}

// The protocols of a member are as many as its request has room for: to count them
// must not hold up the other groups.
func TestManyProtocols(t *testing.T) {
	g := New(generous, "g", start)
	names := make([]group.Protocol, 300_000)
	for i := range names {
		names[i].Name = strconv.Itoa(i)
	}
	began := time.Now()
	for token, id := range []string{"m1", "m2", "m3"} {
		req := request(group.Token(token+1), id)
		req.Protocols = names
		g.Join(start, req)
	}
	g.Tick(start)
	require.Equal(t, "0", g.Protocol())
	require.Less(t, time.Since(began), 10*time.Second)
}
