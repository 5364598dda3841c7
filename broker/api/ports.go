package api

import (
	"context"

	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// Replicas finds the replicas hosted by this broker. Get is called for
// partitions that are in the image; an error that is not partition.ErrStorage
// means that the partition is not hosted here (yet).
type Replicas interface {
	Get(tp cluster.TopicPartition) (Partition, error)
}

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
}
