package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/broker/api"
	"strandline/broker/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a Handler that answers as its test says.
type script struct {
	mu      sync.Mutex
	started []int32
	serve   func(q *wire.Request) (deferred api.Deferred, silent bool, err error)
	waiting chan int32 // receives each started request, where set
}

func (s *script) Serve(_ context.Context, _ *api.Conn, q *wire.Request, out *wire.Out) (api.Deferred, error) {
	s.mu.Lock()
	s.started = append(s.started, q.CorrelationID)
	s.mu.Unlock()
	if s.waiting != nil {
		s.waiting <- q.CorrelationID
	}
	if s.serve != nil {
		if d, silent, err := s.serve(q); d != nil || silent || err != nil {
			return d, err
		}
	}
	answer(out, q.CorrelationID)
	return nil, nil
}

func (s *script) startedNow() []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int32(nil), s.started...)
}

func answer(out *wire.Out, correlation int32) {
	out.Begin(correlation, false)
	out.Buf = append(out.Buf, "answer"...)
	out.End()
}

// later is a Deferred that its test completes.
type later struct {
	correlation int32
	ready       chan struct{}
	abandoned   chan struct{}
	err         error
}

func newLater(q *wire.Request) *later {
	return &later{correlation: q.CorrelationID, ready: make(chan struct{}), abandoned: make(chan struct{})}
}

func (l *later) Complete(ctx context.Context, out *wire.Out) error {
	select {
	case <-l.ready:
	case <-ctx.Done():
		close(l.abandoned)
		return ctx.Err()
	}
	if l.err == nil {
		answer(out, l.correlation)
	}
	return l.err
}

func (l *later) Abandon() { close(l.abandoned) }

func request(key int16, correlation int32) []byte {
	b := []byte{0, 0, 0, 10}
	api, _ := wire.Lookup(key)
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(api.Min))
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	return append(b, 0xff, 0xff)
}

func requests(key int16, correlations ...int32) []byte {
	var b []byte
	for _, c := range correlations {
		b = append(b, request(key, c)...)
	}
	return b
}

func readAnswer(t testing.TB, c net.Conn) int32 {
	t.Helper()
	var b [14]byte
	_, err := io.ReadFull(c, b[:])
	require.NoError(t, err)
	require.Equal(t, "answer", string(b[8:]))
	return int32(binary.BigEndian.Uint32(b[4:]))
}

func ended(t testing.TB, c net.Conn) {
	t.Helper()
	_, err := io.ReadAll(c)
	if err != nil {
		var ne net.Error
		require.ErrorAs(t, err, &ne)
		require.False(t, ne.Timeout())
	}
}

// memory is a listener of in-memory connections.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	wrap  func(net.Conn) net.Conn
}

func newMemory() *memory { return &memory{conns: make(chan net.Conn), done: make(chan struct{})} }

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { m.once.Do(func() { close(m.done) }); return nil }
func (m *memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (m *memory) dial() net.Conn {
	server, client := net.Pipe()
	if m.wrap != nil {
		server = m.wrap(server)
	}
	m.conns <- server
	return client
}

func startMemory(t testing.TB, cfg Config) (*Server, *memory) {
	t.Helper()
	s, m := New(cfg), newMemory()
	s.Add("TEST", m)
	require.NoError(t, s.Serve())
	return s, m
}

func closeNow(t testing.TB, s *Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, s.Close(ctx))
	require.NoError(t, s.Close(ctx))
}

func valueOf(t testing.TB, m prometheus.Metric) float64 {
	t.Helper()
	var d dto.Metric
	require.NoError(t, m.Write(&d))
	return d.GetCounter().GetValue() + d.GetGauge().GetValue()
}

func TestAnswersKeepTheOrderOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lates []*later
		h := &script{serve: func(q *wire.Request) (api.Deferred, bool, error) {
			if q.CorrelationID%2 == 0 {
				lates = append(lates, newLater(q))
				return lates[len(lates)-1], false, nil
			}
			return nil, q.CorrelationID == 5, nil // 5 expects no answer
		}}
		s, m := startMemory(t, Config{Handler: h})
		c := m.dial()
		_, err := c.Write(requests(wire.KeyProduce, 1, 2, 3, 4, 5, 6, 7))
		require.NoError(t, err)
		require.Equal(t, int32(1), readAnswer(t, c))
		synctest.Wait()
		require.Equal(t, []int32{1, 2, 3, 4, 5, 6, 7}, h.startedNow(), "an append that waits does not stop the next one")
		for _, i := range []int{2, 1} {
			close(lates[i].ready)
		}
		synctest.Wait()
		close(lates[0].ready)
		for _, want := range []int32{2, 3, 4, 6, 7} {
			require.Equal(t, want, readAnswer(t, c))
		}
		require.NoError(t, c.Close())
		closeNow(t, s)
	})
}

func TestOtherRequestsWaitForThoseBeforeThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lates := map[int32]*later{}
		h := &script{serve: func(q *wire.Request) (api.Deferred, bool, error) {
			if q.Key == wire.KeyMetadata {
				return nil, false, nil
			}
			lates[q.CorrelationID] = newLater(q)
			return lates[q.CorrelationID], false, nil
		}}
		s, m := startMemory(t, Config{Handler: h})
		c := m.dial()
		go func() {
			_, _ = c.Write(append(append(requests(wire.KeyFetch, 1), requests(wire.KeyProduce, 2)...),
				append(requests(wire.KeyFetch, 3), requests(wire.KeyMetadata, 4)...)...))
		}()
		synctest.Wait()
		require.Equal(t, []int32{1, 2}, h.startedNow(), "a second fetch waits for the first, a produce does not")
		close(lates[1].ready)
		require.Equal(t, int32(1), readAnswer(t, c))
		synctest.Wait()
		require.Equal(t, []int32{1, 2, 3}, h.startedNow())
		close(lates[3].ready)
		synctest.Wait()
		require.Equal(t, []int32{1, 2, 3}, h.startedNow(), "the produce is not answered yet")
		close(lates[2].ready)
		require.Equal(t, int32(2), readAnswer(t, c))
		require.Equal(t, int32(3), readAnswer(t, c))
		require.Equal(t, int32(4), readAnswer(t, c))
		require.NoError(t, c.Close())
		closeNow(t, s)
	})
}

// counted counts the writes of a connection.
type counted struct {
	net.Conn
	writes chan int
}

func (c counted) Write(b []byte) (int, error) {
	c.writes <- len(b)
	return c.Conn.Write(b)
}

func TestAnswersToBufferedRequestsAreOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := make(chan int, 100)
		s, m := startMemory(t, Config{Handler: &script{}})
		m.wrap = func(c net.Conn) net.Conn { return counted{c, writes} }
		c := m.dial()
		_, err := c.Write(requests(wire.KeyProduce, 1, 2, 3, 4, 5))
		require.NoError(t, err)
		for i := int32(1); i <= 5; i++ {
			require.Equal(t, i, readAnswer(t, c))
		}
		require.Len(t, writes, 1)
		require.NoError(t, c.Close())
		closeNow(t, s)
	})
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		metrics := NewMetrics(reg)
		var lates []*later
		h := &script{serve: func(q *wire.Request) (api.Deferred, bool, error) {
			lates = append(lates, newLater(q))
			return lates[len(lates)-1], false, nil
		}}
		s, m := startMemory(t, Config{Handler: h, MaxInFlight: 3, Metrics: metrics})
		c := m.dial()
		go func() { _, _ = c.Write(requests(wire.KeyProduce, 1, 2, 3, 4, 5)) }()
		synctest.Wait()
		require.Len(t, h.startedNow(), 3)
		close(lates[0].ready)
		require.Equal(t, int32(1), readAnswer(t, c))
		synctest.Wait()
		require.Len(t, h.startedNow(), 4)
		require.Equal(t, 2.0, valueOf(t, metrics.limits.WithLabelValues(LimitInFlight)))
		require.NoError(t, c.Close())
		closeNow(t, s)
		for _, l := range lates[1:] {
			<-l.abandoned
		}
	})
}

func TestBytesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &script{serve: func(q *wire.Request) (api.Deferred, bool, error) { return newLater(q), false, nil }}
		s, m := startMemory(t, Config{Handler: h, MaxInFlightBytes: 15})
		c := m.dial()
		go func() { _, _ = c.Write(requests(wire.KeyProduce, 1, 2, 3, 4, 5)) }()
		synctest.Wait()
		require.Len(t, h.startedNow(), 2)
		require.NoError(t, c.Close())
		closeNow(t, s)
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := startMemory(t, Config{Handler: &script{}, IdleMax: time.Minute})
		start := time.Now()
		c := m.dial()
		<-time.After(50 * time.Second) // of the fake clock
		_, err := c.Write(requests(wire.KeyMetadata, 1))
		require.NoError(t, err)
		require.Equal(t, int32(1), readAnswer(t, c))
		ended(t, c)
		require.InDelta(t, 110, time.Since(start).Seconds(), 16)
		closeNow(t, s)
	})
}

func TestAClientThatDoesNotReadIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wait := range []bool{false, true} {
			h := &script{serve: func(q *wire.Request) (api.Deferred, bool, error) {
				l := newLater(q)
				close(l.ready)
				if wait {
					return l, false, nil
				}
				return nil, false, nil
			}}
			s, m := startMemory(t, Config{Handler: h, IdleMax: time.Minute})
			start := time.Now()
			c := m.dial()
			_, err := c.Write(requests(wire.KeyProduce, 1, 2, 3))
			require.NoError(t, err)
			_, err = io.ReadFull(c, make([]byte, 3))
			require.NoError(t, err)
			for err == nil {
				_, err = c.Write(requests(wire.KeyProduce, 4))
			}
			require.InDelta(t, 60, time.Since(start).Seconds(), 16)
			closeNow(t, s)
		}
	})
}

func TestARequestThatIsWorkedOnIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *later
		h := &script{serve: func(q *wire.Request) (api.Deferred, bool, error) {
			l = newLater(q)
			return l, false, nil
		}}
		s, m := startMemory(t, Config{Handler: h, IdleMax: time.Minute})
		c := m.dial()
		_, err := c.Write(requests(wire.KeyFetch, 1))
		require.NoError(t, err)
		<-time.After(time.Hour) // of the fake clock
		synctest.Wait()
		close(l.ready)
		require.Equal(t, int32(1), readAnswer(t, c))
		require.NoError(t, c.Close())
		closeNow(t, s)
	})
}

func TestAStopAnswersWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *later
		h := &script{serve: func(q *wire.Request) (api.Deferred, bool, error) {
			l = newLater(q)
			return l, false, nil
		}}
		s, m := startMemory(t, Config{Handler: h})
		idle, busy := m.dial(), m.dial()
		_, err := busy.Write(requests(wire.KeyProduce, 1))
		require.NoError(t, err)
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- s.Close(context.Background()) }()
		ended(t, idle)
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("closed with a request in flight")
		default:
		}
		close(l.ready)
		require.Equal(t, int32(1), readAnswer(t, busy))
		ended(t, busy)
		require.NoError(t, <-closed)
		require.ErrorIs(t, s.Serve(), ErrClosed)
	})
}

func TestAStopCutsWhatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *later
		h := &script{serve: func(q *wire.Request) (api.Deferred, bool, error) {
			l = newLater(q)
			return l, false, nil
		}}
		s, m := startMemory(t, Config{Handler: h})
		c := m.dial()
		_, err := c.Write(requests(wire.KeyProduce, 1))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		start := time.Now()
		require.NoError(t, s.Close(ctx))
		require.Equal(t, 3*time.Second, time.Since(start))
		<-l.abandoned
		ended(t, c)
	})
}

func TestAClientThatLeavesEndsItsLongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *later
		h := &script{serve: func(q *wire.Request) (api.Deferred, bool, error) {
			l = newLater(q)
			return l, false, nil
		}}
		s, m := startMemory(t, Config{Handler: h})
		c := m.dial()
		_, err := c.Write(requests(wire.KeyFetch, 1))
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, c.Close())
		<-l.abandoned
		closeNow(t, s)
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := NewMetrics(nil)
		s, m := startMemory(t, Config{Handler: &script{}, MaxConnections: 2, Metrics: metrics})
		a, b, c := m.dial(), m.dial(), m.dial()
		go func() { _, _ = c.Write(requests(wire.KeyMetadata, 9)) }()
		synctest.Wait()
		require.Equal(t, 2.0, valueOf(t, metrics.connections))
		require.Equal(t, 1.0, valueOf(t, metrics.limits.WithLabelValues(LimitConnections)))
		require.NoError(t, a.Close())
		require.Equal(t, int32(9), readAnswer(t, c), "served once there is room")
		require.NoError(t, b.Close())
		require.NoError(t, c.Close())
		closeNow(t, s)
	})
}

func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	s := New(Config{Handler: &script{}, MaxConnectionsPerIP: 1})
	port, err := s.Listen("TEST", "localhost", 0)
	require.NoError(t, err)
	require.NoError(t, s.Serve())
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String()
	a, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_, err = a.Write(requests(wire.KeyMetadata, 1))
	require.NoError(t, err)
	require.Equal(t, int32(1), readAnswer(t, a))
	b, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	ended(t, b)
	require.NoError(t, a.Close())
	closeNow(t, s)
}

func TestWhatCannotBeServedClosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := NewMetrics(prometheus.NewRegistry())
		h := &script{serve: func(q *wire.Request) (api.Deferred, bool, error) {
			switch q.CorrelationID {
			case 66:
				return nil, false, errors.New("refused")
			case 67:
				l := newLater(q)
				l.err = errors.New("refused later")
				close(l.ready)
				return l, false, nil
			}
			return nil, false, nil
		}}
		s, m := startMemory(t, Config{Handler: h, Metrics: metrics, MaxRequestBytes: 1000})
		for reason, b := range map[string][]byte{
			"request_bytes": {0xff, 0xff, 0xff, 0xff},
			"unsupported":   {0, 0, 0, 10, 0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff},
			"malformed":     {0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0, 99},
			"error":         request(wire.KeyProduce, 66),
		} {
			c := m.dial()
			_, err := c.Write(append(requests(wire.KeyProduce, 1), b...))
			require.NoError(t, err)
			ended(t, c)
			synctest.Wait()
			require.Equal(t, 1.0, valueOf(t, metrics.closed.WithLabelValues(reason)), reason)
		}
		c := m.dial()
		_, err := c.Write(requests(wire.KeyProduce, 67, 1, 2))
		require.NoError(t, err)
		ended(t, c)
		synctest.Wait()
		require.Equal(t, 2.0, valueOf(t, metrics.closed.WithLabelValues("error")))
		closeNow(t, s)
	})
}

// TestWarningsAreBounded: who sends what cannot be understood gets one line in a
// while, with the number of those that were left out.
func TestWarningsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		metrics := NewMetrics(prometheus.NewRegistry())
		s, m := startMemory(t, Config{Handler: &script{}, Metrics: metrics, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		malformed := func(n int) {
			for range n {
				c := m.dial()
				_, err := c.Write([]byte{0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0, 99})
				require.NoError(t, err)
				ended(t, c)
			}
			synctest.Wait()
		}
		malformed(50)
		require.Equal(t, 1, strings.Count(log.String(), "reason=malformed"), log.String())
		require.NotContains(t, log.String(), "suppressed")
		c := m.dial()
		_, err := c.Write([]byte{0, 0, 0, 10, 0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff})
		require.NoError(t, err)
		ended(t, c)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "reason=unsupported"), "another reason has its own")
		time.Sleep(warnEvery)
		malformed(3)
		require.Equal(t, 2, strings.Count(log.String(), "reason=malformed"), log.String())
		require.Equal(t, 1, strings.Count(log.String(), "suppressed=49"), log.String())
		require.Equal(t, 53.0, valueOf(t, metrics.closed.WithLabelValues("malformed")), "all are counted")
		closeNow(t, s)
	})
}

func TestAVersionFromTheFutureReachesTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := startMemory(t, Config{Handler: &script{}})
		c := m.dial()
		_, err := c.Write([]byte{0, 0, 0, 11, 0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff, 0})
		require.NoError(t, err)
		require.Equal(t, int32(7), readAnswer(t, c))
		require.NoError(t, c.Close())
		closeNow(t, s)
	})
}

func TestListenBindsBothLoopbacksAndSaysWhatIsInUse(t *testing.T) {
	s := New(Config{Handler: &script{}})
	port, err := s.Listen("TEST", "localhost", 0)
	require.NoError(t, err)
	require.NotZero(t, port)
	other := New(Config{Handler: &script{}})
	_, err = other.Listen("TEST", "localhost", port)
	require.ErrorIs(t, err, ErrListen)
	require.Contains(t, err.Error(), "address already in use")
	closeNow(t, s)
	closeNow(t, other)
}

func TestHalfClosedClientsGetTheirAnswers(t *testing.T) {
	s := New(Config{Handler: &script{}})
	port, err := s.Listen("TEST", "127.0.0.1", 0)
	require.NoError(t, err)
	require.NoError(t, s.Serve())
	c, err := net.Dial("tcp", (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String())
	require.NoError(t, err)
	_, err = c.Write(requests(wire.KeyProduce, 1, 2))
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	all, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, 2, bytes.Count(all, []byte("answer")))
	require.NoError(t, c.Close())
	closeNow(t, s)
}

func TestLimitsAreCountedTogetherWithOthers(t *testing.T) {
	reg := prometheus.NewRegistry()
	a := NewMetrics(reg)
	shared := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "strandline_limit_hits_total", Help: "How often a limit was hit, by limit.",
	}, []string{"limit"}))
	shared.WithLabelValues("other").Inc()
	a.LimitHit("other")
	require.Equal(t, 2.0, valueOf(t, shared.WithLabelValues("other")))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		require.Regexp(t, "^strandline_[a-z_]+$", f.GetName())
		require.NotEmpty(t, f.GetHelp())
		require.Equal(t, f.GetType() == dto.MetricType_COUNTER, strings.HasSuffix(f.GetName(), "_total"), f.GetName())
	}
}
