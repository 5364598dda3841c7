// Package manifest is what lies in a store beside the segment objects: who owns
// the location, and for each partition which objects are live, so that topics
// can be rebuilt from the store alone.
//
// Owns: the layout of keys below a location's prefix; owner objects and the
// claim of a location, by a cluster and by each process of its brokers; manifests and runs, their codec (FORMAT.md) and how they
// are written. May not touch: the catalog (callers hand in what it says),
// segment objects.
//
// Invariants:
//
//   - M1 Objects of this package are immutable and put only if absent, but for
//     a claim, which its own process renews. The manifest with the highest (leader epoch, sequence) of a partition is the
//     one that counts.
//   - M2 A run is durable before a manifest names it.
//   - M3 A location belongs to the cluster of its owner object with the highest
//     generation; who is not that cluster, or remembers a lower generation,
//     neither writes nor deletes below it.
//   - M4 Every byte of a manifest and of a run is under a CRC32C.
//   - M5 Of the processes of one broker (one and a copy of its disk, or one
//     before and after a kill) at most one deletes or writes manifests: the one
//     whose claim has the highest number and was renewed within three intervals.
//     A claim is followed by a higher one only when it was released, or not
//     renewed for four intervals of the follower's own clock.
//
// Goroutines: Ownership.Start has one, which renews the claim, until Close; a
// deletion under way has one that cancels it with the lease.
//
// Errors: *CorruptError (errors.Is ErrCorrupt) for bytes that are wrong,
// ErrVersion for a newer format, ErrForeign for a location of another cluster,
// ErrCopy for one that another process of this broker has, ErrUnsettled while
// that is not known,
// ErrSuperseded for a manifest older than one that exists, errors of the store.
package manifest
