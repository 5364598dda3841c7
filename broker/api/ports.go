package api

import (
	"context"
	"errors"

	"strandline/broker/partition"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
	"strandline/metadata/request"
	"strandline/metadata/watch"
)

// Replicas finds the replicas hosted by this broker. Get is called for
// partitions that are in the image; an error that is not partition.ErrStorage
// means that the partition is not hosted here (yet).
type Replicas interface {
	Get(tp cluster.TopicPartition) (Partition, error)
}

// LogDirs are the log directories of this broker. Paths are absolute.
type LogDirs interface {
	// Known says that log.dirs lists the directory.
	Known(dir string) bool
	// Move begins to move a replica to a directory. It fails with
	// partition.ErrStorage where that or the replica is offline, and with
	// ErrReplicaNotAvailable where there is none here.
	Move(tp cluster.TopicPartition, dir string) error
	// Describe tells what lies where, a directory's replicas by topic.
	Describe() []LogDir
}

// LogDir is a log directory; Offline ones hold nothing.
type LogDir struct {
	Path                    string
	Offline                 bool
	TotalBytes, UsableBytes int64 // of the file system; -1 unknown
	Replicas                []LogDirReplica
}

// LogDirReplica is a replica, or with Future the copy of one on its way there,
// which is Lag offsets behind.
type LogDirReplica struct {
	Topic     string
	Partition int32
	Bytes     int64
	Lag       int64
	Future    bool
}

// ErrReplicaNotAvailable: no replica of the partition is on this broker.
var ErrReplicaNotAvailable = errors.New("no replica of the partition on this broker")

// Commit is an append that is not yet as durable as its acks ask.
type Commit interface {
	Done() <-chan struct{}
	Err() error // the outcome, once Done is closed
}

// Partition is what the handlers need of a hosted replica; see
// partition.Partition, which Hosted makes one of these.
type Partition interface {
	Append(req partition.AppendRequest) (partition.AppendResult, Commit, error)
	Read(req partition.ReadRequest) (partition.ReadResult, error)
	ReadRemote(ctx context.Context, req partition.ReadRequest) (partition.ReadResult, error)
	AddWaiter(w *partition.Waiter)
	RemoveWaiter(w *partition.Waiter)
	OffsetsBefore(timestamp int64, max int, replica cluster.BrokerID) ([]cluster.Offset, error)
	ListOffset(ctx context.Context, req partition.ListOffsetRequest) (partition.ListOffsetResult, error)
	DeleteRecords(ctx context.Context, offset cluster.Offset) (cluster.Offset, error)
	Producers() ([]producerstate.Entry, error)
	EpochEnd(current, epoch cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset, error)
}

// Hosted makes a Partition of the real thing.
type Hosted struct{ *partition.Partition }

// Append hides the difference between a nil *Commit and a nil Commit.
func (h Hosted) Append(req partition.AppendRequest) (partition.AppendResult, Commit, error) {
	res, commit, err := h.Partition.Append(req)
	if commit == nil {
		return res, nil, err
	}
	return res, commit, err
}

// Cluster is this node's view of the cluster, and its way to change it.
type Cluster interface {
	// Image returns the latest image; it costs next to nothing.
	Image() *image.Image
	// Submit asks the controller for a change and waits for its outcome.
	Submit(ctx context.Context, req request.Request) (request.Result, error)
	// Quorum describes the metadata quorum.
	Quorum() (watch.Quorum, error)
}
