package consumer

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"strandline/broker/group"
)

// leave takes out the member that a heartbeat says is leaving. A static one that
// will be back keeps its place, and its partitions, until its session ends.
func (e *event) leave(req group.ConsumerHeartbeatRequest) (group.ConsumerHeartbeatResponse, error) {
	resp := group.ConsumerHeartbeatResponse{MemberID: req.MemberID, MemberEpoch: req.MemberEpoch}
	m, err := e.named(req.MemberID, req.InstanceID, false)
	if err != nil {
		return resp, err
	}
	if req.MemberEpoch == group.LeaveEpoch {
		e.takeOut(m)
		return resp, nil
	}
	// Whoever comes back has its partitions from whatever epoch it is then in.
	next := m.currentValue
	next.epoch, next.revoking, next.assigned = group.LeaveStaticEpoch, holding{}, holding{}
	for topic, partitions := range m.assigned {
		for p := range partitions {
			next.assigned.add(topic, p, 0)
		}
	}
	e.put(kindCurrent, m.id, next)
	return resp, nil
}

// named returns the member that a request names by its id and, where it is
// static, its instance id; anyID: an id of "" stands for whichever it has.
func (e *event) named(memberID, instanceID string, anyID bool) (*member, error) {
	m := e.members[memberID]
	if instanceID != "" {
		m = e.members[e.instances[instanceID]]
	}
	switch {
	case m == nil && instanceID != "":
		return nil, fmt.Errorf("%w: nobody has the instance id %q", group.ErrUnknownMember, instanceID)
	case m == nil:
		return nil, fmt.Errorf("%w: %q in group %q", group.ErrUnknownMember, memberID, e.id)
	case instanceID != "" && m.id != memberID && !(anyID && memberID == ""):
		return nil, fencedInstance(memberID, instanceID, m)
	}
	return m, nil
}

// takeOut removes members, and begins a new epoch; or has those that stay be a
// classic group.
func (e *event) takeOut(gone ...*member) {
	if len(gone) == 0 {
		return
	}
	if e.mayDowngrade(gone) && e.downgrade(gone, true, "the last member that spoke the consumer protocol has left") == nil {
		return
	}
	var expressions []string
	for _, m := range gone {
		expressions = append(expressions, m.expression())
		e.forget(m)
	}
	for _, expression := range nameSet(expressions) {
		e.dropRegex(expression)
	}
	e.bump(true)
	if e.Empty() {
		e.put(kindTarget, "", targetValue{epoch: e.epoch})
	}
}

// expireMax bounds the members that one Tick takes out, so that their records fit
// one batch.
const expireMax = 256

// Tick takes out members whose time is over: those that were silent for a
// session, that did not give partitions up in time, or, of the classic protocol,
// did not join or sync in time. Where they are more than expireMax, another Tick is
// due at once.
func (g *Group) Tick(now time.Time, env Env) group.Effects {
	e := &event{Group: g, Env: env, now: now}
	if g.next.IsZero() || now.Before(g.next) {
		return e.fx
	}
	var gone []*member
	for _, m := range g.members {
		if m.expired(now) {
			gone = append(gone, m)
		}
	}
	slices.SortFunc(gone, func(a, b *member) int { return cmp.Compare(a.id, b.id) })
	e.takeOut(gone[:min(len(gone), expireMax)]...)
	g.next = time.Time{}
	for _, m := range g.members {
		for _, t := range m.deadlines() {
			if !t.IsZero() {
				g.arm(t)
			}
		}
	}
	return e.fx
}

func (m *member) deadlines() []time.Time {
	d := []time.Time{m.session, m.join, m.sync}
	if m.rebalanceEpoch == m.epoch {
		d = append(d, m.rebalance)
	}
	return d
}

func (m *member) expired(now time.Time) bool {
	return slices.ContainsFunc(m.deadlines(), func(t time.Time) bool { return !t.IsZero() && !now.Before(t) })
}

// Delete deletes the group's records; the group is of no use afterwards. Its
// offsets are the caller's. Errors: those of CheckDelete.
func (g *Group) Delete() (group.Effects, error) {
	if err := g.CheckDelete(); err != nil {
		return group.Effects{}, err
	}
	e := &event{Group: g}
	e.bury()
	return e.fx, nil
}

// bury deletes all records: those of members first, as whoever reads them in
// order expects.
func (e *event) bury() {
	ids := sortedKeys(e.members)
	targets := sortedKeys(e.targets)
	for _, id := range ids {
		e.put(kindCurrent, id, nil)
	}
	for _, id := range targets {
		e.put(kindTargetMember, id, nil)
	}
	e.put(kindTarget, "", nil)
	for _, id := range ids {
		e.put(kindMember, id, nil)
	}
	for _, expression := range sortedKeys(e.regexes) {
		e.put(kindRegex, expression, nil)
	}
	e.put(kindPartitions, "", nil)
	e.put(kindGroup, "", nil)
}
