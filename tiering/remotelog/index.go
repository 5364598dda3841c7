package remotelog

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
	"strandline/tiering/rangecache"
	"strandline/tiering/segmentobject"
)

// indexCache keeps parsed indexes, the least recently used leaving first.
type indexCache struct {
	limit int64

	mu     sync.Mutex
	byID   map[cluster.SegmentID]*list.Element
	recent list.List // of cachedIndex, most recent first
	bytes  int64
}

type cachedIndex struct {
	id    cluster.SegmentID
	index *segmentobject.Index
}

func (c *indexCache) get(id cluster.SegmentID) *segmentobject.Index {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(cachedIndex).index
}

func (c *indexCache) put(id cluster.SegmentID, x *segmentobject.Index) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = make(map[cluster.SegmentID]*list.Element)
	}
	if e, ok := c.byID[id]; ok {
		c.removeLocked(e)
	}
	c.byID[id] = c.recent.PushFront(cachedIndex{id, x})
	c.bytes += x.Bytes()
	for c.bytes > c.limit && c.recent.Len() > 1 {
		c.removeLocked(c.recent.Back())
	}
}

func (c *indexCache) removeLocked(e *list.Element) {
	x := c.recent.Remove(e).(cachedIndex)
	delete(c.byID, x.id)
	c.bytes -= x.index.Bytes()
}

// index returns the index of a segment's object: from memory, from the cache, or
// with one GET.
func (l *Log) index(ctx context.Context, seg catalog.Segment) (*segmentobject.Index, error) {
	if x := l.indexes.get(seg.ID); x != nil {
		return x, nil
	}
	if err := l.check(seg); err != nil {
		return nil, err
	}
	x, err := l.loadIndex(ctx, seg, l.cfg.Cache.Acquire)
	if errors.Is(err, errDamagedCache) {
		x, err = l.loadIndex(ctx, seg, l.cfg.Cache.Bypass)
	}
	if err != nil {
		return nil, err
	}
	l.well(seg, seg.Object.IndexPosition, seg.Object.ObjectBytes)
	return x, nil
}

// errDamagedCache tells that a cached range was thrown away because it turned
// out not to be what the store had given.
var errDamagedCache = errors.New("the cached copy of a remote range is damaged")

// acquire is how ranges are had: Cache.Acquire or Cache.Bypass.
type acquire func(context.Context, []rangecache.Key, rangecache.Source) ([]disk.Region, error)

func (l *Log) loadIndex(ctx context.Context, seg catalog.Segment, from acquire) (*segmentobject.Index, error) {
	key := indexKey(seg)
	src := &source{log: l, seg: seg}
	regions, err := from(ctx, []rangecache.Key{key}, src)
	if errors.Is(err, rangecache.ErrTooLarge) || errors.Is(err, rangecache.ErrStorage) {
		regions, err = l.cfg.Cache.Bypass(ctx, []rangecache.Key{key}, src)
	}
	if err != nil {
		return nil, err
	}
	defer releaseAll(regions)
	if x := l.indexes.get(seg.ID); x != nil { // parsed when it came in
		return x, nil
	}
	b := make([]byte, key.Bytes)
	if err := readFull(regions[0], b, 0); err == nil {
		x, err := segmentobject.ParseIndex(seg.Key, seg.Object, b)
		if err == nil {
			l.indexes.put(seg.ID, x)
			return x, nil
		}
	}
	l.cfg.Cache.Discard(key)
	return nil, errDamagedCache
}

// indexKey is the range of everything after the batches.
func indexKey(seg catalog.Segment) rangecache.Key {
	o := seg.Object
	return rangecache.Key{Object: seg.ID, Position: o.IndexPosition, Bytes: o.ObjectBytes - o.IndexPosition}
}

func releaseAll(regions []disk.Region) {
	for _, r := range regions {
		r.Release()
	}
}
