package sweep

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/image"
	"strandline/metadata/request"
	"strandline/metadata/watch"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore"
)

// Replica is what sweeping needs of a hosted partition.
type Replica interface {
	TopicPartition() cluster.TopicPartition
	Topic() string
	Settings() config.Topic
	Leading() (cluster.LeaderEpoch, bool)
	Status() partition.Status
	// AdvanceLogStart makes the offset the log start, durably in the catalog.
	AdvanceLogStart(ctx context.Context, to cluster.Offset) (cluster.Offset, error)
}

// Defaults of Config.
const (
	DefaultInterval         = 30 * time.Second
	DefaultManifestInterval = 10 * time.Second
	DefaultDeleteDelay      = time.Minute
	DefaultScrubInterval    = 24 * time.Hour
)

// Config is what a Sweeper is made of.
type Config struct {
	Store     objstore.Store
	Ownership *manifest.Ownership
	Submitter watch.Submitter
	Catalog   watch.Catalog
	// Topic finds a topic of the image.
	Topic func(id cluster.TopicID) (*image.Topic, bool)
	// Subscribe delivers changes of the image (watch.Watch.Subscribe); nil:
	// changed configs reach manifests with the next change of the catalog.
	Subscribe func(fn func(img *image.Image, d *image.Delta)) (cancel func())
	// Replicas yields the partitions hosted here.
	Replicas func() iter.Seq[Replica]
	// Responsible tells whether this broker sees to deleted topics and scrubs:
	// one of the cluster at a time.
	Responsible func() bool
	ClusterID   string
	// Dropped is told of segments whose objects were deleted; may be nil.
	Dropped func(id cluster.SegmentID)

	Interval         time.Duration // remote.log.manager.task.interval.ms
	ManifestInterval time.Duration // remote.manifest.interval.ms
	DeleteDelay      time.Duration // remote.object.delete.delay.ms
	RecoveryWindow   time.Duration // remote.recovery.window.ms
	ScrubInterval    time.Duration // 0: default; negative: never

	Logger *slog.Logger
	Now    func() time.Time
}

func (c *Config) setDefaults() {
	if c.Interval <= 0 {
		c.Interval = DefaultInterval
	}
	if c.ManifestInterval <= 0 {
		c.ManifestInterval = DefaultManifestInterval
	}
	if c.DeleteDelay <= 0 {
		c.DeleteDelay = DefaultDeleteDelay
	}
	if c.ScrubInterval == 0 {
		c.ScrubInterval = DefaultScrubInterval
	}
	if c.Dropped == nil {
		c.Dropped = func(cluster.SegmentID) {}
	}
	if c.Responsible == nil {
		c.Responsible = func() bool { return true }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

// grace is how long an object stays after nothing names it any more.
func (c *Config) grace() time.Duration { return max(c.DeleteDelay, c.RecoveryWindow) }

// progress is what is known of one partition's sweeping. It belongs to the
// goroutine of the loop that its field is for; lastErr is guarded by Sweeper.mu.
type progress struct {
	failures int
	notUntil time.Time
	lastErr  error
}

// Sweeper runs the loops.
type Sweeper struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	stop   []func() // subscriptions
	counts counts

	mu        sync.Mutex
	progress  map[cluster.TopicPartition]*progress
	dirty     map[cluster.TopicPartition]bool
	manifests map[cluster.TopicPartition]*published
	finals    map[cluster.TopicPartition]time.Time // final manifests, by when they were durable
	emptied   map[cluster.TopicID]bool             // deleted topics whose prefixes were emptied while uploads might still arrive
	lastScrub ScrubReport
}

// New returns a Sweeper that does nothing before Start.
func New(cfg Config) *Sweeper {
	cfg.setDefaults()
	s := &Sweeper{
		cfg: cfg, progress: make(map[cluster.TopicPartition]*progress), dirty: make(map[cluster.TopicPartition]bool),
		manifests: make(map[cluster.TopicPartition]*published), finals: make(map[cluster.TopicPartition]time.Time),
		emptied: make(map[cluster.TopicID]bool),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start begins the loops. It returns at once.
func (s *Sweeper) Start() {
	s.stop = append(s.stop, s.cfg.Catalog.SubscribeCatalog(s.mark))
	if s.cfg.Subscribe != nil {
		s.stop = append(s.stop, s.cfg.Subscribe(s.configsChanged))
	}
	for tp := range s.cfg.Catalog.Partitions() {
		s.mark(tp)
	}
	s.done.Go(func() { s.every(s.cfg.Interval, s.pass) })
	s.done.Go(func() { s.every(s.cfg.ManifestInterval, s.writeManifests) })
	if s.cfg.ScrubInterval > 0 {
		s.done.Go(func() { s.every(s.cfg.ScrubInterval, s.scrub) })
	}
}

// Close cancels what is under way and waits for it.
func (s *Sweeper) Close() error {
	s.cancel()
	for _, stop := range s.stop {
		stop()
	}
	s.stop = nil
	s.done.Wait()
	return nil
}

func (s *Sweeper) every(interval time.Duration, f func(ctx context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
			f(s.ctx)
		}
	}
}

// mark says that a partition's manifest is out of date.
func (s *Sweeper) mark(tp cluster.TopicPartition) {
	s.mu.Lock()
	s.dirty[tp] = true
	s.mu.Unlock()
}

func (s *Sweeper) configsChanged(_ *image.Image, d *image.Delta) {
	for _, t := range d.Topics {
		if t.New == nil || !t.Configs {
			continue
		}
		for i := range t.New.Partitions {
			tp := cluster.TopicPartition{Topic: t.New.ID, Partition: int32(i)}
			if _, known := s.cfg.Catalog.Summary(tp); known {
				s.mark(tp)
			}
		}
	}
}

// pass is one round of retention and deletion.
func (s *Sweeper) pass(ctx context.Context) {
	hosted := make(map[cluster.TopicPartition]bool)
	alone := s.cfg.Ownership.MayDelete() == nil // W7; why not is said where it is found
	for r := range s.cfg.Replicas() {
		if ctx.Err() != nil {
			return
		}
		tp := r.TopicPartition()
		if epoch, leading := r.Leading(); leading {
			hosted[tp] = true
			s.attempt(r.Topic(), tp, func() error {
				if !alone {
					return s.retain(ctx, r)
				}
				// One failing does not keep the others from being done.
				return errors.Join(s.retain(ctx, r), s.deleteDead(ctx, tp, epoch), s.dropSuperseded(ctx, tp))
			})
		}
	}
	if alone && s.cfg.Responsible() {
		for _, topic := range s.cfg.Catalog.DeletedTopics() {
			tp := cluster.TopicPartition{Topic: topic.Topic, Partition: -1}
			hosted[tp] = true
			s.attempt(topic.Name, tp, func() error { return s.deleteTopic(ctx, topic) })
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp := range s.progress {
		if !hosted[tp] {
			delete(s.progress, tp)
		}
	}
}

// Pauses after failures.
const (
	pauseMin = 500 * time.Millisecond
	pauseMax = 15 * time.Second
)

// attempt does a piece of work unless it failed a moment ago.
func (s *Sweeper) attempt(topic string, tp cluster.TopicPartition, f func() error) {
	s.mu.Lock()
	p := s.progress[tp]
	if p == nil {
		p = &progress{}
		s.progress[tp] = p
	}
	s.mu.Unlock()
	if s.cfg.Now().Before(p.notUntil) {
		return
	}
	err := f()
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		*p = progress{}
		return
	}
	s.counts.failures.Add(1)
	if p.lastErr == nil || p.lastErr.Error() != err.Error() {
		s.cfg.Logger.Warn("sweeping failed and is tried again", "topic", topic, "topic_id", tp.Topic, "partition", tp.Partition, "error", err)
	}
	wait := min(pauseMax, pauseMin<<min(p.failures, 10))
	p.failures++
	p.notUntil = s.cfg.Now().Add(wait/2 + rand.N(wait/2))
	p.lastErr = err
}

// submitTimeout bounds the wait for one command.
const submitTimeout = 30 * time.Second

func (s *Sweeper) submit(ctx context.Context, req request.Request) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	_, err := s.cfg.Submitter.Submit(ctx, req)
	return err
}
