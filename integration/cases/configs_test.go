package cases

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

func change(key string, op kmsg.IncrementalAlterConfigOp, value *string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = key, op, value
	return c
}

func set(key, value string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return change(key, kmsg.IncrementalAlterConfigOpSet, &value)
}

func remove(key string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return change(key, kmsg.IncrementalAlterConfigOpDelete, nil)
}

func add(key, value string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return change(key, kmsg.IncrementalAlterConfigOpAppend, &value)
}

func subtract(key, value string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return change(key, kmsg.IncrementalAlterConfigOpSubtract, &value)
}

func alterResource(c *kit.Raw, validate bool, kind kmsg.ConfigResourceType, name string, changes ...kmsg.IncrementalAlterConfigsRequestResourceConfig) kmsg.IncrementalAlterConfigsResponseResource {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version, req.ValidateOnly = 1, validate
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.Configs = kind, name, changes
	req.Resources = append(req.Resources, r)
	return ask[*kmsg.IncrementalAlterConfigsResponse](c, req).Resources[0]
}

// alter changes a topic's configs.
func alter(c *kit.Raw, topic string, changes ...kmsg.IncrementalAlterConfigsRequestResourceConfig) kmsg.IncrementalAlterConfigsResponseResource {
	return alterResource(c, false, kmsg.ConfigResourceTypeTopic, topic, changes...)
}

func describe(c *kit.Raw, version int16, kind kmsg.ConfigResourceType, name string, keys []string) kmsg.DescribeConfigsResponseResource {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms = version, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, r)
	return ask[*kmsg.DescribeConfigsResponse](c, req).Resources[0]
}

func TestConfigs(t *testing.T) {
	addr := broker(t)
	t.Run("AD-05 an explicit value that is the default", func(t *testing.T) { explicitDefault(t, addr) })
	t.Run("AD-05 append and subtract", func(t *testing.T) { appendAndSubtract(t, addr) })
	t.Run("AD-05 all of a resource's keys or none", func(t *testing.T) { allOrNothing(t, addr) })
	t.Run("AD-05 what is refused", func(t *testing.T) { refusedChanges(t, addr) })
	t.Run("AD-05 the default of the cluster changes", func(t *testing.T) { clusterDefault(t, addr) })
	t.Run("AD-05 many callers", func(t *testing.T) { changesAtOnce(t, addr) })
	t.Run("named keys", func(t *testing.T) { namedKeys(t, addr) })
	t.Run("resources that are not there", func(t *testing.T) { unknownResources(t, addr) })
}

const (
	ofTopic  = kmsg.ConfigResourceTypeTopic
	ofBroker = kmsg.ConfigResourceTypeBroker
)

// value is one config as it is described, with its source; "" and 0 where absent.
func value(c *kit.Raw, kind kmsg.ConfigResourceType, name, key string) (string, kmsg.ConfigSource) {
	for _, cfg := range describe(c, 4, kind, name, []string{key}).Configs {
		if cfg.Name == key && cfg.Value != nil {
			return *cfg.Value, cfg.Source
		}
	}
	return "", 0
}

// becomes waits for a config: Apache Kafka answers a change before it is seen.
func becomes(t *testing.T, c *kit.Raw, kind kmsg.ConfigResourceType, name, key, want string, source kmsg.ConfigSource) {
	t.Helper()
	is := func() bool {
		got, from := value(c, kind, name, key)
		return got == want && from == source
	}
	if reference() {
		kit.Eventually(t, 10*time.Second, key+" becomes "+want, is)
	}
	got, from := value(c, kind, name, key)
	require.Equal(t, want, got, key)
	require.Equal(t, source, from, key)
}

const (
	topicOverride  = kmsg.ConfigSource(1)
	clusterDynamic = kmsg.ConfigSource(3)
	builtIn        = kmsg.ConfigSource(5)
)

func explicitDefault(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, _ := create(t, c, 1)
	for key, def := range map[string]string{
		"cleanup.policy": "delete", "retention.ms": "604800000", "max.message.bytes": "1048588", "compression.type": "producer",
		"min.insync.replicas": "1", "flush.messages": "9223372036854775807", "retention.bytes": "-1", "preallocate": "false",
	} {
		before, source := value(c, ofTopic, topic, key)
		require.Equal(t, def, before, key)
		require.Contains(t, []kmsg.ConfigSource{builtIn, clusterDynamic, 4}, source, key)
		same(t, nil, alter(c, topic, set(key, def)).ErrorCode, key)
		becomes(t, c, ofTopic, topic, key, def, topicOverride)
		cfg := describe(c, 4, ofTopic, topic, []string{key}).Configs[0]
		require.Equal(t, topicOverride, cfg.ConfigSynonyms[0].Source, "the override comes first")
		require.Equal(t, key, cfg.ConfigSynonyms[0].Name)
		require.False(t, cfg.ReadOnly)
		require.False(t, cfg.IsSensitive)
		same(t, nil, alter(c, topic, remove(key)).ErrorCode, key)
		becomes(t, c, ofTopic, topic, key, def, source)
		same(t, nil, alter(c, topic, remove(key)).ErrorCode, "once more")
	}
}

func appendAndSubtract(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, _ := create(t, c, 1)
	const key = "cleanup.policy"
	for _, step := range []struct {
		change kmsg.IncrementalAlterConfigsRequestResourceConfig
		want   string
		source kmsg.ConfigSource
	}{
		{add(key, "compact"), "delete,compact", topicOverride},
		{add(key, "compact"), "delete,compact", topicOverride},
		{subtract(key, "delete"), "compact", topicOverride},
		{subtract(key, "delete"), "compact", topicOverride},
		{add(key, "delete"), "compact,delete", topicOverride},
		{subtract(key, "compact"), "delete", topicOverride},
		{remove(key), "delete", builtIn},
	} {
		same(t, nil, alter(c, topic, step.change).ErrorCode)
		becomes(t, c, ofTopic, topic, key, step.want, step.source)
	}
	same(t, kerr.InvalidConfig, alter(c, topic, add(key, "shrink")).ErrorCode)
	same(t, kerr.InvalidConfig, alter(c, topic, add("retention.ms", "5")).ErrorCode, "no list")
	same(t, kerr.InvalidConfig, alter(c, topic, subtract("retention.ms", "5")).ErrorCode, "no list")
	same(t, kerr.InvalidConfig, alter(c, topic, add("no.such.key", "5")).ErrorCode)
	becomes(t, c, ofTopic, topic, key, "delete", builtIn)
}

func allOrNothing(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, _ := create(t, c, 1)
	other, _ := create(t, c, 1)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for name, changes := range map[string][]kmsg.IncrementalAlterConfigsRequestResourceConfig{
		topic: {set("retention.ms", "1000"), set("segment.bytes", "one")},
		other: {set("retention.ms", "2000"), set("retention.bytes", "5000000")},
	} {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.Configs = ofTopic, name, changes
		req.Resources = append(req.Resources, r)
	}
	for version := range int16(2) {
		req.Version = version
		for _, r := range ask[*kmsg.IncrementalAlterConfigsResponse](c, req).Resources {
			want := kerr.InvalidConfig
			if r.ResourceName == other {
				want = nil
			}
			same(t, want, r.ErrorCode)
		}
	}
	becomes(t, c, ofTopic, other, "retention.ms", "2000", topicOverride)
	becomes(t, c, ofTopic, other, "retention.bytes", "5000000", topicOverride)
	becomes(t, c, ofTopic, topic, "retention.ms", "604800000", builtIn)
	same(t, nil, alterResource(c, true, ofTopic, topic, set("retention.ms", "1000")).ErrorCode)
	becomes(t, c, ofTopic, topic, "retention.ms", "604800000", builtIn)
	same(t, kerr.InvalidConfig, alterResource(c, true, ofTopic, topic, set("retention.ms", "soon")).ErrorCode)
}

func refusedChanges(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, _ := create(t, c, 1)
	for name, tc := range map[string]struct {
		kind    kmsg.ConfigResourceType
		name    string
		changes []kmsg.IncrementalAlterConfigsRequestResourceConfig
		want    *kerr.Error
	}{
		"unknown key":        {ofTopic, topic, one(set("no.such.key", "1")), kerr.InvalidConfig},
		"removed unknown":    {ofTopic, topic, one(remove("no.such.key")), nil},
		"null value":         {ofTopic, topic, one(change("retention.ms", kmsg.IncrementalAlterConfigOpSet, nil)), kerr.InvalidRequest},
		"null append":        {ofTopic, topic, one(change("cleanup.policy", kmsg.IncrementalAlterConfigOpAppend, nil)), kerr.InvalidRequest},
		"empty value":        {ofTopic, topic, one(set("retention.ms", "")), kerr.InvalidConfig},
		"spaces around":      {ofTopic, topic, one(set("retention.ms", " 5000 ")), nil},
		"below range":        {ofTopic, topic, one(set("retention.ms", "-2")), kerr.InvalidConfig},
		"beyond 64 bits":     {ofTopic, topic, one(set("retention.ms", "9223372036854775808")), kerr.InvalidConfig},
		"beyond 32 bits":     {ofTopic, topic, one(set("segment.bytes", "2147483648")), kerr.InvalidConfig},
		"ratio above 1":      {ofTopic, topic, one(set("min.cleanable.dirty.ratio", "1.5")), kerr.InvalidConfig},
		"unknown codec":      {ofTopic, topic, one(set("compression.type", "rar")), kerr.InvalidConfig},
		"unknown time type":  {ofTopic, topic, one(set("message.timestamp.type", "Never")), kerr.InvalidConfig},
		"unknown operation":  {ofTopic, topic, one(change("retention.ms", 9, kmsg.StringPtr("1"))), kerr.InvalidRequest},
		"a key twice":        {ofTopic, topic, append(one(set("retention.ms", "1")), set("retention.ms", "2")), kerr.InvalidRequest},
		"no changes":         {ofTopic, topic, nil, nil},
		"unknown topic":      {ofTopic, "no-such-topic", one(set("retention.ms", "1")), kerr.UnknownTopicOrPartition},
		"no topic":           {ofTopic, "", one(set("retention.ms", "1")), kerr.InvalidRequest},
		"another broker":     {ofBroker, "99", one(set("log.retention.ms", "1")), kerr.InvalidRequest},
		"no broker at all":   {ofBroker, "one", one(set("log.retention.ms", "1")), kerr.InvalidRequest},
		"a key for starting": {ofBroker, "1", one(set("node.id", "2")), kerr.InvalidRequest},
		"unknown kind":       {kmsg.ConfigResourceType(77), "x", one(set("a", "b")), kerr.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "unknown operation" && reference() {
				t.Skip("Apache Kafka answers with a server error")
			}
			for _, validate := range []bool{true, false} {
				got := alterResource(c, validate, tc.kind, tc.name, tc.changes...)
				same(t, tc.want, got.ErrorCode)
				require.Equal(t, tc.name, got.ResourceName)
			}
		})
	}
}

func one(c kmsg.IncrementalAlterConfigsRequestResourceConfig) []kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return []kmsg.IncrementalAlterConfigsRequestResourceConfig{c}
}

func clusterDefault(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	pinned, _ := create(t, c, 1, "retention.ms=604800000", "cleanup.policy=delete")
	follows, _ := create(t, c, 1)
	const key = "log.retention.ms"
	t.Cleanup(func() { alterResource(c, false, ofBroker, "", remove(key)) })
	same(t, nil, alterResource(c, false, ofBroker, "", set(key, "3600000")).ErrorCode)
	becomes(t, c, ofTopic, follows, "retention.ms", "3600000", clusterDynamic)
	becomes(t, c, ofTopic, pinned, "retention.ms", "604800000", topicOverride)
	becomes(t, c, ofTopic, pinned, "cleanup.policy", "delete", topicOverride)
	becomes(t, c, ofBroker, "1", key, "3600000", clusterDynamic)
	same(t, nil, alterResource(c, false, ofBroker, "1", set(key, "7200000")).ErrorCode)
	becomes(t, c, ofTopic, follows, "retention.ms", "7200000", kmsg.ConfigSource(2))
	becomes(t, c, ofTopic, pinned, "retention.ms", "604800000", topicOverride)
	same(t, nil, alterResource(c, false, ofBroker, "1", remove(key)).ErrorCode)
	same(t, nil, alterResource(c, false, ofBroker, "", remove(key)).ErrorCode)
	becomes(t, c, ofTopic, follows, "retention.ms", "604800000", builtIn)
}

func changesAtOnce(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, _ := create(t, c, 1)
	keys := []string{"retention.ms", "retention.bytes", "segment.ms", "max.message.bytes", "flush.ms", "file.delete.delay.ms"}
	var wg sync.WaitGroup
	codes := make([]int16, len(keys))
	for i, key := range keys {
		conn := kit.Dial(t, addr)
		wg.Go(func() {
			for n := range 10 {
				if code := alter(conn, topic, set(key, strconv.Itoa(1000+n))).ErrorCode; code != 0 {
					codes[i] = code
				}
			}
		})
	}
	wg.Wait()
	for i, key := range keys {
		same(t, nil, codes[i])
		becomes(t, c, ofTopic, topic, key, "1009", topicOverride)
	}
}

func namedKeys(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, _ := create(t, c, 1, "retention.ms=5000")
	for version := int16(1); version <= 4; version++ {
		names := func(keys []string) []string {
			got := describe(c, version, ofTopic, topic, keys)
			same(t, nil, got.ErrorCode)
			out := []string{}
			for _, cfg := range got.Configs {
				out = append(out, cfg.Name)
			}
			slices.Sort(out)
			return out
		}
		require.Equal(t, []string{"retention.bytes", "retention.ms"}, names([]string{"retention.ms", "retention.bytes"}))
		require.Equal(t, []string{"retention.ms"}, names([]string{"retention.ms", "no.such.key", "retention.ms"}))
		require.Empty(t, names([]string{"no.such.key"}))
		all := names(nil)
		require.Greater(t, len(all), 20)
		require.Contains(t, all, "cleanup.policy")
		require.Equal(t, len(all), len(slices.Compact(all)), "each once")
		got := describe(c, version, ofTopic, topic, []string{"retention.ms"}).Configs[0]
		require.Equal(t, "5000", *got.Value)
		require.Equal(t, topicOverride, got.Source)
		if version >= 3 {
			require.Equal(t, kmsg.ConfigTypeLong, got.ConfigType)
		}
	}
	broker := describe(c, 4, ofBroker, "1", []string{"log.retention.ms", "num.partitions", "node.id"})
	same(t, nil, broker.ErrorCode)
	require.Len(t, broker.Configs, 3)
	for _, cfg := range broker.Configs {
		require.Equal(t, cfg.Name != "log.retention.ms", cfg.ReadOnly, cfg.Name)
	}
}

func unknownResources(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	there, _ := create(t, c, 1)
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version = 4
	for _, r := range []struct {
		kind kmsg.ConfigResourceType
		name string
	}{{ofTopic, there}, {ofTopic, "no-such-topic"}, {ofTopic, "bad name"}, {ofBroker, "99"}, {ofBroker, "one"}} {
		q := kmsg.NewDescribeConfigsRequestResource()
		q.ResourceType, q.ResourceName = r.kind, r.name
		req.Resources = append(req.Resources, q)
	}
	got := map[string]int16{}
	for _, r := range ask[*kmsg.DescribeConfigsResponse](c, req).Resources {
		got[r.ResourceName] = r.ErrorCode
		if r.ErrorCode != 0 {
			require.Empty(t, r.Configs)
		}
	}
	require.Equal(t, map[string]int16{there: 0, "no-such-topic": 3, "bad name": 17, "99": 42, "one": 42}, got)
}

// AD-05 with defaults that are set at start: the override outlives each change.
func TestOverridesOutliveTheBrokersDefaults(t *testing.T) {
	s := own(t, map[string]string{"log.retention.ms": "100000000"})
	c := kit.Dial(t, s.Addr)
	pinned, _ := create(t, c, 1, "retention.ms=100000000")
	follows, _ := create(t, c, 1)
	becomes(t, c, ofTopic, follows, "retention.ms", "100000000", kmsg.ConfigSource(4))
	for _, kill := range []bool{true, false} {
		s.Set("log.retention.ms", "200000000")
		s.Restart(kill)
		c = kit.Dial(t, s.Addr)
		becomes(t, c, ofTopic, pinned, "retention.ms", "100000000", topicOverride)
		becomes(t, c, ofTopic, follows, "retention.ms", "200000000", kmsg.ConfigSource(4))
	}
}
