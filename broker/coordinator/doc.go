// Package coordinator runs state that is kept in the log of an internal topic:
// what is decided lies in the log, a view of it in Pebble holds the latest
// record of each key, and the leader of a partition keeps a machine of its user
// on top (design section 7).
//
// Owns: the shard of each led partition, which runs events in order, appends
// what they want in batches and tells them when it is committed; the overlay of
// what is appended and not yet in the view; the views, their position in the
// log, and when one must be built again.
//
// May not touch: the meaning of records, Kafka's codes, sockets, the log's files.
//
// # Goroutines
//
// One shard for each led partition, which also waits for the syncs of what it
// appends, where the topic wants them; one watcher, which notices leadership and
// decided data of the replicas hosted here; at most Limits.Appliers that feed
// followers' views; one keeper, which makes the views durable from time to time
// and replaces damaged ones. Runtime.Close ends them.
//
// # Files
//
// One Pebble database for the views of all partitions (OpenViews). It is a
// cache: one that is lost or damaged is built again from the logs.
//
// # Invariants
//
//   - C1 (I10) A view holds exactly what the log below its position says, and
//     the position names the leader epoch of the record before it. Both change
//     in one batch. A view whose log is shorter, of another epoch there, starts
//     past it, or has lost tombstones past it to compaction, is dropped and built
//     again from the log's start. What it notes of sets of keys (Schema.SetBytes)
//     says that a set has an entry where it has, and perhaps where it has none:
//     that a set is filled is certain, that it is in doubt makes readers look.
//   - C2 A view is fed from records below the high watermark only. Records of a
//     transaction wait, by producer id, for their marker.
//   - C3 One goroutine at a time moves a view forward: the shard where this
//     replica leads, else an applier.
//   - C4 What one event appends is one batch or a part of one. Events see what
//     all events before them appended, and a function given to Tx.Then runs
//     with nil only once everything that was there to see is in the view.
//   - C5 A machine sees an event only after it was loaded from a view that has
//     everything that was in the log when this tenure began, and none after
//     Unload.
//   - C6 Every function that Do has taken runs once, and so does every function
//     given to Tx.Then, in order.
//
// # Errors
//
// Sentinels in errors.go. An append that fails gives the partition's error.
package coordinator
