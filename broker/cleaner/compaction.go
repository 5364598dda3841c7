package cleaner

import (
	"math"
	"time"

	"strandline/broker/keyindex"
	"strandline/metadata/cluster"
)

// CompactionLimits are a compacted topic's effective settings. Lags and retention
// of the highest Duration are without a limit.
type CompactionLimits struct {
	DirtyRatio      float64 // min.cleanable.dirty.ratio
	MinLag, MaxLag  time.Duration
	DeleteRetention time.Duration
	SegmentBytes    int64
}

// forever is a duration without a limit.
const forever = time.Duration(math.MaxInt64)

// payShare is the part of DirtyRatio from which on a segment's garbage pays for a
// rewrite: what segments may keep of it stays small beside what the ratio allows
// the log.
const payShare = 0.2

// pays is the share of dead bytes from which on a segment is rewritten. With a
// longest lag every dead record goes in time.
func (l CompactionLimits) pays() float64 {
	if l.MaxLag < forever {
		return 0
	}
	return l.DirtyRatio * payShare
}

// CompactionSegment is one local segment as compaction sees it.
type CompactionSegment struct {
	Base, Next     cluster.Offset // Next is exclusive
	Bytes          int64
	MaxTimestamp   int64 // ms; negative: none
	FirstTimestamp int64 // ms, of the first batch; 0 or negative: not known
	Sealed         bool
	// Known says that Counts, of records below CompactionState.Indexed, are those
	// of this file.
	Known  bool
	Counts keyindex.Segment
}

// CompactionState is a replica at the time of a pass.
type CompactionState struct {
	Now time.Time
	// Decided is the bound of what is decided and durable: the last stable offset or
	// the flushed one.
	Decided cluster.Offset
	// Indexed is the position of the key index, NoOffset where it is new.
	Indexed  cluster.Offset
	Segments []CompactionSegment // from the first on that reaches past the log start
}

// DueReason says why a compaction pass is due, "" where none is.
type DueReason string

// Reasons.
const (
	DueDirty   DueReason = "min.cleanable.dirty.ratio is exceeded"
	DueLag     DueReason = "a record is older than max.compaction.lag.ms"
	DueHorizon DueReason = "tombstones or markers are older than delete.retention.ms"
)

// Dirt is what of a log is not compacted.
type Dirt struct {
	// Bound is up to where it may be (exclusive): the end of a sealed segment, or
	// the start of the first one.
	Bound cluster.Offset
	// DirtyBytes are those of the segments that the index does not have yet,
	// CleanBytes those below, of which DeadBytes are known to be dead.
	DirtyBytes, CleanBytes, DeadBytes int64
	// Ratio is the share of the bytes up to Bound that is dirty, or dead.
	Ratio float64
	Due   DueReason
}

// Dirtiness tells what is to be compacted, and whether it is time for it.
func Dirtiness(s CompactionState, l CompactionLimits) Dirt {
	d := Dirt{Bound: s.bound(l)}
	oldest := int64(math.MaxInt64)
	expired := false
	for _, seg := range s.Segments {
		if seg.Next > d.Bound || !seg.Sealed {
			break
		}
		if seg.Next > s.Indexed {
			d.DirtyBytes += seg.Bytes
			if seg.FirstTimestamp > 0 {
				oldest = min(oldest, seg.FirstTimestamp)
			}
			continue
		}
		d.CleanBytes += seg.Bytes
		if seg.Known {
			d.DeadBytes += int64(float64(seg.Bytes) * seg.Counts.DeadShare())
			expired = expired || seg.expired(s.Now) && seg.removableShare() > l.pays()
		}
	}
	if all := d.DirtyBytes + d.CleanBytes; all > 0 {
		d.Ratio = float64(d.DirtyBytes+d.DeadBytes) / float64(all)
	}
	switch {
	case d.Ratio > l.DirtyRatio:
		d.Due = DueDirty
	case d.DirtyBytes > 0 && l.MaxLag < forever && oldest < s.Now.Add(-l.MaxLag).UnixMilli():
		d.Due = DueLag
	case expired:
		d.Due = DueHorizon
	}
	return d
}

// bound is the end of the last segment that may be compacted: sealed, decided,
// durable, and past the shortest lag, as all before it.
func (s CompactionState) bound(l CompactionLimits) cluster.Offset {
	bound := cluster.Offset(0)
	if len(s.Segments) > 0 {
		bound = s.Segments[0].Base
	}
	for _, seg := range s.Segments {
		young := l.MinLag > 0 && (l.MinLag == forever || seg.MaxTimestamp > s.Now.Add(-l.MinLag).UnixMilli())
		if !seg.Sealed || seg.Next > s.Decided || young && seg.Next > s.Indexed {
			break
		}
		bound = seg.Next
	}
	return bound
}

// expired says that tombstones or markers of the segment may go which could not
// when it was filtered last.
func (c CompactionSegment) expired(now time.Time) bool {
	h := c.Counts.Horizon
	return c.Known && h > 0 && h <= now.UnixMilli() && h >= c.Counts.FilteredAt && c.Counts.Tombstones+c.Counts.Markers > 0
}

const (
	// huskBytes is about the size of a batch without records, or of a marker.
	huskBytes = 70
	// husksEvery is how often a segment is rewritten because of those.
	husksEvery = time.Hour
)

// husks says that much of the segment is batches that were emptied and markers
// that wait for the end of their transactions' data. Whether they may go now no
// count tells, so that they are tried only once in a while.
func (c CompactionSegment) husks(now time.Time, l CompactionLimits) bool {
	n := c.Counts.Emptied
	if c.Counts.Unstamped > 0 {
		n += c.Counts.Markers
	}
	return n > 0 && float64(n*huskBytes) >= l.pays()*float64(c.Bytes) && now.UnixMilli()-c.Counts.FilteredAt >= husksEvery.Milliseconds()
}

// removableShare is the share of the records that are dead, tombstones or markers.
func (c CompactionSegment) removableShare() float64 {
	all := c.Counts.Records + c.Counts.Markers
	if all == 0 {
		return 0
	}
	return float64(c.Counts.DeadRecords+c.Counts.Tombstones+c.Counts.Markers) / float64(all)
}

// CleanThrough is the offset up to which the segment holds nothing that an earlier
// offset made dead: everything below it that is dead because of a record below it
// is gone.
func (c CompactionSegment) CleanThrough(indexed cluster.Offset) cluster.Offset {
	switch {
	case !c.Known:
		return 0
	case c.Counts.DeadRecords <= 0:
		return indexed
	}
	return c.Counts.CleanedThrough
}

// cleanThrough is the lowest CleanThrough of the segments of a run.
func (s CompactionState) cleanThrough(run Run) cluster.Offset {
	clean := s.Indexed
	for _, seg := range s.Segments {
		if seg.Base >= run.First && seg.Base < run.Next {
			clean = min(clean, seg.CleanThrough(s.Indexed))
		}
	}
	return clean
}

// Run is a run of adjacent segments that one rewrite joins.
type Run struct {
	First, Next cluster.Offset // Next is exclusive
	// Tombstones below it may go once their horizon has passed, and get one where
	// they have none: every earlier segment has been filtered with them, once the
	// runs before are rewritten.
	TombstonesBelow cluster.Offset
	// LiveBytes is about what will be left of it.
	LiveBytes int64
}

// mergeFactor is by how much a segment that has no need of it may be larger than
// one that is rewritten, to be joined with it.
const mergeFactor = 4

// rawFactor is how many times segment.bytes one rewrite reads at most.
const rawFactor = 8

// group is segments that may become a run.
type group struct {
	first, last int // inclusive
	needed      bool
	unknown     bool // nobody knows what in it is dead: it stays as it is
	raw, live   int64
}

// Runs plans the rewrites of a pass, after the index has come to d.Bound; s is the
// state with it. They are to be done in order.
func Runs(s CompactionState, l CompactionLimits, bound cluster.Offset) []Run {
	n := 0
	for n < len(s.Segments) && s.Segments[n].Sealed && s.Segments[n].Next <= min(bound, s.Indexed) {
		n++
	}
	segments := s.Segments[:n]
	needed := need(s, l, segments)
	var stack []group
	for i, seg := range segments {
		g := group{first: i, last: i, needed: needed[i], unknown: !seg.Known, raw: seg.Bytes}
		g.live = int64(math.Round(float64(seg.Bytes) * (1 - seg.Counts.DeadShare())))
		for len(stack) > 0 && joins(segments, stack[len(stack)-1], g, l) {
			before := stack[len(stack)-1]
			g = group{first: before.first, last: g.last, needed: before.needed || g.needed, raw: before.raw + g.raw, live: before.live + g.live}
			stack = stack[:len(stack)-1]
		}
		stack = append(stack, g)
	}
	return runs(s, segments, stack)
}

// runs makes runs of the groups that are to be rewritten.
func runs(s CompactionState, segments []CompactionSegment, groups []group) []Run {
	var out []Run
	clean := s.Indexed
	for _, g := range groups {
		if g.needed || g.last > g.first {
			out = append(out, Run{First: segments[g.first].Base, Next: segments[g.last].Next, TombstonesBelow: clean, LiveBytes: g.live})
			continue // filtered with the whole index then
		}
		clean = min(clean, segments[g.first].CleanThrough(s.Indexed))
	}
	return out
}

// joins says whether one segment may be made of two groups: within segment.bytes
// and the 31 bits of relative offsets, and where that is worth the copying.
func joins(segments []CompactionSegment, a, b group, l CompactionLimits) bool {
	span := segments[b.last].Next - segments[a.first].Base
	if a.unknown || b.unknown || a.live+b.live > l.SegmentBytes || a.raw+b.raw > rawFactor*l.SegmentBytes || a.raw+b.raw > math.MaxInt32 || span > math.MaxInt32 {
		return false
	}
	switch {
	case a.needed && b.needed:
		return true
	case a.needed:
		return b.live <= mergeFactor*a.live
	case b.needed:
		return a.live <= mergeFactor*b.live
	}
	small, large := min(a.live, b.live), max(a.live, b.live)
	return large <= mergeFactor*small && small+large <= l.SegmentBytes/2
}

// need marks the segments that are to be rewritten.
func need(s CompactionState, l CompactionLimits, segments []CompactionSegment) []bool {
	needed := make([]bool, len(segments))
	clear := clearances(s, segments)
	forcedBelow := -1
	for i, seg := range segments {
		if !seg.Known {
			continue
		}
		c := seg.Counts
		stamps := c.Unstamped > 0 && c.Tombstones > 0
		expired := seg.expired(s.Now)
		switch {
		case c.DeadRecords > 0 && c.DeadShare() >= l.pays():
			needed[i] = true
		case c.Unstamped > 0 && c.FilteredAt == 0:
			needed[i] = true // its first time
		case seg.husks(s.Now, l):
			needed[i] = true
		case expired, stamps && clear[i] >= seg.Next:
			needed[i] = true
		}
		if (stamps || expired) && c.Tombstones > 0 && clear[i] < seg.Next {
			// Its tombstones wait for the segments before it.
			needed[i], forcedBelow = true, i
		}
	}
	for i := range max(forcedBelow, 0) {
		needed[i] = needed[i] || segments[i].Known && segments[i].Counts.DeadRecords > 0 && segments[i].Counts.CleanedThrough < segments[forcedBelow].Next
	}
	return needed
}

// clearances are, for each segment, the offset below which its tombstones have
// nothing left to hide in the segments before it.
func clearances(s CompactionState, segments []CompactionSegment) []cluster.Offset {
	out := make([]cluster.Offset, len(segments))
	clean := s.Indexed
	for i, seg := range segments {
		out[i] = clean
		clean = min(clean, seg.CleanThrough(s.Indexed))
	}
	return out
}
