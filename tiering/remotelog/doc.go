// Package remotelog reads what has left the local disk: it implements the data
// plane's RemoteLog and LogStartKeeper over the catalog, an object store and a
// cache of ranges in files.
//
// Owns: the way from an offset, a time or an epoch to bytes (catalog entry,
// object index, position, chunks); parsed indexes in memory, up to a limit;
// what is known of sequential readers, and reading ahead for them; the list of
// objects found bad. May not touch: the catalog's content, other than to ask for
// an advanced log start; objects, other than to read them.
//
// Invariants:
//
//   - R1 Every byte returned has been compared with a checksum of its object on
//     its way into the cache. An object whose bytes are wrong is reported with
//     its key and not read again for a while.
//   - R2 (I8) A read in range returns whole batches from the one that holds the
//     offset on, or says at which offset to go on.
//   - R3 A read that its caller gave up goes on into the cache.
//   - R4 A lookup by offset, time or aborted transaction costs at most one GET
//     for an index and one for a range, whatever the number of segments; a
//     lookup past everything costs none.
//   - R5 An object that is not found is looked up again, in a catalog that has
//     caught up and then in the store, before it is called missing and left
//     alone for a while.
//   - R6 Nothing here blocks where the store is down, other than the calls that
//     take a context, for as long as that lasts.
//
// Goroutines: reading ahead into the next segment, at most Config.AheadSegments
// at a time; Close cancels them and waits. Fills are the cache's own.
//
// Files: none of its own; see tiering/rangecache. The cache belongs to whoever
// opened it.
//
// Errors: partition.ErrOffsetOutOfRange; the context's; everything that the tier
// is to blame for wraps partition.ErrRemote, among it ErrMissingObject,
// ErrOtherLocation and *segmentobject.CorruptError.
package remotelog
