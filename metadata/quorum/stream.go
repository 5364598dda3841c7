package quorum

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// StreamLayer carries Raft's streams between servers. Servers are addressed by
// their ids alone; the layer knows where they live.
type StreamLayer interface {
	// Accept returns the next stream from another server. Once the layer is
	// closed it answers net.ErrClosed.
	Accept() (net.Conn, error)
	// Dial opens a stream to a server.
	Dial(serverID string, timeout time.Duration) (net.Conn, error)
	// Close ends Accept. It may be called more than once.
	Close() error
}

// Alone returns the stream layer of a voter that has no peers.
func Alone() StreamLayer { return &alone{closed: make(chan struct{})} }

type alone struct {
	once   sync.Once
	closed chan struct{}
}

var errAlone = errors.New("this node has no way to other voters")

func (a *alone) Accept() (net.Conn, error) {
	<-a.closed
	return nil, net.ErrClosed
}

func (a *alone) Dial(string, time.Duration) (net.Conn, error) { return nil, errAlone }

func (a *alone) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

// streams is a StreamLayer as Raft wants it.
type streams struct {
	StreamLayer
	id string
}

var _ raft.StreamLayer = streams{}

func (s streams) Addr() net.Addr { return serverAddr(s.id) }

func (s streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.StreamLayer.Dial(string(address), timeout)
}

// serverAddr is a server's id where Raft wants an address.
type serverAddr string

func (a serverAddr) Network() string { return "server-id" }
func (a serverAddr) String() string  { return string(a) }
