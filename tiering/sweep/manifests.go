package sweep

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/tiering/manifest"
)

// published is what is known of a partition's manifests under one leader epoch.
type published struct {
	latest *manifest.Manifest
	at     time.Time // when latest was durable
	// summary is what the catalog said when latest was written: while neither
	// it nor the topic changes, the next manifest would say the same.
	summary    catalog.Summary
	superseded []supersededObject
}

// supersededObject is a manifest, or a run that only superseded manifests name.
type supersededObject struct {
	key   string
	since time.Time
}

// manifestWriters bounds the manifests written at a time.
const manifestWriters = 8

// writeManifests writes the manifests that are out of date, of the partitions
// that this broker leads.
func (s *Sweeper) writeManifests(ctx context.Context) {
	if s.cfg.Ownership.MayDelete() != nil {
		return // the manifests of two brokers must not mix either (W7)
	}
	s.mu.Lock()
	dirty := make(map[cluster.TopicPartition]bool, len(s.dirty))
	for tp := range s.dirty {
		dirty[tp] = true
	}
	s.mu.Unlock()
	if len(dirty) == 0 {
		return
	}
	slots, failed := make(chan struct{}, manifestWriters), make(chan struct{}, 1)
	var writers sync.WaitGroup
	for r := range s.cfg.Replicas() {
		tp := r.TopicPartition()
		epoch, leading := r.Leading()
		if !leading || !dirty[tp] {
			continue
		}
		slots <- struct{}{}
		if ctx.Err() != nil || len(failed) > 0 {
			break // the store, most likely: the next round goes on
		}
		writers.Go(func() {
			defer func() { <-slots }()
			if !s.refreshManifest(ctx, r, epoch) {
				select {
				case failed <- struct{}{}:
				default:
				}
			}
		})
	}
	writers.Wait()
	s.forgetOrphans(dirty)
}

// refreshManifest writes one manifest and reports whether that went well.
func (s *Sweeper) refreshManifest(ctx context.Context, r Replica, epoch cluster.LeaderEpoch) bool {
	tp := r.TopicPartition()
	s.mu.Lock()
	delete(s.dirty, tp) // before the catalog is read: what changes now marks it again
	s.mu.Unlock()
	err := s.writeManifest(ctx, r, epoch)
	if err == nil {
		return true
	}
	s.mark(tp)
	s.counts.manifestFailures.Add(1)
	if ctx.Err() == nil {
		s.cfg.Logger.Warn("a manifest could not be written and is tried again", "topic", r.Topic(), "partition", tp.Partition, "error", err)
	}
	return false
}

// forgetOrphans drops marks of partitions that no one will write a manifest of:
// those of topics that are gone.
func (s *Sweeper) forgetOrphans(dirty map[cluster.TopicPartition]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp := range dirty {
		if _, ok := s.cfg.Topic(tp.Topic); !ok {
			delete(s.dirty, tp)
			delete(s.manifests, tp)
		}
	}
}

func (s *Sweeper) writeManifest(ctx context.Context, r Replica, epoch cluster.LeaderEpoch) error {
	tp := r.TopicPartition()
	sum, known := s.cfg.Catalog.Summary(tp)
	_, exists := s.cfg.Topic(tp.Topic)
	if !known || !exists {
		return nil
	}
	layout, err := s.cfg.Ownership.Check(ctx)
	if err != nil {
		return err
	}
	w := manifest.Writer{Store: s.cfg.Store, Layout: layout}
	s.mu.Lock()
	p := s.manifests[tp]
	s.mu.Unlock()
	if p == nil || p.latest != nil && p.latest.LeaderEpoch != epoch {
		if p, err = s.adopt(ctx, w, tp); err != nil {
			return err
		}
	}
	if p.latest != nil && p.latest.Deleted {
		return nil // nothing follows a final manifest
	}
	m := s.describe(r.Topic(), tp, sum)
	m.Version = manifest.Version{LeaderEpoch: epoch, Sequence: 1}
	if p.latest != nil && p.latest.LeaderEpoch >= epoch {
		m.Version = manifest.Version{LeaderEpoch: p.latest.LeaderEpoch, Sequence: p.latest.Sequence + 1}
	}
	for seg, err := range s.cfg.Catalog.Live(tp, 0) {
		if err != nil {
			return err
		}
		m.LiveStart = seg.Base
		break
	}
	if p.says(m, sum) {
		return nil
	}
	written, err := w.Write(ctx, p.latest, m, s.live(tp))
	if errors.Is(err, manifest.ErrSuperseded) {
		s.mu.Lock()
		delete(s.manifests, tp) // look again at what is there
		s.mu.Unlock()
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &published{latest: written, at: s.cfg.Now(), summary: sum, superseded: p.superseded}
	if p.latest != nil {
		next.supersede(layout.ManifestKey(tp, p.latest.Version), next.at)
		for _, run := range p.latest.Runs {
			if !slices.Contains(written.Runs, run) {
				next.supersede(run.Key, next.at)
			}
		}
	}
	s.manifests[tp] = next
	s.counts.manifests.Add(1)
	return nil
}

// says tells whether the latest manifest already says what m would.
func (p *published) says(m manifest.Manifest, sum catalog.Summary) bool {
	l := p.latest
	return l != nil && l.LeaderEpoch == m.LeaderEpoch && l.LiveStart == m.LiveStart &&
		l.TopicName == m.TopicName && l.PartitionCount == m.PartitionCount && maps.Equal(l.Configs, m.Configs) &&
		p.summary.LogStart == sum.LogStart && p.summary.RemoteEnd == sum.RemoteEnd &&
		p.summary.LiveCount == sum.LiveCount && p.summary.LiveBytes == sum.LiveBytes && p.summary.Location == sum.Location
}

func (p *published) supersede(key string, since time.Time) {
	p.superseded = append(p.superseded, supersededObject{key, since})
}

// adopt finds out what manifests a partition has, after a start or an election.
func (s *Sweeper) adopt(ctx context.Context, w manifest.Writer, tp cluster.TopicPartition) (*published, error) {
	list, err := w.List(ctx, tp)
	if err != nil || len(list) == 0 {
		return &published{}, err
	}
	p := &published{}
	last := list[len(list)-1]
	if p.latest, err = w.Read(ctx, last.Key); err != nil {
		if !errors.Is(err, manifest.ErrCorrupt) {
			return nil, err
		}
		// It still counts as a version: the next one goes past it.
		s.cfg.Logger.Error("the last manifest of a partition is damaged and is replaced", "key", last.Key, "error", err)
		p.latest = &manifest.Manifest{Partition: tp, Version: last.Version}
	}
	for _, old := range list[:len(list)-1] {
		p.supersede(old.Key, s.cfg.Now())
	}
	if len(p.latest.Runs) == 0 {
		return p, nil
	}
	runs, err := w.ListRuns(ctx, tp)
	for _, key := range runs {
		if !slices.ContainsFunc(p.latest.Runs, func(r manifest.RunRef) bool { return r.Key == key }) {
			p.supersede(key, s.cfg.Now())
		}
	}
	return p, err
}

// describe fills in what is known of a partition apart from its segments.
func (s *Sweeper) describe(topic string, tp cluster.TopicPartition, sum catalog.Summary) manifest.Manifest {
	m := manifest.Manifest{
		ClusterID: s.cfg.ClusterID, TopicName: topic, Partition: tp, CreatedMs: s.cfg.Now().UnixMilli(),
		LogStart: sum.LogStart, RemoteEnd: sum.RemoteEnd, LiveStart: sum.RemoteEnd,
	}
	if t, ok := s.cfg.Topic(tp.Topic); ok {
		m.PartitionCount, m.Configs, m.Internal = int32(len(t.Partitions)), t.Configs, t.Internal
	}
	return m
}

func (s *Sweeper) live(tp cluster.TopicPartition) func(from cluster.Offset) iter.Seq2[manifest.Segment, error] {
	return func(from cluster.Offset) iter.Seq2[manifest.Segment, error] {
		return func(yield func(manifest.Segment, error) bool) {
			for seg, err := range s.cfg.Catalog.Live(tp, 0) {
				if err == nil && seg.End <= from {
					continue
				}
				if !yield(manifest.FromCatalog(seg), err) {
					return
				}
			}
		}
	}
}

// dropSuperseded deletes the manifests and runs of a partition that nobody may
// need any more.
func (s *Sweeper) dropSuperseded(ctx context.Context, tp cluster.TopicPartition) error {
	var keys []string
	s.mu.Lock()
	if p := s.manifests[tp]; p != nil {
		for _, o := range p.superseded {
			if s.cfg.Now().Sub(o.since) >= s.cfg.RecoveryWindow && len(keys) < deleteBatch {
				keys = append(keys, o.key)
			}
		}
	}
	s.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	if _, err := s.cfg.Ownership.Check(ctx); err != nil {
		return err
	}
	if err := s.cfg.Ownership.Delete(ctx, keys...); err != nil {
		return fmt.Errorf("delete superseded manifests: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.manifests[tp]; p != nil {
		p.superseded = slices.DeleteFunc(slices.Clone(p.superseded), func(o supersededObject) bool { return slices.Contains(keys, o.key) })
	}
	return nil
}

// omits tells since when the durable manifests of a partition have not named a
// segment that ends at end; false: one may.
func (s *Sweeper) omits(tp cluster.TopicPartition, end cluster.Offset) (since time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.manifests[tp]
	if p == nil || p.latest == nil || p.latest.Names(end) {
		return time.Time{}, false
	}
	return p.at, true
}
