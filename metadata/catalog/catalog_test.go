package catalog

import (
	"errors"
	"iter"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

// twin is the catalog in its dumbest form: a list, and sums made anew.
type twin struct {
	segments  []Segment
	logStart  cluster.Offset
	remoteEnd cluster.Offset
	maxTS     int64
	lastEpoch cluster.LeaderEpoch
	location  string
}

func (w *twin) find(id cluster.SegmentID) *Segment {
	for i := range w.segments {
		if w.segments[i].ID == id {
			return &w.segments[i]
		}
	}
	return nil
}

// apply carries out an event that the catalog accepted.
func (w *twin) apply(ctx Context, ev Event) {
	switch ev := ev.(type) {
	case StartedEvent:
		if w.find(ev.Span.ID) == nil {
			w.segments = append(w.segments, Segment{
				SegmentSpan: ev.Span, StartEpoch: ev.LeaderEpoch, State: Started, DeadlineMs: ev.DeadlineMs, ChangedMs: ctx.NowMs, PrefixMaxTimestamp: -1,
			})
		}
	case PublishedEvent:
		if s := w.find(ev.ID); s.State == Started {
			w.maxTS = max(w.maxTS, ev.Object.MaxTimestamp)
			s.State, s.Object, s.ChangedMs, s.PrefixMaxTimestamp = Live, ev.Object, ctx.NowMs, w.maxTS
			w.remoteEnd, w.lastEpoch, w.location = s.End, ev.Object.LastEpoch, s.Location
		}
	case AbandonedEvent:
		if s := w.find(ev.ID); !s.Abandoned {
			s.Abandoned, s.ChangedMs = true, ctx.NowMs
		}
	case LogStartEvent:
		if ev.Offset < w.logStart {
			return
		}
		w.logStart = ev.Offset
		for i := range w.segments {
			if s := &w.segments[i]; s.State == Live && s.End <= ev.Offset {
				s.State, s.ChangedMs = Expired, ctx.NowMs
			}
		}
		if ev.Offset > w.remoteEnd {
			w.remoteEnd = max(w.remoteEnd, ev.BatchBase)
		}
	case RemovedEvent:
		var left []Segment
		for _, s := range w.segments {
			gone := false
			for _, id := range ev.IDs {
				gone = gone || id == s.ID
			}
			if !gone {
				left = append(left, s)
			}
		}
		w.segments = left
	}
}

func (w *twin) summary() Summary {
	s := Summary{LogStart: w.logStart, RemoteEnd: w.remoteEnd, Location: w.location, MaxTimestamp: w.maxTS, LastEpoch: w.lastEpoch}
	for _, g := range w.segments {
		switch g.State {
		case Live:
			s.LiveCount++
			s.LiveBytes += g.Object.ObjectBytes
			s.LiveSegmentBytes += g.Object.SegmentBytes
		case Started:
			s.StartedCount++
		default:
			s.DeadCount++
			s.DeadBytes += g.Object.ObjectBytes
		}
	}
	return s
}

func id(n int) cluster.SegmentID { return cluster.SegmentID{byte(n), byte(n >> 8), 1} }

// draw makes an event that is right or nearly so.
func draw(t *rapid.T, ctx Context, w *twin, n int) Event {
	epoch := ctx.LeaderEpoch + cluster.LeaderEpoch(rapid.SampledFrom([]int32{0, 0, 0, 0, 0, 0, 0, 0, -1, 1}).Draw(t, "epoch"))
	if ctx.Deleted {
		epoch = cluster.NoLeaderEpoch
	}
	old := id(rapid.IntRange(0, n).Draw(t, "old"))
	switch rapid.IntRange(0, 9).Draw(t, "event") {
	case 0, 1, 2:
		base := w.remoteEnd + cluster.Offset(rapid.SampledFrom([]int64{0, 0, 0, 0, -1, 1}).Draw(t, "base"))
		return StartedEvent{LeaderEpoch: epoch, DeadlineMs: ctx.NowMs + 20, Span: request.SegmentSpan{
			ID: id(n), Base: base, End: base + cluster.Offset(rapid.Int64Range(0, 9).Draw(t, "len")), LeaderEpoch: epoch, Location: "l", Key: "k",
		}}
	case 3, 4, 5:
		first := w.lastEpoch + cluster.LeaderEpoch(rapid.Int32Range(0, 1).Draw(t, "first"))
		if len(w.segments) > 0 {
			old = w.segments[len(w.segments)-1].ID
		}
		return PublishedEvent{LeaderEpoch: epoch, ID: old, Object: request.ObjectSummary{
			ObjectBytes: 30, SegmentBytes: rapid.Int64Range(0, 20).Draw(t, "bytes"), IndexPosition: 20, IndexBytes: 5, FooterBytes: 5,
			MaxTimestamp: rapid.Int64Range(-1, 50).Draw(t, "ts"), FirstEpoch: first, LastEpoch: max(first, min(epoch, first+1)),
		}}
	case 6:
		return AbandonedEvent{LeaderEpoch: epoch, ID: old}
	case 7, 8:
		o := w.logStart + cluster.Offset(rapid.Int64Range(-1, 12).Draw(t, "up"))
		return LogStartEvent{LeaderEpoch: epoch, Offset: o, BatchBase: o - cluster.Offset(rapid.Int64Range(0, 3).Draw(t, "batch"))}
	}
	return RemovedEvent{LeaderEpoch: epoch, IDs: []cluster.SegmentID{old, id(rapid.IntRange(0, n).Draw(t, "other"))}}
}

// TestAgainstTwin runs random events over the catalog, an overlay of it and a
// dumb list, and compares everything that can be asked.
func TestAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, w := NewTable(), &twin{maxTS: -1, lastEpoch: cluster.NoLeaderEpoch}
		over, overSum := NewOverlay(NewTable()), NewSummary() // everything in flight, nothing stored
		stored := NewTable()                                  // a part stored, the rest in flight
		behind, inFlight := NewOverlay(stored), []Edit(nil)
		ctx := Context{LeaderEpoch: 3, NowMs: 100}
		for n := range rapid.IntRange(1, 40).Draw(t, "events") {
			ctx.NowMs += rapid.Int64Range(0, 9).Draw(t, "wait")
			if rapid.IntRange(0, 15).Draw(t, "tenure") == 0 {
				ctx.LeaderEpoch++
			}
			ctx.Deleted = ctx.Deleted || rapid.IntRange(0, 60).Draw(t, "delete") == 0
			ev := draw(t, ctx, w, n)
			before := table.Summary
			e, err := Apply(ctx, table.Summary, table, ev)
			o, overErr := Apply(ctx, overSum, over, ev)
			if (err == nil) != (overErr == nil) {
				t.Fatalf("%+v: %v, over an overlay %v", ev, err, overErr)
			}
			if err != nil {
				var re *request.Error
				if !errors.As(err, &re) {
					t.Fatalf("%+v: %v is no refusal", ev, err)
				}
				continue
			}
			table.Commit(e)
			over.Add(o)
			overSum = o.Summary
			w.apply(ctx, ev)
			if table.Summary != w.summary() || overSum != table.Summary {
				t.Fatalf("%+v:\ncatalog %+v\noverlay %+v\ntwin    %+v", ev, table.Summary, overSum, w.summary())
			}
			check(t, table, w, before, ctx.Deleted)
			lookups(t, table, w, table)
			lookups(t, table, w, over)
			behind.Add(e)
			if inFlight = append(inFlight, e); rapid.IntRange(0, 4).Draw(t, "store") == 0 {
				for _, e := range inFlight {
					stored.Commit(e)
				}
				behind, inFlight = NewOverlay(stored), nil
			}
			lookups(t, table, w, behind)
			if got, want := listed(behind), listed(table); !slices.Equal(got, want) {
				t.Fatalf("live over a part\n%+v\nwant\n%+v", got, want)
			}
		}
	})
}

// check asserts the invariants of the package comment.
func check(t *rapid.T, table *Table, w *twin, before Summary, deleted bool) {
	sum := table.Summary
	if sum.LogStart < before.LogStart || sum.RemoteEnd < before.RemoteEnd {
		t.Fatalf("C2: %+v after %+v", sum, before)
	}
	if len(w.segments) != len(table.byID) {
		t.Fatalf("%d segments, twin %d", len(table.byID), len(w.segments))
	}
	end, prefix := cluster.Offset(-1), int64(math.MinInt64)
	for s := range table.LiveFrom(0) {
		if end >= 0 && s.Base != end && !deleted {
			t.Fatalf("C1: live segment at %d after %d", s.Base, end)
		}
		if s.End <= sum.LogStart || s.PrefixMaxTimestamp < prefix {
			t.Fatalf("C3, C6: %+v, log start %d, prefix %d", s, sum.LogStart, prefix)
		}
		end, prefix = s.End, s.PrefixMaxTimestamp
	}
	if sum.LiveCount > 0 && end != sum.RemoteEnd && !deleted {
		t.Fatalf("C1: live segments end at %d, remote end is %d", end, sum.RemoteEnd)
	}
	for _, s := range w.segments {
		got, ok, _ := table.Segment(s.ID)
		if !ok || got != s {
			t.Fatalf("segment\n%+v\ntwin\n%+v", got, s)
		}
	}
}

func lookups(t *rapid.T, table *Table, w *twin, r Reader) {
	for o := w.logStart - 1; o <= w.remoteEnd+1; o++ {
		var want *Segment
		for i, s := range w.segments {
			if s.State == Live && s.Base <= o && o < s.End {
				want = &w.segments[i]
			}
		}
		compare(t, "offset", int64(o), want)(FindOffset(table.Summary, r, o))
	}
	from := w.logStart
	for ts := int64(-2); ts <= 51; ts += 3 {
		var want *Segment
		for s := range live(table) {
			if s.End > from && s.Object.MaxTimestamp >= ts {
				want = &s
				break
			}
		}
		compare(t, "timestamp", ts, want)(FindTimestamp(table.Summary, r, ts, from))
	}
	for e := cluster.LeaderEpoch(-1); e <= 8; e++ {
		var want *Segment
		for s := range live(table) {
			if s.Object.FirstEpoch <= e {
				want = &s
			}
		}
		compare(t, "epoch", int64(e), want)(FindEpoch(table.Summary, r, e))
	}
}

// listed are the live segments that a reader gives, asked again and again so
// that it stops at each.
func listed(r Reader) []Segment {
	var all []Segment
	for from, more := cluster.Offset(0), true; more; {
		more = false
		for s := range r.LiveFrom(from) {
			all = append(all, s)
			from, more = s.Base+1, true
			break
		}
	}
	n := 0
	for s := range r.LiveFrom(0) {
		if n == len(all) || all[n] != s {
			return nil
		}
		n++
	}
	return all[:n]
}

func live(table *Table) iter.Seq[Segment] {
	return func(yield func(Segment) bool) {
		for _, s := range table.All() {
			if s.State == Live && !yield(s) {
				return
			}
		}
	}
}

func compare(t *rapid.T, what string, at int64, want *Segment) func(Segment, bool, error) {
	return func(got Segment, ok bool, err error) {
		if err != nil || ok != (want != nil) || ok && got != *want {
			t.Fatalf("by %s %d: %+v %t %v, want %+v", what, at, got, ok, err, want)
		}
	}
}

func TestEffective(t *testing.T) {
	d := DeletedTopic{DeletedMs: 50}
	require.Equal(t, Segment{State: Expired, ChangedMs: 50}, d.Effective(Segment{State: Live, ChangedMs: 3}))
	require.Equal(t, Segment{State: Expired, ChangedMs: 70}, d.Effective(Segment{State: Replaced, ChangedMs: 70}))
	require.Equal(t, Segment{State: Started, ChangedMs: 3}, d.Effective(Segment{State: Started, ChangedMs: 3}))
	require.Equal(t, Segment{State: Expired, ChangedMs: 3}, d.Effective(Segment{State: Expired, ChangedMs: 3}))
}

func TestBounds(t *testing.T) {
	sum := NewSummary()
	sum.StartedCount = MaxStarted
	_, err := Apply(Context{}, sum, NewTable(), StartedEvent{DeadlineMs: 5, Span: request.SegmentSpan{End: 1, Key: "k"}})
	require.ErrorIs(t, err, request.ErrTooManySegments)
	_, err = Apply(Context{}, NewSummary(), NewTable(), RemovedEvent{IDs: make([]cluster.SegmentID, MaxRemovedIDs+1)})
	require.ErrorIs(t, err, request.ErrInvalidRequest)
}
