// Package replicas hosts the replicas of this broker: it opens the log
// directories, opens, creates, promotes, demotes and deletes replicas as the
// image changes, and runs retention, compaction, flush and checkpoint passes over
// them.
//
// Owns: the log directories' lock, meta.properties, clean-shutdown file and
// checkpoint files; the folders of partitions; the registry from partition to
// replica.
//
// May not touch: what is inside a partition's folder, other than through
// broker/locallog and broker/partition; the object store; sockets.
//
// # Goroutines
//
// One applies image changes, one runs retention, one chooses what is compacted and
// has one more for each log that is, up to log.cleaner.threads; one the short periodic duties
// (free space, checkpoints, files that are due), one tells the controller where
// replicas lie; one for each replica that moves to another directory, of which
// few copy at a time; recovery at start uses a bounded number more, which end
// with it. Close ends all of them.
//
// # Files
//
// In each log directory: .lock, meta.properties, .kafka_cleanshutdown,
// recovery-point-offset-checkpoint, log-start-offset-checkpoint,
// replication-offset-checkpoint, ballast (room for these), one folder per replica
// (`<topic>-<partition>`), folders being deleted
// (`<topic>-<partition>.<32 hex digits>-delete`), copies on their way into the
// directory (`...-future`) and strays
// (`<topic>-<partition>.<32 hex digits>-stray`); in each partition's folder
// partition.metadata. All in Kafka's formats but for the ballast, which says
// nothing.
//
// # Invariants
//
//   - M1 A replica leads only under an image that shows this incarnation of the
//     broker registered and unfenced.
//
//   - M2 A folder is removed only once it is named -delete and that name is
//     durable; a folder that the image does not know is renamed -stray and kept.
//     One that has records and does not say of which topic is kept as it is, and the
//     partition of its name is offline.
//
//   - M3 The clean-shutdown file of a directory is written after all its logs
//     were synced and closed and all its checkpoints are durable, and removed,
//     durably, before anything in the directory changes.
//
//   - M4 A log directory that was known and is now empty or missing is refused.
//
//   - M5 DeleteRecords of a partition without a tier is answered after
//     log-start-offset-checkpoint holds the offset durably.
//
//   - M7 A replica that moves has, from when its copy takes its name on, that copy
//     as its only truth: it holds everything, durably, and a higher number of
//     moves than the former folder, which a stop in between may leave.
//
//   - M6 Nothing is opened, and no folder taken for one of a deleted topic, under
//     metadata that went back in time: the indexes in partition.metadata and in
//     the clean-shutdown file are at most that of a complete image.
//
//   - M8 A folder's name and its partition.metadata are durable before the first
//     offset in it counts as flushed, not when it is made.
//
// # Errors
//
// DirError where a directory is refused at start (the process exits 3);
// ErrUnknownPartition, ErrOffline and ErrClosed from lookups.
package replicas
