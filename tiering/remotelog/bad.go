package remotelog

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/tiering/objstore"
	"strandline/tiering/segmentobject"
)

// BadObject is the object of a live segment that was found damaged or missing and
// has not been read well since.
type BadObject struct {
	Partition cluster.TopicPartition
	Segment   catalog.Segment
	Err       error
	// until is when it is read again.
	until time.Time
}

// position is where the damage is; -1: nowhere in particular.
func (b BadObject) position() int64 {
	var c *segmentobject.CorruptError
	if errors.As(b.Err, &c) {
		return c.Position
	}
	return -1
}

// Remedy says what a person can do.
func (b BadObject) Remedy() string {
	return fmt.Sprintf("put the object back from a copy of the bucket; it is read again by itself. "+
		"If there is none, the records below offset %d are lost: kafka-delete-records with that offset goes on after them", b.Segment.End)
}

// badLimit bounds the objects remembered as bad; past it the one nearest to its
// end is forgotten early.
const badLimit = 1000

// badObjects remembers which objects not to read for a while, and which were not
// read well since.
type badObjects struct {
	mu      sync.Mutex
	objects map[cluster.SegmentID]BadObject
}

// get is why an object is not to be read now.
func (b *badObjects) get(id cluster.SegmentID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o, ok := b.objects[id]; ok && time.Now().Before(o.until) {
		return o.Err
	}
	return nil
}

// add remembers an object, and reports whether it was not bad before.
func (b *badObjects) add(bad BadObject) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects == nil {
		b.objects = make(map[cluster.SegmentID]BadObject)
	}
	_, known := b.objects[bad.Segment.ID]
	b.objects[bad.Segment.ID] = bad
	if len(b.objects) > badLimit {
		var first cluster.SegmentID
		for id, o := range b.objects {
			if f, ok := b.objects[first]; !ok || o.until.Before(f.until) {
				first = id
			}
		}
		delete(b.objects, first)
	}
	return !known
}

// well forgets an object if the damage was in [from, to), which was read well.
func (b *badObjects) well(id cluster.SegmentID, from, to int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[id]
	if at := o.position(); !ok || at >= 0 && (at < from || at >= to) {
		return false
	}
	delete(b.objects, id)
	return true
}

func (b *badObjects) forget(id cluster.SegmentID) {
	b.mu.Lock()
	delete(b.objects, id)
	b.mu.Unlock()
}

func (b *badObjects) all() []BadObject {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]BadObject, 0, len(b.objects))
	for _, o := range b.objects {
		all = append(all, o)
	}
	return all
}

// judge remembers an object whose bytes were wrong to the end, or that is not
// there. It gives err back, with the object's key.
func (l *Log) judge(tp cluster.TopicPartition, seg catalog.Segment, err error) error {
	short := errors.Is(err, io.ErrUnexpectedEOF) && !objstore.IsRetriable(err)
	if short && !errors.Is(err, segmentobject.ErrCorrupt) {
		err = fmt.Errorf("object %q is shorter than the catalog says: %w", seg.Key, err)
	}
	bad := short || errors.Is(err, segmentobject.ErrCorrupt) || errors.Is(err, ErrMissingObject) || errors.Is(err, objstore.ErrRange)
	if !bad || l.bad.get(seg.ID) != nil {
		return err
	}
	o := BadObject{Partition: tp, Segment: seg, Err: err, until: time.Now().Add(l.cfg.BadFor)}
	l.counts.badObjects.Add(1)
	if l.bad.add(o) {
		l.cfg.Logger.Error("a remote object is damaged or missing; what it holds is not served", "key", seg.Key,
			"topic", l.nameOf(tp.Topic), "partition", tp.Partition, "base_offset", seg.Base, "end_offset", seg.End, "error", err, "remedy", o.Remedy())
	}
	return err
}

// well is told of a range that was read and checked.
func (l *Log) well(seg catalog.Segment, from, to int64) {
	if l.bad.well(seg.ID, from, to) {
		l.cfg.Logger.Info("a remote object that was damaged or missing can be read again", "key", seg.Key)
	}
}

// BadObjects returns the objects of live segments that were found damaged or
// missing and have not been read well since, in the order of their keys.
func (l *Log) BadObjects() []BadObject {
	all := slices.DeleteFunc(l.bad.all(), func(o BadObject) bool {
		seg, ok, err := l.cfg.Catalog.Find(o.Partition, o.Segment.ID)
		gone := err == nil && (!ok || seg.State != catalog.Live)
		if gone {
			l.bad.forget(o.Segment.ID)
		}
		return gone
	})
	slices.SortFunc(all, func(a, b BadObject) int { return strings.Compare(a.Segment.Key, b.Segment.Key) })
	return all
}
