// Package rangecache is a bounded cache of byte ranges of remote objects, each
// range in a file of its own, so that cold reads too are sent with sendfile.
//
// Owns: the cache directory, its lock, its chunk files (FORMAT.md), the space
// that they may take, and the fills that bring ranges in. May not touch: object
// stores (ranges come through a Source), catalogs, record batches.
//
// Invariants:
//
//   - C1 The directory never holds more than LimitBytes, not even for a moment:
//     space is reserved before a file is made and given back after the file is
//     gone. Each file is charged whole disk blocks and a directory entry.
//   - C2 A range is visible only when all its bytes are there and its Source
//     has accepted them.
//   - C3 A range that someone holds a Region of is never evicted: its bytes
//     would stay on the disk until the Region is released anyway.
//   - C4 At most one fill at a time brings in a range; whoever wants it joins.
//   - C5 A fill does not end with the caller that asked for it: a caller whose
//     context ends finds the range at its next try.
//   - C6 A file from before a restart is used only after its checksum was
//     verified; what is junk, short or foreign is removed.
//   - C7 Nobody waits for space while holding a range, and a prefetch never
//     waits at all.
//   - C8 A fill begins only where the disk has more free than ReservedBytes after
//     it. Where it has not, a reader's fill evicts a few older ranges, so that the
//     cache gives way to whoever needs the disk more, and where that is not
//     enough the range is read without the cache.
//
// Goroutines: one per running fill, at most Config.FillLimit of them reading
// from a Source; Close cancels them and waits.
//
// Lock order: one mutex, never held over I/O.
//
// Errors: ErrTooLarge (the range can never fit: read it without the cache),
// ErrStorage (the cache's own disk failed or has no room, wrapped), ErrClosed, the Source's
// errors, and the context's.
package rangecache
