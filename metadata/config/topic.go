package config

import (
	"math"
	"strconv"
	"time"
)

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

// TimestampType tells whose clock stamps a record.
type TimestampType uint8

// Timestamp types.
const (
	CreateTime    TimestampType = 0
	LogAppendTime TimestampType = 1
)

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

	Tiered            bool // remote.storage.enable
	TierCopyDisabled  bool // remote.log.copy.disable
	TierDeleteAllowed bool // remote.log.delete.on.disable
	// A sealed segment may wait for its upload until it is TierCopyLag old, or
	// TierCopyLagBytes of the log follow it, whatever comes first. 0: it does
	// not wait. A lag of -1 does not count; where neither counts, segments wait
	// for local retention.
	TierCopyLag      time.Duration // remote.copy.lag.ms; Forever for -1
	TierCopyLagBytes int64         // remote.copy.lag.bytes; -1 for -1

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
	GzipLevel             int32
	LZ4Level              int32
	ZstdLevel             int32
	MaxDecompressedBytes  int32
	MinInsyncReplicas     int32
	UncleanLeaderElection bool

	DeleteRetention        time.Duration // tombstones
	MinCompactionLag       time.Duration
	MaxCompactionLag       time.Duration
	MinCleanableDirtyRatio float64
	FileDeleteDelay        time.Duration
}

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

// resolved is the value of a topic key with where it comes from.
type resolved struct {
	value  any    // as parse gives it; nil: null
	text   string // canonical
	from   string // the key that said it
	source Source
}

// level is one map of Layers below the topic's own.
type level struct {
	values map[string]string
	source Source
}

func (l Layers) levels() []level {
	return []level{{l.Broker, SourceDynamicBroker}, {l.Cluster, SourceDynamicAll}, {l.Static, SourceStatic}}
}

// resolve finds the value of a topic key. Values that do not parse count as
// absent.
func (l Layers) resolve(k Key) resolved {
	if raw, ok := l.Topic[k.Name]; ok {
		if text, v, err := k.parse(raw); err == nil {
			return resolved{value: v, text: text, from: k.Name, source: SourceTopic}
		}
	}
	for _, lv := range l.levels() {
		for _, name := range k.Synonyms {
			raw, ok := lv.values[name]
			if !ok {
				continue
			}
			if text, v, ok := fromBroker(name, raw); ok {
				return resolved{value: v, text: text, from: name, source: lv.source}
			}
		}
	}
	r := resolved{from: k.Name, source: SourceDefault}
	text := k.Default
	switch {
	case k.Name == "remote.storage.enable" && l.TieredByDefault:
		text = "true"
	case k.Name == "local.retention.bytes" && l.builtinLocalRetention():
		text = strconv.Itoa(builtinLocalRetentionBytes)
	}
	if k.HasDefault {
		r.text, r.value, _ = k.parse(text)
	}
	return r
}

// fromBroker reads the value of a broker synonym in the topic key's unit.
func fromBroker(name, raw string) (text string, v any, ok bool) {
	k, known := brokerTable.byName[name]
	if !known {
		return "", nil, false
	}
	text, v, err := k.parse(raw)
	if err != nil {
		return "", nil, false
	}
	if unit := unitMs[name]; unit != 0 {
		n := v.(int64)
		switch {
		case n < 0:
			n = -1
		case n > math.MaxInt64/unit:
			n = math.MaxInt64
		default:
			n *= unit
		}
		return strconv.FormatInt(n, 10), n, true
	}
	return text, v, true
}

// builtinLocalRetention tells whether the built-in limit of local data holds:
// the topic is tiered, and no level says anything about local retention.
func (l Layers) builtinLocalRetention() bool {
	tier, _ := l.resolve(topicTable.byName["remote.storage.enable"]).value.(bool)
	if !tier {
		return false
	}
	if _, ok := l.Topic["local.retention.ms"]; ok {
		return false
	}
	for _, lv := range l.levels() {
		if _, ok := lv.values["log.local.retention.ms"]; ok {
			return false
		}
	}
	return true
}

func (l Layers) int(name string) int64 {
	v, _ := l.resolve(topicTable.byName[name]).value.(int64)
	return v
}

func (l Layers) bool(name string) bool {
	v, _ := l.resolve(topicTable.byName[name]).value.(bool)
	return v
}

// ms is a duration of which -1 and everything past 292 years is Forever.
func (l Layers) ms(name string) time.Duration { return duration(l.int(name)) }

func duration(ms int64) time.Duration {
	if ms < 0 || ms > math.MaxInt64/int64(time.Millisecond) {
		return Forever
	}
	return time.Duration(ms) * time.Millisecond
}

// EffectiveTopic combines the levels. Values that do not parse (they were
// refused on their way in) count as absent.
func EffectiveTopic(l Layers) Topic {
	t := Topic{
		CleanupPolicy:     cleanup(l),
		RetentionTime:     l.ms("retention.ms"),
		RetentionBytes:    limit(l.int("retention.bytes")),
		Tiered:            l.bool("remote.storage.enable"),
		TierCopyDisabled:  l.bool("remote.log.copy.disable"),
		TierDeleteAllowed: l.bool("remote.log.delete.on.disable"),
		TierCopyLag:       l.ms("remote.copy.lag.ms"),
		TierCopyLagBytes:  l.int("remote.copy.lag.bytes"),
		SegmentBytes:      l.int("segment.bytes"),
		SegmentAge:        l.ms("segment.ms"),
		SegmentJitter:     l.ms("segment.jitter.ms"),
		IndexBytes:        l.int("segment.index.bytes"),
		IndexInterval:     l.int("index.interval.bytes"),
		Preallocate:       l.bool("preallocate"),
		FlushMessages:     l.int("flush.messages"),
		FlushInterval:     l.ms("flush.ms"),

		MaxMessageBytes:       int32(l.int("max.message.bytes")),
		TimestampBeforeMax:    l.ms("message.timestamp.before.max.ms"),
		TimestampAfterMax:     l.ms("message.timestamp.after.max.ms"),
		MaxDecompressedBytes:  int32(l.int("max.decompressed.message.bytes")),
		GzipLevel:             int32(l.int("compression.gzip.level")),
		LZ4Level:              int32(l.int("compression.lz4.level")),
		ZstdLevel:             int32(l.int("compression.zstd.level")),
		MinInsyncReplicas:     int32(l.int("min.insync.replicas")),
		UncleanLeaderElection: l.bool("unclean.leader.election.enable"),

		DeleteRetention:  l.ms("delete.retention.ms"),
		MinCompactionLag: l.ms("min.compaction.lag.ms"),
		MaxCompactionLag: l.ms("max.compaction.lag.ms"),
		FileDeleteDelay:  l.ms("file.delete.delay.ms"),
	}
	t.CompressionType = l.resolve(topicTable.byName["compression.type"]).text
	if l.resolve(topicTable.byName["message.timestamp.type"]).text == "LogAppendTime" {
		t.TimestampType = LogAppendTime
	}
	t.MinCleanableDirtyRatio, _ = l.resolve(topicTable.byName["min.cleanable.dirty.ratio"]).value.(float64)
	if n := l.int("internal.segment.bytes"); n > 0 {
		t.SegmentBytes = n
	}
	t.LocalRetentionTime = t.RetentionTime
	if ms := l.int("local.retention.ms"); ms != -2 {
		t.LocalRetentionTime = min(duration(ms), t.RetentionTime)
	}
	t.LocalRetentionBytes = t.RetentionBytes
	if n := l.int("local.retention.bytes"); n != -2 {
		t.LocalRetentionBytes = min(limit(n), t.RetentionBytes)
	}
	return t
}

// limit is a size of which a negative one means no limit.
func limit(n int64) int64 {
	if n < 0 {
		return Unlimited
	}
	return n
}

func cleanup(l Layers) CleanupPolicy {
	var c CleanupPolicy
	list, _ := l.resolve(topicTable.byName["cleanup.policy"]).value.([]string)
	for _, p := range list {
		switch p {
		case "delete":
			c |= CleanupDelete
		case "compact":
			c |= CleanupCompact
		}
	}
	return c
}
