package cluster

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
)

// BrokerID is a node id (Kafka: node.id). NoBroker stands for "none".
type BrokerID int32

// NoBroker is the absent broker, as in a partition without a leader.
const NoBroker BrokerID = -1

// Offset is the position of a record in a partition.
type Offset int64

// NoOffset is what the protocol answers where no offset is known.
const NoOffset Offset = -1

// LeaderEpoch counts the tenures of a partition's leaders; it rises at each
// election and at each restart of the leader.
type LeaderEpoch int32

// NoLeaderEpoch is what the protocol sends where no leader epoch is known.
const NoLeaderEpoch LeaderEpoch = -1

// PartitionEpoch counts the changes of a partition's record in the image.
type PartitionEpoch int32

// BrokerEpoch names one incarnation of a broker: the Raft index at which it was
// registered.
type BrokerEpoch int64

// NoBrokerEpoch is the absent broker epoch.
const NoBrokerEpoch BrokerEpoch = -1

// ControllerEpoch names one tenure of a controller: its Raft term.
type ControllerEpoch int64

// ProducerID identifies an idempotent or transactional producer.
type ProducerID int64

// NoProducerID marks a batch of a producer that is not idempotent.
const NoProducerID ProducerID = -1

// ProducerEpoch fences earlier instances of a producer id.
type ProducerEpoch int16

// NoProducerEpoch marks a batch of a producer that is not idempotent.
const NoProducerEpoch ProducerEpoch = -1

// FeatureLevel is a finalised level of a named feature (KIP-584); 0 is off.
type FeatureLevel int16

// UUID is a 128-bit identifier in Kafka's text form: 22 characters of URL-safe
// base64 without padding.
type UUID [16]byte

// TopicID identifies a topic for ever: a topic created again under the same
// name has another one (KIP-516).
type TopicID UUID

// DirectoryID identifies a log or metadata directory (KIP-858).
type DirectoryID UUID

// IncarnationID identifies one run of a broker process.
type IncarnationID UUID

// SegmentID identifies one upload of a segment.
type SegmentID UUID

// TopicPartition names a partition by its topic's id.
type TopicPartition struct {
	Topic     TopicID
	Partition int32
}

// NewUUID returns a random identifier whose text form does not start with a
// dash, so that it can be typed as a command-line argument. The first two
// values are reserved by Kafka and never returned.
func NewUUID() UUID {
	for {
		var u UUID
		_, _ = rand.Read(u[:])
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		if u.String()[0] != '-' {
			return u
		}
	}
}

// ErrBadUUID is returned by ParseUUID.
var ErrBadUUID = errors.New("not an identifier: want 22 characters of URL-safe base64")

// ParseUUID reads the text form.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(u) {
		return u, fmt.Errorf("%q: %w", s, ErrBadUUID)
	}
	copy(u[:], b)
	return u, nil
}

func (u UUID) String() string           { return base64.RawURLEncoding.EncodeToString(u[:]) }
func (u UUID) IsZero() bool             { return u == UUID{} }
func (t TopicID) String() string        { return UUID(t).String() }
func (t TopicID) IsZero() bool          { return t == TopicID{} }
func (d DirectoryID) String() string    { return UUID(d).String() }
func (d DirectoryID) IsZero() bool      { return d == DirectoryID{} }
func (i IncarnationID) String() string  { return UUID(i).String() }
func (s SegmentID) String() string      { return UUID(s).String() }
func (t TopicPartition) String() string { return fmt.Sprintf("%s-%d", t.Topic, t.Partition) }

// NewTopicID returns a random topic id.
func NewTopicID() TopicID { return TopicID(NewUUID()) }

// NewDirectoryID returns a random directory id.
func NewDirectoryID() DirectoryID { return DirectoryID(NewUUID()) }

// NewIncarnationID returns a random incarnation id.
func NewIncarnationID() IncarnationID { return IncarnationID(NewUUID()) }

// NewSegmentID returns a random segment id.
func NewSegmentID() SegmentID { return SegmentID(NewUUID()) }
