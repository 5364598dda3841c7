// Package leaderepoch is the list of a partition's leader epochs and the
// offsets at which they started, from which a follower or a consumer learns
// where its history ends to agree with the leader's (KIP-101, KIP-279).
//
// It is pure: it reads and writes no file and starts no goroutine, though it
// has the codec of Kafka's leader-epoch-checkpoint file. A List is not safe for
// concurrent use; its owner guards it, and Clone gives readers their own.
//
// # Invariants
//
//   - E1 Epochs and start offsets both rise strictly from entry to entry.
//   - E2 An epoch that was entered keeps its start offset until it is truncated
//     away or the log start passes it.
//
// # Errors
//
// Parse returns a *ParseError, which matches ErrCorrupt and names the line.
package leaderepoch
