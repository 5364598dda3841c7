package catalog

import (
	"iter"
	"time"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

// State tells where a segment is in its life.
type State uint8

// States of a segment.
const (
	Started  State = 1 // the upload was announced; an object may or may not exist
	Live     State = 2 // complete, readable and named
	Replaced State = 3 // compaction put other segments in its place
	Expired  State = 4 // below the log start, or its topic was deleted
	Gone     State = 5 // forgotten; never stored
)

func (s State) String() string {
	switch s {
	case Started:
		return "started"
	case Live:
		return "live"
	case Replaced:
		return "replaced"
	case Expired:
		return "expired"
	case Gone:
		return "gone"
	}
	return "unknown"
}

// Segment is one remote segment. It is a value: copies share nothing.
type Segment struct {
	request.SegmentSpan
	// StartEpoch is the leader epoch under which the upload was announced:
	// only that tenure may publish it.
	StartEpoch cluster.LeaderEpoch
	// Object is set from Live on.
	Object request.ObjectSummary
	State  State
	// Abandoned marks a started segment that its uploader gave up.
	Abandoned bool
	// DeadlineMs is when the upload is given up for certain, in Unix ms.
	DeadlineMs int64
	// ChangedMs is when the state last changed, in Unix ms: the grace time of
	// a replaced or expired segment counts from here.
	ChangedMs int64
	// PrefixMaxTimestamp is the highest MaxTimestamp of this and of all
	// segments published before it; -1: none.
	PrefixMaxTimestamp int64
}

// Removable tells whether the segment's object may be deleted and the segment
// forgotten at now, the grace time and manifests apart.
func (s Segment) Removable(now time.Time) bool {
	switch s.State {
	case Replaced, Expired:
		return true
	case Started:
		return now.UnixMilli() >= s.DeadlineMs
	}
	return false
}

// Summary is what is known of a partition without reading its segments.
type Summary struct {
	LogStart  cluster.Offset // first readable offset, inclusive
	RemoteEnd cluster.Offset // one past the last published offset
	// Location is the location id of the last published segment's store.
	Location string
	// LiveCount, LiveBytes (whole objects) and LiveSegmentBytes (their record
	// batches alone, what size retention counts) cover live segments.
	LiveCount        int64
	LiveBytes        int64
	LiveSegmentBytes int64
	StartedCount     int64 // started, given up or not
	DeadCount        int64 // replaced or expired, not yet gone
	DeadBytes        int64
	// MaxTimestamp is the highest timestamp ever published; -1: none.
	MaxTimestamp int64
	// LastEpoch is the leader epoch of the last published batch; -1: none.
	LastEpoch cluster.LeaderEpoch
}

// NewSummary is the summary of a partition of which nothing was ever said.
func NewSummary() Summary {
	return Summary{MaxTimestamp: -1, LastEpoch: cluster.NoLeaderEpoch}
}

// Reader reads the segments of one partition. State implements it over its
// store, Table in memory. It may be called from one goroutine at a time. An
// error ends the lookup and is returned as it is.
type Reader interface {
	// Segment returns the segment of that id, in whatever state.
	Segment(id cluster.SegmentID) (Segment, bool, error)
	// LiveAtOrBefore returns the live segment with the highest base offset
	// that is at most o.
	LiveAtOrBefore(o cluster.Offset) (Segment, bool, error)
	// LiveFrom yields the live segments whose base offset is at least o, in
	// order.
	LiveFrom(o cluster.Offset) iter.Seq2[Segment, error]
}

// Edit is the outcome of an event: what to store. Put holds whole segments; a
// segment that is put as not live leaves the live ones (its base offset stays
// the same), and Delete names segments, none of them live, to forget.
type Edit struct {
	Summary Summary
	Put     []Segment
	Delete  []cluster.SegmentID
	// Changed is false where the event changes nothing at all.
	Changed bool
}

// Event is one of the types below. Each is what a command says of one
// partition.
type Event interface{ isEvent() }

// StartedEvent announces an upload.
type StartedEvent struct {
	LeaderEpoch cluster.LeaderEpoch
	Span        request.SegmentSpan
	DeadlineMs  int64
}

// PublishedEvent makes a started segment live.
type PublishedEvent struct {
	LeaderEpoch cluster.LeaderEpoch
	ID          cluster.SegmentID
	Object      request.ObjectSummary
}

// AbandonedEvent gives up a started segment.
type AbandonedEvent struct {
	LeaderEpoch cluster.LeaderEpoch
	ID          cluster.SegmentID
}

// LogStartEvent moves the log start forward and expires what lies below it.
type LogStartEvent struct {
	LeaderEpoch cluster.LeaderEpoch
	Offset      cluster.Offset
	BatchBase   cluster.Offset
}

// RemovedEvent forgets segments whose objects are deleted.
type RemovedEvent struct {
	LeaderEpoch cluster.LeaderEpoch // NoLeaderEpoch for a deleted topic
	IDs         []cluster.SegmentID
}

func (StartedEvent) isEvent()   {}
func (PublishedEvent) isEvent() {}
func (AbandonedEvent) isEvent() {}
func (LogStartEvent) isEvent()  {}
func (RemovedEvent) isEvent()   {}

// Context is what an event is judged against besides the partition itself.
type Context struct {
	// LeaderEpoch is the partition's current one in the image.
	LeaderEpoch cluster.LeaderEpoch
	// Deleted is set where the topic is deleted: only RemovedEvent is then
	// allowed.
	Deleted bool
	// NowMs is the time of the command, in Unix ms.
	NowMs int64
}

// DeletedTopic is what stays of a deleted topic until its objects are gone.
type DeletedTopic struct {
	Topic      cluster.TopicID
	Name       string
	Partitions int32
	DeletedMs  int64
}

// Effective is the segment as it counts now that its topic is deleted.
func (d DeletedTopic) Effective(s Segment) Segment {
	if s.State == Live || s.State == Replaced {
		s.ChangedMs = max(s.ChangedMs, d.DeletedMs)
		s.State = Expired
	}
	return s
}
