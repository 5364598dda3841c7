// Package recordbatch reads, checks, patches and writes Kafka's record batches
// (message format v2), their records and their compression. Message sets of
// formats v0 and v1, which old clients send and fetch, are turned into batches
// (Decoder.AppendUpgraded) and made of them (Downgrader); they are never stored.
//
// It owns the bytes of one batch and nothing else: it opens no file, knows no
// partition, starts no goroutine and keeps no state between calls but pools of
// compressors. A Batch is a view of somebody else's bytes; what may change them
// is named Set. The layout is drawn in FORMAT.md.
//
// # Invariants
//
//   - B1 First never returns a batch whose bytes are not all there, whose
//     magic is not 2, or that is shorter than its header; so every accessor of
//     a Batch that came from First is within bounds.
//   - B2 Verify allocates nothing.
//   - B3 SetBaseOffset and SetPartitionLeaderEpoch leave the checksum valid
//     because the checksum does not cover them. SetLogAppendTime and
//     SetCreateTime compute it again.
//   - B4 Decompression never yields more bytes than it was allowed.
//   - B5 A record read and added to a Builder again is the same record: offset,
//     timestamp, key, value and headers, null told from empty.
//
// # Errors
//
// Bytes that cannot be a batch give errors that match ErrCorrupt. A batch that
// is whole but that a client may not send gives errors that match ErrInvalid
// or, for timestamps, ErrInvalidTimestamp; the records at fault, where they are
// known, are in a *RejectedError.
package recordbatch
