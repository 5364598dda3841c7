package remotelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/tiering/objstore"
	"strandline/tiering/rangecache"
	"strandline/tiering/segmentobject"
)

// source gives the cache ranges of one object: its index (index nil), or its
// batches, checked by the index.
type source struct {
	log     *Log
	seg     catalog.Segment
	index   *segmentobject.Index
	corrupt atomic.Int32
}

// Open implements rangecache.Source.
func (s *source) Open(ctx context.Context, position, n int64) (io.ReadCloser, error) {
	s.log.counts.opens.Add(1)
	return s.log.cfg.Store.Get(ctx, s.seg.Key, position, n)
}

// Check implements rangecache.Source.
func (s *source) Check(position int64, data []byte) error {
	if s.index != nil {
		return s.index.VerifyChunks(position, data)
	}
	x, err := segmentobject.ParseIndex(s.seg.Key, s.seg.Object, bytes.Clone(data))
	if err == nil {
		s.log.indexes.put(s.seg.ID, x)
	}
	return err
}

// Retriable implements rangecache.Source. The store retries by itself; what is
// left is a body that broke off, and wrong bytes, which may have been damaged on
// the way, once.
func (s *source) Retriable(err error) bool {
	if errors.Is(err, segmentobject.ErrCorrupt) {
		return s.corrupt.Add(1) == 1
	}
	return errors.Is(err, io.ErrUnexpectedEOF)
}

// check refuses a segment that is not worth asking the store for.
func (l *Log) check(seg catalog.Segment) error {
	if err := l.bad.get(seg.ID); err != nil {
		return err
	}
	if l.cfg.Location == nil {
		return nil
	}
	if here, known := l.cfg.Location(); known && here != seg.Location {
		return fmt.Errorf("%w: %q is in %s, the store is %s", ErrOtherLocation, seg.Key, seg.Location, here)
	}
	return nil
}

// judge remembers an object whose bytes were wrong to the end.
func (l *Log) judge(seg catalog.Segment, err error) {
	if errors.Is(err, segmentobject.ErrCorrupt) || errors.Is(err, objstore.ErrRange) ||
		errors.Is(err, io.ErrUnexpectedEOF) && !objstore.IsRetriable(err) {
		l.markBad(seg, err)
	}
}

func (l *Log) markBad(seg catalog.Segment, err error) {
	if l.bad.add(seg.ID, err, time.Now().Add(l.cfg.BadFor)) {
		l.counts.badObjects.Add(1)
		l.cfg.Logger.Error("a remote object is bad and is not served", "key", seg.Key,
			"base_offset", seg.Base, "end_offset", seg.End, "error", err)
	}
}

// badLimit bounds the objects remembered as bad; past it the one nearest to its
// end is forgotten early.
const badLimit = 1000

// badObjects remembers which objects not to read for a while.
type badObjects struct {
	mu      sync.Mutex
	objects map[cluster.SegmentID]badObject
}

type badObject struct {
	err   error
	until time.Time
}

func (b *badObjects) get(id cluster.SegmentID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[id]
	if !ok || time.Now().After(o.until) {
		return nil
	}
	return o.err
}

// add remembers an object, and reports whether it was not remembered already.
func (b *badObjects) add(id cluster.SegmentID, err error, until time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects == nil {
		b.objects = make(map[cluster.SegmentID]badObject)
	}
	if o, ok := b.objects[id]; ok && !time.Now().After(o.until) {
		return false
	}
	b.objects[id] = badObject{err, until}
	if len(b.objects) > badLimit {
		var first cluster.SegmentID
		for id, o := range b.objects {
			if f, ok := b.objects[first]; !ok || o.until.Before(f.until) {
				first = id
			}
		}
		delete(b.objects, first)
	}
	return true
}

// forget is called once an object was read well.
func (b *badObjects) forget(id cluster.SegmentID) {
	b.mu.Lock()
	delete(b.objects, id)
	b.mu.Unlock()
}

var _ rangecache.Source = (*source)(nil)
