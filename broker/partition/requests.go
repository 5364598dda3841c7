package partition

import (
	"time"

	"strandline/broker/locallog"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Origin tells who appends.
type Origin int8

// Origins of an append.
const (
	// FromClient: a produce request; the strictest checks.
	FromClient Origin = iota
	// FromCoordinator: a coordinator or a transaction marker of this broker.
	FromCoordinator
)

// AppendRequest is one append to one partition.
type AppendRequest struct {
	// Records holds whole batches. They are patched in place (base offset,
	// leader epoch, for LogAppendTime the timestamp) and not kept after
	// Append returned.
	Records []byte
	// MessageSet says that Records is a message set of format v0 or v1 that a
	// client sent.
	MessageSet         bool
	CurrentLeaderEpoch cluster.LeaderEpoch // NoLeaderEpoch: not checked
	RequiredAcks       int16               // 0, 1 or -1 (all)
	Origin             Origin
	// FlushLater leaves the sync that the append may need to the caller's
	// FlushAppended. Append returns no Commit then: the caller sees by the high
	// watermark what became of it.
	FlushLater bool
}

// AppendResult is the outcome of an append.
type AppendResult struct {
	BaseOffset     cluster.Offset // of the first record, the original's for a duplicate
	LastOffset     cluster.Offset
	LogAppendTime  int64 // ms; -1 unless the topic stamps records itself
	LogStartOffset cluster.Offset
	LeaderEpoch    cluster.LeaderEpoch
	Duplicate      bool // the batch had been appended before
	// Upgraded counts the records that came in an old format, Recompressed
	// those of a batch whose codec was not the topic's.
	Upgraded, Recompressed int
}

// Tier says where bytes were read from.
type Tier int8

// Tiers.
const (
	Local Tier = iota
	Remote
)

func (t Tier) String() string {
	if t == Remote {
		return "remote"
	}
	return "local"
}

// ReadRequest is one read of one partition.
type ReadRequest struct {
	Offset             cluster.Offset
	MaxBytes           int
	MinOneBatch        bool // return the first batch even where it is larger than MaxBytes
	ReadCommitted      bool
	CurrentLeaderEpoch cluster.LeaderEpoch // NoLeaderEpoch: not checked
	LastFetchedEpoch   cluster.LeaderEpoch // NoLeaderEpoch: not checked
	Replica            cluster.BrokerID    // NoBroker: a consumer
}

// ReadResult is what a read found. Offsets are always set where the error is
// nil. The caller owns the regions and releases each of them once.
type ReadResult struct {
	Regions          []disk.Region
	Bytes            int
	NextOffset       cluster.Offset // exclusive end of the batches returned; Offset of the request where none
	HighWatermark    cluster.Offset
	LastStableOffset cluster.Offset
	LogStartOffset   cluster.Offset
	Aborted          []producerstate.AbortedTxn // for ReadCommitted
	Tier             Tier                       // of the bytes, for metrics
	// Remote says that the offset lies in the remote tier only: nothing was
	// read, ReadRemote will.
	Remote bool
	// Diverging is set where LastFetchedEpoch does not fit this log: nothing
	// was read, the follower truncates.
	Diverging *Divergence
}

// Divergence is the end of the newest epoch that both logs may share.
type Divergence struct {
	LeaderEpoch cluster.LeaderEpoch
	EndOffset   cluster.Offset // exclusive
}

// Release gives back every region.
func (r *ReadResult) Release() {
	for _, region := range r.Regions {
		region.Release()
	}
	r.Regions = nil
}

// Special timestamps of ListOffset.
const (
	LatestTimestamp        int64 = -1
	EarliestTimestamp      int64 = -2
	MaxTimestamp           int64 = -3
	EarliestLocalTimestamp int64 = -4
	LatestTieredTimestamp  int64 = -5
	EarliestPendingUpload  int64 = -6
)

// ListOffsetRequest asks for an offset by time or by a special timestamp.
type ListOffsetRequest struct {
	Timestamp          int64 // ms since 1970, or one of the special timestamps
	ReadCommitted      bool
	Replica            cluster.BrokerID    // NoBroker: a consumer
	CurrentLeaderEpoch cluster.LeaderEpoch // NoLeaderEpoch: not checked
}

// ListOffsetResult answers it: offset -1 and timestamp -1 where there is none.
type ListOffsetResult struct {
	Offset      cluster.Offset
	Timestamp   int64 // ms; -1 for special timestamps other than MaxTimestamp
	LeaderEpoch cluster.LeaderEpoch
}

// Waiter is woken by a partition that it was added to: a value arrives in C
// when the high watermark, the last stable offset, the log start offset or the
// role changed. C has room for one value; a Waiter may be added to several
// partitions. To miss nothing, add first, then read, then wait.
type Waiter struct{ C chan struct{} }

// NewWaiter returns a waiter.
func NewWaiter() *Waiter { return &Waiter{C: make(chan struct{}, 1)} }

// Leadership is what the image says of the partition.
type Leadership struct {
	Leader         cluster.BrokerID // NoBroker: none
	LeaderEpoch    cluster.LeaderEpoch
	PartitionEpoch cluster.PartitionEpoch
	Replicas       []cluster.BrokerID
	ISR            []cluster.BrokerID
}

// Status describes the replica for tools.
type Status struct {
	Topic               string
	Partition           cluster.TopicPartition
	Leader              cluster.BrokerID
	LeaderEpoch         cluster.LeaderEpoch
	Leading             bool
	Tiered              bool // remote.storage.enable
	Remote              bool // the catalog knows the partition, or will: Tiered, or it was
	LogStartOffset      cluster.Offset
	LocalLogStartOffset cluster.Offset
	RemoteEndOffset     cluster.Offset // LogStartOffset where nothing is remote
	LastStableOffset    cluster.Offset
	HighWatermark       cluster.Offset
	FlushedOffset       cluster.Offset
	LogEndOffset        cluster.Offset
	LocalBytes          int64
	RemoteBytes         int64 // of the live remote segments
	Segments            []locallog.SegmentInfo
	PendingSegments     int       // sealed, not yet remote (tiered only)
	PendingBytes        int64     // of those
	OldestPending       time.Time // last write of the first of those; zero: none
	Offline             error     // why the replica is offline; nil: it is not
}
