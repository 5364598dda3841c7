package config

import (
	"maps"
	"slices"
)

// Source is where a value comes from, with Kafka's numbers.
type Source int8

// Sources.
const (
	SourceTopic         Source = 1
	SourceDynamicBroker Source = 2
	SourceDynamicAll    Source = 3
	SourceStatic        Source = 4
	SourceDefault       Source = 5
	SourceGroup         Source = 8
)

// Value is one entry of a DescribeConfigs answer.
type Value struct {
	Key       Key
	Name      string
	Value     string
	Null      bool // also for sensitive values
	Source    Source
	Sensitive bool
	ReadOnly  bool
	Synonyms  []Synonym // most important first, the value itself included
}

// Synonym is one of the places that a value could come from.
type Synonym struct {
	Name   string
	Value  string
	Null   bool
	Source Source
}

// DescribeTopic lists the topic keys with their effective values, by name.
// Internal keys are listed where they are set.
func DescribeTopic(l Layers) []Value {
	out := make([]Value, 0, len(topicTable.sorted))
	for _, k := range topicTable.sorted {
		r := l.resolve(k)
		if k.Internal && r.source == SourceDefault {
			continue
		}
		v := Value{Key: k, Name: k.Name, Value: r.text, Null: r.value == nil && k.Type != List, Source: r.source}
		if r.source == SourceTopic {
			v.Synonyms = append(v.Synonyms, Synonym{Name: k.Name, Value: r.text, Source: SourceTopic})
		}
		set := len(v.Synonyms)
		for _, lv := range l.levels() {
			v.Synonyms = append(v.Synonyms, said(lv, k.Synonyms)...)
		}
		names := k.Synonyms
		if len(v.Synonyms) == set && len(names) > 0 && !brokerTable.byName[names[0]].HasDefault {
			names = nil // the coarser units count for nothing while nobody sets them
		}
		for _, name := range names {
			b := brokerTable.byName[name]
			text := b.Default
			if r.source == SourceDefault && name == k.Synonyms[0] && r.value != nil {
				text = r.text // the built-in limit of local data depends on the topic
			}
			if b.HasDefault {
				v.Synonyms = append(v.Synonyms, Synonym{Name: name, Value: text, Source: SourceDefault})
			}
		}
		out = append(out, v)
	}
	return out
}

// said lists the names that a level sets.
func said(lv level, names []string) []Synonym {
	var out []Synonym
	for _, name := range names {
		k, raw := brokerTable.byName[name], lv.values[name]
		if _, ok := lv.values[name]; !ok {
			continue
		}
		text, _, err := k.parse(raw)
		if err != nil {
			continue
		}
		s := Synonym{Name: name, Value: text, Source: lv.source}
		if k.Sensitive() {
			s.Value, s.Null = "", true
		}
		out = append(out, s)
	}
	return out
}

// DescribeBroker lists the broker keys of one node, by name: those that have an
// effect, and those that are set. l.Topic is not looked at.
func DescribeBroker(l Layers) []Value {
	var out []Value
	for _, k := range brokerTable.sorted {
		names := k.Synonyms
		if names == nil {
			names = []string{k.Name}
		}
		v := Value{Key: k, Name: k.Name, Sensitive: k.Sensitive(), ReadOnly: k.Dynamic == ReadOnly, Source: SourceDefault}
		for _, lv := range l.levels() {
			v.Synonyms = append(v.Synonyms, said(lv, names)...)
		}
		for _, name := range names {
			if b := brokerTable.byName[name]; b.HasDefault {
				v.Synonyms = append(v.Synonyms, Synonym{Name: name, Value: brokerDefault(b, l).text, Source: SourceDefault})
			}
		}
		first := slices.IndexFunc(v.Synonyms, func(s Synonym) bool { return s.Name == k.Name })
		v.Synonyms = v.Synonyms[max(first, 0):]
		if first < 0 {
			d := brokerDefault(k, l)
			v.Synonyms, v.Value, v.Null = nil, d.text, !d.known
		} else {
			v.Value, v.Null, v.Source = v.Synonyms[0].Value, v.Synonyms[0].Null, v.Synonyms[0].Source
		}
		if (k.Effect != Effective || k.Internal) && v.Source == SourceDefault {
			continue
		}
		out = append(out, v)
	}
	return out
}

type brokerDefaultValue struct {
	text  string
	known bool
}

// brokerDefault is a key's default where it depends on another key.
func brokerDefault(k Key, l Layers) brokerDefaultValue {
	if k.Name == "log.remote.storage.enable" {
		text := "false"
		if l.Static["remote.store.url"] != "" {
			text = "true"
		}
		return brokerDefaultValue{text, true}
	}
	return brokerDefaultValue{k.Default, k.HasDefault}
}

// DescribeCluster lists the overrides of all brokers.
func DescribeCluster(overrides map[string]string) []Value {
	var out []Value
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		k, ok := brokerTable.byName[name]
		if !ok {
			continue
		}
		for _, s := range said(level{overrides, SourceDynamicAll}, []string{name}) {
			out = append(out, Value{
				Key: k, Name: name, Value: s.Value, Null: s.Null, Source: s.Source,
				Sensitive: k.Sensitive(), ReadOnly: k.Dynamic == ReadOnly, Synonyms: []Synonym{s},
			})
		}
	}
	return out
}
