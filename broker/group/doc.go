// Package group is the vocabulary of consumer groups: what the machines of the
// classic protocol (broker/group/classic) and of KIP-848
// (broker/group/consumer) share, and the rules of committed offsets.
//
// Owns: the errors of groups, Effects, the records of __consumer_offsets in
// Apache Kafka's schemas and the keys of their view. Pure: no goroutine, clock,
// lock or I/O.
//
// May not touch: the log that the records are appended to, Kafka's error codes,
// the wire.
package group
