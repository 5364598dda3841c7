// Package state is the cluster's state on this node: it decodes and checks the
// commands that the quorum has ordered, applies them to image and catalog, and
// keeps both in one database.
//
// Owns: State, its database with its numbered folders, the catalog's readers.
// May not touch: Raft, sockets, the controller.
//
// Goroutines: the store's, and one for each database that a restore has
// replaced, until its last reader has left. Close waits for all.
//
// Files, under Config.Dir:
//
//	current      the number of the live folder, replaced by rename
//	00000001/    a database; the others are leftovers, removed at start
//
// # Invariants
//
//   - T1 What a command changes of image and catalog, and its index as the
//     applied one, are in one batch. Batches are not synced: the Raft log is,
//     and repeats what a power loss takes (S1: always the newest).
//   - T2 A command at or below the applied index changes nothing.
//   - T3 A command is applied whole or not at all. One that image or catalog
//     refuses moves the applied index alone, on every node alike.
//   - T4 A command that cannot be read or understood, or a store that fails,
//     stops the state for good: nothing later is applied, Config.Fatal is told.
//   - T5 Image, summaries and store show a command before Apply returns.
//   - T6 The live folder changes only by a rename of current, after the new
//     one is complete, durable and was opened.
//
// Errors: ErrNewerFormat, ErrStopped; *command.CorruptError,
// *command.UnknownRecordError, *image.CorruptError, *catalog.CorruptError,
// *store.CorruptError for what cannot be read.
package state
