package fetchsession

import (
	"cmp"
	"container/heap"
	"container/list"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Why a request finds no session.
var (
	ErrUnknown  = errors.New("no such fetch session")
	ErrEpoch    = errors.New("invalid fetch session epoch")
	ErrTopicIDs = errors.New("the fetch session and the request differ in whether they use topic ids")
)

const (
	// Initial and Final are the epochs of a full request: one that wants a
	// session, one that wants none.
	Initial int32 = 0
	Final   int32 = -1
	// NoSession is the id of none.
	NoSession int32 = 0
	// PartitionsMax is the default bound on the partitions of all sessions.
	PartitionsMax = 500_000
	// idleMax is how long a session keeps its slot unused, and how long it has
	// it for certain.
	idleMax = 2 * time.Minute
)

// Config is what a Cache is made of.
type Config struct {
	Slots      int          // sessions; 0: none
	Partitions int          // of all sessions; 0: PartitionsMax
	LimitHit   func()       // counts that a limit was hit; nil: nobody counts
	Random     func() int32 // proposes ids; nil: random ones
}

// Cache holds the sessions of a broker.
type Cache struct {
	cfg Config

	mu       sync.Mutex
	sessions map[int32]*Session
	used     list.List // of *Session, the longest unused first
	parts    int
	evicted  uint64
	// Who may be evicted, smallest first: by anyone, by followers.
	byAnyone, byFollowers evictable
}

// place is a session's part of the cache's index, guarded by its lock.
type place struct {
	element    *list.Element // nil: not in the cache
	created    time.Time
	lastUsed   time.Time
	size       int
	byAnyone   int // position, -1: none
	byFollower int
}

// New returns an empty cache.
func New(cfg Config) *Cache {
	if cfg.Partitions == 0 {
		cfg.Partitions = PartitionsMax
	}
	if cfg.LimitHit == nil {
		cfg.LimitHit = func() {}
	}
	if cfg.Random == nil {
		cfg.Random = func() int32 { return rand.Int32N(math.MaxInt32) + 1 }
	}
	return &Cache{
		cfg: cfg, sessions: map[int32]*Session{},
		byAnyone:    evictable{at: func(s *Session) *int { return &s.byAnyone }},
		byFollowers: evictable{at: func(s *Session) *int { return &s.byFollower }},
	}
}

// Head is what a request says of its session.
type Head struct {
	ID, Epoch int32
	ByID      bool // it names topics by id
	Follower  bool
}

// IsFull tells whether the request names everything that it asks for.
func (h Head) IsFull() bool { return h.Epoch == Initial || h.Epoch == Final }

// Begin finds the session of a request and changes what it asks for. False: the
// request has none, because it is full, which ends the session that it names, or
// because nothing is left to ask for, which ends its session too.
func (c *Cache) Begin(now time.Time, h Head, asks []Ask, forget []Key) (Turn, bool, error) {
	if h.IsFull() {
		if h.ID != NoSession {
			c.end(h.ID)
		}
		return Turn{}, false, nil
	}
	c.mu.Lock()
	s := c.sessions[h.ID]
	c.mu.Unlock()
	if s == nil {
		return Turn{}, false, ErrUnknown
	}
	t, size, err := s.begin(h, asks, forget)
	if err != nil {
		return Turn{}, false, err
	}
	if size == 0 {
		c.end(h.ID)
		return Turn{}, false, nil
	}
	return t, true, c.touch(s, now, size)
}

func (s *Session) begin(h Head, asks []Ask, forget []Key) (Turn, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.epoch != h.Epoch:
		return Turn{}, 0, ErrEpoch
	case s.byID != h.ByID:
		return Turn{}, 0, ErrTopicIDs
	}
	for i := range asks {
		s.add(asks[i])
	}
	for i := range forget {
		s.forget(forget[i])
	}
	if s.epoch++; s.epoch < 0 {
		s.epoch = 1
	}
	return Turn{session: s, epoch: s.epoch}, len(s.parts), nil
}

// Create makes a session of a full request that was answered, where there is
// room for it. fill says what it asked for and what the answer says. The result
// is the session's id.
func (c *Cache) Create(now time.Time, h Head, size int, fill func(add func(Ask, string, Answer))) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.room(now, h, size) {
		return NoSession
	}
	id := c.cfg.Random()
	for id <= NoSession || c.sessions[id] != nil {
		id = c.cfg.Random()
	}
	s := newSession(id, h, size)
	fill(func(a Ask, topic string, said Answer) {
		p := s.add(a)
		p.Topic = topic
		if p.said = said.offsets(); said.Failed {
			p.said = unseen
		}
	})
	s.place = place{created: now, byAnyone: -1, byFollower: -1}
	s.element = c.used.PushBack(s)
	c.sessions[id] = s
	c.place(s, now, len(s.parts))
	return id
}

// room makes room for a new session.
func (c *Cache) room(now time.Time, h Head, size int) bool {
	full := len(c.sessions) >= c.cfg.Slots
	tooMany := c.parts+size > c.cfg.Partitions
	if full || tooMany {
		c.cfg.LimitHit()
	}
	return !tooMany && (!full || c.evict(now, h, size))
}

func (c *Cache) evict(now time.Time, h Head, size int) bool {
	first := c.used.Front()
	if first == nil {
		return false
	}
	victim := first.Value.(*Session)
	if now.Sub(victim.lastUsed) <= idleMax {
		candidates := &c.byAnyone
		if h.Follower {
			candidates = &c.byFollowers
		}
		if len(candidates.sessions) == 0 {
			return false
		}
		victim = candidates.sessions[0]
		if rank(h.Follower, size, NoSession, victim) < 0 {
			return false
		}
	}
	c.remove(victim)
	c.evicted++
	return true
}

// touch notes that a session was used and how large it is now.
func (c *Cache) touch(s *Session, now time.Time, size int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.element == nil {
		return nil // evicted since; this request is still answered
	}
	if more := size - s.size; more > 0 && c.parts+more > c.cfg.Partitions {
		c.cfg.LimitHit()
		c.remove(s)
		return ErrUnknown
	}
	c.place(s, now, size)
	return nil
}

func (c *Cache) place(s *Session, now time.Time, size int) {
	c.used.MoveToBack(s.element)
	c.parts += size - s.size
	resized := s.size != size
	s.lastUsed, s.size = now, size
	old := now.Sub(s.created) > idleMax
	c.byFollowers.set(s, !s.privileged || old, resized)
	c.byAnyone.set(s, old, resized)
}

func (c *Cache) end(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[id]; s != nil {
		c.remove(s)
	}
}

func (c *Cache) remove(s *Session) {
	delete(c.sessions, s.id)
	c.used.Remove(s.element)
	s.element = nil
	c.parts -= s.size
	c.byAnyone.drop(s)
	c.byFollowers.drop(s)
}

// Stats are what the cache holds, and how many sessions made room for others.
type Stats struct {
	Sessions, Partitions int
	Evicted              uint64
}

// Stats returns the present numbers.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Sessions: len(c.sessions), Partitions: c.parts, Evicted: c.evicted}
}

// evictable is a heap of sessions, the first to be evicted on top. at finds a
// session's position.
type evictable struct {
	sessions []*Session
	at       func(*Session) *int
}

func (e *evictable) set(s *Session, member, resized bool) {
	switch at := *e.at(s); {
	case member && at < 0:
		heap.Push(e, s)
	case member && resized:
		heap.Fix(e, at)
	case !member:
		e.drop(s)
	}
}

func (e *evictable) drop(s *Session) {
	if at := *e.at(s); at >= 0 {
		heap.Remove(e, at)
	}
}

func (e *evictable) Len() int { return len(e.sessions) }

func (e *evictable) Less(i, j int) bool {
	a := e.sessions[i]
	return rank(a.privileged, a.size, a.id, e.sessions[j]) < 0
}

func (e *evictable) Swap(i, j int) {
	e.sessions[i], e.sessions[j] = e.sessions[j], e.sessions[i]
	*e.at(e.sessions[i]), *e.at(e.sessions[j]) = i, j
}

func (e *evictable) Push(x any) {
	s := x.(*Session)
	*e.at(s) = len(e.sessions)
	e.sessions = append(e.sessions, s)
}

func (e *evictable) Pop() any {
	last := len(e.sessions) - 1
	s := e.sessions[last]
	e.sessions[last] = nil
	e.sessions = e.sessions[:last]
	*e.at(s) = -1
	return s
}

// rank compares who keeps a slot: a follower before a consumer, the larger
// before the smaller.
func rank(privileged bool, size int, id int32, s *Session) int {
	return cmp.Or(compareBool(privileged, s.privileged), cmp.Compare(size, s.size), cmp.Compare(id, s.id))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
