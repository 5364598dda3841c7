package classic

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/group"
)

// storm is a group to which anything happens, and what its clients were told.
type storm struct {
	t    *testing.T
	pick func(n int) int // 0 to n-1

	cfg     Config
	now     time.Time
	g       *Group
	token   group.Token
	asked   map[group.Token]group.SyncRequest // zero where it is another request
	open    map[group.Token]bool
	ids     []string
	records []group.Record
	leaders map[int32]string // who was told to assign
	stable  int
	last    int32 // generation
}

func newStorm(t *testing.T, pick func(int) int) *storm {
	s := &storm{t: t, pick: pick, now: start, open: map[group.Token]bool{}, leaders: map[int32]string{}, asked: map[group.Token]group.SyncRequest{}}
	s.cfg = Config{
		InitialRebalanceDelay: time.Duration(pick(3)) * time.Second, MaxSessionTimeout: time.Minute,
		MaxSize: 2 + pick(5), Offsets: group.OffsetConfig{MetadataMax: 8, Retention: time.Hour},
	}
	s.g = New(s.cfg, "g", s.now)
	return s
}

func (s *storm) ask() group.Token {
	s.token++
	s.open[s.token] = true
	return s.token
}

func (s *storm) id() string {
	if len(s.ids) == 0 || s.pick(12) == 0 {
		return ""
	}
	return s.ids[len(s.ids)-1-s.pick(min(len(s.ids), 6))]
}

func (s *storm) instance(id string) string {
	if m := s.g.byID[id]; m != nil && s.pick(8) > 0 {
		return m.instance
	}
	return []string{"", "", "A", "B"}[s.pick(4)]
}

func (s *storm) generation() int32 {
	if s.pick(8) == 0 {
		return int32(s.pick(4)) - 1
	}
	return s.g.Generation()
}

func (s *storm) join() group.Effects {
	req := group.JoinRequest{
		Token: s.ask(), MemberID: s.id(), NewMemberID: fmt.Sprintf("m%d", s.token),
		RequireMemberID: s.pick(2) == 0, CanSkipAssignment: s.pick(2) == 0,
		ProtocolType: group.ConsumerProtocol, SessionTimeout: time.Duration(1+s.pick(62)) * time.Second,
		RebalanceTimeout: time.Duration(s.pick(40)) * time.Second,
	}
	if s.pick(3) == 0 {
		req.MemberID = ""
	}
	req.InstanceID = s.instance(req.MemberID)
	if s.pick(20) == 0 {
		req.ProtocolType = "connect"
	}
	req.Protocols = []group.Protocol{{Name: "range", Metadata: metadata([]string{"t1", "t1", "t2", "!"}[s.pick(4)])}}
	if s.pick(3) == 0 {
		req.Protocols = append(req.Protocols, group.Protocol{Name: "rr"})
		if s.pick(4) == 0 {
			req.Protocols = req.Protocols[1:]
		}
	}
	if m := s.g.byID[req.MemberID]; m != nil && s.pick(2) == 0 {
		req.Protocols = m.protocols
	}
	return s.g.Join(s.now, req)
}

// sync of a leader brings assignments that say of which generation they are.
func (s *storm) sync() group.Effects {
	req := group.SyncRequest{Token: s.ask(), MemberID: s.id(), Generation: s.generation()}
	req.InstanceID = s.instance(req.MemberID)
	if s.pick(4) == 0 && len(s.g.members) > 0 {
		req.MemberID, req.InstanceID = s.g.leader, ""
	}
	for _, m := range s.g.members {
		if s.pick(5) > 0 {
			req.Assignments = append(req.Assignments, group.Assignment{MemberID: m.id, Assignment: fmt.Appendf(nil, "of %d", s.g.generation)})
		}
	}
	s.asked[req.Token] = req
	return s.g.Sync(s.now, req)
}

func (s *storm) leave() group.Effects {
	req := group.LeaveRequest{Token: s.ask()}
	for range 1 + s.pick(2) {
		l := group.LeavingMember{MemberID: s.id()}
		l.InstanceID = s.instance(l.MemberID)
		req.Members = append(req.Members, l)
	}
	return s.g.Leave(s.now, req)
}

func (s *storm) commit() group.Effects {
	req := group.CommitRequest{Token: s.ask(), MemberID: s.id(), Generation: s.generation(), Retention: -1, Transactional: s.pick(4) == 0}
	req.InstanceID = s.instance(req.MemberID)
	req.Partitions = []group.CommitPartition{{Topic: "t1", Metadata: strings.Repeat("x", s.pick(10))}}
	return s.g.Commit(s.now, req)
}

func (s *storm) step() {
	switch n := s.pick(40); {
	case n < 14:
		s.happened(s.join())
	case n < 22:
		s.happened(s.sync())
	case n < 28:
		req := group.HeartbeatRequest{Token: s.ask(), MemberID: s.id(), Generation: s.generation()}
		req.InstanceID = s.instance(req.MemberID)
		s.happened(s.g.Heartbeat(s.now, req))
	case n < 30:
		s.happened(s.leave())
	case n < 32:
		s.happened(s.commit())
	case n < 38:
		s.pass(time.Duration(s.pick(8)) * time.Second)
	case n == 38:
		s.rare()
	default:
		s.happened(s.g.Rebalance(s.now, "asked to"))
	}
}

func (s *storm) rare() {
	switch s.pick(5) {
	case 0:
		s.cfg.MaxSize = 1 + s.pick(6)
		s.g.SetConfig(s.cfg)
	case 1: // another broker takes over
		clear(s.open)
		g, err := Load(s.cfg, "g", s.now, s.records)
		require.NoError(s.t, err)
		require.LessOrEqual(s.t, g.generation, s.g.generation)
		// A generation that was not recorded begins again, with others.
		for generation := g.generation + 1; generation <= s.g.generation; generation++ {
			delete(s.leaders, generation)
		}
		s.g, s.last = g, g.generation
	case 2:
		s.happened(s.g.DeleteIdle(s.now))
		s.revive()
	case 3:
		if s.g.CheckUpgrade(4) == nil && s.g.NumMembers() > 0 {
			members := s.g.Members()
			s.happened(s.g.Upgrade(s.now))
			g, err := Downgrade(s.cfg, "g", s.now, s.g.generation+1, members, func(Member, string) ([]byte, error) {
				return fmt.Appendf(nil, "of %d", s.g.generation+1), nil
			})
			require.NoError(s.t, err)
			s.g = g
			s.happened(group.Effects{Records: []group.Record{g.Record()}})
		}
	default:
		if fx, err := s.g.Delete(s.now); err == nil {
			s.happened(fx)
		}
		s.revive()
	}
}

// revive has a new group follow one that is dead.
func (s *storm) revive() {
	if s.g.State() == group.Dead {
		s.g, s.last = New(s.cfg, "g", s.now), 0
		clear(s.leaders)
	}
}

func (s *storm) pass(took time.Duration) {
	until := s.now.Add(took)
	for range 2000 {
		at := s.g.Deadline()
		if at.IsZero() || at.After(until) {
			s.now = until
			return
		}
		require.False(s.t, at.Before(s.now), "due before now, after everything due happened")
		s.now = at
		s.happened(s.g.Tick(s.now))
	}
	s.t.Fatal("ticks without an end")
}

// happened checks what came of an event.
func (s *storm) happened(fx group.Effects) {
	s.records = append(s.records, fx.Records...)
	for _, r := range fx.Replies {
		require.True(s.t, s.open[r.Token], "C1: answered twice")
		delete(s.open, r.Token)
		if r.Join != nil {
			s.joined(r)
		}
		if r.Sync != nil && len(r.Sync.Assignment) > 0 {
			require.Equal(s.t, fmt.Sprintf("of %d", s.asked[r.Token].Generation), string(r.Sync.Assignment), "C3")
			require.Equal(s.t, s.g.Generation(), s.asked[r.Token].Generation, "C3")
		}
		delete(s.asked, r.Token)
	}
	check(s.t, s.g, s.open)
	if s.g.State() == group.Dead {
		return
	}
	require.GreaterOrEqual(s.t, s.g.Generation(), s.last, "generations do not go back")
	s.last = s.g.Generation()
	if s.g.State() == group.Stable || s.g.State() == group.Empty && s.g.recorded {
		s.stable++
		cfg := s.cfg
		cfg.MaxSize = 100
		loaded, err := Load(cfg, "g", s.now, s.records)
		require.NoError(s.t, err)
		require.Equal(s.t, s.g.Record(), loaded.Record(), "C6")
		require.Equal(s.t, s.g.topics, loaded.topics, "C6")
		require.Equal(s.t, s.g.State(), loaded.State(), "C6")
		check(s.t, loaded, nil)
	}
}

func (s *storm) joined(r group.Reply) {
	if r.Join.MemberID != "" {
		s.ids = append(s.ids, r.Join.MemberID)
	}
	if r.Err != nil {
		require.Equal(s.t, &group.JoinResponse{MemberID: r.Join.MemberID}, r.Join)
		return
	}
	require.Equal(s.t, s.g.Generation(), r.Join.Generation)
	if r.Join.Members == nil || r.Join.SkipAssignment {
		return
	}
	if before, ok := s.leaders[r.Join.Generation]; ok {
		require.Equal(s.t, before, r.Join.MemberID, "two lead generation %d", r.Join.Generation)
	}
	s.leaders[r.Join.Generation] = r.Join.MemberID
	require.Equal(s.t, r.Join.MemberID, r.Join.Leader)
	require.Len(s.t, r.Join.Members, s.g.NumMembers())
}

// calm: once nobody speaks any more, everyone is answered, and in the end the
// group is empty and waits for nothing.
func (s *storm) calm() {
	s.pass(2 * newMemberJoinTimeout)
	require.Empty(s.t, s.open)
	require.Zero(s.t, s.g.NumMembers())
	require.Empty(s.t, s.g.pending)
	require.Zero(s.t, s.g.Deadline())
	require.Equal(s.t, group.Empty, s.g.State())
}

func TestAStormLeavesAGroupSound(t *testing.T) {
	seeds, steps := uint64(120), 400
	if testing.Short() {
		seeds = 40
	}
	stable := 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 848))
		s := newStorm(t, rng.IntN)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s.t = t
			for range steps {
				s.step()
			}
			s.calm()
		})
		if stable += s.stable; !ok {
			return
		}
	}
	require.Greater(t, stable, int(seeds)*steps/20, "hardly ever stable: the storm shows little")
}

func FuzzGroup(f *testing.F) {
	f.Add([]byte("a few members come, sync, and go"))
	f.Fuzz(func(t *testing.T, data []byte) {
		data = data[:min(len(data), 500)]
		s := newStorm(t, func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := int(data[0])
			data = data[1:]
			return b % n
		})
		for len(data) > 0 {
			s.step()
		}
		s.calm()
	})
}
