package config

import (
	"maps"
	"slices"
	"time"
)

// Groups is what the keys of a node say of consumer groups and their offsets.
type Groups struct {
	// ClassicEnabled and ConsumerEnabled: group.coordinator.rebalance.protocols
	// has the protocol.
	ClassicEnabled, ConsumerEnabled bool

	InitialRebalanceDelay time.Duration
	MinSessionTimeout     time.Duration
	MaxSessionTimeout     time.Duration
	MaxSize               int32

	Consumer        Group
	ConsumerMin     Group // lower bounds of the keys of one group
	ConsumerMax     Group // upper bounds
	ConsumerMaxSize int32
	Assignors       []string // the default first
	MigrationPolicy string   // bidirectional, upgrade, downgrade or disabled

	OffsetMetadataMax     int32
	OffsetsCommitTimeout  time.Duration
	OffsetsRetention      time.Duration
	OffsetsRetentionCheck time.Duration
}

// Group is what holds for one consumer group.
type Group struct {
	SessionTimeout     time.Duration
	HeartbeatInterval  time.Duration
	AssignmentInterval time.Duration
}

func groups(b *Broker, v values) error {
	protocols := v.list("group.coordinator.rebalance.protocols")
	of := func(infix string) Group {
		return Group{
			SessionTimeout:     v.ms("group.consumer." + infix + "session.timeout.ms"),
			HeartbeatInterval:  v.ms("group.consumer." + infix + "heartbeat.interval.ms"),
			AssignmentInterval: v.ms("group.consumer." + infix + "assignment.interval.ms"),
		}
	}
	b.Groups = Groups{
		ClassicEnabled: slices.Contains(protocols, "classic"), ConsumerEnabled: slices.Contains(protocols, "consumer"),
		InitialRebalanceDelay: v.ms("group.initial.rebalance.delay.ms"),
		MinSessionTimeout:     v.ms("group.min.session.timeout.ms"), MaxSessionTimeout: v.ms("group.max.session.timeout.ms"),
		MaxSize:  v.int32("group.max.size"),
		Consumer: of(""), ConsumerMin: of("min."), ConsumerMax: of("max."),
		ConsumerMaxSize: v.int32("group.consumer.max.size"), Assignors: v.list("group.consumer.assignors"),
		MigrationPolicy:   v.text("group.consumer.migration.policy"),
		OffsetMetadataMax: v.int32("offset.metadata.max.bytes"), OffsetsCommitTimeout: v.ms("offsets.commit.timeout.ms"),
		OffsetsRetention:      time.Duration(v.int64("offsets.retention.minutes")) * time.Minute,
		OffsetsRetentionCheck: v.ms("offsets.retention.check.interval.ms"),
	}
	g := b.Groups
	switch {
	case !g.ClassicEnabled:
		return keyErr("group.coordinator.rebalance.protocols", "group.coordinator.rebalance.protocols must have classic")
	case len(g.Assignors) == 0:
		return keyErr("group.consumer.assignors", "group.consumer.assignors is empty: want uniform, range or both")
	}
	for _, part := range []struct {
		key                    string
		value, lowest, highest time.Duration
	}{
		{"session.timeout.ms", g.Consumer.SessionTimeout, g.ConsumerMin.SessionTimeout, g.ConsumerMax.SessionTimeout},
		{"heartbeat.interval.ms", g.Consumer.HeartbeatInterval, g.ConsumerMin.HeartbeatInterval, g.ConsumerMax.HeartbeatInterval},
		{"assignment.interval.ms", g.Consumer.AssignmentInterval, g.ConsumerMin.AssignmentInterval, g.ConsumerMax.AssignmentInterval},
	} {
		key, low, high := "group.consumer."+part.key, "group.consumer.min."+part.key, "group.consumer.max."+part.key
		switch {
		case part.highest < part.lowest:
			return keyErr(high, "%s must be greater than or equal to %s", high, low)
		case part.value < part.lowest:
			return keyErr(key, "%s must be greater than or equal to %s", key, low)
		case part.value > part.highest:
			return keyErr(key, "%s must be less than or equal to %s", key, high)
		}
	}
	if g.Consumer.HeartbeatInterval >= g.Consumer.SessionTimeout {
		return keyErr("group.consumer.heartbeat.interval.ms",
			"group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms")
	}
	return nil
}

// GroupKeys are all keys of one group by name. Read only.
func GroupKeys() []Key { return groupTable.sorted }

// GroupKey finds a key of one group.
func GroupKey(name string) (Key, bool) {
	k, ok := groupTable.byName[name]
	return k, ok
}

// ValidateGroup checks a whole set of overrides of a group against the broker's
// bounds. The error's message is Kafka's.
func ValidateGroup(overrides map[string]string, broker Groups) error {
	names := slices.Sorted(maps.Keys(overrides))
	for _, name := range names {
		if _, ok := groupTable.byName[name]; !ok {
			return keyErr(name, "Unknown group config name: %s", name)
		}
	}
	for _, name := range names {
		if _, _, err := groupTable.byName[name].parse(overrides[name]); err != nil {
			return err
		}
	}
	g := groupValues(overrides, broker)
	for _, part := range []struct {
		key                    string
		value, lowest, highest time.Duration
	}{
		{"heartbeat.interval.ms", g.HeartbeatInterval, broker.ConsumerMin.HeartbeatInterval, broker.ConsumerMax.HeartbeatInterval},
		{"session.timeout.ms", g.SessionTimeout, broker.ConsumerMin.SessionTimeout, broker.ConsumerMax.SessionTimeout},
		{"assignment.interval.ms", g.AssignmentInterval, broker.ConsumerMin.AssignmentInterval, broker.ConsumerMax.AssignmentInterval},
	} {
		key := "consumer." + part.key
		switch {
		case part.value < part.lowest:
			return keyErr(key, "%s must be greater than or equal to group.consumer.min.%s", key, part.key)
		case part.value > part.highest:
			return keyErr(key, "%s must be less than or equal to group.consumer.max.%s", key, part.key)
		}
	}
	if g.SessionTimeout <= g.HeartbeatInterval {
		return keyErr("consumer.session.timeout.ms", "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")
	}
	return nil
}

// EffectiveGroup combines the overrides of a group, those that can be read, with
// what the broker says of all. A value that is out of the broker's bounds, which
// may have changed since it was set, counts as the nearest bound.
func EffectiveGroup(overrides map[string]string, broker Groups) Group {
	g := groupValues(overrides, broker)
	low, high := broker.ConsumerMin, broker.ConsumerMax
	g.SessionTimeout = min(max(g.SessionTimeout, low.SessionTimeout), high.SessionTimeout)
	g.HeartbeatInterval = min(max(g.HeartbeatInterval, low.HeartbeatInterval), high.HeartbeatInterval)
	g.AssignmentInterval = min(max(g.AssignmentInterval, low.AssignmentInterval), high.AssignmentInterval)
	return g
}

// groupValues is EffectiveGroup without bounds.
func groupValues(overrides map[string]string, broker Groups) Group {
	g := broker.Consumer
	for name, field := range map[string]*time.Duration{
		"consumer.session.timeout.ms":     &g.SessionTimeout,
		"consumer.heartbeat.interval.ms":  &g.HeartbeatInterval,
		"consumer.assignment.interval.ms": &g.AssignmentInterval,
	} {
		raw, ok := overrides[name]
		if !ok {
			continue
		}
		if _, v, err := groupTable.byName[name].parse(raw); err == nil {
			*field = time.Duration(v.(int64)) * time.Millisecond
		}
	}
	return g
}

// DescribeGroup lists the keys of a group with their effective values, by name.
// static is the broker's configuration as it was started (Broker.Static).
func DescribeGroup(overrides, static map[string]string) []Value {
	out := make([]Value, 0, len(groupTable.sorted))
	for _, k := range groupTable.sorted {
		v := Value{Key: k, Name: k.Name, Value: k.Default, Null: !k.HasDefault, Source: SourceDefault}
		if raw, ok := overrides[k.Name]; ok {
			if text, _, err := k.parse(raw); err == nil {
				v.Synonyms = append(v.Synonyms, Synonym{Name: k.Name, Value: text, Source: SourceGroup})
			}
		}
		v.Synonyms = append(v.Synonyms, said(level{static, SourceStatic}, k.Synonyms)...)
		for _, name := range k.Synonyms {
			if b := brokerTable.byName[name]; b.HasDefault {
				v.Synonyms = append(v.Synonyms, Synonym{Name: name, Value: b.Default, Source: SourceDefault})
			}
		}
		if len(k.Synonyms) == 0 && k.HasDefault {
			v.Synonyms = append(v.Synonyms, Synonym{Name: k.Name, Value: k.Default, Source: SourceDefault})
		}
		if len(v.Synonyms) > 0 {
			v.Value, v.Null, v.Source = v.Synonyms[0].Value, false, v.Synonyms[0].Source
		}
		out = append(out, v)
	}
	return out
}
