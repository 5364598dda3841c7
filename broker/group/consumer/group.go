package consumer

import (
	"iter"
	"slices"
	"time"

	"strandline/broker/group"
	"strandline/broker/group/classic"
	"strandline/metadata/cluster"
)

// firstEpoch is the epoch of a group, and of its target assignment, before any
// member has joined.
const firstEpoch = 1

// noEpoch is that of what is deleted.
const noEpoch = -1

// Group is one consumer group. The zero value is not one: see New and Load.
type Group struct {
	id string

	// What the records say.

	epoch int32
	// hash is that of the topics when the epoch began.
	hash    uint64
	target  targetValue
	members map[string]*member
	targets map[string]assignment
	regexes map[string]regexValue
	// partitionsRecord: Apache Kafka 4.0 left a record that is to go.
	partitionsRecord bool

	// What follows from that.

	// instances has the ids of static members by their instance ids.
	instances map[string]string
	// holders has the member that holds each partition, also one that it is
	// giving up.
	holders map[cluster.TopicID]map[int32]string
	// How many members, or regular expressions in the second case, name each.
	byName, byRegex, regexMembers, assignors counts
	// How many members speak the classic protocol, and know each of its
	// protocols.
	classicMembers   int
	classicProtocols counts

	// What is forgotten with the machine.

	// checked is the version of the topics that hash was last compared with.
	checked int64
	// next is no later than the first deadline of a member; zero: none.
	next time.Time
	// successor is the classic group that this one has become.
	successor *classic.Group
}

// member is a member of a Group.
type member struct {
	id string
	memberValue
	currentValue

	session, join, sync time.Time
	// rebalance is when it must have left rebalanceEpoch.
	rebalance      time.Time
	rebalanceEpoch int32
}

func (m *member) instanceID() string   { return text(m.instance) }
func (m *member) expression() string   { return text(m.regex) }
func (m *member) speaksClassic() bool  { return m.classic != nil }
func (m *member) reached(e int32) bool { return m.state == stable && m.epoch == e }

// counts counts members by something.
type counts map[string]int

func (c counts) add(key string, n int) {
	if c[key] += n; c[key] == 0 {
		delete(c, key)
	}
}

// New makes a group that has no record yet.
func New(id string) *Group {
	return &Group{
		id: id, epoch: firstEpoch, target: targetValue{epoch: firstEpoch}, checked: -1,
		members: map[string]*member{}, targets: map[string]assignment{}, regexes: map[string]regexValue{},
		instances: map[string]string{}, holders: map[cluster.TopicID]map[int32]string{},
		byName: counts{}, byRegex: counts{}, regexMembers: counts{}, assignors: counts{}, classicProtocols: counts{},
	}
}

// ID is the group's id.
func (g *Group) ID() string { return g.id }

// Type is group.Consumer.
func (g *Group) Type() group.Type { return group.Consumer }

// Empty tells whether the group has no members.
func (g *Group) Empty() bool { return len(g.members) == 0 }

// NumMembers is how many members the group has.
func (g *Group) NumMembers() int { return len(g.members) }

// topicNames are the names of the topics that members read, in no order.
func (g *Group) topicNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range g.byName {
			if !yield(name) {
				return
			}
		}
		for name := range g.byRegex {
			if g.byName[name] == 0 && !yield(name) {
				return
			}
		}
	}
}

// State is what the group is doing.
func (g *Group) State() group.State {
	switch {
	case len(g.members) == 0:
		return group.Empty
	case g.epoch > g.target.epoch:
		return group.Assigning
	}
	for _, m := range g.members {
		if !m.reached(g.target.epoch) {
			return group.Reconciling
		}
	}
	return group.Stable
}

// Successor is the classic group that this one has become by the last event, whose
// effects have its records too; else nil. A group with a successor takes no more
// events.
func (g *Group) Successor() *classic.Group { return g.successor }

// Parked lists the requests that are not answered yet: none ever, as every event
// answers at once.
func (g *Group) Parked() []group.Token { return nil }

// Deadline is when Tick is wanted, at the latest; zero: not at all.
func (g *Group) Deadline() time.Time { return g.next }

// arm makes sure that Tick comes at t.
func (g *Group) arm(t time.Time) time.Time {
	if g.next.IsZero() || t.Before(g.next) {
		g.next = t
	}
	return t
}

// preferred is the assignor that most members ask for; of equals the first in
// the alphabet, and the default where none asks.
func (g *Group) preferred(c Config) string {
	name, most := c.Assignors[0], 0
	for _, n := range sortedKeys(g.assignors) {
		if g.assignors[n] > most && slices.Contains(c.Assignors, n) {
			name, most = n, g.assignors[n]
		}
	}
	return name
}

// subscription are the ids of the existing topics that a member reads, in order.
func (g *Group) subscription(topics Topics, m *member) []cluster.TopicID {
	var ids []cluster.TopicID
	for _, names := range [][]string{m.topics, g.regexes[m.expression()].topics} {
		for _, name := range names {
			if t, ok := topics.Topic(name); ok {
				ids = append(ids, t.ID)
			}
		}
	}
	slices.SortFunc(ids, compareTopics)
	return slices.Compact(ids)
}

// sharesWith tells whether a member has the subscription of another.
func (m *member) sharesWith(other *member) bool {
	return m.expression() == other.expression() && slices.Equal(m.topics, other.topics)
}

// reads tells whether a member subscribes to a topic that exists.
func (g *Group) reads(topics Topics, m *member, id cluster.TopicID) bool {
	t, ok := topics.TopicByID(id)
	if !ok {
		return false
	}
	if _, ok := slices.BinarySearch(m.topics, t.Name); ok {
		return true
	}
	_, ok = slices.BinarySearch(g.regexes[m.expression()].topics, t.Name)
	return ok
}
