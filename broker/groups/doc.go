// Package groups runs consumer groups: it joins the pure groups of both
// protocols (broker/group/classic, broker/group/consumer) and the rules of
// committed offsets to the log that keeps them (broker/coordinator).
//
// Owns: for each partition of __consumer_offsets that this broker leads, the
// groups that are held in memory, those with members or waiting requests; which
// protocol a request finds its group in; callers that wait; when groups are to
// be looked at; the pass that drops expired offsets, offsets of deleted topics
// and groups that nobody needs any more; what is counted of all this.
//
// May not touch: the rules of a group, Kafka's codes, the wire, the log.
//
// Goroutines: none of its own. A shard's methods run on the goroutine of the
// coordinator's shard, one at a time; the methods of Groups on their callers'.
//
// Memory: a group without members lies in the view alone, with its offsets.
// What is kept grows with members and waiting requests. A filter of fixed size a
// partition says which groups may have records besides offsets.
//
// # Invariants
//
//   - G1 Every caller gets one answer, unless it stopped waiting: the group's,
//     or why there is none.
//   - G2 An answer is given once the log has what it promises.
//   - G3 A group in memory is what its records in the log make of it, those in
//     flight included. Where they cannot be appended, it is dropped, whoever
//     waits for it is told, and it is loaded again.
//   - G4 A group with members is in memory wherever its partition is led.
//
// # Errors
//
// Those of package group. What the log or the view answer becomes
// ErrNotCoordinator, ErrCoordinatorLoading or ErrCoordinatorNotAvailable; damage
// stays what it is.
package groups
