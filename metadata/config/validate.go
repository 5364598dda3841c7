package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// TopicCheck is what a change of a topic's overrides is judged against.
type TopicCheck struct {
	// Layers holds the overrides as they would be after the change.
	Layers Layers
	// WasTiered tells whether the tier was on before; false for a new topic.
	WasTiered bool
	// TierAvailable tells whether a store is configured at all.
	TierAvailable bool
}

// ValidateTopic checks a whole set of topic overrides. The error's message is
// Kafka's.
func ValidateTopic(c TopicCheck) error {
	names := slices.Sorted(maps.Keys(c.Layers.Topic))
	for _, name := range names {
		if _, ok := topicTable.byName[name]; !ok {
			return keyErr(name, "Unknown topic config name: %s", name)
		}
	}
	for _, name := range names {
		if _, _, err := topicTable.byName[name].parse(c.Layers.Topic[name]); err != nil {
			return err
		}
	}
	l := c.Layers
	if lo, hi := l.int("min.compaction.lag.ms"), l.int("max.compaction.lag.ms"); lo > hi {
		return keyErr("min.compaction.lag.ms",
			"conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", lo, hi)
	}
	if l.bool("remote.storage.enable") {
		return validateTiered(c)
	}
	if c.WasTiered && !l.bool("remote.log.delete.on.disable") {
		return keyErr("remote.storage.enable", "It is invalid to disable remote storage without deleting remote data. "+
			"If you want to keep the remote data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. "+
			"If you want to disable remote storage and delete all remote data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`.")
	}
	return nil
}

func validateTiered(c TopicCheck) error {
	l := c.Layers
	if !c.TierAvailable {
		return keyErr("remote.storage.enable",
			"Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
	}
	if cleanup(l).Compact() {
		return keyErr("cleanup.policy",
			"Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.")
	}
	for _, unit := range []string{"bytes", "ms"} {
		if err := validateLocalRetention(l, "retention."+unit, "local.retention."+unit); err != nil {
			return err
		}
	}
	if l.bool("remote.log.copy.disable") {
		for _, unit := range []string{"bytes", "ms"} {
			total, local := l.int("retention."+unit), l.resolve(topicTable.byName["local.retention."+unit])
			if n := local.value.(int64); n != -2 && n != total && local.source != SourceDefault {
				return keyErr("remote.log.copy.disable", "When `remote.log.copy.disable` is set to true, the `local.retention.%[1]s` and "+
					"`retention.%[1]s` must be set to the identical value because there will be no more logs copied to the remote storage.", unit)
			}
		}
	}
	for _, unit := range []string{"ms", "bytes"} {
		lag, local := l.int("remote.copy.lag."+unit), l.resolve(topicTable.byName["local.retention."+unit])
		bound := local.value.(int64)
		if total := l.int("retention." + unit); bound == -2 || local.source == SourceDefault && total >= 0 && total < bound {
			bound = total
		}
		if lag > 0 && bound >= 0 && lag > bound {
			return keyErr("remote.copy.lag."+unit, "Invalid value %d for configuration remote.copy.lag.%s: "+
				"Value must not exceed local.retention.%s (effective value: %d)", lag, unit, unit, bound)
		}
	}
	return nil
}

// validateLocalRetention refuses a local retention above the total. The
// built-in limit of local data is no such setting: it gives way to the total.
func validateLocalRetention(l Layers, totalKey, localKey string) error {
	total, r := l.int(totalKey), l.resolve(topicTable.byName[localKey])
	local := r.value.(int64)
	if total <= -1 || local == -2 || r.source == SourceDefault {
		return nil
	}
	if local == -1 {
		return keyErr(localKey, "Invalid value -1 for configuration %s: Value must not be -1 as %s value is set as %d.",
			localKey, totalKey, total)
	}
	if local > total {
		return keyErr(localKey, "Invalid value %d for configuration %s: Value must not be more than %s property value: %d",
			local, localKey, totalKey, total)
	}
	return nil
}

// TopicWarnings tells which overrides have no effect here.
func TopicWarnings(overrides map[string]string) []Warning {
	var ws []Warning
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		k, ok := topicTable.byName[name]
		if !ok {
			continue
		}
		text, _, err := k.parse(overrides[name])
		switch {
		case err != nil:
		case k.Effect == Ignored && text != k.Default:
			ws = append(ws, Warning{Key: name, Text: fmt.Sprintf("%s=%s has no effect: %s", name, text, k.Reason)})
		}
	}
	return ws
}

// ValidateDynamicBroker checks the overrides of one broker, or of all brokers
// where cluster is set, as they would be after a change of the keys in changed.
// The error's message is Kafka's where Kafka has one.
func ValidateDynamicBroker(overrides map[string]string, changed []string, cluster bool) error {
	var fixed, perBroker []string
	for _, name := range changed {
		k, ok := brokerTable.byName[name]
		if !ok {
			return unknownKey(name)
		}
		switch {
		case k.Effect == Unsafe:
			return keyErr(name, "%s cannot be changed: %s", name, k.Reason)
		case k.Dynamic == ReadOnly:
			fixed = append(fixed, name)
		case cluster && k.Dynamic == PerBroker:
			perBroker = append(perBroker, name)
		}
	}
	if len(fixed) > 0 {
		return keyErr(fixed[0], "Cannot update these configs dynamically: [%s]", strings.Join(fixed, ", "))
	}
	if len(perBroker) > 0 {
		return keyErr(perBroker[0], "Cannot update these configs at default cluster level, broker id must be specified: [%s]",
			strings.Join(perBroker, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if k, ok := brokerTable.byName[name]; ok {
			if _, _, err := k.parse(overrides[name]); err != nil {
				return err
			}
		}
	}
	l := Layers{Cluster: overrides}
	if lo, hi := l.int("min.compaction.lag.ms"), l.int("max.compaction.lag.ms"); lo > hi {
		return keyErr("log.cleaner.min.compaction.lag.ms",
			"conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", lo, hi)
	}
	return nil
}

// TierOf tells whether a new topic is tiered by default: byDefault is what
// log.remote.storage.enable is, and compacted topics are not.
func TierOf(l Layers, byDefault bool) bool { return byDefault && !cleanup(l).Compact() }

func unknownKey(name string) error {
	if why, ok := removedKeys[name]; ok {
		return keyErr(name, "%s: %s", name, why)
	}
	if k, ok := topicTable.byName[name]; ok {
		if len(k.Synonyms) > 0 {
			return keyErr(name, "%s is a key of topics; the broker's default for it is %s", name, k.Synonyms[0])
		}
		return keyErr(name, "%s is a key of topics and has no default for a broker", name)
	}
	if near := Nearest(name, BrokerScope); near != "" {
		return keyErr(name, "%s is not a known key; did you mean %s?", name, near)
	}
	return keyErr(name, "%s is not a known key", name)
}
