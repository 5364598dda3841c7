package consumer

import (
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf16"

	"github.com/zeebo/xxh3"

	"strandline/metadata/cluster"
)

// Topic is what a group has to know of a topic.
type Topic struct {
	ID   cluster.TopicID
	Name string
	// Racks has, for each partition, the racks of its replicas; nil where the
	// brokers are in none. The assignors do not use them, but a change of them
	// makes a new epoch.
	Racks [][]string
	// Partitions is their count.
	Partitions int32
}

// Topics is what a group knows of the cluster's topics. It must not change
// during a call of a Group's method.
type Topics interface {
	// Topic returns the topic of that name.
	Topic(name string) (Topic, bool)
	// TopicByID returns the topic of that id.
	TopicByID(id cluster.TopicID) (Topic, bool)
	// Names are those that whoever sends the request may describe; regular
	// expressions match no other. In any order.
	Names() iter.Seq[string]
	// Version rises, also over restarts and from coordinator to coordinator,
	// whenever a topic, its partition count or its racks change.
	Version() int64
	// CreatedVersion is the Version at which a topic was last created.
	CreatedVersion() int64
}

// memo asks for each topic once: what it is asked for may take time to make.
type memo struct {
	Topics
	byName map[string]found
	byID   map[cluster.TopicID]found
}

type found struct {
	Topic
	ok bool
}

func remember(topics Topics) *memo {
	return &memo{Topics: topics, byName: map[string]found{}, byID: map[cluster.TopicID]found{}}
}

func (m *memo) Topic(name string) (Topic, bool) {
	f, ok := m.byName[name]
	if !ok {
		f.Topic, f.ok = m.Topics.Topic(name)
		m.byName[name] = f
	}
	return f.Topic, f.ok
}

func (m *memo) TopicByID(id cluster.TopicID) (Topic, bool) {
	f, ok := m.byID[id]
	if !ok {
		f.Topic, f.ok = m.Topics.TopicByID(id)
		m.byID[id] = f
	}
	return f.Topic, f.ok
}

// hashTopics sums up the topics of those names, as far as they exist (KIP-1101).
// It is Apache Kafka's hash, so that a log of its coordinator gives no reason to
// rebalance.
func hashTopics(topics Topics, names iter.Seq[string]) uint64 {
	var b []byte
	for _, name := range slices.Sorted(names) {
		if t, ok := topics.Topic(name); ok {
			b = binary.LittleEndian.AppendUint64(b, hashTopic(t))
		}
	}
	if len(b) == 0 {
		return 0
	}
	return xxh3.Hash(b)
}

func hashTopic(t Topic) uint64 {
	b := []byte{0}
	b = binary.LittleEndian.AppendUint64(b, binary.BigEndian.Uint64(t.ID[:8]))
	b = binary.LittleEndian.AppendUint64(b, binary.BigEndian.Uint64(t.ID[8:]))
	b, _ = appendChars(b, t.Name)
	b = binary.LittleEndian.AppendUint32(b, uint32(t.Partitions))
	for p := range t.Partitions {
		b = binary.LittleEndian.AppendUint32(b, uint32(p))
		if int(p) >= len(t.Racks) {
			continue
		}
		for _, rack := range slices.Sorted(slices.Values(t.Racks[p])) {
			chars, units := appendChars(nil, rack)
			b = binary.LittleEndian.AppendUint32(b, units)
			b = append(b, chars...)
		}
	}
	return xxh3.Hash(b)
}

// appendChars appends UTF-16 and how many units it is.
func appendChars(b []byte, s string) ([]byte, uint32) {
	units := utf16.Encode([]rune(s))
	for _, u := range units {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return binary.LittleEndian.AppendUint32(b, uint32(len(units))), uint32(len(units))
}

// expressionMax bounds the size of a regular expression, in instructions: to match
// a name takes up to that many steps for each of its characters, while the other
// groups of the partition wait.
const expressionMax = 10_000

var errLargeExpression = fmt.Errorf("it has more than %d instructions", expressionMax)

// compile makes a regular expression that matches whole names.
func compile(expression string) (*regexp.Regexp, error) {
	// On its own first: "a)(b" is none.
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if instructions(parsed) > expressionMax {
		return nil, errLargeExpression
	}
	return regexp.Compile(`\A(?:` + expression + `)\z`)
}

// rangesPerInstruction is how many ranges of a character class count as one more
// instruction.
const rangesPerInstruction = 32

// instructions is about how many an expression compiles to.
func instructions(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		n += len(re.Rune) / 2 / rangesPerInstruction
	}
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min, re.Max)
	}
	return n
}

// match returns the topics that each of the expressions matches, in order. One
// that cannot be compiled matches none.
func match(topics Topics, expressions []string) map[string][]string {
	names := slices.Sorted(topics.Names())
	matched := map[string][]string{}
	for _, e := range expressions {
		matched[e] = nil
		re, err := compile(e)
		if err != nil {
			continue
		}
		for _, name := range names {
			if re.MatchString(name) {
				matched[e] = append(matched[e], name)
			}
		}
	}
	return matched
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
