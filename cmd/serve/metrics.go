package serve

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"strandline/broker/api"
	"strandline/broker/server"
	"strandline/tiering/objstore"
)

func newRegistry(version, commit string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "strandline_build_info", Help: "1, with the version and commit of the binary.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit},
	})
	info.Set(1)
	r.MustRegister(info)
	return r
}

var (
	diskFree = prometheus.NewDesc("strandline_disk_free_bytes", "Free space of the file system that holds a directory, in bytes.", []string{"dir"}, nil)

	retentionSegments = prometheus.NewDesc("strandline_retention_segments_removed_total", "Local segments removed by retention.", nil, nil)
	retentionBytes    = prometheus.NewDesc("strandline_retention_bytes_removed_total", "Bytes of local segments removed by retention.", nil, nil)
	retentionFailures = prometheus.NewDesc("strandline_retention_failures_total", "Retention passes over a partition that failed.", nil, nil)
	futureSegments    = prometheus.NewDesc("strandline_future_timestamp_segments", "Segments whose largest timestamp lies in the future, which retention by time keeps.", nil, nil)
)

// fetchSessionCollectors read what the handlers keep for incremental fetches.
func (n *Node) fetchSessionCollectors() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "strandline_fetch_sessions", Help: "Fetch sessions that are kept."},
			func() float64 { return float64(n.handler.FetchSessions().Sessions) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "strandline_fetch_session_partitions", Help: "Partitions of all fetch sessions together."},
			func() float64 { return float64(n.handler.FetchSessions().Partitions) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "strandline_fetch_sessions_evicted_total", Help: "Fetch sessions that made room for others."},
			func() float64 { return float64(n.handler.FetchSessions().Evicted) }),
	}
}

// nodeCollector reads what the parts count for themselves.
type nodeCollector struct{ n *Node }

func (n *Node) diskCollector() prometheus.Collector { return nodeCollector{n} }

func (c nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{diskFree, retentionSegments, retentionBytes, retentionFailures, futureSegments} {
		ch <- d
	}
}

func (c nodeCollector) Collect(ch chan<- prometheus.Metric) {
	b := c.n.cfg.Broker
	seen := map[string]bool{}
	for _, dir := range append([]string{b.MetadataLogDir, b.Cache.Dir}, b.LogDirs...) {
		if u, err := c.n.cfg.FS.Usage(dir); err == nil && !seen[dir] {
			ch <- prometheus.MustNewConstMetric(diskFree, prometheus.GaugeValue, float64(u.FreeBytes), dir)
			seen[dir] = true
		}
	}
	s := c.n.replicas.Stats()
	ch <- prometheus.MustNewConstMetric(retentionSegments, prometheus.CounterValue, float64(s.SegmentsRemoved))
	ch <- prometheus.MustNewConstMetric(retentionBytes, prometheus.CounterValue, float64(s.BytesRemoved))
	ch <- prometheus.MustNewConstMetric(retentionFailures, prometheus.CounterValue, float64(s.RetentionFailures))
	ch <- prometheus.MustNewConstMetric(futureSegments, prometheus.GaugeValue, float64(s.FutureStamped))
}

type metricDesc struct{ name, labels, help string }

var descPattern = regexp.MustCompile(`fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)",(?: unit: "[^"]*",)? constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

var constLabel = regexp.MustCompile(`([a-zA-Z_]+)="`)

// collectorRecorder is a registerer that only remembers.
type collectorRecorder struct{ collectors []prometheus.Collector }

func (r *collectorRecorder) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return nil
}

func (r *collectorRecorder) MustRegister(cs ...prometheus.Collector) {
	r.collectors = append(r.collectors, cs...)
}
func (r *collectorRecorder) Unregister(prometheus.Collector) bool { return false }

// describeMetrics lists every metric of ours without starting anything.
func describeMetrics() ([]metricDesc, error) {
	r := &collectorRecorder{}
	server.NewMetrics(r)
	objstore.NewMetrics(r)
	api.NewConversions(r)
	r.MustRegister((&Node{}).fetchSessionCollectors()...)
	r.MustRegister(nodeCollector{}, viewsCollector{}, compactionCollector{}, groupsCollector{}, lagCollector{}, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "strandline_build_info", Help: "1, with the version and commit of the binary.", ConstLabels: prometheus.Labels{"version": "", "commit": ""},
	}))
	r.MustRegister(tierCollectors()...)
	var list []metricDesc
	for _, c := range r.collectors {
		ch := make(chan *prometheus.Desc, 64)
		go func() { c.Describe(ch); close(ch) }()
		for d := range ch {
			m := descPattern.FindStringSubmatch(d.String())
			if m == nil {
				return nil, fmt.Errorf("cannot read the description %s", d)
			}
			var labels []string
			for _, l := range constLabel.FindAllStringSubmatch(m[3], -1) {
				labels = append(labels, l[1])
			}
			if m[4] != "" {
				labels = append(labels, strings.Split(m[4], ",")...)
			}
			one := metricDesc{name: m[1], labels: strings.Join(labels, ", "), help: m[2]}
			if !slices.Contains(list, one) { // each value of a constant label has its own
				list = append(list, one)
			}
		}
	}
	return list, nil
}
