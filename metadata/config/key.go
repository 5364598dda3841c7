package config

import (
	"errors"
	"fmt"
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

// Scope tells what a key belongs to.
type Scope int8

// Scopes.
const (
	TopicScope  Scope = 1
	BrokerScope Scope = 2
)

// Dynamic tells how a broker key can be changed while the broker runs. Topic
// keys always can.
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
	Default    string
	HasDefault bool // false: null in Kafka's words
	Required   bool
	Internal   bool // not listed in the reference or by DescribeConfigs unless set
	Ours       bool // not a key of Kafka
	Dynamic    Dynamic
	Effect     Effect
	Reason     string // of Ignored and Unsafe
	Doc        string
	// Synonyms of a topic key are the broker keys that give its default, most
	// important first.
	Synonyms []string

	rule rule
}

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

// TopicKeys are all topic keys by name.
func TopicKeys() []Key { return nil }

// BrokerKeys are all broker keys by name.
func BrokerKeys() []Key { return nil }

// TopicKey finds a topic key.
func TopicKey(name string) (Key, bool) { return Key{}, false }

// BrokerKey finds a broker key.
func BrokerKey(name string) (Key, bool) { return Key{}, false }

// Nearest is the known name most like name, "" where none is like it.
func Nearest(name string, scope Scope) string { return "" }

type rule interface{ check(value any) error }
