package image

import (
	"cmp"
	"maps"
	"slices"

	"strandline/metadata/cluster"
)

func (b *builder) txn() {
	if b.name == nil {
		b.name, b.id = b.from.byName.Txn(), b.from.byID.Txn()
	}
}

// insert puts a topic that this command created, or changed for the first time.
func (b *builder) insert(t *Topic) {
	b.txn()
	b.name.Insert([]byte(t.Name), t)
	b.id.Insert(t.ID[:], t)
}

// topic finds a topic as the command has left it so far.
func (b *builder) topic(id cluster.TopicID) *Topic {
	if t, ok := b.touched[id]; ok {
		return t.now
	}
	t, _ := b.from.byID.Get(id[:])
	return t
}

func (b *builder) topicByName(name string) *Topic {
	if b.name != nil {
		t, _ := b.name.Get([]byte(name))
		return t
	}
	t, _ := b.from.byName.Get([]byte(name))
	return t
}

// touch gives a copy of a visible topic that this command may change.
func (b *builder) touch(id cluster.TopicID) *touched {
	if t, ok := b.touched[id]; ok {
		return t
	}
	old, _ := b.from.byID.Get(id[:])
	n := *old
	t := &touched{old: old, now: &n, partitions: map[int32]bool{}, shared: true}
	b.touched[id] = t
	b.insert(&n)
	return t
}

// unshare gives a touched topic its own list of partitions.
func (b *builder) unshare(t *touched) {
	if t.shared {
		t.now.Partitions, t.shared = slices.Clone(t.now.Partitions), false
	}
}

func (i *Image) pendingName(name string) bool {
	for _, p := range i.pending {
		if p.topic != nil && p.topic.Name == name {
			return true
		}
	}
	return false
}

func (b *builder) finish() (*Image, *Delta) {
	if b.name != nil {
		b.to.byName, b.to.byID = b.name.Commit(), b.id.Commit()
	}
	if len(b.to.pending) == 0 {
		b.to.pending = nil
	}
	to := b.to
	d := b.delta
	d.From, d.To = b.from, &to
	for _, t := range b.touched {
		if t.old == nil && t.now == nil {
			continue
		}
		d.Topics = append(d.Topics, TopicChange{
			Old: t.old, New: t.now, Configs: t.configs, Partitions: slices.Sorted(maps.Keys(t.partitions)),
		})
	}
	sortTopics(d.Topics)
	if b.brokers {
		d.Brokers = diffBrokers(b.from.brokers, to.brokers)
	}
	slices.Sort(d.Configs)
	slices.Sort(d.Groups)
	return &to, &d
}

func sortTopics(ts []TopicChange) {
	slices.SortFunc(ts, func(x, y TopicChange) int {
		return cmp.Or(cmp.Compare(x.Topic().Name, y.Topic().Name), slices.Compare(x.id(), y.id()))
	})
}
