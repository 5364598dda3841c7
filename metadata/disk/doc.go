// Package disk is the one seam through which the project touches files.
//
// Owns: the FS and File ports; Handle and Region, the reference-counted views
// of files that responses are made of; OS, the real implementation; Crash, a
// file system in memory that can be cloned as it would be after a power loss
// (unsynced data torn or lost, unsynced folder entries lost or kept); Fault, a
// wrapper that fails the i-th call that matches; Ballast, a wrapper that has room
// of its own for when the disk is full.
//
// May not touch: anything of ours. It knows no log, no segment, no metadata.
//
// Goroutines: none.
//
// Durability contract, which Crash enforces: data written is durable after
// File.SyncData returned nil; a file created, renamed, linked or removed is
// durable after SyncDir of its folder returned nil. Everything else may be
// lost, or kept, in part, at a power loss.
//
// Errors: those of the os package (errors.Is with os.ErrNotExist, os.ErrExist),
// and ErrLocked.
package disk
