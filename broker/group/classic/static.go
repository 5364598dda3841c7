package classic

import (
	"strandline/broker/group"
)

// replace hands the place of a static member to a new process with its instance
// id: whoever had it is fenced. In a Stable group that is all, as long as the
// choice of protocol stays: the new one gets the assignment of the old (KIP-345).
func (g *Group) replace(ev *event, m *member, req group.JoinRequest) {
	oldID, leader := m.id, g.leader
	g.answerJoin(ev, m, group.Reply{Err: group.ErrFencedInstance, Join: &group.JoinResponse{MemberID: oldID}})
	g.answerSync(ev, m, group.Reply{Err: group.ErrFencedInstance})
	g.sessions.cancel(m.session)
	delete(g.byID, oldID)
	m.id, m.isNew, m.session = req.NewMemberID, false, nil
	g.byID[m.id] = m
	if leader == oldID {
		g.leader = m.id
	}
	g.update(ev, m, req)
	g.heard(ev.now, m, m.sessionTimeout)

	why := because("static member "+m.id+" takes the place of "+oldID, req)
	switch {
	case g.state == group.PreparingRebalance:
		g.maybeJoined(ev)
	case g.state == group.Stable && g.vote() == g.protocol:
		g.learnTopics()
		g.persist(ev)
		g.answerJoin(ev, m, group.Reply{Join: g.replacedResponse(m, leader, req.CanSkipAssignment)})
	default:
		// What the leader assigns would go to the id of before.
		g.prepare(ev, why)
	}
}

// replacedResponse keeps a static member that leads from assigning again, where
// nothing has changed: it is told so (KIP-814), or, being of an older version,
// that another one leads.
func (g *Group) replacedResponse(m *member, leaderBefore string, canSkip bool) *group.JoinResponse {
	r := g.joinResponse(m)
	if canSkip {
		r.SkipAssignment = m.id == g.leader
	} else {
		r.Leader, r.Members = leaderBefore, nil
	}
	return r
}
