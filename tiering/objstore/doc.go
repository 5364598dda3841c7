// Package objstore is the port to object stores, and everything that is the
// same for all of them.
//
// Owns: the Store port and its vocabulary (Body, Info, PutOptions, Location),
// the error classes, key and URL rules, Guard (the decorator that every caller
// works through: bounded retries, limits per verb, deadlines, progress
// watchdog, metrics), and the upload of an object in parts. The drivers are
// packages below: s3 and minio (which share s3proto), file, mem; drivers.Open
// picks one from a URL; faultstore is the double that fails on request;
// objstoretest is the suite that all of them pass.
//
// May not touch: anything that knows what a log, a topic or a segment is.
//
// Invariants:
//
//   - O1 An object is visible under its key only whole: a Put that fails leaves
//     either nothing or the complete object.
//   - O2 Put returns nil only after the store has the object durably, and has
//     compared it with the checksum that was sent (ChecksumNone excepted).
//   - O3 Put with IfAbsent never replaces an object; of several concurrent ones
//     for a key exactly one succeeds.
//   - O4 Retries happen in Guard and nowhere else, so that their number is
//     bounded in one place; a retried conditional Put that finds its own object
//     is a success.
//   - O5 Through Guard every call ends: each attempt has a deadline, and is cut
//     where no byte moves for the stall time. (A driver that is stuck in the
//     kernel, as file on a dead disk, ends when the kernel lets it.)
//   - O6 Keys are whole. A Store adds no prefix to a key and takes none away;
//     Location().Prefix is for the caller to build keys with.
//
// Goroutines: none that outlive a call; the parts of one upload go in parallel.
//
// Errors: *Error, which wraps one of the class sentinels (ErrNotFound,
// ErrExists ...) and says what a person can do.
package objstore
