package sweep

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore"
)

// deleteBatch bounds the objects of one DELETE and the segments of one command,
// deleteBatches how many follow each other in one round for one partition.
const (
	deleteBatch   = 500
	deleteBatches = 20
)

// due tells whether a segment's object may be deleted now (W2, W3). omitted
// tells since when no durable manifest names a segment.
func (s *Sweeper) due(seg catalog.Segment, omitted func(catalog.Segment) (time.Time, bool)) bool {
	now := s.cfg.Now()
	if !seg.Removable(now) {
		return false
	}
	if seg.State == catalog.Started { // no manifest has ever named it
		return now.Sub(time.UnixMilli(seg.DeadlineMs)) >= s.cfg.DeleteDelay
	}
	if now.Sub(time.UnixMilli(seg.ChangedMs)) < s.cfg.grace() {
		return false
	}
	since, ok := omitted(seg)
	return ok && now.Sub(since) >= s.cfg.RecoveryWindow
}

// deleteDead deletes what is due of a partition that this broker leads.
func (s *Sweeper) deleteDead(ctx context.Context, tp cluster.TopicPartition, epoch cluster.LeaderEpoch) error {
	sum, known := s.cfg.Catalog.Summary(tp)
	left := sum.DeadCount + sum.StartedCount
	if !known || left == 0 {
		return nil
	}
	omitted := func(seg catalog.Segment) (time.Time, bool) {
		since, ok := s.omits(tp, seg.End)
		if !ok {
			s.mark(tp) // a manifest that omits it is missing
		}
		return since, ok
	}
	for range deleteBatches {
		var batch []catalog.Segment
		for seg, err := range s.cfg.Catalog.Segments(tp, 0) {
			if err != nil {
				return err
			}
			if seg.State == catalog.Live {
				continue
			}
			if s.due(seg, omitted) {
				batch = append(batch, seg)
			}
			if left--; left <= 0 || len(batch) == deleteBatch {
				break
			}
		}
		if err := s.deleteObjects(ctx, tp, epoch, batch); err != nil || len(batch) < deleteBatch {
			return err
		}
		sum, _ = s.cfg.Catalog.Summary(tp)
		left = sum.DeadCount + sum.StartedCount
	}
	return nil
}

// deleteObjects deletes objects and then has the catalog forget them.
func (s *Sweeper) deleteObjects(ctx context.Context, tp cluster.TopicPartition, epoch cluster.LeaderEpoch, segments []catalog.Segment) error {
	if len(segments) == 0 {
		return nil
	}
	layout, err := s.cfg.Ownership.Check(ctx)
	if err != nil {
		return err
	}
	var keys []string
	var ids []cluster.SegmentID
	var elsewhere error
	unfinished := false
	for _, seg := range segments {
		if seg.Location != layout.Location {
			elsewhere = fmt.Errorf("%q is in location %s, the store is %s: objects there are not deleted", seg.Key, seg.Location, layout.Location)
			continue
		}
		keys, ids = append(keys, seg.Key), append(ids, seg.ID)
		unfinished = unfinished || seg.State == catalog.Started
	}
	if len(keys) == 0 {
		return elsewhere
	}
	if unfinished { // parts of uploads that were never completed
		if err := s.abortUploads(ctx, layout.PartitionPrefix(tp), s.cfg.Now().Add(-s.cfg.DeleteDelay)); err != nil {
			return fmt.Errorf("abort unfinished uploads: %w", err)
		}
	}
	if err := s.cfg.Ownership.Delete(ctx, keys...); err != nil {
		return fmt.Errorf("delete %d objects of segments that are not live: %w", len(keys), err)
	}
	s.counts.deleted.Add(int64(len(keys)))
	for _, id := range ids {
		s.cfg.Dropped(id)
	}
	if err := s.submit(ctx, request.RemoveSegments{Partition: tp, LeaderEpoch: epoch, IDs: ids}); err != nil {
		return fmt.Errorf("forget %d deleted segments: %w", len(ids), err)
	}
	return elsewhere
}

// deleteTopic takes a deleted topic further: final manifests, then objects, then
// whatever else lies under its prefixes, then its tombstone.
func (s *Sweeper) deleteTopic(ctx context.Context, topic catalog.DeletedTopic) error {
	layout, err := s.cfg.Ownership.Check(ctx)
	if err != nil {
		return err
	}
	remaining, intents := false, false
	var failures []error
	for n := range topic.Partitions {
		tp := cluster.TopicPartition{Topic: topic.Topic, Partition: n}
		left, waiting, err := s.deletePartition(ctx, layout, topic, tp)
		remaining, intents = remaining || left, intents || waiting
		if err != nil {
			failures = append(failures, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	now := s.cfg.Now()
	if remaining || len(failures) > 0 || now.Sub(time.UnixMilli(topic.DeletedMs)) < s.cfg.grace() {
		return errors.Join(failures...)
	}
	if intents && !s.mayEmpty(topic) {
		return nil
	}
	for n := range topic.Partitions {
		tp := cluster.TopicPartition{Topic: topic.Topic, Partition: n}
		if err := s.emptyPrefix(ctx, layout.PartitionPrefix(tp)); err != nil {
			return err
		}
	}
	if intents {
		// Uploads that were under way may still arrive: once more when the last
		// of them can not.
		s.mu.Lock()
		s.emptied[topic.Topic] = true
		s.mu.Unlock()
		return nil
	}
	if err := s.submit(ctx, request.RemoveDeletedTopic{Topic: topic.Topic}); err != nil {
		return fmt.Errorf("forget the deleted topic %q: %w", topic.Name, err)
	}
	s.mu.Lock()
	for n := range topic.Partitions {
		tp := cluster.TopicPartition{Topic: topic.Topic, Partition: n}
		delete(s.finals, tp)
		delete(s.manifests, tp)
		delete(s.dirty, tp)
	}
	delete(s.emptied, topic.Topic)
	s.mu.Unlock()
	s.cfg.Logger.Info("the objects of a deleted topic are gone", "topic", topic.Name, "topic_id", topic.Topic)
	return nil
}

// mayEmpty tells whether the prefixes of a deleted topic may be emptied although
// announced uploads may still arrive: once, a grace time after the final
// manifests.
func (s *Sweeper) mayEmpty(topic catalog.DeletedTopic) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range topic.Partitions {
		since, ok := s.finals[cluster.TopicPartition{Topic: topic.Topic, Partition: n}]
		if ok && s.cfg.Now().Sub(since) < s.cfg.grace() {
			return false
		}
	}
	return !s.emptied[topic.Topic]
}

// deletePartition takes one partition of a deleted topic further; left tells
// that segments remain, waiting that announced uploads may still arrive.
func (s *Sweeper) deletePartition(ctx context.Context, layout manifest.Layout, topic catalog.DeletedTopic, tp cluster.TopicPartition) (left, waiting bool, err error) {
	if _, known := s.cfg.Catalog.Summary(tp); !known {
		return false, false, nil
	}
	since, err := s.finalManifest(ctx, layout, topic, tp)
	if err != nil {
		return true, false, fmt.Errorf("final manifest of %s: %w", tp, err)
	}
	var batch []catalog.Segment
	for seg, err := range s.cfg.Catalog.Segments(tp, 0) {
		if err != nil {
			return true, false, err
		}
		if s.due(topic.Effective(seg), func(catalog.Segment) (time.Time, bool) { return since, true }) {
			batch = append(batch, seg)
		} else if seg.State == catalog.Started {
			waiting = true
		} else {
			left = true
		}
		if len(batch) == deleteBatch {
			left = true
			break
		}
	}
	if err := s.deleteObjects(ctx, tp, cluster.NoLeaderEpoch, batch); err != nil {
		return true, false, err
	}
	return left, waiting, nil
}

// finalManifest makes sure that the last manifest of a partition says that the
// topic is deleted, and returns since when it does.
func (s *Sweeper) finalManifest(ctx context.Context, layout manifest.Layout, topic catalog.DeletedTopic, tp cluster.TopicPartition) (time.Time, error) {
	s.mu.Lock()
	since, ok := s.finals[tp]
	s.mu.Unlock()
	if ok {
		return since, nil
	}
	w := manifest.Writer{Store: s.cfg.Store, Layout: layout}
	p, err := s.adopt(ctx, w, tp)
	if err != nil {
		return time.Time{}, err
	}
	if p.latest == nil || !p.latest.Deleted {
		sum, _ := s.cfg.Catalog.Summary(tp)
		m := s.describe(topic.Name, tp, sum)
		m.Deleted, m.PartitionCount, m.Version = true, topic.Partitions, manifest.Version{Sequence: 1}
		if p.latest != nil {
			m.Configs = p.latest.Configs
			m.Version = manifest.Version{LeaderEpoch: p.latest.LeaderEpoch, Sequence: p.latest.Sequence + 1}
		}
		none := func(cluster.Offset) iter.Seq2[manifest.Segment, error] {
			return func(func(manifest.Segment, error) bool) {}
		}
		if _, err := w.Write(ctx, nil, m, none); err != nil {
			return time.Time{}, err
		}
		s.counts.manifests.Add(1)
	}
	since = s.cfg.Now()
	s.mu.Lock()
	s.finals[tp] = since
	s.mu.Unlock()
	return since, nil
}

// emptyPrefix deletes everything under a prefix, unfinished uploads too.
func (s *Sweeper) emptyPrefix(ctx context.Context, prefix string) error {
	if err := s.abortUploads(ctx, prefix, s.cfg.Now()); err != nil {
		return fmt.Errorf("abort unfinished uploads under %q: %w", prefix, err)
	}
	var keys []string
	for info, err := range s.cfg.Store.List(ctx, prefix, "") {
		if err != nil {
			return err
		}
		if keys = append(keys, info.Key); len(keys) == deleteBatch {
			if err := s.cfg.Ownership.Delete(ctx, keys...); err != nil {
				return err
			}
			keys = keys[:0]
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return s.cfg.Ownership.Delete(ctx, keys...)
}

// abortUploads removes the parts of unfinished uploads under a prefix that were
// begun before a time.
func (s *Sweeper) abortUploads(ctx context.Context, prefix string, before time.Time) error {
	return s.cfg.Ownership.WhileOwner(ctx, func(ctx context.Context) error {
		_, err := objstore.AbortStaleUploads(ctx, s.cfg.Store, prefix, before)
		return err
	})
}
