// Package keyindex knows the latest offset of every record key of a compacted
// partition, and how much of each segment is dead because of it.
//
// Owns: the key index database, which is a view of the log (design I10): where it
// is lost, or does not fit the log any more, it is made anew from the log.
//
// May not touch: files of the log, what compaction does with what it learns.
//
// # How
//
// A key is known by a keyed 128-bit hash (SipHash, the secret drawn at random for
// each index and made anew with it), so that nobody can craft two keys with one
// hash. A Feed takes decided records in the order of the log into a table of
// bounded size, in which of several records of a key only the last stays. Full,
// or at the end, the table is sorted by hash, as it almost is, and merged into the
// database in that order, at once: the reads and writes of many keys lie side by
// side, and memory does not grow with the number of keys. Many keys are written as
// sorted tables that become part of the database, few in a batch. Each time that a
// key moves to a later offset the former one is dead, and is put on a list of its
// segment; so are records of aborted transactions, and those without a key. A
// rewrite of a segment needs its dead offsets only, in order, and looks no key up.
//
// # Database
//
//	'm' topic(16) partition(4)          position, id and secret of the index
//	'n'                                 next id
//	'k' id(4) hash(16)                  offset, bytes and kind of the latest record
//	's' id base(8)                      what is known of a segment
//	'd' id base(8) first(8)             dead offsets of it, the first in the key
//
// # Invariants
//
//   - K1 A batch of changes holds the moved keys, the dead offsets and counts that
//     follow from them, and the position: all are there or none.
//   - K2 An offset is put on the list of dead ones once.
//   - K3 What a segment's counts say is true of the file of that size (Segment.Bytes)
//     and of all records below the position; where the file has another size they
//     are counted again.
//
// Concurrency: an Index may be used by several goroutines, a Partition and what it
// makes by one at a time.
//
// Goroutines: none. Errors: those of the database and of records that do not
// parse; ErrCorrupt.
package keyindex
