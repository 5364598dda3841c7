package admin

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg Config) string {
	t.Helper()
	s := New(cfg)
	address, err := s.Listen("http://localhost:0")
	require.NoError(t, err)
	require.False(t, strings.HasSuffix(address, ":0"))
	s.Serve()
	s.Serve()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		require.NoError(t, s.Close(context.Background()))
		require.NoError(t, s.Close(context.Background()))
	})
	return address
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url) //nolint:noctx // a test
	require.NoError(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(b)
}

func TestPaths(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "strandline_test_total", Help: "x"}))
	ready := Readiness{Reasons: []string{"log recovery"}, Tier: "ok"}
	a := start(t, Config{Ready: func() Readiness { return ready }, Metrics: reg, Handlers: map[string]http.Handler{
		"/tier/status": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, 200, map[string]int{"a": 1}) }),
	}})
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/livez":                {200, "ok"},
		"/readyz":               {503, `{"ready":false,"reasons":["log recovery"],"tier":"ok"}`},
		"/metrics":              {200, "strandline_test_total 0"},
		"/tier/status":          {200, `{"a":1}`},
		"/debug/pprof/":         {200, "goroutine"},
		"/debug/pprof/cmdline":  {200, ""},
		"/debug/pprof/heap":     {200, ""},
		"/nope":                 {404, ""},
		"/debug/pprof/nonsense": {404, ""},
	} {
		status, body := get(t, a+path)
		require.Equal(t, want.status, status, path)
		require.Contains(t, body, want.body, path)
	}
	ready = Readiness{Ready: true, Tier: "degraded"}
	status, body := get(t, a+"/readyz")
	require.Equal(t, 200, status)
	require.Equal(t, `{"ready":true,"reasons":[],"tier":"degraded"}`+"\n", body)
	r, err := http.Post(a+"/livez", "text/plain", nil) //nolint:noctx // a test
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, 405, r.StatusCode)
}

func TestNotReadyBeforeAnybodySaysSo(t *testing.T) {
	a := start(t, Config{})
	status, _ := get(t, a+"/readyz")
	require.Equal(t, 503, status)
	status, _ = get(t, a+"/metrics")
	require.Equal(t, 200, status)
}

func TestRequestsAreBounded(t *testing.T) {
	entered, leave := make(chan struct{}, MaxConnections), make(chan struct{})
	a := start(t, Config{Handlers: map[string]http.Handler{"/slow": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	})}})
	done := make(chan struct{})
	for range MaxConnections {
		go func() {
			if r, err := http.Get(a + "/slow"); err == nil { //nolint:noctx // a test
				_ = r.Body.Close()
			}
			done <- struct{}{}
		}()
	}
	for range MaxConnections {
		<-entered
	}
	status, _ := get(t, a+"/metrics")
	require.Equal(t, 503, status)
	status, _ = get(t, a+"/livez")
	require.Equal(t, 200, status)
	close(leave)
	for range MaxConnections {
		<-done
	}
	status, _ = get(t, a+"/metrics")
	require.Equal(t, 200, status)
}

func TestAddresses(t *testing.T) {
	s := New(Config{})
	for _, bad := range []string{"", "localhost:1", "https://localhost:1", "http://localhost", "http://localhost:1/x", "http://a b:1", "http://localhost:x"} {
		_, err := s.Listen(bad)
		require.ErrorIs(t, err, ErrAddress, bad)
	}
	first, err := s.Listen("http://127.0.0.1:0")
	require.NoError(t, err)
	_, err = s.Listen(first)
	require.ErrorIs(t, err, ErrListen)
	require.NoError(t, s.Close(context.Background()), "without having served")
}
