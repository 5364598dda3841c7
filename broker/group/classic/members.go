package classic

import (
	"strings"
	"time"

	"strandline/broker/group"
)

// Sync gives a member its assignment. The answer waits until the leader has
// assigned; the leader's own makes the generation durable. Errors:
// ErrUnknownMember, ErrFencedInstance, ErrIllegalGeneration,
// ErrInconsistentProtocol, ErrRebalanceInProgress, ErrCoordinatorNotAvailable.
func (g *Group) Sync(now time.Time, req group.SyncRequest) group.Effects {
	ev := &event{now: now}
	m, err := g.checkSync(req)
	if err != nil {
		ev.reply(group.Reply{Token: req.Token, Err: err})
		return ev.Effects
	}
	if g.synced(m); g.unsynced == 0 {
		g.syncBy = time.Time{}
	}
	if g.state == group.Stable {
		ev.reply(group.Reply{Token: req.Token, Sync: g.syncResponse(m)})
		return ev.Effects
	}
	g.answerSync(ev, m, group.Reply{Err: group.ErrRebalanceInProgress})
	m.sync = waiting{token: req.Token, waits: true}
	if m.id == g.leader {
		g.assign(ev, req.Assignments)
	}
	return ev.Effects
}

func (g *Group) checkSync(req group.SyncRequest) (*member, error) {
	if g.state == group.Dead {
		return nil, group.ErrCoordinatorNotAvailable
	}
	m, err := g.check(req.MemberID, req.InstanceID)
	switch {
	case err != nil:
		return nil, err
	case req.Generation != g.generation:
		return nil, group.ErrIllegalGeneration
	case differs(req.ProtocolType, g.protocolType), differs(req.Protocol, g.protocol):
		return nil, group.ErrInconsistentProtocol
	case g.state == group.PreparingRebalance:
		return nil, group.ErrRebalanceInProgress
	}
	return m, nil
}

// differs: both are said, and are not the same.
func differs(a, b string) bool { return a != "" && b != "" && a != b }

// assign ends the rebalance.
func (g *Group) assign(ev *event, assignments []group.Assignment) {
	for _, m := range g.members {
		m.assignment = nil
	}
	for _, a := range assignments {
		if m := g.byID[a.MemberID]; m != nil {
			m.assignment = a.Assignment
		}
	}
	g.transition(ev.now, group.Stable)
	g.persist(ev)
	for _, m := range g.members {
		g.answerSyncAndHear(ev, m, group.Reply{Sync: g.syncResponse(m)})
	}
}

func (g *Group) syncResponse(m *member) *group.SyncResponse {
	return &group.SyncResponse{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
}

// Heartbeat keeps a member's session. Errors: ErrRebalanceInProgress (join
// again), ErrUnknownMember, ErrFencedInstance, ErrIllegalGeneration,
// ErrCoordinatorNotAvailable.
func (g *Group) Heartbeat(now time.Time, req group.HeartbeatRequest) group.Effects {
	return group.Effects{Replies: []group.Reply{{Token: req.Token, Err: g.heartbeat(now, req)}}}
}

func (g *Group) heartbeat(now time.Time, req group.HeartbeatRequest) error {
	if g.state == group.Dead {
		return group.ErrCoordinatorNotAvailable
	}
	m, err := g.check(req.MemberID, req.InstanceID)
	switch {
	case err != nil:
		return err
	case req.Generation != g.generation:
		return group.ErrIllegalGeneration
	}
	g.heard(now, m, m.sessionTimeout)
	if g.state == group.PreparingRebalance {
		return group.ErrRebalanceInProgress
	}
	return nil
}

// Leave takes members out, at once and with one rebalance for all. Errors of the
// request: ErrCoordinatorNotAvailable; of a member: ErrUnknownMember,
// ErrFencedInstance.
func (g *Group) Leave(now time.Time, req group.LeaveRequest) group.Effects {
	ev := &event{now: now}
	if g.state == group.Dead {
		ev.reply(group.Reply{Token: req.Token, Err: group.ErrCoordinatorNotAvailable})
		return ev.Effects
	}
	response := &group.LeaveResponse{}
	var left []string
	for _, l := range req.Members {
		m, err := g.leave(ev, l)
		response.Members = append(response.Members, group.LeaveResult{MemberID: l.MemberID, InstanceID: l.InstanceID, Err: err})
		if m != nil {
			left = append(left, m.id)
		}
	}
	if len(left) > 0 {
		g.rebalance(ev, "left: "+strings.Join(left, ", "))
	} else {
		g.maybeJoined(ev)
	}
	ev.reply(group.Reply{Token: req.Token, Leave: response})
	return ev.Effects
}

// leave returns who left: no member where it was a client that had not joined.
func (g *Group) leave(ev *event, l group.LeavingMember) (*member, error) {
	m := g.static[l.InstanceID]
	switch {
	case l.MemberID == "" && m == nil:
		return nil, group.ErrUnknownMember
	case l.MemberID == "":
	case g.forgetPending(l.MemberID):
		return nil, nil
	default:
		var err error
		if m, err = g.check(l.MemberID, l.InstanceID); err != nil {
			return nil, err
		}
	}
	g.remove(ev, m)
	return m, nil
}
