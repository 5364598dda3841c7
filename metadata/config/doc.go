// Package config knows every topic and broker key: its type, default, bounds,
// whether it can be changed while the broker runs, what it does here, and how
// the levels of configuration combine.
//
// Owns: the key tables, parsing and validation with Kafka's messages, the typed
// values (Topic, Broker), the listing that DescribeConfigs answers, and the
// generated reference. May not touch: files, environment, flags (cmd reads
// those). Goroutines: none. Files: none. It imports nothing of ours, so that
// every package may import it.
//
// # Precedence
//
// A topic key has the value of the first level that says something, as in
// Kafka: the topic's own override; then, for each of its broker synonyms in
// order, the overrides of this broker, those of all brokers, the broker's file;
// then the default.
//
// # Effect
//
// A key has an effect here; or it is known from Kafka but without effect, which
// costs one warning with the reason; or it would weaken safety if it were
// ignored (security, quotas), which is an error unless it keeps its default.
//
// # Invariants
//
//   - G1 Every key of the tables parses its own default.
//   - G2 A value that is accepted is listed in its canonical form.
//
// Errors: *KeyError for one key, joined where there are several; ErrInvalid is
// what they all wrap.
package config
