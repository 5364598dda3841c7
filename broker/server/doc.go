// Package server owns listeners and the connections that they accept: it reads
// requests, hands them to a Handler in order, and writes the responses in order.
//
// Owns: bound addresses, accepted sockets, pipelining, limits (connections, by
// address too; requests and bytes in flight; size of a request; idle time) and
// the drain at a stop.
//
// May not touch: the meaning of a request.
//
// # Goroutines
//
// One per listener accepts. One per connection reads, and writes whatever can be
// answered at once while nothing is queued before it. A second one per
// connection exists from the first response that had to wait and writes the
// queued ones; both end with the connection. One per server closes connections
// that are idle or no longer take bytes. All are started through Server.start,
// and Close waits for them.
//
// # Order
//
//	S1  Requests of a connection start in the order in which they arrived, and
//	    are answered in that order.
//	S2  Produce may start while Produce and Fetch are in flight, Fetch while
//	    Produce is. Every other request starts when nothing is in flight.
//	S3  At any time only one of the two goroutines of a connection writes to it:
//	    the reading one while the queue is empty, the other one else.
//	S4  Requests and bytes in flight are bounded per connection: at the bound
//	    it is not read from, so that the client's sends block.
//
// # Limits
//
// A connection past the bound on connections waits, unread, until another one
// ends, and those after it in the listen queue; one past the bound of its address
// is closed at once. A frame past the bound on its size
// closes its connection. A connection that has nothing in flight, or takes no
// bytes, is closed after IdleMax. Every limit hit is counted.
//
// # Errors
//
// ErrListen where an address cannot be bound. The Handler's errors close their
// connection and are logged at level debug or warn.
package server
