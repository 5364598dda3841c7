// Package fetchsession remembers what the fetches of a client ask for, so that
// a request names only what has changed and an answer only what is new
// (KIP-227).
//
// Owns: the sessions, their epochs, the partitions of each with what the last
// answer said of them, the order in which they are served, and which session
// makes room for another.
//
// May not touch: requests and responses, replicas, the clock (it is given the
// time).
//
// Goroutines: none. All methods may be called from any goroutine. Two kinds of
// locks, neither held over I/O, never both: the cache's for its index, each
// session's for its content.
//
// Limits: at most Config.Slots sessions of together Config.Partitions
// partitions. Where a new session finds no room, a session that was unused for
// two minutes makes it; else the smallest one that has had its two minutes,
// where it is smaller than the new one or a consumer's while the new one is a
// follower's. A follower's also takes the place of the smallest consumer's
// whatever its age. Else there is no session: the client goes on with full
// fetches. A session that grows past the bound on partitions ends, and its
// client asks for a new one. Each is counted.
//
// Errors: ErrUnknown, ErrEpoch and ErrTopicIDs, after each of which the client
// starts a new session.
//
// Invariants:
//
//	F1  An epoch of a session is answered once. What a request that came twice
//	    finds does not change the session.
//	F2  Every partition of a session whose offsets, error or data the client
//	    has not seen is in the answer.
//	F3  A partition that gave data goes behind all others, so that none starves
//	    where an answer has no room for all.
package fetchsession
