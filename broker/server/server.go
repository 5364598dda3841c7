package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/pprof"
	"sync"
	"time"

	"strandline/broker/wire"
)

// ErrListen means that an address cannot be bound.
var ErrListen = errors.New("cannot listen")

// ErrClosed is returned by Serve once Close was called.
var ErrClosed = errors.New("server closed")

// Server accepts connections and serves them until Close.
type Server struct {
	cfg  Config
	gate *wire.Gate

	// ctx ends when connections must be cut; draining is closed when they are
	// to finish what is in flight.
	ctx      context.Context
	cut      context.CancelFunc
	draining chan struct{}
	wg       sync.WaitGroup
	slots    chan struct{} // a slot per connection, where they are few
	warnings warnings

	mu        sync.Mutex
	listeners []*listener
	conns     map[*conn]struct{}
	perIP     map[string]int
	serving   bool
	closed    bool
}

type listener struct {
	name string
	net.Listener
}

// New returns a server that listens nowhere yet.
func New(cfg Config) *Server {
	s := &Server{
		cfg:      cfg.withDefaults(),
		draining: make(chan struct{}),
		conns:    map[*conn]struct{}{},
		perIP:    map[string]int{},
	}
	s.gate = wire.NewGate(cfg.Dirs, func() { s.cfg.Metrics.LimitHit(LimitColdReads) })
	s.ctx, s.cut = context.WithCancel(context.Background())
	if s.cfg.MaxConnections <= 1<<20 {
		s.slots = make(chan struct{}, s.cfg.MaxConnections)
	}
	return s
}

// Add makes the server accept from l, under a listener's name. Connections wait
// in the listen queue until Serve.
func (s *Server) Add(name string, l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, &listener{name: name, Listener: l})
}

// Serve starts to accept. It returns at once.
func (s *Server) Serve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.serving {
		return errors.New("server: serving already")
	}
	s.serving = true
	for _, l := range s.listeners {
		s.start("accept", func() { s.accept(l) })
	}
	s.start("reaper", s.reap)
	return nil
}

// Close stops accepting, lets every connection finish what is in flight until
// ctx ends, then cuts those that have not. It may be called more than once.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	listeners := s.listeners
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	if first {
		close(s.draining)
	}
	var errs []error
	for _, l := range listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, c := range conns {
		c.drain()
	}
	done := make(chan struct{})
	go func() { // ends when the last goroutine has, which the cut below sees to
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.cut()
		for _, c := range conns {
			_ = c.nc.Close()
		}
		<-done
	}
	s.cut()
	return errors.Join(errs...)
}

// start runs fn in a goroutine that Close waits for.
func (s *Server) start(name string, fn func()) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("server", name)))
		fn()
	}()
}

func (s *Server) accept(l *listener) {
	const firstPause, longestPause = 5 * time.Millisecond, time.Second
	pause := firstPause
	for {
		nc, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || s.isClosed() {
				return
			}
			s.cfg.Logger.Warn("accept failed", "listener", l.name, "error", err, "retry_in", pause)
			select {
			case <-time.After(pause):
			case <-s.draining:
				return
			}
			pause = min(2*pause, longestPause)
			continue
		}
		pause = firstPause
		s.cfg.Metrics.accepted.Inc()
		if !s.takeSlot() {
			_ = nc.Close()
			return
		}
		s.open(l, nc)
	}
}

// takeSlot waits until another connection is allowed; false at a stop.
func (s *Server) takeSlot() bool {
	if s.slots == nil {
		return true
	}
	select {
	case s.slots <- struct{}{}:
		return true
	default:
	}
	s.cfg.Metrics.LimitHit(LimitConnections)
	select {
	case s.slots <- struct{}{}:
		return true
	case <-s.draining:
		return false
	}
}

func (s *Server) giveSlot() {
	if s.slots != nil {
		<-s.slots
	}
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Server) open(l *listener, nc net.Conn) {
	ip := hostOf(nc.RemoteAddr())
	s.mu.Lock()
	if s.closed || s.perIP[ip] >= s.cfg.MaxConnectionsPerIP {
		full := !s.closed
		s.mu.Unlock()
		if full {
			s.cfg.Metrics.LimitHit(LimitConnectionsPerIP)
		}
		_ = nc.Close()
		s.giveSlot()
		return
	}
	c := newConn(s, l.name, ip, nc)
	s.conns[c] = struct{}{}
	s.perIP[ip]++
	s.start("connection", c.serve)
	s.mu.Unlock()
	s.cfg.Metrics.connections.Inc()
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	if s.perIP[c.ip]--; s.perIP[c.ip] == 0 {
		delete(s.perIP, c.ip)
	}
	s.mu.Unlock()
	s.cfg.Metrics.connections.Dec()
	s.giveSlot()
}

func hostOf(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	return a.String()
}

// idleTicks is how many looks without a change make a connection idle.
const idleTicks = 8

// reap closes connections on which nothing has moved for IdleMax.
func (s *Server) reap() {
	t := time.NewTicker(max(s.cfg.IdleMax/idleTicks, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-s.draining:
			return
		case <-t.C:
		}
		s.mu.Lock()
		var idle []*conn
		for c := range s.conns {
			if c.isIdle() {
				idle = append(idle, c)
			}
		}
		s.mu.Unlock()
		for _, c := range idle {
			s.cfg.Metrics.LimitHit(LimitIdle)
			c.close("idle")
		}
	}
}

// Listen binds host:port and adds the listener; port 0 takes a free one. The
// name localhost is bound on both loopback addresses. It returns the port.
func (s *Server) Listen(name, host string, port int) (int, error) {
	const tries = 16
	hosts := []string{host}
	if host == "localhost" {
		hosts = []string{"127.0.0.1", "::1"}
	}
	for try := 1; ; try++ {
		bound, got, err := bind(hosts, port)
		if err == nil {
			for _, l := range bound {
				s.Add(name, l)
			}
			return got, nil
		}
		if port != 0 || try == tries {
			return 0, fmt.Errorf("%w on %s: %w", ErrListen, net.JoinHostPort(host, fmt.Sprint(port)), err)
		}
	}
}

// bind binds every host on one port. A second address family that the machine
// does not have is left out.
func bind(hosts []string, port int) (bound []net.Listener, got int, err error) {
	for i, h := range hosts {
		l, err := net.Listen("tcp", net.JoinHostPort(h, fmt.Sprint(port)))
		if err != nil {
			if i > 0 && !isInUse(err) {
				continue
			}
			for _, b := range bound {
				_ = b.Close()
			}
			return nil, 0, err
		}
		bound = append(bound, l)
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			port = tcp.Port
		}
	}
	return bound, port, nil
}
