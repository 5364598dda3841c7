package state

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/store"
)

func appendBase(base cluster.Offset) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(base))
}

// liveBase finds the base offset of a live segment by its id.
func liveBase(r store.Reader, tp cluster.TopicPartition, id cluster.SegmentID) (cluster.Offset, bool, error) {
	b, ok, err := r.Get(store.LiveIDKey(tp, id))
	if err != nil || !ok {
		return 0, false, err
	}
	if len(b) != 8 {
		return 0, false, fmt.Errorf("base offset of live segment %s of %s: %d bytes", id, tp, len(b))
	}
	return cluster.Offset(binary.BigEndian.Uint64(b)), true, nil
}

// segments reads the segments of one partition: a catalog.Reader.
type segments struct {
	r  store.Reader
	tp cluster.TopicPartition
}

var _ catalog.Reader = segments{}

func (p segments) decode(b []byte) (catalog.Segment, error) {
	s, err := catalog.DecodeSegment(b)
	if err != nil {
		err = fmt.Errorf("segment of %s: %w", p.tp, err)
	}
	return s, err
}

func (p segments) get(key []byte) (catalog.Segment, bool, error) {
	b, ok, err := p.r.Get(key)
	if err != nil || !ok {
		return catalog.Segment{}, false, err
	}
	s, err := p.decode(b)
	return s, err == nil, err
}

func (p segments) Segment(id cluster.SegmentID) (catalog.Segment, bool, error) {
	if base, ok, err := liveBase(p.r, p.tp, id); err != nil {
		return catalog.Segment{}, false, err
	} else if ok {
		return p.get(store.LiveKey(p.tp, base))
	}
	return p.get(store.OtherKey(p.tp, id))
}

func (p segments) LiveAtOrBefore(o cluster.Offset) (catalog.Segment, bool, error) {
	if o < 0 {
		return catalog.Segment{}, false, nil
	}
	e, ok, err := p.r.Last(store.LiveUpTo(p.tp, o))
	if err != nil || !ok {
		return catalog.Segment{}, false, err
	}
	s, err := p.decode(e.Value)
	return s, err == nil, err
}

func (p segments) LiveFrom(o cluster.Offset) iter.Seq2[catalog.Segment, error] {
	return p.scan(store.LiveFrom(p.tp, o))
}

func (p segments) scan(rng store.Range) iter.Seq2[catalog.Segment, error] {
	return func(yield func(catalog.Segment, error) bool) {
		for e, err := range p.r.Scan(rng) {
			var s catalog.Segment
			if err == nil {
				s, err = p.decode(e.Value)
			}
			if err != nil {
				yield(catalog.Segment{}, err)
				return
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

// stale says that a lookup met a database that a restore has just replaced.
func (s *State) stale(err error, db *store.DB) bool {
	if !errors.Is(err, store.ErrClosed) {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.db != db && !s.closed
}

// lookup runs fn on the live database, again where that is replaced under it.
func lookup(
	s *State, tp cluster.TopicPartition,
	fn func(sum catalog.Summary, r catalog.Reader) (catalog.Segment, bool, error),
) (catalog.Segment, bool, error) {
	for {
		s.mu.RLock()
		db, sum := s.db, s.summaryLocked(tp)
		s.mu.RUnlock()
		seg, ok, err := fn(sum, segments{r: db, tp: tp})
		if !s.stale(err, db) {
			return seg, ok, err
		}
	}
}

func (s *State) summaryLocked(tp cluster.TopicPartition) catalog.Summary {
	if sum, ok := s.tables.summaries[tp]; ok {
		return sum
	}
	return catalog.NewSummary()
}

// Summary implements watch.Catalog, as do the methods below.
func (s *State) Summary(tp cluster.TopicPartition) (catalog.Summary, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sum, ok := s.tables.summaries[tp]
	return sum, ok
}

func (s *State) FindOffset(tp cluster.TopicPartition, o cluster.Offset) (catalog.Segment, bool, error) {
	return lookup(s, tp, func(sum catalog.Summary, r catalog.Reader) (catalog.Segment, bool, error) {
		return catalog.FindOffset(sum, r, o)
	})
}

func (s *State) FindTimestamp(
	tp cluster.TopicPartition, ts int64, from cluster.Offset,
) (catalog.Segment, bool, error) {
	return lookup(s, tp, func(sum catalog.Summary, r catalog.Reader) (catalog.Segment, bool, error) {
		return catalog.FindTimestamp(sum, r, ts, from)
	})
}

func (s *State) FindEpoch(tp cluster.TopicPartition, e cluster.LeaderEpoch) (catalog.Segment, bool, error) {
	return lookup(s, tp, func(sum catalog.Summary, r catalog.Reader) (catalog.Segment, bool, error) {
		return catalog.FindEpoch(sum, r, e)
	})
}

func (s *State) Find(tp cluster.TopicPartition, id cluster.SegmentID) (catalog.Segment, bool, error) {
	seg, ok, err := lookup(s, tp, func(_ catalog.Summary, r catalog.Reader) (catalog.Segment, bool, error) {
		return r.Segment(id)
	})
	if d, deleted := s.deletedTopic(tp.Topic); ok && deleted {
		seg = d.Effective(seg)
	}
	return seg, ok, err
}

func (s *State) Live(tp cluster.TopicPartition, from cluster.Offset) iter.Seq2[catalog.Segment, error] {
	return func(yield func(catalog.Segment, error) bool) {
		for {
			db, began := s.current(), false
			for seg, err := range (segments{r: db, tp: tp}).LiveFrom(from) {
				if !began && s.stale(err, db) {
					break // the database was replaced before anything was read
				}
				began = true
				if !yield(seg, err) {
					return
				}
			}
			if began || s.current() == db {
				return
			}
		}
	}
}

func (s *State) Segments(tp cluster.TopicPartition, from cluster.Offset) iter.Seq2[catalog.Segment, error] {
	return func(yield func(catalog.Segment, error) bool) {
		snap, err := s.snapshot()
		if err != nil {
			yield(catalog.Segment{}, err)
			return
		}
		defer func() { _ = snap.Close() }()
		p := segments{r: snap, tp: tp}
		d, deleted := s.deletedTopic(tp.Topic)
		emit := func(seg catalog.Segment) bool {
			if deleted {
				seg = d.Effective(seg)
			}
			return yield(seg, nil)
		}
		var others []catalog.Segment
		for seg, err := range p.scan(store.Others(tp)) {
			if err != nil {
				yield(catalog.Segment{}, err)
				return
			}
			if seg.Base >= from {
				others = append(others, seg)
			}
		}
		slices.SortFunc(others, func(a, b catalog.Segment) int {
			return cmp.Or(cmp.Compare(a.Base, b.Base), slices.Compare(a.ID[:], b.ID[:]))
		})
		for seg, err := range p.LiveFrom(from) {
			if err != nil {
				yield(catalog.Segment{}, err)
				return
			}
			for len(others) > 0 && others[0].Base <= seg.Base {
				if !emit(others[0]) {
					return
				}
				others = others[1:]
			}
			if !emit(seg) {
				return
			}
		}
		for _, seg := range others {
			if !emit(seg) {
				return
			}
		}
	}
}

func (s *State) snapshot() (*store.Snapshot, error) {
	for {
		db := s.current()
		snap, err := db.Snapshot()
		if !s.stale(err, db) {
			return snap, err
		}
	}
}

func (s *State) Partitions() iter.Seq[cluster.TopicPartition] {
	s.mu.RLock()
	all := make([]cluster.TopicPartition, 0, len(s.tables.summaries))
	for tp := range s.tables.summaries {
		all = append(all, tp)
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b cluster.TopicPartition) int {
		return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
	})
	return slices.Values(all)
}

func (s *State) DeletedTopics() []catalog.DeletedTopic {
	s.mu.RLock()
	out := make([]catalog.DeletedTopic, 0, len(s.tables.deleted))
	for _, d := range s.tables.deleted {
		out = append(out, d)
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(a, b catalog.DeletedTopic) int { return slices.Compare(a.Topic[:], b.Topic[:]) })
	return out
}

func (s *State) deletedTopic(topic cluster.TopicID) (catalog.DeletedTopic, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	d, ok := s.tables.deleted[topic]
	return d, ok
}

// Partition implements controller.Catalog, as does Deleted. The reader is of
// the database that is live now: a restore, which ends every tenure, ends it.
func (s *State) Partition(tp cluster.TopicPartition) (catalog.Summary, catalog.Reader, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.summaryLocked(tp), segments{r: s.db, tp: tp}, nil
}

func (s *State) Deleted(topic cluster.TopicID) (catalog.DeletedTopic, bool, error) {
	d, ok := s.deletedTopic(topic)
	return d, ok, nil
}
