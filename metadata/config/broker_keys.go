package config

import "math"

func clusterWide(k Key) Key { k.Dynamic = ClusterWide; return k }

// brokerKeys are the keys of a node, those of the tier apart.
func brokerKeys() []Key {
	return append([]Key{
		def("node.id", Int, "1", atLeast(0), "Number of this node; each node of a cluster has its own."),
		null("broker.id", Int, atLeast(-1), "Old name of node.id."),
		def("process.roles", List, "broker,controller", oneOf{"broker", "controller"}, "What this node does."),
		null("broker.rack", String, nil, "Rack of this node; replicas are spread over racks."),
		null("controller.quorum.voters", List, nil,
			"Voters of the metadata quorum as id@host:port, comma separated. Not set: this node is the only one."),
		null("controller.listener.names", List, nil, "Names of the listeners that serve other nodes' metadata requests."),
		def("log.dirs", List, "./data/logs", notEmpty{}, "Directories of the logs."),
		null("log.dir", List, nil, "Directory of the logs where log.dirs is not set."),
		def("metadata.log.dir", String, "./data/metadata", notEmpty{}, "Directory of the cluster metadata."),
		def("listeners", List, "PLAINTEXT://localhost:9092", notEmpty{},
			"Where to listen, as NAME://host:port. Port 0 takes a free one. localhost is both 127.0.0.1 and ::1."),
		null("advertised.listeners", List, nil,
			"What clients are told to connect to. Needed where listeners binds every address. Port 0 is the bound port."),
		def("listener.security.protocol.map", List,
			"SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", nil,
			"Security protocol of each listener name. Only PLAINTEXT is implemented."),
		null("inter.broker.listener.name", String, nil, "Listener that other brokers use. Not set: the first one.").
			ignored("there are no other brokers yet"),
		def("admin.listeners", List, "http://localhost:9644", nil,
			"Where health, metrics and status are served; empty: nowhere.").ours(),
		def("log.format", String, "text", oneOf{"text", "json"}, "Form of the log on standard error.").ours(),
		def("log.level", String, "info", oneOf{"debug", "info", "warn", "error"}, "The least important log lines to write.").ours(),
		null("ready.file", String, nil, "File that gets the ready line as JSON once the broker serves.").ours(),
		def("auto.create.topics.enable", Bool, "true", nil, "Whether a client that asks for a missing topic creates it."),
		def("delete.topic.enable", Bool, "true", nil, "Whether topics can be deleted."),
		def("num.partitions", Int, "1", atLeast(1), "Partitions of a new topic that does not say."),
		def("default.replication.factor", Int, "1", within{1, math.MaxInt16}, "Replicas of a new topic that does not say."),
		def("max.request.partition.size.limit", Int, "2000", atLeast(1), "Partitions that one DescribeTopicPartitions answer holds."),
		def("broker.heartbeat.interval.ms", Int, "2000", atLeast(1), "How often a broker tells the controller that it lives."),
		def("broker.session.timeout.ms", Int, "9000", atLeast(1), "How long a silent broker keeps its partitions."),
		def("initial.broker.registration.timeout.ms", Int, "60000", atLeast(1), "How long a broker tries to register before it exits."),
		def("controlled.shutdown.enable", Bool, "true", nil, "Whether a stopping broker hands its partitions over first."),
		def("log.retention.check.interval.ms", Long, "300000", atLeast(1), "How often retention runs."),
		internal(def("log.initial.task.delay.ms", Long, "30000", atLeast(0), "How long after start background work on logs begins.")),
		def("num.recovery.threads.per.data.dir", Int, "2", atLeast(1), "Logs of one directory that are opened at once."),
		def("log.flush.offset.checkpoint.interval.ms", Int, "60000", atLeast(0), "How often recovery points are written."),
		def("log.flush.start.offset.checkpoint.interval.ms", Int, "60000", atLeast(0), "How often log start offsets are written."),
		def("replica.high.watermark.checkpoint.interval.ms", Long, "5000", atLeast(1), "How often high watermarks are written."),
		clusterWide(def("log.flush.scheduler.interval.ms", Long, maxInt64, atLeast(0), "Default of flush.ms where log.flush.interval.ms is not set.")),
		def("producer.id.expiration.ms", Int, "86400000", atLeast(1), "How long an idle producer's sequence is remembered."),
		internal(def("producer.id.expiration.check.interval.ms", Int, "600000", atLeast(1), "How often idle producers are forgotten.").
			ignored("idle producers are forgotten within a second of their expiration")),
		def("replica.lag.time.max.ms", Long, "30000", atLeast(1), "How long a follower may lag before it leaves the in-sync replicas.").
			ignored("a partition has one replica, there are no followers yet"),
		def("socket.send.buffer.bytes", Int, "102400", atLeast(-1), "Send buffer of a connection; -1: the system's."),
		def("socket.receive.buffer.bytes", Int, "102400", atLeast(-1), "Receive buffer of a connection; -1: the system's."),
		def("socket.request.max.bytes", Int, "104857600", atLeast(1), "The largest request that is read."),
		def("connections.max.idle.ms", Long, "600000", nil, "How long an idle connection stays open; negative: for ever."),
		def("max.connections", Int, "2147483647", atLeast(0), "Connections of the broker."),
		def("max.connections.per.ip", Int, "2147483647", atLeast(0), "Connections of one address."),
		def("queued.max.requests", Int, "500", atLeast(1), "Requests in progress on the broker.").
			ignored("requests in progress are bounded for each connection: 256"),
		def("queued.max.request.bytes", Long, "-1", nil, "Bytes of requests in progress; -1: no limit.").
			ignored("bytes of requests in progress are bounded for each connection: 128 MiB"),
		def("fetch.max.bytes", Int, "57671680", atLeast(1024), "The most that one fetch returns."),
		def("compat.legacy.clients", Bool, "false", nil,
			"Whether clients of Kafka 0.8 to 0.10, whose message formats Kafka 4 no longer reads, are served: Produce 0 to 2, Fetch 0 to 3, ListOffsets 0.").ours(),
		def("max.incremental.fetch.session.cache.slots", Int, "1000", atLeast(0), "Fetch sessions that are kept; 0: none, every fetch is a full one."),
		def("metrics.partition.series.max", Int, "1000", atLeast(0),
			"Series per partition that a metric such as strandline_group_lag shows at most; 0: none.").ours(),
		def("request.timeout.ms", Int, "30000", atLeast(1), "How long the controller may take where the client does not say how long it waits."),
		def("disk.reserved.bytes", Long, "268435456", atLeast(0),
			"Free bytes of a log or metadata directory below which produce is refused with a retriable error. The remote cache leaves twice as many free.").ours(),
	}, topicDefaults()...)
}

// topicDefaults are the broker keys that give topic keys their defaults.
func topicDefaults() []Key {
	keys := []Key{
		clusterWide(null("log.retention.ms", Long, atLeast(-1), "Default of retention.ms.")),
		null("log.retention.minutes", Int, nil, "Default of retention.ms in minutes, where log.retention.ms is not set."),
		def("log.retention.hours", Int, "168", nil, "Default of retention.ms in hours, where the two above are not set."),
		clusterWide(null("log.roll.ms", Long, atLeast(1), "Default of segment.ms.")),
		def("log.roll.hours", Int, "168", atLeast(1), "Default of segment.ms in hours, where log.roll.ms is not set."),
		clusterWide(null("log.roll.jitter.ms", Long, atLeast(0), "Default of segment.jitter.ms.")),
		def("log.roll.jitter.hours", Int, "0", atLeast(0), "Default of segment.jitter.ms in hours, where log.roll.jitter.ms is not set."),
		clusterWide(null("log.flush.interval.ms", Long, atLeast(0), "Default of flush.ms.")),
		clusterWide(def("log.local.retention.bytes", Long, gib, atLeast(-2),
			"Default of local.retention.bytes for tiered topics. The built-in value yields to any local.retention.ms or log.local.retention.ms.")),
	}
	special := map[string]bool{"log.flush.scheduler.interval.ms": true}
	for _, k := range keys {
		special[k.Name] = true
	}
	for _, t := range topicKeys() {
		for _, name := range t.Synonyms {
			if !special[name] {
				k := t
				k.Name, k.Synonyms, k.Dynamic = name, nil, ClusterWide
				k.Doc = "Default of " + t.Name + "."
				keys = append(keys, k)
			}
		}
	}
	for i := range keys {
		keys[i].Synonyms = brokerSynonyms[keys[i].Name]
	}
	return keys
}

// brokerSynonyms are the broker keys that share a value, most important first,
// as Kafka lists them.
var brokerSynonyms = map[string][]string{
	"log.retention.ms":      {"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
	"log.retention.minutes": {"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
	"log.retention.hours":   {"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
	"log.roll.ms":           {"log.roll.ms", "log.roll.hours"},
	"log.roll.hours":        {"log.roll.ms", "log.roll.hours"},
	"log.roll.jitter.ms":    {"log.roll.jitter.ms", "log.roll.jitter.hours"},
	"log.roll.jitter.hours": {"log.roll.jitter.ms", "log.roll.jitter.hours"},
	"log.flush.interval.ms": {"log.flush.interval.ms", "log.flush.scheduler.interval.ms"},
}

// unitMs is the unit of a broker key whose topic key is in milliseconds.
var unitMs = map[string]int64{
	"log.retention.minutes": minuteMs,
	"log.retention.hours":   hourMs,
	"log.roll.hours":        hourMs,
	"log.roll.jitter.hours": hourMs,
}

// storeKeys are the keys of the tier.
func storeKeys() []Key {
	return []Key{
		null("remote.store.url", String, nil,
			"Where sealed segments go: file:///DIR, s3://BUCKET/PREFIX or mem:. Not set: a directory under ./data/tier.").ours(),
		def("remote.store.driver", String, "aws", oneOf{"aws", "minio"}, "Client library for s3 URLs: the AWS SDK, or minio-go. Both speak to every store; the objects are the same.").ours(),
		null("remote.store.endpoint", String, nil, "Endpoint of an S3-compatible store; not set: AWS.").ours(),
		null("remote.store.region", String, nil, "Region of the bucket.").ours(),
		def("remote.store.path.style", Bool, "false", nil, "Whether the bucket is named in the path and not in the host name.").ours(),
		null("remote.store.access.key.id", String, nil, "Access key; not set: the AWS default chain.").ours(),
		null("remote.store.secret.access.key", Password, nil, "Secret of the access key.").ours(),
		def("remote.store.checksum", String, "auto", oneOf{"auto", "crc32c", "sha256", "md5", "none"},
			"Checksum that the store verifies; auto picks one that it supports.").ours(),
		null("remote.store.storage.class", String, nil, "Storage class of objects; not set: the bucket's.").ours(),
		def("remote.store.part.size.bytes", Long, "16777216", atLeast(5<<20), "Size of the parts of an upload.").ours(),
		def("remote.store.request.timeout.ms", Long, "30000", atLeast(1), "How long one call to the store may take.").ours(),
		def("remote.cache.dir", String, "./data/cache", notEmpty{}, "Directory of the cache of remote data.").ours(),
		def("remote.cache.size.bytes", Long, gib, atLeast(4<<20), "Hard limit of the cache directory. It must hold at least 4 chunks (remote.chunk.size.bytes).").ours(),
		def("remote.chunk.size.bytes", Long, "1048576", atLeast(4<<10), "Unit in which remote data is read and cached, rounded up to whole MiB (1048576), which is the unit of its checksums.").ours(),
		def("remote.upload.deadline.ms", Long, "600000", atLeast(1), "When an upload is given up for certain.").ours(),
		def("remote.manifest.interval.ms", Long, "10000", atLeast(1), "How often a partition's manifest is written while it changes, and, from 100 ms to 10 s, how often this broker renews its claim to the object store.").ours(),
		def("remote.object.delete.delay.ms", Long, "60000", atLeast(0), "How long an object stays after the catalog stopped naming it.").ours(),
		def("remote.recovery.window.ms", Long, "0", atLeast(0),
			"How long objects and manifests are kept for recovery as of an earlier time; 0: the delete delay alone.").ours(),
		null("log.remote.storage.enable", Bool, nil,
			"Whether new topics that do not say and are not compacted are tiered. Not set: true where remote.store.url is set.").ours(),
		def("remote.log.manager.task.interval.ms", Long, "30000", atLeast(1), "How often sealed segments are looked for."),
		def("remote.log.manager.copier.thread.pool.size", Int, "10", atLeast(1), "Uploads at once."),
		def("remote.log.manager.expiration.thread.pool.size", Int, "10", atLeast(1), "Deletions at once.").
			ignored("objects are deleted by one worker, many with one request"),
		def("remote.log.reader.threads", Int, "32", atLeast(1), "Ranges that are read from the store at once."),
		def("remote.log.reader.max.pending.tasks", Int, "100", atLeast(1), "Reads that may wait for the store.").
			ignored("what waits is bounded by the requests in progress of each connection"),
		def("remote.fetch.max.wait.ms", Int, "500", atLeast(1), "How long a fetch waits for remote data at most.").
			ignored("a fetch waits for remote data as long as its client says (fetch.max.wait.ms)"),
		def("remote.list.offsets.request.timeout.ms", Long, "30000", atLeast(1), "How long a lookup of an offset may take where the client does not say."),
	}
}
