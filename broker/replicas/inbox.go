package replicas

import (
	"sync"

	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// inbox gathers what changed until the applier takes it. Its size is bounded by
// the number of topics and partitions: changes of one thing merge.
type inbox struct {
	kick chan struct{} // cap 1

	mu      sync.Mutex
	img     *image.Image
	all     bool // look at everything
	topics  map[cluster.TopicID]struct{}
	remote  map[cluster.TopicPartition]struct{}
	offline []failure
}

// failure is a replica that went offline.
type failure struct {
	tp  cluster.TopicPartition
	err error
}

// work is what the applier takes at once.
type work struct {
	img     *image.Image // nil: no new one
	all     bool
	topics  map[cluster.TopicID]struct{}
	remote  map[cluster.TopicPartition]struct{}
	offline []failure
}

func (b *inbox) change(fn func()) {
	b.mu.Lock()
	fn()
	b.mu.Unlock()
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// image is the subscriber of images.
func (b *inbox) image(img *image.Image, d *image.Delta) {
	b.change(func() {
		b.img = img
		if b.topics == nil {
			b.topics = map[cluster.TopicID]struct{}{}
		}
		for _, t := range d.Topics {
			if t.Old != nil {
				b.topics[t.Old.ID] = struct{}{}
			}
			if t.New != nil {
				b.topics[t.New.ID] = struct{}{}
			}
		}
		// A change of brokers may fence or unfence this one; one of broker
		// configs changes every topic's settings.
		if len(d.Brokers) > 0 || len(d.Configs) > 0 {
			b.all = true
		}
	})
}

// catalog is the subscriber of the catalog.
func (b *inbox) catalog(tp cluster.TopicPartition) {
	b.change(func() {
		if b.remote == nil {
			b.remote = map[cluster.TopicPartition]struct{}{}
		}
		b.remote[tp] = struct{}{}
	})
}

func (b *inbox) everything() { b.change(func() { b.all = true }) }

func (b *inbox) failed(tp cluster.TopicPartition, err error) {
	b.change(func() { b.offline = append(b.offline, failure{tp, err}) })
}

func (b *inbox) take() work {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := work{img: b.img, all: b.all, topics: b.topics, remote: b.remote, offline: b.offline}
	b.img, b.all, b.topics, b.remote, b.offline = nil, false, nil, nil, nil
	return w
}
