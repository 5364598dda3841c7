package sweep

import (
	"context"
	"fmt"
	"time"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/tiering/manifest"
)

// scrubSamples bounds the keys that a report names of each kind.
const scrubSamples = 20

// ScrubReport is what comparing bucket and catalog found.
type ScrubReport struct {
	At      time.Time
	Objects int64
	Bytes   int64
	// Orphans are objects that nothing names, and that are too old for an
	// upload under way.
	Orphans     int64
	OrphanBytes int64
	// Missing are live segments whose objects are not there, WrongSize those
	// with another size.
	Missing, WrongSize int64
	// Samples are some of the keys, each with what is the matter.
	Samples []string
}

func (r *ScrubReport) note(n *int64, key, what string) {
	*n++
	if *n <= scrubSamples {
		r.Samples = append(r.Samples, what+": "+key)
	}
}

func (s *Sweeper) scrub(ctx context.Context) {
	if !s.cfg.Responsible() {
		return
	}
	report, err := s.Scrub(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.cfg.Logger.Warn("comparing bucket and catalog failed", "error", err)
		}
		return
	}
	log := s.cfg.Logger.Info
	if report.Orphans+report.Missing+report.WrongSize > 0 {
		log = s.cfg.Logger.Warn
	}
	log("bucket and catalog compared", "objects", report.Objects, "orphans", report.Orphans, "missing", report.Missing,
		"wrong_size", report.WrongSize, "samples", report.Samples)
}

// Scrub compares bucket and catalog both ways and changes nothing (W6). It lists
// the whole location.
func (s *Sweeper) Scrub(ctx context.Context) (ScrubReport, error) {
	layout, err := s.cfg.Ownership.Check(ctx)
	if err != nil {
		return ScrubReport{}, err
	}
	report := ScrubReport{At: s.cfg.Now()}
	c := &comparison{s: s, layout: layout, report: &report, seen: make(map[cluster.TopicPartition]bool)}
	for info, err := range s.cfg.Store.List(ctx, layout.Root(), "") {
		if err != nil {
			return ScrubReport{}, fmt.Errorf("list the location: %w", err)
		}
		report.Objects++
		report.Bytes += info.Bytes
		tp, kind, ok := layout.ParseKey(info.Key)
		if err := c.turnTo(tp, ok); err != nil {
			return ScrubReport{}, err
		}
		old := report.At.Sub(info.Modified) >= s.cfg.grace()
		switch {
		case kind == manifest.ManifestObject || kind == manifest.RunObject:
			if !c.known && old {
				report.OrphanBytes += info.Bytes
				report.note(&report.Orphans, info.Key, "orphan")
			}
		case !c.keys[info.Key] && old:
			report.OrphanBytes += info.Bytes
			report.note(&report.Orphans, info.Key, "orphan")
		case c.live[info.Key] != 0 && c.live[info.Key] != info.Bytes:
			report.note(&report.WrongSize, info.Key, "wrong size")
		}
		delete(c.live, info.Key)
	}
	if err := c.turnTo(cluster.TopicPartition{}, false); err != nil {
		return ScrubReport{}, err
	}
	// Partitions of which the bucket has nothing at all.
	for tp := range s.cfg.Catalog.Partitions() {
		if !c.seen[tp] {
			if err := c.turnTo(tp, true); err != nil {
				return ScrubReport{}, err
			}
			c.missing()
		}
	}
	s.mu.Lock()
	s.lastScrub = report
	s.mu.Unlock()
	return report, nil
}

// comparison goes through the bucket partition by partition.
type comparison struct {
	s      *Sweeper
	layout manifest.Layout
	report *ScrubReport
	seen   map[cluster.TopicPartition]bool

	tp    cluster.TopicPartition
	valid bool
	known bool             // to the catalog
	keys  map[string]bool  // that the catalog names
	live  map[string]int64 // size of those that must be there, and were not seen yet
}

// turnTo ends the comparison of one partition and begins that of another.
func (c *comparison) turnTo(tp cluster.TopicPartition, valid bool) error {
	if valid == c.valid && tp == c.tp && c.keys != nil {
		return nil
	}
	c.missing()
	c.tp, c.valid, c.known = tp, valid, false
	c.keys, c.live = make(map[string]bool), make(map[string]int64)
	if !valid {
		return nil
	}
	c.seen[tp] = true
	_, c.known = c.s.cfg.Catalog.Summary(tp)
	for seg, err := range c.s.cfg.Catalog.Segments(tp, 0) {
		if err != nil {
			return err
		}
		if seg.Location != c.layout.Location {
			continue
		}
		c.keys[seg.Key] = true
		if seg.State == catalog.Live {
			c.live[seg.Key] = seg.Object.ObjectBytes
		}
	}
	return nil
}

// missing reports what should have been seen. The catalog is asked once more:
// it may have changed while the bucket was listed.
func (c *comparison) missing() {
	if len(c.live) == 0 {
		return
	}
	for seg, err := range c.s.cfg.Catalog.Live(c.tp, 0) {
		if err == nil && c.live[seg.Key] != 0 {
			c.report.note(&c.report.Missing, seg.Key, "missing")
		}
	}
	c.live = nil
}
