package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"strandline/broker/locallog"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
)

// Config is what a replica is made of. Log, Self, TopicPartition, Topic and
// Settings are needed, the rest may be absent.
type Config struct {
	TopicPartition cluster.TopicPartition
	Topic          string // the topic's name
	Self           cluster.BrokerID
	Settings       config.Topic
	// Log is the replica's log, open, with RemoteBelow where Remote is set.
	// The partition owns it from New on and is its only writer.
	Log *locallog.Log
	// HighWatermark is the one last checkpointed, NoOffset if unknown.
	HighWatermark cluster.Offset

	Remote     RemoteLog          // nil: no tier
	Keeper     LogStartKeeper     // nil: no tier
	Checkpoint LogStartCheckpoint // nil: log starts of partitions without a tier are not kept
	// FlushSlots bounds the syncs of the log directory that run at once: a
	// value is sent before one and received after it. Nil: no bound.
	FlushSlots func() chan struct{}
	// DiskFull says that the free space of the log directory is below its
	// reserve. Nil: never.
	DiskFull func() bool
	// OnNoSpace is told that the disk had no room for a write, whatever the
	// reserve. It must not block. Nil: nobody.
	OnNoSpace func()
	// OnOffline is told once why the replica went offline. It must not block
	// and must not call back.
	OnOffline func(error)
	// OnOffer is told, after a segment was sealed, that Archivable may offer
	// it: what it holds is flushed. It must not block. Nil: nobody.
	OnOffer func()
	// Now is the clock; nil: time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// Partition is one hosted replica. All methods may be called from several
// goroutines at once.
type Partition struct {
	cfg  Config
	name string // topic-partition, for messages
	log  *movable

	role     atomic.Pointer[role]
	settings atomic.Pointer[config.Topic]
	offline  atomic.Pointer[offlineError]
	offered  atomic.Int64 // base offset of the active segment when OnOffer was last called

	// Bounds, for readers without a lock: written under mu, highWatermark
	// before lastStable, and read in the other order (P1).
	highWatermark atomic.Int64
	lastStable    atomic.Int64

	// structure is held, before writeMu, by whoever takes segments away or puts
	// others in their place; see the package comment.
	structure sync.Mutex
	// writeMu is the single-writer rule of the log; see the package comment.
	writeMu sync.Mutex

	flushers sync.WaitGroup
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc

	mu struct {
		sync.Mutex
		waiters map[*Waiter]struct{}
		// followers are the log end offsets of the other replicas, as their
		// fetches under the present leader epoch told.
		followers map[cluster.BrokerID]cluster.Offset
		// end is the log's end offset as far as unstable takes it into account.
		end cluster.Offset
		// unstable is the first offset of a transaction that is open, or whose
		// marker is not below the high watermark; the highest Offset if none.
		unstable cluster.Offset
		flush    commitQueue // appends that wait for FlushedOffset
		commit   commitQueue // appends that wait for HighWatermark
		flushing bool
		// flushAgain: somebody asked since the flusher's last sync began.
		flushAgain bool
		closed     bool
	}
}

// role is what the replica is; immutable once stored.
type role struct {
	Leadership
	leading    bool
	epochStart cluster.Offset // of this leader, where leading
}

type offlineError struct{ err error }

// New makes a replica without a role of an open log. Become gives it one.
func New(cfg Config) *Partition {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Partition{cfg: cfg, log: newMovable(cfg.Log), name: fmt.Sprintf("%s-%d", cfg.Topic, cfg.TopicPartition.Partition)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.mu.waiters = map[*Waiter]struct{}{}
	p.mu.followers = map[cluster.BrokerID]cluster.Offset{}
	settings := cfg.Settings
	p.settings.Store(&settings)
	p.role.Store(&role{Leadership: Leadership{Leader: cluster.NoBroker, LeaderEpoch: cluster.NoLeaderEpoch}})
	if cfg.Remote != nil {
		// What the catalog does not know cannot be remote.
		if _, known := cfg.Remote.LogStartOffset(cfg.TopicPartition); !known {
			p.log.SetStartOffset(p.log.LocalStartOffset())
		}
	}
	mark := max(p.log.StartOffset(), min(cfg.HighWatermark, p.log.EndOffset()))
	p.highWatermark.Store(int64(mark))
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	p.takeEnd()
	return p
}

// TopicPartition returns the partition's name by topic id.
func (p *Partition) TopicPartition() cluster.TopicPartition { return p.cfg.TopicPartition }

// Topic returns the topic's name.
func (p *Partition) Topic() string { return p.cfg.Topic }

// Settings returns the topic's effective configuration.
func (p *Partition) Settings() config.Topic { return *p.settings.Load() }

// HighWatermark returns the exclusive bound of what a consumer may see.
func (p *Partition) HighWatermark() cluster.Offset { return cluster.Offset(p.highWatermark.Load()) }

// LastStableOffset returns the exclusive bound below which every transaction is
// decided.
func (p *Partition) LastStableOffset() cluster.Offset { return cluster.Offset(p.lastStable.Load()) }

// LogStartOffset returns the first offset that a client may read.
func (p *Partition) LogStartOffset() cluster.Offset { return p.log.StartOffset() }

// LogEndOffset returns the next offset to be written.
func (p *Partition) LogEndOffset() cluster.Offset { return p.log.EndOffset() }

// FlushedOffset returns the bound of what survives a power loss; it is the
// recovery point to checkpoint.
func (p *Partition) FlushedOffset() cluster.Offset { return p.log.FlushedOffset() }

// SetConfig changes the topic's effective configuration while the replica runs.
func (p *Partition) SetConfig(settings config.Topic) {
	p.settings.Store(&settings)
	p.log.SetSettings(LogSettings(settings))
	p.advance()
}

// LogSettings are the settings of the log below that follow from a topic's.
func LogSettings(t config.Topic) locallog.Settings {
	s := locallog.Settings{
		SegmentBytes: t.SegmentBytes, SegmentAge: t.SegmentAge, SegmentJitter: t.SegmentJitter,
		IndexBytes: int(t.IndexBytes), IndexIntervalBytes: int(t.IndexInterval),
		FileDeleteDelay: t.FileDeleteDelay,
	}
	if t.CleanupPolicy.Compact() {
		s.SegmentAge = min(s.SegmentAge, t.MaxCompactionLag) // the active segment is never compacted
	}
	if t.FlushMessages < config.Unlimited {
		s.FlushMessages = t.FlushMessages
	}
	if t.FlushInterval < config.Forever {
		s.FlushInterval = t.FlushInterval
	}
	return s
}

// flushed says that flush.messages=1: P2 holds.
func flushed(t *config.Topic) bool { return t.FlushMessages == 1 }

// online returns why nothing can be served, or nil.
func (p *Partition) online() error {
	if o := p.offline.Load(); o != nil {
		return o.err
	}
	return nil
}

// fail takes the replica offline for good: what waits fails, and so does
// everything that comes.
func (p *Partition) fail(cause error) error {
	err := p.wrap(ErrStorage, cause)
	if !p.offline.CompareAndSwap(nil, &offlineError{err}) {
		return p.online()
	}
	p.cfg.Logger.Error("replica offline", "partition", p.name, "err", cause)
	p.mu.Lock()
	p.failCommitsLocked(err)
	p.wakeLocked()
	p.mu.Unlock()
	if p.cfg.OnOffline != nil {
		p.cfg.OnOffline(err)
	}
	return err
}

// storage turns an error of the log into one of ours; it takes the replica
// offline unless the log is usable after it.
func (p *Partition) storage(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, locallog.ErrOffsetOutOfRange), errors.Is(err, locallog.ErrNotLocal):
		return p.wrap(ErrOffsetOutOfRange, err)
	case errors.Is(err, locallog.ErrNoSpace):
		if p.cfg.OnNoSpace != nil {
			p.cfg.OnNoSpace()
		}
		return p.wrap(ErrDiskFull, err)
	case errors.Is(err, locallog.ErrClosed):
		return p.wrap(ErrClosed, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case p.log.Err() == nil && (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)):
		return p.wrap(ErrStorage, err) // out of descriptors for now: nothing is wrong with the log
	}
	return p.fail(err)
}

func (p *Partition) wrap(kind, cause error) error {
	if cause == nil || errors.Is(cause, kind) {
		return fmt.Errorf("%s: %w", p.name, errors.Join(kind))
	}
	return fmt.Errorf("%s: %w: %w", p.name, kind, cause)
}

// Close ends the replica: it serves nothing any more, what waits fails, and the
// log is closed. With clean the log is synced, so that the next start need not
// scan it; an error means that it must. Idempotent.
func (p *Partition) Close(clean bool) error {
	p.offline.CompareAndSwap(nil, &offlineError{p.wrap(ErrClosed, nil)})
	p.mu.Lock()
	p.mu.closed = true
	p.failCommitsLocked(p.wrap(ErrClosed, nil))
	p.wakeLocked()
	p.mu.Unlock()
	p.cancel()
	p.flushers.Wait()
	p.structure.Lock()
	defer p.structure.Unlock()
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	return p.log.Close(clean)
}

// TakeOffline takes the replica offline because of something around it, such as
// a failure of its log directory.
func (p *Partition) TakeOffline(cause error) { _ = p.fail(cause) }
