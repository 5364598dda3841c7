package image

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/request"
)

// TierKey is the topic config that turns the tier on or off for a topic.
const TierKey = "remote.storage.enable"

// Position is where in the Raft log a command lies. A controller that applies
// its own commands before they are ordered leaves both zero: neither is checked
// then, and a broker registered so has no broker epoch yet.
type Position struct {
	Index uint64
	Term  uint64
}

// RefusedError tells that a command does not follow from the image: its
// controller epoch is not the tenure's, its sequence has a gap, or it expects
// another state. It is skipped, on every node alike.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "metadata command refused: " + e.Reason }

func refuse(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// Skip gives the image after an entry that changes nothing.
func (i *Image) Skip(index uint64) *Image {
	n := *i
	n.meta.Index = index
	return &n
}

// pending is what is not visible yet: a topic, or partitions of a visible one.
type pending struct {
	topic      *Topic // nil: a visible topic grows
	total      int32
	first      int32 // number of partitions[0]
	partitions []*Partition
}

// Apply gives the image after a command. Records of the catalog are skipped
// here; state applies them in the same batch and drops both where one refuses
// them. Where the command is refused the image stays as it is, apart from its
// index: see Skip.
func (i *Image) Apply(at Position, c command.Command) (*Image, *Delta, error) {
	b := &builder{from: i, to: *i, at: at, touched: map[cluster.TopicID]*touched{}}
	b.to.pending = maps.Clone(i.pending)
	if err := b.envelope(c); err != nil {
		return i, nil, err
	}
	for n, r := range c.Records {
		if _, ok := r.(command.ControllerStarted); ok && n > 0 {
			return i, nil, refuse("a tenure starts with the first record of a command only")
		}
		if err := b.record(r); err != nil {
			return i, nil, err
		}
	}
	to, d := b.finish()
	return to, d, nil
}

// builder collects the changes of one command.
type builder struct {
	from *Image
	to   Image
	at   Position
	name *iradix.Txn[*Topic]
	id   *iradix.Txn[*Topic]

	touched map[cluster.TopicID]*touched
	brokers bool // to.brokers is a copy
	configs bool // to.configs is a copy
	delta   Delta
}

// touched is one topic that the command changes.
type touched struct {
	old, now   *Topic // now is a copy, or nil once deleted
	partitions map[int32]bool
	shared     bool // now.Partitions is old's slice
	configs    bool
}

func (b *builder) envelope(c command.Command) error {
	m := &b.to.meta
	if b.at.Index != 0 {
		if b.at.Index <= m.Index {
			return refuse("entry %d is not past %d", b.at.Index, m.Index)
		}
		m.Index = b.at.Index
	}
	if b.at.Term != 0 && uint64(c.ControllerEpoch) != b.at.Term {
		return refuse("controller epoch %d in term %d", c.ControllerEpoch, b.at.Term)
	}
	if c.Level > command.Level {
		return refuse("level %d is above %d", c.Level, command.Level)
	}
	if len(c.Records) > 0 {
		if s, ok := c.Records[0].(command.ControllerStarted); ok {
			if c.Sequence != 0 || c.ControllerEpoch <= m.ControllerEpoch {
				return refuse("tenure %d cannot start after %d", c.ControllerEpoch, m.ControllerEpoch)
			}
			m.Controller, m.ControllerEpoch, m.Sequence, m.TimeMs = s.Node, c.ControllerEpoch, 0, c.TimeMs
			b.delta.Meta = true
			return nil
		}
	}
	if c.ControllerEpoch != m.ControllerEpoch {
		return refuse("controller epoch %d, the tenure is %d", c.ControllerEpoch, m.ControllerEpoch)
	}
	if c.Sequence != m.Sequence+1 {
		return refuse("sequence %d after %d", c.Sequence, m.Sequence)
	}
	m.Sequence, m.TimeMs = c.Sequence, max(m.TimeMs, c.TimeMs)
	return nil
}

func (b *builder) record(r command.Record) error {
	switch r := r.(type) {
	case command.ControllerStarted:
		b.controllerStarted()
	case command.ClusterCreated:
		if b.to.meta.ClusterID != "" {
			return refuse("the cluster has an id already")
		}
		b.to.meta.ClusterID, b.delta.Meta = r.ClusterID, true
	case command.FeatureSet:
		f := maps.Clone(b.to.meta.Features)
		if f == nil {
			f = map[string]cluster.FeatureLevel{}
		}
		f[r.Name] = r.Level
		b.to.meta.Features, b.delta.Meta = f, true
	case command.BrokerRegistered:
		b.brokerRegistered(r)
	case command.BrokerState:
		return b.brokerState(r)
	case command.BrokerUnregistered:
		return b.brokerUnregistered(r)
	case command.TopicCreated:
		return b.topicCreated(r)
	case command.PartitionsAdded:
		return b.partitionsAdded(r)
	case command.PartitionsChanged:
		return b.partitionsChanged(r)
	case command.DirsAssigned:
		return b.dirsAssigned(r)
	case command.TopicDeleted:
		return b.topicDeleted(r.Topic)
	case command.ConfigsChanged:
		return b.configsChanged(r)
	case command.GroupConfigsChanged:
		b.groupConfigsChanged(r)
	case command.ProducerIDsAllocated:
		if r.Next < b.to.meta.NextProducerID {
			return refuse("next producer id %d is below %d", r.Next, b.to.meta.NextProducerID)
		}
		b.to.meta.NextProducerID = r.Next
	case command.SegmentChanged, command.DeletedTopicForgotten:
		// The catalog's.
	default:
		return fmt.Errorf("record %T is not known to the image", r)
	}
	return nil
}

// controllerStarted drops what an earlier controller left unfinished.
func (b *builder) controllerStarted() {
	for id := range b.to.pending {
		b.markPending(id)
	}
	b.to.pending = nil
}

func (b *builder) markPending(id cluster.TopicID) {
	if b.delta.pending == nil {
		b.delta.pending = map[cluster.TopicID]bool{}
	}
	b.delta.pending[id] = true
}

func (b *builder) setBroker(n *Broker) {
	if !b.brokers {
		b.to.brokers, b.brokers = slices.Clone(b.to.brokers), true
	}
	at, found := slices.BinarySearchFunc(b.to.brokers, n.ID, func(x *Broker, id cluster.BrokerID) int {
		return int(x.ID) - int(id)
	})
	if found {
		b.to.brokers[at] = n
		return
	}
	b.to.brokers = slices.Insert(b.to.brokers, at, n)
}

func (b *builder) brokerRegistered(r command.BrokerRegistered) {
	epoch := cluster.NoBrokerEpoch
	if b.at.Index != 0 {
		epoch = cluster.BrokerEpoch(b.at.Index)
	}
	b.setBroker(&Broker{
		ID: r.ID, Epoch: epoch, Incarnation: r.Incarnation, Listeners: r.Listeners, Rack: r.Rack,
		LogDirs: r.LogDirs, Features: r.Features, Fenced: true, Unclean: r.Unclean,
	})
}

func (b *builder) brokerState(r command.BrokerState) error {
	old, ok := b.to.Broker(r.ID)
	if !ok || old.Epoch != r.Epoch {
		return refuse("broker %d is not registered with epoch %d", r.ID, r.Epoch)
	}
	n := *old
	n.Fenced, n.ShuttingDown, n.OfflineDirs = r.Fenced, r.ShuttingDown, r.OfflineDirs
	n.Unclean = n.Unclean && n.Fenced // once it is unfenced, its past is dealt with
	b.setBroker(&n)
	return nil
}

func (b *builder) brokerUnregistered(r command.BrokerUnregistered) error {
	old, ok := b.to.Broker(r.ID)
	if !ok || old.Epoch != r.Epoch {
		return refuse("broker %d is not registered with epoch %d", r.ID, r.Epoch)
	}
	b.to.brokers, b.brokers = slices.DeleteFunc(slices.Clone(b.to.brokers), func(x *Broker) bool { return x == old }), true
	return nil
}

func (b *builder) topicCreated(r command.TopicCreated) error {
	if r.Partitions <= 0 {
		return refuse("topic %q has no partitions", r.Name)
	}
	if b.topicByName(r.Name) != nil || b.topic(r.ID) != nil {
		return refuse("topic %q exists already", r.Name)
	}
	if _, ok := b.to.pending[r.ID]; ok || b.to.pendingName(r.Name) {
		return refuse("topic %q is being created already", r.Name)
	}
	t := &Topic{
		Name: r.Name, ID: r.ID, Configs: r.Configs, TieredByDefault: r.TieredByDefault,
		Internal: r.Internal, CreatedMs: r.CreatedMs,
	}
	t.Tiered = tiered(t)
	b.setPending(r.ID, &pending{topic: t, total: r.Partitions})
	return nil
}

func (b *builder) setPending(id cluster.TopicID, p *pending) {
	if b.to.pending == nil {
		b.to.pending = map[cluster.TopicID]*pending{}
	}
	b.to.pending[id] = p
	b.markPending(id)
}

func (b *builder) partitionsAdded(r command.PartitionsAdded) error {
	p, ok := b.to.pending[r.Topic]
	if !ok {
		t := b.topic(r.Topic)
		if t == nil {
			return refuse("topic %s does not exist", r.Topic)
		}
		if int(r.Total) <= len(t.Partitions) {
			return refuse("topic %s has %d partitions already", r.Topic, len(t.Partitions))
		}
		p = &pending{total: r.Total, first: int32(len(t.Partitions))}
	}
	next := int(p.first) + len(p.partitions)
	if r.Total != p.total || int(r.First) != next || next+len(r.Partitions) > int(p.total) {
		return refuse("partitions %d..%d of %d do not follow %d of %d of topic %s",
			r.First, int(r.First)+len(r.Partitions), r.Total, next, p.total, r.Topic)
	}
	n := *p
	n.partitions = slices.Clip(n.partitions)
	for _, np := range r.Partitions {
		n.partitions = append(n.partitions, &Partition{
			Leader: np.Leader, Replicas: np.Replicas, ISR: np.ISR, Dirs: np.Dirs,
		})
	}
	b.setPending(r.Topic, &n)
	if int(n.first)+len(n.partitions) == int(n.total) {
		b.complete(r.Topic, &n)
	}
	return nil
}

// complete makes a pending topic, or pending partitions, visible.
func (b *builder) complete(id cluster.TopicID, p *pending) {
	delete(b.to.pending, id)
	b.to.parts += len(p.partitions)
	var t *touched
	if p.topic != nil {
		n := *p.topic
		t = &touched{now: &n, partitions: map[int32]bool{}}
		if was, ok := b.touched[id]; ok {
			t.old = was.old
		}
		b.touched[id] = t
	} else {
		t = b.touch(id)
		b.unshare(t)
	}
	for n, np := range p.partitions {
		t.now.Partitions = append(t.now.Partitions, np)
		t.partitions[p.first+int32(n)] = true
	}
	b.insert(t.now)
}

func (b *builder) partitionsChanged(r command.PartitionsChanged) error {
	if b.topic(r.Topic) == nil {
		return refuse("topic %s does not exist", r.Topic)
	}
	t := b.touch(r.Topic)
	b.unshare(t)
	for _, c := range r.Changes {
		if c.Partition < 0 || int(c.Partition) >= len(t.now.Partitions) {
			return refuse("partition %d of topic %s does not exist", c.Partition, r.Topic)
		}
		old := t.now.Partitions[c.Partition]
		if c.PartitionEpoch != old.PartitionEpoch+1 {
			return refuse("partition epoch %d of %s-%d after %d", c.PartitionEpoch, t.now.Name, c.Partition, old.PartitionEpoch)
		}
		if c.LeaderEpoch < old.LeaderEpoch || c.LeaderEpoch == old.LeaderEpoch && c.Leader != old.Leader {
			return refuse("leader %d of %s-%d at leader epoch %d after %d",
				c.Leader, t.now.Name, c.Partition, c.LeaderEpoch, old.LeaderEpoch)
		}
		n := *old
		n.Leader, n.LeaderEpoch, n.PartitionEpoch = c.Leader, c.LeaderEpoch, c.PartitionEpoch
		n.ISR, n.ELR, n.LastKnownELR = c.ISR, c.ELR, c.LastKnownELR
		t.now.Partitions[c.Partition] = &n
		t.partitions[c.Partition] = true
	}
	return nil
}

// dirsAssigned leaves out what is gone: nobody has it in that directory.
func (b *builder) dirsAssigned(r command.DirsAssigned) error {
	for _, a := range r.Assignments {
		topic := b.topic(a.Partition.Topic)
		if n := int(a.Partition.Partition); topic == nil || n < 0 || n >= len(topic.Partitions) {
			continue
		}
		at := slices.Index(topic.Partitions[a.Partition.Partition].Replicas, r.Broker)
		if at < 0 {
			continue
		}
		t := b.touch(a.Partition.Topic)
		b.unshare(t)
		n := *t.now.Partitions[a.Partition.Partition]
		dirs := make([]cluster.DirectoryID, len(n.Replicas))
		copy(dirs, n.Dirs)
		dirs[at] = a.Dir
		n.Dirs = dirs
		t.now.Partitions[a.Partition.Partition] = &n
		t.partitions[a.Partition.Partition] = true
	}
	return nil
}

func (b *builder) topicDeleted(id cluster.TopicID) error {
	if p, ok := b.to.pending[id]; ok {
		delete(b.to.pending, id)
		b.markPending(id)
		if p.topic != nil {
			return nil
		}
	}
	if b.topic(id) == nil {
		return refuse("topic %s does not exist", id)
	}
	t := b.touch(id)
	b.txn()
	b.name.Delete([]byte(t.now.Name))
	b.id.Delete(id[:])
	b.to.parts -= len(t.now.Partitions)
	t.now = nil
	return nil
}

func (b *builder) configsChanged(r command.ConfigsChanged) error {
	if r.Kind == request.BrokerResource {
		if !b.configs {
			b.to.configs, b.configs = maps.Clone(b.to.configs), true
			if b.to.configs == nil {
				b.to.configs = map[cluster.BrokerID]map[string]string{}
			}
		}
		if m := change(b.to.configs[r.Broker], r.Changes); m != nil {
			b.to.configs[r.Broker] = m
		} else {
			delete(b.to.configs, r.Broker)
		}
		if !slices.Contains(b.delta.Configs, r.Broker) {
			b.delta.Configs = append(b.delta.Configs, r.Broker)
		}
		return nil
	}
	if b.topic(r.Topic) == nil {
		return refuse("topic %s does not exist", r.Topic)
	}
	t := b.touch(r.Topic)
	t.now.Configs, t.configs = change(t.now.Configs, r.Changes), true
	t.now.Tiered = tiered(t.now)
	return nil
}

func (b *builder) groupConfigsChanged(r command.GroupConfigsChanged) {
	key := []byte(r.Group)
	old, _ := b.to.groups.Get(key)
	if m := change(old, r.Changes); m != nil {
		b.to.groups, _, _ = b.to.groups.Insert(key, m)
	} else {
		b.to.groups, _, _ = b.to.groups.Delete(key)
	}
	if !slices.Contains(b.delta.Groups, r.Group) {
		b.delta.Groups = append(b.delta.Groups, r.Group)
	}
}

func change(m map[string]string, changes []command.ConfigChange) map[string]string {
	n := maps.Clone(m)
	for _, c := range changes {
		switch {
		case c.Delete:
			delete(n, c.Key)
		case n == nil:
			n = map[string]string{c.Key: c.Value}
		default:
			n[c.Key] = c.Value
		}
	}
	if len(n) == 0 {
		return nil
	}
	return n
}

func tiered(t *Topic) bool {
	if v, ok := t.Configs[TierKey]; ok {
		return strings.EqualFold(strings.TrimSpace(v), "true")
	}
	return t.TieredByDefault
}
