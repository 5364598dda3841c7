package consumer

import (
	"fmt"
	"time"

	"strandline/broker/group"
)

// A Group's offsets follow its rules.
var _ group.Rules = (*Group)(nil)

// Commit takes offsets.
func (g *Group) Commit(now time.Time, env Env, req group.CommitRequest) group.Effects {
	return group.CommitOffsets(now, env.Config.Classic.Offsets, g.id, g, req)
}

// CheckCommit says whether the group takes a commit. A member whose epoch has
// moved on may still commit for partitions that it had at the epoch it sends, as
// far as it has them without a break (KIP-1251). Partitions are known by their
// topic ids.
//
// Errors: ErrUnknownMember; ErrUnsupportedVersion, to a KIP-848 member whose client
// knows no member epochs; ErrStaleMemberEpoch, to a member of the classic protocol
// ErrIllegalGeneration.
func (g *Group) CheckCommit(req group.CommitRequest) error {
	if req.Generation < 0 && g.Empty() {
		return nil
	}
	if req.Transactional && req.Generation == -1 && req.MemberID == "" && req.InstanceID == "" {
		return nil
	}
	m := g.members[req.MemberID]
	switch {
	case m == nil:
		return fmt.Errorf("%w: %q in group %q", group.ErrUnknownMember, req.MemberID, g.id)
	case req.NoMemberEpochs && !req.Transactional && !m.speaksClassic():
		return fmt.Errorf("%w: %q commits without a member epoch", group.ErrUnsupportedVersion, req.MemberID)
	case req.Generation == m.epoch:
		return nil
	case req.Generation > m.epoch:
		return fmt.Errorf("%w: %d, and the member is in %d", m.stale(), req.Generation, m.epoch)
	}
	for _, p := range req.Partitions {
		epoch, ok := m.assigned[p.TopicID][p.Partition]
		if !ok {
			epoch, ok = m.revoking[p.TopicID][p.Partition]
		}
		if !ok {
			return fmt.Errorf("%w: the member does not have %s-%d", m.stale(), p.Topic, p.Partition)
		}
		if req.Generation < epoch {
			return fmt.Errorf("%w: %d, and the member has had %[4]s-%[5]d since %[3]d", m.stale(), req.Generation, epoch, p.Topic, p.Partition)
		}
	}
	return nil
}

// CheckFetch says whether the member of that id and epoch may read offsets; ""
// and a negative epoch is a client that is no member. Errors: as CheckCommit.
func (g *Group) CheckFetch(memberID string, memberEpoch int32) error {
	if memberID == "" && memberEpoch < 0 {
		return nil
	}
	m := g.members[memberID]
	switch {
	case m == nil:
		return fmt.Errorf("%w: %q in group %q", group.ErrUnknownMember, memberID, g.id)
	case memberEpoch != m.epoch:
		return fmt.Errorf("%w: %d, and the member is in %d", m.stale(), memberEpoch, m.epoch)
	}
	return nil
}

// stale is how a member is told that its epoch is not the one it should be.
func (m *member) stale() error {
	if m.speaksClassic() {
		return group.ErrIllegalGeneration
	}
	return group.ErrStaleMemberEpoch
}

// CheckOffsetDelete says that offsets can be deleted: of topics that nobody reads.
func (g *Group) CheckOffsetDelete() error { return nil }

// CheckDelete says whether the group may be deleted: ErrNonEmptyGroup while it
// has members.
func (g *Group) CheckDelete() error {
	if !g.Empty() {
		return group.ErrNonEmptyGroup
	}
	return nil
}

// Subscribed tells whether a member reads the topic.
func (g *Group) Subscribed(topic string) bool { return g.byName[topic] > 0 || g.byRegex[topic] > 0 }

// Expiry says that an offset's time begins with its commit.
func (g *Group) Expiry() (group.Expiry, bool) { return group.Expiry{}, true }
