// Package quorum orders the changes of the cluster's metadata: hashicorp/raft
// over the store. It says index and term, never offset and epoch.
//
// Owns: the Raft log and stable store in a Pebble database, the snapshots, the
// bridge from Raft to a Machine, the timers and bounds of Raft. May not touch:
// what a command means. Streams to other voters come through the StreamLayer
// port.
//
// Goroutines: Raft's own and one that follows the leadership and takes
// snapshots; Close ends them all. Machine's methods say which of them calls.
//
// Files, under Config.Dir:
//
//	raft/               Pebble: Raft log and stable store
//	snapshots/ID/       a snapshot: meta.json and checkpoint/, whose files are
//	                    hard links
//	snapshots/ID.tmp/   one that was not finished; removed at start
//
// # Snapshot stream
//
// A snapshot has bytes only while it is sent to a peer. All integers are little
// endian:
//
//	magic "SLsnap01" (8) | applied index (8) | count (4) |
//	count times: name length (2) | name | size (8)
//	the files' contents, in that order
//	CRC32C of all of the above (4)
//
// # Invariants
//
//   - Q1 A proposal that was answered without an error is committed: in the
//     synced Raft log of most voters, and applied here.
//   - Q2 Every committed command reaches the Machine at least once, in order; a
//     restart repeats some. The Machine ignores what it has applied.
//   - Q3 What Raft's log no longer holds is durable in the Machine's state and
//     in a durable snapshot. A state that lies behind the newest snapshot's
//     checkpoint is restored from it before Raft starts: Raft shows a received
//     snapshot before the Machine has it. The comparison is with the applied
//     index inside the checkpoint, never with the snapshot's Raft index, which
//     counts entries that no Machine sees.
//   - Q4 SnapshotMeta.Size is the number of bytes that the snapshot streams.
//   - Q5 The Raft log is bounded in bytes: a snapshot is taken once Limits say
//     so, and what stays behind it is bounded as well.
//   - Q6 A server's id is never used by another state: it names the node and
//     the id of its metadata directory. Votes are kept by it.
//
// Errors: ErrNotLeader, ErrOutcomeUnknown, ErrClosed; *CorruptError for a
// snapshot or log entry that cannot be read; else those of store and disk.
package quorum
