// Package locallog is one replica's log in one directory: a row of segments of
// which the last is written and the others are sealed.
//
// Owns: the files of the directory (segments with their indexes, producer
// snapshots, leader-epoch-checkpoint) in Apache Kafka's formats and layout, see
// broker/segment/FORMAT.md, and compaction-checkpoint, which is ours; rolling,
// reading, flushing, recovery after an unclean stop, truncation, local trimming,
// the exchange of sealed segments for rewritten ones; the producer state, aborted
// transactions and leader epochs that follow from the batches.
//
// May not touch: leadership, high watermark, retention policy, the remote tier.
// It knows the partition as a name for messages only.
//
// Goroutines: none. Flush runs in its caller, and concurrent callers share one
// sync. Removal of files after the delay runs in whoever calls RunDeferred.
//
// Concurrency: one writer at a time calls Append, Roll, RollIfDue, TruncateTo,
// Reset, DeleteSealedBelow, SetStartOffset, AssignEpoch, Producers,
// Rewrite.Publish and Close; the partition serialises them, and keeps those that
// take segments away out of the time from Rewrite.Prepare to Rewrite.Finish.
// Everything else may be called by anyone at any time. One lock, held over no I/O.
//
// Errors: ErrOffsetOutOfRange, ErrNotLocal, ErrClosed, ErrNoSpace (nothing was
// written, or not all that a Flush needs; may be tried again), ErrStorage (sticky:
// a failed write or sync takes the log offline until it is opened again, since
// what the disk then holds is unknown), ErrBadAppend (a bug of the caller), *segment.CorruptError with file
// and position. ErrRewrite and ErrOvertaken are about a rewrite or a copy alone.
//
// # Invariants
//
//   - L1 Offsets rise strictly along the file and from segment to segment; a
//     batch that was appended is at or above the end offset of before.
//   - L2 Everything below FlushedOffset survives a power loss, with the segment
//     files' names, the leader epochs and the producer state that go with it.
//   - L3 What a recovery keeps is a prefix, in batches, of what was appended.
//   - L4 A returned slice consists of whole batches, the first of which reaches
//     past the asked offset (design I8); all of them lie below the bound.
//   - L5 A file descriptor that a slice or a sealed view holds stays readable
//     after the segment was trimmed, or truncated away.
//   - L6 On a clean stop nothing is scanned at the next open: the index tells the
//     position, and at most one index interval of batch headers is read of each
//     segment, to see that it ends where the next one starts.
//   - L7 A snapshot at a sealed segment's end is written after the segment's
//     indexes were synced: where a usable one is, they need no scan.
//   - L9 A rewrite of sealed segments is there whole or not at all, after a power
//     loss at any time; what it removed was below FlushedOffset, and what it left
//     is durable, so that no recovery takes its holes for a torn end.
//   - L8 Opening a log syncs nothing, unless it cuts it, writes it over after an
//     error, or finds more than a few unsynced segments: what was found past the recovery point is as
//     durable as before, and FlushedOffset says so until the first sync, which
//     covers the folder's names too. A log that did not change closes without one.
package locallog
