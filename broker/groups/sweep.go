package groups

import (
	"iter"
	"slices"
	"time"

	"strandline/broker/coordinator"
	"strandline/broker/group"
	"strandline/broker/group/classic"
	"strandline/metadata/image"
)

// Bounds of one step of a pass, beside deleteBytesMax, and the time between two
// steps, in which others have their turn.
const (
	sweepEntries = 2048
	sweepRecords = 512
	sweepPause   = 5 * time.Millisecond
	// firstSweep is how long after its start a shard waits for its first pass:
	// members come first.
	firstSweep = 30 * time.Second
	// droppedMax bounds the names of deleted topics that are kept. Offsets say
	// which topic they are of by its id; the names are for those that do not.
	droppedMax = 1024
)

// sweep is the pass that drops the offsets and groups that nobody needs any
// more. It goes over the offsets, then over the groups, some entries at a time.
type sweep struct {
	next    time.Time // of the next step
	running bool
	again   bool // another pass was asked for meanwhile
	phase   sweepPhase
	cursor  []byte // the view key to go on from
	began   time.Time
	// deleted are the names of topics that were deleted before the pass began.
	deleted map[string]time.Time
	seen    int64 // of Groups.dropped
	tally   tally
	stored  stored // as far as the pass has got

	// What is known of the group that the cursor is in.
	groupID string
	entered bool // rules and pending are those of groupID, in this step
	rules   group.Rules
	pending map[group.PartitionName]bool
}

type sweepPhase int

const (
	sweepOffsets sweepPhase = iota
	sweepClassic
	sweepConsumers
)

// tally is what a pass has counted.
type tally struct{ offsets, classic, consumers, simple int64 }

func (s *shard) beginSweeping(now time.Time) {
	s.sweep = sweep{next: now.Add(min(firstSweep, s.g.cfg.Groups.OffsetsRetentionCheck)), seen: s.g.dropped.Load()}
}

// noticeDrops has a pass begin where a topic was deleted since the last one.
func (s *shard) noticeDrops(now time.Time) {
	n := s.g.dropped.Load()
	if n == s.sweep.seen {
		return
	}
	s.sweep.seen = n
	if s.sweep.running {
		s.sweep.again = true
	} else {
		s.sweep.next = now
	}
}

// drop tells the shards of deleted topics.
func (g *Groups) drop(names []string) {
	at := g.cfg.Now()
	g.drops.Lock()
	for _, name := range names {
		g.drops.names = append(g.drops.names, droppedTopic{name, at})
	}
	if n := len(g.drops.names) - droppedMax; n > 0 {
		g.drops.names = slices.Delete(g.drops.names, 0, n)
	}
	g.drops.Unlock()
	g.dropped.Add(1)
	loaded, _ := g.runtime.Led()
	for _, p := range loaded {
		// Where that fails, the shard has events enough to notice it by, or a
		// pass before it, as it begins.
		_ = g.runtime.Do(p, func(now time.Time, m coordinator.Machine, _ *coordinator.Tx) {
			if s, ok := m.(*shard); ok {
				s.begin(now)
			}
		})
	}
}

func (g *Groups) droppedNames() map[string]time.Time {
	g.drops.Lock()
	defer g.drops.Unlock()
	names := make(map[string]time.Time, len(g.drops.names))
	for _, d := range g.drops.names {
		names[d.name] = d.at
	}
	return names
}

// sweepSome does a step of the pass that is due.
func (s *shard) sweepSome(now time.Time, tx *coordinator.Tx) {
	w := &s.sweep
	if w.next.IsZero() || w.next.After(now) {
		return
	}
	if !w.running {
		*w = sweep{running: true, began: now, deleted: s.g.droppedNames(), seen: w.seen, cursor: []byte{byte(group.OffsetKind)}}
	}
	var done bool
	var err error
	switch w.phase {
	case sweepOffsets:
		done, err = s.sweepOffsets(now, tx)
	case sweepClassic:
		done, err = s.sweepGroups(now, tx, group.ClassicKind, &w.tally.classic)
	case sweepConsumers:
		done, err = s.sweepGroups(now, tx, group.ConsumerKind, &w.tally.consumers)
	}
	if err != nil {
		s.g.cfg.Logger.Error("a pass over committed offsets failed", "partition", s.partition, "error", err)
		w.running, w.next = false, now.Add(s.g.cfg.Groups.OffsetsRetentionCheck)
		return
	}
	w.next = now.Add(sweepPause)
	if !done {
		return
	}
	switch w.phase {
	case sweepOffsets:
		w.phase, w.cursor = sweepClassic, []byte{byte(group.ClassicKind)}
	case sweepClassic:
		w.phase, w.cursor = sweepConsumers, []byte{byte(group.ConsumerKind)}
	default:
		s.g.counts.swept(s, w.tally)
		s.stored, w.stored = w.stored, stored{}
		w.running, w.next = false, w.began.Add(s.g.cfg.Groups.OffsetsRetentionCheck)
		if w.again || !w.next.After(now) {
			w.again, w.next = false, now.Add(sweepPause)
		}
	}
}

// sweepOffsets looks at some offsets, and drops those that have expired or whose
// topic is gone. done: it has reached the end.
func (s *shard) sweepOffsets(now time.Time, tx *coordinator.Tx) (done bool, err error) {
	w := &s.sweep
	img := s.g.topics.Load().img
	w.entered = false
	var drop []group.Record
	n, bytes := 0, 0
	for e, err := range s.reader.ScanFrom([]byte{byte(group.OffsetKind)}, w.cursor) {
		if err != nil {
			return false, err
		}
		if n++; n > sweepEntries || len(drop) >= sweepRecords || bytes >= deleteBytesMax {
			w.cursor = append(w.cursor[:0], e.ViewKey...)
			s.dropOffsets(tx, drop)
			return false, nil
		}
		k, kerr := group.ParseRecordKey(e.Key)
		o, oerr := storedOffset(e)
		if kerr != nil || oerr != nil {
			continue // of a version to come, or damaged: not ours to drop
		}
		w.tally.offsets++
		if err := s.enter(now, k.Group); err != nil {
			s.damaged(k.Group, err)
			continue
		}
		o.Pending = w.pending[o.PartitionName]
		some, _, err := group.ExpireOffsets(now, s.g.classic.Offsets, k.Group, w.rules, one(o))
		if err != nil {
			return false, err
		}
		if len(some) == 0 && w.isGone(img, o) {
			some = []group.Record{group.OffsetTombstone(k.Group, o.Topic, o.Partition)}
		}
		drop, bytes = append(drop, some...), bytes+size(some)
	}
	s.dropOffsets(tx, drop)
	w.groupID, w.rules, w.pending, w.entered = "", nil, nil, false
	return true, nil
}

// enter makes ready for the offsets of a group.
func (s *shard) enter(now time.Time, id string) error {
	w := &s.sweep
	if w.entered && w.groupID == id {
		return nil
	}
	first := w.groupID != id
	w.groupID, w.entered = id, false
	e := s.groups[id]
	var err error
	if e == nil && s.stored.maybe(id) {
		if e, err = s.load(now, id); err != nil {
			return err
		}
	}
	if w.pending, err = pendingOffsets(s.reader, id); err != nil {
		return err
	}
	switch {
	case e != nil:
		w.rules = e.member()
	default:
		w.rules = classic.New(s.g.classic, id, now)
		if first {
			w.tally.simple++
		}
	}
	w.entered = true
	return nil
}

// isGone says whether the topic of an offset was deleted.
func (w *sweep) isGone(img *image.Image, o group.StoredOffset) bool {
	if gone(img, o) {
		return true
	}
	at, ok := w.deleted[o.Topic]
	return ok && o.TopicID.IsZero() && o.CommitTime.Before(at)
}

func one(o group.StoredOffset) iter.Seq2[group.StoredOffset, error] {
	return func(yield func(group.StoredOffset, error) bool) { yield(o, nil) }
}

func (s *shard) dropOffsets(tx *coordinator.Tx, records []group.Record) {
	if len(records) == 0 {
		return
	}
	s.g.counts.expired.Add(int64(len(records)))
	s.append(tx, group.Effects{Records: records}, func(err error) {
		s.g.cfg.Logger.Warn("expired offsets were not dropped; the next pass tries again", "partition", s.partition, "error", err)
	})
}

// sweepGroups looks at some groups of one protocol, and deletes those that have
// neither members nor offsets.
func (s *shard) sweepGroups(now time.Time, tx *coordinator.Tx, kind group.ViewKind, count *int64) (done bool, err error) {
	w := &s.sweep
	n, bytesOut := 0, 0
	for r, err := range s.reader.ScanFrom([]byte{byte(kind)}, w.cursor) {
		if err != nil {
			return false, err
		}
		if n++; n > sweepEntries || bytesOut > tickBytesMax {
			w.cursor = append(w.cursor[:0], r.ViewKey...)
			return false, nil
		}
		k, err := group.ParseRecordKey(r.Key)
		if err != nil || w.entered && k.Group == w.groupID {
			continue
		}
		w.groupID, w.entered = k.Group, true
		w.stored.add(k.Group)
		if s.groups[k.Group] != nil {
			continue // members, or somebody who is about to become one
		}
		*count++
		if has, err := hasOffsets(s.reader, k.Group); err != nil {
			return false, err
		} else if has {
			continue
		}
		e, err := s.load(now, k.Group)
		if err != nil {
			s.damaged(k.Group, err)
			continue
		}
		if e == nil || !e.idle() {
			continue
		}
		fx, err := s.bury(now, e)
		if err != nil {
			continue
		}
		*count--
		bytesOut += size(fx.Records)
		s.append(tx, fx, func(error) {})
	}
	w.groupID, w.entered = "", false
	return true, nil
}
