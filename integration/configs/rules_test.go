package configs

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
	"strandline/metadata/config"
)

// some is a value that a key takes: its default, so that a value that equals the
// default is seen to be one that was set.
func some(k config.Key) string {
	if k.HasDefault {
		return k.Default
	}
	return "3600000"
}

// levelled are the topic keys that a broker key gives the default of, with the
// broker key that can be changed while the broker runs.
func levelled() map[string]config.Key {
	out := map[string]config.Key{}
	for _, k := range config.TopicKeys() {
		if len(k.Synonyms) > 0 {
			b, _ := config.BrokerKey(k.Synonyms[0])
			out[k.Name] = b
		}
	}
	return out
}

// TestPrecedence sets every key that has levels on each of them, lowest first, and
// removes it again: the topic shows the value of the highest level and names the
// others as synonyms, in order.
func TestPrecedence(t *testing.T) {
	keys := levelled()
	static, changes, own, removed, ownRemoved := map[string]string{}, []string(nil), []string(nil), []string(nil), []string(nil)
	for name, b := range keys {
		k, _ := config.TopicKey(name)
		static[b.Name] = some(b)
		require.Equal(t, config.ClusterWide, b.Dynamic, b.Name)
		changes, removed = append(changes, b.Name+"="+some(b)), append(removed, b.Name)
		own, ownRemoved = append(own, name+"="+some(k)), append(ownRemoved, name)
	}
	plain := start(t)
	for name, c := range plain.describe(ofTopic, plain.create(1)) {
		require.Equal(t, kmsg.ConfigSourceDefaultConfig, withoutStore(name, c.Source), name)
	}
	n := start(t, static)
	topic := n.create(1)
	// One broker has no min.insync.replicas of its own, the others would not know.
	ofOne := slices.DeleteFunc(slices.Clone(changes), func(s string) bool { return strings.HasPrefix(s, "min.insync.replicas=") })
	levels := []kmsg.ConfigSource{kmsg.ConfigSourceStaticBrokerConfig}
	check := func() {
		t.Helper()
		described := n.describe(ofTopic, topic)
		for name := range keys {
			c, levels := described[name], levels
			if name == "min.insync.replicas" {
				levels = slices.DeleteFunc(slices.Clone(levels), func(s kmsg.ConfigSource) bool { return s == kmsg.ConfigSourceDynamicBrokerConfig })
			}
			require.Equal(t, levels[0], c.Source, name)
			var sources []kmsg.ConfigSource
			for _, s := range c.ConfigSynonyms {
				if s.Source != kmsg.ConfigSourceDefaultConfig {
					sources = append(sources, s.Source)
				}
			}
			require.Equal(t, levels, sources, name)
			require.Equal(t, *c.ConfigSynonyms[0].Value, *c.Value, name)
		}
	}
	check()
	for _, step := range []struct {
		kind   kmsg.ConfigResourceType
		of     string
		set    []string
		source kmsg.ConfigSource
	}{
		{ofBroker, "", changes, kmsg.ConfigSourceDynamicDefaultBrokerConfig},
		{ofBroker, "1", ofOne, kmsg.ConfigSourceDynamicBrokerConfig},
		{ofTopic, topic, own, kmsg.ConfigSourceDynamicTopicConfig},
	} {
		n.mustAlter(step.kind, step.of, step.set...)
		levels = append([]kmsg.ConfigSource{step.source}, levels...)
		check()
	}
	// The broker's own page has the same levels, the topic's apart.
	page := n.describe(ofBroker, "1")
	for _, b := range keys {
		if c := page[b.Name]; b.Effect == config.Effective && b.Name != "min.insync.replicas" {
			require.Equal(t, kmsg.ConfigSourceDynamicBrokerConfig, c.Source, b.Name)
			require.False(t, c.ReadOnly, b.Name)
		}
	}
	for _, step := range []struct {
		kind kmsg.ConfigResourceType
		of   string
		keys []string
	}{{ofTopic, topic, ownRemoved}, {ofBroker, "1", slices.DeleteFunc(slices.Clone(removed), func(s string) bool { return s == "min.insync.replicas" })}, {ofBroker, "", removed}} {
		n.mustAlter(step.kind, step.of, step.keys...)
		levels = levels[1:]
		check()
	}
}

// withoutStore leaves out what the tests' own settings are.
func withoutStore(name string, source kmsg.ConfigSource) kmsg.ConfigSource {
	if name == "remote.storage.enable" {
		return kmsg.ConfigSourceDefaultConfig
	}
	return source
}

// TestDescriptions holds what DescribeConfigs says of every key against the table.
func TestDescriptions(t *testing.T) {
	n := start(t, map[string]string{"remote.store.access.key.id": "A", "remote.store.secret.access.key": "hidden"})
	for kind, of := range map[kmsg.ConfigResourceType]struct {
		name string
		keys []config.Key
	}{ofTopic: {n.create(1), config.TopicKeys()}, ofBroker: {"1", config.BrokerKeys()}} {
		page := n.describe(kind, of.name)
		for _, k := range of.keys {
			c, listed := page[k.Name]
			delete(page, k.Name)
			if k.Internal || kind == ofBroker && k.Effect != config.Effective {
				_, given := quick()[k.Name]
				require.Equal(t, given, listed, "%s is shown where it is set", k.Name)
				continue
			}
			require.True(t, listed, k.Name)
			require.EqualValues(t, k.Type, c.ConfigType, k.Name)
			require.NotEmpty(t, *c.Documentation, k.Name)
			require.Equal(t, k.Sensitive(), c.IsSensitive, k.Name)
			require.Equal(t, kind == ofBroker && k.Dynamic == config.ReadOnly, c.ReadOnly, k.Name)
			if k.Sensitive() {
				require.Nil(t, c.Value)
				for _, s := range c.ConfigSynonyms {
					require.Nil(t, s.Value)
				}
			}
		}
		require.Empty(t, page, "no others")
	}
}

// TestRefusals gives every key that can be changed values of another type, and
// every other one any value.
func TestRefusals(t *testing.T) {
	n := start(t)
	topic := n.create(1)
	refuse := func(kind kmsg.ConfigResourceType, of, change string, want *kerr.Error, says string) {
		t.Helper()
		r := n.alter(kind, of, change)
		require.ErrorIs(t, kerr.ErrorForCode(r.ErrorCode), want, "%s on %q", change, of)
		require.NotNil(t, r.ErrorMessage, change)
		require.Contains(t, *r.ErrorMessage, says, change)
	}
	wrong := func(k config.Key) []string {
		switch k.Type {
		case config.Bool:
			return []string{"maybe", "1", ""}
		case config.Int, config.Long, config.Double:
			return []string{"soon", "1.5x", "", "99999999999999999999x"}
		}
		if k.Name == "compression.type" || strings.HasSuffix(k.Name, "cleanup.policy") || strings.HasSuffix(k.Name, "timestamp.type") || strings.HasSuffix(k.Name, "throttled.replicas") {
			return []string{"no-such-word"}
		}
		return nil
	}
	for _, k := range config.TopicKeys() {
		require.True(t, len(wrong(k)) > 0, k.Name)
		for _, v := range wrong(k) {
			refuse(ofTopic, topic, k.Name+"="+v, kerr.InvalidConfig, k.Name)
		}
	}
	for _, k := range config.BrokerKeys() {
		for _, of := range []string{"", "1"} {
			switch {
			case k.Effect == config.Unsafe:
				refuse(ofBroker, of, k.Name+"=x", kerr.InvalidRequest, k.Reason)
			case k.Dynamic == config.ReadOnly:
				refuse(ofBroker, of, k.Name+"="+some(k), kerr.InvalidRequest, k.Name)
			default:
				for _, v := range wrong(k) {
					// Apache Kafka knows that this is not the right code, and keeps it.
					refuse(ofBroker, of, k.Name+"="+v, kerr.InvalidRequest, k.Name)
				}
			}
		}
	}
	refuse(ofTopic, topic, "no.such.key=1", kerr.InvalidConfig, "no.such.key")
	refuse(ofBroker, "", "no.such.key=1", kerr.InvalidRequest, "no.such.key")
	for name, c := range n.describe(ofTopic, topic) {
		require.NotEqual(t, kmsg.ConfigSourceDynamicTopicConfig, c.Source, "%s: nothing was changed", name)
	}
}

// TestKeysWithoutEffect sets each of them: it is warned of with its reason, or,
// where ignoring it would weaken safety, refused with it.
func TestKeysWithoutEffect(t *testing.T) {
	set, reasons := map[string]string{}, map[string]string{}
	for _, k := range config.BrokerKeys() {
		switch k.Effect {
		case config.Ignored:
			// A key without a default is set to something, for nothing is what it has.
			if set[k.Name], reasons[k.Name] = k.Default, k.Reason; !k.HasDefault && k.Type != config.Int {
				set[k.Name] = "PLAINTEXT"
			} else if !k.HasDefault {
				set[k.Name] = "1"
			}
		case config.Unsafe:
			for _, v := range []string{"true", "7", "x"} {
				_, _, err := config.ParseBroker(map[string]string{k.Name: v})
				if err == nil && k.HasDefault && v == k.Default {
					continue
				}
				require.ErrorContains(t, err, k.Name)
			}
		}
	}
	require.NotEmpty(t, set)
	n := start(t, set)
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		count := 0
		for line := range strings.Lines(n.Log()) {
			if strings.Contains(line, "key="+name+" ") {
				count++
				require.Contains(t, line, reasons[name])
				require.Contains(t, line, "level=WARN")
			}
		}
		require.Equal(t, 1, count, "one warning about %s", name)
	}
	values := map[string]string{
		"delete.retention.ms": "1", "errors.deadletterqueue.group.enable": "true", "follower.replication.throttled.replicas": "*",
		"leader.replication.throttled.replicas": "*", "max.compaction.lag.ms": "5", "min.cleanable.dirty.ratio": "0.1", "min.compaction.lag.ms": "1", "preallocate": "true",
	}
	topic := n.create(1)
	for _, k := range config.TopicKeys() {
		if k.Effect == config.Effective {
			continue
		}
		require.Contains(t, values, k.Name)
		n.mustAlter(ofTopic, topic, k.Name+"="+values[k.Name])
		kit.Eventually(t, patience, "a warning about "+k.Name, func() bool {
			return strings.Contains(n.Log(), k.Name+"="+values[k.Name]+" has no effect: "+k.Reason)
		})
	}
}
