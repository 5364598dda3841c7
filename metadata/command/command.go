package command

import (
	"errors"
	"fmt"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

// MaxBytes bounds an encoded command.
const MaxBytes = 256 << 10

// Level is the metadata level (feature "strandline.version") whose records this
// build reads and, once it is finalised, writes.
const Level cluster.FeatureLevel = 1

// Command is the envelope: its records are applied all or not at all.
type Command struct {
	Level           cluster.FeatureLevel // under which it was written
	ControllerEpoch cluster.ControllerEpoch
	Sequence        uint64 // of the controller's tenure; ControllerStarted is 0
	TimeMs          int64  // the controller's clock
	Records         []Record
}

// Record is one of the types below.
type Record interface{ kind() Kind }

// Kind numbers a record type in the encoded form.
type Kind uint16

// Kinds. A number is never used again for something else.
const (
	KindControllerStarted     Kind = 1
	KindClusterCreated        Kind = 2
	KindFeatureSet            Kind = 3
	KindBrokerRegistered      Kind = 4
	KindBrokerState           Kind = 5
	KindTopicCreated          Kind = 6
	KindPartitionsAdded       Kind = 7
	KindPartitionsChanged     Kind = 8
	KindTopicDeleted          Kind = 9
	KindConfigsChanged        Kind = 10
	KindProducerIDsAllocated  Kind = 11
	KindDeletedTopicForgotten Kind = 12
	KindDirsAssigned          Kind = 13
	KindBrokerUnregistered    Kind = 14
	KindGroupConfigsChanged   Kind = 15
	KindSegmentStarted        Kind = 20
	KindSegmentPublished      Kind = 21
	KindSegmentAbandoned      Kind = 22
	KindLogStartAdvanced      Kind = 23
	KindSegmentsRemoved       Kind = 24
)

// ControllerStarted begins a tenure. Apply checks the envelope's controller
// epoch against the Raft term, restarts the sequence and drops topics and
// partitions that an earlier controller left unfinished.
type ControllerStarted struct{ Node cluster.BrokerID }

// ClusterCreated gives the cluster its id; it is in the very first command.
type ClusterCreated struct{ ClusterID string }

// FeatureSet finalises a feature at a level.
type FeatureSet struct {
	Name  string
	Level cluster.FeatureLevel
}

// BrokerRegistered registers an incarnation, fenced. Its broker epoch is the
// Raft index of the command.
type BrokerRegistered struct {
	ID          cluster.BrokerID
	Incarnation cluster.IncarnationID
	Listeners   []request.Listener
	Rack        string
	LogDirs     []cluster.DirectoryID
	Features    map[string]request.FeatureRange
	// Unclean marks an incarnation whose predecessor did not stop in order.
	Unclean bool
}

// BrokerState changes what a registered broker may do. It holds for that broker
// epoch only.
type BrokerState struct {
	ID           cluster.BrokerID
	Epoch        cluster.BrokerEpoch
	Fenced       bool
	ShuttingDown bool
	OfflineDirs  []cluster.DirectoryID
}

// BrokerUnregistered forgets a broker. It holds for that broker epoch only.
type BrokerUnregistered struct {
	ID    cluster.BrokerID
	Epoch cluster.BrokerEpoch
}

// TopicCreated creates a topic. It is visible once Partitions partitions were
// added, in this command or later ones.
type TopicCreated struct {
	ID         cluster.TopicID
	Name       string
	Partitions int32
	Configs    map[string]string
	// TieredByDefault freezes what remote.storage.enable is for this topic
	// where it does not say.
	TieredByDefault bool
	Internal        bool
	CreatedMs       int64
}

// NewPartition is the first state of a partition; both epochs are 0.
type NewPartition struct {
	Leader   cluster.BrokerID
	Replicas []cluster.BrokerID
	ISR      []cluster.BrokerID
	Dirs     []cluster.DirectoryID // parallel to Replicas
}

// PartitionsAdded adds the partitions from First on. They are visible once the
// topic has Total of them.
type PartitionsAdded struct {
	Topic      cluster.TopicID
	First      int32
	Total      int32
	Partitions []NewPartition
}

// PartitionChange changes one partition. Apply refuses it where PartitionEpoch
// is not one above the current.
type PartitionChange struct {
	Partition      int32
	PartitionEpoch cluster.PartitionEpoch // the new one
	Leader         cluster.BrokerID       // the new one, changed or not
	LeaderEpoch    cluster.LeaderEpoch    // the new one, changed or not
	ISR            []cluster.BrokerID
	ELR            []cluster.BrokerID
	LastKnownELR   []cluster.BrokerID
}

// PartitionsChanged changes partitions of one topic.
type PartitionsChanged struct {
	Topic   cluster.TopicID
	Changes []PartitionChange
}

// DirAssignment says in which log directory a broker has its replica.
type DirAssignment struct {
	Partition cluster.TopicPartition
	Dir       cluster.DirectoryID
}

// DirsAssigned says where replicas of a broker lie. It changes no epoch.
type DirsAssigned struct {
	Broker      cluster.BrokerID
	Assignments []DirAssignment
}

// TopicDeleted deletes a topic with its configs. Where it had remote segments,
// all of them count as expired from here (a range command), and a tombstone
// stays until DeletedTopicForgotten.
type TopicDeleted struct{ Topic cluster.TopicID }

// ConfigChange sets or deletes one override.
type ConfigChange struct {
	Key    string
	Value  string
	Delete bool
}

// ConfigsChanged changes the overrides of one topic, of one broker, or of all
// brokers.
type ConfigsChanged struct {
	Kind    request.ConfigResourceKind
	Topic   cluster.TopicID  // TopicResource
	Broker  cluster.BrokerID // BrokerResource; NoBroker: all brokers
	Changes []ConfigChange
}

// GroupConfigsChanged changes the overrides of one consumer group, which need not
// be there.
type GroupConfigsChanged struct {
	Group   string
	Changes []ConfigChange
}

// ProducerIDsAllocated moves the next free producer id.
type ProducerIDsAllocated struct{ Next cluster.ProducerID }

// DeletedTopicForgotten removes the tombstone and the catalog entries of a
// deleted topic.
type DeletedTopicForgotten struct{ Topic cluster.TopicID }

// SegmentChanged carries an event of a partition's catalog.
type SegmentChanged struct {
	Partition cluster.TopicPartition
	Event     catalog.Event
}

func (ControllerStarted) kind() Kind     { return KindControllerStarted }
func (ClusterCreated) kind() Kind        { return KindClusterCreated }
func (FeatureSet) kind() Kind            { return KindFeatureSet }
func (BrokerRegistered) kind() Kind      { return KindBrokerRegistered }
func (BrokerState) kind() Kind           { return KindBrokerState }
func (BrokerUnregistered) kind() Kind    { return KindBrokerUnregistered }
func (TopicCreated) kind() Kind          { return KindTopicCreated }
func (PartitionsAdded) kind() Kind       { return KindPartitionsAdded }
func (PartitionsChanged) kind() Kind     { return KindPartitionsChanged }
func (DirsAssigned) kind() Kind          { return KindDirsAssigned }
func (TopicDeleted) kind() Kind          { return KindTopicDeleted }
func (ConfigsChanged) kind() Kind        { return KindConfigsChanged }
func (GroupConfigsChanged) kind() Kind   { return KindGroupConfigsChanged }
func (ProducerIDsAllocated) kind() Kind  { return KindProducerIDsAllocated }
func (DeletedTopicForgotten) kind() Kind { return KindDeletedTopicForgotten }

func (s SegmentChanged) kind() Kind {
	switch s.Event.(type) {
	case catalog.StartedEvent:
		return KindSegmentStarted
	case catalog.PublishedEvent:
		return KindSegmentPublished
	case catalog.AbandonedEvent:
		return KindSegmentAbandoned
	case catalog.LogStartEvent:
		return KindLogStartAdvanced
	case catalog.RemovedEvent:
		return KindSegmentsRemoved
	}
	return 0
}

// KindOf tells the kind of a record.
func KindOf(r Record) Kind { return r.kind() }

// ErrTooLarge is returned by Encode for a command over MaxBytes.
var ErrTooLarge = errors.New("command is larger than 256 KiB")

// CorruptError tells that bytes are no command.
type CorruptError struct {
	Position int // in the encoded command
	Cause    string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt metadata command at byte %d: %s", e.Position, e.Cause)
}

// UnknownRecordError tells that a command was written by a newer version. The
// broker stops: it cannot know the cluster without that record.
type UnknownRecordError struct {
	Kind    Kind
	Version uint64
	// Needs is the metadata level that the command was written under.
	Needs cluster.FeatureLevel
}

func (e *UnknownRecordError) Error() string {
	return fmt.Sprintf("metadata record of kind %d, version %d, is not known here: it needs a version that "+
		"supports level %d of strandline.version, this one supports level %d", e.Kind, e.Version, e.Needs, Level)
}
