package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/controller"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/quorum"
	"strandline/metadata/request"
	"strandline/metadata/state"
	"strandline/metadata/watch"
)

// Config is what a Node is made of.
type Config struct {
	FS     disk.FS
	Dir    string        // metadata.log.dir
	Broker config.Broker // node id, voters, and what the controller goes by
	// LogDirs are named in refusals.
	LogDirs []string
	Logger  *slog.Logger
	Now     func() time.Time // nil: time.Now
	// Fatal is told once why the node cannot go on. Nil ends the process with
	// status 1. Where it returns, the node answers nothing more (D5).
	Fatal func(err error)
	// Limits bound the Raft log; quorum.DefaultLimits where zero.
	Limits quorum.Limits
}

// Node is the metadata plane of this node. It implements watch.Watch.
type Node struct {
	cfg  Config
	id   cluster.BrokerID
	log  *slog.Logger
	dir  *directory
	gone chan struct{} // closed by fail

	failOnce sync.Once
	failErr  error

	state    *state.State
	quorum   *quorum.Quorum
	loop     *loop
	dispatch *dispatcher

	closeOnce sync.Once
	closeErr  error
}

var _ watch.Watch = (*Node)(nil)

// Supported refuses a configuration of the metadata quorum that this node cannot
// have. It touches nothing.
func Supported(b config.Broker) error {
	for _, v := range b.Voters {
		if v.ID != b.NodeID {
			return fmt.Errorf("controller.quorum.voters names node %d: more than one voter is not supported yet", v.ID)
		}
	}
	return nil
}

// Open locks metadata.log.dir and checks that it is this node's, or new. It
// changes nothing else. It fails with a *DirError.
func Open(cfg Config) (*Node, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	n := &Node{cfg: cfg, id: cluster.BrokerID(cfg.Broker.NodeID), log: cfg.Logger, gone: make(chan struct{})}
	if err := Supported(cfg.Broker); err != nil {
		return nil, err
	}
	dir, err := openDirectory(cfg.FS, cfg.Dir, n.id)
	if err != nil {
		return nil, err
	}
	n.dir = dir
	return n, nil
}

// Start opens the state and the quorum, begins a new cluster where everything
// is new, and returns once this node's image is up to date and Submit works.
// logDirsClusterID is what the log directories say of their cluster, "" where
// all of them are new. After an error the node must be closed.
func (n *Node) Start(ctx context.Context, logDirsClusterID string) error {
	if err := n.dir.found(n.id, n.cfg.LogDirs, logDirsClusterID); err != nil {
		return err
	}
	began := time.Now()
	if err := n.open(logDirsClusterID); err != nil {
		return err
	}
	ctrl := controller.New(controller.Config{
		Node: n.id, Broker: n.cfg.Broker, ClusterID: n.dir.clusterID, Catalog: n.state, Logger: n.log,
	})
	if err := n.quorum.Start(); err != nil {
		return err
	}
	n.loop = startLoop(ctrl, n.quorum, n.state, n.cfg.Now, n.log)
	select {
	case <-n.loop.led:
	case <-ctx.Done():
		return fmt.Errorf("waiting for a controller: %w", ctx.Err())
	case <-n.gone:
		return n.failErr
	}
	if id := n.Image().ClusterID(); id != n.dir.clusterID {
		return n.dir.refuse(ErrForeign, "%s names cluster.id %s, its contents are of %s", metaName, n.dir.clusterID, id)
	}
	n.log.Info("metadata ready", "cluster.id", n.dir.clusterID, "index", n.Image().Index(),
		"topics", n.Image().TopicCount(), "took", time.Since(began))
	return nil
}

// open opens state and quorum.
func (n *Node) open(logDirsClusterID string) (err error) {
	n.state, err = state.Open(state.Config{
		FS: n.cfg.FS, Dir: path.Join(n.dir.path, "state"), Logger: n.log, Fatal: n.fatal(), Applied: n.applied,
	})
	if err != nil {
		return n.unreadable(err)
	}
	n.dispatch = startDispatcher(n.state.Image())
	serverID := fmt.Sprintf("%d-%s", n.id, n.dir.directoryID)
	n.quorum, err = quorum.Open(quorum.Config{
		FS: n.cfg.FS, Dir: n.dir.path, ID: serverID, Machine: n.state, Logger: n.log, Fatal: n.fatal(), Limits: n.cfg.Limits,
	})
	if err != nil {
		return n.unreadable(err)
	}
	empty, err := n.quorum.Empty()
	if err != nil {
		return n.unreadable(err)
	}
	if !empty {
		return nil
	}
	if n.state.Applied() > 0 {
		return n.dir.refuse(ErrWiped, "its raft log is missing, but its state is of index %d", n.state.Applied())
	}
	if logDirsClusterID != "" {
		return n.dir.wiped(n.cfg.LogDirs)
	}
	n.log.Info("beginning a new cluster", "cluster.id", n.dir.clusterID, "node.id", n.id)
	return n.quorum.Bootstrap([]quorum.Server{{ID: serverID, Voter: true}})
}

// unreadable makes an error of what lies in the directory a *DirError.
func (n *Node) unreadable(err error) error {
	cause := err
	if errors.Is(err, state.ErrNewerFormat) {
		cause = errors.Join(ErrNewerFormat, err)
	}
	return &DirError{Dir: n.dir.path, Reason: err.Error(), Cause: cause}
}

// applied takes changes from the state. The first ones, of a restore at start,
// come before there is a dispatcher, which starts from the image after them.
func (n *Node) applied(c state.Change) {
	if n.dispatch != nil {
		n.dispatch.changed(c)
	}
}

// fatal is what store and state are told to call, nil where nobody listens.
func (n *Node) fatal() func(error) {
	if n.cfg.Fatal == nil {
		return nil
	}
	return func(err error) {
		n.failOnce.Do(func() {
			n.failErr = err
			close(n.gone)
			n.cfg.Fatal(err)
		})
	}
}

// ClusterID is the cluster's id, once Start returned.
func (n *Node) ClusterID() string { return n.dir.clusterID }

// DirectoryID is the id of metadata.log.dir, once Start returned.
func (n *Node) DirectoryID() cluster.DirectoryID { return n.dir.directoryID }

// Image implements watch.Watch, as do the methods below.
func (n *Node) Image() *image.Image { return n.state.Image() }

func (n *Node) Subscribe(fn func(img *image.Image, d *image.Delta)) (cancel func()) {
	return n.dispatch.subscribe(fn)
}

func (n *Node) Catalog() watch.Catalog { return nodeCatalog{State: n.state, dispatch: n.dispatch} }

func (n *Node) Submit(ctx context.Context, req request.Request) (request.Result, error) {
	return n.loop.submit(ctx, req, n.gone)
}

// nodeCatalog is the state's catalog with its notifications.
type nodeCatalog struct {
	*state.State
	dispatch *dispatcher
}

func (c nodeCatalog) SubscribeCatalog(fn func(tp cluster.TopicPartition)) (cancel func()) {
	return c.dispatch.subscribeCatalog(fn)
}

// Quorum describes the metadata quorum as this node knows it.
func (n *Node) Quorum() (watch.Quorum, error) {
	s := n.quorum.Status()
	q := watch.Quorum{Leader: serverNode(s.Leader), Epoch: int64(s.Term), Committed: s.Committed}
	servers, err := n.quorum.Servers()
	if err != nil {
		return q, err
	}
	for _, srv := range servers {
		r := watch.QuorumReplica{Node: serverNode(srv.ID), Voter: srv.Voter, LogEnd: -1}
		if _, dir, ok := strings.Cut(srv.ID, "-"); ok {
			if id, err := cluster.ParseUUID(dir); err == nil {
				r.Directory = cluster.DirectoryID(id)
			}
		}
		if r.Node == n.id {
			r.LogEnd, r.FetchedMs, r.CaughtUpMs = int64(s.LastIndex)+1, n.cfg.Now().UnixMilli(), n.cfg.Now().UnixMilli()
		}
		q.Replicas = append(q.Replicas, r)
	}
	return q, nil
}

// serverNode is the node of a server id.
func serverNode(id string) cluster.BrokerID {
	number, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return cluster.NoBroker
	}
	return cluster.BrokerID(n)
}

// Status describes the metadata plane for people.
type Status struct {
	Quorum quorum.Status
	Counts state.Counts
	// LimitHits counts the times that requests had to wait because too many
	// were in flight.
	LimitHits int64
}

// Status returns the current figures, once Start returned.
func (n *Node) Status() Status {
	return Status{Quorum: n.quorum.Status(), Counts: n.state.Counts(), LimitHits: n.loop.hits.Load()}
}

// Snapshot takes a snapshot of the state and shortens the Raft log now.
func (n *Node) Snapshot() error { return n.quorum.Snapshot() }

// Close ends the node in order: requests in flight are answered first. Of a
// node that has failed it lets go of the lock alone. A second Close answers the
// same.
func (n *Node) Close() error {
	n.closeOnce.Do(func() { n.closeErr = n.shut() })
	return n.closeErr
}

func (n *Node) shut() error {
	select {
	case <-n.gone:
		return n.dir.lock.Close()
	default:
	}
	var errs []error
	if n.loop != nil {
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			n.loop.close()
		}()
		select {
		case <-stopped:
		case <-n.gone: // the rest would wait for what has died
			return n.dir.lock.Close()
		}
	}
	if n.quorum != nil {
		errs = append(errs, n.quorum.Close())
	}
	if n.dispatch != nil {
		n.dispatch.close()
	}
	if n.state != nil {
		errs = append(errs, n.state.Close())
	}
	return errors.Join(append(errs, n.dir.lock.Close())...)
}
