package coordinator

import (
	"log/slog"
	"time"

	"strandline/metadata/cluster"
)

// Limits of a Runtime. Zero means the default.
type Limits struct {
	// QueueMax bounds the events that wait for one partition; Do answers
	// ErrBusy above it.
	QueueMax int
	// BatchRecords bounds the records of one batch; its bytes are bounded by
	// max.message.bytes.
	BatchRecords int
	// InFlightBytes bounds the records of one partition that are appended and
	// not committed: above it no event runs until some are.
	InFlightBytes int
	// Appliers bounds the partitions that are fed from their log at once,
	// where they are followers or being loaded.
	Appliers int
	// ApplyBytes is how much of the log is applied in one batch.
	ApplyBytes int
}

// Limits that LimitHit is told.
const (
	LimitQueue    = "coordinator.queue"
	LimitInFlight = "coordinator.in.flight"
)

// Config is what a Runtime is made of.
type Config struct {
	Topic  string // the internal topic, for messages
	Views  *Views
	Schema Schema
	// NewMachine makes the state of a partition that this broker begins to
	// lead. It is called by the shard's goroutine.
	NewMachine func(partition int32, epoch cluster.LeaderEpoch) Machine
	Limits     Limits
	Now        func() time.Time   // nil: time.Now
	LimitHit   func(limit string) // nil: nobody counts
	Logger     *slog.Logger       // nil: none
}

// Status describes a Runtime.
type Status struct {
	// Partitions hosted here; of those that this broker leads, Loading ones
	// take no event yet.
	Partitions, Leading, Loading int
	// Lag is the number of offsets between views and high watermarks.
	Lag int64
	// Rebuilt counts the views that were dropped and built again.
	Rebuilt int64
}

// Runtime runs the partitions of one internal topic that are hosted here. Its
// methods may be called from several goroutines at once.
type Runtime struct {
	cfg Config
}

// New starts a runtime; Close ends it.
func New(cfg Config) *Runtime {
	return &Runtime{cfg: cfg}
}

// Host tells of a replica of the topic that is hosted here from now on, instead
// of a former one of the same partition. It does not block.
func (r *Runtime) Host(p Partition) {}

// Unhost tells that a replica is not hosted here any more; its view is dropped.
// It does not block.
func (r *Runtime) Unhost(tp cluster.TopicPartition) {}

// Do queues an event for the partition's shard, which runs fn once, on its
// goroutine, in the order of the calls. It fails with ErrNotCoordinator,
// ErrLoading, ErrBusy or ErrClosed, and then fn is never called. It does not wait
// for fn. Where leadership ends before fn has run, fn runs all the same, before
// Machine.Unload, and what it appends fails.
func (r *Runtime) Do(partition int32, fn func(now time.Time, m Machine, tx *Tx)) error {
	return ErrNotCoordinator
}

// Read calls fn, on the caller's goroutine, with a reader of the partition's view
// at one moment: everything whose function given to Then has run with nil, and
// nothing that is not committed. The reader is valid until fn returns, and fn must
// be quick. It fails with ErrNotCoordinator, ErrLoading, ErrClosed or fn's error.
func (r *Runtime) Read(partition int32, fn func(Reader) error) error {
	return ErrNotCoordinator
}

// Led returns the partitions that this broker leads, those that are loaded and
// those that are not yet.
func (r *Runtime) Led() (loaded, loading []int32) { return nil, nil }

// Status returns the current figures.
func (r *Runtime) Status() Status { return Status{} }

// Close ends every shard (Machine.Unload with ErrClosed) and every applier, and
// makes the views durable. It may be called more than once.
func (r *Runtime) Close() error { return nil }
