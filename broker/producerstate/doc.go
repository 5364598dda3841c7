// Package producerstate is what a partition knows of the idempotent and
// transactional producers that write to it: their epochs and last sequence
// numbers, so that a batch sent twice is stored once, and their open
// transactions, which bound what a read-committed consumer may see (KIP-98).
//
// It is pure: no file, no clock, no goroutine; time is passed in. It has the
// codec of Kafka's .snapshot files (SNAPSHOT.md). A Manager is not safe for
// concurrent use: the partition's one writer owns it.
//
// # Use
//
// The leader asks Check about a client's batch, assigns offsets, appends, and
// calls Update. A follower, and recovery, call Update alone, for every batch,
// those without a producer id included, in offset order. After truncation the
// owner resets the manager, loads the latest snapshot at or below the end, and
// updates it with the batches from there.
//
// # Invariants
//
//   - S1 A batch that is among the last BatchesKept of its producer and epoch is
//     found to be a duplicate, whatever came after it.
//   - S2 A batch that is not a duplicate and is accepted continues its
//     producer's sequence, or begins a later epoch at 0, or comes from a
//     producer that the partition does not know; the last with any sequence
//     number, because idle producers are forgotten (KIP-360).
//   - S3 A producer with an open transaction is never forgotten.
//   - S4 Check changes nothing.
//   - S5 FirstUnstableOffset is the first offset of a transaction that is open,
//     or whose marker is not below the high watermark.
//
// # Errors
//
// ErrOutOfOrderSequence, ErrInvalidProducerEpoch, ErrInvalidTxnState and
// ErrCoordinatorFenced refuse a batch. Load returns errors that match
// ErrCorruptSnapshot; the owner then deletes the file and takes an older one.
package producerstate
