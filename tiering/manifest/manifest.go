package manifest

import (
	"errors"
	"fmt"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

var (
	// ErrCorrupt is matched by every *CorruptError.
	ErrCorrupt = errors.New("corrupt manifest")
	// ErrVersion: the object was written by a newer release.
	ErrVersion = errors.New("manifest of a newer format")
)

// CorruptError is bytes that are not a manifest or a run.
type CorruptError struct {
	Key      string
	Position int
	Reason   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%q is corrupt at position %d: %s", e.Key, e.Position, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Manifest is what one manifest object says of a partition.
type Manifest struct {
	ClusterID, Location string
	TopicName           string
	Partition           cluster.TopicPartition
	PartitionCount      int32
	Version
	CreatedMs int64
	// Deleted makes it the last manifest: the topic is deleted.
	Deleted  bool
	Internal bool
	LogStart cluster.Offset
	// RemoteEnd is one past the last published offset.
	RemoteEnd cluster.Offset
	// LiveStart is where the live segments start: listed ones that end at or
	// below it are not live any more.
	LiveStart cluster.Offset
	Configs   map[string]string
	Runs      []RunRef
	Segments  []Segment // that are in no run
}

// RunRef names a run: a list of segments in an object of its own, since most of
// a long list does not change from manifest to manifest.
type RunRef struct {
	Key       string
	Base, End cluster.Offset // of the segments in it
	Count     int32
	Bytes     int64
	CRC32C    uint32
}

// Run is the content of a run object.
type Run struct {
	Partition cluster.TopicPartition
	Segments  []Segment
}

// Segment is one live segment.
type Segment struct {
	ID          cluster.SegmentID
	Base, End   cluster.Offset
	LeaderEpoch cluster.LeaderEpoch
	Key         string
	Object      request.ObjectSummary
}

// FromCatalog is what a manifest says of a segment of the catalog.
func FromCatalog(s catalog.Segment) Segment {
	return Segment{ID: s.ID, Base: s.Base, End: s.End, LeaderEpoch: s.LeaderEpoch, Key: s.Key, Object: s.Object}
}

// Names tells whether the manifest may name a segment that ends at end: false
// is certain.
func (m *Manifest) Names(end cluster.Offset) bool { return !m.Deleted && end > m.LiveStart }
