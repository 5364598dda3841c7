// Package command is the codec of what the quorum orders: commands, each an
// envelope with the records that change the image and the catalog.
//
// Owns: the record types and their bytes. May not touch: files, sockets, Raft.
// Goroutines: none. Files: none; the bytes are entries of the Raft log.
//
// # Format
//
//	command: format u8 = 1 | level uvarint | controller epoch uvarint |
//	         sequence uvarint | time varint (Unix ms) | count uvarint |
//	         count records | CRC32C u32 LE of everything before it
//	record:  kind uvarint | version uvarint | length uvarint | payload
//
// Numbers are varints (signed ones zigzag), identifiers 16 bytes, strings and
// lists are led by their length. A payload of a newer version is another
// payload, not a longer one: a reader branches on the version, and a kind or
// version that it does not know is an *UnknownRecordError naming the metadata
// level needed, which stops the broker.
//
// # Invariants
//
//   - K1 A command is at most MaxBytes long.
//   - K2 decode(encode(c)) = c, and what decodes encodes to something that
//     decodes to the same.
//   - K3 Bytes once written stay readable: testdata holds a golden file of
//     every kind and version for ever.
//
// Errors: *CorruptError, *UnknownRecordError, ErrTooLarge.
package command
