package tiertest

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/metadata/watch"
)

// Catalog is a watch.Catalog and Submitter in memory. Every change goes through
// catalog.Apply.
type Catalog struct {
	// Refuse, if set, may refuse a request before it is looked at, or after it
	// was carried out (the outcome is then unknown to the asker).
	Refuse func(req request.Request, done bool) error

	mu      sync.Mutex
	tables  map[cluster.TopicPartition]*catalog.Table
	epochs  map[cluster.TopicPartition]cluster.LeaderEpoch
	deleted map[cluster.TopicID]catalog.DeletedTopic
	subs    map[int]func(cluster.TopicPartition)
	nextSub int
	log     []request.Request
}

var (
	_ watch.Catalog   = (*Catalog)(nil)
	_ watch.Submitter = (*Catalog)(nil)
)

// NewCatalog returns an empty catalog.
func NewCatalog() *Catalog {
	return &Catalog{
		tables: make(map[cluster.TopicPartition]*catalog.Table), epochs: make(map[cluster.TopicPartition]cluster.LeaderEpoch),
		deleted: make(map[cluster.TopicID]catalog.DeletedTopic), subs: make(map[int]func(cluster.TopicPartition)),
	}
}

// SetEpoch sets the leader epoch of a partition.
func (c *Catalog) SetEpoch(tp cluster.TopicPartition, e cluster.LeaderEpoch) {
	c.mu.Lock()
	c.epochs[tp] = e
	c.mu.Unlock()
}

// DeleteTopic marks a topic as deleted.
func (c *Catalog) DeleteTopic(id cluster.TopicID, name string, partitions int32) {
	c.mu.Lock()
	c.deleted[id] = catalog.DeletedTopic{Topic: id, Name: name, Partitions: partitions, DeletedMs: time.Now().UnixMilli()}
	var changed []cluster.TopicPartition
	for tp := range c.tables {
		if tp.Topic == id {
			changed = append(changed, tp)
		}
	}
	c.mu.Unlock()
	c.notify(changed...)
}

// Requests returns what was submitted, refused or not.
func (c *Catalog) Requests() []request.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.log)
}

func (c *Catalog) notify(tps ...cluster.TopicPartition) {
	c.mu.Lock()
	subs := slices.Collect(maps.Values(c.subs))
	c.mu.Unlock()
	for _, fn := range subs {
		for _, tp := range tps {
			fn(tp)
		}
	}
}

// Submit implements watch.Submitter.
func (c *Catalog) Submit(ctx context.Context, req request.Request) (request.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.log = append(c.log, req)
	refuse := c.Refuse
	c.mu.Unlock()
	if refuse != nil {
		if err := refuse(req, false); err != nil {
			return nil, err
		}
	}
	tp, ev := event(req)
	if forget, ok := req.(request.RemoveDeletedTopic); ok {
		c.mu.Lock()
		delete(c.deleted, forget.Topic)
		maps.DeleteFunc(c.tables, func(tp cluster.TopicPartition, _ *catalog.Table) bool { return tp.Topic == forget.Topic })
		c.mu.Unlock()
		return nil, nil
	}
	res, changed, err := c.apply(tp, ev)
	if err != nil {
		return nil, err
	}
	if changed {
		c.notify(tp)
	}
	if refuse != nil {
		if err := refuse(req, true); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func event(req request.Request) (cluster.TopicPartition, catalog.Event) {
	switch r := req.(type) {
	case request.StartSegment:
		return r.Partition, catalog.StartedEvent{LeaderEpoch: r.LeaderEpoch, Span: r.Span, DeadlineMs: r.Deadline.UnixMilli()}
	case request.PublishSegment:
		return r.Partition, catalog.PublishedEvent{LeaderEpoch: r.LeaderEpoch, ID: r.ID, Object: r.Object}
	case request.AbandonSegment:
		return r.Partition, catalog.AbandonedEvent{LeaderEpoch: r.LeaderEpoch, ID: r.ID}
	case request.AdvanceLogStart:
		return r.Partition, catalog.LogStartEvent{LeaderEpoch: r.LeaderEpoch, Offset: r.Offset, BatchBase: r.BatchBase}
	case request.RemoveSegments:
		return r.Partition, catalog.RemovedEvent{LeaderEpoch: r.LeaderEpoch, IDs: r.IDs}
	}
	return cluster.TopicPartition{}, nil
}

func (c *Catalog) apply(tp cluster.TopicPartition, ev catalog.Event) (request.Result, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tables[tp]
	if t == nil {
		t = catalog.NewTable()
	}
	_, deleted := c.deleted[tp.Topic]
	edit, err := catalog.Apply(catalog.Context{
		LeaderEpoch: c.epochs[tp], Deleted: deleted, NowMs: time.Now().UnixMilli(),
	}, t.Summary, t, ev)
	if err != nil {
		return nil, false, err
	}
	if edit.Changed {
		t.Commit(edit)
		c.tables[tp] = t
	}
	if _, ok := ev.(catalog.LogStartEvent); ok {
		return request.LogStart{Offset: t.Summary.LogStart}, edit.Changed, nil
	}
	return nil, edit.Changed, nil
}

// table returns a partition's table, or an empty one.
func (c *Catalog) table(tp cluster.TopicPartition) *catalog.Table {
	if t := c.tables[tp]; t != nil {
		return t
	}
	return catalog.NewTable()
}

// Summary implements watch.Catalog, as do the methods below.
func (c *Catalog) Summary(tp cluster.TopicPartition) (catalog.Summary, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.tables[tp]
	return c.table(tp).Summary, ok
}

func (c *Catalog) FindOffset(tp cluster.TopicPartition, o cluster.Offset) (catalog.Segment, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.table(tp)
	return catalog.FindOffset(t.Summary, t, o)
}

func (c *Catalog) FindTimestamp(tp cluster.TopicPartition, ts int64, from cluster.Offset) (catalog.Segment, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.table(tp)
	return catalog.FindTimestamp(t.Summary, t, ts, from)
}

func (c *Catalog) FindEpoch(tp cluster.TopicPartition, e cluster.LeaderEpoch) (catalog.Segment, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.table(tp)
	return catalog.FindEpoch(t.Summary, t, e)
}

func (c *Catalog) Find(tp cluster.TopicPartition, id cluster.SegmentID) (catalog.Segment, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table(tp).Segment(id)
}

func (c *Catalog) Live(tp cluster.TopicPartition, from cluster.Offset) iter.Seq2[catalog.Segment, error] {
	return c.all(tp, from, func(s catalog.Segment) bool { return s.State == catalog.Live })
}

func (c *Catalog) Segments(tp cluster.TopicPartition, from cluster.Offset) iter.Seq2[catalog.Segment, error] {
	return c.all(tp, from, func(catalog.Segment) bool { return true })
}

func (c *Catalog) all(tp cluster.TopicPartition, from cluster.Offset, want func(catalog.Segment) bool) iter.Seq2[catalog.Segment, error] {
	c.mu.Lock()
	all := c.table(tp).All()
	topic, deleted := c.deleted[tp.Topic]
	c.mu.Unlock()
	return func(yield func(catalog.Segment, error) bool) {
		for _, s := range all {
			if deleted {
				s = topic.Effective(s)
			}
			if s.Base >= from && want(s) && !yield(s, nil) {
				return
			}
		}
	}
}

func (c *Catalog) Partitions() iter.Seq[cluster.TopicPartition] {
	c.mu.Lock()
	tps := slices.Collect(maps.Keys(c.tables))
	c.mu.Unlock()
	slices.SortFunc(tps, func(a, b cluster.TopicPartition) int {
		if n := bytes.Compare(a.Topic[:], b.Topic[:]); n != 0 {
			return n
		}
		return int(a.Partition - b.Partition)
	})
	return slices.Values(tps)
}

func (c *Catalog) DeletedTopics() []catalog.DeletedTopic {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.deleted))
}

func (c *Catalog) SubscribeCatalog(fn func(tp cluster.TopicPartition)) (cancel func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.nextSub
	c.nextSub++
	c.subs[id] = fn
	return func() {
		c.mu.Lock()
		delete(c.subs, id)
		c.mu.Unlock()
	}
}
