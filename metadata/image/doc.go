// Package image is the immutable snapshot of the cluster: brokers, topics,
// partitions, configs, feature levels. A change builds a new image that shares
// what did not change, so that an image can be held by pointer for as long as
// one likes.
//
// Owns: Image, Delta, how records change an image, and how an image is kept as
// small entries. May not touch: files, sockets, the catalog. Goroutines: none.
// Files: none; the state package keeps the entries.
//
// # Invariants
//
//   - M1 Nothing reachable from an Image ever changes. Callers must not change
//     maps and slices that they get from it.
//   - M2 A command is applied all or not at all; it is refused unless its
//     controller epoch is the tenure's and its sequence the next.
//   - M3 A partition's leader epoch and partition epoch never go back, and the
//     partition epoch rises by one with each change.
//   - M4 A topic has all its partitions or is not visible.
//   - M5 A topic id is never used for two topics.
//   - M6 Load(Entries(i)) = i, and storing each Delta's Entries in turn keeps
//     the stored entries equal to Entries of the last image.
//
// Errors: *RefusedError for a command that does not follow from the image.
package image
