// Package segment is one segment of a log in Apache Kafka's file formats: the
// .log file of record batches and its offset, time and transaction index. See
// FORMAT.md.
//
// Owns: the codecs and lookups of the four files, names of files, the walk over
// a .log file's batches, Segment (a segment being written or sealed), recovery
// and re-indexing of one segment, and Dump, which reads any file of a log
// directory for a person.
//
// May not touch: what lies between segments: rolling, epochs, producer state,
// the log's bounds. A Segment syncs only when told to.
//
// Goroutines: none.
//
// Concurrency: one writer at a time calls Append, Seal, Truncate, WriteIndexes,
// Recover, Rename and Close of a Segment; lookups may run beside it. Its lock is
// held over no I/O.
//
// Errors: *CorruptError with file, position and cause; disk errors wrapped.
//
// # Invariants
//
//   - S1 An offset index entry (offset, position) says that the batch at position
//     has offset as its last offset; both rise strictly.
//   - S2 A time index entry (timestamp, offset) says that no batch up to offset
//     has a greater timestamp, and the batch that ends at offset has this one;
//     timestamps rise strictly, offsets do not fall.
//   - S3 A sealed segment's last time index entry is the segment's maximum.
//   - S4 An index that breaks these rules, or reaches past its log, is rebuilt, when
//     opened or at the first lookup that meets it;
//     an offset index never leads a lookup to a wrong batch, since that walks the
//     headers from where the index points and compares the offset there.
package segment
