package cases

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

func TestTopics(t *testing.T) {
	addr := broker(t)
	t.Run("AD-01 validation says what the real call would", func(t *testing.T) { validationIsHonest(t, addr) })
	t.Run("AD-03 what a created topic has become", func(t *testing.T) { createdTopicIsDescribed(t, addr) })
	t.Run("AD-03 defaults, assignments and duplicates", func(t *testing.T) { defaultsAndAssignments(t, addr) })
	t.Run("AD-11 deletion", func(t *testing.T) { deletion(t, addr) })
	t.Run("AD-11 many delete, many create", func(t *testing.T) { manyAtOnce(t, addr) })
	t.Run("AD-11 a topic that is made again", func(t *testing.T) { madeAgain(t, addr) })
	t.Run("AD-13 more partitions", func(t *testing.T) { morePartitions(t, addr) })
	t.Run("AD-13 consumers see new partitions", func(t *testing.T) { consumersSeeNewPartitions(t, addr) })
	t.Run("metadata by name, by id and of all", func(t *testing.T) { metadataOf(t, addr) })
}

func named(name string) kmsg.DeleteTopicsRequestTopic {
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = &name
	return t
}

func byID(id [16]byte) kmsg.DeleteTopicsRequestTopic {
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.TopicID = id
	return t
}

func deleteTopics(c *kit.Raw, version int16, topics ...kmsg.DeleteTopicsRequestTopic) []kmsg.DeleteTopicsResponseTopic {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis, req.Topics = version, 10000, topics
	for _, t := range topics {
		if t.Topic != nil {
			req.TopicNames = append(req.TopicNames, *t.Topic)
		}
	}
	return ask[*kmsg.DeleteTopicsResponse](c, req).Topics
}

func assigned(name string, replicas ...[]int32) kmsg.CreateTopicsRequestTopic {
	rt := newTopic(name, -1)
	rt.ReplicationFactor = -1
	for p, r := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(p), r
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	}
	return rt
}

// settled waits until the broker that is asked knows of a topic; ours does when
// it has answered the creation, Apache Kafka a little later.
func settled(t *testing.T, c *kit.Raw, topic string) {
	t.Helper()
	known := func() bool { return metadata(c, 12, false, topic).Topics[0].ErrorCode == 0 }
	if reference() {
		kit.Eventually(t, 10*time.Second, "the topic is known", known)
	}
	require.True(t, known())
}

func validationIsHonest(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	there, _ := create(t, c, 2)
	replicated := func(name string, factor int16) kmsg.CreateTopicsRequestTopic {
		rt := newTopic(name, 1)
		rt.ReplicationFactor = factor
		return rt
	}
	null := newTopic(fresh("n"), 1)
	nullConfig := kmsg.NewCreateTopicsRequestTopicConfig()
	nullConfig.Name = "retention.ms"
	null.Configs = append(null.Configs, nullConfig)
	both := newTopic(fresh("n"), 1)
	both.ReplicaAssignment = assigned("", []int32{1}).ReplicaAssignment
	gap := assigned(fresh("n"), []int32{1}, []int32{1})
	gap.ReplicaAssignment[1].Partition = 2
	unlike := assigned(fresh("n"), []int32{1}, []int32{})
	long := make([]byte, 250)
	for i := range long {
		long[i] = 'a'
	}
	base := fresh("n")
	for name, tc := range map[string]struct {
		topic kmsg.CreateTopicsRequestTopic
		want  *kerr.Error
	}{
		"exists":                       {newTopic(there, 1), kerr.TopicAlreadyExists},
		"exists, and all else is bad":  {replicated(there, 9), kerr.TopicAlreadyExists},
		"a space in the name":          {newTopic("bad name", 1), kerr.InvalidTopicException},
		"no name":                      {newTopic("", 1), kerr.InvalidTopicException},
		"a dot":                        {newTopic(".", 1), kerr.InvalidTopicException},
		"two dots":                     {newTopic("..", 1), kerr.InvalidTopicException},
		"a name too long":              {newTopic(string(long), 1), kerr.InvalidTopicException},
		"too many replicas":            {replicated(base, 9), kerr.InvalidReplicationFactor},
		"no replicas":                  {replicated(base, 0), kerr.InvalidReplicationFactor},
		"replicas below none":          {replicated(base, -2), kerr.InvalidReplicationFactor},
		"no partitions":                {newTopic(base, 0), kerr.InvalidPartitions},
		"partitions below none":        {newTopic(base, -2), kerr.InvalidPartitions},
		"too many partitions":          {newTopic(base, 10_001), kerr.PolicyViolation},
		"unknown config":               {newTopic(base, 1, "no.such.key=1"), kerr.InvalidConfig},
		"bad number":                   {newTopic(base, 1, "retention.ms=soon"), kerr.InvalidConfig},
		"out of range":                 {newTopic(base, 1, "segment.bytes=1"), kerr.InvalidConfig},
		"bad word":                     {newTopic(base, 1, "cleanup.policy=shrink"), kerr.InvalidConfig},
		"bad bool":                     {newTopic(base, 1, "preallocate=maybe"), kerr.InvalidConfig},
		"null config":                  {null, kerr.InvalidConfig},
		"assignment and counts":        {both, kerr.InvalidRequest},
		"assignment to nobody":         {assigned(base, []int32{77}), kerr.InvalidReplicaAssignment},
		"assignment twice to one":      {assigned(base, []int32{1, 1}), kerr.InvalidReplicaAssignment},
		"assignment with a gap":        {gap, kerr.InvalidReplicaAssignment},
		"assignment of unlike lengths": {unlike, kerr.InvalidReplicaAssignment},
		"fine":                         {newTopic(base, 3, "retention.ms=1000"), nil},
		"fine by assignment":           {assigned(base, []int32{1}, []int32{1}), nil},
		"fine by default":              {replicated(base, -1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			for version := int16(2); version <= 7; version++ {
				got := createTopics(c, version, true, tc.topic)
				require.Len(t, got, 1)
				same(t, tc.want, got[0].ErrorCode, "version %d", version)
				require.Equal(t, tc.topic.Topic, got[0].Topic)
				if !reference() { // Apache Kafka makes one up
					require.Equal(t, [16]byte{}, got[0].TopicID, "an id of nothing")
				}
				if tc.want != nil {
					require.NotNil(t, got[0].ErrorMessage)
				} else if version >= 5 {
					require.Positive(t, got[0].NumPartitions)
					require.EqualValues(t, 1, got[0].ReplicationFactor)
					require.NotEmpty(t, got[0].Configs)
				}
			}
			if tc.want != nil {
				got := createTopics(c, 7, false, tc.topic)
				same(t, tc.want, got[0].ErrorCode, "the real call says the same")
			}
			if name := tc.topic.Topic; name != there && name != "" {
				require.NotZero(t, metadata(c, 12, false, name).Topics[0].ErrorCode, "nothing was created")
			}
		})
	}
	require.Len(t, metadata(c, 12, false, there).Topics[0].Partitions, 2)
	a := fresh("a.b")
	same(t, nil, createTopics(c, 7, false, newTopic(a, 1))[0].ErrorCode)
	same(t, kerr.InvalidTopicException, createTopics(c, 7, true, newTopic("a_b"+a[3:], 1))[0].ErrorCode, "a name that collides")
}

func createdTopicIsDescribed(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	for version := int16(4); version <= 7; version++ {
		for _, validate := range []bool{true, false} {
			rt := newTopic(fresh("t"), -1, "retention.ms=86400000", "cleanup.policy=delete")
			rt.ReplicationFactor = -1
			got := createTopics(c, version, validate, rt)[0]
			same(t, nil, got.ErrorCode)
			if version < 5 {
				continue
			}
			require.EqualValues(t, 1, got.NumPartitions)
			require.EqualValues(t, 1, got.ReplicationFactor)
			require.Equal(t, version == 7 && (!validate || reference()), got.TopicID != [16]byte{})
			seen := map[string]kmsg.CreateTopicsResponseTopicConfig{}
			for _, cfg := range got.Configs {
				seen[cfg.Name] = cfg
			}
			require.Greater(t, len(seen), 20, "all effective configs")
			for key, value := range map[string]string{"retention.ms": "86400000", "cleanup.policy": "delete"} {
				require.Equal(t, value, *seen[key].Value)
				require.EqualValues(t, 1, seen[key].Source, "an override, also where it is the default")
			}
			require.EqualValues(t, 5, seen["flush.messages"].Source)
			require.Equal(t, "9223372036854775807", *seen["flush.messages"].Value)
			require.False(t, seen["flush.messages"].ReadOnly)
			if !validate {
				settled(t, c, rt.Topic)
				described := describe(c, 4, kmsg.ConfigResourceTypeTopic, rt.Topic, nil)
				require.Len(t, described.Configs, len(seen))
				for _, cfg := range described.Configs {
					require.Equal(t, cfg.Value, seen[cfg.Name].Value, cfg.Name)
					require.EqualValues(t, cfg.Source, seen[cfg.Name].Source, cfg.Name)
				}
			}
		}
	}
}

func defaultsAndAssignments(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	a := assigned(fresh("t"), []int32{1}, []int32{1}, []int32{1})
	a.ReplicaAssignment[0], a.ReplicaAssignment[2] = a.ReplicaAssignment[2], a.ReplicaAssignment[0]
	twice := newTopic(fresh("t"), 1)
	one := newTopic(fresh("t"), 4)
	bad := newTopic(fresh("t"), 1, "no.such=1")
	got := map[string]kmsg.CreateTopicsResponseTopic{}
	all := createTopics(c, 7, false, a, twice, bad, one, twice)
	for _, r := range all {
		got[r.Topic] = r
	}
	require.Len(t, all, 4)
	same(t, nil, got[a.Topic].ErrorCode)
	require.EqualValues(t, 3, got[a.Topic].NumPartitions)
	same(t, nil, got[one.Topic].ErrorCode, "each is on its own")
	require.EqualValues(t, 4, got[one.Topic].NumPartitions)
	same(t, kerr.InvalidRequest, got[twice.Topic].ErrorCode)
	same(t, kerr.InvalidConfig, got[bad.Topic].ErrorCode)
	settled(t, c, a.Topic)
	require.Len(t, metadata(c, 12, false, a.Topic).Topics[0].Partitions, 3)
	same(t, kerr.UnknownTopicOrPartition, metadata(c, 12, false, twice.Topic).Topics[0].ErrorCode)
	require.Empty(t, createTopics(c, 7, false))
}

func deletion(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	for version := int16(1); version <= 6; version++ {
		topic, _ := create(t, c, 2)
		missing := fresh("nowhere")
		codes := map[string]int16{}
		for _, r := range deleteTopics(c, version, named(topic), named(missing)) {
			codes[*r.Topic] = r.ErrorCode
		}
		require.Equal(t, map[string]int16{topic: 0, missing: 3}, codes, "version %d", version)
		same(t, kerr.UnknownTopicOrPartition, deleteTopics(c, version, named(topic))[0].ErrorCode, "it is gone at once")
		same(t, kerr.UnknownTopicOrPartition, metadata(c, 12, false, topic).Topics[0].ErrorCode)
		same(t, kerr.UnknownTopicOrPartition, send(c, 9, topic, [16]byte{}, 0, records("x")).ErrorCode)
		same(t, kerr.UnknownTopicOrPartition, listOffset(c, 7, topic, 0, -1).ErrorCode)
	}
	topic, id := create(t, c, 1)
	got := deleteTopics(c, 6, byID(id))[0]
	same(t, nil, got.ErrorCode)
	require.Equal(t, topic, *got.Topic)
	require.Equal(t, id, got.TopicID)
	got = deleteTopics(c, 6, byID(id))[0]
	same(t, kerr.UnknownTopicID, got.ErrorCode)
	require.Nil(t, got.Topic)
	require.Equal(t, id, got.TopicID)
	same(t, kerr.UnknownTopicID, deleteTopics(c, 6, byID([16]byte{5}))[0].ErrorCode)
	same(t, kerr.InvalidRequest, deleteTopics(c, 6, byID([16]byte{}))[0].ErrorCode, "neither")
	twice, twiceID := create(t, c, 1)
	doubled := deleteTopics(c, 6, named(twice), named(twice))
	require.Len(t, doubled, 1)
	same(t, kerr.InvalidRequest, doubled[0].ErrorCode)
	doubled = deleteTopics(c, 6, byID(twiceID), byID(twiceID))
	require.Len(t, doubled, 1)
	same(t, kerr.InvalidRequest, doubled[0].ErrorCode)
	name := byID(twiceID)
	name.Topic = &twice
	same(t, kerr.InvalidRequest, deleteTopics(c, 6, name)[0].ErrorCode, "both")
	same(t, nil, metadata(c, 12, false, twice).Topics[0].ErrorCode, "nothing was deleted")
	same(t, kerr.UnknownTopicOrPartition, deleteTopics(c, 6, named(""))[0].ErrorCode)
	same(t, kerr.UnknownTopicOrPartition, deleteTopics(c, 6, named("bad name"))[0].ErrorCode)
	require.Empty(t, deleteTopics(c, 6))
}

func manyAtOnce(t *testing.T, addr string) {
	const callers = 6
	conns := make([]*kit.Raw, callers)
	for i := range conns {
		conns[i] = kit.Dial(t, addr)
	}
	count := func(call func(c *kit.Raw) int16) map[int16]int {
		var wg sync.WaitGroup
		codes := make([]int16, callers)
		for i, c := range conns {
			wg.Go(func() { codes[i] = call(c) })
		}
		wg.Wait()
		sum := map[int16]int{}
		for _, code := range codes {
			sum[code]++
		}
		return sum
	}
	for range 5 {
		topic, id := create(t, conns[0], 1)
		require.Equal(t, map[int16]int{0: 1, 3: callers - 1}, count(func(c *kit.Raw) int16 { return deleteTopics(c, 6, named(topic))[0].ErrorCode }))
		topic, id = create(t, conns[0], 1)
		require.Equal(t, map[int16]int{0: 1, 100: callers - 1}, count(func(c *kit.Raw) int16 { return deleteTopics(c, 6, byID(id))[0].ErrorCode }))
		require.Equal(t, map[int16]int{0: 1, 36: callers - 1}, count(func(c *kit.Raw) int16 { return createTopics(c, 7, false, newTopic(topic, 1))[0].ErrorCode }))
		require.Equal(t, map[int16]int{0: 1, 37: callers - 1}, count(func(c *kit.Raw) int16 { return grow(c, 3, false, topic, 5).ErrorCode }))
	}
}

func madeAgain(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 2)
	for n := range 5 {
		same(t, nil, send(c, 9, topic, id, 1, records("old")).ErrorCode)
		old := id
		same(t, nil, deleteTopics(c, 6, named(topic))[0].ErrorCode)
		out := createTopics(c, 7, false, newTopic(topic, 2))[0]
		same(t, nil, out.ErrorCode, "at once, round %d", n)
		id = out.TopicID
		require.NotEqual(t, old, id)
		kit.Eventually(t, 10*time.Second, "it can be written", func() bool { return listOffset(c, 7, topic, 1, -1).ErrorCode == 0 })
		require.Zero(t, end(t, c, topic, 1), "nothing of the old one is left")
		same(t, kerr.UnknownTopicID, send(c, 13, "", old, 1, records("x")).ErrorCode)
		same(t, kerr.UnknownTopicID, ask[*kmsg.FetchResponse](c, waiting(13, "", old, 1, 0, 0, 1)).Topics[0].Partitions[0].ErrorCode)
	}
}

func grow(c *kit.Raw, version int16, validate bool, topic string, count int32, replicas ...[]int32) kmsg.CreatePartitionsResponseTopic {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version, req.ValidateOnly, req.TimeoutMillis = version, validate, 10000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = topic, count
	for _, r := range replicas {
		a := kmsg.NewCreatePartitionsRequestTopicAssignment()
		a.Replicas = r
		rt.Assignment = append(rt.Assignment, a)
	}
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.CreatePartitionsResponse](c, req).Topics[0]
}

func morePartitions(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	for version := range int16(4) {
		topic, id := create(t, c, 3)
		for _, validate := range []bool{true, false} {
			for _, tc := range []struct {
				count    int32
				replicas [][]int32
				want     *kerr.Error
			}{
				{3, nil, kerr.InvalidPartitions},
				{2, nil, kerr.InvalidPartitions},
				{0, nil, kerr.InvalidPartitions},
				{-1, nil, kerr.InvalidPartitions},
				{5, [][]int32{{1}}, kerr.InvalidReplicaAssignment},
				{4, [][]int32{{9}}, kerr.InvalidReplicaAssignment},
				{4, [][]int32{{1, 1}}, kerr.InvalidReplicaAssignment},
				{4, [][]int32{{}}, kerr.InvalidReplicaAssignment},
				{20_000, nil, kerr.PolicyViolation},
			} {
				got := grow(c, version, validate, topic, tc.count, tc.replicas...)
				same(t, tc.want, got.ErrorCode, "version %d to %d %v", version, tc.count, tc.replicas)
				require.NotNil(t, got.ErrorMessage)
			}
			same(t, kerr.UnknownTopicOrPartition, grow(c, version, validate, fresh("nowhere"), 3).ErrorCode)
		}
		same(t, nil, grow(c, version, true, topic, 6).ErrorCode)
		require.Len(t, metadata(c, 12, false, topic).Topics[0].Partitions, 3, "only validated")
		same(t, nil, grow(c, version, false, topic, 6).ErrorCode)
		kit.Eventually(t, 10*time.Second, "there are more", func() bool { return len(metadata(c, 12, false, topic).Topics[0].Partitions) == 6 })
		same(t, nil, grow(c, version, false, topic, 8, []int32{1}, []int32{1}).ErrorCode)
		kit.Eventually(t, 10*time.Second, "the new ones can be written", func() bool {
			return send(c, 9, topic, id, 7, records("x")).ErrorCode == 0
		})
		require.Equal(t, id, metadata(c, 12, false, topic).Topics[0].TopicID)
	}
}

func consumersSeeNewPartitions(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, _ := create(t, c, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	reader := client(t, addr, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(50*time.Millisecond), kgo.MetadataMaxAge(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond))
	writer := client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic))
	require.NoError(t, writer.ProduceSync(ctx, &kgo.Record{Partition: 0, Value: []byte("0")}).FirstErr())
	require.Equal(t, 1, reader.PollFetches(ctx).NumRecords())
	same(t, nil, grow(c, 3, false, topic, 4).ErrorCode)
	writer = client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic))
	for p := int32(1); p < 4; p++ {
		require.NoError(t, writer.ProduceSync(ctx, &kgo.Record{Partition: p, Value: fmt.Append(nil, p)}).FirstErr())
	}
	seen := map[int32]string{}
	for len(seen) < 3 {
		got := reader.PollFetches(ctx)
		require.NoError(t, ctx.Err())
		got.EachRecord(func(r *kgo.Record) { seen[r.Partition] = string(r.Value) })
	}
	require.Equal(t, map[int32]string{1: "1", 2: "2", 3: "3"}, seen)
}

func metadataOf(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	a, aID := create(t, c, 2)
	b, _ := create(t, c, 1)
	for version := range int16(14) {
		resp := metadata(c, version, false, b, a, fresh("nowhere"), a)
		require.Len(t, resp.Topics, 3, "each once")
		found := map[string]int{}
		for _, m := range resp.Topics {
			if m.ErrorCode == 0 {
				found[*m.Topic] = len(m.Partitions)
				for _, p := range m.Partitions {
					require.EqualValues(t, 1, p.Leader)
					require.Equal(t, []int32{1}, p.Replicas)
					require.Equal(t, []int32{1}, p.ISR)
					require.Empty(t, p.OfflineReplicas)
				}
				require.Equal(t, version >= 10, m.TopicID != [16]byte{})
			} else {
				same(t, kerr.UnknownTopicOrPartition, m.ErrorCode)
			}
		}
		require.Equal(t, map[string]int{a: 2, b: 1}, found)
		require.Len(t, resp.Brokers, 1)
		require.EqualValues(t, 1, resp.Brokers[0].NodeID)
		if version >= 1 {
			require.EqualValues(t, 1, resp.ControllerID)
		}
		all := kmsg.NewPtrMetadataRequest()
		all.Version = version
		require.GreaterOrEqual(t, len(ask[*kmsg.MetadataResponse](c, all).Topics), 2, "no list is all")
		if version >= 1 {
			all.Topics = []kmsg.MetadataRequestTopic{}
			require.Empty(t, ask[*kmsg.MetadataResponse](c, all).Topics, "an empty list is none")
		}
	}
	for _, version := range []int16{12, 13} {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.AllowAutoTopicCreation = version, true
		for _, id := range [][16]byte{aID, {7, 7}, aID} {
			rt := kmsg.NewMetadataRequestTopic()
			rt.TopicID = id
			req.Topics = append(req.Topics, rt)
		}
		resp := ask[*kmsg.MetadataResponse](c, req)
		require.Len(t, resp.Topics, 2)
		for _, m := range resp.Topics {
			if m.TopicID == aID {
				same(t, nil, m.ErrorCode)
				require.Equal(t, a, *m.Topic)
				require.Len(t, m.Partitions, 2)
			} else {
				same(t, kerr.UnknownTopicID, m.ErrorCode)
			}
		}
	}
}
