package config

import "time"

// Forever is how an unlimited duration is kept in the typed values.
const Forever time.Duration = 1<<63 - 1

// Unlimited is how an unlimited count or size is kept in the typed values.
const Unlimited int64 = 1<<63 - 1

// CleanupPolicy is a set of policies.
type CleanupPolicy uint8

// Policies.
const (
	CleanupDelete  CleanupPolicy = 1 << 0
	CleanupCompact CleanupPolicy = 1 << 1
)

// Delete tells whether old segments are deleted.
func (c CleanupPolicy) Delete() bool { return c&CleanupDelete != 0 }

// Compact tells whether the log is compacted.
func (c CleanupPolicy) Compact() bool { return c&CleanupCompact != 0 }

// Topic is what holds for one topic once all levels are combined. Durations
// without a limit are Forever, counts and sizes without one Unlimited.
type Topic struct {
	CleanupPolicy CleanupPolicy

	RetentionTime  time.Duration // retention.ms; Forever for -1
	RetentionBytes int64         // retention.bytes; Unlimited for -1

	// LocalRetentionTime and LocalRetentionBytes are resolved: -2 has become
	// the total, and no value is above the total. They hold where Tiered.
	LocalRetentionTime  time.Duration
	LocalRetentionBytes int64

	Tiered             bool // remote.storage.enable
	TierCopyDisabled   bool // remote.log.copy.disable
	TierDeleteDisabled bool // remote.log.delete.on.disable: delete remote data when the tier goes off
	TierCopyLag        time.Duration
	TierCopyLagBytes   int64

	SegmentBytes  int64 // internal.segment.bytes where set
	SegmentAge    time.Duration
	SegmentJitter time.Duration
	IndexBytes    int64
	IndexInterval int64 // bytes between two index entries
	Preallocate   bool

	FlushMessages int64
	FlushInterval time.Duration

	MaxMessageBytes       int32
	TimestampType         TimestampType
	TimestampBeforeMax    time.Duration
	TimestampAfterMax     time.Duration
	CompressionType       string // producer, uncompressed, gzip, snappy, lz4, zstd
	CompressionGzipLevel  int32
	CompressionLZ4Level   int32
	CompressionZstdLevel  int32
	MaxDecompressedBytes  int32
	MinInsyncReplicas     int32
	UncleanLeaderElection bool

	DeleteRetention        time.Duration // tombstones
	MinCompactionLag       time.Duration
	MaxCompactionLag       time.Duration
	MinCleanableDirtyRatio float64
	FileDeleteDelay        time.Duration
}

// TimestampType tells whose clock stamps a record.
type TimestampType uint8

// Timestamp types.
const (
	CreateTime    TimestampType = 0
	LogAppendTime TimestampType = 1
)

// MinISR is how many in-sync replicas acks=all needs in a partition of that
// many replicas: never more than there are.
func (t Topic) MinISR(replicas int) int { return min(int(t.MinInsyncReplicas), replicas) }

// Layers are the levels that a topic's values come from. Any map may be nil.
type Layers struct {
	Topic   map[string]string // the topic's own overrides
	Broker  map[string]string // overrides of this broker
	Cluster map[string]string // overrides of all brokers
	Static  map[string]string // the broker's file, environment and flags
	// TieredByDefault is what was frozen in the topic's record.
	TieredByDefault bool
}

// EffectiveTopic combines the levels. Values that do not parse (they were
// refused on their way in) count as absent.
func EffectiveTopic(l Layers) Topic { return Topic{} }
