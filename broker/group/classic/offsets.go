package classic

import (
	"time"

	"strandline/broker/group"
)

var _ group.Rules = (*Group)(nil)

// Commit takes offsets, and the member that sends them is heard from.
func (g *Group) Commit(now time.Time, req group.CommitRequest) group.Effects {
	fx := group.CommitOffsets(now, g.cfg.Offsets, g.id, g, req)
	if m := g.byID[req.MemberID]; m != nil && !req.Transactional && len(fx.Replies) > 0 && fx.Replies[0].Err == nil {
		g.heard(now, m, m.sessionTimeout)
	}
	return fx
}

// CheckCommit implements group.Rules. A client that is no member may commit
// while there are none.
func (g *Group) CheckCommit(req group.CommitRequest) error {
	switch {
	case g.state == group.Dead:
		return group.ErrCoordinatorNotAvailable
	case req.Generation < 0 && g.state == group.Empty:
		return nil
	case req.Generation >= 0 || req.MemberID != "" || req.InstanceID != "":
		if _, err := g.check(req.MemberID, req.InstanceID); err != nil {
			return err
		}
		if req.Generation != g.generation {
			return group.ErrIllegalGeneration
		}
	case !req.Transactional:
		return group.ErrUnknownMember
	}
	if !req.Transactional && g.state == group.CompletingRebalance {
		return group.ErrRebalanceInProgress
	}
	return nil
}

// CheckFetch implements group.Rules: anyone may, members of classic groups do
// not say who they are.
func (g *Group) CheckFetch(string, int32) error {
	if g.state == group.Dead {
		return group.ErrGroupIDNotFound
	}
	return nil
}

// CheckOffsetDelete implements group.Rules: not while there are members of which
// it is not known what they read.
func (g *Group) CheckOffsetDelete() error {
	switch {
	case g.state == group.Dead:
		return group.ErrGroupIDNotFound
	case g.state != group.Empty && g.protocolType != group.ConsumerProtocol:
		return group.ErrNonEmptyGroup
	}
	return nil
}

// CheckDelete implements group.Rules.
func (g *Group) CheckDelete() error {
	switch g.state {
	case group.Dead:
		return group.ErrGroupIDNotFound
	case group.Empty:
		return nil
	}
	return group.ErrNonEmptyGroup
}

// Subscribed implements group.Rules: a consumer group whose subscriptions cannot
// be read may read anything.
func (g *Group) Subscribed(topic string) bool {
	if !g.topicsKnown {
		return g.protocolType == group.ConsumerProtocol
	}
	_, ok := g.topics[topic]
	return ok
}

// Expiry implements group.Rules: a group that had members keeps its offsets while
// they are there and for the retention after (KIP-211). Offsets of topics that a
// stable consumer group does not read, and those of a simple group, count from
// their commit.
func (g *Group) Expiry() (group.Expiry, bool) {
	switch {
	case g.protocolType == "":
		return group.Expiry{}, g.state != group.Dead
	case g.state == group.Empty:
		return group.Expiry{Since: g.stateTime}, true
	case g.state == group.Stable && g.protocolType == group.ConsumerProtocol && g.topicsKnown:
		return group.Expiry{}, true
	}
	return group.Expiry{}, false
}

// Delete makes an empty group dead and returns what says so in the log; its
// offsets are the caller's. Errors: those of CheckDelete.
func (g *Group) Delete(now time.Time) (group.Effects, error) {
	if err := g.CheckDelete(); err != nil {
		return group.Effects{}, err
	}
	return g.die(now), nil
}

// DeleteIdle is Delete for a group that has no offsets left: not while a client
// is about to join.
func (g *Group) DeleteIdle(now time.Time) group.Effects {
	if g.state != group.Empty || !g.Idle() {
		return group.Effects{}
	}
	return g.die(now)
}

func (g *Group) die(now time.Time) group.Effects {
	for id := range g.pending {
		g.forgetPending(id)
	}
	g.transition(now, group.Dead)
	return group.Effects{Records: []group.Record{group.MetadataTombstone(g.id)}}
}
