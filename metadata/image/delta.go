package image

import (
	"maps"
	"slices"

	"strandline/metadata/cluster"
)

// Delta is what differs between two images.
type Delta struct {
	From, To *Image
	Topics   []TopicChange // by name
	Brokers  []BrokerChange
	// Configs lists the brokers whose overrides changed; NoBroker stands for
	// the overrides of all brokers.
	Configs []cluster.BrokerID
	// Groups lists the consumer groups whose overrides changed, by id.
	Groups []string
	// Meta says that features or the controller changed.
	Meta bool

	// pending lists the topics whose unfinished part changed.
	pending map[cluster.TopicID]bool
}

// TopicChange is a created (Old nil), deleted (New nil) or changed topic. A
// topic deleted and created again under its name makes two changes.
type TopicChange struct {
	Old, New *Topic
	// Partitions are the numbers of the created or changed partitions.
	Partitions []int32
	// Configs says that the overrides changed, or Tiered with them.
	Configs bool
}

// Topic is New, or Old where it was deleted.
func (c TopicChange) Topic() *Topic {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

func (c TopicChange) id() []byte { return c.Topic().ID[:] }

// BrokerChange is a registered (Old nil), unregistered (New nil) or changed
// broker.
type BrokerChange struct{ Old, New *Broker }

// Empty tells whether nothing differs but the index.
func (d *Delta) Empty() bool {
	return len(d.Topics) == 0 && len(d.Brokers) == 0 && len(d.Configs) == 0 && len(d.Groups) == 0 && !d.Meta
}

// Diff compares two images, of which to is the later one or any other. It costs
// a pointer comparison for each topic.
func Diff(from, to *Image) *Delta {
	d := &Delta{From: from, To: to, Brokers: diffBrokers(from.brokers, to.brokers)}
	for t := range to.Topics() {
		if old, _ := from.TopicByID(t.ID); old != t {
			d.Topics = append(d.Topics, diffTopic(old, t))
		}
	}
	for t := range from.Topics() {
		if _, ok := to.TopicByID(t.ID); !ok {
			d.Topics = append(d.Topics, TopicChange{Old: t})
		}
	}
	sortTopics(d.Topics)
	for id, m := range to.configs {
		if !maps.Equal(m, from.configs[id]) {
			d.Configs = append(d.Configs, id)
		}
	}
	for id := range from.configs {
		if _, ok := to.configs[id]; !ok {
			d.Configs = append(d.Configs, id)
		}
	}
	slices.Sort(d.Configs)
	d.Groups = diffGroups(from, to)
	a, b := from.meta, to.meta
	d.Meta = a.ClusterID != b.ClusterID || a.Controller != b.Controller || a.ControllerEpoch != b.ControllerEpoch ||
		!maps.Equal(a.Features, b.Features)
	for _, m := range []map[cluster.TopicID]*pending{from.pending, to.pending} {
		for id := range m {
			if from.pending[id] != to.pending[id] {
				if d.pending == nil {
					d.pending = map[cluster.TopicID]bool{}
				}
				d.pending[id] = true
			}
		}
	}
	return d
}

func diffGroups(from, to *Image) []string {
	if from.groups == to.groups {
		return nil
	}
	var ids []string
	for id := range to.ConfiguredGroups() {
		if !maps.Equal(to.GroupConfig(id), from.GroupConfig(id)) {
			ids = append(ids, id)
		}
	}
	for id := range from.ConfiguredGroups() {
		if to.GroupConfig(id) == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func diffTopic(old, now *Topic) TopicChange {
	c := TopicChange{Old: old, New: now}
	if old == nil {
		old = &Topic{}
	} else {
		c.Configs = !maps.Equal(old.Configs, now.Configs) || old.Tiered != now.Tiered
	}
	for n, p := range now.Partitions {
		if n >= len(old.Partitions) || old.Partitions[n] != p {
			c.Partitions = append(c.Partitions, int32(n))
		}
	}
	return c
}

func diffBrokers(from, to []*Broker) []BrokerChange {
	var changes []BrokerChange
	old := map[cluster.BrokerID]*Broker{}
	for _, b := range from {
		old[b.ID] = b
	}
	for _, b := range to {
		if old[b.ID] != b {
			changes = append(changes, BrokerChange{Old: old[b.ID], New: b})
		}
		delete(old, b.ID)
	}
	for _, b := range from {
		if old[b.ID] != nil {
			changes = append(changes, BrokerChange{Old: b})
		}
	}
	return changes
}
