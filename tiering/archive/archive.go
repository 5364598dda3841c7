package archive

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"strandline/broker/locallog"
	"strandline/broker/partition"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/watch"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore"
	"strandline/tiering/segmentobject"
)

// Replica is what the archive needs of a hosted partition.
type Replica interface {
	TopicPartition() cluster.TopicPartition
	Topic() string
	Settings() config.Topic
	LogStartOffset() cluster.Offset
	// Archivable returns the sealed segments that reach past from and may leave
	// (I6), in order, and the leader epoch to publish them under; none where
	// this replica does not lead.
	Archivable(from cluster.Offset) ([]locallog.SegmentInfo, cluster.LeaderEpoch)
	OpenSealed(base cluster.Offset) (*locallog.SealedView, error)
	// AbortedTxns returns the aborted transactions that overlap [from, to),
	// wherever their markers are.
	AbortedTxns(from, to cluster.Offset) ([]producerstate.AbortedTxn, error)
	BatchBase(offset cluster.Offset) (cluster.Offset, error)
	Status() partition.Status
}

// Steps that Config.Hook is told of, while they are half done.
const (
	// StepUpload: the object is complete, the catalog does not say so yet.
	StepUpload = "upload"
	// StepPublish: the catalog says so, nobody here has acted on it yet.
	StepPublish = "publish"
)

// Defaults of Config.
const (
	DefaultWorkers        = 4
	DefaultInterval       = 30 * time.Second
	DefaultUploadDeadline = 10 * time.Minute
	DefaultProbeInterval  = 30 * time.Second
)

// Config is what an Archiver is made of.
type Config struct {
	Store     objstore.Store
	Ownership *manifest.Ownership
	Submitter watch.Submitter
	Catalog   watch.Catalog
	// Replicas yields the partitions hosted here, Replica finds one.
	Replicas func() iter.Seq[Replica]
	Replica  func(tp cluster.TopicPartition) (Replica, bool)
	// Workers bounds the uploads at a time.
	Workers int
	// Interval is how often all partitions are looked at, and how long after
	// Start that begins (remote.log.manager.task.interval.ms).
	Interval time.Duration
	// UploadDeadline is when an upload is cancelled; its intent lasts longer.
	UploadDeadline time.Duration
	// ProbeInterval is how often the store is asked whether it is there.
	ProbeInterval time.Duration
	// Hook is told of named steps; nil in production.
	Hook   func(step string)
	Logger *slog.Logger
	Now    func() time.Time
}

func (c *Config) setDefaults() {
	if c.Workers <= 0 {
		c.Workers = DefaultWorkers
	}
	if c.Interval <= 0 {
		c.Interval = DefaultInterval
	}
	if c.UploadDeadline <= 0 {
		c.UploadDeadline = DefaultUploadDeadline
	}
	if c.ProbeInterval <= 0 {
		c.ProbeInterval = DefaultProbeInterval
	}
	if c.Hook == nil {
		c.Hook = func(string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

// task is the work on one partition. Its fields are guarded by Archiver.mu,
// intent by whoever runs it.
type task struct {
	tp       cluster.TopicPartition
	queued   bool
	running  bool
	again    bool // woken while running
	failures int
	timer    *time.Timer // of the pause after a failure
	lastErr  error
	intent   *intent
}

// Archiver copies segments up.
type Archiver struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	health *health
	rescan chan struct{}
	counts counts

	mu     sync.Mutex
	work   *sync.Cond // ready or closed changed
	closed bool
	tasks  map[cluster.TopicPartition]*task
	ready  []*task // first come, first served: one segment a turn
}

// New returns an Archiver that does nothing before Start.
func New(cfg Config) *Archiver {
	cfg.setDefaults()
	a := &Archiver{cfg: cfg, rescan: make(chan struct{}, 1), tasks: make(map[cluster.TopicPartition]*task)}
	a.work = sync.NewCond(&a.mu)
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.health = newHealth(cfg, a.Rescan)
	return a
}

// Start begins to work. It returns at once, whatever the store does.
func (a *Archiver) Start() {
	a.done.Go(a.schedule)
	a.done.Go(func() { a.health.run(a.ctx) })
	for range a.cfg.Workers {
		a.done.Go(a.labour)
	}
}

// Close cancels what is under way and waits for it. Intents stay in the catalog.
func (a *Archiver) Close() error {
	a.cancel()
	a.mu.Lock()
	a.closed = true
	for _, t := range a.tasks {
		if t.timer != nil {
			t.timer.Stop()
		}
	}
	a.work.Broadcast()
	a.mu.Unlock()
	a.done.Wait()
	return nil
}

// Wake says that a partition has sealed a segment or may offer more than before.
func (a *Archiver) Wake(tp cluster.TopicPartition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tasks[tp]
	if t == nil {
		t = &task{tp: tp}
		a.tasks[tp] = t
	}
	if t.timer == nil {
		a.enqueueLocked(t)
	}
}

// Rescan makes every partition be looked at now, pauses after failures
// notwithstanding.
func (a *Archiver) Rescan() {
	select {
	case a.rescan <- struct{}{}:
	default:
	}
}

func (a *Archiver) enqueueLocked(t *task) {
	switch {
	case a.closed || t.queued:
	case t.running:
		t.again = true
	default:
		t.queued = true
		a.ready = append(a.ready, t)
		a.work.Signal()
	}
}

// schedule looks at all partitions every Interval: what no wake told of is found
// here.
func (a *Archiver) schedule() {
	ticker := time.NewTicker(a.cfg.Interval)
	defer ticker.Stop()
	for {
		eager := false
		select {
		case <-a.ctx.Done():
			return
		case <-ticker.C:
		case <-a.rescan:
			eager = true
		}
		a.scan(eager)
	}
}

func (a *Archiver) scan(eager bool) {
	hosted := make(map[cluster.TopicPartition]bool)
	for r := range a.cfg.Replicas() {
		tp := r.TopicPartition()
		hosted[tp] = true
		if a.hasWork(r) {
			if eager {
				a.forgetPause(tp)
			}
			a.Wake(tp)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for tp, t := range a.tasks {
		if !hosted[tp] && !t.queued && !t.running {
			if t.timer != nil {
				t.timer.Stop()
			}
			delete(a.tasks, tp)
		}
	}
}

func (a *Archiver) forgetPause(tp cluster.TopicPartition) {
	a.mu.Lock()
	if t := a.tasks[tp]; t != nil && t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	a.mu.Unlock()
}

func (a *Archiver) hasWork(r Replica) bool {
	s := r.Settings()
	if !s.Tiered || s.TierCopyDisabled {
		return false
	}
	sum, _ := a.cfg.Catalog.Summary(r.TopicPartition())
	segments, _ := r.Archivable(sum.RemoteEnd)
	return len(segments) > 0
}

// labour is one worker: one segment of one partition at a time.
func (a *Archiver) labour() {
	for {
		a.mu.Lock()
		for len(a.ready) == 0 && !a.closed {
			a.work.Wait()
		}
		if a.closed {
			a.mu.Unlock()
			return
		}
		t := a.ready[0]
		a.ready = a.ready[1:]
		t.queued, t.running, t.again = false, true, false
		a.mu.Unlock()
		more, err := a.step(a.ctx, t)
		a.finish(t, more, err)
	}
}

// Pauses after failures.
const (
	pauseMin     = 200 * time.Millisecond
	pauseMax     = 10 * time.Second
	pauseCorrupt = time.Minute
)

func pause(failures int, err error) time.Duration {
	p := pauseMax
	if errors.Is(err, segmentobject.ErrCorrupt) {
		p = pauseCorrupt
	} else if failures < 7 {
		p = min(p, pauseMin<<failures)
	}
	return p/2 + rand.N(p/2)
}

func (a *Archiver) finish(t *task, more bool, err error) {
	topic := "" // of one that left meanwhile
	if err != nil {
		if r, ok := a.cfg.Replica(t.tp); ok {
			topic = r.Topic()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t.running = false
	if a.closed {
		return
	}
	if err == nil {
		t.failures, t.lastErr = 0, nil
		if more || t.again {
			a.enqueueLocked(t)
		}
		return
	}
	a.counts.failures.Add(1)
	if (t.lastErr == nil || t.lastErr.Error() != err.Error()) && !errors.Is(err, manifest.ErrCopy) {
		a.cfg.Logger.Warn("copying a segment to the store failed and is tried again", "topic", topic, "topic_id", t.tp.Topic, "partition", t.tp.Partition, "error", err)
	}
	t.lastErr = err
	p := pause(t.failures, err)
	t.failures++
	t.timer = time.AfterFunc(p, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		t.timer = nil
		a.enqueueLocked(t)
	})
}
