package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"strandline/broker/admin"
	"strandline/broker/api"
	"strandline/broker/coordinator"
	"strandline/broker/groups"
	"strandline/broker/keyindex"
	"strandline/broker/lifecycle"
	"strandline/broker/partition"
	"strandline/broker/replicas"
	"strandline/broker/server"
	"strandline/broker/wire"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/node"
	"strandline/metadata/request"
	"strandline/metadata/watch"
	"strandline/tiering/archive"
	"strandline/tiering/manifest"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/drivers"
	"strandline/tiering/rangecache"
	"strandline/tiering/remotelog"
	"strandline/tiering/sweep"
)

// Config is what a Node is made of.
type Config struct {
	Broker  config.Broker
	Version string
	Commit  string
	FS      disk.FS          // nil: real files
	Now     func() time.Time // nil: time.Now
	Logger  *slog.Logger
	// Store replaces the one that Broker.Store names, for tests.
	Store objstore.Store
	// Hook is told of named steps, for tests.
	Hook func(step string)
	// Failed is told once where the node can not go on.
	Failed func(error)
}

// Node is a running node: all parts, joined.
type Node struct {
	cfg      Config
	registry *prometheus.Registry
	ready    atomic.Bool
	// coordinates: the coordinators of the start are loaded, or not waited for
	// any longer.
	coordinates atomic.Bool
	line        readyLine
	// ballast is the disk of metadata.log.dir; ballasted says that it was Held
	// since the start.
	ballast   *disk.Ballast
	ballasted atomic.Bool
	onDisk    bool // not in memory

	// In the order in which they start; they stop in the opposite one.
	meta       *node.Node
	views      *coordinator.Views
	keyIndex   *keyindex.Index
	dirs       *replicas.Dirs
	cache      *rangecache.Cache
	server     *server.Server
	admin      *admin.Server
	store      objstore.Store
	ownership  *manifest.Ownership
	remote     *remotelog.Log
	replicas   *replicas.Manager
	handler    *api.Handler
	lifecycle  *lifecycle.Lifecycle
	registered atomic.Pointer[lifecycle.Lifecycle] // the same, once it is there
	archiver   *archive.Archiver
	offers     atomic.Pointer[archive.Archiver] // the same, once it runs: replicas start before it
	sweeper    *sweep.Sweeper
	metrics    *server.Metrics

	coordinated coordinated
	groups      *groups.Groups

	closers []closer
}

// closer ends one part, within ctx.
type closer struct {
	name  string
	close func(ctx context.Context) error
}

// Start makes a node and returns once it is ready. On an error everything that
// was started is closed again.
func Start(ctx context.Context, cfg Config) (_ *Node, err error) {
	began := time.Now()
	onDisk := cfg.FS == nil
	if onDisk {
		cfg.FS = disk.OS()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Node{cfg: cfg, registry: newRegistry(cfg.Version, cfg.Commit), coordinated: coordinated{}}
	defer func() {
		if err != nil {
			stop, cancel := context.WithTimeout(context.Background(), closeMax)
			defer cancel()
			err = errors.Join(err, n.Close(stop))
		}
	}()
	n.keepBallast(onDisk)
	for _, part := range []func(context.Context) error{
		n.openDirectories, n.listen, n.startMetadata, n.openViews, n.openKeyIndex, n.startTier, n.startGroups, n.startReplicas, n.serve, n.register, n.startArchive,
	} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	if err := n.becomeReady(ctx, began); err != nil {
		return nil, err
	}
	return n, nil
}

func (n *Node) onClose(name string, f func(ctx context.Context) error) {
	n.closers = append(n.closers, closer{name: name, close: f})
}

// openDirectories locks and checks every directory before anything in them
// changes.
func (n *Node) openDirectories(context.Context) (err error) {
	b := n.cfg.Broker
	n.ballasted.Store(n.ballast.Held())
	n.meta, err = node.Open(node.Config{
		FS: n.ballast, Dir: b.MetadataLogDir, Broker: b, LogDirs: b.LogDirs, Logger: n.cfg.Logger.With("part", "metadata"),
		Now: n.cfg.Now, Fatal: n.cfg.Failed,
	})
	if err != nil {
		var dir *node.DirError
		if errors.As(err, &dir) {
			return &ExitError{Code: ExitDirectory, Err: err}
		}
		return &ExitError{Code: ExitConfig, Err: err}
	}
	n.onClose("metadata", func(context.Context) error { return n.meta.Close() })
	n.dirs, err = replicas.OpenDirs(replicas.DirsConfig{FS: n.cfg.FS, Dirs: b.LogDirs, MetadataDir: b.MetadataLogDir, NodeID: cluster.BrokerID(b.NodeID)})
	if err != nil {
		return &ExitError{Code: ExitDirectory, Err: err}
	}
	n.onClose("log directories", func(context.Context) error { return n.dirs.Close() })
	n.cache, err = rangecache.Open(rangecache.Config{
		FS: n.cfg.FS, Dir: b.Cache.Dir, LimitBytes: b.Cache.LimitBytes, Logger: n.cfg.Logger,
		// Twice the reserve: at one and a half times it local segments begin to
		// leave, and never for the sake of the cache.
		ReservedBytes: 2 * min(b.DiskReservedBytes, 1<<61),
	})
	if err != nil {
		return &ExitError{Code: ExitDirectory, Err: fmt.Errorf("remote.cache.dir: %w", err)}
	}
	n.onClose("remote cache", func(context.Context) error { return n.cache.Close() })
	n.registry.MustRegister(n.cache.Collectors()...)
	return nil
}

// listen binds every address, so that a port in use is found before the disk
// is written to. Nothing is accepted yet.
func (n *Node) listen(context.Context) error {
	b := n.cfg.Broker
	n.metrics = server.NewMetrics(n.registry)
	most := connections(b.MaxConnections, descriptors())
	if limit := descriptors(); limit < fewDescriptors {
		n.cfg.Logger.Warn("few file descriptors (ulimit -n): half of them are for connections", "limit", limit, "connections", most)
	}
	n.server = server.New(server.Config{
		Handler: handlerOf{n}, Logger: n.cfg.Logger, Metrics: n.metrics, Dirs: append([]string{b.Cache.Dir}, b.LogDirs...),
		MaxConnections: most, MaxConnectionsPerIP: int(b.MaxConnectionsPerIP), IdleMax: b.ConnectionsMaxIdle,
		MaxRequestBytes: int(b.SocketRequestMaxBytes), SendBufferBytes: int(b.SocketSendBytes), ReceiveBufferBytes: int(b.SocketReceiveBytes),
	})
	n.onClose("listeners", n.server.Close)
	for i, e := range b.Listeners {
		port, err := n.server.Listen(e.Name, e.Host, int(e.Port))
		if err != nil {
			return &ExitError{Code: ExitListen, Err: fmt.Errorf("listener %s: %w", e.Name, err)}
		}
		n.cfg.Broker.Listeners[i].Port = int32(port)
		for j := range n.cfg.Broker.AdvertisedListeners {
			if a := &n.cfg.Broker.AdvertisedListeners[j]; a.Name == e.Name && a.Port == 0 {
				a.Port = int32(port)
			}
		}
	}
	for _, a := range n.cfg.Broker.AdvertisedListeners {
		n.line.Listeners = append(n.line.Listeners, a.Name+"://"+net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port))))
	}
	return n.listenAdmin()
}

func (n *Node) startMetadata(ctx context.Context) error {
	if err := n.meta.Start(ctx, n.dirs.ClusterID()); err != nil {
		return directoryOr(err)
	}
	n.line.NodeID, n.line.ClusterID = n.cfg.Broker.NodeID, n.meta.ClusterID()
	if err := n.dirs.Init(n.meta.ClusterID()); err != nil {
		return &ExitError{Code: ExitDirectory, Err: err}
	}
	return nil
}

// directoryOr gives errors about a directory their exit code.
func directoryOr(err error) error {
	var dir *node.DirError
	if errors.As(err, &dir) {
		return &ExitError{Code: ExitDirectory, Err: err}
	}
	return err
}

// startTier opens the store. Nothing is sent to it: a store that does not
// answer never delays a start.
func (n *Node) startTier(ctx context.Context) error {
	b, s := n.cfg.Broker, n.cfg.Broker.Store
	n.store = n.cfg.Store
	if n.store == nil {
		guard := objstore.DefaultGuard()
		guard.Metrics, guard.Logger = objstore.NewMetrics(n.registry), n.cfg.Logger
		guard.Concurrency[objstore.VerbGet] = int(b.TierReaders)
		store, err := drivers.OpenGuarded(ctx, drivers.Config{
			URL: s.URL, Driver: s.Driver, Endpoint: s.Endpoint, Region: s.Region, PathStyle: s.PathStyle, AccessKeyID: s.AccessKeyID,
			SecretAccessKey: s.SecretAccessKey, Checksum: s.Checksum, StorageClass: s.StorageClass, PartBytes: s.PartBytes,
			RequestTimeout: s.RequestTimeout, FS: n.cfg.FS, Logger: n.cfg.Logger,
		}, guard)
		if err != nil {
			return &ExitError{Code: ExitConfig, Err: err}
		}
		n.store = store
	}
	n.onClose("object store", func(context.Context) error { return n.store.Close() })
	n.ownership = manifest.NewOwnership(manifest.OwnershipConfig{
		Store: n.store, ClusterID: n.meta.ClusterID(), Logger: n.cfg.Logger, Expected: n.expectedLocation,
		Lease: n.leaseConfig(),
	})
	if err := n.checkStore(ctx); err != nil {
		return err
	}
	n.remote = remotelog.New(remotelog.Config{
		Store: n.store, Catalog: n.meta.Catalog(), Submitter: n.meta, Cache: n.cache, ChunkBytes: b.Cache.ChunkBytes,
		Location: n.ownership.Location, Logger: n.cfg.Logger,
		TopicName: func(id cluster.TopicID) (string, bool) {
			topic, ok := n.meta.Image().TopicByID(id)
			if !ok {
				return "", false
			}
			return topic.Name, true
		},
	})
	n.onClose("remote reads", func(context.Context) error { return n.remote.Close() })
	n.registry.MustRegister(n.remote.Collectors()...)
	return nil
}

func (n *Node) startReplicas(ctx context.Context) error {
	n.replicas = replicas.New(replicas.Config{
		FS: n.cfg.FS, Dirs: n.dirs, Broker: n.cfg.Broker, Watch: n.meta, ImageComplete: true, Remote: plant(n.remote), Keeper: n.remote,
		Now: n.cfg.Now, Logger: n.cfg.Logger, Hook: n.cfg.Hook, Failed: n.failed, Assign: n.assignDirs, Ballast: n.onDisk,
		OnDirOffline: func() {
			if l := n.registered.Load(); l != nil {
				l.Poke()
			}
		},
		Hosting: n.coordinated, Index: n.keyIndex, OnCompaction: scheduler.compacting,
		OnOffer: func(tp cluster.TopicPartition) {
			if a := n.offers.Load(); a != nil {
				a.Wake(tp)
			}
		},
	})
	if err := n.replicas.Start(ctx); err != nil {
		var dir *replicas.DirError
		if errors.As(err, &dir) {
			return &ExitError{Code: ExitDirectory, Err: err}
		}
		return err
	}
	n.onClose("replicas", n.replicas.Close)
	n.registry.MustRegister(n.diskCollector(), compactionCollector{n})
	return nil
}

// serve begins to answer requests. Until the broker is registered and unfenced
// its partitions have no leader, so produce and fetch answer a retriable code.
func (n *Node) serve(context.Context) error {
	n.handler = api.New(api.Config{
		Cluster: settling{n}, Replicas: hosted{n.replicas}, LogDirs: logDirs{n.replicas}, Groups: n.groups, GroupAdmin: n.groups,
		Broker: n.cfg.Broker, BrokerEpoch: func() cluster.BrokerEpoch { return n.lifecycle.Epoch() },
		LimitHit: n.metrics.LimitHit, Conversions: api.NewConversions(n.registry), Logger: n.cfg.Logger,
	})
	n.onClose("consumer groups", n.closeGroups) // before the replicas that it writes to
	n.onClose("requests", func(context.Context) error { return n.handler.Close() })
	n.registry.MustRegister(append(n.fetchSessionCollectors(), lagCollector{n})...)
	return nil
}

// settleMax bounds how long the answer to a creation waits for this broker's own
// replicas; what is not there by then is a retriable code to the client.
const settleMax = time.Second

// settling is the cluster as the handlers see it: a creation is answered once
// the new partitions can be written here, so that a client's first produce need
// not be repeated.
type settling struct{ n *Node }

func (s settling) Image() *image.Image { return s.n.meta.Image() }

func (s settling) Quorum() (watch.Quorum, error) { return s.n.meta.Quorum() }

func (s settling) Submit(ctx context.Context, req request.Request) (request.Result, error) {
	switch req.(type) {
	case request.CreateTopics, request.CreatePartitions:
		if err := s.n.roomToGrow(); err != nil {
			return nil, err
		}
	}
	result, err := s.n.meta.Submit(ctx, req)
	if err != nil {
		return result, err
	}
	ctx, cancel := context.WithTimeout(ctx, settleMax)
	defer cancel()
	switch req := req.(type) {
	case request.CreateTopics:
		created, ok := result.(request.CreateTopicsResult)
		for _, topic := range created.Topics {
			if ok && topic.Err == nil && !req.ValidateOnly {
				s.settle(ctx, topic.Name)
			}
		}
	case request.CreatePartitions:
		outcomes, ok := result.(request.Outcomes)
		for i, topic := range req.Topics {
			if ok && outcomes.Errs[i] == nil && !req.ValidateOnly {
				s.settle(ctx, topic.Name)
			}
		}
	}
	return result, nil
}

// settle waits until this broker leads its partitions of a topic.
func (s settling) settle(ctx context.Context, name string) {
	topic, ok := s.n.meta.Image().Topic(name)
	if !ok {
		return // deleted meanwhile
	}
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for p := range topic.Partitions {
		for !s.n.replicas.Settled(cluster.TopicPartition{Topic: topic.ID, Partition: int32(p)}) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// hosted is how the handlers find replicas.
type hosted struct{ *replicas.Manager }

func (h hosted) Get(tp cluster.TopicPartition) (api.Partition, error) {
	p, err := h.Manager.Get(tp)
	switch {
	case err == nil:
		return api.Hosted{Partition: p}, nil
	case errors.Is(err, replicas.ErrOffline):
		return nil, fmt.Errorf("%w: %w", partition.ErrStorage, err)
	default:
		return nil, err
	}
}

// handlerOf lets the server be made before the handler is.
type handlerOf struct{ n *Node }

// register announces this incarnation and waits until it may lead.
func (n *Node) register(ctx context.Context) error {
	b := n.cfg.Broker
	reg := request.RegisterBroker{
		Broker: cluster.BrokerID(b.NodeID), Incarnation: cluster.NewIncarnationID(), Rack: b.Rack, LogDirs: n.dirs.IDs(),
		Features: image.SupportedFeatures(), PreviousEpoch: n.dirs.PreviousEpoch(),
	}
	for _, a := range b.AdvertisedListeners {
		reg.Listeners = append(reg.Listeners, request.Listener{Name: a.Name, Host: a.Host, Port: a.Port, Security: b.SecurityProtocols[a.Name]})
	}
	n.lifecycle = lifecycle.Start(lifecycle.Config{
		Submit: n.meta, Registration: reg, HeartbeatEvery: b.HeartbeatInterval, RequestTimeout: b.SessionTimeout / 2,
		RegistrationTimeout: b.RegistrationTimeout, Activate: n.replicas.Activate, AppliedIndex: n.replicas.AppliedIndex,
		OfflineDirs: n.replicas.OfflineDirs, Logger: n.cfg.Logger,
	})
	n.registered.Store(n.lifecycle)
	n.onClose("registration", func(ctx context.Context) error {
		var err error
		if b.ControlledShutdown {
			err = n.lifecycle.Shutdown(ctx)
		}
		return errors.Join(err, n.lifecycle.Close())
	})
	if err := n.lifecycle.WaitPhase(ctx, lifecycle.Running); err != nil {
		return fmt.Errorf("registering the broker: %w", err)
	}
	return nil
}

// failed tells whoever runs the node that it cannot go on.
func (n *Node) failed(err error) {
	if n.cfg.Failed != nil {
		n.cfg.Failed(err)
	}
}

// Close stops the parts in the opposite order of their start. It may be called
// more than once.
func (n *Node) Close(ctx context.Context) error {
	n.ready.Store(false)
	var errs []error
	for i := len(n.closers) - 1; i >= 0; i-- {
		c := n.closers[i]
		began := time.Now()
		if err := c.close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing %s: %w", c.name, err))
		}
		if took := time.Since(began); took > time.Second {
			n.cfg.Logger.Info("a part was slow to close", "part", c.name, "took", took)
		}
	}
	n.closers = nil
	return errors.Join(errs...)
}

// Listeners are the advertised addresses, NAME://host:port.
func (n *Node) Listeners() []string { return n.line.Listeners }

// Admin is the URL of the admin listener.
func (n *Node) Admin() string { return n.line.Admin }

// tierWord says in one word how the tier is.
func (n *Node) tierWord() string {
	switch {
	case n.archiver == nil:
		return "starting"
	case n.archiver.Store().OK:
		return "ok"
	case n.archiver.Store().LastError != "":
		return "degraded"
	default:
		return "starting"
	}
}

// Image is the cluster as this node sees it.
func (n *Node) Image() *image.Image { return n.meta.Image() }

// Catalog reads the remote segments of every partition.
func (n *Node) Catalog() watch.Catalog { return n.meta.Catalog() }

// Serve hands a request to the handler.
func (h handlerOf) Serve(ctx context.Context, c *api.Conn, q *wire.Request, out *wire.Out) (api.Deferred, error) {
	return h.n.handler.Serve(ctx, c, q, out)
}
