package request

import (
	"time"

	"strandline/metadata/cluster"
)

// Request is one of the types below. Result is the answer to it: the type
// named in each request's comment.
type (
	Request interface{ isRequest() }
	Result  any
)

// Listener is one advertised endpoint of a broker.
type Listener struct {
	Name     string // listener name, e.g. PLAINTEXT
	Host     string
	Port     int32
	Security string // security protocol: PLAINTEXT, SSL, ...
}

// FeatureRange is the range of levels of a feature that a broker supports, both
// inclusive.
type FeatureRange struct{ Min, Max cluster.FeatureLevel }

// RegisterBroker announces a new incarnation of a broker. The answer is a
// BrokerRegistered. The broker starts fenced.
type RegisterBroker struct {
	Broker      cluster.BrokerID
	Incarnation cluster.IncarnationID
	Listeners   []Listener
	Rack        string
	LogDirs     []cluster.DirectoryID
	Features    map[string]FeatureRange
	// PreviousEpoch is the broker epoch found in the clean-shutdown files of
	// all log dirs, NoBrokerEpoch after an unclean stop.
	PreviousEpoch cluster.BrokerEpoch
}

// BrokerRegistered answers RegisterBroker.
type BrokerRegistered struct {
	Epoch cluster.BrokerEpoch // also the image index to catch up to before serving
}

// Heartbeat keeps a broker's session alive. The answer is a HeartbeatResult.
type Heartbeat struct {
	Broker       cluster.BrokerID
	Epoch        cluster.BrokerEpoch
	CaughtUpTo   uint64 // image index that the broker has applied
	WantFence    bool
	WantShutdown bool
	OfflineDirs  []cluster.DirectoryID
}

// HeartbeatResult answers Heartbeat.
type HeartbeatResult struct {
	CaughtUp       bool
	Fenced         bool
	ShouldShutDown bool
}

// UnregisterBroker forgets a broker that does not run. The answer is nil.
type UnregisterBroker struct{ Broker cluster.BrokerID }

// UpdateFeatures finalises levels of features, all or none. The answer is nil.
type UpdateFeatures struct {
	Updates      []FeatureUpdate
	ValidateOnly bool
}

// FeatureUpdate is the new level of one feature; level 0 is how a feature is
// absent.
type FeatureUpdate struct {
	Name  string
	Level cluster.FeatureLevel
	Type  FeatureUpdateType
}

// FeatureUpdateType says in which direction a level may go, with Kafka's
// numbers.
type FeatureUpdateType int8

// Types of feature updates.
const (
	FeatureUpgrade         FeatureUpdateType = 1
	FeatureSafeDowngrade   FeatureUpdateType = 2
	FeatureUnsafeDowngrade FeatureUpdateType = 3
)

// CreateTopics creates topics, each on its own. The answer is a
// CreateTopicsResult with one entry a topic, in order.
type CreateTopics struct {
	Topics       []NewTopic
	ValidateOnly bool
}

// NewTopic describes one topic to create.
type NewTopic struct {
	Name        string
	Partitions  int32                // -1: the default
	Replication int16                // -1: the default
	Assignment  [][]cluster.BrokerID // by partition; nil: placed by the controller
	Configs     map[string]string
	Internal    bool
}

// CreateTopicsResult answers CreateTopics.
type CreateTopicsResult struct{ Topics []CreatedTopic }

// CreatedTopic is the outcome for one topic; the other fields are set where Err
// is nil, also for ValidateOnly (ID is then zero).
type CreatedTopic struct {
	Name        string
	ID          cluster.TopicID
	Partitions  int32
	Replication int16
	Err         error
}

// TopicRef names a topic by name, or by id where Name is empty.
type TopicRef struct {
	Name string
	ID   cluster.TopicID
}

// DeleteTopics deletes topics. The answer is an Outcomes.
type DeleteTopics struct{ Topics []TopicRef }

// Outcomes has one entry per item of the request, in order; nil is success.
type Outcomes struct{ Errs []error }

// CreatePartitions raises partition counts. The answer is an Outcomes.
type CreatePartitions struct {
	Topics       []MorePartitions
	ValidateOnly bool
}

// MorePartitions is the new count of one topic.
type MorePartitions struct {
	Name       string
	Total      int32
	Assignment [][]cluster.BrokerID // of the new partitions; nil: placed by the controller
}

// ConfigResourceKind tells what a config belongs to.
type ConfigResourceKind int8

// Kinds of config resources, with Kafka's numbers.
const (
	TopicResource  ConfigResourceKind = 2
	BrokerResource ConfigResourceKind = 4
	GroupResource  ConfigResourceKind = 32
)

// ConfigOpKind is what to do with a key, with Kafka's numbers.
type ConfigOpKind int8

// Operations of an incremental config change.
const (
	ConfigSet      ConfigOpKind = 0
	ConfigDelete   ConfigOpKind = 1
	ConfigAppend   ConfigOpKind = 2
	ConfigSubtract ConfigOpKind = 3
)

// ConfigOp changes one key.
type ConfigOp struct {
	Key   string
	Op    ConfigOpKind
	Value string
}

// AlterConfig changes the keys of one resource, all or none.
type AlterConfig struct {
	Kind ConfigResourceKind
	Name string // topic name, group id, or node id; "" is the cluster-wide broker default
	Ops  []ConfigOp
	// Replace makes the operations the whole set of overrides (AlterConfigs),
	// instead of changes to it.
	Replace bool
}

// AlterConfigs changes configs. The answer is an Outcomes.
type AlterConfigs struct {
	Resources    []AlterConfig
	ValidateOnly bool
}

// ChangeISR proposes a new ISR for a partition. The answer is a
// PartitionState or an error.
type ChangeISR struct {
	Partition      cluster.TopicPartition
	Broker         cluster.BrokerID
	BrokerEpoch    cluster.BrokerEpoch
	LeaderEpoch    cluster.LeaderEpoch
	PartitionEpoch cluster.PartitionEpoch
	ISR            []cluster.BrokerID
}

// AssignDirs says in which log directories a broker has its replicas. The answer
// is nil, or an error that concerns the whole.
type AssignDirs struct {
	Broker cluster.BrokerID
	Epoch  cluster.BrokerEpoch
	Dirs   map[cluster.TopicPartition]cluster.DirectoryID
}

// PartitionState answers ChangeISR.
type PartitionState struct {
	Leader         cluster.BrokerID
	LeaderEpoch    cluster.LeaderEpoch
	PartitionEpoch cluster.PartitionEpoch
	ISR            []cluster.BrokerID
}

// AllocateProducerIDs reserves a block of producer ids. The answer is a
// ProducerIDBlock.
type AllocateProducerIDs struct {
	Broker cluster.BrokerID
	Epoch  cluster.BrokerEpoch
}

// ProducerIDBlock is [First, First+Count).
type ProducerIDBlock struct {
	First cluster.ProducerID
	Count int32
}

// SegmentSpan is what an intent to upload says of a segment.
type SegmentSpan struct {
	ID          cluster.SegmentID
	Base        cluster.Offset // inclusive
	End         cluster.Offset // exclusive
	LeaderEpoch cluster.LeaderEpoch
	Location    string // location id of the store
	Key         string // whole object key
}

// StartSegment records the intent to upload, before the upload. Base must be
// the partition's RemoteEndOffset. The answer is nil.
type StartSegment struct {
	Partition   cluster.TopicPartition
	LeaderEpoch cluster.LeaderEpoch // of the leader that asks
	Span        SegmentSpan
	// Deadline is when the upload is given up for certain; the intent is
	// kept for the sweeper until then, and longer.
	Deadline time.Time
}

// PublishSegment makes an uploaded segment live. The answer is nil; after it
// the catalog durably says that [Base, End) is remote.
type PublishSegment struct {
	Partition   cluster.TopicPartition
	LeaderEpoch cluster.LeaderEpoch // of the leader that asks
	ID          cluster.SegmentID
	Object      ObjectSummary
}

// ObjectSummary is what the catalog keeps of a complete object, so that a
// reader needs neither HEAD nor footer.
type ObjectSummary struct {
	ObjectBytes  int64 // whole object
	SegmentBytes int64 // the record batches, from position 0
	// IndexPosition and IndexBytes span every section after the batches and
	// before the footer, FooterBytes is the footer at the object's end.
	IndexPosition int64
	IndexBytes    int64
	FooterBytes   int64
	MinTimestamp  int64 // ms; -1: none
	MaxTimestamp  int64 // ms; -1: none
	RecordCount   int64
	// LastEpoch is the leader epoch of the last batch, FirstEpoch of the first.
	FirstEpoch, LastEpoch cluster.LeaderEpoch
	FormatVersion         int16
	CRC32C                uint32 // of the whole object
}

// AbandonSegment gives up a started upload: the sweeper may delete whatever
// lies under its key once the deadline has passed. The answer is nil.
type AbandonSegment struct {
	Partition   cluster.TopicPartition
	LeaderEpoch cluster.LeaderEpoch
	ID          cluster.SegmentID
}

// AdvanceLogStart moves the log start offset of a tiered partition forward
// (DeleteRecords, retention), before anything relies on it; live remote
// segments wholly below it expire in the same command. Where Offset lies past
// RemoteEndOffset, every remote segment expires and RemoteEndOffset becomes
// BatchBase, the base offset of the local batch that holds Offset. The answer
// is a LogStart. An Offset at or below the current one changes nothing.
type AdvanceLogStart struct {
	Partition   cluster.TopicPartition
	LeaderEpoch cluster.LeaderEpoch
	Offset      cluster.Offset
	BatchBase   cluster.Offset
}

// LogStart answers AdvanceLogStart.
type LogStart struct{ Offset cluster.Offset }

// RemoveSegments forgets remote segments whose objects have been deleted
// (state gone). Allowed for started-and-abandoned, replaced and expired ones.
// The answer is nil. It also serves deleted topics, which have no leader: the
// sweeper then sends cluster.NoLeaderEpoch.
type RemoveSegments struct {
	Partition   cluster.TopicPartition
	LeaderEpoch cluster.LeaderEpoch
	IDs         []cluster.SegmentID
}

// RemoveDeletedTopic forgets the catalog entries and the tombstone of a deleted
// topic once its objects are gone. The answer is nil.
type RemoveDeletedTopic struct{ Topic cluster.TopicID }

func (RegisterBroker) isRequest()      {}
func (Heartbeat) isRequest()           {}
func (UnregisterBroker) isRequest()    {}
func (UpdateFeatures) isRequest()      {}
func (CreateTopics) isRequest()        {}
func (DeleteTopics) isRequest()        {}
func (CreatePartitions) isRequest()    {}
func (AlterConfigs) isRequest()        {}
func (ChangeISR) isRequest()           {}
func (AssignDirs) isRequest()          {}
func (AllocateProducerIDs) isRequest() {}
func (StartSegment) isRequest()        {}
func (PublishSegment) isRequest()      {}
func (AbandonSegment) isRequest()      {}
func (AdvanceLogStart) isRequest()     {}
func (RemoveSegments) isRequest()      {}
func (RemoveDeletedTopic) isRequest()  {}
