package config

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTablesAreSound(t *testing.T) {
	for _, k := range append(slices.Clone(TopicKeys()), BrokerKeys()...) {
		if k.HasDefault {
			text, _, err := k.parse(k.Default)
			require.NoError(t, err, k.Name)
			require.Equal(t, k.Default, text, "%s: the default is canonical", k.Name)
		}
		require.NotZero(t, k.Type, k.Name)
		switch k.Effect {
		case Effective:
			require.NotEmpty(t, k.Doc, k.Name)
			require.Empty(t, k.Reason, k.Name)
		default:
			require.NotEmpty(t, k.Reason, k.Name)
		}
	}
	for _, k := range TopicKeys() {
		for _, s := range k.Synonyms {
			b, ok := BrokerKey(s)
			require.True(t, ok, s)
			require.NotEqual(t, Unsafe, b.Effect, s)
		}
	}
}

// TestKafkaKeysAreKnown compares the tables with the names, types and defaults
// that Apache Kafka 4.4 has.
func TestKafkaKeysAreKnown(t *testing.T) {
	ourDefault := map[string]bool{
		"node.id": true, "broker.id": true, "process.roles": true, "controller.quorum.voters": true,
		"log.dir": true, "log.dirs": true, "metadata.log.dir": true, "listeners": true,
		"listener.security.protocol.map": true, "log.local.retention.bytes": true,
		"controller.listener.names": true, "remote.log.reader.threads": true,
	}
	forLines(t, "testdata/kafka_keys.txt", func(f []string) {
		scope, name, typ, dflt := f[0], f[1], f[2], f[3]
		find := BrokerKey
		if scope == "topic" {
			find = TopicKey
		}
		k, ok := find(name)
		require.True(t, ok, "%s key %s", scope, name)
		if ourDefault[name] && scope == "broker" {
			return
		}
		require.Equal(t, typ, k.Type.String(), name)
		if dflt == "null" {
			require.False(t, k.HasDefault, name)
			return
		}
		require.True(t, k.HasDefault, name)
		require.Equal(t, dflt, k.Default, name)
	})
}

// TestTopicValuesLikeKafka compares the outcome of many values with what Apache
// Kafka 4.4 said to them.
func TestTopicValuesLikeKafka(t *testing.T) {
	forLines(t, "testdata/kafka_topic_values.txt", func(f []string) {
		before, after := overrides(f[0]), overrides(f[1])
		available := f[2] == "true"
		err := ValidateTopic(TopicCheck{
			Layers: Layers{Topic: after, Static: map[string]string{"log.local.retention.bytes": "-2"}},
			// Kafka reads the flag before the change from the overrides alone.
			WasTiered: before["remote.storage.enable"] == "true", TierAvailable: available,
		})
		got := "ok"
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			got = err.Error()
		}
		require.Equal(t, f[3], got, "%s -> %s", f[0], f[1])
	})
}

func overrides(s string) map[string]string {
	m := map[string]string{}
	for kv := range strings.SplitSeq(s, " ; ") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return m
}

func forLines(t *testing.T, name string, f func(fields []string)) {
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	for s := bufio.NewScanner(file); s.Scan(); {
		if !strings.HasPrefix(s.Text(), "#") {
			f(strings.Split(s.Text(), "\t"))
		}
	}
}

func TestPrecedence(t *testing.T) {
	l := Layers{Static: map[string]string{"log.retention.hours": "2"}}
	require.Equal(t, 2*time.Hour, EffectiveTopic(l).RetentionTime)
	l.Static["log.retention.minutes"] = "3"
	require.Equal(t, 3*time.Minute, EffectiveTopic(l).RetentionTime)
	l.Static["log.retention.ms"] = "5"
	require.Equal(t, 5*time.Millisecond, EffectiveTopic(l).RetentionTime)
	l.Cluster = map[string]string{"log.retention.ms": "6"}
	require.Equal(t, 6*time.Millisecond, EffectiveTopic(l).RetentionTime)
	l.Broker = map[string]string{"log.retention.ms": "-1"}
	require.Equal(t, Forever, EffectiveTopic(l).RetentionTime)
	l.Topic = map[string]string{"retention.ms": "8"}
	require.Equal(t, 8*time.Millisecond, EffectiveTopic(l).RetentionTime)

	l = Layers{Static: map[string]string{"log.roll.hours": "1", "log.roll.jitter.hours": "2", "log.flush.scheduler.interval.ms": "3"}}
	e := EffectiveTopic(l)
	require.Equal(t, time.Hour, e.SegmentAge)
	require.Equal(t, 2*time.Hour, e.SegmentJitter)
	require.Equal(t, 3*time.Millisecond, e.FlushInterval)
	l.Static["log.flush.interval.ms"], l.Static["log.roll.ms"] = "4", "200"
	require.Equal(t, 4*time.Millisecond, EffectiveTopic(l).FlushInterval)
	require.Equal(t, 200*time.Millisecond, EffectiveTopic(l).SegmentAge)
}

func TestDefaults(t *testing.T) {
	e := EffectiveTopic(Layers{})
	require.Equal(t, Topic{
		CleanupPolicy: CleanupDelete, RetentionTime: 168 * time.Hour, RetentionBytes: Unlimited,
		LocalRetentionTime: 168 * time.Hour, LocalRetentionBytes: Unlimited,
		TierCopyLagBytes: -1, SegmentBytes: 1 << 30, SegmentAge: 168 * time.Hour, IndexBytes: 10 << 20, IndexInterval: 4096,
		FlushMessages: Unlimited, FlushInterval: Forever, MaxMessageBytes: 1048588,
		TimestampBeforeMax: Forever, TimestampAfterMax: time.Hour, CompressionType: "producer", GzipLevel: -1, LZ4Level: 9, ZstdLevel: 3,
		MaxDecompressedBytes: 2147483639, MinInsyncReplicas: 1, DeleteRetention: 24 * time.Hour,
		MaxCompactionLag: Forever, MinCleanableDirtyRatio: 0.5, FileDeleteDelay: time.Minute,
	}, e)
	require.Equal(t, 1, Topic{MinInsyncReplicas: 2}.MinISR(1), "RP-07")
	require.Equal(t, 2, Topic{MinInsyncReplicas: 2}.MinISR(3), "RP-07")
	require.Equal(t, int64(4096), EffectiveTopic(Layers{Topic: map[string]string{
		"segment.bytes": "1048576", "internal.segment.bytes": "4096",
	}}).SegmentBytes)
	require.Zero(t, EffectiveTopic(Layers{Topic: map[string]string{"cleanup.policy": ""}}).CleanupPolicy)
}

func TestLocalRetention(t *testing.T) {
	for name, c := range map[string]struct {
		topic, static map[string]string
		plain         bool // not tiered
		bytes         int64
		time          time.Duration
	}{
		"nothing said":               {bytes: 1 << 30, time: 168 * time.Hour},
		"not tiered":                 {plain: true, bytes: Unlimited, time: 168 * time.Hour},
		"explicit -2":                {topic: m("local.retention.bytes", "-2"), bytes: Unlimited, time: 168 * time.Hour},
		"-2 is the total":            {topic: m("local.retention.bytes", "-2", "retention.bytes", "77", "local.retention.ms", "-2", "retention.ms", "600000"), bytes: 77, time: 10 * time.Minute},
		"total below the built-in":   {topic: m("retention.bytes", "77"), bytes: 77, time: 168 * time.Hour},
		"time alone":                 {topic: m("local.retention.ms", "1000"), bytes: Unlimited, time: time.Second},
		"broker's time alone":        {static: m("log.local.retention.ms", "1000"), bytes: Unlimited, time: time.Second},
		"broker's bytes":             {static: m("log.local.retention.bytes", "5"), topic: m("local.retention.ms", "1000"), bytes: 5, time: time.Second},
		"never above the total":      {static: m("log.local.retention.bytes", "500"), topic: m("retention.bytes", "77"), bytes: 77, time: 168 * time.Hour},
		"no limit of the local time": {topic: m("local.retention.ms", "-1", "retention.ms", "-1"), bytes: Unlimited, time: Forever},
	} {
		e := EffectiveTopic(Layers{Topic: c.topic, Static: c.static, TieredByDefault: !c.plain})
		require.Equal(t, c.bytes, e.LocalRetentionBytes, name)
		require.Equal(t, c.time, e.LocalRetentionTime, name)
		require.Equal(t, !c.plain, e.Tiered, name)
	}
	require.NoError(t, ValidateTopic(TopicCheck{
		Layers: Layers{Topic: m("retention.bytes", "77"), TieredByDefault: true}, TierAvailable: true,
	}), "the built-in limit is no setting of the user's")
	require.EqualError(t, ValidateTopic(TopicCheck{
		Layers:        Layers{Topic: m("retention.bytes", "77"), Static: m("log.local.retention.bytes", "500"), TieredByDefault: true},
		TierAvailable: true,
	}), "Invalid value 500 for configuration local.retention.bytes: Value must not be more than retention.bytes property value: 77", "TI-31")
}

func m(kv ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		out[kv[i]] = kv[i+1]
	}
	return out
}

func TestTierOfNewTopics(t *testing.T) {
	require.True(t, TierOf(Layers{}, true))
	require.False(t, TierOf(Layers{}, false))
	require.False(t, TierOf(Layers{Topic: m("cleanup.policy", "compact")}, true))
	require.False(t, TierOf(Layers{Static: m("log.cleanup.policy", "compact,delete")}, true))
	err := ValidateTopic(TopicCheck{Layers: Layers{Topic: m("cleanup.policy", "compact"), TieredByDefault: true}, TierAvailable: true})
	require.ErrorContains(t, err, "Remote log storage only supports topics with cleanup.policy=delete")
}

func find(t *testing.T, vs []Value, name string) Value {
	for _, v := range vs {
		if v.Name == name {
			return v
		}
	}
	require.Fail(t, "no key", name)
	return Value{}
}

func TestDescribe(t *testing.T) {
	l := Layers{
		Topic:   m("cleanup.policy", "delete", "retention.ms", " 5 "),
		Broker:  m("log.retention.ms", "6"),
		Cluster: m("log.segment.bytes", "2097152"),
		Static:  m("log.retention.hours", "7", "log.segment.bytes", "3145728", "remote.store.secret.access.key", "x", "group.share.max.size", "300"),
	}
	vs := DescribeTopic(l)
	require.True(t, slices.IsSortedFunc(vs, func(a, b Value) int { return strings.Compare(a.Name, b.Name) }))
	require.Len(t, vs, len(TopicKeys())-1, "all but the internal one")
	v := find(t, vs, "cleanup.policy")
	require.Equal(t, SourceTopic, v.Source, "AD-05: an explicit value equal to the default stays one")
	v = find(t, vs, "retention.ms")
	require.Equal(t, "5", v.Value)
	require.Equal(t, []Synonym{
		{Name: "retention.ms", Value: "5", Source: SourceTopic},
		{Name: "log.retention.ms", Value: "6", Source: SourceDynamicBroker},
		{Name: "log.retention.hours", Value: "7", Source: SourceStatic},
		{Name: "log.retention.hours", Value: "168", Source: SourceDefault},
	}, v.Synonyms)
	v = find(t, vs, "segment.bytes")
	require.Equal(t, "2097152", v.Value)
	require.Equal(t, SourceDynamicAll, v.Source)
	require.Equal(t, SourceDefault, find(t, vs, "max.message.bytes").Source)
	v = find(t, DescribeTopic(Layers{Static: m("log.retention.hours", "7")}), "retention.ms")
	require.Equal(t, "25200000", v.Value)
	require.Equal(t, SourceStatic, v.Source)
	for _, key := range []string{"retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms"} {
		require.Empty(t, find(t, DescribeTopic(Layers{}), key).Synonyms, "the broker key has no default of its own")
	}
	require.Equal(t, []Synonym{{Name: "retention.ms", Value: "5", Source: SourceTopic}},
		find(t, DescribeTopic(Layers{Topic: m("retention.ms", "5")}), "retention.ms").Synonyms)
	v = find(t, DescribeTopic(Layers{TieredByDefault: true}), "remote.storage.enable")
	require.Equal(t, "true", v.Value)
	require.Equal(t, SourceDefault, v.Source)
	require.Equal(t, "1073741824", find(t, DescribeTopic(Layers{TieredByDefault: true}), "local.retention.bytes").Value)
	require.Equal(t, "-2", find(t, DescribeTopic(Layers{}), "local.retention.bytes").Value)

	bs := DescribeBroker(l)
	v = find(t, bs, "remote.store.secret.access.key")
	require.True(t, v.Sensitive && v.Null && v.Value == "")
	v = find(t, bs, "log.segment.bytes")
	require.Equal(t, "2097152", v.Value)
	require.False(t, v.ReadOnly)
	require.True(t, find(t, bs, "log.dirs").ReadOnly)
	require.Equal(t, "300", find(t, bs, "group.share.max.size").Value, "set, so listed though it has no effect")
	for _, v := range bs {
		require.NotEqual(t, "group.share.min.session.timeout.ms", v.Name)
	}
	require.Equal(t, "false", find(t, bs, "log.remote.storage.enable").Value)
	require.Equal(t, []Value{}, append([]Value{}, DescribeCluster(nil)...))
	require.Equal(t, SourceDynamicAll, DescribeCluster(l.Cluster)[0].Source)
}

func TestDynamicBroker(t *testing.T) {
	require.NoError(t, ValidateDynamicBroker(m("log.retention.ms", "5"), []string{"log.retention.ms"}, true))
	require.EqualError(t, ValidateDynamicBroker(nil, []string{"log.dirs"}, false), "Cannot update these configs dynamically: [log.dirs]")
	require.EqualError(t, ValidateDynamicBroker(m("log.retention.ms", "x"), []string{"log.retention.ms"}, true),
		"Invalid value x for configuration log.retention.ms: Not a number of type LONG")
	require.ErrorContains(t, ValidateDynamicBroker(m("log.retention.mss", "5"), []string{"log.retention.mss"}, true), "did you mean log.retention.ms?")
	require.ErrorContains(t, ValidateDynamicBroker(m("ssl.keystore.key", "x"), []string{"ssl.keystore.key"}, false), "TLS is not implemented")
}

func TestTopicWarnings(t *testing.T) {
	ws := TopicWarnings(m("preallocate", "true", "compression.type", "producer", "cleanup.policy", "compact,delete", "retention.ms", "5"))
	require.Len(t, ws, 1)
	require.Equal(t, "preallocate", ws[0].Key)
}

func TestReference(t *testing.T) {
	r := Reference()
	for _, k := range append(slices.Clone(TopicKeys()), BrokerKeys()...) {
		if !k.Internal {
			require.Contains(t, r, "`"+k.Name+"`")
		}
	}
	require.NotContains(t, r, "internal.segment.bytes")
}

func TestGroupKeys(t *testing.T) {
	b, _, err := ParseBroker(m("group.consumer.session.timeout.ms", "50000", "group.consumer.max.heartbeat.interval.ms", "8000"))
	require.NoError(t, err)
	g := EffectiveGroup(nil, b.Groups)
	require.Equal(t, Group{SessionTimeout: 50 * time.Second, HeartbeatInterval: 5 * time.Second, AssignmentInterval: time.Second}, g)
	own := m("consumer.session.timeout.ms", " 46000", "consumer.heartbeat.interval.ms", "9000", "share.auto.offset.reset", "earliest")
	g = EffectiveGroup(own, b.Groups)
	require.Equal(t, Group{SessionTimeout: 46 * time.Second, HeartbeatInterval: 8 * time.Second, AssignmentInterval: time.Second}, g,
		"the bound that has come down since counts")
	require.EqualError(t, ValidateGroup(own, b.Groups), "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms")
	own["consumer.heartbeat.interval.ms"] = "7000"
	require.NoError(t, ValidateGroup(own, b.Groups))

	values := DescribeGroup(own, b.Static)
	require.Len(t, values, len(GroupKeys()))
	v := find(t, values, "consumer.session.timeout.ms")
	require.Equal(t, "46000", v.Value)
	require.Equal(t, SourceGroup, v.Source)
	require.Equal(t, []Synonym{
		{Name: "consumer.session.timeout.ms", Value: "46000", Source: SourceGroup},
		{Name: "group.consumer.session.timeout.ms", Value: "50000", Source: SourceStatic},
		{Name: "group.consumer.session.timeout.ms", Value: "45000", Source: SourceDefault},
	}, v.Synonyms)
	v = find(t, values, "consumer.assignment.interval.ms")
	require.Equal(t, "1000", v.Value)
	require.Equal(t, SourceDefault, v.Source)
	require.Equal(t, "sticky", find(t, values, "streams.assignor.name").Value)
	v = find(t, values, "share.auto.offset.reset")
	require.Equal(t, "earliest", v.Value)
	require.Equal(t, []Synonym{{"share.auto.offset.reset", "earliest", false, SourceGroup}, {"share.auto.offset.reset", "latest", false, SourceDefault}}, v.Synonyms)

	for _, bad := range []map[string]string{
		m("group.consumer.session.timeout.ms", "1000"),
		m("group.consumer.min.session.timeout.ms", "70000"),
		m("group.consumer.heartbeat.interval.ms", "20000"),
		m("group.consumer.min.session.timeout.ms", "1", "group.consumer.session.timeout.ms", "5000"),
		m("group.coordinator.rebalance.protocols", "consumer"),
		m("group.consumer.assignors", ""),
		m("group.consumer.assignors", "sticky"),
		m("group.consumer.migration.policy", "never"),
	} {
		_, _, err := ParseBroker(bad)
		require.ErrorIs(t, err, ErrInvalid, "%v", bad)
	}
}
