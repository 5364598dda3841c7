package classic

import (
	"time"

	"strandline/broker/group"
)

// Config is what the broker's keys say of classic groups.
type Config struct {
	// InitialRebalanceDelay is how long an empty group waits for more members
	// than the first (group.initial.rebalance.delay.ms).
	InitialRebalanceDelay time.Duration
	// MinSessionTimeout and MaxSessionTimeout bound what members may ask for
	// (group.min.session.timeout.ms, group.max.session.timeout.ms).
	MinSessionTimeout time.Duration
	MaxSessionTimeout time.Duration
	// MaxSize is how many members a group may have (group.max.size).
	MaxSize int
	Offsets group.OffsetConfig
}

// newMemberJoinTimeout is how long the join of a new member may wait: it cannot
// send heartbeats, so that nothing else tells whether it is still there.
const newMemberJoinTimeout = 5 * time.Minute

// minJoinRetry keeps a group that waits for members with no rebalance timeout
// from trying all the time.
const minJoinRetry = time.Second

// maxReason is how much of a client's reason is kept, in bytes (KIP-800).
const maxReason = 255

// Group is one group.
type Group struct {
	cfg Config
	id  string

	state    group.State
	previous group.State
	// stateTime is since when; zero: the log's record is too old to say.
	stateTime time.Time

	// protocolType is "" in a group that never had members: a simple one.
	protocolType string
	protocol     string
	leader       string
	generation   int32

	// members are in the order in which they joined.
	members []*member
	byID    map[string]*member
	static  map[string]*member // by instance id
	// pending are sessions of clients that were told a member id and have not
	// joined with it.
	pending map[string]*session
	// supporters counts the members that have a protocol.
	supporters map[string]int
	joining    int // members whose join waits
	unsynced   int // members that have joined and not synced

	topics      map[string]struct{} // what the members subscribe to
	topicsKnown bool

	newMember bool // one came during the initial rebalance
	recorded  bool // the log knows the group
	reason    string

	sessions sessions
	join     joinTimer
	syncBy   time.Time
}

// New is an empty group that the log does not know: what a client finds that
// joins, or commits without being a member, where there is no group. It refuses
// those that think they are members.
func New(cfg Config, id string, now time.Time) *Group {
	return &Group{
		cfg: cfg, id: id,
		state: group.Empty, previous: group.Dead, stateTime: time.UnixMilli(now.UnixMilli()),
		byID: map[string]*member{}, static: map[string]*member{},
		pending: map[string]*session{}, supporters: map[string]int{},
	}
}

// ID is the group's id.
func (g *Group) ID() string { return g.id }

// Type is group.Classic.
func (g *Group) Type() group.Type { return group.Classic }

// State is the state of the group.
func (g *Group) State() group.State { return g.state }

// Generation counts the rounds of members joining; 0: there was none.
func (g *Group) Generation() int32 { return g.generation }

// ProtocolType is what kind of members the group has or had; "" with none ever.
func (g *Group) ProtocolType() string { return g.protocolType }

// Protocol is what the members of this generation follow; "" with none.
func (g *Group) Protocol() string { return g.protocol }

// Leader is the member that assigns; "" with no members.
func (g *Group) Leader() string { return g.leader }

// NumMembers counts members; clients that were told an id are none yet.
func (g *Group) NumMembers() int { return len(g.members) }

// IsSimple: the group has never had members, only offsets.
func (g *Group) IsSimple() bool {
	return g.protocolType == "" && g.state == group.Empty && len(g.pending) == 0
}

// Idle: Load would bring back all there is, so that the caller may forget the
// group. A group that the log does not know is forgotten for good.
func (g *Group) Idle() bool {
	return g.state == group.Dead || g.state == group.Empty && len(g.pending) == 0
}

// Reason is why the group rebalanced last, for people.
func (g *Group) Reason() string { return g.reason }

// SetConfig changes the configuration from now on; timers that run keep theirs.
func (g *Group) SetConfig(cfg Config) { g.cfg = cfg }

// Parked are the requests that have no answer yet.
func (g *Group) Parked() []group.Token {
	var tokens []group.Token
	for _, m := range g.members {
		for _, w := range []waiting{m.join, m.sync} {
			if w.waits {
				tokens = append(tokens, w.token)
			}
		}
	}
	return tokens
}

// Listed is the group as ListGroups shows it.
func (g *Group) Listed() group.Listed {
	return group.Listed{GroupID: g.id, ProtocolType: g.protocolType, State: g.state, Type: group.Classic}
}

// Describe is the group as DescribeGroups shows it.
func (g *Group) Describe() group.Description {
	d := group.Description{State: g.state, ProtocolType: g.protocolType}
	if g.state == group.Stable {
		d.Protocol = g.protocol
	}
	for _, m := range g.members {
		shown := group.MemberDescription{MemberID: m.id, InstanceID: m.instance, Client: m.client, Assignment: m.assignment}
		if g.state == group.Stable {
			shown.Metadata = m.metadata(g.protocol)
		}
		d.Members = append(d.Members, shown)
	}
	return d
}

// transition keeps the time as the log does: to the millisecond.
func (g *Group) transition(now time.Time, to group.State) {
	g.previous, g.state, g.stateTime = g.state, to, time.UnixMilli(now.UnixMilli())
}

// event is one thing that happens to a group, and what comes of it.
type event struct {
	now time.Time
	group.Effects
}

func (e *event) record(r group.Record) { e.Records = append(e.Records, r) }
func (e *event) reply(r group.Reply)   { e.Replies = append(e.Replies, r) }

// refuse answers a join with an error.
func (e *event) refuse(token group.Token, memberID string, err error) {
	e.reply(group.Reply{Token: token, Err: err, Join: &group.JoinResponse{MemberID: memberID}})
}
