package groups

import (
	"fmt"
	"time"

	"strandline/broker/group"
	"strandline/broker/group/classic"
	"strandline/broker/group/consumer"
)

// entry is a group in memory: of one protocol or the other.
type entry struct {
	id       string
	classic  *classic.Group
	consumer *consumer.Group

	due   time.Time
	place int // in the timers; -1: not there

	counted counted
}

// counted is how a group is counted at present.
type counted struct {
	typ   group.Type
	state group.State
}

// member is what the groups of both protocols have in common.
type member interface {
	group.Rules
	Type() group.Type
	State() group.State
	Parked() []group.Token
	Deadline() time.Time
	NumMembers() int
}

func (e *entry) member() member {
	if e.consumer != nil {
		return e.consumer
	}
	return e.classic
}

// idle: the view has all that there is.
func (e *entry) idle() bool {
	if e.consumer != nil {
		return e.consumer.Empty()
	}
	return e.classic.Idle()
}

// protocolType is what ListGroups shows of a group.
func (e *entry) protocolType() string {
	if e.consumer != nil {
		return group.ConsumerProtocol
	}
	return e.classic.ProtocolType()
}

func (e *entry) listed() group.Listed {
	m := e.member()
	return group.Listed{GroupID: e.id, ProtocolType: e.protocolType(), State: m.State(), Type: m.Type()}
}

// find returns a group, from memory or from the view; nil where there is none.
// Groups that only have offsets are none here.
func (s *shard) find(now time.Time, id string) (*entry, error) {
	if e := s.groups[id]; e != nil {
		return e, nil
	}
	if !s.stored.maybe(id) {
		return nil, nil
	}
	e, err := s.load(now, id)
	if err != nil || e == nil {
		return nil, err
	}
	s.insert(e)
	return e, nil
}

// load makes a group of its records; nil where there are none.
func (s *shard) load(now time.Time, id string) (*entry, error) {
	key := group.RecordKey{Type: group.ConsumerGroupMetadataRecord, Group: id}.ViewKey()
	if _, ok, err := s.reader.Get(key); err != nil {
		return nil, err
	} else if ok {
		return s.loadConsumer(now, id)
	}
	r, ok, err := s.reader.Get(group.MetadataKey(id).ViewKey())
	if err != nil || !ok {
		return nil, err
	}
	c, err := classic.Load(s.g.classic, id, now, []group.Record{{Key: r.Key, Value: r.Value}})
	if err != nil {
		return nil, err
	}
	return &entry{id: id, classic: c, place: -1}, nil
}

func (s *shard) loadConsumer(now time.Time, id string) (*entry, error) {
	var records []group.Record
	for r, err := range s.reader.Scan(group.ViewPrefix(group.ConsumerKind, id)) {
		if err != nil {
			return nil, err
		}
		records = append(records, group.Record{Key: append([]byte(nil), r.Key...), Value: append([]byte(nil), r.Value...)})
	}
	c, err := consumer.Load(now, s.g.env(id).Config, id, records)
	if err != nil {
		return nil, fmt.Errorf("group %q: %w", id, err)
	}
	return &entry{id: id, consumer: c, place: -1}, nil
}

// insert keeps a group in memory, until settle finds it idle.
func (s *shard) insert(e *entry) {
	s.groups[e.id] = e
	s.timers.set(e, e.member().Deadline())
}

// remove drops a group from memory.
func (s *shard) remove(e *entry) {
	if s.groups[e.id] != e {
		return
	}
	delete(s.groups, e.id)
	s.timers.set(e, time.Time{})
	s.g.counts.count(&e.counted, counted{})
}

// settle is called after each event of a group: it stays in memory, or not.
func (s *shard) settle(e *entry) {
	if s.groups[e.id] != e {
		return
	}
	if e.idle() {
		s.remove(e)
		return
	}
	m := e.member()
	s.timers.set(e, m.Deadline())
	s.g.counts.count(&e.counted, counted{m.Type(), m.State()})
}
