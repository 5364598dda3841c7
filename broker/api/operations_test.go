package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/metadata/request"
)

func TestAlterConfigsReplacesEverything(t *testing.T) {
	k := newKit(t, nil)
	k.topic("t", 1, "retention.ms", "7", "segment.ms", "8")
	c := k.dial()
	alter := func(version int16, validate bool, name string, kind kmsg.ConfigResourceType, keys ...any) (int16, string) {
		req := kmsg.NewPtrAlterConfigsRequest()
		req.ValidateOnly = validate
		r := kmsg.NewAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kind, name
		for i := 0; i < len(keys); i += 2 {
			e := kmsg.NewAlterConfigsRequestResourceConfig()
			e.Name = keys[i].(string)
			if v, ok := keys[i+1].(string); ok {
				e.Value = &v
			}
			r.Configs = append(r.Configs, e)
		}
		req.Resources = append(req.Resources, r)
		out := ask[*kmsg.AlterConfigsResponse](c, req, version).Resources[0]
		require.Equal(t, name, out.ResourceName)
		require.Equal(t, kind, out.ResourceType)
		if out.ErrorMessage == nil {
			return out.ErrorCode, ""
		}
		return out.ErrorCode, *out.ErrorMessage
	}
	now := func() map[string]string {
		topic, _ := k.Image().Topic("t")
		return topic.Configs
	}
	const topics, brokers = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	for version := range int16(3) {
		code, _ := alter(version, true, "t", topics, "retention.ms", "9")
		require.Zero(t, code)
		require.NotEqual(t, map[string]string{"retention.ms": "9"}, now(), "validated only")
		code, _ = alter(version, false, "t", topics, "retention.ms", "9")
		require.Zero(t, code)
		require.Equal(t, map[string]string{"retention.ms": "9"}, now())
		code, _ = alter(version, false, "t", topics)
		require.Zero(t, code)
		require.Empty(t, now())
		for _, test := range []struct {
			code int16
			text string
			name string
			kind kmsg.ConfigResourceType
			keys []any
		}{
			{42, "Null value not supported for : a, b", "t", topics, []any{"a", nil, "b", nil}},
			{42, "Error due to duplicate config keys", "t", topics, []any{"a", "1", "a", "2"}},
			{42, "Default topic resources are not allowed.", "", topics, nil},
			{3, "The topic 'nope' does not exist.", "nope", topics, nil},
			{42, "Node id must be an integer, but it is: x", "x", brokers, nil},
			{42, "Unexpected broker id, expected 1, but received 7", "7", brokers, nil},
			{42, "Unknown resource type 3", "x", 3, nil},
			{42, "Unknown resource type 8", "1", 8, nil},
		} {
			code, text := alter(version, false, test.name, test.kind, test.keys...)
			require.Equal(t, test.code, code, test.text)
			require.Equal(t, test.text, text)
		}
	}
	req := kmsg.NewPtrAlterConfigsRequest()
	require.Empty(t, ask[*kmsg.AlterConfigsResponse](c, req, 2).Resources)
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = topics, "t"
	req.Resources = append(req.Resources, r, r)
	for _, r := range ask[*kmsg.AlterConfigsResponse](c, req, 2).Resources {
		require.Equal(t, int16(42), r.ErrorCode)
		require.Equal(t, "Each resource must appear at most once.", *r.ErrorMessage)
	}
}

func TestListConfigResources(t *testing.T) {
	k := newKit(t, nil)
	k.topic("b", 1)
	k.topic("a", 1)
	c := k.dial()
	list := func(version int16, kinds ...int8) (int16, []string) {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.ResourceTypes = kinds
		resp := ask[*kmsg.ListConfigResourcesResponse](c, req, version)
		var names []string
		for _, r := range resp.ConfigResources {
			names = append(names, kmsg.ConfigResourceType(r.Type).String()+" "+r.Name)
		}
		return resp.ErrorCode, names
	}
	for _, test := range []struct {
		version int16
		kinds   []int8
		code    int16
		names   []string
	}{
		{0, nil, 0, nil},
		{1, nil, 0, []string{"BROKER 1", "TOPIC a", "TOPIC b"}},
		{1, []int8{2, 2}, 0, []string{"TOPIC a", "TOPIC b"}},
		{1, []int8{4}, 0, []string{"BROKER 1"}},
		{1, []int8{16, 32, 8}, 0, nil},
		{1, []int8{2, 99}, 35, nil},
	} {
		code, names := list(test.version, test.kinds...)
		require.Equal(t, test.code, code)
		require.Equal(t, test.names, names)
	}
}

func TestDescribeQuorum(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	for version := range int16(3) {
		req := kmsg.NewPtrDescribeQuorumRequest()
		topic := kmsg.NewDescribeQuorumRequestTopic()
		topic.Topic = "__cluster_metadata"
		topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
		req.Topics = append(req.Topics, topic)
		resp := ask[*kmsg.DescribeQuorumResponse](c, req, version)
		p := resp.Topics[0].Partitions[0]
		require.Zero(t, p.ErrorCode)
		require.Equal(t, []int64{1, 3, 42}, []int64{int64(p.LeaderID), int64(p.LeaderEpoch), p.HighWatermark})
		require.Len(t, p.CurrentVoters, 1)
		require.Len(t, p.Observers, 1)
		require.Equal(t, int64(43), p.CurrentVoters[0].LogEndOffset)
		require.Equal(t, int64(-1), p.Observers[0].LogEndOffset)
		if version >= 1 {
			require.Equal(t, int64(5), p.CurrentVoters[0].LastFetchTimestamp)
		}
		if version >= 2 {
			require.Equal(t, [16]byte{9}, p.CurrentVoters[0].ReplicaDirectoryID)
			require.Equal(t, "PLAINTEXT", resp.Nodes[0].Listeners[0].Name)
		}
		req.Topics[0].Partitions[0].Partition = 1
		require.Equal(t, int16(3), ask[*kmsg.DescribeQuorumResponse](c, req, version).Topics[0].Partitions[0].ErrorCode)
		req.Topics[0].Topic = "t"
		require.Equal(t, int16(3), ask[*kmsg.DescribeQuorumResponse](c, req, version).Topics[0].Partitions[0].ErrorCode)
	}
}

func TestUpdateFeatures(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	for version := range int16(3) {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.UpgradeType = "f", 4, 2
		req.FeatureUpdates, req.ValidateOnly = append(req.FeatureUpdates, u), true
		resp := ask[*kmsg.UpdateFeaturesResponse](c, req, version)
		require.Zero(t, resp.ErrorCode)
		require.Len(t, resp.Results, []int{1, 1, 0}[version])
		want := request.UpdateFeatures{Updates: []request.FeatureUpdate{{Name: "f", Level: 4, Type: 2}}, ValidateOnly: true}
		if version == 0 {
			want.Updates[0].Type, want.ValidateOnly = request.FeatureUpgrade, false
		}
		require.Equal(t, want, k.features)
		k.refuseFeatures = request.Refuse(request.ErrInvalidFeatureUpdate, "no")
		resp = ask[*kmsg.UpdateFeaturesResponse](c, req, version)
		require.Equal(t, int16(95), resp.ErrorCode)
		require.Equal(t, "no", *resp.ErrorMessage)
		require.Empty(t, resp.Results)
		k.refuseFeatures = nil
	}
}

func TestUnregisterBroker(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = 7
	require.Zero(t, ask[*kmsg.UnregisterBrokerResponse](c, req, 0).ErrorCode)
	req.BrokerID = 8
	resp := ask[*kmsg.UnregisterBrokerResponse](c, req, 0)
	require.Equal(t, int16(102), resp.ErrorCode)
	require.Equal(t, "Broker ID 8 is not currently registered", *resp.ErrorMessage)
}

func TestDescribeProducers(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("t", 1)
	c := k.dial()
	builder := recordbatch.NewBuilder(recordbatch.Options{Producer: &recordbatch.Producer{ID: 12, Epoch: 3}})
	builder.Add(now(), nil, []byte("one"))
	builder.Add(now(), nil, []byte("two"))
	b := builder.Build()
	require.Zero(t, ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", id, map[int32][]byte{0: b}), 13).Topics[0].Partitions[0].ErrorCode)
	req := kmsg.NewPtrDescribeProducersRequest()
	for name, parts := range map[string][]int32{"t": {0, 5}, "nope": {0}, "bad!": {0}} {
		topic := kmsg.NewDescribeProducersRequestTopic()
		topic.Topic, topic.Partitions = name, parts
		req.Topics = append(req.Topics, topic)
	}
	for _, topic := range ask[*kmsg.DescribeProducersResponse](c, req, 0).Topics {
		p := topic.Partitions[0]
		switch topic.Topic {
		case "nope":
			require.Equal(t, int16(3), p.ErrorCode)
		case "bad!":
			require.Equal(t, int16(17), p.ErrorCode)
		default:
			require.Zero(t, p.ErrorCode)
			require.Len(t, p.ActiveProducers, 1)
			a := p.ActiveProducers[0]
			require.Equal(t, []int64{12, 3, 1, -1, -1}, []int64{a.ProducerID, int64(a.ProducerEpoch), int64(a.LastSequence), int64(a.CoordinatorEpoch), a.CurrentTxnStartOffset})
			require.InDelta(t, now(), a.LastTimestamp, 60_000)
			require.Equal(t, int16(3), topic.Partitions[1].ErrorCode)
		}
	}
}
