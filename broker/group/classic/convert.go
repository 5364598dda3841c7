package classic

import (
	"fmt"
	"time"

	"strandline/broker/group"
)

// Member is a member as it goes from a group of one protocol to one of the other
// (KIP-848). Slices are shared: not to be changed.
type Member struct {
	MemberID         string
	InstanceID       string
	Client           group.Client
	RebalanceTimeout time.Duration
	SessionTimeout   time.Duration
	// Protocols by preference.
	Protocols  []group.Protocol
	Assignment []byte
}

// Metadata are those for a protocol; nil where the member does not have it.
func (m Member) Metadata(protocol string) []byte {
	return (&member{protocols: m.Protocols}).metadata(protocol)
}

// Members are the members, in the order in which they joined.
func (g *Group) Members() []Member {
	list := make([]Member, 0, len(g.members))
	for _, m := range g.members {
		list = append(list, Member{
			MemberID: m.id, InstanceID: m.instance, Client: m.client,
			RebalanceTimeout: m.rebalanceTimeout, SessionTimeout: m.sessionTimeout,
			Protocols: m.protocols, Assignment: m.assignment,
		})
	}
	return list
}

// CheckUpgrade says whether the group can become a KIP-848 one of at most maxSize
// members: it is empty, or has consumers. The error is ErrGroupIDNotFound.
func (g *Group) CheckUpgrade(maxSize int) error {
	switch {
	case g.state == group.Dead:
		return fmt.Errorf("group %q is dead: %w", g.id, group.ErrGroupIDNotFound)
	case g.state == group.Empty:
		return nil
	case g.protocolType != group.ConsumerProtocol:
		return fmt.Errorf("group %q has members that are not consumers: %w", g.id, group.ErrGroupIDNotFound)
	case len(g.members) > maxSize:
		return fmt.Errorf("group %q has %d members, more than %d: %w", g.id, len(g.members), maxSize, group.ErrGroupIDNotFound)
	}
	return nil
}

// Upgrade makes the group dead, because it goes on as a KIP-848 one: its record
// is deleted, and whoever waits is to join again (ErrRebalanceInProgress).
func (g *Group) Upgrade(now time.Time) group.Effects {
	ev := &event{now: now}
	for _, m := range g.members {
		g.answerJoin(ev, m, group.Reply{Err: group.ErrRebalanceInProgress, Join: &group.JoinResponse{MemberID: m.id}})
		g.answerSync(ev, m, group.Reply{Err: group.ErrRebalanceInProgress})
		g.sessions.cancel(m.session)
	}
	g.endSyncs()
	g.join = joinTimer{}
	ev.Effects.Append(g.die(now))
	return ev.Effects
}

// Downgrade is the Stable group of consumers that a KIP-848 group becomes, with
// its epoch as generation. Once the members have agreed on a protocol, assign
// says what each has been assigned. The caller appends Record, and Rebalance
// where the members are to join again. Errors: ErrInconsistentProtocol, those of
// assign.
func Downgrade(cfg Config, id string, now time.Time, generation int32, members []Member, assign func(m Member, protocol string) ([]byte, error)) (*Group, error) {
	g := New(cfg, id, now)
	for _, o := range members {
		m := &member{
			id: o.MemberID, instance: o.InstanceID, client: o.Client,
			rebalanceTimeout: o.RebalanceTimeout, sessionTimeout: o.SessionTimeout,
			protocols: o.Protocols,
		}
		g.add(m, group.ConsumerProtocol)
		g.heard(now, m, m.sessionTimeout)
	}
	if g.protocol = g.vote(); g.protocol == "" {
		return nil, fmt.Errorf("group %q: %w", id, group.ErrInconsistentProtocol)
	}
	for i, o := range members {
		assignment, err := assign(o, g.protocol)
		if err != nil {
			return nil, fmt.Errorf("group %q, member %q: %w", id, o.MemberID, err)
		}
		g.members[i].assignment = assignment
	}
	g.generation, g.recorded = generation, true
	g.transition(now, group.Stable)
	g.learnTopics()
	return g, nil
}

// Rebalance has all members join again.
func (g *Group) Rebalance(now time.Time, reason string) group.Effects {
	ev := &event{now: now}
	if len(g.members) > 0 && g.state != group.Dead {
		g.rebalance(ev, reason)
	}
	return ev.Effects
}
