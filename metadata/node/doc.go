// Package node runs the metadata plane of one node: it joins the state to the
// quorum, drives the controller where this node leads, and implements watch.
//
// Owns: metadata.log.dir with its lock and meta.properties, the start of a new
// cluster, the controller's goroutine and timers, delivery of changes to
// subscribers. May not touch: log directories, sockets.
//
// Goroutines: those of state and quorum; the controller's loop, the one that
// waits for its proposals, and the dispatcher. Close ends them, in that order.
//
// Files, under Config.Dir:
//
//	.lock             held while the node runs, with the process id
//	meta.properties   Kafka's: version, cluster.id, node.id, directory.id; and
//	                  strandline.format
//	state/            package state
//	raft/ snapshots/  package quorum
//
// # Invariants
//
//   - D1 A directory of another node, cluster or program, of a newer format, or
//     one that is locked, is refused before anything in it changes.
//   - D2 A new cluster begins only where metadata.log.dir and every log
//     directory are new. An empty metadata.log.dir below known log directories
//     is a loss, and refused.
//   - D3 Submit answers success only for what is committed and shown by Image
//     and Catalog. That holds for answers without a change as well: they wait
//     for everything that was in flight when they were made, and share its
//     fate.
//   - D4 One goroutine computes changes. After any failure, what is in flight is
//     forgotten and its requests answer ErrOutcomeUnknown.
//   - D5 A node that has failed (Config.Fatal) answers nothing more, and its
//     Close touches neither quorum nor state.
//
// Errors: *DirError from Open and Start; from Submit the sentinels of package
// request.
package node
