package catalog

import (
	"errors"
	"iter"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

// The partition that the events below are judged against is at leader epoch 3,
// time 100, with a log start of 5: segment 1 is live in [0, 10) and was
// announced in epoch 2, segment 2 is live in [10, 20), and segment 3 is started
// in [20, 30) with its deadline at 120.
var verdictContext = Context{LeaderEpoch: 3, NowMs: 100}

func span(n int, base, end cluster.Offset) request.SegmentSpan {
	return request.SegmentSpan{ID: id(n), Base: base, End: end, LeaderEpoch: 3, Location: "l", Key: "k"}
}

func started(n int, base, end cluster.Offset) StartedEvent {
	return StartedEvent{LeaderEpoch: 3, DeadlineMs: 120, Span: span(n, base, end)}
}

// object is as close to every bound of checkObject as it may be.
func object(change func(*request.ObjectSummary)) request.ObjectSummary {
	o := request.ObjectSummary{
		ObjectBytes: 30, SegmentBytes: 20, IndexPosition: 20, IndexBytes: 6, FooterBytes: 4, MaxTimestamp: -1, FirstEpoch: 2, LastEpoch: 3,
	}
	if change != nil {
		change(&o)
	}
	return o
}

func published(n int, change func(*request.ObjectSummary)) PublishedEvent {
	return PublishedEvent{LeaderEpoch: 3, ID: id(n), Object: object(change)}
}

func epochs(first, last cluster.LeaderEpoch) func(*request.ObjectSummary) {
	return func(o *request.ObjectSummary) { o.FirstEpoch, o.LastEpoch = first, last }
}

func logStart(o, batch cluster.Offset) LogStartEvent {
	return LogStartEvent{LeaderEpoch: 3, Offset: o, BatchBase: batch}
}

func removed(n ...int) RemovedEvent {
	ev := RemovedEvent{LeaderEpoch: 3}
	for _, n := range n {
		ev.IDs = append(ev.IDs, id(n))
	}
	return ev
}

// accepted applies an event that must be taken.
func accepted(t *testing.T, table *Table, ctx Context, ev Event) Edit {
	e, err := Apply(ctx, table.Summary, table, ev)
	require.NoError(t, err, "%+v", ev)
	table.Commit(e)
	return e
}

func verdictTable(t *testing.T) *Table {
	table := NewTable()
	before := Context{LeaderEpoch: 2, NowMs: 100}
	first := started(1, 0, 10)
	first.LeaderEpoch, first.Span.LeaderEpoch = 2, 2
	accepted(t, table, before, first)
	accepted(t, table, before, PublishedEvent{LeaderEpoch: 2, ID: id(1), Object: object(epochs(1, 2))})
	for _, ev := range []Event{started(2, 10, 20), published(2, epochs(2, 2)), started(3, 20, 30), logStart(5, 0)} {
		accepted(t, table, verdictContext, ev)
	}
	return table
}

// TestVerdicts says which events are taken and which are refused, and why: the
// twin believes whatever the catalog decides.
func TestVerdicts(t *testing.T) {
	refused := func(change func(*request.ObjectSummary)) Event { return published(3, change) }
	at := func(now int64) *Context { return &Context{LeaderEpoch: 3, NowMs: now} }
	later, deleted := &Context{LeaderEpoch: 4, NowMs: 100}, &Context{LeaderEpoch: 3, Deleted: true, NowMs: 100}
	with := func(deadline int64, sp request.SegmentSpan) StartedEvent {
		return StartedEvent{LeaderEpoch: 3, DeadlineMs: deadline, Span: sp}
	}
	oldSpan, noKey, futureSpan := span(9, 20, 30), span(9, 20, 30), span(9, 20, 30)
	oldSpan.LeaderEpoch, noKey.Key, futureSpan.LeaderEpoch = 2, "", 4
	unchanged := errors.New("taken, and nothing changes")
	for _, c := range []struct {
		name   string
		before []Event
		ctx    *Context
		ev     Event
		want   error // nil: taken, and something changes
	}{
		{"former leader", nil, later, started(9, 20, 30), request.ErrFencedLeaderEpoch},
		{"leader not known yet", nil, &Context{LeaderEpoch: 2, NowMs: 100}, started(9, 20, 30), request.ErrNotController},
		{"leader of a deleted topic", nil, deleted, removed(1), request.ErrUnknownTopicID},
		{"start in a deleted topic", nil, deleted, StartedEvent{LeaderEpoch: -1, DeadlineMs: 120, Span: span(9, 20, 30)}, request.ErrUnknownTopicID},

		{"start", nil, nil, started(9, 20, 30), nil},
		{"start of one offset", nil, nil, started(9, 20, 21), nil},
		{"start of none", nil, nil, started(9, 20, 20), request.ErrInvalidRequest},
		{"start without a key", nil, nil, with(120, noKey), request.ErrInvalidRequest},
		{"start of an earlier epoch's segment", nil, nil, with(120, oldSpan), nil},
		{"start of a later epoch's segment", nil, nil, with(120, futureSpan), request.ErrInvalidRequest},
		{"start before the remote end", nil, nil, started(9, 19, 30), request.ErrSegmentNotContiguous},
		{"start behind the remote end", nil, nil, started(9, 21, 30), request.ErrSegmentNotContiguous},
		{"start below the log start", []Event{logStart(25, 20)}, nil, started(9, 20, 25), request.ErrOffsetOutOfRange},
		{"start across the log start", []Event{logStart(25, 20)}, nil, started(9, 20, 26), nil},
		{"start at its deadline", nil, nil, with(100, span(9, 20, 30)), request.ErrInvalidRequest},
		{"start just before its deadline", nil, nil, with(101, span(9, 20, 30)), nil},
		{"start again", nil, nil, started(3, 20, 30), unchanged},
		{"start again with another span", nil, nil, started(3, 20, 31), request.ErrInvalidSegmentState},
		{"start again by a later leader", nil, later, StartedEvent{LeaderEpoch: 4, DeadlineMs: 120, Span: span(3, 20, 30)}, request.ErrInvalidSegmentState},
		{"start again after giving up", []Event{AbandonedEvent{LeaderEpoch: 3, ID: id(3)}}, nil, started(3, 20, 30), request.ErrInvalidSegmentState},
		{"start of a live one", nil, nil, started(2, 10, 20), request.ErrInvalidSegmentState},

		{"publish", nil, at(119), published(3, nil), nil},
		{"publish at the deadline", nil, at(120), published(3, nil), request.ErrInvalidSegmentState},
		{"publish what was never announced", nil, nil, published(9, nil), request.ErrUnknownSegment},
		{"publish again", nil, nil, published(2, epochs(2, 2)), unchanged},
		{"publish again another object", nil, nil, published(2, epochs(2, 3)), request.ErrInvalidSegmentState},
		{"publish again by a later leader", nil, nil, published(1, epochs(1, 2)), request.ErrInvalidSegmentState},
		{"publish what was given up", []Event{AbandonedEvent{LeaderEpoch: 3, ID: id(3)}}, nil, published(3, nil), request.ErrInvalidSegmentState},
		{"publish what a former leader announced", nil, later, PublishedEvent{LeaderEpoch: 4, ID: id(3), Object: object(nil)}, request.ErrFencedLeaderEpoch},
		{"publish behind another", []Event{started(4, 20, 25), published(4, nil)}, nil, published(3, epochs(3, 3)), request.ErrSegmentNotContiguous},
		{"publish below the log start", []Event{logStart(30, 20)}, nil, published(3, nil), request.ErrOffsetOutOfRange},
		{"publish across the log start", []Event{logStart(29, 20)}, nil, published(3, nil), nil},

		{"one byte of batches", nil, nil, published(3, func(o *request.ObjectSummary) { o.SegmentBytes = 1 }), nil},
		{"no batches", nil, nil, refused(func(o *request.ObjectSummary) { o.SegmentBytes = 0 }), request.ErrInvalidRequest},
		{"index within the batches", nil, nil, refused(func(o *request.ObjectSummary) { o.SegmentBytes = 21 }), request.ErrInvalidRequest},
		{"no index and no footer", nil, nil, published(3, func(o *request.ObjectSummary) { o.IndexPosition, o.IndexBytes, o.FooterBytes = 30, 0, 0 }), nil},
		{"index past the end", nil, nil, refused(func(o *request.ObjectSummary) { o.IndexPosition, o.IndexBytes, o.FooterBytes = 31, 0, 0 }), request.ErrInvalidRequest},
		{"object of no size", nil, nil, refused(func(o *request.ObjectSummary) { o.ObjectBytes = math.MinInt64 }), request.ErrInvalidRequest},
		{"index below nothing", nil, nil, refused(func(o *request.ObjectSummary) { o.IndexBytes = -1 }), request.ErrInvalidRequest},
		{"index too large", nil, nil, refused(func(o *request.ObjectSummary) { o.IndexBytes = 7 }), request.ErrInvalidRequest},
		{"footer below nothing", nil, nil, refused(func(o *request.ObjectSummary) { o.FooterBytes = -1 }), request.ErrInvalidRequest},
		{"footer too large", nil, nil, refused(func(o *request.ObjectSummary) { o.FooterBytes = 5 }), request.ErrInvalidRequest},
		{"records below nothing", nil, nil, refused(func(o *request.ObjectSummary) { o.RecordCount = -1 }), request.ErrInvalidRequest},
		{"impossible timestamp", nil, nil, refused(func(o *request.ObjectSummary) { o.MaxTimestamp = -2 }), request.ErrInvalidRequest},
		{"epochs the wrong way round", nil, nil, refused(epochs(3, 2)), request.ErrInvalidRequest},
		{"one epoch", nil, nil, published(3, epochs(3, 3)), nil},
		{"epoch after the leader's", nil, nil, refused(epochs(2, 4)), request.ErrInvalidRequest},
		{"epoch before the last segment's", nil, nil, refused(epochs(1, 3)), request.ErrInvalidRequest},

		{"give up", nil, nil, AbandonedEvent{LeaderEpoch: 3, ID: id(3)}, nil},
		{"give up again", []Event{AbandonedEvent{LeaderEpoch: 3, ID: id(3)}}, nil, AbandonedEvent{LeaderEpoch: 3, ID: id(3)}, unchanged},
		{"give up what is live", nil, nil, AbandonedEvent{LeaderEpoch: 3, ID: id(2)}, request.ErrInvalidSegmentState},
		{"give up what is unknown", nil, nil, AbandonedEvent{LeaderEpoch: 3, ID: id(9)}, request.ErrUnknownSegment},

		{"log start back", nil, nil, logStart(4, 0), unchanged},
		{"log start where it is", nil, nil, logStart(5, 0), unchanged},
		{"log start where it is, a batch behind the remote end", nil, nil, logStart(5, 21), unchanged},
		{"log start to the remote end", nil, nil, logStart(20, 0), nil},
		{"log start past the remote end, in a batch from there", nil, nil, logStart(22, 20), nil},
		{"log start past the remote end, at a batch", nil, nil, logStart(22, 22), nil},
		{"log start past the remote end, before its batch", nil, nil, logStart(22, 23), request.ErrInvalidRequest},
		{"log start past the remote end, in a batch below it", nil, nil, logStart(22, 19), request.ErrInvalidRequest},
		{"log start past the remote end again", []Event{logStart(25, 20)}, nil, logStart(25, 20), unchanged},
		{"log start past the remote end, now in another batch", []Event{logStart(25, 20)}, nil, logStart(25, 21), nil},

		{"remove what is live", nil, nil, removed(2), request.ErrInvalidSegmentState},
		{"remove what is dead", []Event{logStart(10, 0)}, nil, removed(1), nil},
		{"remove what is dead and what is live", []Event{logStart(10, 0)}, nil, removed(1, 2), request.ErrInvalidSegmentState},
		{"remove what is unknown", nil, nil, removed(9), unchanged},
		{"remove what may still be uploaded", nil, at(119), removed(3), request.ErrInvalidSegmentState},
		{"remove what was given up", []Event{AbandonedEvent{LeaderEpoch: 3, ID: id(3)}}, at(119), removed(3), request.ErrInvalidSegmentState},
		{"remove at the deadline", nil, at(120), removed(3), nil},
		{"remove live ones of a deleted topic", nil, deleted, RemovedEvent{LeaderEpoch: -1, IDs: []cluster.SegmentID{id(1), id(2)}}, nil},
		{"remove as many as may be", nil, nil, RemovedEvent{LeaderEpoch: 3, IDs: make([]cluster.SegmentID, MaxRemovedIDs)}, unchanged},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := verdictTable(t)
			for _, ev := range c.before {
				accepted(t, table, verdictContext, ev)
			}
			ctx := verdictContext
			if c.ctx != nil {
				ctx = *c.ctx
			}
			e, err := Apply(ctx, table.Summary, table, c.ev)
			switch {
			case c.want == nil:
				require.NoError(t, err)
				require.True(t, e.Changed)
			case errors.Is(c.want, unchanged):
				require.NoError(t, err)
				require.Equal(t, Edit{Summary: table.Summary}, e)
			default:
				require.ErrorIs(t, err, c.want)
				require.Zero(t, e)
			}
		})
	}
}

func TestRemovedTwiceInOneEventCountsOnce(t *testing.T) {
	table := verdictTable(t)
	accepted(t, table, verdictContext, logStart(10, 0))
	require.EqualValues(t, 1, table.Summary.DeadCount)
	e := accepted(t, table, verdictContext, removed(1, 1))
	require.Equal(t, []cluster.SegmentID{id(1)}, e.Delete)
	require.Zero(t, table.Summary.DeadCount)
	require.Zero(t, table.Summary.DeadBytes)
}

// What compaction will replace goes as what has expired does.
func TestReplacedSegmentsAreRemoved(t *testing.T) {
	table := NewTable()
	table.Commit(Edit{
		Summary: Summary{DeadCount: 1, DeadBytes: 30},
		Put:     []Segment{{SegmentSpan: span(1, 0, 10), State: Replaced, Object: object(nil)}},
	})
	accepted(t, table, verdictContext, removed(1))
	require.Equal(t, Summary{}, table.Summary)
}

func TestUploadsAreBounded(t *testing.T) {
	table := verdictTable(t)
	table.Summary.StartedCount = MaxStarted - 1
	accepted(t, table, verdictContext, started(9, 20, 30))
	_, err := Apply(verdictContext, table.Summary, table, started(10, 20, 30))
	require.ErrorIs(t, err, request.ErrTooManySegments)
}

func TestRemovable(t *testing.T) {
	for _, c := range []struct {
		state State
		now   int64
		want  bool
	}{
		{Started, 119, false},
		{Started, 120, true},
		{Started, 121, true},
		{Live, 121, false},
		{Replaced, 0, true},
		{Expired, 0, true},
		{Gone, 121, false},
	} {
		require.Equal(t, c.want, Segment{State: c.state, DeadlineMs: 120}.Removable(time.UnixMilli(c.now)), "%s at %d", c.state, c.now)
	}
}

func TestTableIsOrdered(t *testing.T) {
	table := NewTable()
	want := []Segment{
		{SegmentSpan: span(5, 0, 10), State: Live},
		{SegmentSpan: span(1, 10, 20), State: Started},
		{SegmentSpan: span(2, 10, 30), State: Started},
		{SegmentSpan: span(0, 20, 30), State: Started},
	}
	for _, i := range []int{2, 0, 3, 1} {
		table.Commit(Edit{Put: want[i : i+1]})
	}
	require.Equal(t, want, table.All())
}

// failing is a reader whose failAt-th call fails, and only that.
type failing struct {
	Reader
	failAt int
	calls  int
}

var errReader = errors.New("reader failed")

func (f *failing) fails() bool {
	f.calls++
	return f.calls == f.failAt
}

func (f *failing) Segment(id cluster.SegmentID) (Segment, bool, error) {
	if f.fails() {
		return Segment{}, false, errReader
	}
	return f.Reader.Segment(id)
}

func (f *failing) LiveAtOrBefore(o cluster.Offset) (Segment, bool, error) {
	if f.fails() {
		return Segment{}, false, errReader
	}
	return f.Reader.LiveAtOrBefore(o)
}

func (f *failing) LiveFrom(o cluster.Offset) iter.Seq2[Segment, error] {
	if f.fails() {
		return func(yield func(Segment, error) bool) { yield(Segment{}, errReader) }
	}
	return f.Reader.LiveFrom(o)
}

// A reader's error is what the caller gets, at whichever of the calls.
func TestReaderErrorsArePassedOn(t *testing.T) {
	table := verdictTable(t)
	sum := table.Summary
	apply := func(ev Event) func(Reader) error {
		return func(r Reader) error {
			e, err := Apply(verdictContext, sum, r, ev)
			if err != nil {
				require.Zero(t, e)
			}
			return err
		}
	}
	for name, ask := range map[string]func(Reader) error{
		"start":   apply(started(9, 20, 30)),
		"publish": apply(published(3, nil)),
		"abandon": apply(AbandonedEvent{LeaderEpoch: 3, ID: id(3)}),
		"up":      apply(logStart(10, 0)),
		"remove":  apply(removed(9)),
		"offset":  func(r Reader) error { _, _, err := FindOffset(sum, r, 7); return err },
		"time":    func(r Reader) error { _, _, err := FindTimestamp(sum, r, -1, 7); return err },
		"epoch":   func(r Reader) error { _, _, err := FindEpoch(sum, r, 2); return err },
	} {
		for _, wrap := range []func(Reader) Reader{
			func(r Reader) Reader { return r },
			func(r Reader) Reader { return NewOverlay(r) },
		} {
			counted := &failing{Reader: table}
			require.NoError(t, ask(wrap(counted)), name)
			require.Positive(t, counted.calls, name)
			for n := 1; n <= counted.calls; n++ {
				require.ErrorIs(t, ask(wrap(&failing{Reader: table, failAt: n})), errReader, "%s, call %d", name, n)
			}
		}
	}
}

// Edits over stored segments, as a compaction would make them: some hide what
// is stored, one puts another segment in between.
func TestOverlayOverStoredSegments(t *testing.T) {
	stored, now := NewTable(), NewTable()
	put := func(n int, base, end cluster.Offset, state State) Segment {
		return Segment{SegmentSpan: span(n, base, end), State: state}
	}
	edits := []Edit{
		{Put: []Segment{put(1, 0, 10, Live), put(2, 10, 20, Live), put(3, 20, 30, Live), put(4, 30, 40, Live)}},
		{Put: []Segment{put(1, 0, 10, Expired), put(2, 10, 20, Replaced), put(5, 10, 15, Live), put(6, 15, 20, Live)}},
		{Put: []Segment{put(3, 20, 30, Replaced)}, Delete: []cluster.SegmentID{id(1), id(2)}},
	}
	stored.Commit(edits[0])
	over := NewOverlay(stored)
	for i, e := range edits {
		now.Commit(e)
		if i > 0 {
			over.Add(e)
		}
		require.Equal(t, listed(now), listed(over))
		for o := cluster.Offset(0); o <= 41; o++ {
			want, wantOK, _ := now.LiveAtOrBefore(o)
			got, ok, err := over.LiveAtOrBefore(o)
			require.NoError(t, err)
			require.Equal(t, wantOK, ok, o)
			require.Equal(t, want, got, o)
		}
	}
	_, ok, err := over.Segment(id(1))
	require.NoError(t, err)
	require.False(t, ok)
}
