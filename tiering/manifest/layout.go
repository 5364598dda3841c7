package manifest

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"strandline/metadata/cluster"
	"strandline/tiering/objstore"
)

// Layout is where things lie in a location.
type Layout struct {
	Store    objstore.Location
	Location string // location id
}

// SegmentSuffix ends the keys of segment objects.
const SegmentSuffix = ".seg"

const (
	manifestName = "manifest-"
	runName      = "run-"
	ownerFolder  = "owner"
)

// Root is the prefix of everything but owner objects.
func (l Layout) Root() string { return l.Store.Key(l.Location) + "/" }

// PartitionPrefix is the prefix of everything of a partition.
func (l Layout) PartitionPrefix(tp cluster.TopicPartition) string {
	return l.Store.Key(l.Location, shard(tp), tp.Topic.String(), strconv.Itoa(int(tp.Partition))) + "/"
}

// SegmentKey is the key for an upload.
func (l Layout) SegmentKey(tp cluster.TopicPartition, base cluster.Offset, id cluster.SegmentID) string {
	return fmt.Sprintf("%s%020d-%s%s", l.PartitionPrefix(tp), base, id, SegmentSuffix)
}

// ManifestPrefix is the prefix of a partition's manifests.
func (l Layout) ManifestPrefix(tp cluster.TopicPartition) string {
	return l.PartitionPrefix(tp) + manifestName
}

// ManifestKey is the key of a manifest.
func (l Layout) ManifestKey(tp cluster.TopicPartition, v Version) string {
	return fmt.Sprintf("%s%010d-%020d", l.ManifestPrefix(tp), v.LeaderEpoch, v.Sequence)
}

func (l Layout) runKey(tp cluster.TopicPartition, base cluster.Offset, id cluster.UUID) string {
	return fmt.Sprintf("%s%s%020d-%s", l.PartitionPrefix(tp), runName, base, id)
}

func shard(tp cluster.TopicPartition) string {
	h := fnv.New32a()
	_, _ = h.Write(tp.Topic[:])
	_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(tp.Partition)))
	return fmt.Sprintf("%02x", h.Sum32()&0xff)
}

// Version orders the manifests of a partition.
type Version struct {
	LeaderEpoch cluster.LeaderEpoch
	Sequence    uint64
}

// Less tells whether v is superseded by w.
func (v Version) Less(w Version) bool {
	if v.LeaderEpoch != w.LeaderEpoch {
		return v.LeaderEpoch < w.LeaderEpoch
	}
	return v.Sequence < w.Sequence
}

func (v Version) String() string { return fmt.Sprintf("%d-%d", v.LeaderEpoch, v.Sequence) }

// parseManifestKey reads the version from the part of a key after
// ManifestPrefix.
func parseManifestKey(name string) (Version, bool) {
	epoch, sequence, ok := strings.Cut(name, "-")
	if !ok || len(epoch) != 10 || len(sequence) != 20 {
		return Version{}, false
	}
	e, err := strconv.ParseUint(epoch, 10, 31)
	if err != nil {
		return Version{}, false
	}
	s, err := strconv.ParseUint(sequence, 10, 64)
	if err != nil {
		return Version{}, false
	}
	return Version{cluster.LeaderEpoch(e), s}, true
}

// ObjectKind is what a key below Root is of.
type ObjectKind int8

// Kinds of objects.
const (
	OtherObject ObjectKind = iota
	SegmentObject
	ManifestObject
	RunObject
)

// ParseKey tells which partition a key below Root belongs to, and what it is of;
// false for keys that this layout would not make.
func (l Layout) ParseKey(key string) (cluster.TopicPartition, ObjectKind, bool) {
	var tp cluster.TopicPartition
	rest, ok := strings.CutPrefix(key, l.Root())
	if !ok {
		return tp, OtherObject, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 4 {
		return tp, OtherObject, false
	}
	id, err := cluster.ParseUUID(parts[1])
	n, err2 := strconv.ParseInt(parts[2], 10, 32)
	if err != nil || err2 != nil {
		return tp, OtherObject, false
	}
	tp = cluster.TopicPartition{Topic: cluster.TopicID(id), Partition: int32(n)}
	if shard(tp) != parts[0] {
		return tp, OtherObject, false
	}
	switch name := parts[3]; {
	case strings.HasSuffix(name, SegmentSuffix):
		return tp, SegmentObject, true
	case strings.HasPrefix(name, manifestName):
		return tp, ManifestObject, true
	case strings.HasPrefix(name, runName):
		return tp, RunObject, true
	}
	return tp, OtherObject, true
}
