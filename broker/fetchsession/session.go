package fetchsession

import (
	"sync"

	"strandline/metadata/cluster"
)

// Key names a partition as its request does: by the id of its topic, or by its
// name where the request's version has no ids.
type Key struct {
	ID        cluster.TopicID
	Name      string
	Partition int32
}

// Ask is what a request says of a partition.
type Ask struct {
	Key
	Offset             cluster.Offset
	MaxBytes           int32
	CurrentLeaderEpoch cluster.LeaderEpoch
	LastFetchedEpoch   cluster.LeaderEpoch
}

// Answer is what an answer says of a partition.
type Answer struct {
	HighWatermark    cluster.Offset
	LastStableOffset cluster.Offset
	LogStartOffset   cluster.Offset
	// Data, Failed and Diverging are never left out.
	Data, Failed, Diverging bool
}

func (a Answer) offsets() offsets {
	return offsets{a.HighWatermark, a.LastStableOffset, a.LogStartOffset}
}

type offsets struct{ highWatermark, lastStable, logStart cluster.Offset }

// unseen are the offsets of a partition that the client has yet to hear of.
var unseen = offsets{-1, -1, -1}

// Part is one partition of a session.
type Part struct {
	Ask
	// Topic is the name of the topic whose id the key has, once it was found.
	Topic string

	said       offsets
	prev, next *Part
}

// Session is what one client asks for. Its content is guarded by mu, what is
// said so by the cache's lock.
type Session struct {
	id         int32
	byID       bool
	privileged bool
	place

	mu    sync.Mutex
	epoch int32 // of the next request
	parts map[Key]*Part
	ring  Part // next is the first to be served, prev the last

	saying func(*Part, Answer) bool // say; bound once, not for each answer
}

func newSession(id int32, h Head, size int) *Session {
	s := &Session{id: id, byID: h.ByID, privileged: h.Follower, epoch: 1, parts: make(map[Key]*Part, size)}
	s.ring.next, s.ring.prev = &s.ring, &s.ring
	s.saying = s.say
	return s
}

func (s *Session) add(a Ask) *Part {
	if p, ok := s.parts[a.Key]; ok {
		p.Ask = a
		return p
	}
	p := &Part{Ask: a, said: unseen}
	s.parts[a.Key] = p
	s.link(p)
	return p
}

func (s *Session) link(p *Part) {
	p.prev, p.next = s.ring.prev, &s.ring
	p.prev.next, p.next.prev = p, p
}

func (s *Session) forget(k Key) {
	if p, ok := s.parts[k]; ok {
		delete(s.parts, k)
		p.unlink()
	}
}

func (p *Part) unlink() { p.prev.next, p.next.prev = p.next, p.prev }

// say notes what an answer says of a partition, and tells whether it must.
func (s *Session) say(p *Part, a Answer) bool {
	now := a.offsets()
	must := a.Data || a.Failed || a.Diverging || now != p.said
	p.said = now
	if a.Failed {
		p.said = unseen
	}
	if a.Data { // F3
		p.unlink()
		s.link(p)
	}
	return must
}

// Turn is the use of a session by one request.
type Turn struct {
	session *Session
	epoch   int32 // of the session after this request
}

// ID is the id of the session.
func (t Turn) ID() int32 { return t.session.id }

// Parts calls fn with each partition, in the order in which they are to be
// served. fn may set Topic and may not keep the session waiting.
func (t Turn) Parts(size func(int), fn func(*Part)) {
	s := t.session
	s.mu.Lock()
	defer s.mu.Unlock()
	size(len(s.parts))
	for p := s.ring.next; p != &s.ring; p = p.next {
		fn(p)
	}
}

// Answer calls fn, which calls say once with each partition of Parts to learn
// whether it must be in the answer. ErrEpoch: a later request was faster, fn was
// not called (F1).
func (t Turn) Answer(fn func(say func(*Part, Answer) bool)) error {
	s := t.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != t.epoch {
		return ErrEpoch
	}
	fn(s.saying)
	return nil
}
