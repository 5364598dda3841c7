package serve

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/metadata/config"
)

// startNode runs a whole node in this process, with a store in memory.
func startNode(t *testing.T) *Node {
	t.Helper()
	dir := t.TempDir()
	b, _, err := config.ParseBroker(map[string]string{
		"log.dirs": filepath.Join(dir, "logs"), "metadata.log.dir": filepath.Join(dir, "metadata"),
		"remote.cache.dir": filepath.Join(dir, "cache"), "remote.store.url": "mem:",
		"listeners": "PLAINTEXT://127.0.0.1:0", "admin.listeners": "http://127.0.0.1:0",
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := Start(ctx, Config{Broker: b, Version: "test", Commit: "none"})
	require.NoError(t, err)
	t.Cleanup(func() {
		stop, stopped := context.WithTimeout(context.Background(), time.Minute)
		defer stopped()
		require.NoError(t, n.Close(stop))
	})
	return n
}

func TestMetricsFollowTheConventions(t *testing.T) {
	n := startNode(t)
	_, address, _ := strings.Cut(n.Listeners()[0], "://")
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.AllowAutoTopicCreation())
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr())

	families, err := n.registry.Gather()
	require.NoError(t, err)
	described, err := describeMetrics()
	require.NoError(t, err)
	known := map[string]metricDesc{}
	name := regexp.MustCompile(`^strandline_[a-z][a-z0-9_]*[a-z0-9]$`)
	for _, d := range described {
		require.Regexp(t, name, d.name)
		require.NotEmpty(t, d.help, d.name)
		require.Empty(t, known[d.name], "%s is described twice, with other labels or words", d.name)
		known[d.name] = d
	}
	ours := families[:0]
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "strandline_") {
			continue
		}
		require.Contains(t, known, f.GetName(), "not in docs/metrics.md")
		ours = append(ours, f)
	}
	require.Greater(t, len(ours), len(known)/2)
	problems, err := promlint.NewWithMetricFamilies(ours).Lint()
	require.NoError(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
