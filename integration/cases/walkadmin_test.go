package cases

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// walk has a row for every API that is advertised.
var walk = map[int16]walkRow{
	0: produceRow, 1: fetchRow, 2: listOffsetsRow, 3: metadataRow, 18: apiVersionsRow, 19: createTopicsRow, 20: deleteTopicsRow, 21: deleteRecordsRow,
	22: initProducerRow, 23: epochsRow, 32: describeConfigsRow, 33: alterConfigsRow, 34: moveReplicasRow, 35: logDirsRow, 37: createPartitionsRow,
	8: offsetCommitRow, 9: offsetFetchRow, 10: findCoordinatorRow, 11: joinGroupRow, 12: heartbeatRow, 13: leaveGroupRow, 14: syncGroupRow, 15: describeGroupsRow, 16: listGroupsRow,
	42: deleteGroupsRow, 47: offsetDeleteRow, 68: consumerHeartbeatRow, 69: consumerDescribeRow,
	44: incrementalRow, 55: quorumRow, 57: featuresRow, 60: clusterRow, 61: producersRow, 64: unregisterRow, 74: configResourcesRow, 75: topicPartitionsRow,
}

// walkDiffers names answers that are not Apache Kafka's: a pattern over "API
// version scenario", and the reason, which docs/divergence.md has too.
var walkDiffers = map[string]string{
	"Fetch 1[678] a broker that is no replica, who leads": "it is told where the leader is",
	"CreateTopics 7 validated only":                       "a topic that is not made has no id",
	"ListConfigResources 1 all":                           "broker loggers are not served",
	"InitProducerID . transactional":                      "there are no transactions yet",
}

var apiVersionsRow = walkRow{scenarios: []scenario{
	{name: "all", ask: versionsAs("", -1), mean: ourAPIs},
	{name: "of this broker", from: 5, ask: func(w *world, _ int16) kmsg.Request { return versionsAs(w.cluster, 1)(w, 5) }, mean: ourAPIs},
	{name: "of another broker", from: 5, ask: func(w *world, _ int16) kmsg.Request { return versionsAs(w.cluster, 7)(w, 5) }, mean: ourAPIs},
	{name: "of another cluster", from: 5, ask: versionsAs("elsewhere", 1), mean: ourAPIs},
}}

func versionsAs(cluster string, node int32) func(*world, int16) kmsg.Request {
	return func(*world, int16) kmsg.Request {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion, req.NodeID = "walk", "1.2", node
		if cluster != "" {
			req.ClusterID = &cluster
		}
		return req
	}
}

// ourAPIs leaves the APIs of clients, and no features: which there are depends
// on the broker, and a version below 4 does not list those from 0 on.
func ourAPIs(_ *world, resp kmsg.Response) {
	r := resp.(*kmsg.ApiVersionsResponse)
	r.ApiKeys = slices.DeleteFunc(r.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
		return !slices.Contains([]int16{0, 3, 18, 19, 20, 21, 22, 23, 32, 33, 34, 35, 37, 44, 55, 57, 60, 61, 64, 74, 75}, k.ApiKey)
	})
	r.SupportedFeatures, r.FinalizedFeatures, r.FinalizedFeaturesEpoch = nil, nil, 0
}

func creating(change func(w *world, r *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic)) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = 7777
		rt := newTopic(w.name(), 3, "retention.ms=12345", "cleanup.policy=delete")
		change(w, req, &rt)
		req.Topics = append(req.Topics, rt)
		return req
	}
}

func fewConfigs(_ *world, resp kmsg.Response) {
	for i := range resp.(*kmsg.CreateTopicsResponse).Topics {
		t := &resp.(*kmsg.CreateTopicsResponse).Topics[i]
		t.Configs = slices.DeleteFunc(t.Configs, func(c kmsg.CreateTopicsResponseTopicConfig) bool {
			return !slices.Contains([]string{"retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes"}, c.Name)
		})
		if t.TopicID != [16]byte{} {
			t.TopicID = [16]byte{1}
		}
	}
}

// asCreated is how many partitions the first topic has, and its retention.
func asCreated(w *world) any {
	partitions := func() int { return len(metadata(w.c, 9, false, w.names[0]).Topics[0].Partitions) }
	w.await(func() bool { return partitions() > 0 })
	retention, source := value(w.c, ofTopic, w.names[0], "retention.ms")
	return []any{partitions(), retention, source}
}

// notCreated tells that the first topic is not there.
func notCreated(w *world) any {
	return metadata(w.c, 9, false, w.names[0]).Topics[0].ErrorCode
}

var createTopicsRow = walkRow{scenarios: []scenario{
	{name: "with configs", mean: fewConfigs, after: asCreated, ask: creating(func(*world, *kmsg.CreateTopicsRequest, *kmsg.CreateTopicsRequestTopic) {})},
	{name: "defaults", from: 4, mean: fewConfigs, after: asCreated, ask: creating(func(_ *world, _ *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic) {
		t.NumPartitions, t.ReplicationFactor = -1, -1
	})},
	{name: "with an assignment", mean: fewConfigs, after: asCreated, ask: creating(func(_ *world, _ *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic) {
		t.NumPartitions, t.ReplicationFactor = -1, -1
		t.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}, {Partition: 1, Replicas: []int32{1}}}
	})},
	{name: "validated only", mean: fewConfigs, after: notCreated, ask: creating(func(_ *world, r *kmsg.CreateTopicsRequest, _ *kmsg.CreateTopicsRequestTopic) { r.ValidateOnly = true })},
	{name: "more replicas than brokers", after: notCreated, ask: creating(func(_ *world, _ *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = 3 })},
	{name: "a value that cannot be", after: notCreated, ask: creating(func(_ *world, _ *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic) {
		t.Configs[0].Value = kmsg.StringPtr("soon")
	})},
	{name: "a name that cannot be", ask: creating(func(_ *world, _ *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic) { t.Topic = "no/name" })},
	{name: "one that is there", mean: fewConfigs, ask: creating(func(w *world, _ *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic) { t.Topic, _ = w.topic() })},
}}

func deleting(change func(w *world, v int16) kmsg.DeleteTopicsRequestTopic) func(*world, int16) kmsg.Request {
	return func(w *world, v int16) kmsg.Request {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = 7777
		rt := change(w, v)
		req.Topics = append(req.Topics, rt)
		if rt.Topic != nil {
			req.TopicNames = append(req.TopicNames, *rt.Topic)
		}
		return req
	}
}

// gone is what describing the first topic says once it was deleted.
func gone(w *world) any {
	w.await(func() bool { return notCreated(w) == any(int16(3)) })
	return notCreated(w)
}

var deleteTopicsRow = walkRow{scenarios: []scenario{
	{name: "by name", after: gone, mean: func(_ *world, resp kmsg.Response) { resp.(*kmsg.DeleteTopicsResponse).Topics[0].TopicID = [16]byte{1} }, ask: deleting(func(w *world, _ int16) kmsg.DeleteTopicsRequestTopic {
		name, _ := w.topic()
		return named(name)
	})},
	{name: "by id", from: 6, after: gone, ask: deleting(func(w *world, _ int16) kmsg.DeleteTopicsRequestTopic {
		_, id := w.topic()
		return byID(id)
	})},
	{name: "no such topic", ask: deleting(func(w *world, _ int16) kmsg.DeleteTopicsRequestTopic { return named(w.name()) })},
	{name: "no such id", from: 6, ask: deleting(func(*world, int16) kmsg.DeleteTopicsRequestTopic { return byID([16]byte{7, 7}) })},
}}

func describing(kind kmsg.ConfigResourceType, name func(w *world) string, keys ...string) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name(w), ConfigNames: keys}}
		return req
	}
}

func itself(name string) func(*world) string { return func(*world) string { return name } }

func aTopic(w *world) string {
	name, _ := w.topic("segment.bytes=2097152")
	return name
}

const ofGroup kmsg.ConfigResourceType = 32

// aGroup is a consumer group with two overrides; the group itself is not there.
func aGroup(w *world) string {
	name := w.name()
	resp := ask[*kmsg.IncrementalAlterConfigsResponse](w.c, changing(false, ofGroup, itself(name),
		set("consumer.session.timeout.ms", "46000"), set("consumer.heartbeat.interval.ms", "6000"))(w, 1))
	same(w.t, nil, resp.Resources[0].ErrorCode)
	w.await(func() bool { got, _ := value(w.c, ofGroup, name, "consumer.session.timeout.ms"); return got == "46000" })
	return name
}

// groupTimers are two values of the first group after a change.
func groupTimers(want string) func(*world) any {
	return func(w *world) any {
		w.await(func() bool {
			got, _ := value(w.c, ofGroup, w.names[0], "consumer.session.timeout.ms")
			return got == want
		})
		session, from := value(w.c, ofGroup, w.names[0], "consumer.session.timeout.ms")
		interval, intervalFrom := value(w.c, ofGroup, w.names[0], "consumer.heartbeat.interval.ms")
		return []any{session, from, interval, intervalFrom}
	}
}

// twoSources says what versions 0 and from 1 on both say: whether a value is the
// default.
func twoSources(_ *world, resp kmsg.Response) {
	for i := range resp.(*kmsg.DescribeConfigsResponse).Resources {
		r := &resp.(*kmsg.DescribeConfigsResponse).Resources[i]
		r.ErrorMessage = nil // null or empty where there is no error
	}
}

var describeConfigsRow = walkRow{scenarios: []scenario{
	{name: "a topic's", mean: twoSources, ask: describing(ofTopic, aTopic, "segment.bytes", "retention.ms", "compression.type", "unclean.leader.election.enable")},
	{name: "a broker's", mean: twoSources, ask: describing(ofBroker, itself("1"), "log.segment.bytes", "num.partitions", "compression.type")},
	{name: "the cluster's default", mean: twoSources, ask: describing(ofBroker, itself(""), "log.segment.bytes")},
	{name: "a group's", mean: twoSources, ask: describing(ofGroup, aGroup)},
	{name: "a group's that has none", mean: twoSources, ask: describing(ofGroup, (*world).name, "consumer.session.timeout.ms")},
	{name: "no group's", mean: twoSources, ask: describing(ofGroup, itself(""))},
	{name: "no such key", mean: twoSources, ask: describing(ofTopic, aTopic, "no.such.key")},
	{name: "no such topic", mean: twoSources, ask: describing(ofTopic, (*world).name, "retention.ms")},
	{name: "another broker's", mean: twoSources, ask: describing(ofBroker, itself("7"), "num.partitions")},
	{name: "no such kind", mean: twoSources, ask: describing(99, itself("x"), "retention.ms")},
}}

// retentionAndSegment are two values of the first topic after a change.
func retentionAndSegment(want string) func(*world) any {
	return func(w *world) any {
		w.await(func() bool { got, _ := value(w.c, ofTopic, w.names[0], "retention.ms"); return got == want })
		retention, from := value(w.c, ofTopic, w.names[0], "retention.ms")
		bytes, bytesFrom := value(w.c, ofTopic, w.names[0], "segment.bytes")
		policy, _ := value(w.c, ofTopic, w.names[0], "cleanup.policy")
		return []any{retention, from, bytes, bytesFrom, policy}
	}
}

func replacing(validate bool, kind kmsg.ConfigResourceType, name func(*world) string, kv ...string) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		req := kmsg.NewPtrAlterConfigsRequest()
		req.ValidateOnly = validate
		r := kmsg.AlterConfigsRequestResource{ResourceType: kind, ResourceName: name(w)}
		for i := 0; i < len(kv); i += 2 {
			r.Configs = append(r.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: kv[i], Value: &kv[i+1]})
		}
		req.Resources = append(req.Resources, r)
		return req
	}
}

var alterConfigsRow = walkRow{scenarios: []scenario{
	{name: "all of a topic's are replaced", after: retentionAndSegment("60000"), ask: replacing(false, ofTopic, aTopic, "retention.ms", "60000")},
	{name: "validated only", after: retentionAndSegment("-1"), ask: replacing(true, ofTopic, aTopic, "retention.ms", "60000")},
	{name: "a value that cannot be", after: retentionAndSegment("-1"), ask: replacing(false, ofTopic, aTopic, "retention.ms", "soon")},
	{name: "no such key", after: retentionAndSegment("-1"), ask: replacing(false, ofTopic, aTopic, "no.such.key", "1")},
	{name: "all of a group's are replaced", after: groupTimers("50000"), ask: replacing(false, ofGroup, aGroup, "consumer.session.timeout.ms", "50000")},
	{name: "no such topic", ask: replacing(false, ofTopic, (*world).name, "retention.ms", "60000")},
	{name: "no such kind", ask: replacing(false, 99, itself("x"), "retention.ms", "60000")},
}}

func changing(validate bool, kind kmsg.ConfigResourceType, name func(*world) string, changes ...kmsg.IncrementalAlterConfigsRequestResourceConfig) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.ValidateOnly = validate
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kind, ResourceName: name(w), Configs: changes}}
		return req
	}
}

var incrementalRow = walkRow{scenarios: []scenario{
	{name: "one set, one removed, one extended", after: retentionAndSegment("60000"), ask: changing(false, ofTopic, aTopic, set("retention.ms", "60000"), remove("segment.bytes"), add("cleanup.policy", "compact"))},
	{name: "one shortened", after: retentionAndSegment("-1"), ask: changing(false, ofTopic, aTopic, subtract("cleanup.policy", "compact"))},
	{name: "validated only", after: retentionAndSegment("-1"), ask: changing(true, ofTopic, aTopic, set("retention.ms", "60000"))},
	{name: "a value that cannot be", after: retentionAndSegment("-1"), ask: changing(false, ofTopic, aTopic, set("retention.ms", "soon"))},
	{name: "a key twice", after: retentionAndSegment("-1"), ask: changing(false, ofTopic, aTopic, set("retention.ms", "60000"), remove("retention.ms"))},
	{name: "extended where there is no list", after: retentionAndSegment("-1"), ask: changing(false, ofTopic, aTopic, add("retention.ms", "60000"))},
	{name: "a group's", after: groupTimers("50000"), ask: changing(false, ofGroup, aGroup, set("consumer.session.timeout.ms", "50000"), remove("consumer.heartbeat.interval.ms"))},
	{name: "a group's, out of bounds", after: groupTimers("46000"), ask: changing(false, ofGroup, aGroup, set("consumer.session.timeout.ms", "60001"))},
	{name: "a group's, no such key", ask: changing(false, ofGroup, aGroup, set("no.such.key", "1"))},
	{name: "no group's", ask: changing(false, ofGroup, itself(""), set("consumer.session.timeout.ms", "50000"))},
	{name: "no such topic", ask: changing(false, ofTopic, (*world).name, set("retention.ms", "60000"))},
	{name: "no such kind", ask: changing(false, 99, itself("x"), set("retention.ms", "60000"))},
}}

func growing(validate bool, count int32, replicas ...[]int32) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.ValidateOnly, req.TimeoutMillis = validate, 7777
		name, _ := w.topic()
		rt := kmsg.CreatePartitionsRequestTopic{Topic: name, Count: count}
		for _, r := range replicas {
			rt.Assignment = append(rt.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: r})
		}
		req.Topics = append(req.Topics, rt)
		return req
	}
}

func partitionsAre(want int) func(*world) any {
	return func(w *world) any {
		count := func() int { return len(metadata(w.c, 9, false, w.names[0]).Topics[0].Partitions) }
		w.await(func() bool { return count() == want })
		return count()
	}
}

var createPartitionsRow = walkRow{scenarios: []scenario{
	{name: "with an assignment", after: partitionsAre(4), ask: growing(false, 4, []int32{1}, []int32{1})},
	{name: "without one", after: partitionsAre(5), ask: growing(false, 5)},
	{name: "validated only", after: partitionsAre(2), ask: growing(true, 5)},
	{name: "fewer", after: partitionsAre(2), ask: growing(false, 1)},
	{name: "on no broker", after: partitionsAre(2), ask: growing(false, 3, []int32{9})},
}}

func clusterOf(endpoints int8, fenced bool) func(*world, int16) kmsg.Request {
	return func(*world, int16) kmsg.Request {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.IncludeClusterAuthorizedOperations, req.EndpointType, req.IncludeFencedBrokers = true, endpoints, fenced
		return req
	}
}

var clusterRow = walkRow{scenarios: []scenario{
	{name: "the brokers", ask: clusterOf(1, false)},
	{name: "fenced ones too", ask: clusterOf(1, true)},
	{name: "the controllers", from: 1, ask: clusterOf(2, false)},
	{name: "no such endpoints", from: 1, ask: clusterOf(9, false)},
}}

func partitionsFrom(limit int32, cursor int32, nowhere bool) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		name, _ := w.topic()
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = limit
		req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: name}}
		if nowhere {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: w.name()})
		}
		if cursor >= 0 {
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: name, Partition: cursor}
		}
		return req
	}
}

var topicPartitionsRow = walkRow{scenarios: []scenario{
	{name: "all", ask: partitionsFrom(9, -1, true)},
	{name: "one at a time", ask: partitionsFrom(1, -1, false)},
	{name: "from a cursor on", ask: partitionsFrom(9, 1, false)},
}}

var moveReplicasRow = walkRow{scenarios: []scenario{
	{name: "to no such directory", ask: func(w *world, _ int16) kmsg.Request {
		name, _ := w.topic()
		return moving("/no/such/directory", name)
	}},
	{name: "of no such topic", ask: func(w *world, _ int16) kmsg.Request { return moving("/no/such/directory", w.name()) }},
}}

func moving(dir, topic string) kmsg.Request {
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	req.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: dir, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: topic, Partitions: []int32{1}}}}}
	return req
}

// anyDirectory says nothing of where directories are and how large the disk is.
func anyDirectory(_ *world, resp kmsg.Response) {
	r := resp.(*kmsg.DescribeLogDirsResponse)
	for i := range r.Dirs {
		d := &r.Dirs[i]
		if d.Dir = "a directory"; d.TotalBytes > d.UsableBytes && d.UsableBytes > 0 {
			d.TotalBytes, d.UsableBytes = 2, 1
		}
		d.Topics = slices.DeleteFunc(d.Topics, func(t kmsg.DescribeLogDirsResponseDirTopic) bool { return t.Topic != "name-0" })
	}
}

var logDirsRow = walkRow{scenarios: []scenario{
	{name: "of a partition", mean: anyDirectory, ask: func(w *world, _ int16) kmsg.Request {
		name, _ := w.topic()
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: name, Partitions: []int32{1, 7}}}
		return req
	}},
	{name: "of all", mean: anyDirectory, ask: func(w *world, _ int16) kmsg.Request {
		w.topic()
		return kmsg.NewPtrDescribeLogDirsRequest()
	}},
}}

func quorumOf(topic string, partition int32) func(*world, int16) kmsg.Request {
	return func(*world, int16) kmsg.Request {
		req := kmsg.NewPtrDescribeQuorumRequest()
		req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: topic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: partition}}}}
		return req
	}
}

// anyProgress says of offsets, epochs and times only that there are any.
func anyProgress(_ *world, resp kmsg.Response) {
	some := func(n *int64) { *n = min(*n, 1) }
	r := resp.(*kmsg.DescribeQuorumResponse)
	for i := range r.Nodes {
		r.Nodes[i].Listeners = nil
	}
	for _, t := range r.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			some(&p.HighWatermark)
			p.LeaderEpoch = min(p.LeaderEpoch, 1)
			for j := range p.CurrentVoters {
				v := &p.CurrentVoters[j]
				some(&v.LogEndOffset)
				some(&v.LastFetchTimestamp)
				some(&v.LastCaughtUpTimestamp)
				v.ReplicaDirectoryID = [16]byte{}
			}
		}
	}
}

var quorumRow = walkRow{scenarios: []scenario{
	{name: "of the metadata", mean: anyProgress, ask: quorumOf("__cluster_metadata", 0)},
	{name: "of another partition", mean: anyProgress, ask: quorumOf("__cluster_metadata", 3)},
	{name: "of another topic", mean: anyProgress, ask: quorumOf("elsewhere", 0)},
}}

func updating(feature string, level int16, upgrade int8) func(*world, int16) kmsg.Request {
	return func(*world, int16) kmsg.Request {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.TimeoutMillis, req.ValidateOnly = 7777, true
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.AllowDowngrade, u.UpgradeType = feature, level, upgrade > 1, upgrade
		req.FeatureUpdates = append(req.FeatureUpdates, u)
		return req
	}
}

var featuresRow = walkRow{scenarios: []scenario{
	{name: "no such feature", ask: updating("no.such.feature", 3, 1)},
	{name: "no such feature, down", ask: updating("no.such.feature", 3, 2)},
	{name: "a level that does not exist", from: 1, ask: updating("metadata.version", 999, 1)},
}}

var producersRow = walkRow{scenarios: []scenario{
	{name: "of a partition", mean: func(_ *world, resp kmsg.Response) {
		for _, t := range resp.(*kmsg.DescribeProducersResponse).Topics {
			for _, p := range t.Partitions {
				for i := range p.ActiveProducers {
					p.ActiveProducers[i].ProducerID, p.ActiveProducers[i].LastTimestamp = 1, 1
				}
			}
		}
	}, ask: func(w *world, _ int16) kmsg.Request {
		name, id := w.topic()
		same(w.t, nil, send(w.c, 9, name, id, 1, newIdempotent(w.t, w.c).batch(0, 3)).ErrorCode)
		return producersOf(name, 1)
	}},
	{name: "no such partition", ask: func(w *world, _ int16) kmsg.Request {
		name, _ := w.topic()
		return producersOf(name, 7)
	}},
	{name: "no such topic", ask: func(w *world, _ int16) kmsg.Request { return producersOf(w.name(), 1) }},
}}

func producersOf(topic string, partition int32) kmsg.Request {
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	return req
}

var unregisterRow = walkRow{scenarios: []scenario{
	{name: "no such broker", ask: func(*world, int16) kmsg.Request { return &kmsg.UnregisterBrokerRequest{BrokerID: 77} }},
}}

func resourcesOf(kinds ...int8) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		w.topic()
		return &kmsg.ListConfigResourcesRequest{ResourceTypes: kinds}
	}
}

// ownResources leaves this world's topics and groups, and the broker.
func ownResources(_ *world, resp kmsg.Response) {
	r := resp.(*kmsg.ListConfigResourcesResponse)
	r.ConfigResources = slices.DeleteFunc(r.ConfigResources, func(c kmsg.ListConfigResourcesResponseConfigResource) bool {
		return (c.Type == int8(ofTopic) || c.Type == int8(ofGroup)) && !strings.HasPrefix(c.Name, "name-")
	})
}

var configResourcesRow = walkRow{scenarios: []scenario{
	{name: "topics", from: 1, mean: ownResources, ask: resourcesOf(2)},
	{name: "brokers", from: 1, mean: ownResources, ask: resourcesOf(4)},
	{name: "groups", from: 1, mean: ownResources, ask: func(w *world, v int16) kmsg.Request {
		aGroup(w)
		return resourcesOf(32)(w, v)
	}},
	{name: "client metrics", mean: ownResources, ask: resourcesOf(16)},
	{name: "all", from: 1, mean: ownResources, ask: resourcesOf()},
	{name: "no such kind", from: 1, mean: ownResources, ask: resourcesOf(99)},
}}
