package groups

import (
	"errors"
	"fmt"
	"time"

	"strandline/broker/coordinator"
	"strandline/broker/group"
	"strandline/broker/group/classic"
	"strandline/broker/group/consumer"
)

// Bounds of one Tick, whose records are one batch.
const (
	tickGroupsMax = 256
	tickBytesMax  = 128 << 10
)

// shard is the groups of one partition that this broker leads.
type shard struct {
	g         *Groups
	partition int32
	reader    coordinator.Reader
	groups    map[string]*entry
	stored    stored
	timers    timers
	waiting   map[group.Token]*call
	token     group.Token // the last one given
	now       time.Time   // of the last event
	sweep     sweep
}

func newShard(g *Groups, partition int32) *shard {
	return &shard{g: g, partition: partition, groups: map[string]*entry{}, waiting: map[group.Token]*call{}}
}

// wait gives a caller its token.
func (s *shard) wait(c *call) group.Token {
	s.token++
	s.waiting[s.token] = c
	return s.token
}

// answer gives a caller its answer (G1).
func (s *shard) answer(r group.Reply) {
	if c := s.waiting[r.Token]; c != nil {
		delete(s.waiting, r.Token)
		c.done <- r
	}
}

// begin is called before each event.
func (s *shard) begin(now time.Time) {
	s.now = now
	s.noticeDrops(now)
}

// Load implements coordinator.Machine: groups with members come into memory (G4).
func (s *shard) Load(now time.Time, r coordinator.Reader) error {
	s.reader, s.now = r, now
	if err := s.loadClassic(now); err != nil {
		return err
	}
	if err := s.loadConsumers(now); err != nil {
		return err
	}
	s.beginSweeping(now)
	return nil
}

func (s *shard) loadClassic(now time.Time) error {
	for r, err := range s.reader.Scan([]byte{byte(group.ClassicKind)}) {
		if err != nil {
			return err
		}
		k, err := group.ParseRecordKey(r.Key)
		if err != nil {
			s.damaged("", err)
			continue
		}
		s.stored.add(k.Group)
		record := group.Record{Key: append([]byte(nil), r.Key...), Value: append([]byte(nil), r.Value...)}
		c, err := classic.Load(s.g.classic, k.Group, now, []group.Record{record})
		switch {
		case err != nil:
			s.damaged(k.Group, err)
		case !c.Idle():
			e := &entry{id: k.Group, classic: c, place: -1}
			s.insert(e)
			s.settle(e)
		}
	}
	return nil
}

func (s *shard) loadConsumers(now time.Time) error {
	id, members := "", false
	var records []group.Record
	flush := func() {
		if !members {
			return
		}
		c, err := consumer.Load(now, s.g.env(id).Config, id, records)
		if err != nil {
			s.damaged(id, err)
			return
		}
		e := &entry{id: id, consumer: c, place: -1}
		s.insert(e)
		s.settle(e)
	}
	for r, err := range s.reader.Scan([]byte{byte(group.ConsumerKind)}) {
		if err != nil {
			return err
		}
		k, err := group.ParseRecordKey(r.Key)
		if err != nil {
			s.damaged("", err)
			continue
		}
		if k.Group != id {
			flush()
			id, members, records = k.Group, false, records[:0]
			s.stored.add(id)
		}
		members = members || k.Type == group.ConsumerMemberMetadataRecord
		records = append(records, group.Record{Key: append([]byte(nil), r.Key...), Value: append([]byte(nil), r.Value...)})
	}
	flush()
	return nil
}

// damaged says that a group cannot be loaded. Its requests fail with the same;
// other groups are none the worse.
func (s *shard) damaged(id string, err error) {
	s.g.cfg.Logger.Error("a group cannot be read", "group", id, "partition", s.partition, "error", err)
}

// Deadline implements coordinator.Machine.
func (s *shard) Deadline() time.Time {
	due := s.timers.first()
	if at := s.sweep.next; !at.IsZero() && (due.IsZero() || at.Before(due)) {
		due = at
	}
	return due
}

// Tick implements coordinator.Machine.
func (s *shard) Tick(now time.Time, tx *coordinator.Tx) {
	s.begin(now)
	bytes, n := 0, 0
	for ; n < tickGroupsMax && bytes < tickBytesMax; n++ {
		due := s.timers.first()
		if due.IsZero() || due.After(now) {
			break
		}
		e := s.timers[0]
		fx := s.tickGroup(now, e)
		bytes += size(fx.Records)
		s.apply(tx, e, fx)
		if s.groups[e.id] == e && e.place >= 0 && !e.due.After(now) {
			// What it started anew is not due before the next Tick.
			s.timers.set(e, now.Add(time.Millisecond))
		}
	}
	if n == 0 {
		s.sweepSome(now, tx)
	}
}

func (s *shard) tickGroup(now time.Time, e *entry) group.Effects {
	if e.consumer != nil {
		return e.consumer.Tick(now, s.g.env(e.id))
	}
	return e.classic.Tick(now)
}

func size(records []group.Record) int {
	n := 0
	for _, r := range records {
		n += len(r.Key) + len(r.Value)
	}
	return n
}

// apply carries out what an event of a group asks for (G2, G3).
func (s *shard) apply(tx *coordinator.Tx, e *entry, fx group.Effects) {
	if e.consumer != nil && e.consumer.Successor() != nil {
		e.classic, e.consumer = e.consumer.Successor(), nil
	}
	s.append(tx, fx, func(err error) { s.failed(e, err) })
	s.settle(e)
}

// applyOffsets is apply for what changes offsets only: the group is none the
// worse where that fails.
func (s *shard) applyOffsets(tx *coordinator.Tx, e *entry, fx group.Effects) {
	s.append(tx, fx, func(error) {})
	if e != nil {
		s.settle(e)
	}
}

func (s *shard) append(tx *coordinator.Tx, fx group.Effects, failed func(error)) {
	if len(fx.Records) == 0 && len(fx.Replies) == 0 {
		return
	}
	for _, r := range fx.Records {
		tx.Append(coordinator.Record{Key: r.Key, Value: r.Value})
	}
	s.store(fx.Records)
	records, replies := len(fx.Records) > 0, fx.Replies
	s.g.counts.appended(fx.Records)
	tx.Then(func(err error) {
		if err != nil && records {
			failed(err)
		}
		for _, r := range replies {
			if err != nil {
				r = refusal(r, translate(err))
			}
			s.g.counts.answered(r)
			s.answer(r)
		}
	})
}

// refusal answers the request of r with an error.
func refusal(r group.Reply, err error) group.Reply {
	out := group.Reply{Token: r.Token, Err: err}
	if r.Join != nil {
		out.Join = &group.JoinResponse{MemberID: r.Join.MemberID}
	}
	if r.Commit != nil && errors.Is(err, coordinator.ErrTooLarge) {
		out.Err = fmt.Errorf("%w: %w", group.ErrInvalidCommitOffsetSize, err)
	}
	return out
}

// failed drops a group whose records were not appended and loads it again.
func (s *shard) failed(e *entry, err error) {
	if e == nil || s.groups[e.id] != e {
		return
	}
	parked := e.member().Parked()
	s.remove(e)
	for _, token := range parked {
		s.answer(group.Reply{Token: token, Err: translate(err)})
	}
	if errors.Is(err, coordinator.ErrNotCoordinator) || errors.Is(err, coordinator.ErrClosed) {
		return // everything goes
	}
	again, lerr := s.load(s.now, e.id)
	switch {
	case lerr != nil:
		s.damaged(e.id, lerr)
	case again != nil:
		s.insert(again)
		s.settle(again)
	}
}

// Unload implements coordinator.Machine.
func (s *shard) Unload(err error) {
	for token := range s.waiting {
		s.answer(group.Reply{Token: token, Err: translate(err)})
	}
	for _, e := range s.groups {
		s.remove(e)
	}
	s.g.counts.left(s)
}

// notFound says that a group is not there.
func notFound(id string) error {
	//lint:ignore ST1005 Kafka's sentence
	return fmt.Errorf("%w: Group %s not found.", group.ErrGroupIDNotFound, id)
}

// notOfKind says that a group is there and speaks the other protocol.
func notOfKind(id, kind string) error {
	//lint:ignore ST1005 Kafka's sentence
	return fmt.Errorf("%w: Group %s is not a %s group.", group.ErrGroupIDNotFound, id, kind)
}

var _ coordinator.Machine = (*shard)(nil)
