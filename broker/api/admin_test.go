package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/broker/wire"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/request"
)

// WI-01
func TestApiVersions(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	c.send(kmsg.NewPtrApiVersionsRequest(), 99)
	future := kmsg.NewPtrApiVersionsResponse()
	c.receive(1, future, 0)
	require.Equal(t, int16(35), future.ErrorCode)
	require.Equal(t, []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MinVersion: 0, MaxVersion: 5}}, future.ApiKeys)
	for version := range int16(6) {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "kgo", "1.2.3-rc1"
		resp := ask[*kmsg.ApiVersionsResponse](c, req, version)
		require.Zero(t, resp.ErrorCode)
		require.Len(t, resp.ApiKeys, len(wire.Supported()))
		for i, a := range resp.ApiKeys {
			row := wire.Supported()[i]
			require.Equal(t, []int16{row.Key, row.AdvertisedMin, row.Max}, []int16{a.ApiKey, a.MinVersion, a.MaxVersion})
		}
		if version >= 3 {
			require.Equal(t, int64(k.Image().Index()), resp.FinalizedFeaturesEpoch)
			require.Empty(t, resp.FinalizedFeatures)
		}
	}
	bad := kmsg.NewPtrApiVersionsRequest()
	bad.ClientSoftwareName, bad.ClientSoftwareVersion = "bad name!", "1"
	require.Equal(t, int16(42), ask[*kmsg.ApiVersionsResponse](c, bad, 3).ErrorCode)
	bad.ClientSoftwareName = "kgo"
	bad.ClusterID = kmsg.StringPtr("another")
	require.Equal(t, int16(42), ask[*kmsg.ApiVersionsResponse](c, bad, 5).ErrorCode, "one without the other")
	bad.ClusterID, bad.NodeID = nil, 1
	require.Equal(t, int16(42), ask[*kmsg.ApiVersionsResponse](c, bad, 5).ErrorCode)
	bad.ClusterID = kmsg.StringPtr("another")
	require.Equal(t, int16(129), ask[*kmsg.ApiVersionsResponse](c, bad, 5).ErrorCode)
	bad.ClusterID, bad.NodeID = kmsg.StringPtr(clusterID), 7
	require.Equal(t, int16(129), ask[*kmsg.ApiVersionsResponse](c, bad, 5).ErrorCode)
	bad.NodeID = 1
	require.Zero(t, ask[*kmsg.ApiVersionsResponse](c, bad, 5).ErrorCode)
}

func TestWhatIsNotServedClosesTheConnection(t *testing.T) {
	k := newKit(t, nil)
	for _, frame := range [][]byte{
		{0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 5}, // cut
		{0, 0, 0, 10, 3, 3, 0, 1, 0, 0, 0, 9, 0, 0},             // no such key
		{0, 0, 0, 10, 0, 3, 0, 99, 0, 0, 0, 9, 0, 0},            // no such version
		{255, 255, 255, 255},
		{0, 0, 0, 0},
		{0x7f, 0xff, 0xff, 0xff},
		{0, 0, 0, 16, 0, 3, 0, 1, 0, 0, 0, 9, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0}, // 2^31 topics
	} {
		c := k.dial()
		_, err := c.c.Write(frame)
		require.NoError(t, err)
		c.closed()
	}
	c := k.dial() // bytes behind the body are not looked at, as in Apache Kafka
	_, err := c.c.Write([]byte{0, 0, 0, 18, 0, 3, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4})
	require.NoError(t, err)
	require.NotEmpty(t, c.frame())
}

func metadataRequest(auto bool, names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = auto
	for _, n := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, topic)
	}
	return req
}

func TestMetadataInEveryVersion(t *testing.T) {
	k := newKit(t, func(b *config.Broker) { b.AutoCreateTopics = false })
	id := k.topic("t", 2)
	k.topic("u", 1)
	c := k.dial()
	for version := range int16(14) {
		all := kmsg.NewPtrMetadataRequest()
		resp := ask[*kmsg.MetadataResponse](c, all, version)
		require.Len(t, resp.Brokers, 1)
		require.Equal(t, k.addr, fmt.Sprintf("%s:%d", resp.Brokers[0].Host, resp.Brokers[0].Port))
		require.Len(t, resp.Topics, 2)
		require.Equal(t, "t", *resp.Topics[0].Topic)
		require.Len(t, resp.Topics[0].Partitions, 2)
		for i, p := range resp.Topics[0].Partitions {
			require.Equal(t, []int32{int32(i), 1}, []int32{p.Partition, p.Leader})
			require.Equal(t, []int32{1}, p.Replicas)
			require.Equal(t, []int32{1}, p.ISR)
		}
		if version >= 1 {
			require.Equal(t, int32(1), resp.ControllerID)
			all.Topics = []kmsg.MetadataRequestTopic{}
			require.Empty(t, ask[*kmsg.MetadataResponse](c, all, version).Topics)
		}
		if version >= 2 {
			require.Equal(t, clusterID, *resp.ClusterID)
		}
		if version >= 10 {
			require.Equal(t, [16]byte(id), resp.Topics[0].TopicID)
		}
		resp = ask[*kmsg.MetadataResponse](c, metadataRequest(false, "t", "bad name", "t", "nope", strings.Repeat("x", 250)), version)
		var codes []int16
		for _, topic := range resp.Topics {
			codes = append(codes, topic.ErrorCode)
		}
		require.Equal(t, []int16{0, 17, 3, 17}, codes)
	}
	byID := kmsg.NewPtrMetadataRequest()
	for _, x := range [][16]byte{id, {9}} {
		topic := kmsg.NewMetadataRequestTopic()
		topic.TopicID = x
		byID.Topics = append(byID.Topics, topic)
	}
	resp := ask[*kmsg.MetadataResponse](c, byID, 12)
	require.Equal(t, "t", *resp.Topics[0].Topic)
	require.Equal(t, int16(100), resp.Topics[1].ErrorCode)
	require.Nil(t, resp.Topics[1].Topic)
	for version := int16(10); version <= 11; version++ {
		resp := ask[*kmsg.MetadataResponse](c, byID, version)
		require.Empty(t, resp.Brokers)
		require.Equal(t, []int16{42, 42}, []int16{resp.Topics[0].ErrorCode, resp.Topics[1].ErrorCode}, "ids cannot be asked for yet")
	}
	byID.Topics = append(byID.Topics, metadataRequest(false, "u").Topics...)
	byID.Topics[1].Topic = kmsg.StringPtr("u")
	resp = ask[*kmsg.MetadataResponse](c, byID, 13)
	require.Len(t, resp.Topics, 2, "where there are ids, names do not count")
	require.Equal(t, int16(100), resp.Topics[1].ErrorCode)
	ops := kmsg.NewPtrMetadataRequest()
	ops.IncludeClusterAuthorizedOperations, ops.IncludeTopicAuthorizedOperations = true, true
	resp = ask[*kmsg.MetadataResponse](c, ops, 8)
	require.Equal(t, []int32{8096, 3576}, []int32{resp.AuthorizedOperations, resp.Topics[0].AuthorizedOperations})
	require.Equal(t, int32(-1<<31), ask[*kmsg.MetadataResponse](c, kmsg.NewPtrMetadataRequest(), 8).Topics[0].AuthorizedOperations)
	missing := metadataRequest(false, "nope", "__consumer_offsets")
	missing.IncludeTopicAuthorizedOperations = true
	resp = ask[*kmsg.MetadataResponse](c, missing, 8)
	require.Equal(t, []int32{3576, 3576}, []int32{resp.Topics[0].AuthorizedOperations, resp.Topics[1].AuthorizedOperations})
	require.Equal(t, []bool{false, true}, []bool{resp.Topics[0].IsInternal, resp.Topics[1].IsInternal})
}

// PR-07
func TestTopicsAreCreatedWhenAClientAsksForThem(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	for i := range 20 {
		name := fmt.Sprintf("auto%d", i)
		resp := ask[*kmsg.MetadataResponse](c, metadataRequest(true, name, name), 12)
		require.Len(t, resp.Topics, 1)
		require.Equal(t, int16(3), resp.Topics[0].ErrorCode)
		require.Equal(t, name, <-k.created)
		for { // until the creation has been answered nobody is told of a leader
			if resp = ask[*kmsg.MetadataResponse](c, metadataRequest(true, name), 12); resp.Topics[0].ErrorCode == 0 {
				break
			}
			require.Equal(t, int16(3), resp.Topics[0].ErrorCode)
		}
		require.Len(t, resp.Topics[0].Partitions, 1)
		if i > 2 {
			continue
		}
		produced := ask[*kmsg.ProduceResponse](c, produceRequest(-1, name, [16]byte{}, map[int32][]byte{0: batch(now(), "x")}), 9)
		require.Zero(t, produced.Topics[0].Partitions[0].ErrorCode)
	}
	require.Equal(t, int16(3), ask[*kmsg.MetadataResponse](c, metadataRequest(false, "not"), 12).Topics[0].ErrorCode)
	require.Equal(t, int16(3), ask[*kmsg.MetadataResponse](c, metadataRequest(false, "old"), 3).Topics[0].ErrorCode)
	require.Equal(t, "old", <-k.created, "before version 4 nobody could say no")

	off := newKit(t, func(b *config.Broker) { b.AutoCreateTopics = false })
	require.Equal(t, int16(3), ask[*kmsg.MetadataResponse](off.dial(), metadataRequest(true, "no"), 12).Topics[0].ErrorCode)
	require.Empty(t, off.created)
}

func newTopics(validate bool, topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.ValidateOnly, req.TimeoutMillis, req.Topics = validate, 5000, topics
	return req
}

func newTopic(name string, partitions int32, replicas int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, replicas
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], kmsg.StringPtr(configs[i+1])
		topic.Configs = append(topic.Configs, c)
	}
	return topic
}

func assigned(topic kmsg.CreateTopicsRequestTopic, partitions ...int32) kmsg.CreateTopicsRequestTopic {
	for _, p := range partitions {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = p, []int32{1}
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, a)
	}
	return topic
}

// AD-01
func TestCreateTopicsSaysTheSameWhetherItDoesItOrNot(t *testing.T) {
	k := newKit(t, nil)
	k.topic("t", 1)
	c := k.dial()
	null := newTopic("null", 1, 1, "retention.ms", "")
	null.Configs[0].Value = nil
	for _, validate := range []bool{true, false} {
		resp := ask[*kmsg.CreateTopicsResponse](c, newTopics(validate,
			newTopic("t", 1, 1), newTopic("bad name", 1, 1), newTopic("rf", 1, 9), newTopic("config", 1, 1, "foo", "bar"),
			newTopic("value", 1, 1, "retention.ms", "abc"), newTopic("none", 0, 1), newTopic("twice", 1, 1), newTopic("twice", 1, 1), null,
			assigned(newTopic("as1", 1, -1), 0), assigned(newTopic("as2", -1, 1), 0), assigned(newTopic("as3", -1, -1), 1), assigned(newTopic("as4", -1, -1), 0, 0)), 7)
		got := map[string]int16{}
		for _, r := range resp.Topics {
			got[r.Topic] = r.ErrorCode
			require.NotNil(t, r.ErrorMessage, r.Topic)
			require.Equal(t, int32(-1), r.NumPartitions)
			require.Equal(t, []kmsg.CreateTopicsResponseTopicConfig{}, r.Configs, "null means that describing is not allowed")
		}
		require.Equal(t, map[string]int16{
			"t": 36, "bad name": 17, "rf": 38, "config": 40, "value": 40, "none": 37, "twice": 42, "null": 40,
			"as1": 42, "as2": 42, "as3": 39, "as4": 39,
		}, got)
		require.Equal(t, "Topic 't' already exists.", *resp.Topics[0].ErrorMessage)
		require.Len(t, resp.Topics, 12)
	}
	resp := ask[*kmsg.CreateTopicsResponse](c, newTopics(true, newTopic("later", 3, 1)), 7)
	require.Zero(t, resp.Topics[0].ErrorCode)
	require.Equal(t, int32(3), resp.Topics[0].NumPartitions)
	require.Equal(t, 1, k.Image().TopicCount())
	k.mu.Lock()
	k.refuse = fmt.Errorf("no leader: %w", request.ErrNotController)
	k.mu.Unlock()
	require.Equal(t, int16(41), ask[*kmsg.CreateTopicsResponse](c, newTopics(false, newTopic("x", 1, 1)), 7).Topics[0].ErrorCode)
}

// AD-03
func TestCreateTopicsAnswersWhatTheTopicHasBecome(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	for version := int16(2); version <= 7; version++ {
		name := fmt.Sprintf("t%d", version)
		asked := newTopic(name, -1, -1, "segment.bytes", "2000000")
		if version < 4 {
			asked.NumPartitions, asked.ReplicationFactor = 1, 1
		}
		resp := ask[*kmsg.CreateTopicsResponse](c, newTopics(false, asked), version)
		r := resp.Topics[0]
		require.Zero(t, r.ErrorCode)
		made, ok := k.Image().Topic(name)
		require.True(t, ok)
		if version == 7 {
			require.Equal(t, [16]byte(made.ID), r.TopicID)
		}
		if version < 5 {
			continue
		}
		require.Equal(t, []int32{1, 1}, []int32{r.NumPartitions, int32(r.ReplicationFactor)})
		require.Greater(t, len(r.Configs), 20)
		for _, c := range r.Configs {
			require.Equal(t, map[bool]int8{true: 1, false: 5}[c.Name == "segment.bytes"], c.Source, c.Name)
			if c.Name == "segment.bytes" {
				require.Equal(t, "2000000", *c.Value)
			}
		}
	}
}

// AD-13
func TestCreatePartitions(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("t", 3)
	c := k.dial()
	more := func(version int16, validate bool, name string, total int32) (int16, string) {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.ValidateOnly, req.TimeoutMillis = validate, 5000
		topic := kmsg.NewCreatePartitionsRequestTopic()
		topic.Topic, topic.Count = name, total
		req.Topics = append(req.Topics, topic)
		if name == "twice" {
			topic.Topic = "t"
			req.Topics = []kmsg.CreatePartitionsRequestTopic{topic, topic}
		}
		resp := ask[*kmsg.CreatePartitionsResponse](c, req, version)
		require.Len(t, resp.Topics, 1)
		text := ""
		if m := resp.Topics[0].ErrorMessage; m != nil {
			text = *m
		}
		return resp.Topics[0].ErrorCode, text
	}
	count := func() int { found, _ := k.Image().Topic("t"); return len(found.Partitions) }
	for version := range int16(4) {
		code, text := more(version, false, "t", 3)
		require.Equal(t, int16(37), code)
		require.Equal(t, "Topic already has 3 partition(s).", text)
		code, _ = more(version, false, "t", 2)
		require.Equal(t, int16(37), code)
		code, _ = more(version, true, "t", 6)
		require.Zero(t, code)
		require.Equal(t, 3, count())
		code, _ = more(version, false, "nope", 6)
		require.Equal(t, int16(3), code)
		code, _ = more(version, false, "twice", 6)
		require.Equal(t, int16(42), code)
	}
	code, _ := more(3, false, "t", 6)
	require.Zero(t, code)
	require.Equal(t, 6, count())
	require.Zero(t, ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", id, map[int32][]byte{5: batch(now(), "x")}), 13).Topics[0].Partitions[0].ErrorCode)
}

// AD-11
func TestDeleteTopics(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	request := func(names ...string) *kmsg.DeleteTopicsRequest {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames = names
		for _, n := range names {
			topic := kmsg.NewDeleteTopicsRequestTopic()
			topic.Topic = kmsg.StringPtr(n)
			req.Topics = append(req.Topics, topic)
		}
		return req
	}
	for version := int16(1); version <= 6; version++ {
		id := k.topic("t", 1)
		resp := ask[*kmsg.DeleteTopicsResponse](c, request("t", "nope"), version)
		require.Zero(t, resp.Topics[0].ErrorCode)
		require.Equal(t, int16(3), resp.Topics[1].ErrorCode)
		if version >= 5 {
			require.Equal(t, "This server does not host this topic-partition.", *resp.Topics[1].ErrorMessage)
		}
		if version == 6 {
			require.Equal(t, [16]byte(id), resp.Topics[0].TopicID)
		}
		_, there := k.Image().Topic("t")
		require.False(t, there)
	}
	id := k.topic("t", 1)
	req := kmsg.NewPtrDeleteTopicsRequest()
	for _, n := range []struct {
		name *string
		id   [16]byte
	}{{nil, id}, {nil, [16]byte{4}}, {kmsg.StringPtr("both"), [16]byte{4}}, {nil, [16]byte{}}, {kmsg.StringPtr("dup"), [16]byte{}}, {kmsg.StringPtr("dup"), [16]byte{}}} {
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic, topic.TopicID = n.name, n.id
		req.Topics = append(req.Topics, topic)
	}
	resp := ask[*kmsg.DeleteTopicsResponse](c, req, 6)
	var codes []int16
	for _, r := range resp.Topics {
		codes = append(codes, r.ErrorCode)
	}
	require.Equal(t, []int16{0, 100, 42, 42, 42}, codes)
	require.Equal(t, "t", *resp.Topics[0].Topic)
	require.Equal(t, "Duplicate topic name.", *resp.Topics[4].ErrorMessage)
	require.Equal(t, [16]byte{4}, resp.Topics[2].TopicID)

	// One topic, named twice: by id, and by name and id.
	id = k.topic("t", 1)
	byID, byName := kmsg.NewDeleteTopicsRequestTopic(), kmsg.NewDeleteTopicsRequestTopic()
	byID.TopicID, byName.Topic = id, kmsg.StringPtr("t")
	for _, test := range []struct {
		topics []kmsg.DeleteTopicsRequestTopic
		name   *string
		text   string
	}{
		{[]kmsg.DeleteTopicsRequestTopic{byID, byID}, nil, "Duplicate topic id."},
		{[]kmsg.DeleteTopicsRequestTopic{byID, byName}, byName.Topic, "The provided topic name maps to an ID that was already supplied."},
		{[]kmsg.DeleteTopicsRequestTopic{byName, byID}, byName.Topic, "The provided topic name maps to an ID that was already supplied."},
	} {
		req.Topics = test.topics
		resp = ask[*kmsg.DeleteTopicsResponse](c, req, 6)
		require.Len(t, resp.Topics, 1)
		require.Equal(t, test.name, resp.Topics[0].Topic)
		require.Equal(t, [16]byte(id), resp.Topics[0].TopicID)
		require.Equal(t, test.text, *resp.Topics[0].ErrorMessage)
	}
	_, there := k.Image().Topic("t")
	require.True(t, there)

	off := newKit(t, func(b *config.Broker) { b.DeleteTopicEnable = false })
	off.topic("t", 1)
	require.Equal(t, int16(42), ask[*kmsg.DeleteTopicsResponse](off.dial(), request("t"), 2).Topics[0].ErrorCode)
	require.Equal(t, int16(73), ask[*kmsg.DeleteTopicsResponse](off.dial(), request("t"), 6).Topics[0].ErrorCode)
}

func listRequest(timestamps ...int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "t"
	for i, ts := range timestamps {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = int32(i), ts, -1
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

// FE-07, FE-13
func TestListOffsets(t *testing.T) {
	k := newKit(t, nil)
	k.topic("t", 2)
	c := k.dial()
	b := recordbatch.NewBuilder(recordbatch.Options{})
	for _, ts := range []int64{2, 4, 6, 8} {
		b.Add(ts, nil, []byte("x"))
	}
	require.Zero(t, ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", [16]byte{}, map[int32][]byte{0: b.Build()}), 9).Topics[0].Partitions[0].ErrorCode)
	for version := int16(1); version <= 11; version++ {
		for ts, want := range map[int64]int64{1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 2, 7: 3, 8: 3, 9: -1, -1: 4, -2: 0} {
			p := ask[*kmsg.ListOffsetsResponse](c, listRequest(ts), version).Topics[0].Partitions[0]
			require.Zero(t, p.ErrorCode)
			require.Equal(t, want, p.Offset, "timestamp %d", ts)
			if ts > 0 {
				require.Equal(t, map[bool]int64{true: -1, false: (ts + 1) / 2 * 2}[want < 0], p.Timestamp)
			}
		}
		for ts, since := range map[int64]int16{-3: 7, -4: 8, -5: 9, -6: 11, -7: 99} {
			code := ask[*kmsg.ListOffsetsResponse](c, listRequest(ts), version).Topics[0].Partitions[0].ErrorCode
			require.Equal(t, map[bool]int16{true: 35, false: 0}[version < since], code, "timestamp %d in version %d", ts, version)
		}
		twice := listRequest(-1, -1)
		twice.Topics[0].Partitions = append(twice.Topics[0].Partitions, twice.Topics[0].Partitions[0])
		parts := ask[*kmsg.ListOffsetsResponse](c, twice, version).Topics[0].Partitions
		require.Len(t, parts, 2)
		require.Equal(t, []int16{42, 0}, []int16{parts[0].ErrorCode, parts[1].ErrorCode})
		apart := listRequest(-1)
		apart.Topics = append(apart.Topics, apart.Topics[0])
		topics := ask[*kmsg.ListOffsetsResponse](c, apart, version).Topics
		require.Len(t, topics, 1)
		require.Len(t, topics[0].Partitions, 1)
		require.Equal(t, int16(42), topics[0].Partitions[0].ErrorCode)
	}
	epoch := listRequest(-1)
	epoch.Topics[0].Partitions[0].CurrentLeaderEpoch = 7
	require.Equal(t, int16(75), ask[*kmsg.ListOffsetsResponse](c, epoch, 11).Topics[0].Partitions[0].ErrorCode)
	many := listRequest(slices.Repeat([]int64{5}, 2)...)
	many.Topics[0].Partitions[1].Partition = 77
	parts := ask[*kmsg.ListOffsetsResponse](c, many, 11).Topics[0].Partitions
	require.Equal(t, []int16{0, 3}, []int16{parts[0].ErrorCode, parts[1].ErrorCode})
}

func TestDeleteRecords(t *testing.T) {
	k := newKit(t, nil)
	k.topic("t", 1)
	k.topic("compacted", 1, "cleanup.policy", "compact")
	c := k.dial()
	for range 5 {
		ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", [16]byte{}, map[int32][]byte{0: batch(now(), "x")}), 9)
	}
	for version := range int16(3) {
		for _, test := range []struct {
			topic  string
			part   int32
			offset int64
			low    int64
			code   int16
		}{{"t", 0, 0, 2, 0}, {"t", 0, 2, 2, 0}, {"t", 0, 6, -1, 1}, {"t", 0, -2, -1, 1}, {"t", 7, 0, -1, 3}, {"nope", 0, 0, -1, 3}, {"compacted", 0, 0, -1, 44}} {
			req := kmsg.NewPtrDeleteRecordsRequest()
			topic := kmsg.NewDeleteRecordsRequestTopic()
			topic.Topic = test.topic
			p := kmsg.NewDeleteRecordsRequestTopicPartition()
			p.Partition, p.Offset = test.part, test.offset
			if version == 0 && test.offset == 0 && test.topic == "t" && test.part == 0 {
				p.Offset = 2
			}
			topic.Partitions = append(topic.Partitions, p)
			req.Topics = append(req.Topics, topic)
			got := ask[*kmsg.DeleteRecordsResponse](c, req, version).Topics[0].Partitions[0]
			require.Equal(t, test.code, got.ErrorCode, "%+v", test)
			require.Equal(t, test.low, got.LowWatermark, "%+v", test)
		}
	}
}

func describe(c *client, version int16, kind kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsResponseResource {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, r)
	return ask[*kmsg.DescribeConfigsResponse](c, req, version).Resources[0]
}

func TestDescribeConfigs(t *testing.T) {
	k := newKit(t, func(b *config.Broker) {
		parsed, _, err := config.ParseBroker(map[string]string{"log.retention.ms": "5000"})
		if err != nil {
			panic(err)
		}
		*b = parsed
	})
	k.topic("t", 1, "retention.ms", "1000")
	k.topic("plain", 1)
	c := k.dial()
	const topic, broker = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	for version := int16(1); version <= 4; version++ {
		r := describe(c, version, topic, "t", "retention.ms", "no.such.key")
		require.Zero(t, r.ErrorCode)
		require.Len(t, r.Configs, 1)
		v := r.Configs[0]
		require.Equal(t, "1000", *v.Value)
		require.Equal(t, kmsg.ConfigSourceDynamicTopicConfig, v.Source)
		require.Equal(t, "retention.ms", v.ConfigSynonyms[0].Name)
		require.Equal(t, "log.retention.ms", v.ConfigSynonyms[1].Name)
		require.Equal(t, "5000", *v.ConfigSynonyms[1].Value)
		require.Equal(t, kmsg.ConfigSourceStaticBrokerConfig, v.ConfigSynonyms[1].Source)
		if version >= 3 {
			require.Equal(t, kmsg.ConfigTypeLong, v.ConfigType)
			require.NotEmpty(t, *v.Documentation)
		}
		require.Equal(t, kmsg.ConfigSourceStaticBrokerConfig, describe(c, version, topic, "plain", "retention.ms").Configs[0].Source)
		require.Greater(t, len(describe(c, version, topic, "t").Configs), 20)
		require.Greater(t, len(describe(c, version, broker, "1").Configs), 20)
		id := describe(c, version, broker, "1", "node.id").Configs[0]
		require.True(t, id.ReadOnly)
		require.Equal(t, "1", *id.Value)
		require.Empty(t, describe(c, version, broker, "").Configs)
		for _, bad := range []struct {
			kind kmsg.ConfigResourceType
			name string
			code int16
			text string
		}{
			{topic, "nope", 3, ""},
			{topic, "bad name", 17, "Topic name is invalid"},
			{broker, "7", 42, "Unexpected broker id, expected 1"},
			{broker, "x", 42, "Broker id must be an integer"},
			{3, "1", 42, "malformed"},
		} {
			r := describe(c, version, bad.kind, bad.name)
			require.Equal(t, bad.code, r.ErrorCode)
			require.Contains(t, *r.ErrorMessage, bad.text)
		}
	}
}

func TestIncrementalAlterConfigs(t *testing.T) {
	k := newKit(t, nil)
	k.topic("t", 1)
	c := k.dial()
	alter := func(version int16, validate bool, kind kmsg.ConfigResourceType, name string, configs ...kmsg.IncrementalAlterConfigsRequestResourceConfig) (int16, string) {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.ValidateOnly = validate
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.Configs = kind, name, configs
		req.Resources = append(req.Resources, r)
		if name == "tt" {
			r.ResourceName = "t"
			req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{r, r}
		}
		resp := ask[*kmsg.IncrementalAlterConfigsResponse](c, req, version)
		require.Len(t, resp.Resources, len(req.Resources))
		text := ""
		if m := resp.Resources[0].ErrorMessage; m != nil {
			text = *m
		}
		return resp.Resources[0].ErrorCode, text
	}
	set := func(key, value string, op int8) kmsg.IncrementalAlterConfigsRequestResourceConfig {
		x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		x.Name, x.Op = key, kmsg.IncrementalAlterConfigOp(op)
		if value != "null" {
			x.Value = &value
		}
		return x
	}
	const topic, broker = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	for version := range int16(2) {
		for _, test := range []struct {
			kind    kmsg.ConfigResourceType
			name    string
			configs []kmsg.IncrementalAlterConfigsRequestResourceConfig
			code    int16
			text    string
		}{
			{topic, "t", []kmsg.IncrementalAlterConfigsRequestResourceConfig{set("retention.ms", "5", 0)}, 0, ""},
			{topic, "nope", []kmsg.IncrementalAlterConfigsRequestResourceConfig{set("retention.ms", "5", 0)}, 3, "The topic 'nope' does not exist."},
			{topic, "t", []kmsg.IncrementalAlterConfigsRequestResourceConfig{set("retention.ms", "5", 9)}, 42, "Unknown operation"},
			{topic, "t", []kmsg.IncrementalAlterConfigsRequestResourceConfig{set("retention.ms", "null", 0)}, 42, "Null value not supported for : retention.ms"},
			{topic, "t", []kmsg.IncrementalAlterConfigsRequestResourceConfig{set("a", "1", 0), set("a", "null", 1)}, 42, "Error due to duplicate config keys"},
			{topic, "tt", nil, 42, "Each resource must appear at most once."},
			{topic, "", nil, 42, "Default topic resources are not allowed."},
			{broker, "x", nil, 42, "Node id must be an integer, but it is: x"},
			{broker, "7", nil, 42, "Unexpected broker id, expected 1, but received 7"},
			{3, "x", nil, 42, "Unknown resource type 3"},
			{broker, "", []kmsg.IncrementalAlterConfigsRequestResourceConfig{set("log.retention.ms", "7", 0)}, 0, ""},
		} {
			code, text := alter(version, false, test.kind, test.name, test.configs...)
			require.Equal(t, test.code, code, "%+v", test)
			require.Contains(t, text, test.text)
		}
	}
	code, _ := alter(1, true, topic, "t", set("retention.ms", "99", 0))
	require.Zero(t, code)
	require.Equal(t, "5", *describe(c, 4, topic, "t", "retention.ms").Configs[0].Value)
	code, _ = alter(1, false, topic, "t", set("retention.ms", "null", 1))
	require.Zero(t, code)
	v := describe(c, 4, topic, "t", "retention.ms").Configs[0]
	require.Equal(t, "7", *v.Value)
	require.Equal(t, kmsg.ConfigSourceDynamicDefaultBrokerConfig, v.Source)
	require.Len(t, describe(c, 4, broker, "").Configs, 1)
}

func TestDescribeCluster(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	for version := range int16(3) {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.IncludeClusterAuthorizedOperations = true
		resp := ask[*kmsg.DescribeClusterResponse](c, req, version)
		require.Equal(t, clusterID, resp.ClusterID)
		require.Equal(t, int32(1), resp.ControllerID)
		require.Len(t, resp.Brokers, 1)
		require.Equal(t, int32(8096), resp.ClusterAuthorizedOperations)
		if version > 0 {
			req.EndpointType = 2
			require.Equal(t, int16(114), ask[*kmsg.DescribeClusterResponse](c, req, version).ErrorCode)
			req.EndpointType = 3
			require.Equal(t, int16(115), ask[*kmsg.DescribeClusterResponse](c, req, version).ErrorCode)
		}
	}
}

func TestDescribeTopicPartitionsByPages(t *testing.T) {
	k := newKit(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		k.topic(name, 3)
	}
	c := k.dial()
	for _, names := range [][]string{nil, {"c", "a", "b"}} {
		for limit := int32(0); limit <= 10; limit++ {
			var got []string
			var cursor *kmsg.DescribeTopicPartitionsRequestCursor
			for pages := 0; ; pages++ {
				require.Less(t, pages, 20)
				req := kmsg.NewPtrDescribeTopicPartitionsRequest()
				req.ResponsePartitionLimit, req.Cursor = limit, cursor
				for _, n := range names {
					req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: n})
				}
				resp := ask[*kmsg.DescribeTopicPartitionsResponse](c, req, 0)
				page := 0
				for _, topic := range resp.Topics {
					require.Zero(t, topic.ErrorCode)
					for _, p := range topic.Partitions {
						got = append(got, fmt.Sprint(*topic.Topic, p.Partition))
						require.Equal(t, int32(1), p.LeaderID)
						page++
					}
				}
				require.LessOrEqual(t, page, int(max(limit, 1)))
				if resp.NextCursor == nil {
					break
				}
				cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
			}
			require.Equal(t, []string{"a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"}, got)
		}
	}
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 2000
	req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "nope"}, {Topic: "bad name"}, {Topic: "a"}}
	resp := ask[*kmsg.DescribeTopicPartitionsResponse](c, req, 0)
	require.Equal(t, []int16{0, 17, 3}, []int16{resp.Topics[0].ErrorCode, resp.Topics[1].ErrorCode, resp.Topics[2].ErrorCode})
	for _, cursor := range []kmsg.DescribeTopicPartitionsRequestCursor{{Topic: "zzz"}, {Topic: ""}, {Topic: "b"}, {Topic: "a", Partition: -1}} {
		req.Cursor = &cursor
		require.Equal(t, int16(42), ask[*kmsg.DescribeTopicPartitionsResponse](c, req, 0).Topics[0].ErrorCode)
	}
	req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "a", Partition: 99}
	require.Empty(t, ask[*kmsg.DescribeTopicPartitionsResponse](c, req, 0).Topics[0].Partitions)
}

func TestInitProducerID(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	seen := map[int64]bool{}
	for i := range 12 {
		resp := ask[*kmsg.InitProducerIDResponse](c, kmsg.NewPtrInitProducerIDRequest(), int16(i%6))
		require.Zero(t, resp.ErrorCode)
		require.Zero(t, resp.ProducerEpoch)
		require.False(t, seen[resp.ProducerID], "%d twice", resp.ProducerID)
		seen[resp.ProducerID] = true
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = 5, -1
	require.Equal(t, int16(42), ask[*kmsg.InitProducerIDResponse](c, req, 5).ErrorCode)
	req.ProducerEpoch = 3
	require.Zero(t, ask[*kmsg.InitProducerIDResponse](c, req, 5).ErrorCode)
	req.TransactionalID = kmsg.StringPtr("")
	require.Equal(t, int16(42), ask[*kmsg.InitProducerIDResponse](c, req, 5).ErrorCode)
	req.TransactionalID = kmsg.StringPtr("txn")
	require.Equal(t, int16(35), ask[*kmsg.InitProducerIDResponse](c, req, 5).ErrorCode)
	k.mu.Lock()
	k.refuse = request.ErrOutcomeUnknown
	k.mu.Unlock()
	for range 4 {
		if code := ask[*kmsg.InitProducerIDResponse](c, kmsg.NewPtrInitProducerIDRequest(), 4).ErrorCode; code != 0 {
			require.Equal(t, int16(7), code)
			return
		}
	}
	t.Fatal("more ids than the block had")
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	k := newKit(t, nil)
	k.topic("t", 1)
	c := k.dial()
	ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", [16]byte{}, map[int32][]byte{0: batch(now(), "x", "y")}), 9)
	for version := int16(2); version <= 4; version++ {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
		topic.Topic = "t"
		for _, epoch := range []int32{-1, 0, 5} {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.LeaderEpoch = epoch
			topic.Partitions = append(topic.Partitions, p)
		}
		missing := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		missing.Partition = 44
		topic.Partitions = append(topic.Partitions, missing)
		req.Topics = append(req.Topics, topic)
		var got [][3]int64
		for _, p := range ask[*kmsg.OffsetForLeaderEpochResponse](c, req, version).Topics[0].Partitions {
			got = append(got, [3]int64{int64(p.ErrorCode), int64(p.LeaderEpoch), p.EndOffset})
		}
		require.Equal(t, [][3]int64{{0, -1, -1}, {0, 0, 2}, {0, -1, -1}, {3, -1, -1}}, got)
	}
}

// What is not hosted, or offline, sends the client elsewhere.
func TestReplicasThatAreNotHere(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("t", 2)
	k.mu.Lock()
	delete(k.hosted, cluster.TopicPartition{Topic: id})
	d := newDouble(k, 1, 10)
	d.failure = fmt.Errorf("disk: %w", partition.ErrStorage)
	k.hosted[cluster.TopicPartition{Topic: id, Partition: 1}] = d
	k.mu.Unlock()
	c := k.dial()
	start := time.Now()
	fetch := fetchRequest("t", id, 0, 0)
	fetch.MaxWaitMillis = 60000
	resp := ask[*kmsg.FetchResponse](c, fetch, 18)
	parts := resp.Topics[0].Partitions
	require.Equal(t, []int16{6, 56}, []int16{parts[0].ErrorCode, parts[1].ErrorCode})
	require.Equal(t, int32(1), parts[0].CurrentLeader.LeaderID)
	require.Len(t, resp.Brokers, 1)
	require.Less(t, time.Since(start), 5*time.Second)
	produced := ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", id, map[int32][]byte{0: batch(now(), "x")}), 13)
	require.Equal(t, int16(6), produced.Topics[0].Partitions[0].ErrorCode)
	require.Equal(t, int32(1), produced.Topics[0].Partitions[0].CurrentLeader.LeaderID)
	require.Len(t, produced.Brokers, 1)
	list := ask[*kmsg.ListOffsetsResponse](c, listRequest(-1, -1), 11).Topics[0].Partitions
	require.Equal(t, []int16{6, 56}, []int16{list[0].ErrorCode, list[1].ErrorCode})
}
