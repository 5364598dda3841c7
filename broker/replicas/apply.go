package replicas

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"strandline/broker/locallog"
	"strandline/broker/partition"
	"strandline/broker/producerstate"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
)

// retryEvery is how long the applier waits before it tries again what failed,
// such as a leader that needs an object of a store that is down.
const retryEvery = time.Second

// occupiedMax is how long the folder of a deleted topic may be in the way of one
// that was made again under its name before that is worth a warning.
const occupiedMax = 10 * time.Second

func (m *Manager) runApplier() {
	timer := time.NewTimer(retryEvery)
	defer timer.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-m.inbox.kick:
		case <-timer.C:
			timer.Reset(retryEvery)
			m.applying.Lock()
			todo := len(m.retry) > 0 || len(m.starved) > 0
			m.applying.Unlock()
			if !todo {
				continue
			}
		}
		m.apply(m.inbox.take())
	}
}

// apply brings what is hosted in line with the image.
func (m *Manager) apply(w work) {
	m.applying.Lock()
	defer m.applying.Unlock()
	for _, f := range w.offline {
		m.replicaFailed(f)
	}
	img := m.latest(w.img)
	leads := m.mayLead(img)
	all := w.all || leads != m.leading
	m.leading, m.last = leads, img
	m.settleUnknown(img)
	m.resumeMoves()
	for _, tp := range m.revive() {
		m.retry[tp] = struct{}{}
	}
	todo := m.todo(img, w, all)
	m.removeReplicas(todo.remove)
	m.hostReplicas(img, todo.host)
	for tp := range w.remote {
		if r := m.lookup(tp); r != nil && r.p != nil {
			r.p.RemoteAdvanced()
		}
	}
	applied := m.applied.Load()
	if w.img != nil {
		applied = max(applied, w.img.Index())
	}
	if all {
		applied = max(applied, img.Index())
	}
	m.applied.Store(applied)
}

// latest returns the newest image at hand: what is hosted must never be compared
// with an older image than the one before, which could lack its topic.
func (m *Manager) latest(img *image.Image) *image.Image {
	for _, other := range []*image.Image{m.cfg.Watch.Image(), m.last} {
		if img == nil || other != nil && other.Index() > img.Index() {
			img = other
		}
	}
	return img
}

// mayLead is M1.
func (m *Manager) mayLead(img *image.Image) bool {
	b, ok := img.Broker(m.self)
	return ok && m.epoch.Load() >= 0 && int64(b.Epoch) == m.epoch.Load() && !b.Fenced
}

// todo is what an image asks for.
type todo struct {
	remove []*replica
	host   []wanted
}

// wanted is a replica that the image places here.
type wanted struct {
	tp       cluster.TopicPartition
	topic    *image.Topic
	settings config.Topic
	p        *image.Partition
	dir      *dir // where to make it, if it is not hosted yet
}

func (m *Manager) todo(img *image.Image, w work, all bool) todo {
	var t todo
	want := func(topic *image.Topic) {
		settings := m.settings(img, topic)
		for n, p := range topic.Partitions {
			if slices.Contains(p.Replicas, m.self) {
				tp := cluster.TopicPartition{Topic: topic.ID, Partition: int32(n)}
				t.host = append(t.host, wanted{tp: tp, topic: topic, settings: settings, p: p})
			}
		}
	}
	if all {
		for topic := range img.Topics() {
			want(topic)
		}
	} else {
		for id := range w.topics {
			if topic, ok := img.TopicByID(id); ok {
				want(topic)
			}
		}
		for tp := range m.retry {
			topic, p, ok := img.Partition(tp)
			if _, touched := w.topics[tp.Topic]; ok && !touched && slices.Contains(p.Replicas, m.self) {
				t.host = append(t.host, wanted{tp: tp, topic: topic, settings: m.settings(img, topic), p: p})
			}
		}
	}
	for tp, r := range m.replicas() {
		if _, touched := w.topics[tp.Topic]; !touched && !all {
			continue
		}
		if _, p, ok := img.Partition(tp); (!ok || !slices.Contains(p.Replicas, m.self)) && img.Index() >= r.meta.index {
			t.remove = append(t.remove, r)
		}
	}
	return t
}

// hostReplicas opens, makes and promotes replicas, several at once.
func (m *Manager) hostReplicas(img *image.Image, all []wanted) {
	clear(m.retry)
	for i := range all {
		if m.lookup(all[i].tp) == nil {
			if f, found := m.damagedAs(folderKey{all[i].topic.Name, all[i].tp.Partition}); found {
				f.meta = partitionMeta{topic: all[i].tp.Topic}
				f.dir.replicas.Add(1)
				m.hostOffline(f)
				continue
			}
			all[i].dir = m.chooseDir(all[i].p)
		}
	}
	var failed sync.Map
	parallel(len(all), openersMax, func(i int) {
		if err := m.host(img, all[i]); err != nil && m.ctx.Err() == nil {
			failed.Store(i, err)
		}
	})
	occupied := map[cluster.TopicPartition]time.Time{}
	failed.Range(func(i, err any) bool {
		w := all[i.(int)]
		m.retry[w.tp] = struct{}{}
		level := slog.LevelWarn
		if errors.Is(err.(error), errOccupied) { // its folder leaves with the next steps
			occupied[w.tp] = m.cfg.Now()
			if since, found := m.occupied[w.tp]; found {
				occupied[w.tp] = since
			}
			if m.cfg.Now().Sub(occupied[w.tp]) < occupiedMax {
				level = slog.LevelDebug
			}
		}
		m.cfg.Logger.Log(m.ctx, level, "replica cannot take its role yet", "topic", w.topic.Name, "partition", w.tp.Partition, "err", err)
		return true
	})
	m.occupied = occupied
}

// parallel calls fn for 0 to n-1 from at most atOnce goroutines and waits.
func parallel(n, atOnce int, fn func(int)) {
	if n <= 1 {
		for i := range n {
			fn(i)
		}
		return
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(1, atOnce))
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			fn(i)
		})
	}
	wg.Wait()
}

// host makes one replica be what the image says. Errors are worth another try.
func (m *Manager) host(img *image.Image, w wanted) error {
	r := m.lookup(w.tp)
	if r == nil {
		if w.dir == nil {
			return fmt.Errorf("%w: every log directory has failed", ErrOffline)
		}
		if w.dir.absent {
			m.hosted.Store(w.tp, &replica{
				folder: folder{dir: w.dir, key: folderKey{w.topic.Name, w.tp.Partition}, meta: partitionMeta{topic: w.tp.Topic}},
				err:    w.dir.offlineErr(), home: &atomic.Pointer[dir]{}, keep: &sync.RWMutex{},
			})
			return nil
		}
		f := folder{dir: w.dir, key: folderKey{w.topic.Name, w.tp.Partition}, meta: partitionMeta{topic: w.tp.Topic, index: img.Index()}}
		err := w.dir.forgotten()
		if err == nil {
			err = makeFolder(m.fs, f)
		}
		if isDamaged(err) { // since the start
			m.hostOffline(damagedFolder{f, err})
			return nil
		}
		if err != nil {
			w.dir.replicas.Add(-1)
			if !errors.Is(err, errOccupied) {
				m.dirTrouble(w.dir, err)
			}
			return fmt.Errorf("make the folder: %w", err)
		}
		r = m.openReplica(w.settings, f, openMade)
	}
	if r.p == nil {
		return nil // offline until the next start
	}
	if w.settings != r.p.Settings() {
		r.p.SetConfig(w.settings)
	}
	return m.takeRole(r.p, w.p)
}

// takeRole hands the image's leadership on; M1.
func (m *Manager) takeRole(p *partition.Partition, want *image.Partition) error {
	if want.Leader == m.self && !m.leading {
		p.Resign()
		return nil
	}
	err := p.Become(m.ctx, partition.Leadership{
		Leader: want.Leader, LeaderEpoch: want.LeaderEpoch, PartitionEpoch: want.PartitionEpoch,
		Replicas: want.Replicas, ISR: want.ISR,
	})
	if errors.Is(err, partition.ErrStorage) || errors.Is(err, partition.ErrClosed) {
		return nil // offline; another try would not help
	}
	return err
}

// opening says where a replica's log comes from.
type opening struct {
	made bool // the folder is new and no checkpoint is about it
	// again: it failed in this process. What was known of it then is as good as
	// the checkpoints; NoOffset where nothing was.
	again                bool
	flushed, start, mark cluster.Offset
}

var (
	openMade  = opening{made: true}
	openFound = opening{}
	openAgain = opening{again: true, flushed: cluster.NoOffset, start: cluster.NoOffset, mark: cluster.NoOffset}
)

// openReplica opens a folder's log and hosts it; a log that does not open is
// hosted as offline.
func (m *Manager) openReplica(settings config.Topic, f folder, o opening) *replica {
	cfg, mark := m.logConfig(settings, f, o)
	r := &replica{folder: f, home: &atomic.Pointer[dir]{}, keep: &sync.RWMutex{}}
	r.home.Store(f.dir)
	tp := f.tp()
	log, err := locallog.Open(cfg)
	if err != nil {
		r.err = err
		m.cfg.Logger.Error("replica cannot be opened", "partition", f.key.String(), "dir", f.dir.path, "err", err, "remedy", openRemedy(f, err))
		m.dirTrouble(f.dir, err)
		if noSpace(err) || disk.NoDescriptor(err) {
			m.inbox.failed(tp, err)
		}
	} else {
		m.reportMissing(settings, f, log)
		home := r.home
		r.p = partition.New(partition.Config{
			TopicPartition: tp, Topic: f.key.topic, Self: m.self, Settings: settings, Log: log, HighWatermark: mark,
			Remote: m.cfg.Remote, Keeper: m.cfg.Keeper, Checkpoint: m,
			FlushSlots: func() chan struct{} { return home.Load().slots },
			DiskFull:   func() bool { return m.diskFull(home.Load()) },
			OnNoSpace:  func() { home.Load().hadNoSpace() },
			OnOffline:  func(err error) { m.inbox.failed(tp, err) }, OnOffer: func() { m.cfg.OnOffer(tp) }, Now: m.cfg.Now, Logger: m.cfg.Logger,
		})
	}
	if !o.made && !o.again { // else it is counted
		f.dir.replicas.Add(1)
	}
	m.hosted.Store(tp, r)
	m.misplaced.Store(true)
	if r.p != nil && m.cfg.Hosting != nil {
		m.cfg.Hosting.Hosted(r.p)
	}
	return r
}

// openRemedy says what a person can do about a log that does not open.
func openRemedy(f folder, err error) string {
	switch {
	case noSpace(err):
		return "free some room; the replica is opened again by itself"
	case disk.NoDescriptor(err):
		return "raise the limit of open files (ulimit -n); the replica is opened again by itself"
	case isDamaged(err):
		return "restore the file from a copy and restart (strandline segment dump --deep tells what is damaged); or, where the leader, another replica or the object store has the records, move the folder " +
			f.path() + " out of the log directory and restart: the replica is then made anew from those, and without them it begins empty"
	}
	return "repair the disk and restart; the folder is kept as it is"
}

// reportMissing says which offsets are gone between segments. Compaction leaves
// such holes too.
func (m *Manager) reportMissing(settings config.Topic, f folder, log *locallog.Log) {
	if settings.CleanupPolicy.Compact() || log.Compacted() {
		return
	}
	for _, gone := range log.Missing() {
		m.cfg.Logger.Error("records are missing: a segment was lost or cut short; the rest is served", "partition", f.key.String(), "dir", f.dir.path, "from", gone.From, "to", gone.To-1)
	}
}

// logConfig is what a replica's log is opened with, and its high watermark.
func (m *Manager) logConfig(settings config.Topic, f folder, o opening) (locallog.Config, cluster.Offset) {
	cfg := locallog.Config{
		FS: m.fs, Dir: f.path(), Partition: f.key.String(), Settings: partition.LogSettings(settings),
		LogStart: cluster.NoOffset, RemoteBelow: m.cfg.Remote != nil, FolderSync: func() error { return f.sync(m.fs) },
		Producers: producerstate.Config{Expiration: m.cfg.Broker.ProducerIDExpiration},
		Handles:   m.handles, Recent: m.recent, Now: m.cfg.Now, Logger: m.cfg.Logger, Hook: m.cfg.Hook,
	}
	mark := cluster.NoOffset
	if !o.made {
		cfg.CleanStop, cfg.Rewrite = f.dir.clean && !o.again, o.again
		cfg.RecoveryPoint, _ = f.dir.recovery.get(f.key)
		if start, ok := f.dir.starts.get(f.key); ok {
			cfg.LogStart = start
		}
		if o, ok := f.dir.marks.get(f.key); ok {
			mark = o
		}
	}
	if o.again {
		cfg.RecoveryPoint, cfg.LogStart, mark = max(cfg.RecoveryPoint, o.flushed), max(cfg.LogStart, o.start), max(mark, o.mark)
	}
	if m.cfg.Remote != nil {
		if start, known := m.cfg.Remote.LogStartOffset(f.tp()); known {
			cfg.LogStart = start
		}
		if end, known := m.cfg.Remote.RemoteEndOffset(f.tp()); known {
			cfg.RemoteEnd = end
		}
	}
	return cfg, mark
}

// replicaFailed takes the directory offline unless only the replica is corrupt,
// or had no room or no file descriptor: then it comes back once there is one.
func (m *Manager) replicaFailed(f failure) {
	r := m.lookup(f.tp)
	switch {
	case r == nil:
	case noSpace(f.err):
		m.starved[f.tp] = time.Time{}
		r.dir.hadNoSpace()
	case disk.NoDescriptor(f.err):
		m.starved[f.tp] = m.cfg.Now().Add(retryEvery)
	default:
		m.dirTrouble(r.dir, f.err)
	}
}

// dirTrouble takes a directory offline with all its replicas, unless the error
// is about one replica's content.
func (m *Manager) dirTrouble(d *dir, err error) {
	var corrupt *segment.CorruptError
	if errors.As(err, &corrupt) || errors.Is(err, locallog.ErrBadAppend) {
		return
	}
	if noSpace(err) {
		d.hadNoSpace()
		return
	}
	if disk.NoDescriptor(err) {
		m.cfg.Logger.Error("no file descriptor is left: fewer connections or partitions, or a higher limit (ulimit -n), are needed", "dir", d.path, "err", err)
		return
	}
	if !d.offline.CompareAndSwap(nil, &offlineReason{err}) {
		return
	}
	m.cfg.Logger.Error("log directory offline until the next start: its replicas answer KAFKA_STORAGE_ERROR, the other directories go on",
		"dir", d.path, "replicas", d.replicas.Load(), "err", err, "remedy", "repair or replace the disk, then restart; to give its data up take it from log.dirs")
	for _, r := range m.replicas() {
		if r.dir == d && r.p != nil {
			r.p.TakeOffline(err)
		}
	}
	m.cfg.OnDirOffline()
	if !slices.ContainsFunc(m.cfg.Dirs.dirs, func(d *dir) bool { return d.offlineErr() == nil }) {
		m.cfg.Failed(fmt.Errorf("every log directory has failed, the last one %s: %w", d.path, err))
	}
}
