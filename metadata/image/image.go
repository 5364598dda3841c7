package image

import (
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

// Names of features that the image finalises. VersionFeature is ours: it rules
// the formats of records, snapshots and objects.
const (
	VersionFeature     = "strandline.version"
	GroupFeature       = "group.version"
	TransactionFeature = "transaction.version"
	ShareFeature       = "share.version"
	StreamsFeature     = "streams.version"
	ELRFeature         = "eligible.leader.replicas.version"
)

// Image is one state of the cluster. The zero value is not usable; see Empty.
type Image struct {
	meta    Meta
	byName  *iradix.Tree[*Topic]
	byID    *iradix.Tree[*Topic]
	pending map[cluster.TopicID]*pending
	brokers []*Broker // by id
	configs map[cluster.BrokerID]map[string]string
	groups  *iradix.Tree[map[string]string] // overrides by group id
	parts   int
}

// Meta is the part of an image that is about no single thing.
type Meta struct {
	Index           uint64 // of the last applied Raft entry
	ClusterID       string
	Controller      cluster.BrokerID
	ControllerEpoch cluster.ControllerEpoch
	Sequence        uint64
	TimeMs          int64 // of the last applied command
	NextProducerID  cluster.ProducerID
	Features        map[string]cluster.FeatureLevel
}

// Topic is one topic of an image.
type Topic struct {
	Name       string
	ID         cluster.TopicID
	Partitions []*Partition // by partition number
	Configs    map[string]string
	// TieredByDefault was frozen when the topic was created; Tiered is what
	// holds: the topic's own remote.storage.enable, else TieredByDefault.
	TieredByDefault bool
	Tiered          bool
	Internal        bool
	CreatedMs       int64
}

// Partition is one partition of a topic. Dirs is parallel to Replicas.
type Partition struct {
	Leader         cluster.BrokerID // NoBroker: none
	LeaderEpoch    cluster.LeaderEpoch
	PartitionEpoch cluster.PartitionEpoch
	Replicas       []cluster.BrokerID
	ISR            []cluster.BrokerID
	ELR            []cluster.BrokerID
	LastKnownELR   []cluster.BrokerID
	Dirs           []cluster.DirectoryID
}

// Broker is one registered broker.
type Broker struct {
	ID           cluster.BrokerID
	Epoch        cluster.BrokerEpoch
	Incarnation  cluster.IncarnationID
	Listeners    []request.Listener
	Rack         string
	LogDirs      []cluster.DirectoryID
	OfflineDirs  []cluster.DirectoryID
	Features     map[string]request.FeatureRange
	Fenced       bool
	ShuttingDown bool
	// Unclean says that the incarnation before did not stop in order; it ends
	// when the broker is unfenced.
	Unclean bool
}

// Empty is the image before the first command.
func Empty() *Image {
	return &Image{
		meta:   Meta{Controller: cluster.NoBroker},
		byName: iradix.New[*Topic](), byID: iradix.New[*Topic](), groups: iradix.New[map[string]string](),
	}
}

// Index is the Raft index of the last applied entry.
func (i *Image) Index() uint64 { return i.meta.Index }

// ClusterID is the cluster's id, "" before the first command.
func (i *Image) ClusterID() string { return i.meta.ClusterID }

// Meta gives the rest of the image's own values.
func (i *Image) Meta() Meta { return i.meta }

// Controller is the node that leads the metadata quorum, as far as the image
// knows.
func (i *Image) Controller() cluster.BrokerID { return i.meta.Controller }

// ControllerEpoch is the tenure of the last controller.
func (i *Image) ControllerEpoch() cluster.ControllerEpoch { return i.meta.ControllerEpoch }

// NextProducerID is the first producer id that no block holds yet.
func (i *Image) NextProducerID() cluster.ProducerID { return i.meta.NextProducerID }

// Features are the finalised levels; a level of 0 is off.
func (i *Image) Features() map[string]cluster.FeatureLevel { return i.meta.Features }

// Topic finds a visible topic by name.
func (i *Image) Topic(name string) (*Topic, bool) { return i.byName.Get([]byte(name)) }

// TopicByID finds a visible topic by id.
func (i *Image) TopicByID(id cluster.TopicID) (*Topic, bool) { return i.byID.Get(id[:]) }

// TopicCount is the number of visible topics.
func (i *Image) TopicCount() int { return i.byName.Len() }

// PartitionCount is the number of partitions of all visible topics.
func (i *Image) PartitionCount() int { return i.parts }

// Partition finds one partition.
func (i *Image) Partition(tp cluster.TopicPartition) (*Topic, *Partition, bool) {
	t, ok := i.TopicByID(tp.Topic)
	if !ok || tp.Partition < 0 || int(tp.Partition) >= len(t.Partitions) {
		return nil, nil, false
	}
	return t, t.Partitions[tp.Partition], true
}

// Topics yields the visible topics by name.
func (i *Image) Topics() iter.Seq[*Topic] { return i.TopicsFrom("") }

// TopicsFrom yields the visible topics whose name is at or after from, by name.
func (i *Image) TopicsFrom(from string) iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, t := range walk(i.byName, from) {
			if !yield(t) {
				return
			}
		}
	}
}

// walk yields a tree's topics from a key on, in the order of keys.
func walk(tree *iradix.Tree[*Topic], from string) iter.Seq2[[]byte, *Topic] {
	return func(yield func([]byte, *Topic) bool) {
		it := tree.Root().Iterator()
		it.SeekLowerBound([]byte(from))
		for k, t, ok := it.Next(); ok; k, t, ok = it.Next() {
			if !yield(k, t) {
				return
			}
		}
	}
}

// Broker finds a registered broker.
func (i *Image) Broker(id cluster.BrokerID) (*Broker, bool) {
	for _, b := range i.brokers {
		if b.ID == id {
			return b, true
		}
	}
	return nil, false
}

// Brokers are the registered brokers by id, fenced ones included. Read only.
func (i *Image) Brokers() []*Broker { return i.brokers }

// BrokerConfig is the overrides of one broker, or for NoBroker those of all
// brokers. Read only; nil where there are none.
func (i *Image) BrokerConfig(id cluster.BrokerID) map[string]string { return i.configs[id] }

// GroupConfig is the overrides of one consumer group. Read only; nil where there
// are none.
func (i *Image) GroupConfig(group string) map[string]string {
	m, _ := i.groups.Get([]byte(group))
	return m
}

// ConfiguredGroups yields the consumer groups that have overrides, by id.
func (i *Image) ConfiguredGroups() iter.Seq[string] {
	return func(yield func(string) bool) {
		it := i.groups.Root().Iterator()
		for k, _, ok := it.Next(); ok; k, _, ok = it.Next() {
			if !yield(string(k)) {
				return
			}
		}
	}
}

// Active tells whether the broker may lead and be in an ISR.
func (b *Broker) Active() bool { return !b.Fenced && !b.ShuttingDown }

// Listener finds an advertised endpoint by listener name.
func (b *Broker) Listener(name string) (request.Listener, bool) {
	for _, l := range b.Listeners {
		if l.Name == name {
			return l, true
		}
	}
	return request.Listener{}, false
}

// Dir is the log directory of the replica on a broker; zero: not said.
func (p *Partition) Dir(id cluster.BrokerID) cluster.DirectoryID {
	for n, r := range p.Replicas {
		if r == id && n < len(p.Dirs) {
			return p.Dirs[n]
		}
	}
	return cluster.DirectoryID{}
}

// Feature is a feature with a level.
type Feature struct {
	Name  string
	Level cluster.FeatureLevel
}

// FirstFeatures are the levels that a new cluster finalises. What is not served
// is off.
func FirstFeatures() []Feature {
	return []Feature{
		{VersionFeature, 1},
		{ELRFeature, 1},
		{GroupFeature, 1},
		{TransactionFeature, 0},
		{ShareFeature, 0},
		{StreamsFeature, 0},
	}
}

// SupportedFeatures are the ranges of levels that this build registers.
func SupportedFeatures() map[string]request.FeatureRange {
	m := map[string]request.FeatureRange{}
	for _, f := range FirstFeatures() {
		m[f.Name] = request.FeatureRange{Min: min(f.Level, 1), Max: f.Level}
	}
	return m
}
