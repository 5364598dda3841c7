package state

import (
	"errors"
	"fmt"
	"os"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/image"
	"strandline/metadata/request"
	"strandline/metadata/store"
)

// Apply implements quorum.Machine. It answers nil, or an error: a refusal, or
// why the state has stopped.
func (s *State) Apply(index, term uint64, data []byte) any {
	if err := s.stopErr(); err != nil {
		return err
	}
	if index <= s.Applied() {
		s.counts.skipped.Add(1)
		return nil
	}
	c, err := command.Decode(data)
	if err != nil {
		return s.stop(fmt.Errorf("metadata command at index %d: %w", index, err))
	}
	err = s.apply(image.Position{Index: index, Term: term}, c)
	if refusal(err) {
		s.counts.refused.Add(1)
		s.log.Warn("metadata command refused", "index", index, "term", term, "err", err)
		if serr := s.skip(index); serr != nil {
			return s.stop(serr)
		}
		return err
	}
	if err != nil {
		return s.stop(fmt.Errorf("applying the metadata command at index %d: %w", index, err))
	}
	s.counts.applied.Add(1)
	return nil
}

// refusal tells an outcome from a failure.
func refusal(err error) bool {
	var byImage *image.RefusedError
	var byCatalog *request.Error
	return errors.As(err, &byImage) || errors.As(err, &byCatalog)
}

func (s *State) stopErr() error {
	if err := s.stopped.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrStopped, *err)
	}
	return nil
}

// stop ends the state's life (T4).
func (s *State) stop(err error) error {
	s.stopped.CompareAndSwap(nil, &err)
	s.log.Error("metadata state cannot go on", "err", err)
	if s.cfg.Fatal == nil {
		os.Exit(1)
	}
	s.cfg.Fatal(err)
	return err
}

// apply carries a command out, or changes nothing and answers why.
func (s *State) apply(at image.Position, c command.Command) error {
	before := s.Image()
	img, delta, err := before.Apply(at, c)
	if err != nil {
		return err
	}
	e := &edits{batch: s.current().NewBatch(), base: &s.tables, from: before, to: img, nowMs: c.TimeMs}
	defer func() { _ = e.batch.Close() }()
	for _, r := range c.Records {
		if err := e.record(r); err != nil {
			return err
		}
	}
	put, del := delta.Entries()
	for _, k := range del {
		e.batch.Delete(store.ImageKey(k))
	}
	for _, p := range put {
		e.batch.Set(store.ImageKey(p.Key), p.Value)
	}
	e.batch.Set(store.AppliedKey(), appendApplied(at.Index))
	if err := e.batch.Commit(store.NoSync); err != nil {
		return err
	}
	change := Change{Image: img, Delta: delta, Partitions: s.publish(at.Index, img, e)}
	if s.cfg.Applied != nil && (!delta.Empty() || len(change.Partitions) > 0) {
		s.cfg.Applied(change)
	}
	return nil
}

// skip moves the applied index over a refused command.
func (s *State) skip(index uint64) error {
	img := s.Image().Skip(index)
	b := s.current().NewBatch()
	defer func() { _ = b.Close() }()
	meta := img.MetaEntry()
	b.Set(store.ImageKey(meta.Key), meta.Value)
	b.Set(store.AppliedKey(), appendApplied(index))
	if err := b.Commit(store.NoSync); err != nil {
		return err
	}
	s.publish(index, img, &edits{})
	return nil
}

// publish shows a committed batch, and gives the partitions that it changed.
func (s *State) publish(index uint64, img *image.Image, e *edits) []cluster.TopicPartition {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp, sum := range e.summaries {
		s.tables.summaries[tp] = sum
	}
	for _, tp := range e.forgotten {
		delete(s.tables.summaries, tp)
	}
	for topic, d := range e.deleted {
		if d == nil {
			delete(s.tables.deleted, topic)
		} else {
			s.tables.deleted[topic] = *d
		}
	}
	s.image.Store(img)
	s.applied.Store(index)
	return e.changed
}

// edits is what one command changes of the catalog. Apply's goroutine alone
// changes tables, so it reads them without the lock.
type edits struct {
	batch    *store.Batch
	base     *tables
	from, to *image.Image
	nowMs    int64

	summaries map[cluster.TopicPartition]catalog.Summary
	forgotten []cluster.TopicPartition
	deleted   map[cluster.TopicID]*catalog.DeletedTopic // nil: forgotten
	changed   []cluster.TopicPartition
}

func (e *edits) summary(tp cluster.TopicPartition) (catalog.Summary, bool) {
	if sum, ok := e.summaries[tp]; ok {
		return sum, true
	}
	if sum, ok := e.base.summaries[tp]; ok {
		return sum, true
	}
	return catalog.NewSummary(), false
}

func (e *edits) tombstone(topic cluster.TopicID) bool {
	if d, ok := e.deleted[topic]; ok {
		return d != nil
	}
	_, ok := e.base.deleted[topic]
	return ok
}

func (e *edits) record(r command.Record) error {
	switch r := r.(type) {
	case command.SegmentChanged:
		return e.segment(r)
	case command.TopicDeleted:
		return e.topicDeleted(r.Topic)
	case command.DeletedTopicForgotten:
		return e.topicForgotten(r.Topic)
	}
	return nil // the image's
}

func (e *edits) segment(r command.SegmentChanged) error {
	ctx := catalog.Context{NowMs: e.nowMs}
	if _, p, ok := e.to.Partition(r.Partition); ok {
		ctx.LeaderEpoch = p.LeaderEpoch
	} else if ctx.Deleted = e.tombstone(r.Partition.Topic); !ctx.Deleted {
		return request.Refuse(request.ErrUnknownTopicID, "partition %s is not known", r.Partition)
	}
	sum, _ := e.summary(r.Partition)
	edit, err := catalog.Apply(ctx, sum, segments{r: e.batch, tp: r.Partition}, r.Event)
	if err != nil || !edit.Changed {
		return err
	}
	if err := e.store(r.Partition, edit); err != nil {
		return err
	}
	if e.summaries == nil {
		e.summaries = map[cluster.TopicPartition]catalog.Summary{}
	}
	e.summaries[r.Partition] = edit.Summary
	e.batch.Set(store.SummaryKey(r.Partition), catalog.AppendSummary(nil, edit.Summary))
	e.changed = append(e.changed, r.Partition)
	return nil
}

// store writes the segments of an edit.
func (e *edits) store(tp cluster.TopicPartition, edit catalog.Edit) error {
	for _, id := range edit.Delete {
		if err := e.unlink(tp, id); err != nil {
			return err
		}
	}
	for _, s := range edit.Put {
		if err := e.unlink(tp, s.ID); err != nil {
			return err
		}
		value := catalog.AppendSegment(nil, s)
		if s.State != catalog.Live {
			e.batch.Set(store.OtherKey(tp, s.ID), value)
			continue
		}
		e.batch.Set(store.LiveKey(tp, s.Base), value)
		e.batch.Set(store.LiveIDKey(tp, s.ID), appendBase(s.Base))
	}
	return nil
}

// unlink removes a segment from wherever it is.
func (e *edits) unlink(tp cluster.TopicPartition, id cluster.SegmentID) error {
	base, live, err := liveBase(e.batch, tp, id)
	if err != nil {
		return err
	}
	if live {
		e.batch.Delete(store.LiveKey(tp, base))
		e.batch.Delete(store.LiveIDKey(tp, id))
		return nil
	}
	e.batch.Delete(store.OtherKey(tp, id))
	return nil
}

// topicDeleted leaves a tombstone where the catalog knows anything of the topic.
func (e *edits) topicDeleted(topic cluster.TopicID) error {
	t, ok := e.from.TopicByID(topic)
	if !ok {
		return nil // it never became visible
	}
	known := false
	for n := range t.Partitions {
		tp := cluster.TopicPartition{Topic: topic, Partition: int32(n)}
		if _, ok := e.summary(tp); ok {
			known = true
			e.changed = append(e.changed, tp)
		}
	}
	if !known {
		return nil
	}
	d := catalog.DeletedTopic{
		Topic: topic, Name: t.Name, Partitions: int32(len(t.Partitions)), DeletedMs: e.nowMs,
	}
	e.setDeleted(topic, &d)
	e.batch.Set(store.DeletedKey(topic), catalog.AppendDeletedTopic(nil, d))
	return nil
}

func (e *edits) setDeleted(topic cluster.TopicID, d *catalog.DeletedTopic) {
	if e.deleted == nil {
		e.deleted = map[cluster.TopicID]*catalog.DeletedTopic{}
	}
	e.deleted[topic] = d
}

// topicForgotten removes everything that the catalog knows of a deleted topic.
func (e *edits) topicForgotten(topic cluster.TopicID) error {
	if !e.tombstone(topic) {
		return nil
	}
	for _, r := range store.TopicCatalog(topic) {
		e.batch.DeleteRange(r)
	}
	d, ok := e.deleted[topic]
	if !ok {
		known := e.base.deleted[topic]
		d = &known
	}
	for n := range d.Partitions {
		tp := cluster.TopicPartition{Topic: topic, Partition: n}
		if _, ok := e.summary(tp); ok {
			delete(e.summaries, tp)
			e.forgotten = append(e.forgotten, tp)
			e.changed = append(e.changed, tp)
		}
	}
	e.setDeleted(topic, nil)
	return nil
}
