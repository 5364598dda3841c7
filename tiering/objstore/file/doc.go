// Package file is an object store in a folder: the embedded default.
//
// Owns: one file per object under the root, at the key's path; temporary files
// under .strandline-tmp/<instance>, whose lock says that the instance is alive.
// May not touch: anything outside its root; files other than through
// metadata/disk. Several processes may have the same folder open.
//
// Invariants:
//
//   - F1 A file has its key's name only once it is complete and synced: it is
//     written under a temporary name, synced, then linked (put if absent:
//     link(2) never replaces) or renamed.
//   - F2 Put, and an answer of ErrExists, return only after every folder from
//     the object up to the root was synced; Delete after the folder that lost
//     an entry was.
//   - F3 Folders that Delete has emptied are removed. What a crash left behind,
//     temporary files and empty folders, is removed by the next Open.
//   - F4 A folder that cannot be used at Open is tried again by each call.
//
// Goroutines: none. Errors: *objstore.Error.
package file
