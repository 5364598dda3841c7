package classic

import (
	"strings"
	"time"

	"strandline/broker/group"
)

// Join lets a client in, or a member join again. The answer waits until all have
// joined, and is ErrMemberIDRequired, ErrInvalidSessionTimeout,
// ErrInconsistentProtocol, ErrGroupMaxSize, ErrUnknownMember, ErrFencedInstance,
// ErrRebalanceInProgress (another join of the member came) or
// ErrCoordinatorNotAvailable (the group is dead) where that is not to be.
func (g *Group) Join(now time.Time, req group.JoinRequest) group.Effects {
	ev := &event{now: now}
	req.Protocols = group.DistinctProtocols(req.Protocols)
	g.handleJoin(ev, req)
	if !g.recorded && (len(g.members) > 0 || len(g.pending) > 0) {
		ev.record(group.MetadataRecord(g.id, group.Metadata{Generation: g.generation, StateTime: g.stateTime}))
		g.recorded = true
	}
	return ev.Effects
}

func (g *Group) handleJoin(ev *event, req group.JoinRequest) {
	switch {
	case req.SessionTimeout < g.cfg.MinSessionTimeout || req.SessionTimeout > g.cfg.MaxSessionTimeout:
		ev.refuse(req.Token, req.MemberID, group.ErrInvalidSessionTimeout)
	case g.state == group.Dead:
		ev.refuse(req.Token, req.MemberID, group.ErrCoordinatorNotAvailable)
	case !g.hasRoom(req.MemberID):
		g.turnAway(ev, req.MemberID)
		ev.refuse(req.Token, "", group.ErrGroupMaxSize)
	case !g.supports(req.ProtocolType, req.Protocols):
		ev.refuse(req.Token, req.MemberID, group.ErrInconsistentProtocol)
	case req.MemberID == "":
		g.joinNew(ev, req)
	case g.pending[req.MemberID] != nil && req.InstanceID == "":
		g.admit(ev, req.MemberID, req)
	default:
		g.joinAgain(ev, req)
	}
}

// hasRoom for the member. While members join, those that have count: so that the
// last ones lose where the limit was lowered.
func (g *Group) hasRoom(memberID string) bool {
	m := g.byID[memberID]
	switch g.state {
	case group.PreparingRebalance:
		return m != nil && m.join.waits || g.joining < g.cfg.MaxSize
	case group.CompletingRebalance, group.Stable:
		return m != nil || len(g.members) < g.cfg.MaxSize
	default:
		return true
	}
}

// turnAway forgets a member or client for which there is no room.
func (g *Group) turnAway(ev *event, memberID string) {
	if m := g.byID[memberID]; m != nil {
		g.remove(ev, m)
	} else if !g.forgetPending(memberID) {
		return
	}
	g.maybeJoined(ev)
}

func (g *Group) forgetPending(memberID string) bool {
	s := g.pending[memberID]
	if s == nil {
		return false
	}
	g.sessions.cancel(s)
	delete(g.pending, memberID)
	return true
}

// joinNew is for a client without a member id.
func (g *Group) joinNew(ev *event, req group.JoinRequest) {
	id := req.NewMemberID
	if id == "" || g.byID[id] != nil || g.pending[id] != nil {
		ev.refuse(req.Token, "", group.ErrInvalidRequest)
		return
	}
	switch old := g.static[req.InstanceID]; {
	case old != nil:
		g.replace(ev, old, req)
	case req.InstanceID == "" && req.RequireMemberID:
		s := &session{id: id, place: -1}
		g.pending[id] = s
		g.sessions.extend(s, ev.now.Add(req.SessionTimeout))
		ev.refuse(req.Token, id, group.ErrMemberIDRequired)
	default:
		g.admit(ev, id, req)
	}
}

// admit makes the client a member.
func (g *Group) admit(ev *event, id string, req group.JoinRequest) {
	m := &member{
		id: id, instance: req.InstanceID, client: req.Client,
		rebalanceTimeout: req.RebalanceTimeout, sessionTimeout: req.SessionTimeout,
		protocols: req.Protocols, isNew: true,
	}
	if g.state == group.PreparingRebalance && g.previous == group.Empty {
		g.newMember = true
	}
	g.add(m, req.ProtocolType)
	g.parkJoin(ev, m, req.Token)
	g.heard(ev.now, m, newMemberJoinTimeout)
	g.rebalance(ev, because("member "+id+" joins", req))
}

// joinAgain is for a client that says it is a member.
func (g *Group) joinAgain(ev *event, req group.JoinRequest) {
	m, err := g.check(req.MemberID, req.InstanceID)
	if err != nil {
		ev.refuse(req.Token, req.MemberID, err)
		return
	}
	switch {
	case g.state == group.PreparingRebalance:
		g.update(ev, m, req)
		g.maybeJoined(ev)
	case !m.same(req.Protocols):
		g.update(ev, m, req)
		g.prepare(ev, because("member "+m.id+" has changed", req))
	case g.state == group.Stable && g.leader == m.id:
		// The leader may know of changes that no member's metadata show.
		g.update(ev, m, req)
		g.prepare(ev, because("leader "+m.id+" joins again", req))
	default:
		// Nothing changes: the answer may just have been lost.
		ev.reply(group.Reply{Token: req.Token, Join: g.joinResponse(m)})
	}
}

// joinResponse is how the generation looks to m.
func (g *Group) joinResponse(m *member) *group.JoinResponse {
	r := &group.JoinResponse{
		MemberID: m.id, Generation: g.generation,
		ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader,
	}
	if m.id == g.leader {
		for _, o := range g.members {
			r.Members = append(r.Members, group.JoinMember{MemberID: o.id, InstanceID: o.instance, Metadata: o.metadata(g.protocol)})
		}
	}
	return r
}

// because says why, with the client's own words.
func because(what string, req group.JoinRequest) string {
	said := req.Reason
	if said == "" {
		return what
	}
	if len(said) > maxReason {
		said = strings.ToValidUTF8(said[:maxReason], "")
	}
	return what + ": " + said
}
