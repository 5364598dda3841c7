package config

// Source is where a value comes from, with Kafka's numbers.
type Source int8

// Sources.
const (
	SourceTopic         Source = 1
	SourceDynamicBroker Source = 2
	SourceDynamicAll    Source = 3
	SourceStatic        Source = 4
	SourceDefault       Source = 5
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

// DescribeTopic lists every topic key with its effective value, by name.
func DescribeTopic(l Layers) []Value { return nil }

// DescribeBroker lists every broker key of one node, by name. l.Topic is not
// looked at.
func DescribeBroker(l Layers) []Value { return nil }

// DescribeCluster lists the overrides of all brokers.
func DescribeCluster(cluster map[string]string) []Value { return nil }

// Reference is docs/configuration.md's generated part, in Markdown.
func Reference() string { return "" }
