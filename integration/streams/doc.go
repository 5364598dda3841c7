// Package streams runs a Kafka Streams application against the built binary: its
// changelog topics are compacted, what it has taken from repartition topics is
// deleted, and it has its state back after it was killed. It owns no code that
// runs outside tests.
package streams
