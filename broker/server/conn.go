package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"strandline/broker/api"
	"strandline/broker/wire"
)

// coalesceBytes is how much is collected before it is written although more
// requests are waiting in the read buffer.
const coalesceBytes = 64 << 10

// conn is one accepted connection. Its fields belong to the goroutine that
// reads it, unless said otherwise.
type conn struct {
	server *Server
	nc     net.Conn
	ip     string
	ctx    context.Context
	cancel context.CancelFunc
	info   api.Conn
	reader *wire.Reader
	q      wire.Request // the request that is being started
	sender *wire.Sender // of whoever may write (S3)
	out    *wire.Out    // answered at once and not yet written
	queue  queue

	// activity rises whenever bytes arrived or were taken by the socket;
	// executing counts requests being worked on. Both are atomic.
	activity  atomic.Uint64
	executing atomic.Int32
	// seen and still belong to the reaper.
	seen  uint64
	still int

	reason atomic.Pointer[string]
}

func newConn(s *Server, listener, ip string, nc net.Conn) *conn {
	c := &conn{server: s, nc: nc, ip: ip}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.info = api.Conn{Listener: listener, Remote: nc.RemoteAddr().String(), Draining: s.draining}
	c.reader = wire.NewReader(source{c}, s.cfg.MaxRequestBytes)
	c.sender = wire.NewSender(nc, s.gate, s.cfg.Metrics.Stats(), &c.activity)
	c.queue.init(s.cfg.MaxInFlight, s.cfg.MaxInFlightBytes, s.cfg.Metrics.LimitHit)
	if tcp, ok := nc.(*net.TCPConn); ok {
		if n := s.cfg.SendBufferBytes; n > 0 {
			_ = tcp.SetWriteBuffer(n)
		}
		if n := s.cfg.ReceiveBufferBytes; n > 0 {
			_ = tcp.SetReadBuffer(n)
		}
	}
	return c
}

// source is the connection as its Reader sees it: bytes that arrive are
// activity.
type source struct{ c *conn }

func (s source) Read(b []byte) (int, error) {
	n, err := s.c.nc.Read(b)
	if n > 0 {
		s.c.activity.Add(1)
	}
	return n, err
}

// serve reads the connection until it ends.
func (c *conn) serve() {
	stop := context.AfterFunc(c.ctx, func() { _ = c.nc.Close() })
	c.out = c.sender.NewOut()
	err := c.read()
	if err == nil || isDeadline(err) {
		// The client said that it sends no more, or the server stops: what is
		// in flight is still answered. A long poll is not waited for where the
		// client is likely to be gone.
		if c.flush() == nil && (c.isDraining() || !c.queue.hasFetch()) {
			_ = c.queue.wait(c.ctx, (*queue).mayBarrier)
		}
		err = nil
	}
	c.report(err)
	c.cancel()
	stop()
	_ = c.nc.Close()
	c.queue.close()
	c.out.Free()
	c.reader.Close()
	c.server.forget(c)
}

func (c *conn) read() error {
	for {
		if c.out.Bytes() > 0 && (!c.reader.Buffered() || c.out.HasRegions() || c.out.Bytes() > coalesceBytes) {
			if err := c.flush(); err != nil {
				return err
			}
		}
		if c.isDraining() {
			return nil
		}
		frame, err := c.reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		c.server.cfg.Metrics.received.Add(float64(len(frame)))
		if err := c.handle(frame); err != nil {
			return err
		}
	}
}

// handle starts one request, in its turn.
func (c *conn) handle(frame []byte) error {
	started := time.Now()
	var err error
	c.q, err = wire.ParseRequest(frame)
	q := &c.q
	if err != nil && (q.Key != wire.KeyAPIVersions || !errors.Is(err, wire.ErrUnsupported)) {
		return err
	}
	if err := c.admit(q); err != nil {
		return err
	}
	if c.queue.empty() {
		d, err := c.call(q, c.out)
		if err != nil {
			return err
		}
		if d == nil {
			c.server.cfg.Metrics.observe(q.Key, time.Since(started))
			return nil
		}
		if err := c.flush(); err != nil {
			d.Abandon()
			return err
		}
		c.enqueue(entry{key: q.Key, bytes: q.Bytes, started: started, deferred: d})
		return nil
	}
	out := c.sender.NewOut()
	d, err := c.call(q, out)
	switch {
	case err != nil:
		out.Free()
		return err
	case d != nil:
		out.Free()
		c.enqueue(entry{key: q.Key, bytes: q.Bytes, started: started, deferred: d})
	case out.Bytes() == 0: // no answer is expected
		out.Free()
		c.server.cfg.Metrics.observe(q.Key, time.Since(started))
	default:
		c.enqueue(entry{key: q.Key, bytes: out.Bytes(), started: started, out: out})
	}
	return nil
}

func (c *conn) call(q *wire.Request, out *wire.Out) (api.Deferred, error) {
	c.executing.Add(1)
	defer c.executing.Add(-1)
	return c.server.cfg.Handler.Serve(c.ctx, &c.info, q, out)
}

// admit waits until the request may start (S2, S4).
func (c *conn) admit(q *wire.Request) error {
	var wait func(*queue) (limit string, may bool)
	switch q.Key {
	case wire.KeyProduce:
		wait = (*queue).mayProduce
	case wire.KeyFetch:
		wait = (*queue).mayFetch
	default:
		wait = (*queue).mayBarrier
	}
	if q.Key != wire.KeyProduce && c.out.Bytes() > 0 {
		// It may take its time: nobody waits for what is ready.
		if err := c.flush(); err != nil {
			return err
		}
	}
	return c.queue.wait(c.ctx, wait)
}

func (c *conn) enqueue(e entry) {
	if c.queue.add(e) {
		c.server.start("writer", c.write)
	}
}

// flush writes what was answered at once. Nothing is queued then (S3).
func (c *conn) flush() error {
	if c.out.Bytes() == 0 {
		return nil
	}
	return c.sender.Send(c.out)
}

// write is the second goroutine: it completes and writes queued responses.
func (c *conn) write() {
	for {
		e, ok := c.queue.head(c.ctx)
		if !ok {
			return
		}
		out := e.out
		if e.deferred != nil {
			out = c.sender.NewOut()
			c.executing.Add(1)
			err := e.deferred.Complete(c.ctx, out)
			c.executing.Add(-1)
			if err != nil {
				out.Free()
				c.queue.taken()
				c.fail(err)
				return
			}
		}
		c.server.cfg.Metrics.observe(e.key, time.Since(e.started))
		err := c.sender.Send(out)
		out.Free()
		c.queue.taken()
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// fail ends the connection from the writing goroutine.
func (c *conn) fail(err error) {
	if c.ctx.Err() == nil {
		c.report(err)
	}
	c.cancel()
}

// close ends the connection from outside.
func (c *conn) close(reason string) {
	c.reason.CompareAndSwap(nil, &reason)
	c.cancel()
}

// drain makes the reading goroutine stop between two requests.
func (c *conn) drain() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

func (c *conn) isDraining() bool {
	select {
	case <-c.server.draining:
		return true
	default:
		return false
	}
}

// isIdle is the reaper's look at the connection.
func (c *conn) isIdle() bool {
	if n := c.activity.Load(); n != c.seen || c.executing.Load() > 0 {
		c.seen, c.still = n, 0
		return false
	}
	c.still++
	return c.still >= idleTicks
}

// report counts and logs why the connection ended, once.
func (c *conn) report(err error) {
	const quiet, loud = slog.LevelDebug, slog.LevelWarn
	reason, level := "client", quiet
	switch {
	case err == nil:
	case errors.Is(err, wire.ErrFrameSize):
		c.server.cfg.Metrics.LimitHit(LimitRequestBytes)
		reason, level = "request_bytes", loud
	case errors.Is(err, wire.ErrMalformed):
		reason, level = "malformed", loud
	case errors.Is(err, wire.ErrUnsupported):
		reason, level = "unsupported", loud
	case isNetwork(err):
		reason = "network"
	default:
		reason, level = "error", loud
	}
	if !c.reason.CompareAndSwap(nil, &reason) {
		if r := *c.reason.Load(); r != "idle" {
			return
		}
		reason, level = "idle", quiet
	}
	c.server.cfg.Metrics.closed.WithLabelValues(reason).Inc()
	attrs := []any{"listener", c.info.Listener, "client", c.info.Remote, "reason", reason, "error", err}
	if level == loud {
		switch suppressed, ok := c.server.warnings.admit(reason, time.Now()); {
		case !ok:
			level = quiet
		case suppressed > 0:
			attrs = append(attrs, "suppressed", suppressed)
		}
	}
	c.server.cfg.Logger.Log(context.Background(), level, "connection closed", attrs...)
}

func isDeadline(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

func isNetwork(err error) bool {
	var ne net.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.As(err, &ne)
}
