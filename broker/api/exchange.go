package api

import (
	"context"

	"strandline/broker/wire"
)

// Conn is what handlers know of a connection, and keep for it. One goroutine
// uses it at a time: the one that reads the connection.
type Conn struct {
	// Listener is the name of the listener that accepted the connection.
	Listener string
	// Remote is the address of the client.
	Remote string
	// Draining is closed when the server stops: what waits for more data
	// answers with what it has.
	Draining <-chan struct{}
}

// Deferred is a response that could not be given at once.
type Deferred interface {
	// Complete waits until the response can be given and writes it, whole
	// frames only, to out. It is called once, by another goroutine than the
	// one that reads the connection, when every earlier response has been
	// written. An error closes the connection.
	Complete(ctx context.Context, out *wire.Out) error
	// Abandon is called instead of Complete where the connection has ended.
	Abandon()
}
