package replicas

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"strandline/broker/cleaner"
	"strandline/broker/locallog"
	"strandline/broker/partition"
	"strandline/broker/producerstate"
	"strandline/metadata/background"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/store"
)

const (
	// forgetEvery is how often the key index is looked through for partitions that
	// are not here any more.
	forgetEvery = time.Minute
	// compactAgain is when a pass that was cut short, or had no room, is tried again.
	compactAgain = time.Second
	// compactPauseMin and compactPauseMax bound how long the cleaner sleeps at a time
	// where nothing is due: log.cleaner.backoff.ms may change meanwhile.
	compactPauseMin = time.Millisecond
	compactPauseMax = time.Second
)

// CompactionStats counts what compaction did.
type CompactionStats struct {
	Passes, Failures, RecordsRemoved int64
	BytesRead, BytesWritten          int64
	BytesReclaimed                   int64 // by which segments became smaller
	Running                          int
	// Uncleanable is the number of partitions that are not compacted any more
	// because a pass failed.
	Uncleanable int
	// MaxDirtyRatio is the highest of all partitions when they were last looked at.
	MaxDirtyRatio float64
}

// compactions is the state of the cleaner.
type compactions struct {
	pace pace
	mu   struct {
		sync.Mutex
		busy map[cluster.TopicPartition]struct{}
		// stuck are the partitions on which a pass failed, with the configuration that
		// they had: another one is worth a try.
		stuck map[cluster.TopicPartition]stuck
		later map[cluster.TopicPartition]time.Time // not before
		// idle are those that had nothing to do when they were last looked at.
		idle map[cluster.TopicPartition]idle
		// seen is what each was like when it was last looked at.
		seen map[cluster.TopicPartition]cleaner.Dirt
	}
	passes, failures, records, read, written, reclaimed atomic.Int64
	maxRatio                                            atomic.Uint64 // bits of a float64
}

// stuck is why a partition is not compacted any more.
type stuck struct {
	settings config.Topic
	err      error
}

// CompactionOutlook is what the cleaner knows of a compacted replica.
type CompactionOutlook struct {
	// Threads is how many partitions may be compacted at once; 0: none is.
	Threads int32
	Running bool
	// Failed is why a pass failed for good, nil where none has.
	Failed error
	// Dirt is what was there to compact when the cleaner last looked, which it does
	// every log.cleaner.backoff.ms; Seen is false where it has not yet.
	Dirt cleaner.Dirt
	Seen bool
}

// compactionOutlook describes a replica whose topic is compacted.
func (m *Manager) compactionOutlook(tp cluster.TopicPartition) *CompactionOutlook {
	o := &CompactionOutlook{}
	if m.cfg.Index != nil && m.cfg.Broker.Cleaner.Enabled {
		o.Threads = m.cleanerConfig().Threads
	}
	c := &m.compactions
	c.mu.Lock()
	defer c.mu.Unlock()
	_, o.Running = c.mu.busy[tp]
	o.Failed = c.mu.stuck[tp].err
	o.Dirt, o.Seen = c.mu.seen[tp]
	return o
}

// idle is a partition without anything to compact.
type idle struct {
	at         time.Time
	activeBase cluster.Offset
	settings   config.Topic
}

// Many partitions that were idle and have sealed no segment since are looked at
// only once in idleRounds rounds.
const (
	idleMany   = 256
	idleRounds = 10
)

func (c *compactions) init() {
	c.mu.idle = map[cluster.TopicPartition]idle{}
	c.mu.busy = map[cluster.TopicPartition]struct{}{}
	c.mu.stuck = map[cluster.TopicPartition]stuck{}
	c.mu.seen = map[cluster.TopicPartition]cleaner.Dirt{}
	c.mu.later = map[cluster.TopicPartition]time.Time{}
}

// CompactionStats returns the counters.
func (m *Manager) CompactionStats() CompactionStats {
	c := &m.compactions
	c.mu.Lock()
	running, stuck := len(c.mu.busy), len(c.mu.stuck)
	c.mu.Unlock()
	return CompactionStats{
		Passes: c.passes.Load(), Failures: c.failures.Load(), RecordsRemoved: c.records.Load(), BytesRead: c.read.Load(),
		BytesWritten: c.written.Load(), BytesReclaimed: c.reclaimed.Load(), Running: running, Uncleanable: stuck,
		MaxDirtyRatio: math.Float64frombits(c.maxRatio.Load()),
	}
}

// cleanerConfig is what holds of the cleaner's keys now.
func (m *Manager) cleanerConfig() config.Cleaner {
	img := m.cfg.Watch.Image()
	return config.EffectiveCleaner(config.Layers{
		Broker: img.BrokerConfig(m.self), Cluster: img.BrokerConfig(cluster.NoBroker), Static: m.cfg.Broker.Static,
	})
}

// runCompaction compacts the dirtiest logs, log.cleaner.threads of them at once,
// and sleeps log.cleaner.backoff.ms where none needs it.
func (m *Manager) runCompaction() {
	if m.cfg.Index == nil || !m.cfg.Broker.Cleaner.Enabled {
		return
	}
	timer := time.NewTimer(compactPauseMin)
	defer timer.Stop()
	ended := make(chan struct{})
	running, told := 0, false
	tell := func(busy bool) {
		if busy != told {
			told = busy
			m.cfg.OnCompaction(busy)
		}
	}
	var forgotten, looked time.Time
	for {
		select {
		case <-m.ctx.Done():
			for ; running > 0; running-- {
				<-ended
			}
			tell(false)
			return
		case <-ended:
			running--
		case <-timer.C:
			cleaner := m.cleanerConfig()
			if rest := cleaner.Backoff - m.cfg.Now().Sub(looked); !looked.IsZero() && rest > 0 {
				timer.Reset(min(rest, compactPauseMax))
				continue
			}
		}
		looked = m.cfg.Now()
		if looked.Sub(forgotten) >= forgetEvery {
			forgotten = looked
			m.forgetIndexes()
		}
		cleaner := m.cleanerConfig()
		threads := max(int64(cleaner.Threads), 1)
		each := budget{
			memoryBytes: cleaner.DedupeBytes / threads, stepBytes: max(int(int64(cleaner.BufferBytes)/threads/2), stepBytesMin), backoff: cleaner.Backoff,
		}
		for running < int(cleaner.Threads) && m.ctx.Err() == nil {
			r := m.dirtiest(idleRounds * cleaner.Backoff)
			if r == nil {
				break
			}
			tell(true)
			running++
			m.workers.Go(func() {
				background.Enter()
				m.compactOne(r, each)
				ended <- struct{}{}
			})
		}
		tell(running > 0)
		timer.Reset(min(max(cleaner.Backoff, compactPauseMin), compactPauseMax))
	}
}

// dirtiest picks the replica that needs compaction most, and marks it busy; nil
// where none does.
func (m *Manager) dirtiest(idleFor time.Duration) *replica {
	c := &m.compactions
	var chosen *replica
	most, highest := -1.0, 0.0
	for tp, r := range m.replicas() {
		if m.ctx.Err() != nil {
			return nil
		}
		if !m.compactable(tp, r) || m.stillIdle(tp, r, idleFor) {
			continue
		}
		d, err := m.compactor(budget{}, r).Examine(source{r.p}, CompactionLimits(r.p.Settings()))
		if err != nil {
			m.compactionFailed(r, err)
			continue
		}
		highest = max(highest, d.Ratio)
		m.note(tp, r, d)
		if d.Due != "" && d.Ratio > most {
			chosen, most = r, d.Ratio
		}
	}
	c.maxRatio.Store(math.Float64bits(highest))
	if chosen != nil {
		c.mu.Lock()
		c.mu.busy[chosen.tp()] = struct{}{}
		c.mu.Unlock()
	}
	return chosen
}

func (m *Manager) stillIdle(tp cluster.TopicPartition, r *replica, during time.Duration) bool {
	c := &m.compactions
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.mu.idle[tp]
	return ok && len(c.mu.idle) > idleMany && m.cfg.Now().Sub(was.at) < during && was.activeBase == r.p.ActiveBase() && was.settings == r.p.Settings()
}

// note keeps what a partition was like when it was looked at.
func (m *Manager) note(tp cluster.TopicPartition, r *replica, d cleaner.Dirt) {
	c := &m.compactions
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.seen[tp] = d
	if d.Due != "" {
		delete(c.mu.idle, tp)
		return
	}
	c.mu.idle[tp] = idle{m.cfg.Now(), r.p.ActiveBase(), r.p.Settings()}
}

// compactable says whether a replica may be compacted now.
func (m *Manager) compactable(tp cluster.TopicPartition, r *replica) bool {
	if r.p == nil || r.dir.offlineErr() != nil {
		return false
	}
	settings := r.p.Settings()
	if !compacts(settings) {
		return false
	}
	c := &m.compactions
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, busy := c.mu.busy[tp]; busy {
		return false
	}
	if failed, stuck := c.mu.stuck[tp]; stuck {
		if failed.settings == settings {
			return false
		}
		delete(c.mu.stuck, tp)
	}
	if at, ok := c.mu.later[tp]; ok {
		if m.cfg.Now().Before(at) {
			return false
		}
		delete(c.mu.later, tp)
	}
	return true
}

// compacts says whether logs with these settings are compacted.
func compacts(t config.Topic) bool { return t.CleanupPolicy.Compact() && !t.Tiered }

// errNotCompacted ends a pass whose topic is not compacted any more.
var errNotCompacted = errors.New("topic is not compacted any more")

// CompactionLimits are the settings of compaction that follow from a topic's
// configuration.
func CompactionLimits(t config.Topic) cleaner.CompactionLimits {
	return cleaner.CompactionLimits{
		DirtyRatio: t.MinCleanableDirtyRatio, MinLag: t.MinCompactionLag, MaxLag: t.MaxCompactionLag,
		DeleteRetention: t.DeleteRetention, SegmentBytes: t.SegmentBytes,
	}
}

// quietBytes is from how much on it is worth a line that an internal topic became
// smaller: each group that commits has its offsets compacted again and again.
const quietBytes = 1 << 20

// stepBytesMin is how much is read at a time at least.
const stepBytesMin = 16 << 10

// budget is what one pass may use.
type budget struct {
	memoryBytes int64
	stepBytes   int
	backoff     time.Duration
}

func (m *Manager) compactor(b budget, r *replica) *cleaner.Compactor {
	return &cleaner.Compactor{
		Index: m.cfg.Index, MemoryBytes: b.memoryBytes, StepBytes: b.stepBytes,
		Pace: func(ctx context.Context, bytes int) error {
			if !compacts(r.p.Settings()) {
				return errNotCompacted
			}
			return m.compactions.pace.wait(ctx, m.cfg.Now, int64(bytes), func() float64 {
				cleaner := m.cleanerConfig()
				return cleaner.BytesPerSecond
			})
		},
		Room: func(bytes int64) bool {
			free := r.dir.freeBytes.Load()
			return free == 0 || free-bytes >= m.cfg.Broker.DiskReservedBytes/2
		},
		IndexRoom: m.indexRoom,
		Now:       m.cfg.Now, Logger: m.cfg.Logger,
	}
}

// indexRoom says whether metadata.log.dir has room for the key index to grow: metadata
// that finds none there ends the process.
func (m *Manager) indexRoom() bool {
	usage, err := m.fs.Usage(m.cfg.Broker.MetadataLogDir)
	return err != nil || usage.FreeBytes >= m.cfg.Broker.DiskReservedBytes/2
}

// compactOne runs a pass over a replica that is marked busy.
func (m *Manager) compactOne(r *replica, b budget) {
	c := &m.compactions
	began := m.cfg.Now()
	limits := CompactionLimits(r.p.Settings())
	result, err := m.compactor(b, r).Compact(m.ctx, source{r.p}, limits)
	c.passes.Add(1)
	c.records.Add(result.RecordsRemoved)
	c.read.Add(result.BytesRead)
	c.written.Add(result.BytesWritten)
	c.reclaimed.Add(result.BytesBefore - result.BytesAfter)
	switch {
	case err != nil:
		m.compactionFailed(r, err)
	case result.SegmentsBefore > 0:
		level := slog.LevelInfo
		if result.BytesBefore-result.BytesAfter < quietBytes && cluster.InternalTopic(r.p.Topic()) {
			level = slog.LevelDebug
		}
		m.cfg.Logger.Log(context.Background(), level, "log compacted", "partition", r.key.String(), "reason", string(result.Due), "records_removed", result.RecordsRemoved,
			"segments_before", result.SegmentsBefore, "segments_after", result.SegmentsAfter, "bytes_before", result.BytesBefore,
			"bytes_after", result.BytesAfter, "took", m.cfg.Now().Sub(began))
	}
	if result.NoRoom > 0 {
		m.cfg.Logger.Warn("segments wait for room on the disk before they are compacted", "partition", r.key.String(), "dir", r.dir.path, "index_dir", m.cfg.Broker.MetadataLogDir, "waiting", result.NoRoom)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.busy, r.tp())
	if _, stuck := c.mu.stuck[r.tp()]; !stuck && (result.NoRoom > 0 || err != nil || result.Records == 0 && result.SegmentsBefore == 0) {
		c.mu.later[r.tp()] = m.cfg.Now().Add(max(compactAgain, b.backoff))
	}
}

// compactionFailed says what a failed pass means: nothing where the replica left,
// another try where the log changed or there was no room, the index made anew
// where that is corrupt. Else the partition is not compacted any more, and the
// others are.
func (m *Manager) compactionFailed(r *replica, err error) {
	switch {
	case m.ctx.Err() != nil, errors.Is(err, partition.ErrClosed), errors.Is(err, partition.ErrStorage), errors.Is(err, locallog.ErrClosed),
		errors.Is(err, store.ErrClosed), errors.Is(err, errNotCompacted), m.lookup(r.tp()) != r:
		return
	case errors.Is(err, cleaner.ErrInterrupted):
		m.cfg.Logger.Debug("compaction was overtaken and begins again", "partition", r.key.String(), "err", err)
		return
	case errors.Is(err, locallog.ErrNoSpace), errors.Is(err, locallog.ErrNoDescriptor):
		m.cfg.Logger.Warn("compaction had no room and is tried again", "partition", r.key.String(), "dir", r.dir.path, "err", err)
		return
	case m.cfg.Index.Failed(err):
		return
	}
	c := &m.compactions
	c.failures.Add(1)
	c.mu.Lock()
	c.mu.stuck[r.tp()] = stuck{r.p.Settings(), err}
	c.mu.Unlock()
	m.cfg.Logger.Error("partition is not compacted any more until its configuration changes or the broker starts again; the others are",
		"partition", r.key.String(), "dir", r.dir.path, "err", err)
}

// forgetIndexes drops the key indexes of partitions that are not here any more, or
// not compacted.
func (m *Manager) forgetIndexes() {
	all, err := m.cfg.Index.Partitions()
	if err != nil {
		m.cfg.Logger.Warn("key index cannot be listed", "err", err)
		m.cfg.Index.Failed(err)
		return
	}
	c := &m.compactions
	gone := func(tp cluster.TopicPartition) bool { return m.lookup(tp) == nil }
	c.mu.Lock()
	maps.DeleteFunc(c.mu.stuck, func(tp cluster.TopicPartition, _ stuck) bool { return gone(tp) })
	maps.DeleteFunc(c.mu.seen, func(tp cluster.TopicPartition, _ cleaner.Dirt) bool { return gone(tp) })
	maps.DeleteFunc(c.mu.later, func(tp cluster.TopicPartition, _ time.Time) bool { return gone(tp) })
	maps.DeleteFunc(c.mu.idle, func(tp cluster.TopicPartition, _ idle) bool { return gone(tp) })
	c.mu.Unlock()
	for _, tp := range all {
		r := m.lookup(tp)
		c.mu.Lock()
		_, busy := c.mu.busy[tp]
		c.mu.Unlock()
		if busy || r != nil && (r.p == nil || r.p.Settings().CleanupPolicy.Compact()) {
			continue
		}
		if err := m.cfg.Index.Drop(tp); err != nil {
			m.cfg.Logger.Warn("key index of a partition that left stays for now", "topic_partition", tp.String(), "err", err)
		}
	}
}

// source is a replica as compaction needs it.
type source struct{ p *partition.Partition }

func (s source) TopicPartition() cluster.TopicPartition { return s.p.TopicPartition() }

func (s source) Decided() cluster.Offset { return min(s.p.LastStableOffset(), s.p.FlushedOffset()) }

func (s source) Step(fn func(log *locallog.Log) error) (int64, error) { return s.p.Copying(fn) }

func (s source) Commit(rw *locallog.Rewrite, removedBelow cluster.Offset) error {
	return s.p.CommitRewrite(rw, removedBelow)
}

func (s source) LastOfProducers() (map[cluster.ProducerID]producerstate.Entry, error) {
	return s.p.LastOfProducers()
}

// pace keeps all passes together within a number of bytes a second.
type pace struct {
	mu   sync.Mutex
	debt float64 // bytes that are not paid for by the time that has passed
	at   time.Time
}

const (
	// paceSlack is how much may be done ahead, so that there are not too many sleeps.
	paceSlack = 20 * time.Millisecond
	// paceStep is the longest sleep: the rate may change meanwhile.
	paceStep = time.Second
)

// wait pays for bytes, and returns once all is paid for.
func (p *pace) wait(ctx context.Context, now func() time.Time, bytes int64, perSecond func() float64) error {
	owed := p.owe(now(), float64(bytes), perSecond())
	for owed > paceSlack {
		timer := time.NewTimer(min(owed, paceStep))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		owed = p.owe(now(), 0, perSecond())
	}
	return ctx.Err()
}

// owe adds bytes and tells how long it takes until all are paid for.
func (p *pace) owe(now time.Time, bytes, perSecond float64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	perSecond = max(perSecond, 1)
	if passed := now.Sub(p.at).Seconds(); passed > 0 {
		p.debt = max(0, p.debt-min(passed*perSecond, p.debt))
	}
	p.at = now
	p.debt += bytes
	return time.Duration(min(p.debt/perSecond, paceMost.Seconds()) * float64(time.Second))
}

// paceMost is what a debt is taken for at most.
const paceMost = time.Hour
