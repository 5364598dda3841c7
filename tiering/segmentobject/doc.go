// Package segmentobject is the remote form of one sealed segment: an object
// that holds the segment's record batches from position 0 on, then everything
// that is needed to serve them, then a footer that describes it all. FORMAT.md
// draws the bytes.
//
// Owns: Build, which reads a segment once, verifies every batch and returns the
// object as an objstore.Body that is not buffered; Index, the part after the
// batches, read with one GET; Verify, which checks a whole object.
//
// May not touch: the catalog, leadership, the local log beyond an io.ReaderAt.
//
// Invariants:
//
//   - S1 A range of the object below SegmentBytes is the same range of the
//     segment that was uploaded.
//   - S2 No object is built of a batch whose CRC is wrong, nor of batches that
//     do not cover [Base, End) in order.
//   - S3 Every byte of an object is under a checksum that the object itself
//     holds: chunks, sections, footer. Nothing is served before its checksum
//     was compared.
//   - S4 The object alone is enough: with its key and size, or with its
//     ObjectSummary, any reader can serve it.
//
// Goroutines: none. Files: none.
//
// Errors: *CorruptError (key, position, cause; errors.Is ErrCorrupt) for bytes
// that are wrong, ErrVersion for a format that is newer, errors of the store.
package segmentobject
