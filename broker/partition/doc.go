// Package partition holds the rules of one hosted replica: what a leader may
// append and acknowledge, how far a reader may see, and which tier serves it.
//
// Owns: leader and follower roles and their fencing, the high watermark, the
// last stable offset, the in-sync set as the image gives it, the choice between
// local and remote reads, log start offsets, and the single-writer rule of the
// log below it. It declares the ports RemoteLog, LogStartKeeper,
// LogStartCheckpoint and ISRChanger.
//
// May not touch: sockets, Kafka error codes, object stores, the controller. It
// reads and writes records only through broker/locallog.
//
// # Locks
//
// writeMu is held by whoever changes the log (append, roll, truncate, change of
// role) and, alone of all locks here, over a write to the file: it is what makes
// the log's single-writer rule hold. mu guards the watermarks, the waiters and
// the commits and is never held over I/O. Order: writeMu, then mu. Reads take
// neither: role, settings and offsets are loaded atomically. structure is taken
// before writeMu by what removes, cuts or exchanges segments, which is rare: so a
// rewrite waits for the disk in peace while appends go on.
//
// # Goroutines
//
// One flusher while there are appends that wait for the disk; it ends by itself
// when nothing waits, and Close waits for it. No other.
//
// # Files
//
// None of its own; see broker/locallog.
//
// # Invariants
//
//   - P1 (I1) LogStartOffset <= LastStableOffset <= HighWatermark <=
//     LogEndOffset, each rising only, within one leader epoch.
//   - P2 (I2) With flush.messages=1 neither an acknowledgement nor the high
//     watermark passes the flushed offset.
//   - P3 (I3) Nothing is appended unless this replica leads under the epoch that
//     it checked, and the epoch is in the epoch list before anything is served.
//   - P4 (I4) No local segment at or above LogStartOffset is removed unless it
//     lies below RemoteEndOffset as the catalog last published it.
//   - P5 (I6) What is offered to the archive lies below the last stable and the
//     flushed offset of a leader.
//   - P6 (I8) A read in range returns a batch that reaches past its offset, or
//     nothing because the offset is at the bound of what the reader may see.
//   - P7 (I9) A serving leader's log reaches RemoteEndOffset.
//
// # Errors
//
// Sentinels in errors.go, wrapped with the partition's name. InvalidRecordError
// lists the records that made a batch be refused. After ErrStorage the replica
// stays offline until it is opened again.
package partition
