package serve

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"strandline/broker/coordinator"
	"strandline/broker/partition"
	"strandline/metadata/cluster"
)

// viewsName is the folder in metadata.log.dir of the coordinators' views.
const viewsName = "views"

// openViews opens the coordinators' views. They are a cache: what is wrong with
// them is no reason not to start.
func (n *Node) openViews(context.Context) (err error) {
	n.views, err = coordinator.OpenViews(coordinator.ViewsConfig{
		FS: n.ballast, Dir: path.Join(n.cfg.Broker.MetadataLogDir, viewsName), Logger: n.cfg.Logger, Fatal: n.cfg.Failed,
	})
	if err != nil {
		return &ExitError{Code: ExitDirectory, Err: err}
	}
	n.onClose("coordinators' views", func(context.Context) error { return n.views.Close() })
	img := n.meta.Image()
	err = n.views.Retain(func(tp cluster.TopicPartition) bool {
		_, _, ok := img.Partition(tp)
		return ok
	})
	if err != nil {
		n.cfg.Logger.Warn("views of deleted topics stay for now", "err", fmt.Errorf("%s: %w", viewsName, err))
	}
	n.registry.MustRegister(viewsCollector{n})
	return nil
}

// coordinated hands the replicas of internal topics to the runtimes that follow
// their logs, by topic. It is complete before replicas are opened.
type coordinated map[string]*coordinator.Runtime

// Hosted implements replicas.HostingListener, as does Unhosted.
func (c coordinated) Hosted(p *partition.Partition) {
	if r, ok := c[p.Topic()]; ok {
		r.Host(p)
	}
}

func (c coordinated) Unhosted(topic string, tp cluster.TopicPartition) {
	if r, ok := c[topic]; ok {
		r.Unhost(tp)
	}
}

// coordinatorsPatience bounds how long a start waits, before it says that the
// broker is ready, for coordinators that load: a view that is built again from a
// long log, or a log whose followers are away, may take any time.
const coordinatorsPatience = 30 * time.Second

// awaitCoordinators says whether a start that has served for a time need not wait
// for coordinators any longer, and logs why.
func (n *Node) awaitCoordinators(served time.Duration) bool {
	for topic, r := range n.coordinated {
		if _, loading, _ := r.Loaded(); len(loading) > 0 && served < coordinatorsPatience {
			return false
		} else if len(loading) > 0 {
			n.cfg.Logger.Warn("coordinators are still loading: the broker is ready without them, and their clients are told to wait",
				"topic", topic, "partitions", len(loading), "waited", served.Round(time.Millisecond))
		}
	}
	for topic, r := range n.coordinated {
		if loaded, _, failed := r.Loaded(); len(loaded)+len(failed) > 0 {
			n.cfg.Logger.Info("coordinators loaded", "topic", topic, "partitions", len(loaded), "failed", len(failed), "took", served.Round(time.Millisecond))
		}
	}
	return true
}

// coordinatorsReady is readiness as far as the start waits for coordinators.
func (n *Node) coordinatorsReady() (bool, []string) {
	if n.coordinates.Load() {
		return true, nil
	}
	var reasons []string
	for topic, r := range n.coordinated {
		if _, loading, _ := r.Loaded(); len(loading) > 0 {
			reasons = append(reasons, fmt.Sprintf("coordinators: %d partitions of %s are loading", len(loading), topic))
		}
	}
	return false, reasons
}

var (
	viewsDisk = prometheus.NewDesc("strandline_coordinator_views_disk_bytes", "Bytes on disk of the views of all coordinators together.", nil, nil)

	coordinatorPartitions = prometheus.NewDesc("strandline_coordinator_partitions",
		"Partitions of an internal topic by what this broker does with them: follow, load, or lead.", []string{"topic", "state"}, nil)
	coordinatorLag = prometheus.NewDesc("strandline_coordinator_view_lag_offsets",
		"Offsets that are decided in the logs of an internal topic and not yet in its views.", []string{"topic"}, nil)
	coordinatorRebuilt = prometheus.NewDesc("strandline_coordinator_views_rebuilt_total",
		"Views of an internal topic's partitions that were dropped and built again because their log said otherwise.", []string{"topic"}, nil)
)

// viewsCollector reads what the coordinators count for themselves.
type viewsCollector struct{ n *Node }

func (viewsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{viewsDisk, coordinatorPartitions, coordinatorLag, coordinatorRebuilt} {
		ch <- d
	}
}

func (c viewsCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(viewsDisk, prometheus.GaugeValue, float64(c.n.views.Stats().DiskBytes))
	for topic, r := range c.n.coordinated {
		s := r.Status()
		for state, count := range map[string]int{"follow": s.Partitions - s.Leading, "load": s.Loading, "lead": s.Leading - s.Loading} {
			ch <- prometheus.MustNewConstMetric(coordinatorPartitions, prometheus.GaugeValue, float64(count), topic, state)
		}
		ch <- prometheus.MustNewConstMetric(coordinatorLag, prometheus.GaugeValue, float64(s.Lag), topic)
		ch <- prometheus.MustNewConstMetric(coordinatorRebuilt, prometheus.CounterValue, float64(s.Rebuilt), topic)
	}
}
