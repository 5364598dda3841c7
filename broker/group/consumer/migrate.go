package consumer

import (
	"fmt"
	"slices"
	"time"

	"strandline/broker/group"
	"strandline/broker/group/classic"
)

// Upgrade answers a heartbeat for a classic group. One that joins makes the group
// a KIP-848 one, which is returned: of the classic members' subscriptions and
// assignments where it has any, and as far as the policy allows it. Otherwise the
// answer says why not, the returned group is nil, and old is as it was; else old
// is dead, and whoever waits in it is to join again.
//
// Errors: ErrGroupIDNotFound, those of Group.Heartbeat.
func Upgrade(now time.Time, env Env, old *classic.Group, req group.ConsumerHeartbeatRequest) (*Group, group.Effects) {
	e := &event{Group: New(old.ID()), Env: env, now: now}
	resp, err := e.upgrade(old, req)
	if err != nil {
		return nil, group.Effects{Replies: []group.Reply{{Token: req.Token, Err: err}}}
	}
	fx := old.Upgrade(now)
	fx.Append(e.reply(group.Reply{Token: req.Token, ConsumerHeartbeat: &resp}))
	return e.Group, fx
}

func (e *event) upgrade(old *classic.Group, req group.ConsumerHeartbeatRequest) (group.ConsumerHeartbeatResponse, error) {
	none := group.ConsumerHeartbeatResponse{}
	if err := checkHeartbeat(e.Config, req); err != nil {
		return none, err
	}
	if req.MemberEpoch != group.JoinEpoch {
		return none, fmt.Errorf("%w: %q is a classic group", group.ErrGroupIDNotFound, e.id)
	}
	if err := old.CheckUpgrade(e.Config.MaxSize); err != nil {
		return none, err
	}
	if old.State() != group.Empty {
		if !e.Config.Migration.upgrades() {
			return none, fmt.Errorf("%w: the members of %q speak the classic protocol, and may not change it", group.ErrGroupIDNotFound, e.id)
		}
		if err := e.takeOver(old); err != nil {
			return none, err
		}
	}
	return e.heartbeat(req)
}

// takeOver makes the members of a classic group members of this one, as they
// are: in an epoch that is their generation, with what they were assigned. Errors:
// ErrGroupIDNotFound.
func (e *event) takeOver(old *classic.Group) error {
	generation := max(old.Generation(), 0)
	members := old.Members()
	assigned := make([]assignment, len(members))
	seen := map[place]bool{}
	for i, m := range members {
		a, err := readAssigned(e.Topics, m.Assignment)
		if err != nil {
			return fmt.Errorf("member %q: %w", m.MemberID, err)
		}
		if at, ok := overlap(seen, a); ok {
			t, _ := e.Topics.TopicByID(at.topic)
			return fmt.Errorf("%w: %s-%d is assigned to two members", group.ErrGroupIDNotFound, t.Name, at.partition)
		}
		assigned[i] = a
	}
	for _, m := range members {
		// What the member said last, to the protocol that was chosen.
		protocols := m.Protocols
		if chosen := m.Metadata(old.Protocol()); chosen != nil {
			protocols = []group.Protocol{{Name: old.Protocol(), Metadata: chosen}}
		}
		said, err := readEmbedded(e.Topics, protocols)
		if err != nil {
			return fmt.Errorf("%w: member %q: %v", group.ErrGroupIDNotFound, m.MemberID, err)
		}
		about := memberValue{
			instance: nullable(m.InstanceID), rack: said.rack, clientID: m.Client.ID, clientHost: m.Client.Host,
			topics: said.topics, regex: new(string), rebalanceTimeout: m.RebalanceTimeout,
			classic: &classicMember{sessionTimeout: m.SessionTimeout, protocols: m.Protocols},
		}
		e.put(kindMember, m.MemberID, about.clone())
	}
	e.put(kindGroup, "", groupValue{epoch: generation, hash: hashTopics(e.Topics, e.topicNames())})
	for i, m := range members {
		e.put(kindTargetMember, m.MemberID, targetMemberValue{partitions: assigned[i]})
	}
	e.put(kindTarget, "", targetValue{epoch: generation})
	for i, m := range members {
		e.put(kindCurrent, m.MemberID, currentValue{
			epoch: generation, previous: generation, assigned: holdingOf(assigned[i], generation), revoking: holding{},
		})
		e.members[m.MemberID].session = e.arm(e.now.Add(m.SessionTimeout))
	}
	return nil
}

// mayDowngrade tells whether the group, without some members, is to become a
// classic one: there are others, all of them speak the classic protocol, and the
// policy allows it.
func (e *event) mayDowngrade(gone []*member) bool {
	size, speakers := len(e.members)-len(gone), e.classicMembers
	for _, m := range gone {
		if m.speaksClassic() {
			speakers--
		}
	}
	return size > 0 && speakers == size && e.Config.Migration.downgrades() && size <= e.Config.Classic.MaxSize
}

// downgrade makes a classic group of the members, some left out: each has what
// its target is. Nothing has changed where it fails, with ErrInconsistentProtocol.
func (e *event) downgrade(gone []*member, rebalance bool, reason string) error {
	var members []classic.Member
	for _, id := range sortedKeys(e.members) {
		m := e.members[id]
		if slices.Contains(gone, m) {
			continue
		}
		members = append(members, classic.Member{
			MemberID: id, InstanceID: m.instanceID(), Client: group.Client{ID: m.clientID, Host: m.clientHost},
			RebalanceTimeout: max(m.rebalanceTimeout, 0), SessionTimeout: m.classic.sessionTimeout, Protocols: m.classic.protocols,
		})
	}
	to, err := classic.Downgrade(e.Config.Classic, e.id, e.now, e.epoch, members, func(m classic.Member, protocol string) ([]byte, error) {
		said, err := readEmbedded(e.Topics, []group.Protocol{{Name: protocol, Metadata: m.Metadata(protocol)}})
		return appendAssigned(e.Topics, said.version, e.targets[m.MemberID]), err
	})
	if err != nil {
		return err
	}
	e.bury()
	e.fx.Records = append(e.fx.Records, to.Record())
	if rebalance {
		e.fx.Append(to.Rebalance(e.now, reason))
	}
	e.successor, e.next = to, time.Time{}
	return nil
}
