package request

import (
	"errors"
	"fmt"
)

// Outcomes of a refused request. broker/api maps them to Kafka codes.
var (
	ErrNotController           = errors.New("this node is not the active controller")
	ErrOutcomeUnknown          = errors.New("the outcome of the change is not known; try again")
	ErrTopicExists             = errors.New("topic already exists")
	ErrUnknownTopic            = errors.New("unknown topic or partition")
	ErrUnknownTopicID          = errors.New("unknown topic id")
	ErrInvalidTopicName        = errors.New("invalid topic name")
	ErrInvalidPartitions       = errors.New("invalid number of partitions")
	ErrInvalidReplicas         = errors.New("invalid replication factor")
	ErrInvalidAssignment       = errors.New("invalid replica assignment")
	ErrInvalidConfig           = errors.New("invalid config")
	ErrPolicyViolation         = errors.New("policy violation")
	ErrInvalidRequest          = errors.New("invalid request")
	ErrFencedLeaderEpoch       = errors.New("fenced leader epoch")
	ErrStalePartitionEpoch     = errors.New("stale partition epoch")
	ErrStaleBrokerEpoch        = errors.New("stale broker epoch")
	ErrUnknownBroker           = errors.New("unknown broker")
	ErrDuplicateBroker         = errors.New("another live broker has this node id")
	ErrOffsetOutOfRange        = errors.New("offset out of range")
	ErrSegmentNotContiguous    = errors.New("segment does not start at the remote end offset")
	ErrUnknownSegment          = errors.New("unknown remote segment")
	ErrInvalidSegmentState     = errors.New("remote segment is in another state")
	ErrUnsupportedFeatureLevel = errors.New("feature level is not supported by every broker")
)

// More outcomes.
var (
	ErrInvalidFeatureUpdate  = errors.New("invalid feature update")
	ErrTopicDeletionDisabled = errors.New("topic deletion is disabled")
	ErrIneligibleReplica     = errors.New("a replica may not join the ISR")
	ErrTooManySegments       = errors.New("too many unfinished remote segments")
)

// Error is a refusal with the sentence that a client is shown: Error() is that
// sentence alone, and errors.Is finds the sentinel in Kind.
type Error struct {
	Kind    error // one of the sentinels of this package
	Message string
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives the sentinel.
func (e *Error) Unwrap() error { return e.Kind }

// Refuse builds an *Error.
func Refuse(kind error, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
