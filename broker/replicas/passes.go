package replicas

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"strandline/broker/cleaner"
	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
)

// housekeepingEvery is how often idle segments are looked at for sealing, files
// for removal, and flush.ms for being due. Where there are more than sweepAll
// replicas each is looked at once in sweepRounds, so that many idle ones cost
// little. Free space is measured each time.
const (
	housekeepingEvery = 100 * time.Millisecond
	sweepAll          = 256
	sweepRounds       = 10
	// sweepFlushesMax bounds the replicas that a sweep has made flush and that have
	// not ended: after kill -9 all of them ask for it. The others' turn comes.
	sweepFlushesMax = 32
)

// stepMax bounds one step of a retention pass that waits for the controller.
const stepMax = 10 * time.Second

// Stats counts what the passes did.
type Stats struct {
	RetentionPasses   int64
	SegmentsRemoved   int64
	BytesRemoved      int64
	RetentionFailures int64
	// FutureStamped is the number of segments found, in the last pass over
	// everything, with a largest timestamp in the future.
	FutureStamped int64
}

type stats struct {
	passes, segments, bytes, failures, future atomic.Int64
}

// Stats returns the counters.
func (m *Manager) Stats() Stats {
	return Stats{
		RetentionPasses: m.stats.passes.Load(), SegmentsRemoved: m.stats.segments.Load(), BytesRemoved: m.stats.bytes.Load(),
		RetentionFailures: m.stats.failures.Load(), FutureStamped: m.stats.future.Load(),
	}
}

// runHousekeeping runs the short periodic duties and the checkpoints.
func (m *Manager) runHousekeeping() {
	tick := time.NewTicker(housekeepingEvery)
	defer tick.Stop()
	b := m.cfg.Broker
	recovery := newSchedule(b.RecoveryCheckpointEvery, m.cfg.Now())
	starts := newSchedule(b.LogStartCheckpointEvery, m.cfg.Now())
	marks := newSchedule(b.HighWatermarkCheckpointEvery, m.cfg.Now())
	for round := 0; ; round++ {
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
		}
		now := m.cfg.Now()
		m.measureSpace(now)
		m.sweep(round)
		m.removeDue(now)
		if recovery.due(now) {
			m.checkpoint(recoveryPoints)
		}
		if starts.due(now) {
			m.checkpoint(logStarts)
		}
		if marks.due(now) {
			m.checkpoint(highWatermarks)
		}
	}
}

// schedule is a period; zero or config.Forever: never.
type schedule struct {
	every time.Duration
	next  time.Time
}

func newSchedule(every time.Duration, now time.Time) *schedule {
	return &schedule{every: every, next: now.Add(every)}
}

func (s *schedule) due(now time.Time) bool {
	if s.every <= 0 || s.every == config.Forever || now.Before(s.next) {
		return false
	}
	s.next = now.Add(s.every)
	return true
}

// sweep does the logs' periodic duties. Only what failed says so: the replica is
// then offline and has logged it. Where there are many replicas they are listed
// once a round of sweepRounds calls, of which each does its part.
func (m *Manager) sweep(round int) {
	m.flushing = slices.DeleteFunc(m.flushing, func(p *partition.Partition) bool { return !p.Flushing() })
	n := round % sweepRounds
	if m.count() <= sweepAll {
		m.sweeping = nil
		for _, r := range m.replicas() {
			m.sweepOne(r)
		}
		return
	}
	if n == 0 || m.sweeping == nil {
		m.sweeping = make([]*replica, 0, m.count())
		for _, r := range m.replicas() {
			m.sweeping = append(m.sweeping, r)
		}
	}
	all := len(m.sweeping)
	for _, r := range m.sweeping[all*n/sweepRounds : all*(n+1)/sweepRounds] {
		m.sweepOne(r)
	}
}

func (m *Manager) sweepOne(r *replica) {
	if r.p == nil || m.ctx.Err() != nil {
		return
	}
	err := r.p.RollIfDue()
	if err == nil {
		err = r.p.Sweep()
	}
	if len(m.flushing) < sweepFlushesMax && r.p.FlushDue() {
		r.p.FlushSoon()
		m.flushing = append(m.flushing, r.p)
	}
	if err != nil && !errors.Is(err, partition.ErrStorage) && !errors.Is(err, partition.ErrClosed) {
		m.cfg.Logger.Warn("log housekeeping failed", "partition", r.key.String(), "err", err)
	}
}

// runRetention runs a pass over every replica every log.retention.check.interval.ms.
func (m *Manager) runRetention() {
	timer := time.NewTimer(m.cfg.Broker.InitialTaskDelay)
	defer timer.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-timer.C:
		}
		future := 0
		for _, r := range m.replicas() {
			if m.ctx.Err() != nil {
				return
			}
			future += m.retainOne(r)
		}
		m.stats.future.Store(int64(future))
		m.stats.passes.Add(1)
		timer.Reset(max(m.cfg.Broker.RetentionCheckEvery, time.Millisecond))
	}
}

// retainOne runs one pass over one replica and says what failed, but not where
// the replica was deleted meanwhile.
func (m *Manager) retainOne(r *replica) (future int) {
	if r.p == nil {
		return 0
	}
	future, err := m.retain(r)
	if err == nil || m.ctx.Err() != nil || errors.Is(err, partition.ErrClosed) {
		return future
	}
	if _, ok := m.cfg.Watch.Image().TopicByID(r.meta.topic); !ok {
		return future
	}
	m.stats.failures.Add(1)
	m.cfg.Logger.Warn("retention pass failed; the next one tries again", "partition", r.key.String(), "err", err)
	return future
}

// retain runs one pass over one replica.
func (m *Manager) retain(r *replica) (future int, err error) {
	plan, _ := m.plan(r, false)
	if plan.Roll {
		if err := r.p.Roll(); err != nil {
			return plan.FutureStamped, err
		}
	}
	if plan.LogStart > r.p.LogStartOffset() {
		ctx, cancel := context.WithTimeout(m.ctx, stepMax)
		_, err := r.p.AdvanceLogStart(ctx, plan.LogStart)
		cancel()
		if err != nil {
			return plan.FutureStamped, err
		}
	}
	if plan.TrimBelow == cluster.NoOffset {
		return plan.FutureStamped, nil
	}
	removed, bytes, err := r.p.TrimLocal(plan.TrimBelow)
	m.countRemoved(r, removed, bytes, plan.Removals[0].Reason)
	return plan.FutureStamped, err
}

func (m *Manager) countRemoved(r *replica, removed int, bytes int64, why cleaner.Reason) {
	m.stats.segments.Add(int64(removed))
	m.stats.bytes.Add(bytes)
	if removed > 0 {
		m.cfg.Logger.Info("local segments removed", "partition", r.key.String(), "segments", removed, "bytes", bytes,
			"reason", string(why), "log_start_offset", r.p.LogStartOffset())
	}
}

// plan asks the policy about one replica, with or without disk pressure.
func (m *Manager) plan(r *replica, pressure bool) (cleaner.Plan, partition.Status) {
	s := r.p.Status() // takes RemoteEndOffset before the segments
	state := cleaner.State{
		Now: m.cfg.Now(), Leading: s.Leading, Tiered: s.Remote, LogStart: s.LogStartOffset,
		HighWatermark: s.HighWatermark, RemoteEnd: s.RemoteEndOffset, DiskPressure: pressure,
	}
	for _, segment := range s.Segments {
		state.Segments = append(state.Segments, cleaner.Segment{
			Base: segment.Base, Next: segment.Next, Bytes: segment.Bytes,
			MaxTimestamp: segment.MaxTimestamp, Written: segment.Modified, Sealed: segment.Sealed,
		})
	}
	return cleaner.Pass(state, Limits(r.p.Settings())), s
}

// Limits are the retention limits that follow from a topic's configuration. Where
// the tier is off there is no local limit, whatever is left in the tier.
func Limits(t config.Topic) cleaner.Limits {
	l := cleaner.Limits{Delete: t.CleanupPolicy.Delete(), Age: t.RetentionTime, Bytes: t.RetentionBytes, LocalAge: -1, LocalBytes: -1}
	if t.Tiered {
		l.LocalAge, l.LocalBytes = t.LocalRetentionTime, t.LocalRetentionBytes
	}
	return l
}

// Outlook is what retention will do to a replica.
type Outlook struct {
	Status   partition.Status
	Settings config.Topic
	Plan     cleaner.Plan // of a pass now
	// SealsBy is when segment.ms seals the active segment at the latest; zero
	// where it is empty. Jitter may make it earlier.
	SealsBy time.Time
	// SealBytes is how many more bytes seal it.
	SealBytes int64
	// Compaction is nil where the topic is not compacted.
	Compaction *CompactionOutlook
}

// Outlook describes a replica and what the next retention pass does to it.
func (m *Manager) Outlook(tp cluster.TopicPartition) (Outlook, error) {
	if _, err := m.Get(tp); err != nil {
		return Outlook{}, err
	}
	r := m.lookup(tp)
	if r == nil {
		return Outlook{}, ErrUnknownPartition
	}
	var o Outlook
	o.Plan, o.Status = m.plan(r, false)
	o.Settings = r.p.Settings()
	if o.Settings.CleanupPolicy.Compact() && !o.Settings.Tiered {
		o.Compaction = m.compactionOutlook(tp)
	}
	if n := len(o.Status.Segments); n > 0 {
		active := o.Status.Segments[n-1]
		o.SealBytes = max(0, o.Settings.SegmentBytes-active.Bytes)
		if age := partition.LogSettings(o.Settings).SegmentAge; active.Next > active.Base && !active.Created.IsZero() && age < config.Forever {
			o.SealsBy = active.Created.Add(age)
		}
	}
	return o, nil
}

// checkpointed says which offset of a replica goes into which file.
type checkpointed struct {
	file   func(*dir) *offsetFile
	offset func(*partition.Partition) cluster.Offset
}

var (
	recoveryPoints = checkpointed{func(d *dir) *offsetFile { return &d.recovery }, (*partition.Partition).FlushedOffset}
	logStarts      = checkpointed{func(d *dir) *offsetFile { return &d.starts }, (*partition.Partition).LogStartOffset}
	highWatermarks = checkpointed{func(d *dir) *offsetFile { return &d.marks }, (*partition.Partition).HighWatermark}
)

// raise enters a replica's offset into a file while the replica is hosted.
func (m *Manager) raise(f *offsetFile, r *replica, o cluster.Offset) (change uint64, ok bool) {
	return f.raise(r.key, o, func() bool { return m.lookup(r.tp()) == r })
}

// checkpoint writes one kind of file in every directory where it changed.
func (m *Manager) checkpoint(c checkpointed) {
	for _, r := range m.replicas() {
		if r.p != nil && r.dir.offlineErr() == nil {
			m.raise(c.file(r.dir), r, c.offset(r.p))
		}
	}
	for _, d := range m.cfg.Dirs.dirs {
		if d.offlineErr() != nil {
			continue
		}
		if err := c.file(d).writeChanges(); err != nil {
			m.dirTrouble(d, err)
		}
	}
}
