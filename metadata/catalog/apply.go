package catalog

import (
	"fmt"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

// Bounds of what one partition may pile up and one event may name.
const (
	MaxStarted    = 1024 // unfinished uploads of a partition
	MaxRemovedIDs = 4096 // ids of one RemovedEvent
)

// Apply judges one event against a partition and gives what to store. It reads
// through r and changes nothing. A refused event answers one of the sentinels
// of package request; any other error comes from r.
//
// Starting, publishing, giving up and removing once more what already is so
// changes nothing and is no error: a leader that never heard the answer may ask
// again.
func Apply(ctx Context, sum Summary, r Reader, ev Event) (Edit, error) {
	if err := checkEpoch(ctx, epochOf(ev)); err != nil {
		return Edit{}, err
	}
	if ctx.Deleted {
		if _, ok := ev.(RemovedEvent); !ok {
			return Edit{}, request.Refuse(request.ErrUnknownTopicID, "the topic is deleted")
		}
	}
	switch ev := ev.(type) {
	case StartedEvent:
		return start(ctx, sum, r, ev)
	case PublishedEvent:
		return publish(ctx, sum, r, ev)
	case AbandonedEvent:
		return abandon(ctx, sum, r, ev)
	case LogStartEvent:
		return advanceLogStart(ctx, sum, r, ev)
	case RemovedEvent:
		return remove(ctx, sum, r, ev)
	}
	return Edit{}, fmt.Errorf("catalog event %T is not known", ev)
}

func epochOf(ev Event) cluster.LeaderEpoch {
	switch ev := ev.(type) {
	case StartedEvent:
		return ev.LeaderEpoch
	case PublishedEvent:
		return ev.LeaderEpoch
	case AbandonedEvent:
		return ev.LeaderEpoch
	case LogStartEvent:
		return ev.LeaderEpoch
	case RemovedEvent:
		return ev.LeaderEpoch
	}
	return cluster.NoLeaderEpoch
}

func checkEpoch(ctx Context, asked cluster.LeaderEpoch) error {
	switch {
	case ctx.Deleted && asked != cluster.NoLeaderEpoch:
		return request.Refuse(request.ErrUnknownTopicID, "the topic is deleted")
	case ctx.Deleted || asked == ctx.LeaderEpoch:
		return nil
	case asked < ctx.LeaderEpoch:
		return request.Refuse(request.ErrFencedLeaderEpoch,
			"leader epoch %d is over, the partition is at %d", asked, ctx.LeaderEpoch)
	}
	return request.Refuse(request.ErrNotController,
		"leader epoch %d is not known here yet, the partition is at %d", asked, ctx.LeaderEpoch)
}

func start(ctx Context, sum Summary, r Reader, ev StartedEvent) (Edit, error) {
	sp := ev.Span
	if sp.End <= sp.Base || sp.Key == "" || sp.LeaderEpoch > ev.LeaderEpoch {
		return Edit{}, request.Refuse(request.ErrInvalidRequest,
			"segment [%d, %d) of epoch %d under key %q is not well formed", sp.Base, sp.End, sp.LeaderEpoch, sp.Key)
	}
	old, ok, err := r.Segment(sp.ID)
	if err != nil {
		return Edit{}, err
	}
	if ok {
		if old.SegmentSpan == sp && old.State == Started && !old.Abandoned && old.StartEpoch == ev.LeaderEpoch {
			return Edit{Summary: sum}, nil
		}
		return Edit{}, request.Refuse(request.ErrInvalidSegmentState,
			"segment %s exists already and is %s", sp.ID, old.State)
	}
	if sp.Base != sum.RemoteEnd {
		return Edit{}, request.Refuse(request.ErrSegmentNotContiguous,
			"segment starts at %d, the remote end offset is %d", sp.Base, sum.RemoteEnd)
	}
	if sp.End <= sum.LogStart {
		return Edit{}, below(sp.End, sum)
	}
	if ev.DeadlineMs <= ctx.NowMs {
		return Edit{}, request.Refuse(request.ErrInvalidRequest, "the deadline of the upload has passed")
	}
	if sum.StartedCount >= MaxStarted {
		return Edit{}, request.Refuse(request.ErrTooManySegments,
			"%d uploads of this partition are unfinished; the sweeper removes them once their deadline has passed",
			sum.StartedCount)
	}
	sum.StartedCount++
	return Edit{Summary: sum, Changed: true, Put: []Segment{{
		SegmentSpan: sp, StartEpoch: ev.LeaderEpoch, State: Started,
		DeadlineMs: ev.DeadlineMs, ChangedMs: ctx.NowMs, PrefixMaxTimestamp: -1,
	}}}, nil
}

func publish(ctx Context, sum Summary, r Reader, ev PublishedEvent) (Edit, error) {
	s, ok, err := r.Segment(ev.ID)
	switch {
	case err != nil:
		return Edit{}, err
	case !ok:
		return Edit{}, request.Refuse(request.ErrUnknownSegment, "segment %s was never announced", ev.ID)
	case s.State == Live && s.Object == ev.Object && s.StartEpoch == ev.LeaderEpoch:
		return Edit{Summary: sum}, nil
	case s.State != Started || s.Abandoned:
		return Edit{}, request.Refuse(request.ErrInvalidSegmentState,
			"segment %s is %s, given up: %t", ev.ID, s.State, s.Abandoned)
	case s.StartEpoch != ev.LeaderEpoch:
		return Edit{}, request.Refuse(request.ErrFencedLeaderEpoch,
			"segment %s was announced under leader epoch %d, not %d", ev.ID, s.StartEpoch, ev.LeaderEpoch)
	case ctx.NowMs >= s.DeadlineMs:
		return Edit{}, request.Refuse(request.ErrInvalidSegmentState,
			"the deadline of segment %s has passed", ev.ID)
	case s.Base != sum.RemoteEnd:
		return Edit{}, request.Refuse(request.ErrSegmentNotContiguous,
			"segment starts at %d, the remote end offset is %d", s.Base, sum.RemoteEnd)
	case s.End <= sum.LogStart:
		return Edit{}, below(s.End, sum)
	}
	if err := checkObject(sum, ev); err != nil {
		return Edit{}, err
	}
	s.State, s.Object, s.ChangedMs = Live, ev.Object, ctx.NowMs
	sum.MaxTimestamp = max(sum.MaxTimestamp, ev.Object.MaxTimestamp)
	s.PrefixMaxTimestamp = sum.MaxTimestamp
	sum.RemoteEnd, sum.LastEpoch, sum.Location = s.End, ev.Object.LastEpoch, s.Location
	sum.StartedCount--
	sum.LiveCount++
	sum.LiveBytes += s.Object.ObjectBytes
	sum.LiveSegmentBytes += s.Object.SegmentBytes
	return Edit{Summary: sum, Put: []Segment{s}, Changed: true}, nil
}

func below(end cluster.Offset, sum Summary) error {
	return request.Refuse(request.ErrOffsetOutOfRange,
		"segment ends at %d, not past the log start offset %d", end, sum.LogStart)
}

// checkObject refuses a summary that no complete object of this partition can
// have.
func checkObject(sum Summary, ev PublishedEvent) error {
	o := ev.Object
	ok := o.SegmentBytes > 0 && o.IndexPosition >= o.SegmentBytes && o.IndexBytes >= 0 && o.FooterBytes >= 0 &&
		o.IndexPosition <= o.ObjectBytes && o.IndexBytes <= o.ObjectBytes-o.IndexPosition &&
		o.FooterBytes <= o.ObjectBytes-o.IndexPosition-o.IndexBytes &&
		o.RecordCount >= 0 && o.MaxTimestamp >= -1 && o.FirstEpoch <= o.LastEpoch && o.LastEpoch <= ev.LeaderEpoch
	if !ok {
		return request.Refuse(request.ErrInvalidRequest, "segment %s: the object's summary contradicts itself", ev.ID)
	}
	if o.FirstEpoch < sum.LastEpoch {
		return request.Refuse(request.ErrInvalidRequest,
			"segment %s starts in leader epoch %d, the one before it ends in %d", ev.ID, o.FirstEpoch, sum.LastEpoch)
	}
	return nil
}

func abandon(ctx Context, sum Summary, r Reader, ev AbandonedEvent) (Edit, error) {
	s, ok, err := r.Segment(ev.ID)
	switch {
	case err != nil:
		return Edit{}, err
	case !ok:
		return Edit{}, request.Refuse(request.ErrUnknownSegment, "segment %s is not in the catalog", ev.ID)
	case s.State != Started:
		return Edit{}, request.Refuse(request.ErrInvalidSegmentState, "segment %s is %s", ev.ID, s.State)
	case s.Abandoned:
		return Edit{Summary: sum}, nil
	}
	s.Abandoned, s.ChangedMs = true, ctx.NowMs
	return Edit{Summary: sum, Put: []Segment{s}, Changed: true}, nil
}

func advanceLogStart(ctx Context, sum Summary, r Reader, ev LogStartEvent) (Edit, error) {
	// Past the remote end nothing remote is left, and the next upload starts at
	// the batch that holds the log start: also where only that batch changed,
	// as in a log that was lost and began anew at the log start.
	past := ev.Offset > sum.RemoteEnd
	if ev.Offset < sum.LogStart || ev.Offset == sum.LogStart && !(past && ev.BatchBase > sum.RemoteEnd) {
		return Edit{Summary: sum}, nil
	}
	if past && (ev.BatchBase > ev.Offset || ev.BatchBase < sum.RemoteEnd) {
		return Edit{}, request.Refuse(request.ErrInvalidRequest,
			"no local batch that holds offset %d can start at %d: the remote end offset is %d",
			ev.Offset, ev.BatchBase, sum.RemoteEnd)
	}
	e := Edit{Changed: true}
	for s, err := range r.LiveFrom(0) {
		if err != nil {
			return Edit{}, err
		}
		if s.End > ev.Offset {
			break
		}
		s.State, s.ChangedMs = Expired, ctx.NowMs
		e.Put = append(e.Put, s)
		sum.LiveCount--
		sum.LiveBytes -= s.Object.ObjectBytes
		sum.LiveSegmentBytes -= s.Object.SegmentBytes
		sum.DeadCount++
		sum.DeadBytes += s.Object.ObjectBytes
	}
	sum.LogStart = ev.Offset
	if past {
		sum.RemoteEnd = ev.BatchBase
	}
	e.Summary = sum
	return e, nil
}

func remove(ctx Context, sum Summary, r Reader, ev RemovedEvent) (Edit, error) {
	if len(ev.IDs) > MaxRemovedIDs {
		return Edit{}, request.Refuse(request.ErrInvalidRequest,
			"%d segments are too many for one request, the bound is %d", len(ev.IDs), MaxRemovedIDs)
	}
	e := Edit{}
	seen := make(map[cluster.SegmentID]bool, len(ev.IDs))
	for _, id := range ev.IDs {
		s, ok, err := r.Segment(id)
		if err != nil {
			return Edit{}, err
		}
		if !ok || seen[id] {
			continue
		}
		seen[id] = true
		switch {
		case ctx.Deleted && s.State == Live:
			sum.LiveCount--
			sum.LiveBytes -= s.Object.ObjectBytes
			sum.LiveSegmentBytes -= s.Object.SegmentBytes
		case s.State == Replaced || s.State == Expired:
			sum.DeadCount--
			sum.DeadBytes -= s.Object.ObjectBytes
		case s.State == Started && ctx.NowMs >= s.DeadlineMs:
			sum.StartedCount--
		default:
			return Edit{}, request.Refuse(request.ErrInvalidSegmentState,
				"segment %s is %s and its object may still be needed or written", id, s.State)
		}
		e.Delete = append(e.Delete, id)
		e.Changed = true
	}
	e.Summary = sum
	return e, nil
}
