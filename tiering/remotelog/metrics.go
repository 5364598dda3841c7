package remotelog

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

type counts struct {
	reads, readBytes, readErrors atomic.Int64
	opens, badObjects            atomic.Int64
	sequential, aheadChunks      atomic.Int64
	aheadDenied                  atomic.Int64
}

// Stats is a snapshot of the counters.
type Stats struct {
	Reads, ReadBytes, ReadErrors int64
	// Opens counts ranges asked of the store: GETs, retries apart.
	Opens      int64
	BadObjects int64
	// SequentialReads went on where another had ended.
	SequentialReads int64
	// AheadChunks were asked for ahead of a reader, AheadDenied found no room.
	AheadChunks, AheadDenied int64
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	c := &l.counts
	return Stats{
		Reads: c.reads.Load(), ReadBytes: c.readBytes.Load(), ReadErrors: c.readErrors.Load(),
		Opens: c.opens.Load(), BadObjects: c.badObjects.Load(), SequentialReads: c.sequential.Load(),
		AheadChunks: c.aheadChunks.Load(), AheadDenied: c.aheadDenied.Load(),
	}
}

// Collectors are the metrics, to be registered by whoever owns the registry.
func (l *Log) Collectors() []prometheus.Collector {
	counter := func(name, help string, v *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(v.Load()) })
	}
	c := &l.counts
	return []prometheus.Collector{
		counter("strandline_remote_reads_total", "Reads of a partition's remote part.", &c.reads),
		counter("strandline_remote_read_bytes_total", "Bytes of record batches returned from the remote part.", &c.readBytes),
		counter("strandline_remote_read_errors_total", "Reads of the remote part that failed.", &c.readErrors),
		counter("strandline_remote_bad_objects_total", "Times that a remote object was found damaged or missing.", &c.badObjects),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "strandline_remote_bad_objects", Help: "Remote objects that were found damaged or missing and have not been read well since.",
		}, func() float64 { return float64(len(l.BadObjects())) }),
		counter("strandline_remote_read_ahead_chunks_total", "Chunks asked for ahead of sequential readers.", &c.aheadChunks),
		counter("strandline_remote_read_ahead_denied_total", "Chunks not read ahead for want of room.", &c.aheadDenied),
	}
}
