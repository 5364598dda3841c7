package node

import (
	"cmp"
	"slices"
	"sync"

	"strandline/metadata/cluster"
	"strandline/metadata/image"
	"strandline/metadata/state"
)

// dispatcher delivers changes to subscribers, from one goroutine. What arrives
// while it is busy becomes one delta; so its memory is bounded by the number of
// partitions, and the state never waits for a subscriber.
type dispatcher struct {
	wake chan struct{} // cap 1
	stop chan struct{}
	done chan struct{}

	mu         sync.Mutex
	image      *image.Image
	delta      *image.Delta // leads to image from the one before, nil: unknown
	partitions map[cluster.TopicPartition]bool
	images     []*imageSubscriber
	catalogs   []*catalogSubscriber
}

type imageSubscriber struct {
	fn   func(*image.Image, *image.Delta)
	last *image.Image // nil: never called
	subscription
}

type catalogSubscriber struct {
	fn func(cluster.TopicPartition)
	subscription
}

// subscription makes cancel wait for a running call.
type subscription struct {
	mu       sync.Mutex
	canceled bool
}

// call runs f unless the subscription has ended.
func (s *subscription) call(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.canceled {
		f()
	}
}

func (s *subscription) cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.canceled = true
}

func startDispatcher(img *image.Image) *dispatcher {
	d := &dispatcher{
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		image: img, partitions: map[cluster.TopicPartition]bool{},
	}
	go d.run()
	return d
}

// changed takes a change from the state; it does not block.
func (d *dispatcher) changed(c state.Change) {
	d.mu.Lock()
	d.image, d.delta = c.Image, c.Delta
	for _, tp := range c.Partitions {
		d.partitions[tp] = true
	}
	d.mu.Unlock()
	d.poke()
}

func (d *dispatcher) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *dispatcher) run() {
	defer close(d.done)
	for {
		select {
		case <-d.stop:
			return
		case <-d.wake:
			d.deliver()
		}
	}
}

func (d *dispatcher) deliver() {
	d.mu.Lock()
	img, delta := d.image, d.delta
	images, catalogs := slices.Clone(d.images), slices.Clone(d.catalogs)
	partitions := d.partitions
	d.partitions = map[cluster.TopicPartition]bool{}
	d.mu.Unlock()

	diffs := map[*image.Image]*image.Delta{} // by From
	if delta != nil {
		diffs[delta.From] = delta
	}
	for _, s := range images {
		first := s.last == nil
		if first {
			s.last = image.Empty()
		}
		if s.last == img {
			continue
		}
		c := diffs[s.last]
		if c == nil {
			c = image.Diff(s.last, img)
			diffs[s.last] = c
		}
		if c.Empty() && !first {
			continue // the index alone: the next delta covers it
		}
		s.call(func() { s.fn(img, c) })
		s.last = img
	}
	for _, tp := range sorted(partitions) {
		for _, s := range catalogs {
			s.call(func() { s.fn(tp) })
		}
	}
}

func sorted(set map[cluster.TopicPartition]bool) []cluster.TopicPartition {
	out := make([]cluster.TopicPartition, 0, len(set))
	for tp := range set {
		out = append(out, tp)
	}
	slices.SortFunc(out, func(a, b cluster.TopicPartition) int {
		return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

func (d *dispatcher) subscribe(fn func(*image.Image, *image.Delta)) (cancel func()) {
	s := &imageSubscriber{fn: fn}
	d.mu.Lock()
	d.images = append(d.images, s)
	d.mu.Unlock()
	d.poke()
	return func() {
		d.mu.Lock()
		d.images = slices.DeleteFunc(d.images, func(o *imageSubscriber) bool { return o == s })
		d.mu.Unlock()
		s.cancel()
	}
}

func (d *dispatcher) subscribeCatalog(fn func(cluster.TopicPartition)) (cancel func()) {
	s := &catalogSubscriber{fn: fn}
	d.mu.Lock()
	d.catalogs = append(d.catalogs, s)
	d.mu.Unlock()
	return func() {
		d.mu.Lock()
		d.catalogs = slices.DeleteFunc(d.catalogs, func(o *catalogSubscriber) bool { return o == s })
		d.mu.Unlock()
		s.cancel()
	}
}

// close ends the goroutine, after a running delivery.
func (d *dispatcher) close() {
	close(d.stop)
	<-d.done
}
