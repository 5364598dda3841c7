// Package archive copies sealed segments of the partitions that this broker
// leads to the object store and has them published in the catalog.
//
// Owns: which segment goes next and when, intents, uploads, publishing, and what
// is known of the store's health. May not touch: local files other than through
// the partition; retention; objects other than the ones it uploads.
//
// Invariants:
//
//   - A1 (I5) The intent is in the catalog before the upload begins; it outlives
//     the deadline after which the upload is cancelled. A segment is published
//     only after the store has the object and has verified its checksum.
//   - A2 (I4) An upload starts exactly at RemoteEndOffset, at the start of a
//     batch.
//   - A3 (I6) Only what the partition offers leaves: below the last stable offset
//     and the flushed offset.
//   - A4 (I3) Every command names the leader epoch under which the segment was
//     offered.
//   - A5 No partition waits for another one's failures: a failed upload gives its
//     worker back and tries again after a pause of its own, for ever.
//   - A6 A store that does not answer delays nothing but uploads.
//
// Goroutines: a scheduler, Config.Workers workers, one that probes the store;
// Close cancels them and waits.
//
// Objects: segment objects, see tiering/segmentobject.
//
// Errors: none are returned after New; they are logged, shown in Status, and
// tried again.
package archive
