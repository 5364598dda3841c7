package serve

import (
	"context"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"strandline/broker/coordinator"
	"strandline/broker/groups"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// startGroups makes the coordinator of consumer groups. It is there before the
// replicas, of which it is told.
func (n *Node) startGroups(context.Context) error {
	n.groups = groups.New(groups.Config{Watch: n.meta, Groups: n.cfg.Broker.Groups, Now: n.cfg.Now, Logger: n.cfg.Logger})
	runtime := coordinator.New(coordinator.Config{
		Topic: groups.Topic, Views: n.views, Schema: groups.Schema{}, NewMachine: n.groups.Machine,
		Codec: recordbatch.Codec(n.cfg.Broker.OffsetsTopic.Codec), Now: n.cfg.Now, LimitHit: n.metrics.LimitHit, Logger: n.cfg.Logger,
	})
	n.coordinated[groups.Topic] = runtime
	n.groups.Start(runtime)
	n.onClose("consumer groups", n.closeGroups)
	n.registry.MustRegister(groupsCollector{n})
	return nil
}

// closeGroups answers whoever waits for a group, and ends its coordinator. It may
// be called more than once.
func (n *Node) closeGroups(context.Context) error {
	return errors.Join(n.groups.Close(), n.coordinated[groups.Topic].Close())
}

var (
	groupCount = prometheus.NewDesc("strandline_groups",
		"Consumer groups that this broker coordinates, by type and state. Those without members are counted every offsets.retention.check.interval.ms.", []string{"type", "state"}, nil)
	groupOffsets = prometheus.NewDesc("strandline_group_offsets",
		"Committed offsets of the groups that this broker coordinates, counted every offsets.retention.check.interval.ms.", nil, nil)
	groupCommits = prometheus.NewDesc("strandline_group_offset_commits_total", "Offsets that were committed.", nil, nil)
	groupExpired = prometheus.NewDesc("strandline_group_offsets_expired_total",
		"Committed offsets that were dropped because they had expired or their topic was deleted.", nil, nil)
	groupRebalances = prometheus.NewDesc("strandline_group_rebalances_total",
		"Rebalances of classic groups, and new target assignments of consumer groups.", []string{"type"}, nil)
)

// groupsCollector reads what the groups count for themselves.
type groupsCollector struct{ n *Node }

func (groupsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{groupCount, groupOffsets, groupCommits, groupExpired, groupRebalances} {
		ch <- d
	}
}

func (c groupsCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.n.groups.Stats()
	for _, g := range s.Groups {
		ch <- prometheus.MustNewConstMetric(groupCount, prometheus.GaugeValue, float64(g.Count), string(g.Type), string(g.State))
	}
	ch <- prometheus.MustNewConstMetric(groupOffsets, prometheus.GaugeValue, float64(s.Offsets))
	ch <- prometheus.MustNewConstMetric(groupCommits, prometheus.CounterValue, float64(s.Commits))
	ch <- prometheus.MustNewConstMetric(groupExpired, prometheus.CounterValue, float64(s.Expired))
	ch <- prometheus.MustNewConstMetric(groupRebalances, prometheus.CounterValue, float64(s.ClassicRebalances), "classic")
	ch <- prometheus.MustNewConstMetric(groupRebalances, prometheus.CounterValue, float64(s.ConsumerAssignments), "consumer")
}

var groupLag = prometheus.NewDesc("strandline_group_lag",
	"Records of a partition that a group has not committed, where this broker coordinates the group and leads the partition. "+
		"At most metrics.partition.series.max series, groups with members first.", []string{"group", "topic", "partition"}, nil)

// lagPatience bounds how long a scrape looks for lags.
const lagPatience = 5 * time.Second

// limitSeries is the bound on series per partition.
const limitSeries = "metrics.partition.series.max"

// lagCollector compares what groups have committed with the ends of the logs here.
type lagCollector struct{ n *Node }

func (lagCollector) Describe(ch chan<- *prometheus.Desc) { ch <- groupLag }

func (c lagCollector) Collect(ch chan<- prometheus.Metric) {
	limit := int(c.n.cfg.Broker.PartitionSeriesMax)
	if limit == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lagPatience)
	defer cancel()
	offsets, more := c.n.groups.Offsets(ctx, limit)
	if more {
		c.n.metrics.LimitHit(limitSeries)
	}
	img := c.n.meta.Image()
	for _, o := range offsets {
		topic, ok := img.Topic(o.Topic)
		if !ok || !o.TopicID.IsZero() && o.TopicID != topic.ID || !utf8.ValidString(o.Group) {
			continue // deleted, or nothing that a label can be
		}
		p, err := c.n.replicas.Get(cluster.TopicPartition{Topic: topic.ID, Partition: o.Partition})
		if err != nil || !p.LogState().Leading {
			continue
		}
		lag := max(0, p.HighWatermark()-o.Offset)
		ch <- prometheus.MustNewConstMetric(groupLag, prometheus.GaugeValue, float64(lag), o.Group, o.Topic, strconv.Itoa(int(o.Partition)))
	}
}
