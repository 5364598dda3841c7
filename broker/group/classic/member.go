package classic

import (
	"bytes"
	"slices"
	"time"

	"strandline/broker/group"
)

// waiting is a request that is not answered yet.
type waiting struct {
	token group.Token
	waits bool
}

type member struct {
	id       string
	instance string // "": a dynamic member
	client   group.Client

	rebalanceTimeout time.Duration
	sessionTimeout   time.Duration
	protocols        []group.Protocol // by preference, each once
	assignment       []byte

	join, sync waiting
	// isNew until its first join is answered: it cannot send heartbeats before.
	isNew    bool
	unsynced bool
	session  *session
}

// metadata are those for a protocol; nil where the member does not have it.
func (m *member) metadata(protocol string) []byte {
	if i := slices.IndexFunc(m.protocols, func(p group.Protocol) bool { return p.Name == protocol }); i >= 0 {
		return m.protocols[i].Metadata
	}
	return nil
}

// same says whether protocols are what the member joined with last.
func (m *member) same(protocols []group.Protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b group.Protocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// excused from heartbeats: it waits for an answer, and will come again.
func (m *member) excused() bool { return !m.isNew && (m.join.waits || m.sync.waits) }

// add makes m a member, the leader where there is none.
func (g *Group) add(m *member, protocolType string) {
	if len(g.members) == 0 {
		g.protocolType = protocolType
	}
	if g.leader == "" {
		g.leader = m.id
	}
	g.members = append(g.members, m)
	g.byID[m.id] = m
	if m.instance != "" {
		g.static[m.instance] = m
	}
	g.count(m, 1)
	if s := g.pending[m.id]; s != nil {
		m.session = s
		delete(g.pending, m.id)
	}
}

// remove takes m out. Whatever of its requests waits is answered with
// ErrUnknownMember: if the client is still there, it joins anew.
func (g *Group) remove(ev *event, m *member) {
	g.answerJoin(ev, m, group.Reply{Err: group.ErrUnknownMember, Join: &group.JoinResponse{}})
	g.answerSync(ev, m, group.Reply{Err: group.ErrUnknownMember})
	g.synced(m)
	g.count(m, -1)
	g.sessions.cancel(m.session)
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	delete(g.byID, m.id)
	if m.instance != "" {
		delete(g.static, m.instance)
	}
	if g.leader == m.id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.members[0].id
		}
	}
}

// update takes over what a member joins with, and has its join wait.
func (g *Group) update(ev *event, m *member, req group.JoinRequest) {
	g.count(m, -1)
	m.protocols = req.Protocols
	g.count(m, 1)
	m.rebalanceTimeout, m.sessionTimeout = req.RebalanceTimeout, req.SessionTimeout
	g.parkJoin(ev, m, req.Token)
}

func (g *Group) parkJoin(ev *event, m *member, token group.Token) {
	g.answerJoin(ev, m, group.Reply{Err: group.ErrRebalanceInProgress, Join: &group.JoinResponse{MemberID: m.id}})
	m.join = waiting{token: token, waits: true}
	g.joining++
}

func (g *Group) answerJoin(ev *event, m *member, r group.Reply) {
	if !m.join.waits {
		return
	}
	r.Token = m.join.token
	m.join = waiting{}
	g.joining--
	ev.reply(r)
}

// answerSync says whether there was one.
func (g *Group) answerSync(ev *event, m *member, r group.Reply) bool {
	if !m.sync.waits {
		return false
	}
	r.Token = m.sync.token
	m.sync = waiting{}
	ev.reply(r)
	return true
}

// synced: nothing is to be heard of m in this generation any more.
func (g *Group) synced(m *member) {
	if m.unsynced {
		m.unsynced = false
		g.unsynced--
	}
}

// count adds n to the supporters of each protocol that m has.
func (g *Group) count(m *member, n int) {
	for _, p := range m.protocols {
		if g.supporters[p.Name] += n; g.supporters[p.Name] == 0 {
			delete(g.supporters, p.Name)
		}
	}
}

// supports says whether a member could join with that: an empty group takes any
// protocol, others one that all members have.
func (g *Group) supports(protocolType string, protocols []group.Protocol) bool {
	if g.state == group.Empty {
		return protocolType != "" && len(protocols) > 0
	}
	return protocolType == g.protocolType && slices.ContainsFunc(protocols, func(p group.Protocol) bool {
		return g.supporters[p.Name] == len(g.members)
	})
}

// vote chooses among the protocols that all members have the one that most
// prefer; of equals, the one that was voted for first. "" with no members.
func (g *Group) vote() string {
	votes, best := map[string]int{}, 0
	chosen := ""
	for _, m := range g.members {
		for _, p := range m.protocols {
			if g.supporters[p.Name] == len(g.members) {
				votes[p.Name]++
				break
			}
		}
	}
	for _, m := range g.members {
		for _, p := range m.protocols {
			if votes[p.Name] > best {
				chosen, best = p.Name, votes[p.Name]
			}
		}
	}
	return chosen
}

// check says whether the member may speak: the one that has the instance id,
// where there is one.
func (g *Group) check(memberID, instanceID string) (*member, error) {
	if instanceID != "" {
		switch m := g.static[instanceID]; {
		case m == nil:
			return nil, group.ErrUnknownMember
		case m.id != memberID:
			return nil, group.ErrFencedInstance
		}
	}
	if m := g.byID[memberID]; m != nil {
		return m, nil
	}
	return nil, group.ErrUnknownMember
}
