// Package store keeps keys and values in Pebble. It is the only package that
// imports the engine.
//
// Owns: DB and Batch, the layout of every key, the adapter that lets Pebble
// reach files through metadata/disk. May not touch: what the values mean.
//
// Goroutines: Pebble's own, of each DB; Close ends them.
//
// Files: one folder a DB, written by Pebble alone, in a format version that is
// fixed here (formatVersion) and rises only with the finalised feature level.
//
// # Keys
//
// All integers are big endian, so that keys sort by them.
//
//	Raft log database
//	  'l' index(8)                      entry of the Raft log
//	  's' name                          a value of the Raft stable store
//	cluster state database
//	  'a'                               what the state has applied
//	  'i' entry key                     piece of the image
//	  'p' topic(16) partition(4)        summary of a partition's catalog
//	  'g' topic partition base(8)       live remote segment
//	  'h' topic partition segment(16)   base offset of a live remote segment
//	  'o' topic partition segment(16)   remote segment that is not live
//	  'd' topic(16)                     deleted topic
//	coordinators' views database
//	  'v' topic(16) partition(4)        how far the log is in the view
//	  'e' topic partition view key      latest record under a view key
//	  's' topic partition set           whether a set of view keys has entries
//	  't' topic partition producer(8)   record of a transaction that is open
//	      offset(8)
//
// # Invariants
//
//   - S1 A batch is applied whole or not at all, now and after a power loss.
//     Batches survive in the order of their commits: none survives that came
//     after one that was lost. A batch committed with Sync survives.
//   - S2 A file of a DB, once it is part of a checkpoint, is never written
//     again: the adapter's Create always makes a new inode.
//   - S3 No commit reports success that did not happen. Pebble cannot report a
//     failed one, so the logger that it is given never returns from Fatalf:
//     Config.Fatal ends the process, or else the calling goroutine ends.
//
// Errors: ErrClosed; *CorruptError; else those of the disk.
package store
