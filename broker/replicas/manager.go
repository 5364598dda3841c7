package replicas

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"strandline/broker/keyindex"
	"strandline/broker/locallog"
	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/watch"
)

// Config is what a Manager is made of.
type Config struct {
	FS   disk.FS
	Dirs *Dirs // after Init; the manager owns it from Start on
	// Broker holds the node's id, static topic defaults, intervals and limits.
	Broker config.Broker
	Watch  Watch
	// ImageComplete says that the image at Start has all that was ever decided: so
	// it is where this node is the only voter. A directory that knows of something
	// later shows that metadata was lost (M6).
	ImageComplete bool
	Remote        partition.RemoteLog      // nil: no tier
	Keeper        partition.LogStartKeeper // nil: no tier
	// Handles keeps descriptors of sealed segments, for all logs. Nil: one of
	// 1024.
	Handles *disk.HandleCache
	Now     func() time.Time // nil: time.Now
	Logger  *slog.Logger     // nil: none
	// OnOffer is told of partitions that have a sealed segment to offer to the
	// tier, after it was flushed. It must not block. Nil: nobody.
	OnOffer func(tp cluster.TopicPartition)
	// Ballast says that every log directory keeps some room for its own files, so
	// that log starts rise when its disk is full. Disks in memory need none.
	Ballast bool
	// Assign tells the controller in which directories replicas lie. Nil: nobody.
	Assign func(ctx context.Context, dirs map[cluster.TopicPartition]cluster.DirectoryID) error
	// OnDirOffline is told that a log directory failed, Failed that the last one
	// did: nothing can be served any more. Neither may block. Nil: nobody.
	OnDirOffline func()
	Failed       func(error)
	// Hosting is told of the replicas hosted here. Nil: nobody.
	Hosting HostingListener
	// Index is the key index of compaction. Nil: nothing is compacted.
	Index *keyindex.Index
	// OnCompaction is told when logs begin to be compacted, and when none is being
	// compacted any more, in turn; before Close returns in any case. It must not
	// block. Nil: nobody.
	OnCompaction func(busy bool)
	// Hook is told of named steps while they are half done (locallog's Step
	// names, StepTopicDeletion, StepStartupRecovery). Nil in production.
	Hook func(step string)
}

// HostingListener is told which replicas are hosted here; whether one leads, it
// tells itself (partition.Waiter). Calls about one partition come one after the
// other, those about several may overlap. None may block or call the manager.
type HostingListener interface {
	// Hosted: the replica's log is open. It takes the place of a former one of
	// the same partition, which has failed.
	Hosted(p *partition.Partition)
	// Unhosted: the replica is closed for good; its topic was deleted, or the
	// broker is none of its replicas any more. A stop of the manager tells
	// nothing.
	Unhosted(topic string, tp cluster.TopicPartition)
}

// Watch is the part of watch.Watch that the manager needs.
type Watch interface {
	Image() *image.Image
	Subscribe(fn func(img *image.Image, d *image.Delta)) (cancel func())
	Catalog() watch.Catalog // nil: no tier
}

// Steps that Config.Hook is told of, beside those of locallog.
const (
	// StepTopicDeletion: a replica's folder is renamed, its files lie there.
	StepTopicDeletion = "topic-deletion"
	// StepStartupRecovery: some logs are recovered, others not yet.
	StepStartupRecovery = "startup-recovery"
)

const (
	handlesMax = 1024
	// flushesMax bounds the syncs of one directory that run at once.
	flushesMax = 64
	// openersMax bounds the logs that are created at once.
	openersMax = 8
	// closersMax bounds the logs that are closed at once. Each waits for the disk
	// most of the time, and a file system commits together what waits together: an
	// orderly stop of thousands has only seconds.
	closersMax = 64
)

// Manager hosts the replicas of this broker. See the package comment.
type Manager struct {
	cfg      Config
	fs       disk.FS
	self     cluster.BrokerID
	handles  *disk.HandleCache
	ownsHand bool
	recent   *locallog.Recent

	hosted sync.Map // cluster.TopicPartition -> *replica
	epoch  atomic.Int64
	// applied is the index of the image that is fully applied.
	applied atomic.Uint64

	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
	unsub   []func()

	inbox inbox
	// Under applying: what only the applier, Start and Close touch.
	applying sync.Mutex
	unknown  []folder        // found at start, of topics that the image did not have
	damaged  []damagedFolder // found at start, until unknown is settled
	settled  bool            // unknown has been dealt with
	retry    map[cluster.TopicPartition]struct{}
	occupied map[cluster.TopicPartition]time.Time // since when a former topic's folder is in the way
	starved  map[cluster.TopicPartition]time.Time // offline for want of room or a descriptor, not tried again before
	removals []removal
	resume   []resumed    // moves that the last stop cut off
	leading  bool         // as of the last image applied: M1
	last     *image.Image // the last image applied

	closeOnce sync.Once
	closeErr  error
	started   bool

	// Of the housekeeping alone: the replicas of this round of sweeps, and those
	// that it has made flush.
	sweeping []*replica
	flushing []*partition.Partition

	moves moves
	// misplaced says that the controller may not know where each replica is.
	misplaced atomic.Bool

	stats       stats
	compactions compactions
}

// replica is one hosted replica.
type replica struct {
	folder
	p    *partition.Partition // nil: could not be opened
	err  error                // why not
	home *atomic.Pointer[dir] // folder.dir, for p, which outlives a move
	keep *sync.RWMutex        // held over writing a log start; a move holds it alone
}

// New makes a manager; Start begins.
func New(cfg Config) *Manager {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnOffer == nil {
		cfg.OnOffer = func(cluster.TopicPartition) {}
	}
	if cfg.OnCompaction == nil {
		cfg.OnCompaction = func(bool) {}
	}
	if cfg.OnDirOffline == nil {
		cfg.OnDirOffline = func() {}
	}
	if cfg.Failed == nil {
		cfg.Failed = func(error) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Manager{
		cfg: cfg, fs: cfg.FS, self: cluster.BrokerID(cfg.Broker.NodeID), handles: cfg.Handles,
		recent: locallog.NewRecent(0), retry: map[cluster.TopicPartition]struct{}{}, starved: map[cluster.TopicPartition]time.Time{},
	}
	if m.handles == nil {
		m.handles, m.ownsHand = disk.NewHandleCache(cfg.FS, handlesMax), true
	}
	m.compactions.init()
	m.moves.by, m.moves.slots = map[cluster.TopicPartition]*move{}, make(chan struct{}, movesMax)
	m.misplaced.Store(true)
	m.epoch.Store(int64(cluster.NoBrokerEpoch))
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.inbox.kick = make(chan struct{}, 1)
	return m
}

// Start opens the logs of the directories, which recovers them after an unclean
// stop, and begins to follow the image. No replica leads before Activate. On an
// error the manager is closed.
func (m *Manager) Start(ctx context.Context) error {
	m.applying.Lock()
	err := m.openAll(ctx)
	m.applying.Unlock()
	if err != nil {
		_ = m.Close(ctx)
		return err
	}
	m.started = true
	m.workers.Go(m.runApplier)
	m.workers.Go(m.runHousekeeping)
	m.workers.Go(m.runRetention)
	m.workers.Go(m.runCompaction)
	m.workers.Go(m.runAssigner)
	m.unsub = append(m.unsub, m.cfg.Watch.Subscribe(m.inbox.image))
	if catalog := m.cfg.Watch.Catalog(); catalog != nil {
		m.unsub = append(m.unsub, catalog.SubscribeCatalog(m.inbox.catalog))
	}
	return nil
}

// Activate says under which broker epoch this incarnation is registered: its
// replicas lead from the image on that shows the registration unfenced.
func (m *Manager) Activate(epoch cluster.BrokerEpoch) {
	m.epoch.Store(int64(epoch))
	m.inbox.everything()
}

// Get returns a hosted replica. It fails with ErrUnknownPartition, or with
// ErrOffline where the replica's log directory or log has failed.
func (m *Manager) Get(tp cluster.TopicPartition) (*partition.Partition, error) {
	v, ok := m.hosted.Load(tp)
	if !ok {
		return nil, fmt.Errorf("%s: %w", tp, ErrUnknownPartition)
	}
	r := v.(*replica)
	if r.p == nil {
		return nil, fmt.Errorf("%s: %w: %w", r.key, ErrOffline, r.err)
	}
	return r.p, nil
}

// All iterates over the replicas whose log could be opened, in no order.
func (m *Manager) All() iter.Seq[*partition.Partition] {
	return func(yield func(*partition.Partition) bool) {
		for _, r := range m.replicas() {
			if r.p != nil && !yield(r.p) {
				return
			}
		}
	}
}

// replicas iterates over everything hosted.
func (m *Manager) replicas() iter.Seq2[cluster.TopicPartition, *replica] {
	return func(yield func(cluster.TopicPartition, *replica) bool) {
		m.hosted.Range(func(k, v any) bool { return yield(k.(cluster.TopicPartition), v.(*replica)) })
	}
}

// count is the number of replicas hosted.
func (m *Manager) count() int {
	n := 0
	for _, d := range m.cfg.Dirs.dirs {
		n += int(d.replicas.Load())
	}
	return n
}

func (m *Manager) lookup(tp cluster.TopicPartition) *replica {
	v, ok := m.hosted.Load(tp)
	if !ok {
		return nil
	}
	return v.(*replica)
}

// AppliedIndex is the index of the image whose changes are all applied here.
func (m *Manager) AppliedIndex() uint64 { return m.applied.Load() }

// Settled says whether the image's wish that a partition is led from here is
// fulfilled; also where it has no such wish, or the replica is offline.
func (m *Manager) Settled(tp cluster.TopicPartition) bool {
	_, want, ok := m.cfg.Watch.Image().Partition(tp)
	if !ok || want.Leader != m.self {
		return true
	}
	r := m.lookup(tp)
	if r == nil {
		return false
	}
	if r.p == nil {
		return true
	}
	epoch, leads := r.p.Leading()
	return leads && epoch >= want.LeaderEpoch
}

// Ready says whether every replica that the image wants led from here, and whose
// log directory works, is led, and if not, why, in a few sentences.
func (m *Manager) Ready() (bool, []string) {
	reasons, waiting := m.notReady()
	if waiting != "" {
		reasons = append(reasons, waiting)
	}
	return len(reasons) == 0, reasons
}

// Servable is Ready but for the replicas that could not be opened, which it names,
// at most reasonsMax of them: the others do not wait for them.
func (m *Manager) Servable() (ok bool, unopened []string) {
	unopened, waiting := m.notReady()
	return waiting == "", unopened
}

func (m *Manager) notReady() (unopened []string, waiting string) {
	img := m.cfg.Watch.Image()
	if m.AppliedIndex() < img.Index() && m.AppliedIndex() == 0 {
		return nil, "replicas: the metadata image is not applied yet"
	}
	toLead := 0
	for tp, r := range m.replicas() {
		_, want, ok := img.Partition(tp)
		if !ok || want.Leader != m.self && !(want.Leader == cluster.NoBroker && len(want.Replicas) == 1) {
			continue // of another broker; without a leader, one with a single replica waits for this one
		}
		if r.dir.offlineErr() != nil {
			continue // the other directories do not wait for it
		}
		if r.p == nil {
			if len(unopened) < reasonsMax {
				unopened = append(unopened, fmt.Sprintf("replicas: %s is offline: %v", r.key, r.err))
			}
		} else if epoch, leads := r.p.Leading(); !leads || epoch != want.LeaderEpoch {
			toLead++
		}
	}
	if toLead > 0 {
		waiting = fmt.Sprintf("replicas: %d partitions are not led yet", toLead)
	}
	return unopened, waiting
}

const reasonsMax = 5

// OfflineDirs returns the directories that failed.
func (m *Manager) OfflineDirs() []cluster.DirectoryID {
	var ids []cluster.DirectoryID
	for _, d := range slices.Concat(m.cfg.Dirs.dirs, m.cfg.Dirs.absent) {
		if d.offlineErr() != nil {
			ids = append(ids, d.id)
		}
	}
	return ids
}

// DirStatus describes one log directory.
type DirStatus struct {
	Path      string
	ID        cluster.DirectoryID
	Offline   error // nil: it works
	FreeBytes int64 // as last looked at
	Replicas  int
}

// DirStatuses describes the log directories.
func (m *Manager) DirStatuses() []DirStatus {
	out := make([]DirStatus, 0, len(m.cfg.Dirs.dirs))
	for _, d := range m.cfg.Dirs.dirs {
		out = append(out, DirStatus{Path: d.path, ID: d.id, Offline: d.offlineErr(), FreeBytes: d.freeBytes.Load(), Replicas: int(d.replicas.Load())})
	}
	return out
}

// DirOf returns the path of the directory that holds a replica.
func (m *Manager) DirOf(tp cluster.TopicPartition) (string, bool) {
	r := m.lookup(tp)
	if r == nil {
		return "", false
	}
	return r.dir.path, true
}

// hook tells Config.Hook of a step.
func (m *Manager) hook(step string) {
	if m.cfg.Hook != nil {
		m.cfg.Hook(step)
	}
}

// Persist makes a log start offset of a partition without a tier durable (M5).
func (m *Manager) Persist(_ context.Context, tp cluster.TopicPartition, offset cluster.Offset) error {
	r := m.lookup(tp)
	if r == nil {
		return fmt.Errorf("%s: %w", tp, ErrUnknownPartition)
	}
	r.keep.RLock()
	defer r.keep.RUnlock()
	if r = m.lookup(tp); r == nil { // it may have moved
		return fmt.Errorf("%s: %w", tp, ErrUnknownPartition)
	}
	change, ok := m.raise(&r.dir.starts, r, offset)
	if !ok {
		return fmt.Errorf("%s: %w", tp, ErrUnknownPartition)
	}
	err := r.dir.starts.write(change)
	switch {
	case err == nil:
		return nil
	case noSpace(err):
		r.dir.hadNoSpace()
		return fmt.Errorf("%w: %w", partition.ErrDiskFull, err)
	default:
		m.dirTrouble(r.dir, err)
		return fmt.Errorf("%w: %w", partition.ErrStorage, err)
	}
}

// settings returns a topic's effective configuration here.
func (m *Manager) settings(img *image.Image, t *image.Topic) config.Topic {
	return config.EffectiveTopic(config.Layers{
		Topic: t.Configs, Broker: img.BrokerConfig(m.self), Cluster: img.BrokerConfig(cluster.NoBroker),
		Static: m.cfg.Broker.Static, TieredByDefault: t.TieredByDefault,
	})
}
