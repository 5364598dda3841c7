package objstoretest

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Fault is what a Proxy does to a request instead of passing it on.
type Fault struct {
	// Status answers with this status and an S3 error body with Code.
	Status int
	Code   string
	// Drop closes the connection without an answer. With AfterEffect the
	// store has seen the request, and only the answer is lost.
	Drop, AfterEffect bool
	// CutBody closes the connection after so many bytes of the answer's body;
	// 0: it passes whole.
	CutBody int64
	// Hang holds the request until its client goes away.
	Hang bool
}

// Proxy stands between a driver and an S3 store.
type Proxy struct {
	// URL is where clients connect.
	URL string

	proxy *httputil.ReverseProxy
	mu    sync.Mutex
	fault func(*http.Request) *Fault
	seen  int
}

// NewProxy starts a proxy before target (a URL); the test's end stops it.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	require.NoError(t, err)
	p := &Proxy{}
	p.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Host = r.In.Host // it is signed
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:     nil,
	}
	s := httptest.NewServer(p)
	p.URL = s.URL
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return p
}

// SetFault sets what decides the fault of each request, nil for none; it runs
// one request at a time.
func (p *Proxy) SetFault(fault func(*http.Request) *Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// Requests is how many requests have arrived.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

func (p *Proxy) faultOf(r *http.Request) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	if p.fault == nil {
		return nil
	}
	return p.fault(r)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := p.faultOf(r)
	switch {
	case f == nil:
		p.proxy.ServeHTTP(w, r)
	case f.Hang:
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case f.Status != 0:
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(f.Status)
		if r.Method != http.MethodHead {
			_, _ = io.WriteString(w, "<Error><Code>"+f.Code+"</Code><Message>injected</Message></Error>")
		}
	case f.Drop:
		if f.AfterEffect {
			p.proxy.ServeHTTP(httptest.NewRecorder(), r)
		}
		hangUp(w)
	case f.CutBody > 0:
		p.proxy.ServeHTTP(&cutWriter{ResponseWriter: w, left: f.CutBody}, r)
		hangUp(w)
	default:
		p.proxy.ServeHTTP(w, r)
	}
}

// hangUp resets the client's connection.
func hangUp(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// cutWriter passes so many bytes of a body and aborts the connection at the next.
type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if int64(len(p)) <= c.left {
		c.left -= int64(len(p))
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}
