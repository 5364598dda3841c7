package consumer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"strandline/broker/group"
	"strandline/broker/group/classic"
)

// client is a consumer as KIP-848 wants it: it gives up what it is not assigned
// any more and says so, and takes what it is assigned.
type client struct {
	id, instance string
	epoch        int32
	// topics, regex and assignor are what it asks for; said is false until the
	// group has answered to them.
	topics   []string
	regex    string
	assignor string
	said     bool
	owned    assignment
	// classic: it speaks the classic protocol, cooperatively; joins: it is to
	// join, again.
	classic, joins bool
	// slow: it takes its time to give up what it should: releasing.
	slow      bool
	releasing assignment
}

// scene is a group, clients, topics, and a clock.
type scene struct {
	t       *rapid.T
	now     time.Time
	topics  *world
	env     Env
	group   *Group
	view    view
	clients map[string]*client
	next    int
	token   group.Token
}

func (s *scene) newClient() *client {
	s.next++
	c := &client{id: fmt.Sprintf("m%03d", s.next), owned: assignment{}, slow: rapid.Bool().Draw(s.t, "slow")}
	s.subscribe(c)
	if c.classic = rapid.IntRange(0, 3).Draw(s.t, "classic") == 0; c.classic {
		c.joins, c.regex = true, ""
	}
	s.clients[c.id] = c
	return c
}

func (s *scene) subscribe(c *client) {
	names := []string{"a", "b", "c", "ab", "unknown"}
	c.topics, c.regex, c.said = []string{}, "", false
	for _, name := range names {
		if rapid.Bool().Draw(s.t, "subscribes") {
			c.topics = append(c.topics, name)
		}
	}
	c.regex = rapid.SampledFrom([]string{"", "", "a.*", "[bc]"}).Draw(s.t, "regex")
	c.assignor = rapid.SampledFrom(Assignors()).Draw(s.t, "assignor")
}

// heartbeat lets a client speak; lost: it does not hear the answer.
func (s *scene) heartbeat(c *client, lost bool) {
	if c.classic {
		s.beat(c)
		return
	}
	s.token++
	req := group.ConsumerHeartbeatRequest{
		Token: s.token, MemberID: c.id, InstanceID: c.instance, MemberEpoch: c.epoch, RebalanceTimeout: -1, Owned: []group.TopicPartitions{},
	}
	if len(c.releasing) > 0 && rapid.Bool().Draw(s.t, "released") {
		c.releasing = nil
	}
	if c.epoch != 0 {
		req.Owned = c.has().list()
	}
	if !c.said || c.epoch == 0 {
		req.RebalanceTimeout, req.SubscribedTopics, req.SubscribedRegex, req.Assignor = 30*time.Second, c.topics, &c.regex, &c.assignor
	}
	fx := s.group.Heartbeat(s.now, s.env, req)
	s.view.add(s.t, fx.Records)
	require.Len(s.t, fx.Replies, 1)
	require.Equal(s.t, s.token, fx.Replies[0].Token)
	if lost {
		c.said = false // so that it is told all again
		return
	}
	if err := fx.Replies[0].Err; err != nil {
		s.refused(c, err)
		return
	}
	r := fx.Replies[0].ConsumerHeartbeat
	c.epoch, c.said = r.MemberEpoch, true
	if !r.HasAssignment {
		return
	}
	next := assignment{}
	for _, t := range r.Assignment {
		next[t.Topic] = t.Partitions
	}
	c.take(next)
}

// take is what a client does with what it is assigned.
func (c *client) take(next assignment) {
	before := c.has()
	c.releasing = assignment{}
	for topic, list := range before {
		for _, p := range list {
			if !next.has(topic, p) && c.slow {
				c.releasing[topic] = append(c.releasing[topic], p)
			}
		}
	}
	c.owned = next
}

// beat lets a client of the classic protocol speak: a heartbeat, and where it is
// told to, a join and a sync.
func (s *scene) beat(c *client) {
	if len(c.releasing) > 0 && rapid.Bool().Draw(s.t, "released") {
		c.releasing = nil
	}
	if !c.joins {
		fx := s.group.HeartbeatClassic(s.now, s.env, group.HeartbeatRequest{MemberID: c.id, Generation: c.epoch})
		s.view.add(s.t, fx.Records)
		if !s.settled(c, fx) {
			return
		}
	}
	if s.group.Empty() {
		// It would be a classic group then; these clients wait for the others.
		c.owned, c.releasing, c.joins = assignment{}, nil, true
		return
	}
	said := kmsg.ConsumerMemberMetadata{Version: 1, Topics: c.topics}
	for topic, list := range c.has() {
		said.OwnedPartitions = append(said.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: nameOf(topic), Partitions: list})
	}
	fx := s.group.Join(s.now, s.env, group.JoinRequest{
		MemberID: c.id, ProtocolType: group.ConsumerProtocol, SessionTimeout: 45 * time.Second, RebalanceTimeout: time.Minute,
		Protocols: []group.Protocol{{Name: "cooperative-sticky", Metadata: said.AppendTo(nil)}},
	})
	s.view.add(s.t, fx.Records)
	if c.joins = true; !s.settled(c, fx) {
		return
	}
	c.epoch = fx.Replies[0].Join.Generation
	fx = s.group.Sync(s.now, s.env, group.SyncRequest{MemberID: c.id, Generation: c.epoch})
	require.Empty(s.t, fx.Records)
	if !s.settled(c, fx) {
		return
	}
	next, err := readAssigned(s.topics, fx.Replies[0].Sync.Assignment)
	require.NoError(s.t, err)
	c.take(next)
	c.joins = false
}

// settled tells whether a client may go on after an answer; a heartbeat after
// which it has to join again is one.
func (s *scene) settled(c *client, fx group.Effects) bool {
	require.Len(s.t, fx.Replies, 1)
	switch err := fx.Replies[0].Err; {
	case errors.Is(err, group.ErrRebalanceInProgress):
		again := !c.joins
		c.joins = true
		return again
	case errors.Is(err, group.ErrUnknownMember), errors.Is(err, group.ErrIllegalGeneration):
		c.owned, c.releasing, c.joins = assignment{}, nil, true
		return false
	default:
		require.NoError(s.t, err)
		return fx.Replies[0].Join != nil || fx.Replies[0].Sync != nil
	}
}

// has is what a client still has, also what it is about to give up.
func (c *client) has() assignment {
	all := assignment{}
	for _, a := range []assignment{c.owned, c.releasing} {
		for topic, list := range a {
			all[topic] = append(all[topic], list...)
		}
	}
	all.normalize()
	return all
}

func (s *scene) refused(c *client, err error) {
	c.owned, c.releasing, c.said = assignment{}, nil, false
	switch {
	case errors.Is(err, group.ErrFencedMemberEpoch), errors.Is(err, group.ErrUnknownMember):
		c.epoch = 0
	case errors.Is(err, group.ErrUnreleasedInstance), errors.Is(err, group.ErrFencedInstance):
		delete(s.clients, c.id)
	default:
		require.NoError(s.t, err)
	}
}

// check holds the group against its invariants, and the clients against C1: of
// those that are members, no two have a partition.
func (s *scene) check() {
	checkGroup(s.t, s.group, s.env.Config, s.view)
	owners := map[place]string{}
	for _, id := range sortedKeys(s.clients) {
		c := s.clients[id]
		if m := s.group.members[id]; m == nil || c.epoch == 0 && !c.classic {
			continue
		}
		for topic, list := range c.has() {
			for _, p := range list {
				at := place{topic, p}
				require.Empty(s.t, owners[at], "%s-%d is with %s too", nameOf(topic), p, id)
				owners[at] = id
			}
		}
	}
}

func (s *scene) anyone() *client {
	ids := sortedKeys(s.clients)
	if len(ids) == 0 {
		return s.newClient()
	}
	return s.clients[rapid.SampledFrom(ids).Draw(s.t, "client")]
}

func (s *scene) tick() {
	fx := s.group.Tick(s.now, s.env)
	require.Empty(s.t, fx.Replies)
	s.view.add(s.t, fx.Records)
}

func (s *scene) step() {
	switch rapid.IntRange(0, 15).Draw(s.t, "step") {
	case 0:
		s.heartbeat(s.newClient(), false)
	case 1: // a static one
		c := s.newClient()
		c.classic = false
		c.instance = rapid.SampledFrom([]string{"i1", "i2"}).Draw(s.t, "instance")
		s.heartbeat(c, false)
	case 2, 3: // leaves, for good or for a time, or dies
		c := s.anyone()
		if c.classic {
			fx := s.group.Leave(s.now, s.env, group.LeaveRequest{Members: []group.LeavingMember{{MemberID: c.id}}})
			s.view.add(s.t, fx.Records)
			delete(s.clients, c.id)
			break
		}
		req := group.ConsumerHeartbeatRequest{MemberID: c.id, InstanceID: c.instance, MemberEpoch: group.LeaveEpoch, RebalanceTimeout: -1}
		if c.instance != "" && rapid.Bool().Draw(s.t, "for a time") {
			req.MemberEpoch = group.LeaveStaticEpoch
		}
		if rapid.Bool().Draw(s.t, "says so") {
			s.view.add(s.t, s.group.Heartbeat(s.now, s.env, req).Records)
		}
		delete(s.clients, c.id)
	case 4:
		c := s.anyone()
		if s.subscribe(c); c.classic {
			c.joins, c.regex = true, ""
		}
	case 5:
		s.topics.set(rapid.SampledFrom([]string{"a", "b", "c", "ab"}).Draw(s.t, "topic"), int32(rapid.IntRange(1, 6).Draw(s.t, "partitions")), nil)
	case 6:
		s.topics.remove(rapid.SampledFrom([]string{"a", "b", "c", "ab"}).Draw(s.t, "topic"))
	case 7:
		s.now = s.now.Add(rapid.SampledFrom([]time.Duration{time.Second, 12 * time.Second, 50 * time.Second}).Draw(s.t, "pass"))
		s.tick()
	case 8:
		g, err := Load(s.now, s.env.Config, "g", s.view.records())
		require.NoError(s.t, err)
		s.group = g
	case 9:
		s.heartbeat(s.anyone(), true)
	default:
		s.heartbeat(s.anyone(), false)
	}
	s.check()
}

// settle lets everyone speak until nothing changes, and checks that this is what
// was aimed at.
func (s *scene) settle() {
	for _, c := range s.clients {
		c.slow, c.releasing = false, nil
	}
	for round := 0; ; round++ {
		for _, id := range sortedKeys(s.clients) {
			if c := s.clients[id]; c != nil {
				s.heartbeat(c, false)
				s.check()
			}
		}
		s.now = s.now.Add(5 * time.Second)
		s.tick()
		s.check()
		state := s.group.State()
		if round > 12 && (state == group.Stable || state == group.Empty) {
			break
		}
		require.Less(s.t, round, 40, "%v after a long time", state)
	}
	if s.group.Empty() {
		return
	}
	require.Len(s.t, s.group.members, len(s.clients))
	read := map[string]bool{}
	for id, c := range s.clients {
		require.True(s.t, s.group.targets[id].equal(c.owned), "%s has %v", id, c.owned)
		for _, name := range append(c.topics, s.group.regexes[c.regex].topics...) {
			read[name] = true
		}
	}
	want, have := 0, 0
	for name := range read {
		want += int(s.topics.byName[name].Partitions)
	}
	for _, c := range s.clients {
		have += c.owned.count()
	}
	require.Equal(s.t, want, have, "C3: partitions that somebody has")
	for _, e := range slices.Sorted(maps.Keys(s.group.regexes)) {
		require.Equal(s.t, match(s.topics, []string{e})[e], s.group.regexes[e].topics, "%s is up to date", e)
	}
}

func TestMembersReachTheirTargets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.set("a", 3, nil)
		w.set("b", 2, nil)
		c := DefaultConfig()
		c.Migration = UpgradeOnly
		c.AssignmentInterval = rapid.SampledFrom([]time.Duration{0, time.Second, 15 * time.Second}).Draw(t, "interval")
		c.RegexRefreshInterval = 30 * time.Second
		s := &scene{
			t: t, now: time.UnixMilli(1_000_000), topics: w, env: Env{Config: c, Topics: w}, group: New("g"), view: view{},
			clients: map[string]*client{},
		}
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			s.step()
		}
		s.settle()
		s.migrate()
	})
}

// migrate takes out all members that do not speak the classic protocol: the others
// go on as a classic group, and are the same members when they come back from it.
func (s *scene) migrate() {
	s.env.Config.Migration = Bidirectional
	var stay []string
	before := map[string]assignment{}
	var req group.LeaveRequest
	for _, id := range sortedKeys(s.group.members) {
		if m := s.group.members[id]; m.speaksClassic() {
			stay = append(stay, id)
			before[id] = s.group.targets[id]
		} else {
			req.Members = append(req.Members, group.LeavingMember{MemberID: id})
		}
	}
	if len(stay) == 0 || len(req.Members) == 0 {
		return
	}
	epoch := s.group.epoch
	s.view.add(s.t, s.group.Leave(s.now, s.env, req).Records)
	old := s.group.Successor()
	require.NotNil(s.t, old)
	require.Equal(s.t, epoch, old.Generation())
	loaded, err := classic.Load(s.env.Config.Classic, "g", s.now, s.view.records())
	require.NoError(s.t, err)
	require.Equal(s.t, old.Members(), loaded.Members())
	var ids []string
	for _, m := range loaded.Members() {
		ids = append(ids, m.MemberID)
		a, err := readAssigned(s.topics, m.Assignment)
		require.NoError(s.t, err)
		require.True(s.t, before[m.MemberID].equal(a))
	}
	require.Equal(s.t, stay, ids)
	g, fx := Upgrade(s.now, s.env, loaded, group.ConsumerHeartbeatRequest{
		MemberID: "new", SubscribedTopics: []string{"a"}, Owned: []group.TopicPartitions{}, RebalanceTimeout: time.Minute,
	})
	require.NotNil(s.t, g)
	s.view.add(s.t, fx.Records)
	checkGroup(s.t, g, s.env.Config, s.view)
	for _, id := range stay {
		require.True(s.t, before[id].equal(g.members[id].assigned.assignment()))
		require.Equal(s.t, epoch, g.members[id].epoch)
	}
}
