// Package catalog is the truth about remote segments, as pure rules: which
// segments a partition has in the object store, in which state each is, where
// the partition's log starts and where its remote part ends.
//
// Owns: the states of a segment, the events that change them and what each
// requires, lookups by offset, time and leader epoch over a sorted reader port,
// and the codec of one segment and of one partition summary. May not touch:
// files, sockets, the image, the store. Goroutines: none. Files: none; the
// state package keeps the encoded values.
//
// A segment goes
//
//	started -> live -> replaced | expired -> gone
//	started (given up, or past its deadline) -> gone
//
// where gone means that the catalog has forgotten it. The segments of a
// deleted topic count as expired from the moment of the deletion, whatever
// their stored state says (DeletedTopic.Effective), until the sweeper has
// removed their objects.
//
// # Invariants
//
//   - C1 Live segments of a partition neither overlap nor leave a gap: each
//     starts at the RemoteEnd that the one before left (I4).
//   - C2 LogStart and RemoteEnd never go back.
//   - C3 Every live segment ends above LogStart; LogStart lies at or below
//     RemoteEnd, or in the first local batch, whose base is RemoteEnd.
//   - C4 Only the current leader epoch changes a partition that has a leader
//     (I3); a publish also belongs to the tenure that started the upload.
//   - C5 A segment is named before its object can exist, and is forgotten only
//     once no upload of it can still be running (I5).
//   - C6 PrefixMaxTimestamp rises with the base offset of live segments.
//   - C7 Summary counts equal the sums over the segments.
//
// Errors: the sentinels of package request for refused events; *CorruptError
// for stored bytes that cannot be read.
package catalog
