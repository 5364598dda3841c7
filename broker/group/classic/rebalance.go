package classic

import (
	"slices"
	"time"

	"strandline/broker/group"
)

// rebalancing may begin in these states.
func (g *Group) canRebalance() bool {
	return g.state == group.Stable || g.state == group.CompletingRebalance || g.state == group.Empty
}

// rebalance begins one, or goes on with the one that runs.
func (g *Group) rebalance(ev *event, reason string) {
	if g.canRebalance() {
		g.prepare(ev, reason)
	} else {
		g.maybeJoined(ev)
	}
}

// prepare asks all members to join again.
func (g *Group) prepare(ev *event, reason string) {
	if g.state == group.CompletingRebalance {
		for _, m := range g.members {
			m.assignment = nil
			g.answerSyncAndHear(ev, m, group.Reply{Err: group.ErrRebalanceInProgress})
		}
	}
	g.endSyncs()
	g.reason = reason
	first := g.state == group.Empty
	g.transition(ev.now, group.PreparingRebalance)
	switch {
	case first:
		delay := g.cfg.InitialRebalanceDelay
		g.join = joinTimer{at: ev.now.Add(delay), initial: true, delay: delay, remaining: max(g.rebalanceTimeout()-delay, 0)}
	case g.allJoined():
		g.joined(ev)
	default:
		g.join = joinTimer{at: ev.now.Add(g.rebalanceTimeout())}
	}
}

// rebalanceTimeout is the longest of the members.
func (g *Group) rebalanceTimeout() time.Duration {
	longest := time.Duration(0)
	for _, m := range g.members {
		longest = max(longest, m.rebalanceTimeout)
	}
	return longest
}

func (g *Group) allJoined() bool { return g.joining == len(g.members) && len(g.pending) == 0 }

// maybeJoined ends the phase of joining where everyone has; the first one of an
// empty group lasts as long as it lasts.
func (g *Group) maybeJoined(ev *event) {
	if g.state == group.PreparingRebalance && g.previous != group.Empty && g.allJoined() {
		g.joined(ev)
	}
}

// afterLoss goes on without a member that is gone.
func (g *Group) afterLoss(ev *event, reason string) {
	if g.state == group.Stable || g.state == group.CompletingRebalance {
		g.prepare(ev, reason)
	} else {
		g.joinedAfterLoss(ev)
	}
}

// joinedAfterLoss ends the phase of joining where all that was missing is gone,
// an empty group's first one too.
func (g *Group) joinedAfterLoss(ev *event) {
	if g.state == group.PreparingRebalance && g.allJoined() {
		g.joined(ev)
	}
}

// joinTimeout ends the phase of joining, or makes the first one of an empty
// group longer while members still come.
func (g *Group) joinTimeout(ev *event) {
	if g.join.initial && g.newMember && g.join.remaining > 0 {
		g.newMember = false
		delay := min(g.cfg.InitialRebalanceDelay, g.join.remaining)
		g.join = joinTimer{at: ev.now.Add(delay), initial: true, delay: delay, remaining: max(g.join.remaining-g.join.delay, 0)}
		return
	}
	g.joined(ev)
}

// joined begins the next generation, of those that have joined: dynamic members
// that have not are gone, static ones are waited for until they have to sync.
func (g *Group) joined(ev *event) {
	g.join, g.newMember = joinTimer{}, false
	for _, m := range slices.Clone(g.members) {
		if !m.join.waits && m.instance == "" {
			g.remove(ev, m)
		}
	}
	if !g.electJoined() && len(g.members) > 0 {
		g.join = joinTimer{at: ev.now.Add(max(g.rebalanceTimeout(), minJoinRetry))}
		return
	}
	g.generation++
	g.endSyncs()
	if g.protocol = g.vote(); len(g.members) == 0 {
		g.transition(ev.now, group.Empty)
		g.learnTopics()
		g.persist(ev)
		return
	}
	g.transition(ev.now, group.CompletingRebalance)
	g.learnTopics()
	for _, m := range g.members {
		g.answerJoin(ev, m, group.Reply{Join: g.joinResponse(m)})
		g.heard(ev.now, m, m.sessionTimeout)
		m.isNew, m.unsynced = false, true
		g.unsynced++
	}
	g.syncBy = ev.now.Add(g.rebalanceTimeout())
}

// electJoined has a member lead that has joined; the leader stays if it is one.
func (g *Group) electJoined() bool {
	if leader := g.byID[g.leader]; leader == nil || leader.join.waits {
		return leader != nil
	}
	i := slices.IndexFunc(g.members, func(m *member) bool { return m.join.waits })
	if i >= 0 {
		g.leader = g.members[i].id
	}
	return i >= 0
}

// endSyncs: no sync is waited for any more.
func (g *Group) endSyncs() {
	g.syncBy = time.Time{}
	for _, m := range g.members {
		g.synced(m)
	}
}

// syncTimeout drops the members that have not synced.
func (g *Group) syncTimeout(ev *event) {
	g.syncBy = time.Time{}
	if g.unsynced == 0 || g.state != group.CompletingRebalance && g.state != group.Stable {
		return
	}
	for _, m := range slices.Clone(g.members) {
		if m.unsynced {
			g.remove(ev, m)
		}
	}
	g.prepare(ev, "members did not ask for their assignments")
}

// answerSyncAndHear answers a sync that waits; the session begins anew, since it
// may have ended meanwhile without effect.
func (g *Group) answerSyncAndHear(ev *event, m *member, r group.Reply) {
	if g.answerSync(ev, m, r) {
		g.heard(ev.now, m, m.sessionTimeout)
	}
}

// learnTopics keeps what the members subscribe to, where that can be known.
func (g *Group) learnTopics() {
	g.topics, g.topicsKnown = nil, false
	if g.protocolType != group.ConsumerProtocol || g.protocol == "" && len(g.members) > 0 {
		return
	}
	topics := map[string]struct{}{}
	for _, m := range g.members {
		names, err := group.SubscribedTopics(m.metadata(g.protocol))
		if err != nil {
			return
		}
		for _, name := range names {
			topics[name] = struct{}{}
		}
	}
	g.topics, g.topicsKnown = topics, true
}

// persist writes down the group as it is.
func (g *Group) persist(ev *event) {
	ev.record(g.Record())
	g.recorded = true
}
