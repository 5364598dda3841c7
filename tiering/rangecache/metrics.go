package rangecache

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

type counts struct {
	hits, misses, evictions, full atomic.Int64
	fillErrors, storageErrors     atomic.Int64
	bypasses                      atomic.Int64
	filled                        atomic.Int64
}

// Stats is a snapshot of the cache's figures.
type Stats struct {
	Bytes       int64 // on the disk, as charged
	LimitBytes  int64
	PinnedBytes int64 // of Bytes, what cannot be evicted now
	RangeCount  int64
	Hits        int64 // ranges asked for and found
	Misses      int64 // ranges asked for and brought in
	Evictions   int64
	// FullCount is how often a range found no room at once.
	FullCount     int64
	FillErrors    int64
	StorageErrors int64
	FilledBytes   int64
}

// Stats returns the figures.
func (c *Cache) Stats() Stats {
	s := Stats{
		LimitBytes:    c.cfg.LimitBytes,
		Hits:          c.counts.hits.Load(),
		Misses:        c.counts.misses.Load(),
		Evictions:     c.counts.evictions.Load(),
		FullCount:     c.counts.full.Load(),
		FillErrors:    c.counts.fillErrors.Load(),
		StorageErrors: c.counts.storageErrors.Load(),
		FilledBytes:   c.counts.filled.Load(),
	}
	c.mu.Lock()
	s.Bytes, s.PinnedBytes, s.RangeCount = c.charged, c.pinned, int64(len(c.entries))
	c.mu.Unlock()
	return s
}

// Collectors are the cache's metrics, to be registered by whoever owns the
// registry.
func (c *Cache) Collectors() []prometheus.Collector {
	gauge := func(name, help string, f func(Stats) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(f(c.Stats())) })
	}
	counter := func(name, help string, v *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(v.Load()) })
	}
	return []prometheus.Collector{
		gauge("strandline_cache_bytes", "Bytes of the remote cache directory.", func(s Stats) int64 { return s.Bytes }),
		gauge("strandline_cache_limit_bytes", "Limit of the remote cache directory in bytes.", func(s Stats) int64 { return s.LimitBytes }),
		gauge("strandline_cache_pinned_bytes", "Bytes of the remote cache that responses are using.", func(s Stats) int64 { return s.PinnedBytes }),
		counter("strandline_cache_hits_total", "Ranges of remote objects found in the cache.", &c.counts.hits),
		counter("strandline_cache_misses_total", "Ranges of remote objects that had to be fetched.", &c.counts.misses),
		counter("strandline_cache_evictions_total", "Ranges of remote objects evicted from the cache.", &c.counts.evictions),
		counter("strandline_cache_full_total", "Times that a range found no room in the cache at once.", &c.counts.full),
		counter("strandline_cache_fill_errors_total", "Fetches of ranges that failed.", &c.counts.fillErrors),
		counter("strandline_cache_bypasses_total", "Remote reads kept in memory because the cache could not hold them.", &c.counts.bypasses),
		counter("strandline_cache_storage_errors_total", "Failures of the cache's own disk.", &c.counts.storageErrors),
	}
}
