// Package sweep keeps the store as the catalog says: it applies total retention
// to what is remote, writes manifests, deletes the objects of segments that are
// not live any more, empties the part of deleted topics, and compares bucket and
// catalog.
//
// Owns: when and in which order that happens. May not touch: local segments;
// live objects.
//
// Invariants:
//
//   - W1 Retention is decided from the catalog and the sizes of local segments,
//     without asking the store; the log start offset is durable in the catalog
//     before anything expires.
//   - W2 (I5) An object is deleted only after the catalog has stopped naming it,
//     a durable manifest omits it, and the grace times have passed; the catalog
//     forgets it only after it is deleted.
//   - W3 An upload that was announced is swept only after its deadline and the
//     grace time, so a late one leaves nothing behind.
//   - W4 Nothing is written or deleted in a location of another cluster
//     (manifest M3).
//   - W5 Every failure is tried again for ever, with a pause that grows to a
//     bound, and is visible in Status.
//   - W6 What the scrubber finds is reported, never repaired by itself.
//   - W7 Nothing is deleted and no manifest written unless this process
//     certainly is the only one of its broker (manifest M5); while that is not
//     so, retention is decided all the same.
//
// Goroutines: one for retention and deletion, one for manifests, one for the
// scrubber; Close cancels them and waits.
//
// Objects: manifests and runs, see tiering/manifest.
//
// Errors: none are returned after New other than by Scrub.
package sweep
