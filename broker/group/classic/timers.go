package classic

import (
	"container/heap"
	"time"

	"strandline/broker/group"
)

// session is until when a member, or a client that was told its id, is to be
// heard from.
type session struct {
	id    string
	until time.Time
	place int // in the heap; -1: not there
}

// sessions has the one that ends first on top.
type sessions []*session

func (s sessions) Len() int           { return len(s) }
func (s sessions) Less(i, j int) bool { return s[i].until.Before(s[j].until) }
func (s sessions) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push is for package heap.
func (s *sessions) Push(x any) {
	e := x.(*session)
	e.place = len(*s)
	*s = append(*s, e)
}

// Pop is for package heap.
func (s *sessions) Pop() any {
	last := len(*s) - 1
	e := (*s)[last]
	(*s)[last] = nil
	*s, e.place = (*s)[:last], -1
	return e
}

// extend has it end at until.
func (s *sessions) extend(e *session, until time.Time) {
	if e.until = until; e.place < 0 {
		heap.Push(s, e)
	} else {
		heap.Fix(s, e.place)
	}
}

func (s *sessions) cancel(e *session) {
	if e != nil && e.place >= 0 {
		heap.Remove(s, e.place)
	}
}

// joinTimer ends the phase in which members join.
type joinTimer struct {
	at time.Time // zero: it does not run
	// initial: the group was empty, and remaining is by how much the phase may
	// grow for members that still come; delay is what it waited last.
	initial          bool
	delay, remaining time.Duration
}

// heard starts the member's session afresh.
func (g *Group) heard(now time.Time, m *member, timeout time.Duration) {
	if m.session == nil {
		m.session = &session{id: m.id, place: -1}
	}
	g.sessions.extend(m.session, now.Add(timeout))
}

// Deadline is when Tick is due; zero: nothing is. It may move at every event.
func (g *Group) Deadline() time.Time {
	var first time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if len(g.sessions) > 0 {
		earlier(g.sessions[0].until)
	}
	earlier(g.join.at)
	earlier(g.syncBy)
	return first
}

// Tick has everything happen that is due at now. What it starts anew is not due
// before the next one.
func (g *Group) Tick(now time.Time) group.Effects {
	ev := &event{now: now}
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	join, sync := g.join.at, g.syncBy
	for len(g.sessions) > 0 && due(g.sessions[0].until) {
		g.expire(ev, heap.Pop(&g.sessions).(*session))
	}
	if due(join) && g.join.at.Equal(join) {
		g.joinTimeout(ev)
	}
	if due(sync) && g.syncBy.Equal(sync) {
		g.syncTimeout(ev)
	}
	return ev.Effects
}

// expire ends a session.
func (g *Group) expire(ev *event, s *session) {
	if g.pending[s.id] == s {
		delete(g.pending, s.id)
		g.joinedAfterLoss(ev)
		return
	}
	m := g.byID[s.id]
	if m == nil || m.session != s || m.excused() {
		return
	}
	g.remove(ev, m)
	g.afterLoss(ev, "member "+m.id+" was not heard from")
}
