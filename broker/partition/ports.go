package partition

import (
	"context"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// RemoteLog is what the data plane needs of a remote tier. All methods may be
// called from several goroutines at once. Methods without a context answer from
// memory and never block; the others may read an object, and end with the
// context's error when it ends.
type RemoteLog interface {
	// RemoteEndOffset returns one past the last published offset, and whether
	// the catalog knows the partition at all. It only rises.
	RemoteEndOffset(tp cluster.TopicPartition) (end cluster.Offset, known bool)
	// LogStartOffset returns the log start offset that the catalog holds.
	LogStartOffset(tp cluster.TopicPartition) (start cluster.Offset, known bool)
	// LiveBytes returns the bytes of the live remote segments, 0 if unknown.
	LiveBytes(tp cluster.TopicPartition) int64
	// Read returns whole batches from the one that holds the offset on. It
	// fails with ErrOffsetOutOfRange where no live segment holds the offset,
	// and with the context's error while the read goes on into the cache.
	Read(ctx context.Context, tp cluster.TopicPartition, read RemoteRead) (RemoteSlice, error)
	// OffsetForTimestamp finds the first record at or above from with a
	// timestamp at or above ts; ok is false where the tier has none.
	OffsetForTimestamp(ctx context.Context, tp cluster.TopicPartition, ts int64, from cluster.Offset) (found TimestampOffset, ok bool, err error)
	// EpochEnd answers as leaderepoch.List.EndOffset for epochs that only the
	// catalog still knows.
	EpochEnd(tp cluster.TopicPartition, epoch cluster.LeaderEpoch) (found cluster.LeaderEpoch, end cluster.Offset, ok bool)
	// Aborted returns the aborted transactions that overlap [from, to).
	Aborted(ctx context.Context, tp cluster.TopicPartition, from, to cluster.Offset) ([]producerstate.AbortedTxn, error)
	// State returns what a leader needs to continue at RemoteEndOffset.
	State(ctx context.Context, tp cluster.TopicPartition) (RemoteState, error)
}

// RemoteRead is one read of the remote tier.
type RemoteRead struct {
	Offset      cluster.Offset
	Bound       cluster.Offset // exclusive: no batch that reaches it or past it, 0 bytes is then the answer
	MaxBytes    int
	MinOneBatch bool // return the first batch even where it is larger than MaxBytes
}

// RemoteSlice is what a remote read found. The caller owns the regions and
// releases each of them once.
type RemoteSlice struct {
	Regions    []disk.Region
	Bytes      int
	NextOffset cluster.Offset // exclusive end of the batches returned
}

// TimestampOffset is the answer of a lookup by time.
type TimestampOffset struct {
	Offset      cluster.Offset
	Timestamp   int64 // ms
	LeaderEpoch cluster.LeaderEpoch
}

// RemoteState is what the last remote segment says of the partition at End.
type RemoteState struct {
	Epochs           []leaderepoch.Entry
	ProducerSnapshot []byte // in the format of broker/producerstate
	End              cluster.Offset
}

// LogStartKeeper keeps log start offsets of tiered partitions, in the catalog.
type LogStartKeeper interface {
	// Advance moves the log start offset forward under the leader epoch and
	// returns what it is then; it is durable when Advance returns nil.
	// batchBase is the base offset of the local batch that holds offset, or
	// offset itself where it is the end of the log.
	Advance(ctx context.Context, tp cluster.TopicPartition, epoch cluster.LeaderEpoch, offset, batchBase cluster.Offset) (cluster.Offset, error)
}

// LogStartCheckpoint keeps log start offsets of partitions without a tier, in
// the log directory's log-start-offset-checkpoint.
type LogStartCheckpoint interface {
	// Persist returns nil once the offset is durable. Concurrent calls may
	// share one write.
	Persist(ctx context.Context, tp cluster.TopicPartition, offset cluster.Offset) error
}

// ISRChanger proposes a new in-sync set to the controller. It does not wait: the
// outcome arrives with the image.
type ISRChanger interface {
	Propose(tp cluster.TopicPartition, epoch cluster.LeaderEpoch, partitionEpoch cluster.PartitionEpoch, isr []cluster.BrokerID)
}
