// Package cleaner decides what a replica's log keeps on the local disk.
//
// Owns: the retention policy (Pass), a pure function of a replica's state, the
// topic's limits and the time. Compaction joins it with the key index.
//
// May not touch: the catalog, objects, roles. Total retention of what is
// published in the tier belongs to tiering/sweep.
//
// # Rules
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
// Goroutines: none. Files: none. Errors: none.
package cleaner
