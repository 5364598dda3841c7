package cleaner

import (
	"time"

	"strandline/metadata/cluster"
)

// Limits are a topic's effective retention settings. A negative value is no
// limit; local limits are resolved (-2 already replaced by the total limit).
type Limits struct {
	Delete     bool // cleanup.policy contains delete
	Age        time.Duration
	Bytes      int64
	LocalAge   time.Duration
	LocalBytes int64
}

// Segment is one local segment as retention sees it.
type Segment struct {
	Base         cluster.Offset // inclusive
	Next         cluster.Offset // exclusive
	Bytes        int64
	MaxTimestamp int64     // ms; negative: none
	Written      time.Time // last write; zero: not known
	Sealed       bool
}

// State is a replica at the time of a pass.
type State struct {
	Now           time.Time
	Leading       bool
	Tiered        bool
	LogStart      cluster.Offset
	HighWatermark cluster.Offset
	// RemoteEnd is RemoteEndOffset as the catalog last published it. It is
	// read before Segments.
	RemoteEnd    cluster.Offset
	DiskPressure bool // free space of the directory is below its reserve
	Segments     []Segment
}

// Reason says why a segment goes.
type Reason string

// Reasons.
const (
	ReasonLogStart     Reason = "below the log start offset"
	ReasonAge          Reason = "older than retention.ms"
	ReasonBytes        Reason = "beyond retention.bytes"
	ReasonLocalAge     Reason = "in the remote tier and older than local.retention.ms"
	ReasonLocalBytes   Reason = "in the remote tier and beyond local.retention.bytes"
	ReasonDiskPressure Reason = "in the remote tier and free disk space is below disk.reserved.bytes"
)

// Removal is one segment that goes.
type Removal struct {
	Segment Segment
	Reason  Reason
}

// Plan is what a pass does, in this order: seal the active segment, move
// LogStartOffset, remove sealed segments that end at or below TrimBelow.
type Plan struct {
	Roll      bool
	LogStart  cluster.Offset // State.LogStart where it does not move
	TrimBelow cluster.Offset // exclusive; NoOffset where nothing goes
	Removals  []Removal
	// FutureStamped counts the segments whose largest timestamp lies in the
	// future (R6).
	FutureStamped int
}

// Pass plans one retention pass.
func Pass(s State, limits Limits) Plan {
	plan := Plan{LogStart: s.LogStart, TrimBelow: cluster.NoOffset}
	ages, future := ages(s)
	plan.FutureStamped = future
	var bytes int64
	for _, segment := range s.Segments {
		bytes += segment.Bytes
	}
	for i, segment := range s.Segments {
		if segment.Next == segment.Base {
			break // the active segment, empty
		}
		reason, moves := s.reason(plan.LogStart, segment, ages[i], bytes, limits)
		if reason == "" {
			break
		}
		plan.Removals = append(plan.Removals, Removal{Segment: segment, Reason: reason})
		plan.TrimBelow = segment.Next
		plan.Roll = plan.Roll || !segment.Sealed
		if moves && segment.Next > plan.LogStart {
			plan.LogStart = segment.Next
		}
		bytes -= segment.Bytes
	}
	return plan
}

// reason returns why the oldest remaining segment goes, "" where it stays, and
// whether LogStartOffset moves with it. bytes is the size of what remains.
func (s State) reason(logStart cluster.Offset, segment Segment, age time.Duration, bytes int64, limits Limits) (Reason, bool) {
	if segment.Sealed && segment.Next <= logStart {
		return ReasonLogStart, false
	}
	if s.Tiered && segment.Sealed && segment.Next <= s.RemoteEnd {
		switch {
		case limits.LocalAge >= 0 && age > limits.LocalAge:
			return ReasonLocalAge, false
		case limits.LocalBytes >= 0 && bytes-segment.Bytes >= limits.LocalBytes:
			return ReasonLocalBytes, false
		case s.DiskPressure:
			return ReasonDiskPressure, false
		}
		return "", false
	}
	if !limits.Delete || !s.Leading || segment.Next > s.HighWatermark {
		return "", false
	}
	if s.Tiered && logStart < s.RemoteEnd {
		return "", false // the tier expires its part first
	}
	switch {
	case limits.Age >= 0 && age > limits.Age:
		return ReasonAge, true
	case limits.Bytes >= 0 && bytes-segment.Bytes >= limits.Bytes:
		return ReasonBytes, true
	}
	return "", false
}

// ages returns the age of each segment (R6) and how many carry a timestamp of
// the future.
func ages(s State) ([]time.Duration, int) {
	ages := make([]time.Duration, len(s.Segments))
	now, future := s.Now.UnixMilli(), 0
	later := now // the time by which everything after this segment was written
	for i := len(s.Segments) - 1; i >= 0; i-- {
		segment := s.Segments[i]
		stamp := segment.MaxTimestamp
		if segment.Next == segment.Base {
			continue
		}
		if stamp > now {
			future++
		}
		if stamp > now || stamp < 0 {
			stamp = later
			if !segment.Written.IsZero() {
				stamp = min(stamp, segment.Written.UnixMilli())
			}
		}
		ages[i] = time.Duration(now-stamp) * time.Millisecond
		later = stamp
	}
	return ages, future
}
