package sweep

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"strandline/metadata/cluster"
)

type counts struct {
	deleted, failures           atomic.Int64
	manifests, manifestFailures atomic.Int64
	futureStamped               atomic.Int64
}

// Status is what sweeping has to say.
type Status struct {
	// LastErrors are the partitions whose last round failed. Those of deleted
	// topics come under partition -1.
	LastErrors map[cluster.TopicPartition]string
	// WaitingObjects are objects that are not live and still in the store.
	WaitingObjects, WaitingBytes int64
	DeletedTopics                int
	LastScrub                    ScrubReport
}

// Status returns the state.
func (s *Sweeper) Status() Status {
	st := Status{LastErrors: make(map[cluster.TopicPartition]string), DeletedTopics: len(s.cfg.Catalog.DeletedTopics())}
	for tp := range s.cfg.Catalog.Partitions() {
		sum, _ := s.cfg.Catalog.Summary(tp)
		st.WaitingObjects += sum.DeadCount + sum.StartedCount
		st.WaitingBytes += sum.DeadBytes
	}
	withheld := s.cfg.Ownership.MayDelete()
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp, p := range s.progress {
		if p.lastErr != nil {
			st.LastErrors[tp] = p.lastErr.Error()
		}
	}
	for _, d := range s.cfg.Catalog.DeletedTopics() {
		deletion := cluster.TopicPartition{Topic: d.Topic, Partition: -1}
		if withheld != nil && st.LastErrors[deletion] == "" { // W7: nobody tries
			st.LastErrors[deletion] = withheld.Error()
		}
	}
	st.LastScrub = s.lastScrub
	return st
}

// Collectors are the metrics, to be registered by whoever owns the registry.
func (s *Sweeper) Collectors() []prometheus.Collector {
	counter := func(name, help string, v *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(v.Load()) })
	}
	gauge := func(name, help string, f func(Status) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(f(s.Status())) })
	}
	c := &s.counts
	return []prometheus.Collector{
		counter("strandline_remote_objects_deleted_total", "Segment objects deleted from the store.", &c.deleted),
		counter("strandline_remote_sweep_failures_total", "Rounds of retention or deletion that failed for a partition.", &c.failures),
		counter("strandline_remote_manifests_total", "Manifests written.", &c.manifests),
		counter("strandline_remote_manifest_failures_total", "Manifests that could not be written.", &c.manifestFailures),
		counter("strandline_remote_future_timestamps_total", "Remote segments whose highest timestamp lay in the future when retention looked at them.", &c.futureStamped),
		gauge("strandline_remote_waiting_objects", "Objects in the store that are not live and wait for deletion.", func(st Status) int64 { return st.WaitingObjects }),
		gauge("strandline_remote_waiting_bytes", "Bytes of the objects in the store that are not live and wait for deletion.", func(st Status) int64 { return st.WaitingBytes }),
		gauge("strandline_remote_scrub_orphans", "Objects that nothing names, at the last comparison of bucket and catalog.", func(st Status) int64 { return st.LastScrub.Orphans }),
		gauge("strandline_remote_scrub_missing", "Live segments without their object, at the last comparison.", func(st Status) int64 { return st.LastScrub.Missing + st.LastScrub.WrongSize }),
	}
}
