package config

// OffsetsTopic is how the topic that consumer groups are kept in is created.
// What it is once it is there, its own configs say.
type OffsetsTopic struct {
	Partitions  int32
	Replication int16
	// ReplicationSet: offsets.topic.replication.factor was set, and is to be
	// kept to. Its default is what a cluster of as many brokers would want.
	ReplicationSet bool
	SegmentBytes   int32
	// Codec is the id of the codec that batches of groups are compressed with.
	Codec int8
}

// offsetsTopicKeys are the keys of a node that say how groups are kept.
func offsetsTopicKeys() []Key {
	return []Key{
		def("offsets.topic.num.partitions", Int, "50", atLeast(1), "Partitions of __consumer_offsets, once it is created."),
		def("offsets.topic.replication.factor", Short, "3", atLeast(1),
			"Replicas of __consumer_offsets, once it is created. Where this is not set and there are fewer brokers, as many as there are brokers."),
		def("offsets.topic.segment.bytes", Int, "104857600", atLeast(1), "segment.bytes of __consumer_offsets, once it is created."),
		def("offsets.topic.compression.codec", Int, "0", within{0, 4},
			"Compression of what groups write: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
	}
}

func offsetsTopic(b *Broker, v values) error {
	_, set := v["offsets.topic.replication.factor"]
	b.OffsetsTopic = OffsetsTopic{
		Partitions: v.int32("offsets.topic.num.partitions"), Replication: int16(v.int64("offsets.topic.replication.factor")),
		ReplicationSet: set, SegmentBytes: v.int32("offsets.topic.segment.bytes"), Codec: int8(v.int64("offsets.topic.compression.codec")),
	}
	return nil
}
