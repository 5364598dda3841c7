// Package classic is a group of the classic protocol: members join, a leader
// among them assigns, everyone is told (JoinGroup, SyncGroup, Heartbeat,
// LeaveGroup). Eager, cooperative and static members (KIP-345) differ only in
// what they send; to the group, metadata and assignments are opaque.
//
// Owns: who is a member, the generation, its leader and its protocol, and when
// each of them has to be heard from. One Group is one group.
//
// Pure: an event and the time it happens at go in, group.Effects come out; no
// goroutine, clock, lock or I/O. A Group is not safe for concurrent use. It
// moves on as if its records were committed: where they cannot be, the caller
// drops it and loads it again (see group.Effects).
//
// May not touch: the log, the offsets themselves, Kafka's error codes.
//
// Behaviour is Apache Kafka 4.4's but where nobody can have relied on it. Every
// request is answered: there, a join or sync that another one of the member takes
// the place of, and the sync of a member that leaves, are not. A client that
// leaves before it has joined makes nobody join again; a member that is turned
// away because the group is full is not waited for; a join that is refused makes
// no group, and a group that a client is about to join is not cleaned up. A new
// process in the place of a static member inherits how long its sync is waited
// for, and what it subscribes to is known at once. The leader is the first member
// that joined, and where votes for a protocol are equal the first vote counts:
// there, any.
//
// Invariants, which the tests hold it to:
//
//   - C1 Every token is answered exactly once; a request for the same member that
//     comes while one waits takes its place, and the older one is answered.
//   - C2 A join waits only in PreparingRebalance, a sync only in
//     CompletingRebalance.
//   - C3 An assignment is handed out only while the group is Stable, and is what
//     the leader of that generation gave.
//   - C4 The leader is a member; with no members there is none, nor a protocol.
//   - C5 A member has one session, a client that was told its id (KIP-394) has
//     one, and the group one timer for each phase of a rebalance.
//   - C6 Load of the records so far gives the generation, leader, members and
//     assignments of the group as it was last Stable or Empty.
package classic
