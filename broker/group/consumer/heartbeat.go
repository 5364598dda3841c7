package consumer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"strandline/broker/group"
	"strandline/metadata/cluster"
)

// Heartbeat joins a member, keeps it or takes it out, and tells it where it
// stands. A request of version 0 that joins without a member id must have been
// given one. No memory of req is kept.
//
// Errors: ErrInvalidRequest, ErrUnsupportedAssignor, ErrInvalidRegex,
// ErrGroupMaxSize, ErrUnknownMember, ErrFencedMemberEpoch (the member gives up
// what it has and joins again), ErrUnreleasedInstance, ErrFencedInstance.
func (g *Group) Heartbeat(now time.Time, env Env, req group.ConsumerHeartbeatRequest) group.Effects {
	e := &event{Group: g, Env: env, now: now}
	var resp group.ConsumerHeartbeatResponse
	err := checkHeartbeat(env.Config, req)
	switch {
	case err != nil:
	case req.MemberEpoch == group.LeaveEpoch || req.MemberEpoch == group.LeaveStaticEpoch:
		resp, err = e.leave(req)
	default:
		resp, err = e.heartbeat(req)
	}
	if err != nil {
		return e.reply(group.Reply{Token: req.Token, Err: err})
	}
	return e.reply(group.Reply{Token: req.Token, ConsumerHeartbeat: &resp})
}

// checkHeartbeat tells what is wrong with a request whatever the group is.
func checkHeartbeat(c Config, req group.ConsumerHeartbeatRequest) error {
	blank := func(s string) bool { return strings.TrimSpace(s) == "" }
	invalid := func(what string) error { return fmt.Errorf("%w: %s", group.ErrInvalidRequest, what) }
	switch {
	case blank(req.MemberID) && req.MemberEpoch != group.LeaveStaticEpoch:
		return invalid("a member id is missing")
	case req.InstanceID != "" && blank(req.InstanceID):
		return invalid("the instance id is blank")
	case req.RackID != nil && blank(*req.RackID):
		return invalid("the rack id is blank")
	case req.MemberEpoch < group.LeaveStaticEpoch:
		return invalid("not a member epoch")
	case req.MemberEpoch == group.LeaveStaticEpoch && req.InstanceID == "":
		return invalid("only a static member can leave for a time")
	case req.Assignor != nil && !slices.Contains(c.Assignors, *req.Assignor):
		return fmt.Errorf("%w: %q; there are %s",
			group.ErrUnsupportedAssignor, *req.Assignor, strings.Join(c.Assignors, ", "))
	case req.MemberEpoch != group.JoinEpoch:
		return nil
	case req.RebalanceTimeout < 0:
		return invalid("a rebalance timeout is missing")
	case req.Owned == nil || len(req.Owned) > 0:
		return invalid("a member that joins has no partitions")
	case req.SubscribedTopics == nil && req.SubscribedRegex == nil:
		return invalid("a subscription is missing")
	}
	return nil
}

func (e *event) heartbeat(req group.ConsumerHeartbeatRequest) (group.ConsumerHeartbeatResponse, error) {
	old, err := e.sender(req)
	if err != nil {
		return group.ConsumerHeartbeatResponse{}, err
	}
	about := changed(old, req)
	if err := e.checkRegex(text(about.regex)); err != nil {
		return group.ConsumerHeartbeatResponse{}, err
	}
	m := old
	if req.InstanceID != "" && req.MemberEpoch == group.JoinEpoch && e.members[e.instances[req.InstanceID]] == old {
		m = e.replace(old, strings.Clone(req.MemberID))
	}
	had := m.assigned
	m, subscribed := e.describe(m, about)
	e.retarget()
	e.reconcile(m, req.Owned, subscribed)
	m.session = e.arm(e.now.Add(e.Config.SessionTimeout))
	m.join, m.sync = time.Time{}, time.Time{}
	resp := group.ConsumerHeartbeatResponse{MemberID: m.id, MemberEpoch: m.epoch, HeartbeatInterval: e.Config.HeartbeatInterval}
	full := req.RebalanceTimeout >= 0 && (req.SubscribedTopics != nil || req.SubscribedRegex != nil) && req.Owned != nil
	if req.MemberEpoch == group.JoinEpoch || full || !had.equal(m.assigned) {
		resp.HasAssignment, resp.Assignment = true, m.assigned.assignment().list()
	}
	return resp, nil
}

// sender returns the member that a heartbeat is from, or, where it joins, the
// one whose place it takes; one that is not in the group where it is new.
func (e *event) sender(req group.ConsumerHeartbeatRequest) (*member, error) {
	joins := req.MemberEpoch == group.JoinEpoch
	if err := e.checkSize(req.MemberID, req.InstanceID); err != nil {
		return nil, err
	}
	m := e.members[req.MemberID]
	if req.InstanceID != "" {
		static := e.members[e.instances[req.InstanceID]]
		switch {
		case static == nil && joins:
		case static == nil:
			return nil, fmt.Errorf("%w: nobody has the instance id %q", group.ErrUnknownMember, req.InstanceID)
		case !joins && static.id != req.MemberID:
			return nil, fencedInstance(req.MemberID, req.InstanceID, static)
		case joins && !static.speaksClassic() && static.epoch != group.LeaveStaticEpoch:
			return nil, fmt.Errorf("%w: %q is that of member %q, %q cannot have it",
				group.ErrUnreleasedInstance, req.InstanceID, static.id, req.MemberID)
		default:
			m = static
		}
	}
	switch {
	case m == nil && joins:
		return newMember(strings.Clone(req.MemberID)), nil
	case m == nil:
		return nil, fmt.Errorf("%w: %q in group %q", group.ErrUnknownMember, req.MemberID, e.id)
	case joins:
		return m, nil
	case m.lost(req.Owned):
		return nil, fmt.Errorf("%w: it is in a state that is not known here", group.ErrFencedMemberEpoch)
	}
	return m, checkEpoch(m, req)
}

func fencedInstance(memberID, instanceID string, by *member) error {
	return fmt.Errorf("%w: member %[4]q, not %[2]q, has %[3]q", group.ErrFencedInstance, memberID, instanceID, by.id)
}

// checkSize tells whether there is room for a member.
func (e *event) checkSize(memberID, instanceID string) error {
	if e.members[e.instances[instanceID]] != nil || e.members[memberID] != nil || len(e.members) < e.Config.MaxSize {
		return nil
	}
	return fmt.Errorf("%w: it has the %d members that it may have", group.ErrGroupMaxSize, e.Config.MaxSize)
}

// checkEpoch tells whether the member may go on. It may be one epoch behind,
// where the answer that told it of the present one was lost: it has nothing
// then that it was not given.
func checkEpoch(m *member, req group.ConsumerHeartbeatRequest) error {
	if req.MemberEpoch == m.epoch {
		return nil
	}
	if req.MemberEpoch < m.epoch && req.MemberEpoch == m.previous && req.Owned != nil && ownsOnly(req.Owned, m.assigned) {
		return nil
	}
	return fmt.Errorf("%w: it is in epoch %d, not in %d", group.ErrFencedMemberEpoch, m.epoch, req.MemberEpoch)
}

func ownsOnly(owned []group.TopicPartitions, assigned holding) bool {
	for _, t := range owned {
		for _, p := range t.Partitions {
			if !assigned.has(t.Topic, p) {
				return false
			}
		}
	}
	return true
}

// changed is what m says of itself after req.
func changed(m *member, req group.ConsumerHeartbeatRequest) memberValue {
	v := m.memberValue
	v.clientID, v.clientHost, v.classic = req.Client.ID, req.Client.Host, nil
	if req.InstanceID != "" {
		v.instance = &req.InstanceID
	}
	if req.RackID != nil {
		v.rack = req.RackID
	}
	if req.RebalanceTimeout >= 0 {
		v.rebalanceTimeout = req.RebalanceTimeout
	}
	if req.Assignor != nil {
		v.assignor = req.Assignor
	}
	if req.SubscribedTopics != nil {
		v.topics = nameSet(req.SubscribedTopics)
	}
	if req.SubscribedRegex != nil {
		v.regex = req.SubscribedRegex
	} else if v.regex == nil {
		v.regex = new(string)
	}
	return v
}

// nameSet is names in order, without duplicates.
func nameSet(names []string) []string {
	names = slices.Sorted(slices.Values(names))
	return slices.Compact(names)
}

func (v memberValue) equal(w memberValue) bool {
	same := func(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }
	return same(v.instance, w.instance) && same(v.rack, w.rack) && same(v.regex, w.regex) && same(v.assignor, w.assignor) &&
		v.clientID == w.clientID && v.clientHost == w.clientHost && v.rebalanceTimeout == w.rebalanceTimeout &&
		slices.Equal(v.topics, w.topics) && v.classic.equal(w.classic)
}

// clone is v without any memory of a request, which ends with its answer.
func (v memberValue) clone() memberValue {
	own := func(s *string) *string {
		if s == nil {
			return nil
		}
		c := strings.Clone(*s)
		return &c
	}
	v.instance, v.rack, v.regex, v.assignor = own(v.instance), own(v.rack), own(v.regex), own(v.assignor)
	v.clientID, v.clientHost = strings.Clone(v.clientID), strings.Clone(v.clientHost)
	v.topics = slices.Clone(v.topics)
	for i, topic := range v.topics {
		v.topics[i] = strings.Clone(topic)
	}
	if v.classic != nil {
		c := classicMember{sessionTimeout: v.classic.sessionTimeout}
		for _, p := range v.classic.protocols {
			c.protocols = append(c.protocols, group.Protocol{Name: strings.Clone(p.Name), Metadata: bytes.Clone(p.Metadata)})
		}
		v.classic = &c
	}
	return v
}

func (c *classicMember) equal(d *classicMember) bool {
	if c == nil || d == nil {
		return c == d
	}
	return c.sessionTimeout == d.sessionTimeout && slices.EqualFunc(c.protocols, d.protocols, func(a, b group.Protocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// replace puts a member of another id in the place of a static one: it has its
// target and its partitions, and begins anew.
func (e *event) replace(old *member, id string) *member {
	about, current, target := old.memberValue, old.currentValue, e.targets[old.id]
	e.forget(old)
	current.epoch, current.previous = 0, 0
	e.put(kindMember, id, about)
	e.put(kindTargetMember, id, targetMemberValue{partitions: target})
	e.put(kindCurrent, id, current)
	return e.members[id]
}

// forget deletes what is recorded of a member.
func (e *event) forget(m *member) {
	e.put(kindCurrent, m.id, nil)
	e.put(kindTargetMember, m.id, nil)
	e.put(kindMember, m.id, nil)
}

// describe records what a member says of itself, brings the group's regular
// expressions up to date, and begins a new epoch where anything has changed that
// the target assignment depends on. subscribed: the member reads other topics
// than before.
func (e *event) describe(m *member, about memberValue) (_ *member, subscribed bool) {
	old, changed := m.memberValue, false
	if e.members[m.id] == nil || !about.equal(old) {
		assignor := e.preferred(e.Config)
		e.put(kindMember, m.id, about.clone())
		m = e.members[m.id]
		changed = assignor != e.preferred(e.Config)
	}
	subscribed = !slices.Equal(old.topics, about.topics) || text(old.regex) != text(about.regex)
	matched := e.refreshRegexes(text(old.regex))
	e.bump(subscribed || matched || changed)
	return m, subscribed
}

// bump begins a new epoch: in any case, or if the topics that the group reads
// have changed since this one began.
func (e *event) bump(always bool) {
	if !always && e.checked == e.Topics.Version() {
		return
	}
	if hash := hashTopics(e.Topics, e.topicNames()); always || hash != e.hash {
		e.put(kindGroup, "", groupValue{epoch: e.epoch + 1, hash: hash})
	}
	e.checked = e.Topics.Version()
	if e.partitionsRecord {
		e.put(kindPartitions, "", nil)
	}
}

// retarget computes a new target assignment where the group is in a newer epoch
// and the last one is old enough.
func (e *event) retarget() {
	if e.target.epoch >= e.epoch {
		return
	}
	if since := e.target.at; !since.IsZero() && e.now.Before(since.Add(e.Config.AssignmentInterval)) {
		return
	}
	ids := sortedKeys(e.members)
	topics := remember(e.Topics)
	subscribers := make([]subscriber, len(ids))
	partitions := map[cluster.TopicID]int32{}
	for i, id := range ids {
		m := e.members[id]
		s := subscriber{id: id, instance: m.instanceID(), current: e.targets[id]}
		if i > 0 && m.sharesWith(e.members[ids[i-1]]) {
			s.topics = subscribers[i-1].topics
		} else {
			s.topics = e.subscription(topics, m)
		}
		for _, topic := range s.topics {
			t, _ := topics.TopicByID(topic)
			partitions[topic] = t.Partitions
		}
		subscribers[i] = s
	}
	for i, target := range assign(e.preferred(e.Config), subscribers, partitions) {
		if old, ok := e.targets[ids[i]]; !ok || !old.equal(target) {
			e.put(kindTargetMember, ids[i], targetMemberValue{partitions: target})
		}
	}
	e.put(kindTarget, "", targetValue{epoch: e.epoch, at: inMillis(e.now)})
}

// reconcile leads a member towards its target. owned is what it says it has.
func (e *event) reconcile(m *member, owned []group.TopicPartitions, subscribed bool) {
	// While the target is that of an older epoch, it may hold topics that the
	// member has left since.
	prune := subscribed || e.target.epoch < e.epoch
	if m.reached(e.target.epoch) && !prune {
		return
	}
	topics := remember(e.Topics)
	s := step{
		target: e.targets[m.id], epoch: e.target.epoch, owned: owned, prune: prune,
		reads: func(topic cluster.TopicID) bool { return e.reads(topics, m, topic) },
		free: func(topic cluster.TopicID, p int32) bool {
			by := e.holders[topic][p]
			return by == "" || by == m.id
		},
	}
	if next := s.from(m.currentValue); !next.equal(m.currentValue) {
		e.put(kindCurrent, m.id, next)
		e.armRebalance(e.now, m)
	}
}

func (v currentValue) equal(w currentValue) bool {
	return v.epoch == w.epoch && v.previous == w.previous && v.state == w.state && v.assigned.equal(w.assigned) && v.revoking.equal(w.revoking)
}
