package quorum

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"strandline/metadata/disk"
	"strandline/metadata/store"
)

// Server is a member of the quorum.
type Server struct {
	ID    string
	Voter bool
}

// Timers are Raft's.
type Timers struct {
	Heartbeat time.Duration // silence of the leader before an election
	Election  time.Duration // of a candidate
	Lease     time.Duration // a leader without a majority steps down
	Commit    time.Duration // followers learn of commits
}

// Limits bound the Raft log.
type Limits struct {
	// A snapshot is taken once this much was added since the last.
	SnapshotBytes   int64
	SnapshotEntries int
	// At most this much stays behind a snapshot, for followers that lag.
	TrailingBytes   int64
	TrailingEntries int
}

// Defaults.
var (
	DefaultTimers = Timers{
		Heartbeat: 250 * time.Millisecond, Election: 250 * time.Millisecond,
		Lease: 200 * time.Millisecond, Commit: 25 * time.Millisecond,
	}
	DefaultLimits = Limits{
		SnapshotBytes: 8 << 20, SnapshotEntries: 8192,
		TrailingBytes: 2 << 20, TrailingEntries: 1024,
	}
)

// loneExtra is what a lone voter's timers start above their value: only a
// decrease wakes Raft's follower loop, which then starts an election at once.
const loneExtra = time.Millisecond

// Config is what a Quorum needs.
type Config struct {
	FS      disk.FS
	Dir     string // of the node's metadata
	ID      string // of this server (Q6)
	Machine Machine
	Streams StreamLayer // Alone, where nil
	Logger  *slog.Logger
	Fatal   func(err error) // store.Config.Fatal
	Timers  Timers          // DefaultTimers where zero
	Limits  Limits          // DefaultLimits where zero
}

// Tenure says whether this node leads.
type Tenure struct {
	Leader bool
	Term   uint64 // of Raft, where Leader
	// Count rises with every change, so that none is missed.
	Count uint64
}

// Quorum is this node's part of it. All methods may be called from several
// goroutines, apart from Open, Bootstrap and Start, which come in that order.
type Quorum struct {
	cfg   Config
	log   *slog.Logger
	db    *store.DB
	logs  *logStore
	snaps *snapshotStore

	raft     *raft.Raft
	quiet    atomic.Bool   // see raftLogger
	notify   chan bool     // from Raft
	due      chan struct{} // a snapshot is due
	stop     chan struct{}
	done     sync.WaitGroup
	close    sync.Once
	closeErr error

	mu      sync.Mutex
	tenure  Tenure
	changed chan struct{} // closed when tenure changes
}

// Open opens the files and brings the machine up to the newest snapshot, should
// it lie behind (Q3).
func Open(cfg Config) (*Quorum, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Streams == nil {
		cfg.Streams = Alone()
	}
	if cfg.Timers == (Timers{}) {
		cfg.Timers = DefaultTimers
	}
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits
	}
	q := &Quorum{
		cfg: cfg, log: cfg.Logger,
		notify: make(chan bool, 1), due: make(chan struct{}, 1), stop: make(chan struct{}),
		changed: make(chan struct{}),
	}
	db, err := store.Open(store.Config{
		FS: cfg.FS, Dir: path.Join(cfg.Dir, "raft"), Logger: cfg.Logger, Fatal: cfg.Fatal, CacheBytes: 2 << 20,
	})
	if err != nil {
		return nil, err
	}
	q.db = db
	if err := q.open(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return q, nil
}

func (q *Quorum) open() (err error) {
	if q.logs, err = newLogStore(q.db, q.cfg.Limits, q.due); err != nil {
		return fmt.Errorf("reading the raft log: %w", err)
	}
	if q.snaps, err = openSnapshots(q.cfg.FS, path.Join(q.cfg.Dir, "snapshots"), q.log); err != nil {
		return fmt.Errorf("reading the metadata snapshots: %w", err)
	}
	id, meta, ok, err := q.snaps.newest()
	if err != nil {
		return fmt.Errorf("reading the newest metadata snapshot: %w", err)
	}
	if ok && q.cfg.Machine.Applied() < meta.Applied {
		q.log.Info("restoring the metadata state from a snapshot",
			"snapshot", id, "applied", q.cfg.Machine.Applied(), "snapshot.applied", meta.Applied)
		if err := q.cfg.Machine.Restore(q.snaps.checkpointDir(id)); err != nil {
			return fmt.Errorf("restoring metadata snapshot %s: %w", id, err)
		}
	}
	// Q3: no committed entry may be missing between the state and the log.
	if first := q.logs.first; first > 1 && first > meta.Index+1 && first > q.cfg.Machine.Applied()+1 {
		return &CorruptError{Name: path.Join(q.cfg.Dir, "raft"), Cause: fmt.Errorf(
			"the log begins at %d, but the state ends at %d and the newest snapshot at %d",
			first, q.cfg.Machine.Applied(), meta.Index)}
	}
	// What was applied was in the log, durably: a log that ends before that lost
	// its end, and would give its indexes to other commands.
	if last := max(q.logs.last, meta.Index); last > 0 && last < q.cfg.Machine.Applied() {
		return &CorruptError{Name: path.Join(q.cfg.Dir, "raft"), Cause: fmt.Errorf(
			"the log ends at %d, but the state is of index %d: restore the directory from a backup", last, q.cfg.Machine.Applied())}
	}
	return nil
}

// Empty reports whether this server never was part of a quorum.
func (q *Quorum) Empty() (bool, error) {
	_, _, snapshot, err := q.snaps.newest()
	return q.logs.last == 0 && !snapshot, err
}

// Bootstrap makes the first membership. It is refused unless the quorum is
// empty.
func (q *Quorum) Bootstrap(servers []Server) error {
	empty, err := q.Empty()
	if err != nil {
		return err
	}
	if !empty {
		return fmt.Errorf("metadata quorum in %s was bootstrapped before", q.cfg.Dir)
	}
	return q.logs.bootstrap(raft.EncodeConfiguration(configuration(servers)))
}

func configuration(servers []Server) raft.Configuration {
	var c raft.Configuration
	for _, s := range servers {
		server := raft.Server{ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.ID), Suffrage: raft.Nonvoter}
		if s.Voter {
			server.Suffrage = raft.Voter
		}
		c.Servers = append(c.Servers, server)
	}
	return c
}

func (q *Quorum) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(q.cfg.ID)
	c.HeartbeatTimeout = q.cfg.Timers.Heartbeat + loneExtra
	c.ElectionTimeout = q.cfg.Timers.Election + loneExtra
	c.LeaderLeaseTimeout = q.cfg.Timers.Lease
	c.CommitTimeout = q.cfg.Timers.Commit
	c.NoSnapshotRestoreOnStart = true
	c.NoLegacyTelemetry = true
	c.ShutdownOnRemove = false
	c.NotifyCh = q.notify
	c.Logger = newRaftLogger(q.log, &q.quiet)
	// Snapshots are taken by follow, which counts bytes.
	c.SnapshotThreshold = math.MaxUint64
	c.SnapshotInterval = 24 * time.Hour
	c.TrailingLogs = uint64(q.cfg.Limits.TrailingEntries)
	return c
}

// Start begins to take part. A lone voter leads within milliseconds.
func (q *Quorum) Start() error {
	log := newRaftLogger(q.log, &q.quiet)
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: streams{StreamLayer: q.cfg.Streams, id: q.cfg.ID}, Logger: log,
		MaxPool: 3, Timeout: 5 * time.Second, MsgpackUseNewTimeFormat: true,
	})
	r, err := raft.NewRaft(q.raftConfig(), &fsm{machine: q.cfg.Machine}, q.logs, q.logs, q.snaps, transport)
	if err != nil {
		return errors.Join(fmt.Errorf("starting the metadata quorum: %w", err), transport.Close())
	}
	q.raft = r
	q.done.Add(1)
	go q.follow()
	servers, err := q.Servers()
	if err != nil {
		return err
	}
	if len(servers) == 1 && servers[0].Voter && servers[0].ID == q.cfg.ID {
		q.quiet.Store(true) // the election that comes now surprises nobody
		return q.reload(uint64(q.cfg.Limits.TrailingEntries))
	}
	return nil
}

// reload sets what may change while Raft runs, the timers without loneExtra.
func (q *Quorum) reload(trailing uint64) error {
	c := q.raft.ReloadableConfig()
	c.HeartbeatTimeout, c.ElectionTimeout = q.cfg.Timers.Heartbeat, q.cfg.Timers.Election
	c.TrailingLogs = trailing
	return q.raft.ReloadConfig(c)
}

// follow keeps Tenure up to date and takes snapshots.
func (q *Quorum) follow() {
	defer q.done.Done()
	var snapshots sync.WaitGroup
	defer snapshots.Wait()
	busy := make(chan struct{}, 1)
	for {
		select {
		case leader := <-q.notify:
			q.setTenure(leader)
		case <-q.due:
			select {
			case busy <- struct{}{}:
				snapshots.Go(func() {
					defer func() { <-busy }()
					if err := q.Snapshot(); err != nil && !errors.Is(err, raft.ErrRaftShutdown) {
						q.log.Error("metadata snapshot failed", "err", err)
					}
				})
			default: // one is being taken; the next entry asks again
			}
		case <-q.stop:
			return
		}
	}
}

func (q *Quorum) setTenure(leader bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tenure = Tenure{Leader: leader, Count: q.tenure.Count + 1}
	if leader {
		q.tenure.Term = q.raft.CurrentTerm()
	}
	close(q.changed)
	q.changed = make(chan struct{})
}

// Tenure returns the current tenure and a channel that is closed when it
// changes.
func (q *Quorum) Tenure() (Tenure, <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tenure, q.changed
}

// Leader returns the id of the server that leads, "" where none is known.
func (q *Quorum) Leader() string {
	_, id := q.raft.LeaderWithID()
	return string(id)
}

// Servers returns the members.
func (q *Quorum) Servers() ([]Server, error) {
	f := q.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, outcome(err)
	}
	var out []Server
	for _, s := range f.Configuration().Servers {
		out = append(out, Server{ID: string(s.ID), Voter: s.Suffrage == raft.Voter})
	}
	return out, nil
}

// Proposal is a command on its way.
type Proposal struct{ future raft.ApplyFuture }

// Propose hands a command to Raft and returns once Raft took it, or refused.
// Proposals of one goroutine keep their order. There is no timeout: a command
// that timed out could still be applied.
func (q *Quorum) Propose(data []byte) Proposal {
	return Proposal{future: q.raft.Apply(data, 0)}
}

// Wait returns the machine's answer and the command's index, once it was
// applied here.
func (p Proposal) Wait() (answer any, index uint64, err error) {
	if err := p.future.Error(); err != nil {
		return nil, 0, outcome(err)
	}
	return p.future.Response(), p.future.Index(), nil
}

// Barrier waits until every committed command before it is applied here.
func (q *Quorum) Barrier() error { return outcome(q.raft.Barrier(0).Error()) }

// Snapshot takes a snapshot now and shortens the log.
func (q *Quorum) Snapshot() error {
	if err := q.reload(q.logs.snapshotStarts()); err != nil {
		return err
	}
	err := q.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return err
}

// AddObserver adds a server that gets every change but does not vote.
func (q *Quorum) AddObserver(id string) error {
	q.quiet.Store(false)
	return outcome(q.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), 0, 0).Error())
}

// AddVoter makes a server vote.
func (q *Quorum) AddVoter(id string) error {
	q.quiet.Store(false)
	return outcome(q.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(id), 0, 0).Error())
}

// Remove takes a server out of the quorum.
func (q *Quorum) Remove(id string) error {
	return outcome(q.raft.RemoveServer(raft.ServerID(id), 0, 0).Error())
}

// Status describes the quorum for people.
type Status struct {
	State     string // Leader, Follower, ...
	Leader    string // id of the leader
	Term      uint64
	LastIndex uint64
	Committed uint64
	Applied   uint64
	Log       store.Stats
}

// Status returns the current figures.
func (q *Quorum) Status() Status {
	return Status{
		State: q.raft.State().String(), Leader: q.Leader(), Term: q.raft.CurrentTerm(),
		LastIndex: q.raft.LastIndex(), Committed: q.raft.CommitIndex(), Applied: q.raft.AppliedIndex(),
		Log: q.db.Stats(),
	}
}

// Close stops taking part and closes the files. The caller must have waited for
// its proposals. A second Close answers the same.
func (q *Quorum) Close() error {
	q.close.Do(func() {
		var err error
		if q.raft != nil {
			// Raft's main loop may be blocked on telling follow, so it
			// stops first.
			err = q.raft.Shutdown().Error()
		}
		close(q.stop)
		q.done.Wait()
		q.closeErr = errors.Join(err, q.cfg.Streams.Close(), q.db.Close())
	})
	return q.closeErr
}
