package config

import "math"

const (
	minuteMs = 60 * 1000
	hourMs   = 60 * minuteMs
)

// def is how the tables below are written.
func def(name string, t Type, dflt string, r rule, doc string) Key {
	return Key{Name: name, Type: t, Default: dflt, HasDefault: true, rule: r, Doc: doc}
}

// null is a key without a default.
func null(name string, t Type, r rule, doc string) Key {
	return Key{Name: name, Type: t, rule: r, Doc: doc}
}

func (k Key) synonyms(names ...string) Key { k.Synonyms = names; return k }

func (k Key) ignored(reason string) Key { k.Effect, k.Reason = Ignored, reason; return k }

func (k Key) ours() Key { k.Ours = true; return k }

func atLeast(n int64) rule { return within{n, math.MaxInt64} }

const (
	maxInt64 = "9223372036854775807"
	gib      = "1073741824"
)

// builtinLocalRetentionBytes is what a tiered topic keeps locally where nothing
// says anything about local retention at any level.
const builtinLocalRetentionBytes = 1 << 30

var (
	compressionTypes = oneOf{"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"}
	cleanupPolicies  = oneOf{"compact", "delete"}
	timestampTypes   = oneOf{"CreateTime", "LogAppendTime"}
)

func topicKeys() []Key {
	return []Key{
		def("cleanup.policy", List, "delete", cleanupPolicies,
			"What happens to old data: delete removes segments by retention, compact keeps the last record of each key. "+
				"Compacted topics cannot be tiered. An empty list keeps everything.").
			synonyms("log.cleanup.policy"),
		def("compression.gzip.level", Int, "-1", gzipLevel{}, "Level for compression.type gzip, 1 to 9; -1: the library's own.").
			synonyms("compression.gzip.level"),
		def("compression.lz4.level", Int, "9", within{1, 17}, "Level for compression.type lz4. 9 is the fast compressor, all others the thorough one, which knows nine levels here: "+
			"those above 9 are its highest.").
			synonyms("compression.lz4.level"),
		def("compression.type", String, "producer", compressionTypes,
			"How batches are compressed in the log; producer keeps what the producer sent. A batch with another codec is compressed anew, "+
				"one that has this codec already is stored as it is.").
			synonyms("compression.type"),
		def("compression.zstd.level", Int, "3", within{-131072, 22}, "Level for compression.type zstd. There are four in effect: below 3, 3 to 5, 6 to 9, and above.").
			synonyms("compression.zstd.level"),
		def("delete.retention.ms", Long, "86400000", atLeast(0), "How long compaction keeps a tombstone, or the marker of a transaction, from when nothing is left that it deletes.").
			synonyms("log.cleaner.delete.retention.ms"),
		def("errors.deadletterqueue.group.enable", Bool, "false", nil, "Whether share groups may use this topic as a dead letter queue.").
			ignored("share groups are not implemented yet"),
		def("file.delete.delay.ms", Long, "60000", atLeast(0), "How long a deleted segment file stays on disk under another name.").
			synonyms("log.segment.delete.delay.ms"),
		def("flush.messages", Long, maxInt64, atLeast(1),
			"Force the log to disk after so many records. With 1, no record is acknowledged or served before it is on disk; "+
				"concurrent producers share one flush.").
			synonyms("log.flush.interval.messages"),
		def("flush.ms", Long, maxInt64, atLeast(0), "Force the log to disk once a record has waited so long.").
			synonyms("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
		def("follower.replication.throttled.replicas", List, "", throttled{}, "Replicas whose follower traffic is throttled.").
			ignored("there is no replication traffic to throttle yet"),
		def("index.interval.bytes", Int, "4096", atLeast(0), "Bytes of log between two entries of the offset index.").
			synonyms("log.index.interval.bytes"),
		internal(null("internal.segment.bytes", Int, nil,
			"Segment size below the floor of segment.bytes, for tests and demonstrations.")),
		def("leader.replication.throttled.replicas", List, "", throttled{}, "Replicas whose leader traffic is throttled.").
			ignored("there is no replication traffic to throttle yet"),
		def("local.retention.bytes", Long, "-2", atLeast(-2),
			"Bytes of a tiered partition that stay on the local disk; what is older is read from the tier. -2 is retention.bytes. "+
				"A tiered topic keeps 1073741824 where neither this nor local.retention.ms is set at any level.").
			synonyms("log.local.retention.bytes"),
		def("local.retention.ms", Long, "-2", atLeast(-2),
			"How long data of a tiered partition stays on the local disk. -2 is retention.ms.").
			synonyms("log.local.retention.ms"),
		def("max.compaction.lag.ms", Long, maxInt64, atLeast(1), "The longest time that a record may stay uncompacted. The active segment is sealed at that age, too.").
			synonyms("log.cleaner.max.compaction.lag.ms"),
		def("max.decompressed.message.bytes", Int, "2147483639", within{1, 2147483639},
			"The most that a batch may decompress to where the broker has to look inside; 134217728 at most, whatever is set.").
			synonyms("max.decompressed.message.bytes"),
		def("max.message.bytes", Int, "1048588", atLeast(0), "The largest batch that is accepted, after compression.").
			synonyms("message.max.bytes"),
		def("message.timestamp.after.max.ms", Long, "3600000", atLeast(0),
			"How far a record's timestamp may lie in the future, for CreateTime.").
			synonyms("log.message.timestamp.after.max.ms"),
		def("message.timestamp.before.max.ms", Long, maxInt64, atLeast(0),
			"How far a record's timestamp may lie in the past, for CreateTime.").
			synonyms("log.message.timestamp.before.max.ms"),
		def("message.timestamp.type", String, "CreateTime", timestampTypes, "Whose clock stamps records: the producer's or the broker's.").
			synonyms("log.message.timestamp.type"),
		def("min.cleanable.dirty.ratio", Double, "0.5", within{0, 1}, "How much of a log must be uncompacted before it is compacted. A segment is rewritten where a fifth of that is dead.").
			synonyms("log.cleaner.min.cleanable.ratio"),
		def("min.compaction.lag.ms", Long, "0", atLeast(0), "The shortest time that a record stays uncompacted.").
			synonyms("log.cleaner.min.compaction.lag.ms"),
		def("min.insync.replicas", Int, "1", atLeast(1),
			"How many replicas must have a record before acks=all is answered; never more than the partition has.").
			synonyms("min.insync.replicas"),
		def("preallocate", Bool, "false", nil, "Whether a new segment file is allocated in full.").
			synonyms("log.preallocate").ignored("segment files grow as they are written"),
		def("remote.copy.lag.bytes", Long, "-1", atLeast(-1), "How much of the log may follow a sealed segment before it is uploaded; -1: does not count.").
			synonyms("log.remote.copy.lag.bytes"),
		def("remote.copy.lag.ms", Long, "0", atLeast(-1), "How long a sealed segment waits before it is uploaded; 0: not at all, -1: does not count.").
			synonyms("log.remote.copy.lag.ms"),
		def("remote.log.copy.disable", Bool, "false", nil, "Stop uploading; what is in the tier stays readable."),
		def("remote.log.delete.on.disable", Bool, "false", nil,
			"Allow remote.storage.enable to be turned off, which deletes what is only in the tier."),
		def("remote.storage.enable", Bool, "false", nil,
			"Whether sealed segments go to the tier. A topic that does not say keeps what log.remote.storage.enable was when it was created."),
		def("retention.bytes", Long, "-1", nil, "Bytes of a partition that are kept on both tiers together; -1: no limit.").
			synonyms("log.retention.bytes"),
		def("retention.ms", Long, "604800000", atLeast(-1), "How long data is kept on both tiers; -1: for ever.").
			synonyms("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
		def("segment.bytes", Int, gib, atLeast(1<<20), "Size at which a segment is sealed.").
			synonyms("log.segment.bytes"),
		def("segment.index.bytes", Int, "10485760", atLeast(4), "Size of an index at which a segment is sealed.").
			synonyms("log.index.size.max.bytes"),
		def("segment.jitter.ms", Long, "0", atLeast(0), "Up to how much earlier than segment.ms a segment is sealed, at random.").
			synonyms("log.roll.jitter.ms", "log.roll.jitter.hours"),
		def("segment.ms", Long, "604800000", atLeast(1), "Age at which a segment is sealed even though it is not full.").
			synonyms("log.roll.ms", "log.roll.hours"),
		def("unclean.leader.election.enable", Bool, "false", nil,
			"Whether a replica that may lack acknowledged records can become leader when no other is left.").
			synonyms("unclean.leader.election.enable"),
	}
}

func internal(k Key) Key { k.Internal = true; return k }
