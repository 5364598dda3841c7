package kit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Promtool runs promtool.
func Promtool(t testing.TB, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return run(stdin, prometheusProgram(t, "promtool"), args...)
}

func prometheusProgram(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(installed(t, "prometheus", ""), "usr", "bin", name)
}

// Prometheus is a running Prometheus server.
type Prometheus struct{ url string }

// StartPrometheus starts a Prometheus that scrapes a target (host:port) several
// times a second.
func StartPrometheus(t testing.TB, target string) *Prometheus {
	t.Helper()
	program, dir, addr := prometheusProgram(t, "prometheus"), t.TempDir(), freeAddr(t)
	file := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("scrape_configs:\n- job_name: strandline\n  scrape_interval: 250ms\n  scrape_timeout: 250ms\n  static_configs:\n  - targets: [%q]\n", target)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	if err := StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p := &Prometheus{url: "http://" + addr}
	Eventually(t, 30*time.Second, "Prometheus is ready", func() bool {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// Query evaluates an expression now and returns the values of its series.
func (p *Prometheus) Query(expr string) ([]float64, error) {
	resp, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	var out []float64
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
