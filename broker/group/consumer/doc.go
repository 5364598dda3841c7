// Package consumer is a consumer group of the protocol of KIP-848: the broker
// computes who is to read what, and leads each member there by its heartbeats.
//
// Owns: the group's members and their subscriptions, by name and by regular
// expression; its epochs; the target assignment and the assignors that compute
// it; what each member has and still has to give up; the records of all this,
// in Apache Kafka's schemas; members that speak the classic protocol in such a
// group, and the change of a whole group from one protocol to the other.
//
// May not touch: committed offsets (package group), the log, the wire, the
// clock (it is given the time).
//
// Goroutines: none. A Group is not safe for concurrent use.
//
// An event changes the state at once and returns the records that say so. State
// changes through records alone, so a group made by Load is what the group that
// wrote them was. Where an append fails, the group is dropped and loaded again.
//
// Errors: those of package group, each before anything has changed.
//
// Invariants:
//
//	C1  A partition is held by one member at most: it is assigned to a member
//	    only when no other has it, or has yet to confirm that it gave it up.
//	C2  A member moves to the epoch of the target assignment only once it has
//	    given up what is not in its target.
//	C3  The target assignment gives each partition to one member that is
//	    subscribed to its topic, and leaves none of a subscribed topic out.
//	C4  Group epoch >= assignment epoch >= every member's epoch.
package consumer
