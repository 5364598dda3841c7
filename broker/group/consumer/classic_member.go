package consumer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"strandline/broker/group"
)

// Join lets a member of the classic protocol in, or on to its target, while the
// group has others already: an empty group is to be deleted instead, and a
// classic one made. It is answered at once; the assignment follows with Sync. No
// memory of req is kept.
//
// The group may become a classic one by it: see Successor.
//
// Errors: ErrInconsistentProtocol, ErrInvalidSessionTimeout, ErrGroupMaxSize,
// ErrMemberIDRequired, ErrUnknownMember, ErrFencedInstance.
func (g *Group) Join(now time.Time, env Env, req group.JoinRequest) group.Effects {
	e := &event{Group: g, Env: env, now: now}
	req.Protocols = group.DistinctProtocols(req.Protocols)
	id := req.MemberID
	if id == "" {
		id = req.NewMemberID
	}
	resp, err := e.join(id, req)
	if errors.Is(err, group.ErrMemberIDRequired) {
		resp.MemberID = id
	}
	return e.reply(group.Reply{Token: req.Token, Err: err, Join: &resp})
}

func (e *event) join(id string, req group.JoinRequest) (group.JoinResponse, error) {
	said, err := e.checkJoin(id, req)
	if err != nil {
		return group.JoinResponse{}, err
	}
	m, err := e.joiner(id, req)
	if err != nil {
		return group.JoinResponse{}, err
	}
	// A member that was taken out may still believe that it has partitions, which
	// others have by now: it has to begin again, and give up all.
	known := e.members[m.id] == m
	if !known && len(said.owned) > 0 || m.lost(said.owned) {
		return group.JoinResponse{}, fmt.Errorf("%w: %q, and it is to have nothing", group.ErrUnknownMember, id)
	}
	about := m.memberValue
	about.clientID, about.clientHost, about.regex, about.topics = req.Client.ID, req.Client.Host, new(string), said.topics
	about.classic = &classicMember{sessionTimeout: req.SessionTimeout, protocols: req.Protocols}
	if req.InstanceID != "" {
		about.instance = &req.InstanceID
	}
	if said.rack != nil {
		about.rack = said.rack
	}
	if req.RebalanceTimeout >= 0 {
		about.rebalanceTimeout = req.RebalanceTimeout
	}
	was := m.speaksClassic()
	if m.instanceID() != "" && m.id != id {
		m = e.replace(m, strings.Clone(id))
	}
	m, subscribed := e.describe(m, about)
	if known && !was && e.mayDowngrade(nil) {
		// The last one that spoke the newer protocol. Where the group cannot
		// become a classic one all the same, it goes on as it is.
		if resp, err := e.joinLast(m, said, subscribed); err == nil {
			return resp, nil
		}
	}
	e.retarget()
	e.reconcile(m, said.owned, subscribed)
	m.join, m.rebalance = time.Time{}, time.Time{}
	m.session = e.arm(e.now.Add(m.classic.sessionTimeout))
	m.sync = e.arm(e.now.Add(max(m.rebalanceTimeout, 0)))
	return m.joined(), nil
}

// joined is the answer to a join: the members of the broker's groups have no
// leader.
func (m *member) joined() group.JoinResponse {
	return group.JoinResponse{
		MemberID: m.id, Generation: m.epoch, ProtocolType: group.ConsumerProtocol, Protocol: m.classic.protocols[0].Name,
	}
}

// joinLast is a join after which nobody speaks the newer protocol any more: the
// group becomes a classic one.
func (e *event) joinLast(m *member, said embedded, subscribed bool) (group.JoinResponse, error) {
	if e.target.epoch == e.epoch {
		e.reconcile(m, said.owned, subscribed)
	}
	// Where all have what they are to have, nobody need join again.
	resp, again := m.joined(), e.State() != group.Stable
	return resp, e.downgrade(nil, again, "the last member that spoke the consumer protocol speaks the classic one")
}

// checkJoin tells what is wrong with a join whoever it is from, and reads what
// the member says.
func (e *event) checkJoin(id string, req group.JoinRequest) (embedded, error) {
	c := e.Config
	if c.Migration == MigrationDisabled {
		return embedded{}, fmt.Errorf("%w: the group's members speak the consumer protocol, and may not change it", group.ErrInconsistentProtocol)
	}
	if req.SessionTimeout < c.Classic.MinSessionTimeout || req.SessionTimeout > c.Classic.MaxSessionTimeout {
		return embedded{}, group.ErrInvalidSessionTimeout
	}
	if id == "" {
		return embedded{}, fmt.Errorf("%w: a member id is missing", group.ErrInvalidRequest)
	}
	if err := e.checkSize(id, req.InstanceID); err != nil {
		return embedded{}, err
	}
	common := func(p group.Protocol) bool { return e.classicProtocols[p.Name] == e.classicMembers }
	if req.ProtocolType != group.ConsumerProtocol || !slices.ContainsFunc(req.Protocols, common) {
		return embedded{}, fmt.Errorf("%w: none that the members have", group.ErrInconsistentProtocol)
	}
	said, err := readEmbedded(e.Topics, req.Protocols)
	if err != nil {
		return embedded{}, err
	}
	if req.MemberID == "" && req.InstanceID == "" && req.RequireMemberID {
		return embedded{}, group.ErrMemberIDRequired
	}
	return said, nil
}

// joiner returns the member that joins, or whose place it takes; one that is not
// in the group where it is new.
func (e *event) joiner(id string, req group.JoinRequest) (*member, error) {
	if req.InstanceID == "" {
		if m := e.members[id]; m != nil {
			return m, nil
		}
		return newMember(strings.Clone(id)), nil
	}
	static := e.members[e.instances[req.InstanceID]]
	switch {
	case static == nil && req.MemberID == "":
		return newMember(strings.Clone(id)), nil
	case static == nil:
		return nil, fmt.Errorf("%w: nobody has the instance id %q", group.ErrUnknownMember, req.InstanceID)
	case req.MemberID != "" && req.MemberID != static.id:
		return nil, fencedInstance(req.MemberID, req.InstanceID, static)
	}
	return static, nil
}

// Sync tells a member of the classic protocol what it has been assigned. Errors:
// ErrUnknownMember, ErrFencedInstance, ErrIllegalGeneration,
// ErrInconsistentProtocol, ErrRebalanceInProgress (join again).
func (g *Group) Sync(now time.Time, env Env, req group.SyncRequest) group.Effects {
	e := &event{Group: g, Env: env, now: now}
	m, err := e.classicSender(req.MemberID, req.InstanceID, req.Generation)
	switch {
	case err != nil:
	case req.ProtocolType != "" && req.ProtocolType != group.ConsumerProtocol,
		req.Protocol != "" && req.Protocol != m.classic.protocols[0].Name:
		err = group.ErrInconsistentProtocol
	case g.target.epoch > m.epoch && m.state != unrevoked:
		e.expectJoin(m)
		err = group.ErrRebalanceInProgress
	}
	if err != nil {
		return e.reply(group.Reply{Token: req.Token, Err: err})
	}
	said, err := readEmbedded(env.Topics, m.classic.protocols)
	if err != nil {
		return e.reply(group.Reply{Token: req.Token, Err: err})
	}
	m.sync = time.Time{}
	m.session = e.arm(now.Add(m.classic.sessionTimeout))
	return e.reply(group.Reply{Token: req.Token, Sync: &group.SyncResponse{
		ProtocolType: req.ProtocolType, Protocol: req.Protocol,
		Assignment: appendAssigned(env.Topics, said.version, m.assigned.assignment()),
	}})
}

// classicSender returns the member that a request of the classic protocol is
// from.
func (e *event) classicSender(memberID, instanceID string, generation int32) (*member, error) {
	m, err := e.named(memberID, instanceID, false)
	switch {
	case err != nil:
		return nil, err
	case !m.speaksClassic():
		return nil, fmt.Errorf("%w: %q does not speak the classic protocol", group.ErrUnknownMember, memberID)
	case m.epoch != generation:
		return nil, fmt.Errorf("%w: %d, and the member is in %d", group.ErrIllegalGeneration, generation, m.epoch)
	}
	return m, nil
}

// expectJoin gives a member that is told to join its time for it.
func (e *event) expectJoin(m *member) {
	if m.join.IsZero() {
		m.join = e.arm(e.now.Add(max(m.rebalanceTimeout, 0)))
	}
}

// HeartbeatClassic keeps the session of a member of the classic protocol. Errors:
// ErrRebalanceInProgress (join again), ErrUnknownMember, ErrFencedInstance,
// ErrIllegalGeneration.
func (g *Group) HeartbeatClassic(now time.Time, env Env, req group.HeartbeatRequest) group.Effects {
	e := &event{Group: g, Env: env, now: now}
	m, err := e.classicSender(req.MemberID, req.InstanceID, req.Generation)
	if err == nil {
		m.session = e.arm(now.Add(m.classic.sessionTimeout))
		// Where nobody speaks the newer protocol, nobody else would see that
		// there are other topics or members now.
		e.bump(e.refreshRegexes(""))
		e.retarget()
		if m.epoch < g.target.epoch || m.state == unrevoked || m.state == unreleased && !e.waits(m) {
			e.expectJoin(m)
			err = group.ErrRebalanceInProgress
		}
	}
	return e.reply(group.Reply{Token: req.Token, Err: err})
}

// waits tells whether others still hold partitions of the member's target.
func (e *event) waits(m *member) bool {
	for topic, partitions := range e.targets[m.id] {
		for _, p := range partitions {
			if !m.assigned.has(topic, p) && e.holders[topic][p] != "" {
				return true
			}
		}
	}
	return false
}

// Leave takes members out, whichever protocol they speak, at once and with one
// new epoch for all. The group may become a classic one by it: see Successor.
// Errors, of a member: ErrUnknownMember, ErrFencedInstance.
func (g *Group) Leave(now time.Time, env Env, req group.LeaveRequest) group.Effects {
	e := &event{Group: g, Env: env, now: now}
	resp := &group.LeaveResponse{}
	var gone []*member
	for _, l := range req.Members {
		m, err := e.named(l.MemberID, l.InstanceID, true)
		resp.Members = append(resp.Members, group.LeaveResult{MemberID: l.MemberID, InstanceID: l.InstanceID, Err: err})
		if err == nil && !slices.Contains(gone, m) {
			gone = append(gone, m)
		}
	}
	e.takeOut(gone...)
	return e.reply(group.Reply{Token: req.Token, Leave: resp})
}
