package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Type is the type of a key, with Kafka's numbers in DescribeConfigs.
type Type int8

// Types.
const (
	Bool     Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

func (t Type) String() string {
	names := []string{"", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"}
	if t < 0 || int(t) >= len(names) {
		return ""
	}
	return names[t]
}

// Scope tells what a key belongs to.
type Scope int8

// Scopes.
const (
	TopicScope  Scope = 1
	BrokerScope Scope = 2
	GroupScope  Scope = 3
)

// Dynamic tells how a broker key can be changed while the broker runs. Topic and
// group keys always can.
type Dynamic int8

// Ways to change a broker key.
const (
	ReadOnly    Dynamic = 0
	PerBroker   Dynamic = 1 // one broker at a time
	ClusterWide Dynamic = 2 // one broker or all of them
)

// Effect tells what a key does here.
type Effect int8

// Effects.
const (
	Effective Effect = 0
	Ignored   Effect = 1 // known, no effect: a warning with Reason
	Unsafe    Effect = 2 // ignoring it would weaken safety: an error with Reason
)

// Key describes one key.
type Key struct {
	Name       string
	Scope      Scope
	Type       Type
	Default    string // canonical; see HasDefault
	HasDefault bool   // false: null in Kafka's words
	Internal   bool   // listed only where set, and not in the reference
	Ours       bool   // not a key of Kafka
	Dynamic    Dynamic
	Effect     Effect
	Reason     string // of Ignored and Unsafe
	Doc        string
	// Synonyms of a topic or group key are the broker keys that give its default,
	// most important first. Synonyms of a broker key are the keys that give the
	// same value, itself first; nil where there is only itself.
	Synonyms []string

	rule rule
}

// Sensitive tells whether the value must never be shown.
func (k Key) Sensitive() bool { return k.Type == Password }

// ErrInvalid is wrapped by every error about a key or its value.
var ErrInvalid = errors.New("invalid configuration")

// KeyError is about one key. Its message is the one that a client is shown.
type KeyError struct {
	Key     string
	Message string
}

func (e *KeyError) Error() string { return e.Message }

// Unwrap gives ErrInvalid.
func (e *KeyError) Unwrap() error { return ErrInvalid }

func keyErr(key, format string, args ...any) error {
	return &KeyError{Key: key, Message: fmt.Sprintf(format, args...)}
}

var (
	topicTable  = table(TopicScope, topicKeys())
	brokerTable = table(BrokerScope, brokerKeys(), storeKeys(), cleanerKeys(), groupBrokerKeys(), offsetsTopicKeys(), ignoredKeys(), unsafeKeys())
	groupTable  = table(GroupScope, groupKeys())
)

type keyTable struct {
	byName map[string]Key
	sorted []Key
}

func table(scope Scope, lists ...[]Key) keyTable {
	t := keyTable{byName: map[string]Key{}}
	for _, l := range lists {
		for _, k := range l {
			k.Scope = scope
			if _, double := t.byName[k.Name]; double {
				panic("config: two keys are named " + k.Name)
			}
			t.byName[k.Name] = k
			t.sorted = append(t.sorted, k)
		}
	}
	slices.SortFunc(t.sorted, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return t
}

// TopicKeys are all topic keys by name. Read only.
func TopicKeys() []Key { return topicTable.sorted }

// BrokerKeys are all broker keys by name. Read only.
func BrokerKeys() []Key { return brokerTable.sorted }

// TopicKey finds a topic key.
func TopicKey(name string) (Key, bool) {
	k, ok := topicTable.byName[name]
	return k, ok
}

// BrokerKey finds a broker key.
func BrokerKey(name string) (Key, bool) {
	k, ok := brokerTable.byName[name]
	return k, ok
}

// Nearest is the known name most like name, "" where none is like it.
func Nearest(name string, scope Scope) string {
	t := brokerTable
	if scope == TopicScope {
		t = topicTable
	}
	var names []string
	for _, k := range t.sorted {
		if !k.Internal {
			names = append(names, k.Name)
		}
	}
	return NearestOf(name, names)
}

// NearestOf is the candidate that a mistyped name was probably meant to be, ""
// where none is like it.
func NearestOf(name string, candidates []string) string {
	best, bestCost := "", max(2, len(name)/4)+1
	for _, each := range candidates {
		if c := distance(name, each, bestCost); c < bestCost {
			best, bestCost = each, c
		}
	}
	return best
}

// distance counts insertions, deletions, changes and swaps of neighbours, up to
// bound.
func distance(a, b string, bound int) int {
	if d := len(a) - len(b); d >= bound || -d >= bound {
		return bound
	}
	two, one, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range one {
		one[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(one[j]+1, row[j-1]+1, one[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
		}
		two, one, row = one, row, two
	}
	return min(one[len(b)], bound)
}
