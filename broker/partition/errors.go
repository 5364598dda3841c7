package partition

import (
	"errors"
	"fmt"
	"strings"
)

// Outcomes that broker/api maps to Kafka codes.
var (
	// ErrNotLeader: this replica does not lead the partition.
	ErrNotLeader = errors.New("not the leader of the partition")
	// ErrFencedLeaderEpoch: the request names an older leader epoch.
	ErrFencedLeaderEpoch = errors.New("fenced leader epoch")
	// ErrUnknownLeaderEpoch: the request names a leader epoch not seen yet.
	ErrUnknownLeaderEpoch = errors.New("unknown leader epoch")
	// ErrOffsetOutOfRange: below LogStartOffset or past the end.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrOffsetNotAvailable: the high watermark has not reached this leader's
	// first offset yet.
	ErrOffsetNotAvailable = errors.New("offset not available yet")
	// ErrUnsupportedTimestamp: a special timestamp that nobody defined.
	ErrUnsupportedTimestamp = errors.New("unsupported special timestamp")
	// ErrCorruptBatch: length, CRC or framing of a produced batch is wrong.
	ErrCorruptBatch = errors.New("corrupt record batch")
	// ErrUnsupportedMagic: a message format that this log does not take.
	ErrUnsupportedMagic = errors.New("unsupported record batch format")
	// ErrUnsupportedCompression: an unknown codec.
	ErrUnsupportedCompression = errors.New("unsupported compression")
	// ErrMessageTooLarge: a batch is larger than max.message.bytes.
	ErrMessageTooLarge = errors.New("record batch larger than max.message.bytes")
	// ErrRecordListTooLarge: an append is larger than a segment.
	ErrRecordListTooLarge = errors.New("record batches larger than a segment")
	// ErrInvalidTimestamp: a timestamp is outside the topic's bounds.
	ErrInvalidTimestamp = errors.New("record timestamp out of bounds")
	// ErrInvalidRecord: a record or batch breaks a rule of the topic.
	ErrInvalidRecord = errors.New("invalid record")
	// ErrOutOfOrderSequence: a gap in an idempotent producer's sequence.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrInvalidProducerEpoch: the producer was fenced by a newer one.
	ErrInvalidProducerEpoch = errors.New("fenced producer epoch")
	// ErrInvalidTxnState: a batch outside the transaction that its producer
	// has open.
	ErrInvalidTxnState = errors.New("invalid transaction state")
	// ErrCoordinatorFenced: a marker of a former transaction coordinator.
	ErrCoordinatorFenced = errors.New("fenced transaction coordinator")
	// ErrNotEnoughReplicas: the in-sync set is below min.insync.replicas, and
	// nothing was appended.
	ErrNotEnoughReplicas = errors.New("not enough in-sync replicas")
	// ErrNotEnoughReplicasAfterAppend: the same, found after the append.
	ErrNotEnoughReplicasAfterAppend = errors.New("not enough in-sync replicas after the append")
	// ErrPolicyViolation: records of a topic that does not delete cannot be
	// deleted by offset.
	ErrPolicyViolation = errors.New("the topic's cleanup.policy does not delete")
	// ErrDiskFull: free space of the log directory is below its reserve.
	ErrDiskFull = errors.New("free disk space is below disk.reserved.bytes")
	// ErrStorage: the log failed or is corrupt; the replica is offline.
	ErrStorage = errors.New("log storage failed")
	// ErrRemoteTimeout: a remote read outlived its context; it goes on into
	// the cache.
	ErrRemoteTimeout = errors.New("remote read still under way")
	// ErrRemote: the remote tier failed; retriable.
	ErrRemote = errors.New("remote tier failed")
	// ErrClosed: the replica is closed or being deleted.
	ErrClosed = errors.New("partition closed")
)

// RecordError names one refused record: its index in its batch and why.
type RecordError struct {
	BatchIndex int32
	Message    string
}

// InvalidRecordError refuses an append because of single records. Reason is
// ErrInvalidRecord or ErrInvalidTimestamp, and errors.Is sees it.
type InvalidRecordError struct {
	Records []RecordError
	Reason  error
}

func (e *InvalidRecordError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %d records refused", e.Reason, len(e.Records))
	if len(e.Records) > 0 {
		fmt.Fprintf(&b, ", first at index %d: %s", e.Records[0].BatchIndex, e.Records[0].Message)
	}
	return b.String()
}

func (e *InvalidRecordError) Unwrap() error { return e.Reason }
