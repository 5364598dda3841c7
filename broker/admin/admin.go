package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Errors of Listen.
var (
	ErrListen  = errors.New("cannot listen")
	ErrAddress = errors.New("not an admin listener: want http://HOST:PORT")
)

// MaxConnections bounds the requests that are answered at once.
const MaxConnections = 64

// Readiness is what /readyz says.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"` // why not; never null
	Tier    string   `json:"tier"`    // ok, degraded, off
}

// Config configures a Server.
type Config struct {
	// Ready answers /readyz; it must not block.
	Ready func() Readiness
	// Metrics is what /metrics shows; nil: nothing.
	Metrics prometheus.Gatherer
	// Handlers are further paths, e.g. "/tier/status".
	Handlers map[string]http.Handler
	Logger   *slog.Logger
}

// Server serves the admin paths.
type Server struct {
	http  *http.Server
	log   *slog.Logger
	slots chan struct{}

	mu        sync.Mutex
	listeners []net.Listener
	serving   bool
	wg        sync.WaitGroup
}

// New returns a server that listens nowhere yet.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{log: cfg.Logger, slots: make(chan struct{}, MaxConnections)}
	s.http = &http.Server{
		Handler:           s.limit(routes(cfg)),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return s
}

func routes(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := Readiness{Reasons: []string{"starting"}}
		if cfg.Ready != nil {
			r = cfg.Ready()
		}
		if r.Reasons == nil {
			r.Reasons = []string{}
		}
		status := http.StatusOK
		if !r.Ready {
			status = http.StatusServiceUnavailable
		}
		WriteJSON(w, status, r)
	})
	gatherer := cfg.Metrics
	if gatherer == nil {
		gatherer = prometheus.NewRegistry()
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelError), ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	for path, h := range cfg.Handlers {
		mux.Handle("GET "+path, h)
	}
	return mux
}

// WriteJSON answers with a value as JSON.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// limit answers 503 to what comes while MaxConnections requests are under way,
// but for probes, which cost nothing.
func (s *Server) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
		}
	})
}

// Listen binds the address of a URL such as http://localhost:9644 and returns
// the URL with the bound port. The name localhost is bound on both loopback
// addresses.
func (s *Server) Listen(address string) (string, error) {
	const tries = 16
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || u.Port() == "" || u.Path != "" && u.Path != "/" {
		return "", fmt.Errorf("%w: %q", ErrAddress, address)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return "", fmt.Errorf("%w: %q", ErrAddress, address)
	}
	hosts := []string{u.Hostname()}
	if u.Hostname() == "localhost" {
		hosts = []string{"127.0.0.1", "::1"}
	}
	for try := 1; ; try++ {
		bound, got, err := bind(hosts, port)
		if err == nil {
			s.mu.Lock()
			s.listeners = append(s.listeners, bound...)
			s.mu.Unlock()
			return "http://" + net.JoinHostPort(u.Hostname(), strconv.Itoa(got)), nil
		}
		if port != 0 || try == tries {
			return "", fmt.Errorf("%w on %s: %w", ErrListen, address, err)
		}
	}
}

// bind binds every host on one port; a second address family that the machine
// does not have is left out.
func bind(hosts []string, port int) (bound []net.Listener, got int, err error) {
	for i, h := range hosts {
		l, err := net.Listen("tcp", net.JoinHostPort(h, strconv.Itoa(port)))
		if err != nil {
			if i > 0 && !errors.Is(err, syscall.EADDRINUSE) {
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

// Serve starts to answer. It returns at once.
func (s *Server) Serve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving {
		return
	}
	s.serving = true
	for _, l := range s.listeners {
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			if err := s.http.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.log.Error("admin listener failed", "address", l.Addr().String(), "error", err)
			}
		}()
	}
}

// Close lets requests finish until ctx ends, then cuts them. It may be called
// more than once.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	s.mu.Lock()
	for _, l := range s.listeners {
		_ = l.Close() // those that never served
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}
