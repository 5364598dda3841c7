package kit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var build struct {
	sync.Once
	dir string
	err error
}

// Binary builds cmd/strandline with the named steps of directed kills compiled
// in, once a test process, and returns its path.
func Binary(t testing.TB) string {
	t.Helper()
	build.Do(func() {
		build.dir, build.err = os.MkdirTemp("", "strandline-bin-")
		if build.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-tags", "steps", "-o", filepath.Join(build.dir, "strandline"), "strandline/cmd/strandline")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return filepath.Join(build.dir, "strandline")
}

// RemoveBinary deletes what Binary and JavaClass built; call it at the end of
// TestMain.
func RemoveBinary() {
	removeClasses()
	if build.dir != "" {
		_ = os.RemoveAll(build.dir)
	}
}

// Server is a running `strandline server`.
type Server struct {
	Dir   string // holds logs, metadata, cache
	Addr  string // bootstrap address
	Admin string // admin URL
	Ready Ready

	t      testing.TB
	set    map[string]string
	env    []string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error
	logDir string
	log    string // file that holds standard error: it never lags behind the process
}

// Ready is the ready.file.
type Ready struct {
	NodeID    int      `json:"node.id"`
	ClusterID string   `json:"cluster.id"`
	Listeners []string `json:"listeners"`
	Admin     string   `json:"admin"`
	Tier      string   `json:"tier"`
	StartMS   float64  `json:"start_ms"`
}

// Start starts a server on fresh directories under a temporary folder and waits
// until it is ready. set overrides properties; a value of "-" leaves a default
// of the kit's out.
func Start(t testing.TB, set map[string]string) *Server {
	t.Helper()
	s := New(t, t.TempDir(), set)
	s.MustStart()
	return s
}

// New prepares a server on dir without starting it.
func New(t testing.TB, dir string, set map[string]string) *Server {
	t.Helper()
	all := map[string]string{
		"log.dirs":         filepath.Join(dir, "logs"),
		"metadata.log.dir": filepath.Join(dir, "metadata"),
		"remote.cache.dir": filepath.Join(dir, "cache"),
		"listeners":        "PLAINTEXT://127.0.0.1:0",
		"admin.listeners":  "http://127.0.0.1:0",
		"ready.file":       filepath.Join(dir, "ready.json"),
		"log.level":        "info",
	}
	for k, v := range set {
		if v == "-" {
			delete(all, k)
			continue
		}
		all[k] = v
	}
	s := &Server{Dir: dir, t: t, set: all, logDir: t.TempDir()}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() && s.log != "" {
			t.Logf("server log:\n%s", tail(s.Log(), 8000))
		}
	})
	return s
}

func tail(s string, n int) string {
	if len(s) > n {
		return "...\n" + s[len(s)-n:]
	}
	return s
}

// Set changes a property for the next start.
func (s *Server) Set(key, value string) { s.set[key] = value }

// Env adds environment variables for the next start.
func (s *Server) Env(kv ...string) { s.env = append(s.env, kv...) }

// Args returns the command line that Start would run.
func (s *Server) Args() []string {
	args := []string{"server"}
	for k, v := range s.set {
		args = append(args, "--set", k+"="+v)
	}
	return args
}

// MustStart starts the process and waits until it is ready.
func (s *Server) MustStart() {
	s.t.Helper()
	s.Spawn()
	if err := s.AwaitReady(30 * time.Second); err != nil {
		s.t.Fatalf("%v\nserver log:\n%s", err, tail(s.Log(), 8000))
	}
}

// Spawn starts the process without waiting.
func (s *Server) Spawn() {
	s.t.Helper()
	_ = os.Remove(s.set["ready.file"])
	s.cmd = exec.Command(Binary(s.t), s.Args()...)
	s.cmd.Env, s.cmd.Dir = append(os.Environ(), s.env...), s.Dir // the default tier lies under the working directory
	log, err := os.CreateTemp(s.logDir, "stderr-")
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.log = log.Name()
	s.cmd.Stderr = log
	if err := StartChild(s.cmd); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan struct{})
	s.exited = exited
	cmd := s.cmd
	go func() {
		s.err = cmd.Wait()
		close(exited)
	}()
}

// AwaitReady waits for the ready file, or the process's end.
func (s *Server) AwaitReady(limit time.Duration) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(s.set["ready.file"]); err == nil && len(b) > 0 {
			if err := json.Unmarshal(b, &s.Ready); err != nil {
				return fmt.Errorf("ready file: %w: %s", err, b)
			}
			if len(s.Ready.Listeners) == 0 {
				return fmt.Errorf("ready file names no listener: %s", b)
			}
			_, s.Addr, _ = strings.Cut(s.Ready.Listeners[0], "://")
			s.Admin = s.Ready.Admin
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("the server ended before it was ready: %w", s.err)
		case <-deadline.C:
			return fmt.Errorf("not ready after %s", limit)
		case <-tick.C:
		}
	}
}

// Log returns what the process wrote to standard error.
func (s *Server) Log() string {
	if s.log == "" {
		return ""
	}
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Pid returns the process id.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Signal sends a signal.
func (s *Server) Signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) }

// Kill ends the process with SIGKILL, if it runs, and waits.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// Exited is closed when the process has ended.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Stop ends the process with SIGTERM and returns its exit code.
func (s *Server) Stop() int {
	s.t.Helper()
	s.Signal(syscall.SIGTERM)
	return s.Wait(20 * time.Second)
}

// Wait waits for the process's end and returns its exit code.
func (s *Server) Wait(limit time.Duration) int {
	s.t.Helper()
	select {
	case <-s.exited:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		s.t.Fatalf("the server is still running after %s\n%s", limit, tail(s.Log(), 4000))
		return -1
	}
}

// Restart stops in order, or kills, and starts again.
func (s *Server) Restart(kill bool) {
	s.t.Helper()
	if kill {
		s.Kill()
	} else if code := s.Stop(); code != 0 {
		s.t.Fatalf("exit code %d after SIGTERM\n%s", code, tail(s.Log(), 4000))
	}
	s.MustStart()
}

// Get reads a page of the admin listener.
func (s *Server) Get(path string) (int, string) {
	s.t.Helper()
	resp, err := http.Get(s.Admin + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Metric returns the sum of a metric's series whose text contains all of the
// label fragments, e.g. Metric("strandline_remote_bytes_total", `verb="get"`).
func (s *Server) Metric(name string, labels ...string) float64 {
	s.t.Helper()
	_, page := s.Get("/metrics")
	sum := 0.0
lines:
	for line := range strings.SplitSeq(page, "\n") {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue lines
			}
		}
		var v float64
		if _, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &v); err == nil {
			sum += v
		}
	}
	return sum
}

// CLI runs a client command of the binary against this server and returns its
// standard output and error and its exit code.
func (s *Server) CLI(stdin string, args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	cmd := exec.Command(Binary(s.t), args...)
	cmd.Env = append(os.Environ(), "STRANDLINE_BOOTSTRAP="+s.Addr)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run()
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// Eventually polls until done returns true.
func Eventually(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
