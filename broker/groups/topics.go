package groups

import (
	"iter"
	"slices"

	"strandline/broker/group/consumer"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// topics is the image as KIP-848 groups see it.
type topics struct {
	img *image.Image
	// version and created are indexes of the metadata log: those of the last
	// change of a topic, its partitions or their racks, and of the last topic
	// created; both no less than that.
	version, created int64
	// racks: some broker is in one.
	racks bool
}

var _ consumer.Topics = (*topics)(nil)

func newTopics(img *image.Image) *topics {
	return &topics{img: img, version: int64(img.Index()), created: int64(img.Index()), racks: anyRack(img)}
}

func anyRack(img *image.Image) bool {
	return slices.ContainsFunc(img.Brokers(), func(b *image.Broker) bool { return b.Rack != "" })
}

// next is the view of img, which d leads to.
func (t *topics) next(img *image.Image, d *image.Delta) *topics {
	n := &topics{img: img, version: t.version, created: t.created, racks: anyRack(img)}
	for _, c := range d.Topics {
		if c.Old == nil {
			n.created, n.version = int64(img.Index()), int64(img.Index())
		} else if c.New == nil || moved(c) {
			n.version = int64(img.Index())
		}
	}
	for _, b := range d.Brokers {
		if rackOf(b.Old) != rackOf(b.New) {
			n.version = int64(img.Index())
		}
	}
	return n
}

// moved tells whether a topic has other partitions, or replicas elsewhere.
func moved(c image.TopicChange) bool {
	if len(c.Old.Partitions) != len(c.New.Partitions) {
		return true
	}
	return slices.ContainsFunc(c.Partitions, func(p int32) bool {
		return !slices.Equal(c.Old.Partitions[p].Replicas, c.New.Partitions[p].Replicas)
	})
}

func rackOf(b *image.Broker) string {
	if b == nil {
		return ""
	}
	return b.Rack
}

func (t *topics) Topic(name string) (consumer.Topic, bool) {
	found, ok := t.img.Topic(name)
	if !ok {
		return consumer.Topic{}, false
	}
	return t.topic(found), true
}

func (t *topics) TopicByID(id cluster.TopicID) (consumer.Topic, bool) {
	found, ok := t.img.TopicByID(id)
	if !ok {
		return consumer.Topic{}, false
	}
	return t.topic(found), true
}

func (t *topics) topic(found *image.Topic) consumer.Topic {
	out := consumer.Topic{ID: found.ID, Name: found.Name, Partitions: int32(len(found.Partitions))}
	if !t.racks {
		return out
	}
	for _, p := range found.Partitions {
		var racks []string
		for _, id := range p.Replicas {
			if b, ok := t.img.Broker(id); ok && b.Rack != "" && !slices.Contains(racks, b.Rack) {
				racks = append(racks, b.Rack)
			}
		}
		out.Racks = append(out.Racks, racks)
	}
	return out
}

func (t *topics) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for topic := range t.img.Topics() {
			if !yield(topic.Name) {
				return
			}
		}
	}
}

func (t *topics) Version() int64        { return t.version }
func (t *topics) CreatedVersion() int64 { return t.created }
