package serve

import (
	"context"
	"path"

	"github.com/prometheus/client_golang/prometheus"

	"strandline/broker/keyindex"
)

// keyIndexName is the folder in metadata.log.dir of the key index.
const keyIndexName = "keyindex"

// openKeyIndex opens the key index of compaction. It is a view of the logs: what
// is wrong with it is no reason not to start.
func (n *Node) openKeyIndex(context.Context) (err error) {
	n.keyIndex, err = keyindex.Open(keyindex.Config{
		FS: n.ballast, Dir: path.Join(n.cfg.Broker.MetadataLogDir, keyIndexName), Logger: n.cfg.Logger, Fatal: n.cfg.Failed,
	})
	if err != nil {
		return &ExitError{Code: ExitDirectory, Err: err}
	}
	n.onClose("key index", func(context.Context) error { return n.keyIndex.Close() })
	return nil
}

var (
	compactionPasses   = prometheus.NewDesc("strandline_compaction_passes_total", "Compaction passes over a partition.", nil, nil)
	compactionFailures = prometheus.NewDesc("strandline_compaction_failures_total", "Compaction passes that failed for good: the partition is not compacted any more.", nil, nil)
	compactionRecords  = prometheus.NewDesc("strandline_compaction_records_removed_total", "Records removed by compaction.", nil, nil)
	compactionRead     = prometheus.NewDesc("strandline_compaction_read_bytes_total", "Bytes of logs read by compaction.", nil, nil)
	compactionWritten  = prometheus.NewDesc("strandline_compaction_written_bytes_total", "Bytes of logs written by compaction.", nil, nil)
	compactionFreed    = prometheus.NewDesc("strandline_compaction_reclaimed_bytes_total", "Bytes by which compaction made logs smaller.", nil, nil)
	compactionRunning  = prometheus.NewDesc("strandline_compaction_running", "Partitions that are being compacted.", nil, nil)
	compactionStuck    = prometheus.NewDesc("strandline_compaction_uncleanable_partitions", "Partitions that are not compacted any more because a pass failed.", nil, nil)
	compactionRatio    = prometheus.NewDesc("strandline_compaction_max_dirty_ratio", "The highest share of a compacted partition's sealed bytes that is not compacted, 0 to 1.", nil, nil)
	keyIndexDisk       = prometheus.NewDesc("strandline_key_index_disk_bytes", "Bytes on disk of the key index of all compacted partitions together.", nil, nil)
)

// compactionCollector reads what compaction counts for itself.
type compactionCollector struct{ n *Node }

func (compactionCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		compactionPasses, compactionFailures, compactionRecords, compactionRead, compactionWritten, compactionFreed,
		compactionRunning, compactionStuck, compactionRatio, keyIndexDisk,
	} {
		ch <- d
	}
}

func (c compactionCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(keyIndexDisk, prometheus.GaugeValue, float64(c.n.keyIndex.DiskBytes()))
	s := c.n.replicas.CompactionStats()
	for d, v := range map[*prometheus.Desc]int64{
		compactionPasses: s.Passes, compactionFailures: s.Failures, compactionRecords: s.RecordsRemoved, compactionRead: s.BytesRead,
		compactionWritten: s.BytesWritten, compactionFreed: s.BytesReclaimed,
	} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	ch <- prometheus.MustNewConstMetric(compactionRunning, prometheus.GaugeValue, float64(s.Running))
	ch <- prometheus.MustNewConstMetric(compactionStuck, prometheus.GaugeValue, float64(s.Uncleanable))
	ch <- prometheus.MustNewConstMetric(compactionRatio, prometheus.GaugeValue, s.MaxDirtyRatio)
}
