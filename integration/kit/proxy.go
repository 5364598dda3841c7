package kit

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands between a server and its object store and makes it misbehave.
// The Host header passes through, so that request signatures stay valid.
type Proxy struct {
	Addr string

	mu    sync.Mutex
	fault func(*http.Request) Fault
	// ranges are the Range headers of the GETs for segment objects.
	ranges     []string
	gets, puts atomic.Int64 // requests that arrived
}

// Fault is what happens to one request.
type Fault struct {
	Status   int           // answer this status at once; 0: pass on
	Code     string        // of that answer; SlowDown where it is empty
	Delay    time.Duration // before anything else
	CutAfter int64         // cut the answer's body after so many bytes; 0: whole
	Drop     bool          // close the connection without an answer
	Flip     bool          // turn a bit of the answer's body around
	// LoseAnswer passes the request on and closes the connection instead of
	// answering: the store has done it, nobody is told.
	LoseAnswer bool
}

// StartProxy starts a proxy to target (host:port).
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: ln.Addr().String()}
	back := &url.URL{Scheme: "http", Host: target}
	rp := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(back)
			r.Out.Host = r.In.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(rp, w, r) })}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	return p
}

// Set installs a rule; nil passes everything on.
func (p *Proxy) Set(rule func(*http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = rule
}

// Gets returns how many GET requests for segment objects arrived.
func (p *Proxy) Gets() int64 { return p.gets.Load() }

// Ranges returns the byte ranges of those requests, in order.
func (p *Proxy) Ranges() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ranges)
}

// Puts returns how many PUT and POST requests arrived.
func (p *Proxy) Puts() int64 { return p.puts.Load() }

func (p *Proxy) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		if strings.HasSuffix(r.URL.Path, ".seg") {
			p.gets.Add(1)
			p.mu.Lock()
			p.ranges = append(p.ranges, r.Header.Get("Range"))
			p.mu.Unlock()
		}
	case http.MethodPut, http.MethodPost:
		p.puts.Add(1)
	}
	p.mu.Lock()
	rule := p.fault
	p.mu.Unlock()
	if rule == nil {
		next.ServeHTTP(w, r)
		return
	}
	f := rule(r)
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.Status != 0:
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(f.Status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>Not now.</Message></Error>", cmp.Or(f.Code, "SlowDown"))
	case f.LoseAnswer:
		next.ServeHTTP(&lostWriter{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	case f.Flip:
		next.ServeHTTP(&flipWriter{ResponseWriter: w}, r)
	case f.CutAfter > 0:
		next.ServeHTTP(&cutWriter{ResponseWriter: w, left: f.CutAfter}, r)
	default:
		next.ServeHTTP(w, r)
	}
}

// lostWriter takes an answer that never arrives.
type lostWriter struct{ header http.Header }

func (l *lostWriter) Header() http.Header         { return l.header }
func (l *lostWriter) Write(b []byte) (int, error) { return len(b), nil }
func (l *lostWriter) WriteHeader(int)             {}

// cutWriter aborts the connection once left bytes of the body were written.
type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (c *cutWriter) Write(b []byte) (int, error) {
	if int64(len(b)) > c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left])
		if f, ok := c.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	c.left -= int64(len(b))
	return c.ResponseWriter.Write(b)
}

// flipWriter damages the first piece of the body.
type flipWriter struct {
	http.ResponseWriter
	done bool
}

func (f *flipWriter) Write(b []byte) (int, error) {
	if !f.done && len(b) > 0 {
		f.done = true
		b = slices.Clone(b)
		b[len(b)/2] ^= 0x10
	}
	return f.ResponseWriter.Write(b)
}
