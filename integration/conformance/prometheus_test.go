package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// promtool finds nothing to say about the metrics page of a broker that has
// worked with every part: records in and out, a tier, an error or two.
func TestMetricsAreCleanForPromtool(t *testing.T) {
	s := busy(t)
	code, page := s.Get("/metrics")
	require.Equal(t, 200, code)
	require.Contains(t, page, "strandline_build_info")
	out, errOut, exit := kit.Promtool(t, page, "check", "metrics")
	require.Zero(t, exit, "%s\n%s", out, errOut)
	require.Empty(t, strings.TrimSpace(out+errOut))

	// It can find something.
	_, errOut, exit = kit.Promtool(t, "# TYPE bad_name counter\nbad_name 1\n", "check", "metrics")
	require.NotZero(t, exit)
	require.Contains(t, errOut, "bad_name")
}

// busy is a broker that has taken, given out and uploaded records.
func busy(t *testing.T) *kit.Server {
	t.Helper()
	s := kit.Start(t, map[string]string{
		"remote.log.manager.task.interval.ms": "100", "log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100",
	})
	for _, args := range [][]string{
		{"topic", "create", "m", "--config", "segment.bytes=1200000", "--config", "remote.storage.enable=true"},
		{"produce", "m", "--partition", "0"},
		{"consume", "m", "--partition", "0", "--offset", "earliest", "--count", "10"},
	} {
		_, errOut, code := s.CLI(strings.Repeat(strings.Repeat("metric ", 100)+"\n", 6000), args...)
		require.Zero(t, code, errOut)
	}
	_, _, code := s.CLI("", "topic", "describe", "nowhere")
	require.NotZero(t, code)
	kit.Eventually(t, 20*time.Second, "something is uploaded", func() bool { return s.Metric("strandline_remote_bytes_total") > 0 })
	return s
}

// A Prometheus scrapes the broker, sees its counters rise, and can compute a
// quantile of the latency of an API.
func TestPrometheusScrapes(t *testing.T) {
	s := busy(t)
	p := kit.StartPrometheus(t, strings.TrimPrefix(s.Admin, "http://"))
	one := func(expr string) float64 {
		got, err := p.Query(expr)
		require.NoError(t, err)
		if len(got) != 1 {
			return -1
		}
		return got[0]
	}
	kit.Eventually(t, 20*time.Second, "it is scraped", func() bool { return one(`up{job="strandline"}`) == 1 })
	require.Equal(t, 1.0, one("strandline_build_info"))
	require.Greater(t, one("scrape_samples_scraped"), 100.0)
	require.Equal(t, one("scrape_samples_scraped"), one("scrape_samples_post_metric_relabeling"))
	require.Positive(t, one("sum(strandline_disk_free_bytes)"))
	sum := "sum(strandline_fetch_bytes_total)"
	before := one(sum)
	require.Positive(t, before)
	_, errOut, code := s.CLI("", "consume", "m", "--partition", "0", "--offset", "earliest", "--count", "4000")
	require.Zero(t, code, errOut)
	kit.Eventually(t, 20*time.Second, "the counter has risen", func() bool { return one(sum) > before })
	quantile := one(`histogram_quantile(0.99, sum by (le) (strandline_request_duration_seconds_bucket{api="Fetch"}))`)
	require.Positive(t, quantile)
	require.Less(t, quantile, 60.0)
	s.Kill()
	kit.Eventually(t, 20*time.Second, "it is told to be down", func() bool { return one(`up{job="strandline"}`) == 0 })
}
