package consumer

import (
	"fmt"
	"time"

	"strandline/broker/group"
)

// apply changes the state as a record says; v nil is a tombstone. Nothing else
// changes what records say.
func (g *Group) apply(k kind, name string, v value) {
	switch v := v.(type) {
	case groupValue:
		g.epoch, g.hash = v.epoch, v.hash
	case partitionsValue:
		g.partitionsRecord = true
	case memberValue:
		m := g.member(name)
		g.count(m, -1)
		m.memberValue = v
		g.count(m, 1)
	case targetValue:
		g.target = v
	case targetMemberValue:
		g.targets[name] = v.partitions
	case currentValue:
		g.move(g.member(name), v)
	case regexValue:
		g.setRegex(name, v)
	case nil:
		g.remove(k, name)
	}
}

func (g *Group) remove(k kind, name string) {
	m := g.members[name]
	switch k {
	case kindGroup:
		g.epoch, g.hash = firstEpoch, 0
	case kindPartitions:
		g.partitionsRecord = false
	case kindMember:
		if m != nil {
			g.count(m, -1)
			delete(g.members, name)
		}
	case kindTarget:
		g.target = targetValue{epoch: firstEpoch}
	case kindTargetMember:
		delete(g.targets, name)
	case kindCurrent:
		if m != nil {
			g.move(m, currentValue{epoch: noEpoch, previous: noEpoch, state: m.state})
		}
	case kindRegex:
		g.setRegex(name, regexValue{})
		delete(g.regexes, name)
	}
}

// member returns the member of that id; it makes one if need be.
func (g *Group) member(id string) *member {
	m := g.members[id]
	if m == nil {
		m = newMember(id)
		g.members[id] = m
	}
	return m
}

func newMember(id string) *member {
	return &member{id: id, memberValue: memberValue{rebalanceTimeout: noTimeout}, currentValue: currentValue{previous: noEpoch}}
}

// count adds n for what m says of itself.
func (g *Group) count(m *member, n int) {
	for _, topic := range m.topics {
		g.byName.add(topic, n)
	}
	if e := m.expression(); e != "" {
		g.regexMembers.add(e, n)
	}
	if m.assignor != nil {
		g.assignors.add(*m.assignor, n)
	}
	if m.classic != nil {
		g.classicMembers += n
		for _, p := range m.classic.protocols {
			g.classicProtocols.add(p.Name, n)
		}
	}
	if id := m.instanceID(); id != "" && n > 0 {
		g.instances[id] = m.id
	} else if g.instances[id] == m.id {
		delete(g.instances, id)
	}
}

// move changes what m holds.
func (g *Group) move(m *member, to currentValue) {
	for _, h := range []holding{m.assigned, m.revoking} {
		for topic, partitions := range h {
			for p := range partitions {
				if g.holders[topic][p] == m.id {
					delete(g.holders[topic], p)
				}
			}
			if len(g.holders[topic]) == 0 {
				delete(g.holders, topic)
			}
		}
	}
	m.currentValue = to
	for _, h := range []holding{to.assigned, to.revoking} {
		for topic, partitions := range h {
			if g.holders[topic] == nil {
				g.holders[topic] = map[int32]string{}
			}
			for p := range partitions {
				g.holders[topic][p] = m.id
			}
		}
	}
}

func (g *Group) setRegex(expression string, v regexValue) {
	for _, topic := range g.regexes[expression].topics {
		g.byRegex.add(topic, -1)
	}
	g.regexes[expression] = v
	for _, topic := range v.topics {
		g.byRegex.add(topic, 1)
	}
}

// event is one call: what it was given, and what it has done so far.
type event struct {
	*Group
	Env
	now time.Time
	fx  group.Effects
}

// put appends a record and does what it says; v nil is a tombstone.
func (e *event) put(k kind, name string, v value) {
	r := group.Record{Key: group.RecordKey{Type: k, Group: e.id, Member: name}.Append(nil)}
	if v != nil {
		r.Value = v.encode()
	}
	e.fx.Records = append(e.fx.Records, r)
	e.apply(k, name, v)
}

// reply answers a request.
func (e *event) reply(r group.Reply) group.Effects {
	e.fx.Replies = append(e.fx.Replies, r)
	return e.fx
}

// Load makes a group of its records: the latest of each key, in any order.
// Every member has a whole session from now on. Errors: group.ErrMalformedRecord
// and group.ErrUnknownRecord, also for records that are not of this group.
func Load(now time.Time, c Config, id string, records []group.Record) (*Group, error) {
	g := New(id)
	for _, r := range records {
		k, err := group.ParseRecordKey(r.Key)
		if err != nil {
			return nil, err
		}
		if k.Group != id {
			return nil, fmt.Errorf("%w: of group %q among those of %q", group.ErrMalformedRecord, k.Group, id)
		}
		v, err := decodeValue(k.Type, r.Value)
		if err != nil {
			return nil, err
		}
		if v != nil {
			g.apply(k.Type, k.Member, v)
		}
	}
	for _, m := range g.members {
		timeout := c.SessionTimeout
		if m.classic != nil {
			timeout = m.classic.sessionTimeout
		}
		m.session = g.arm(now.Add(timeout))
		g.armRebalance(now, m)
	}
	return g, nil
}

// armRebalance gives a member that is to give partitions up its time for it.
func (g *Group) armRebalance(now time.Time, m *member) {
	m.rebalance = time.Time{}
	if m.state == unrevoked && m.classic == nil {
		m.rebalance, m.rebalanceEpoch = g.arm(now.Add(max(m.rebalanceTimeout, 0))), m.epoch
	}
}
