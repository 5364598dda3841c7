// Package cleaner decides what a replica's log keeps on the local disk, and
// compacts it.
//
// Owns: the retention policy (Pass) and the compaction policy (Dirtiness, Runs),
// pure functions of a replica's state, the topic's limits and the time; the
// Compactor, which brings the key index to what was decided and rewrites the
// segments that the policy chooses.
//
// May not touch: the catalog, objects, roles. Total retention of what is
// published in the tier belongs to tiering/sweep.
//
// # Rules of retention
//
// A pass walks the segments from the oldest and removes each for the first
// reason that holds, until one stays; so the outcome does not depend on the
// order of the rules, and a second pass with the same clock removes nothing.
//
//   - R1 A sealed segment wholly below LogStartOffset goes.
//   - R2 Without a tier, a segment wholly below the high watermark goes where its
//     largest timestamp is older than retention.ms, or where what stays is still
//     at least retention.bytes. LogStartOffset moves to its end first.
//   - R3 With a tier, a segment wholly below RemoteEndOffset goes by the same
//     rules under local.retention.* (-2: the total limits), or under disk
//     pressure; LogStartOffset stays. Nothing at or above RemoteEndOffset goes
//     that way (I4).
//   - R4 With a tier, segments never uploaded go by R2 once nothing remote is
//     readable any more: LogStartOffset is at or past RemoteEndOffset.
//   - R5 The active segment is sealed first where R2 or R4 removes it.
//   - R6 A largest timestamp in the future cannot be the time of an append: such
//     a segment is aged by the next older time known of it: that of its last
//     write, or the age of the segment after it, whichever is earlier. Without
//     this one bad clock would keep every later segment for ever. Plan counts
//     them.
//
// # Rules of compaction
//
//   - C1 Only sealed segments that are decided (below the last stable offset),
//     durable and past min.compaction.lag.ms are compacted, and only records among
//     them make others dead.
//   - C2 A pass is due where more than min.cleanable.dirty.ratio of the bytes is not
//     indexed yet or known to be dead, where a record is older than
//     max.compaction.lag.ms, or where enough tombstones may go.
//   - C3 A pass rewrites the segments of which a fifth of that ratio is dead; with a
//     max.compaction.lag.ms every one that has a dead record. The rest is not
//     copied again and again for little.
//   - C4 A record that stays keeps its offset, timestamp, key, value and headers, a
//     batch its offsets, codec, epochs, producer and sequence. A batch goes with its
//     last record, unless it is the last of its producer, or the last that the pass
//     may touch: those stay without records.
//   - C5 A tombstone at o goes when every earlier segment has been filtered with it
//     (it holds nothing that a record at or below o has made dead) and
//     delete.retention.ms has passed since: that is the delete horizon in its
//     batch's header (KIP-534), which is stamped when the first holds.
//   - C6 Records of aborted transactions are dead. A marker goes when no batch of
//     its transaction is left, and delete.retention.ms after that was seen.
//   - C7 Rewritten segments are joined up to segment.bytes, 31 bits of relative
//     offsets and positions, and the size of an index.
//   - C8 What a pass has removed of tombstones and markers is durable beside the log
//     before it takes effect.
//
// Goroutines: none. Files: through broker/locallog. Errors: of the Compactor those
// of the log and the index, and ErrInterrupted.
package cleaner
