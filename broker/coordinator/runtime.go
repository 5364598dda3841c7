package coordinator

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
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
	Codec      recordbatch.Codec  // compression of what is appended
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
	cfg     Config
	slots   chan struct{} // Limits.Appliers
	closing chan struct{}
	kick    chan struct{} // cap 1: wakes the watcher
	woken   *partition.Waiter
	workers sync.WaitGroup
	rebuilt atomic.Int64
	// led are the shards by partition; replaced as a whole, under mu.
	led atomic.Pointer[map[int32]*shard]

	mu struct {
		sync.Mutex
		closed   bool
		replicas map[cluster.TopicPartition]*replica
	}
	closeOnce sync.Once
	closeErr  error
}

// New starts a runtime; Close ends it.
func New(cfg Config) *Runtime {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.LimitHit == nil {
		cfg.LimitHit = func(string) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runtime{
		cfg: cfg, slots: make(chan struct{}, cfg.Limits.Appliers), closing: make(chan struct{}),
		kick: make(chan struct{}, 1), woken: partition.NewWaiter(),
	}
	r.led.Store(&map[int32]*shard{})
	r.mu.replicas = map[cluster.TopicPartition]*replica{}
	r.workers.Go(r.watch)
	r.workers.Go(r.keep)
	return r
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		value     *int
		otherwise int
	}{
		{&l.QueueMax, 16384}, {&l.BatchRecords, 8192}, {&l.InFlightBytes, 8 << 20}, {&l.Appliers, 4}, {&l.ApplyBytes, 256 << 10},
	} {
		if *d.value <= 0 {
			*d.value = d.otherwise
		}
	}
	return l
}

// Do queues an event for the partition's shard, which runs fn once, on its
// goroutine, in the order of the calls. It fails with ErrNotCoordinator,
// ErrLoading, ErrBusy or ErrClosed, and then fn is never called. It does not wait
// for fn. Where leadership ends before fn has run, fn runs all the same, before
// Machine.Unload, and what it appends fails.
func (r *Runtime) Do(partition int32, fn func(now time.Time, m Machine, tx *Tx)) error {
	err := errEnded
	if s := (*r.led.Load())[partition]; s != nil {
		err = s.do(fn)
	}
	return r.explain(partition, err)
}

// explain says what errEnded means now: a partition that is led is loaded sooner
// or later.
func (r *Runtime) explain(partition int32, err error) error {
	switch {
	case !errors.Is(err, errEnded):
		return err
	case r.closed():
		return ErrClosed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for tp, rep := range r.mu.replicas {
		if tp.Partition == partition && !rep.gone.Load() && rep.p.LogState().Leading {
			return ErrLoading
		}
	}
	return ErrNotCoordinator
}

func (r *Runtime) closed() bool {
	select {
	case <-r.closing:
		return true
	default:
		return false
	}
}

// Read calls fn, on the caller's goroutine, with a reader of the partition's view
// at one moment: everything whose function given to Then has run with nil, and
// nothing that is not committed. The reader is valid until fn returns, and fn must
// be quick. It fails with ErrNotCoordinator, ErrLoading, ErrClosed or fn's error.
func (r *Runtime) Read(partition int32, fn func(Reader) error) error {
	s := (*r.led.Load())[partition]
	if s == nil {
		return r.explain(partition, errEnded)
	}
	if err := s.readable(); err != nil {
		return r.explain(partition, err)
	}
	snap, err := s.db.Snapshot()
	if err != nil {
		return ErrLoading // it was replaced
	}
	defer func() { _ = snap.Close() }()
	// A view that is dropped belongs to no shard that serves: what was taken
	// before this is whole.
	if err := s.readable(); err != nil {
		return r.explain(partition, err)
	}
	err = fn(snapshotReader{snap: snap, tp: s.rep.tp})
	if err != nil {
		r.cfg.Views.damaged(s.db, err)
	}
	return err
}

// Led returns the partitions that this broker leads, those that are loaded and
// those that are not yet, in no order. Every one is in one of the two from when
// its replica leads: what is asked of all of them is then known to be whole.
func (r *Runtime) Led() (loaded, loading []int32) {
	loaded, loading, failed := r.Loaded()
	return loaded, append(loading, failed...)
}

// Loaded is Led with, apart from those that are loading, those whose last attempt
// failed: they are tried again, and may fail for ever.
func (r *Runtime) Loaded() (loaded, loading, failed []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for tp, rep := range r.mu.replicas {
		switch st := rep.p.LogState(); {
		case rep.gone.Load() || !st.Leading || st.Offline != nil:
		case rep.shard != nil && rep.shard.epoch == st.LeaderEpoch && rep.shard.readable() == nil:
			loaded = append(loaded, tp.Partition)
		case rep.lastErr != "":
			failed = append(failed, tp.Partition)
		default:
			loading = append(loading, tp.Partition)
		}
	}
	return loaded, loading, failed
}

// Status returns the current figures.
func (r *Runtime) Status() Status {
	st := Status{Rebuilt: r.rebuilt.Load()}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rep := range r.mu.replicas {
		if rep.gone.Load() {
			continue
		}
		st.Partitions++
		if lag := rep.p.LogState().HighWatermark - cluster.Offset(rep.applied.Load()); lag > 0 {
			st.Lag += int64(lag)
		}
		if s := rep.shard; s != nil {
			st.Leading++
			if s.phase.Load() == loadingPhase {
				st.Loading++
			}
		}
	}
	return st
}

// Close ends every shard (Machine.Unload with ErrClosed) and every applier, and
// makes the views durable. It may be called more than once.
func (r *Runtime) Close() error {
	r.closeOnce.Do(func() {
		r.mu.Lock()
		r.mu.closed = true
		r.mu.Unlock()
		close(r.closing)
		r.workers.Wait()
		r.closeErr = r.cfg.Views.Sync()
	})
	return r.closeErr
}
