package config

// groupBrokerKeys are the keys of a node that are about consumer groups and
// their offsets.
func groupBrokerKeys() []Key {
	return []Key{
		def("group.coordinator.rebalance.protocols", List, "classic,consumer,streams", oneOf{"classic", "consumer", "share", "streams"},
			"Protocols that groups may use; share and streams groups are not implemented, so that they have no effect."),
		def("group.initial.rebalance.delay.ms", Int, "3000", atLeast(0), "How long an empty classic group waits for more members than the first."),
		def("group.min.session.timeout.ms", Int, "6000", nil, "The shortest session timeout that a member of a classic group may ask for."),
		def("group.max.session.timeout.ms", Int, "1800000", nil, "The longest session timeout that a member of a classic group may ask for."),
		def("group.max.size", Int, "2147483647", atLeast(1), "Members of one classic group."),
		def("group.consumer.session.timeout.ms", Int, "45000", atLeast(1), "How long a member of a consumer group (KIP-848) may be silent."),
		def("group.consumer.min.session.timeout.ms", Int, "45000", atLeast(1), "Lower bound of consumer.session.timeout.ms."),
		def("group.consumer.max.session.timeout.ms", Int, "60000", atLeast(1), "Upper bound of consumer.session.timeout.ms."),
		def("group.consumer.heartbeat.interval.ms", Int, "5000", atLeast(1), "How often members of a consumer group are told to send heartbeats."),
		def("group.consumer.min.heartbeat.interval.ms", Int, "5000", atLeast(1), "Lower bound of consumer.heartbeat.interval.ms."),
		def("group.consumer.max.heartbeat.interval.ms", Int, "15000", atLeast(1), "Upper bound of consumer.heartbeat.interval.ms."),
		def("group.consumer.assignment.interval.ms", Int, "1000", atLeast(0), "The least time between two assignments of a consumer group."),
		def("group.consumer.min.assignment.interval.ms", Int, "0", atLeast(0), "Lower bound of consumer.assignment.interval.ms."),
		def("group.consumer.max.assignment.interval.ms", Int, "15000", atLeast(0), "Upper bound of consumer.assignment.interval.ms."),
		def("group.consumer.max.size", Int, "2147483647", atLeast(1), "Members of one consumer group."),
		def("group.consumer.assignors", List, "uniform,range", oneOf{"uniform", "range"}, "Assignors that consumer groups may ask for, the default first."),
		def("group.consumer.migration.policy", String, "bidirectional", oneOf{"bidirectional", "upgrade", "downgrade", "disabled"},
			"Which changes a group with members may make between the classic and the consumer protocol."),
		def("group.consumer.regex.refresh.interval.ms", Int, "600000", atLeast(10000), "How often regular expressions of consumer groups are matched again where no topic was created.").
			ignored("regular expressions are matched again once topics were created, and nothing else changes what they match"),
		def("offset.metadata.max.bytes", Int, "4096", nil, "Length of the metadata that a client may commit with an offset, in UTF-16 characters."),
		def("offsets.commit.timeout.ms", Int, "5000", atLeast(1), "How long an answer of a group waits until the log has what it says."),
		def("offsets.retention.minutes", Int, "10080", atLeast(1), "How long offsets are kept once no member of their group reads the topic."),
		def("offsets.retention.check.interval.ms", Long, "600000", atLeast(1), "How often it is looked for offsets that have expired."),
	}
}

// groupKeys are the keys of one group (resource type GROUP).
func groupKeys() []Key {
	of := func(k Key, synonym string) Key { k.Synonyms = []string{synonym}; return k }
	const (
		share    = "share groups are not implemented yet"
		streams  = "streams groups are not implemented yet"
		ownGroup = "assignments are computed by the group's partition"
	)
	return []Key{
		of(def("consumer.session.timeout.ms", Int, "45000", atLeast(1), "How long a member of the consumer group (KIP-848) may be silent."), "group.consumer.session.timeout.ms"),
		of(def("consumer.heartbeat.interval.ms", Int, "5000", atLeast(1), "How often members of the consumer group are told to send heartbeats."), "group.consumer.heartbeat.interval.ms"),
		of(def("consumer.assignment.interval.ms", Int, "1000", atLeast(0), "The least time between two assignments of the consumer group."), "group.consumer.assignment.interval.ms"),
		internal(of(def("consumer.assignor.offload.enable", Bool, "true", nil, "Whether assignments are computed apart.").ignored(ownGroup), "group.consumer.assignor.offload.enable")),

		of(def("share.session.timeout.ms", Int, "45000", atLeast(1), "How long a member of the share group may be silent.").ignored(share), "group.share.session.timeout.ms"),
		of(def("share.heartbeat.interval.ms", Int, "5000", atLeast(1), "How often members of the share group are told to send heartbeats.").ignored(share), "group.share.heartbeat.interval.ms"),
		of(def("share.record.lock.duration.ms", Int, "30000", atLeast(1000), "How long a record of the share group stays with a consumer.").ignored(share), "group.share.record.lock.duration.ms"),
		of(def("share.delivery.count.limit", Int, "5", atLeast(2), "How often a record of the share group is delivered at most.").ignored(share), "group.share.delivery.count.limit"),
		of(def("share.partition.max.record.locks", Int, "2000", atLeast(100), "Records of a partition that consumers of the share group may have at once.").ignored(share), "group.share.partition.max.record.locks"),
		def("share.auto.offset.reset", String, "latest", nil, "Where the share group begins to read.").ignored(share),
		def("share.isolation.level", String, "read_uncommitted", oneOf{"read_committed", "read_uncommitted"}, "Whether the share group reads records of open and aborted transactions.").ignored(share),
		def("share.renew.acknowledge.enable", Bool, "true", nil, "Whether consumers of the share group may keep a record for longer.").ignored(share),
		of(def("share.assignment.interval.ms", Int, "1000", atLeast(0), "The least time between two assignments of the share group.").ignored(share), "group.share.assignment.interval.ms"),
		internal(of(def("share.assignor.offload.enable", Bool, "true", nil, "Whether assignments are computed apart.").ignored(share), "group.share.assignor.offload.enable")),
		def("errors.deadletterqueue.topic.name", String, "", nil, "Topic for the records that the share group gives up.").ignored(share),
		def("errors.deadletterqueue.copy.record.enable", Bool, "false", nil, "Whether a record that is given up is copied whole.").ignored(share),

		of(def("streams.session.timeout.ms", Int, "45000", atLeast(1), "How long a member of the streams group may be silent.").ignored(streams), "group.streams.session.timeout.ms"),
		of(def("streams.heartbeat.interval.ms", Int, "5000", atLeast(1), "How often members of the streams group are told to send heartbeats.").ignored(streams), "group.streams.heartbeat.interval.ms"),
		of(def("streams.num.standby.replicas", Int, "0", atLeast(0), "Standby replicas of each task.").ignored(streams), "group.streams.num.standby.replicas"),
		of(def("streams.initial.rebalance.delay.ms", Int, "3000", atLeast(0), "How long an empty streams group waits for more members than the first.").ignored(streams), "group.streams.initial.rebalance.delay.ms"),
		of(def("streams.assignment.interval.ms", Int, "1000", atLeast(0), "The least time between two assignments of the streams group.").ignored(streams), "group.streams.assignment.interval.ms"),
		of(def("streams.rack.aware.assignment.tags", List, "", nil, "Tags that standby replicas are spread over.").ignored(streams), "group.streams.rack.aware.assignment.tags"),
		internal(of(def("streams.assignor.offload.enable", Bool, "true", nil, "Whether assignments are computed apart.").ignored(streams), "group.streams.assignor.offload.enable")),
		internal(of(def("streams.task.offset.interval.ms", Int, "60000", atLeast(1), "How often members of the streams group tell their tasks' offsets.").ignored(streams), "group.streams.task.offset.interval.ms")),
		internal(of(def("streams.num.warmup.replicas", Int, "2", atLeast(1), "Tasks that warm up at once.").ignored(streams), "group.streams.num.warmup.replicas")),
		internal(of(def("streams.acceptable.recovery.lag", Long, "10000", atLeast(0), "How far behind a task may be to count as caught up.").ignored(streams), "group.streams.acceptable.recovery.lag")),
		of(def("streams.assignor.name", String, "sticky", nil, "Assignor of the streams group.").ignored(streams), "group.streams.assignors"),
	}
}
