package watch

import (
	"context"
	"iter"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// Watch is the node's view of the cluster. All methods may be called from any
// goroutine.
type Watch interface {
	// Image returns the latest image. It costs one atomic load.
	Image() *image.Image

	// Subscribe calls fn with each change, in order, from one goroutine that
	// all subscribers of a node share. The first call brings the whole
	// current image: its delta comes from the empty image. Changes that
	// arrive while fn runs come as one delta. fn must not block for long and
	// must not Submit: it would hold up every other subscriber. cancel waits
	// for a running call, so it must not be called from fn, and no call
	// starts after it returned.
	Subscribe(fn func(img *image.Image, d *image.Delta)) (cancel func())

	// Catalog returns the reader of remote segments.
	Catalog() Catalog

	// Submit asks the controller for a change and waits for its outcome. The
	// result has the type that the request's comment names. Where ctx ends
	// first the change may still happen.
	Submitter
}

// Quorum describes the metadata quorum. Offsets are one past the last entry.
type Quorum struct {
	Leader    cluster.BrokerID // NoBroker: none is known
	Epoch     int64
	Committed uint64 // index of the last committed entry
	Replicas  []QuorumReplica
}

// QuorumReplica is one member of it. What is not known is -1.
type QuorumReplica struct {
	Node       cluster.BrokerID
	Directory  cluster.DirectoryID
	Voter      bool
	LogEnd     int64
	FetchedMs  int64
	CaughtUpMs int64
}

// Submitter is Watch's way to ask for a change, for those that need no more.
type Submitter interface {
	Submit(ctx context.Context, req request.Request) (request.Result, error)
}

// Catalog reads the remote segments of every partition. Summary is kept in
// memory; everything else reads the store, no more than it needs.
type Catalog interface {
	// Summary describes a partition in O(1). False: the catalog never heard
	// of it. The partitions of deleted topics stay until their segments are
	// gone.
	Summary(tp cluster.TopicPartition) (catalog.Summary, bool)

	// FindOffset returns the live segment with Base <= o < End.
	FindOffset(tp cluster.TopicPartition, o cluster.Offset) (catalog.Segment, bool, error)

	// FindTimestamp returns the first live segment that ends past from and
	// whose MaxTimestamp is at least ts.
	FindTimestamp(tp cluster.TopicPartition, ts int64, from cluster.Offset) (catalog.Segment, bool, error)

	// FindEpoch returns the last live segment whose first batch has a leader
	// epoch of at most e (catalog.FindEpoch).
	FindEpoch(tp cluster.TopicPartition, e cluster.LeaderEpoch) (catalog.Segment, bool, error)

	// Find returns a segment by id, whatever its state.
	Find(tp cluster.TopicPartition, id cluster.SegmentID) (catalog.Segment, bool, error)

	// Live yields the live segments whose Base is at or after from, by Base.
	// An error ends it. The sequence is of one moment.
	Live(tp cluster.TopicPartition, from cluster.Offset) iter.Seq2[catalog.Segment, error]

	// Segments yields every segment, whatever its state, whose Base is at or
	// after from, by Base. The segments of a deleted topic come as expired
	// (catalog.DeletedTopic.Effective). It holds the ones that are not live
	// in memory.
	Segments(tp cluster.TopicPartition, from cluster.Offset) iter.Seq2[catalog.Segment, error]

	// Partitions yields every partition that the catalog knows, in order.
	Partitions() iter.Seq[cluster.TopicPartition]

	// DeletedTopics lists the deleted topics that still have segments to
	// remove.
	DeletedTopics() []catalog.DeletedTopic

	// SubscribeCatalog calls fn for each partition whose entry changed, after
	// the change can be read; a topic that was deleted counts as a change of
	// each of its partitions. Several changes of a partition may come as one
	// call. Goroutine and rules are Subscribe's.
	SubscribeCatalog(fn func(tp cluster.TopicPartition)) (cancel func())
}
