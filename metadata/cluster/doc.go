// Package cluster is the vocabulary of the whole project: identifiers, offsets
// and epochs as named value types, so that no two of them can be confused.
//
// It owns no state, starts no goroutine and does no I/O. Every other package
// may import it; it imports nothing of ours.
//
// # Glossary
//
// Names with End, Next, Watermark or Stable are exclusive bounds; names with
// Last, Highest or Start are inclusive.
//
//   - Offset: position of a record in a partition. Never a byte position, never
//     a Raft index.
//   - LogStartOffset: first offset that a client may read, local or remote.
//   - LocalLogStartOffset: first offset that is still on the local disk.
//   - LogEndOffset: the next offset to be written.
//   - HighWatermark: bound of the replicated records that a consumer may see.
//   - LastStableOffset: bound below which every transaction is decided; at or
//     below HighWatermark.
//   - RemoteEndOffset: one past the last offset published in the catalog.
//   - LeaderEpoch, BrokerEpoch, ProducerEpoch, ControllerEpoch, PartitionEpoch:
//     which tenure; never a bare "epoch".
//   - Segment: a log file from its base offset; the active one is being
//     written, a sealed one is immutable.
//   - Object, ObjectKey: a thing in an object store, and its name.
//   - Catalog: the truth about remote segments. Manifest: the copy of a
//     partition's part of it that lies in the bucket.
package cluster
