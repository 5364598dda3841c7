package archive

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"strandline/metadata/cluster"
)

type counts struct{ segments, bytes, failures atomic.Int64 }

// StoreStatus is what is known of the object store.
type StoreStatus struct {
	// OK is false until the store has answered, and while it does not.
	OK bool
	// LastError is the last failure, also where the store has recovered since;
	// "" where there was none.
	LastError   string
	LastErrorAt time.Time
}

// PartitionStatus is the state of one partition's uploads.
type PartitionStatus struct {
	Partition cluster.TopicPartition
	Topic     string
	// Pending segments are sealed and not in the tier yet.
	PendingSegments int
	PendingBytes    int64
	// OldestPending is when the oldest of them was last written; zero: none.
	OldestPending time.Time
	LastError     string
	Uploading     bool
}

// Store returns the state of the store.
func (a *Archiver) Store() StoreStatus {
	h := a.health
	h.mu.Lock()
	defer h.mu.Unlock()
	s := StoreStatus{OK: h.okLocked(), LastErrorAt: h.lastAt}
	if h.lastErr != nil {
		s.LastError = h.lastErr.Error()
	}
	return s
}

// Status returns the state of every tiered partition that this broker leads.
func (a *Archiver) Status() []PartitionStatus {
	var out []PartitionStatus
	for r := range a.cfg.Replicas() {
		st := r.Status()
		if !st.Tiered || !st.Leading {
			continue
		}
		p := PartitionStatus{
			Partition: st.Partition, Topic: st.Topic, PendingSegments: st.PendingSegments,
			PendingBytes: st.PendingBytes, OldestPending: st.OldestPending,
		}
		a.mu.Lock()
		if t := a.tasks[st.Partition]; t != nil {
			p.Uploading = t.running
			if t.lastErr != nil {
				p.LastError = t.lastErr.Error()
			}
		}
		a.mu.Unlock()
		out = append(out, p)
	}
	return out
}

// Pending sums up what waits for upload.
func (a *Archiver) Pending() (segments int, bytes int64, oldest time.Duration) {
	for _, p := range a.Status() {
		segments += p.PendingSegments
		bytes += p.PendingBytes
		if !p.OldestPending.IsZero() {
			oldest = max(oldest, a.cfg.Now().Sub(p.OldestPending))
		}
	}
	return segments, bytes, oldest
}

// Collectors are the metrics, to be registered by whoever owns the registry.
func (a *Archiver) Collectors() []prometheus.Collector {
	counter := func(name, help string, v *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(v.Load()) })
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	return []prometheus.Collector{
		gauge("strandline_remote_pending_bytes", "Bytes of sealed segments that are not in the remote tier yet.", func() float64 {
			_, bytes, _ := a.Pending()
			return float64(bytes)
		}),
		gauge("strandline_remote_oldest_pending_seconds", "Age of the oldest sealed segment that is not in the remote tier yet.", func() float64 {
			_, _, oldest := a.Pending()
			return oldest.Seconds()
		}),
		gauge("strandline_remote_store_up", "1 where the object store answered last.", func() float64 {
			if a.Store().OK {
				return 1
			}
			return 0
		}),
		counter("strandline_remote_segments_copied_total", "Segments copied to the store and published.", &a.counts.segments),
		counter("strandline_remote_copied_bytes_total", "Bytes of the segment objects copied to the store and published.", &a.counts.bytes),
		counter("strandline_remote_copy_failures_total", "Attempts to copy a segment that failed.", &a.counts.failures),
	}
}
