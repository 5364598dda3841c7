package replicas

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"strandline/broker/locallog"
	"strandline/broker/partition"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Steps of a move that Config.Hook is told of.
const (
	// StepMoveCopied: the copy is whole and closed under its future name.
	StepMoveCopied = "move-copied"
	// StepMoveRenamed: the copy has its name, the former folder has it too.
	StepMoveRenamed = "move-renamed"
)

const (
	futureSuffix = "-future"
	// moveBytes is what one step of a copy takes.
	moveBytes = 1 << 20
	// movesMax bounds the copies that run at once; others wait.
	movesMax = 2
	// moveAttempts bounds how often a copy begins again because the log was
	// trimmed or begun anew under it.
	moveAttempts = 5
	movePause    = 100 * time.Millisecond
)

// moves are the replicas on their way to another directory of this broker.
type moves struct {
	slots chan struct{}
	mu    sync.Mutex
	by    map[cluster.TopicPartition]*move
}

// move is one of them.
type move struct {
	to     *dir
	cancel context.CancelFunc
	copy   atomic.Pointer[locallog.Log] // nil until there is one
}

// ErrNoSuchDir: log.dirs does not list the directory.
var ErrNoSuchDir = errors.New("no such log directory")

// Move begins to move a replica to another directory, or ends the move under way
// where it is in that one. The copy goes on in the background, while the replica
// is written and read, and takes its place at once when it has caught up.
func (m *Manager) Move(tp cluster.TopicPartition, to string) error {
	d := m.dirAt(to)
	switch {
	case d == nil:
		return fmt.Errorf("%w: %s", ErrNoSuchDir, to)
	case d.offlineErr() != nil:
		return fmt.Errorf("%w: log directory %s: %w", ErrOffline, d.path, d.offlineErr())
	}
	if _, err := m.Get(tp); err != nil {
		return err
	}
	m.applying.Lock()
	defer m.applying.Unlock()
	if m.ctx.Err() != nil {
		return ErrClosed
	}
	m.move(tp, d)
	return nil
}

func (m *Manager) dirAt(name string) *dir {
	for _, d := range m.cfg.Dirs.dirs {
		if absolute(d.path) == absolute(name) {
			return d
		}
	}
	return nil
}

// absolute is how clients name a directory.
func absolute(name string) string {
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return path.Clean(name)
}

// move starts a move; applying is held.
func (m *Manager) move(tp cluster.TopicPartition, to *dir) {
	r := m.lookup(tp)
	if r == nil {
		return
	}
	m.moves.mu.Lock()
	defer m.moves.mu.Unlock()
	if old := m.moves.by[tp]; old != nil {
		if old.to == to {
			return
		}
		old.cancel()
		delete(m.moves.by, tp)
	}
	if r.dir == to {
		return
	}
	ctx, cancel := context.WithCancel(m.ctx)
	mv := &move{to: to, cancel: cancel}
	m.moves.by[tp] = mv
	m.workers.Go(func() {
		defer cancel()
		m.runMove(ctx, r, mv)
		m.moves.mu.Lock()
		defer m.moves.mu.Unlock()
		if m.moves.by[tp] == mv {
			delete(m.moves.by, tp)
		}
	})
}

// stopMove ends the move of a replica that leaves.
func (m *Manager) stopMove(tp cluster.TopicPartition) {
	m.moves.mu.Lock()
	defer m.moves.mu.Unlock()
	if mv := m.moves.by[tp]; mv != nil {
		mv.cancel()
		delete(m.moves.by, tp)
	}
}

func (m *Manager) runMove(ctx context.Context, r *replica, mv *move) {
	select {
	case m.moves.slots <- struct{}{}:
		defer func() { <-m.moves.slots }()
	case <-ctx.Done():
		return
	}
	began := m.cfg.Now()
	log := m.cfg.Logger.With("partition", r.key.String(), "from", r.dir.path, "to", mv.to.path)
	log.Info("replica is copied to another log directory")
	err := locallog.ErrOvertaken
	for n := 0; n < moveAttempts && errors.Is(err, locallog.ErrOvertaken); n++ {
		err = m.tryMove(ctx, r, mv)
	}
	switch {
	case err == nil:
		log.Info("replica moved to another log directory", "took", m.cfg.Now().Sub(began))
	case ctx.Err() != nil:
		log.Info("move of a replica ended")
	default:
		log.Error("replica stays in its log directory: the move failed", "err", err)
		m.blame(r, mv, err)
	}
}

// blame takes the directory offline that a failed move tells of.
func (m *Manager) blame(r *replica, mv *move, err error) {
	var source *locallog.SourceError
	switch {
	case errors.Is(err, locallog.ErrOvertaken), errors.Is(err, partition.ErrClosed), errors.Is(err, partition.ErrStorage):
	case errors.As(err, &source):
		m.dirTrouble(r.dir, err)
	default:
		m.dirTrouble(mv.to, err)
	}
}

// tryMove makes one copy, and where it fails removes it, except at a stop: the
// next start goes on with the move then.
func (m *Manager) tryMove(ctx context.Context, r *replica, mv *move) (err error) {
	f := folder{dir: mv.to, key: r.key, meta: r.meta}
	f.meta.moves++
	future := path.Join(mv.to.path, asideName(r.key, futureSuffix))
	defer func() {
		if err != nil && m.ctx.Err() == nil {
			_ = m.fs.RemoveAll(future)
		}
	}()
	if err := m.fs.MkdirAll(future); err != nil {
		return err
	}
	if err := disk.WriteFileAtomic(m.fs, path.Join(future, partitionName), f.meta.encode()); err != nil {
		return err
	}
	if err := m.fs.SyncDir(mv.to.path); err != nil {
		return err
	}
	cfg, _ := m.logConfig(r.p.Settings(), f, openMade)
	cfg.Dir, cfg.FolderSync = future, nil
	log, err := locallog.Open(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close(false) }()
	changes, err := m.copyAll(ctx, r, mv, log)
	if err != nil {
		return err
	}
	return m.exchange(ctx, r, mv, f, future, log, changes)
}

// copyAll copies until little is left, and makes that durable.
func (m *Manager) copyAll(ctx context.Context, r *replica, mv *move, log *locallog.Log) (changes int64, err error) {
	if changes, err = r.p.Copying(func(source *locallog.Log) error { return source.BeginCopy(log) }); err != nil {
		return 0, err
	}
	mv.copy.Store(log)
	for synced := false; ; {
		var copied int64
		now, err := r.p.Copying(func(source *locallog.Log) (err error) {
			copied, err = source.CopyOn(log, moveBytes)
			return err
		})
		switch {
		case err != nil:
			return 0, err
		case now != changes:
			return 0, locallog.ErrOvertaken
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case copied < moveBytes/2 && synced:
			return changes, nil
		case copied < moveBytes/2:
			if err := log.Flush(ctx); err != nil {
				return 0, err
			}
			synced = true
		}
		for mv.to.room.full.Load() { // others need the rest
			select {
			case <-time.After(movePause):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	}
}

// exchange puts the copy in the place of the replica's log. Appends wait
// meanwhile. From the moment that the copy has its name it is the replica: it has
// everything, durably, and a higher number of moves than what a stop in between
// leaves of the former folder.
func (m *Manager) exchange(ctx context.Context, r *replica, mv *move, f folder, future string, log *locallog.Log, changes int64) error {
	m.applying.Lock()
	defer m.applying.Unlock()
	if ctx.Err() != nil || m.lookup(r.tp()) != r {
		return errors.Join(ctx.Err(), ErrClosed)
	}
	r.keep.Lock() // no log start is persisted in between
	defer r.keep.Unlock()
	moved := &replica{folder: f, p: r.p, home: r.home, keep: r.keep}
	err := r.p.Exchange(changes, func(old *locallog.Log) (*locallog.Log, error) {
		for {
			if n, err := old.CopyOn(log, moveBytes); err != nil {
				return nil, err
			} else if n == 0 {
				break
			}
		}
		if err := old.EndCopy(log); err != nil {
			return nil, err
		}
		m.hook(StepMoveCopied)
		fresh, err := m.takePlace(r, f, future, old)
		if err != nil {
			return nil, err
		}
		m.hosted.Store(r.tp(), moved)
		r.home.Store(f.dir)
		return fresh, nil
	})
	if err != nil {
		return err
	}
	f.dir.replicas.Add(1)
	r.dir.replicas.Add(-1)
	m.discard(r.folder, r.p.Settings().FileDeleteDelay)
	m.forget(r.dir)
	m.misplaced.Store(true)
	return nil
}

// takePlace gives the copy its name and opens it. Where that fails the former
// folder stays what it was.
func (m *Manager) takePlace(r *replica, f folder, future string, old *locallog.Log) (*locallog.Log, error) {
	start := old.StartOffset()
	if o, ok := r.dir.starts.get(r.key); ok {
		start = max(start, o)
	}
	for file, o := range map[*offsetFile]cluster.Offset{&f.dir.starts: start, &f.dir.recovery: old.EndOffset(), &f.dir.marks: r.p.HighWatermark()} {
		file.set(f.key, o)
		if err := file.writeChanges(); err != nil {
			return nil, err
		}
	}
	if err := m.fs.Rename(future, f.path()); err != nil {
		return nil, err
	}
	err := m.fs.SyncDir(f.dir.path)
	if err == nil {
		m.hook(StepMoveRenamed)
		cfg, _ := m.logConfig(r.p.Settings(), f, openFound)
		cfg.CleanStop, cfg.LogStart = true, start
		var fresh *locallog.Log
		if fresh, err = locallog.Open(cfg); err == nil {
			return fresh, nil
		}
	}
	// What has the name counts at the next start: it must not stay.
	undo := m.fs.Rename(f.path(), future)
	if undo == nil {
		undo = m.fs.SyncDir(f.dir.path)
	}
	if undo != nil {
		r.p.TakeOffline(&segment.CorruptError{File: f.path(), Cause: fmt.Errorf("a copy that failed has the replica's name and cannot be taken away: %w", undo)})
	}
	return nil, err
}

var futureName = regexp.MustCompile(`-(\d+)\.[0-9a-f]{32}` + futureSuffix + `$`)

// unfinished notes a copy that an earlier run left: it goes, and the move begins
// again once the replica is there.
func (m *Manager) unfinished(d *dir, name string) bool {
	found := futureName.FindStringSubmatch(name)
	if found == nil {
		return false
	}
	full := path.Join(d.path, name)
	number, err := strconv.ParseInt(found[1], 10, 32)
	data, err2 := disk.ReadFile(m.fs, path.Join(full, partitionName))
	if err == nil && err2 == nil {
		if meta, err := parsePartitionMeta(data); err == nil {
			m.resume = append(m.resume, resumed{cluster.TopicPartition{Topic: meta.topic, Partition: int32(number)}, d})
		}
	}
	m.removals = append(m.removals, removal{dir: d, path: full, due: m.cfg.Now()})
	return true
}

// resumed is a move to begin again.
type resumed struct {
	tp cluster.TopicPartition
	to *dir
}

// resumeMoves begins the moves again that a stop cut off; applying is held.
func (m *Manager) resumeMoves() {
	if !m.settled {
		return
	}
	for _, one := range m.resume {
		if r := m.lookup(one.tp); r != nil && r.p != nil && one.to.offlineErr() == nil {
			m.move(one.tp, one.to)
		}
	}
	m.resume = nil
}

// HasDir says that log.dirs lists the directory.
func (m *Manager) HasDir(name string) bool { return m.dirAt(name) != nil }
