package groups

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"strandline/broker/coordinator"
	"strandline/broker/group"
	"strandline/broker/group/classic"
	"strandline/broker/group/consumer"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/image"
)

// regexRefresh is how often regular expressions are matched again where no topic
// was created, which then finds the same.
const regexRefresh = 10 * time.Minute

// Topic is the topic that groups are kept in.
const Topic = "__consumer_offsets"

// AppendViewKey implements coordinator.Schema.
func (Schema) AppendViewKey(dst, recordKey []byte) ([]byte, error) {
	return group.AppendViewKey(dst, recordKey)
}

// SetBytes implements coordinator.Schema: the offsets of a group are a set, and so
// are its records where it is one of KIP-848.
func (Schema) SetBytes(viewKey []byte) int {
	if len(viewKey) == 0 || viewKey[0] != byte(group.OffsetKind) && viewKey[0] != byte(group.ConsumerKind) {
		return 0
	}
	return group.ViewPrefixBytes(viewKey)
}

// Config is what Groups are made of.
type Config struct {
	Watch Watch
	// Groups is what the broker's keys say.
	Groups config.Groups
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: none
}

// Groups serves the groups of all partitions that this broker leads. It
// implements broker/api's ports. Its methods may be called from several
// goroutines at once.
type Groups struct {
	cfg     Config
	classic classic.Config
	runtime Runtime
	topics  atomic.Pointer[topics]
	counts  counts
	cancel  func()

	drops struct {
		sync.Mutex
		// names are the topics deleted since the start, the newest last; bounded
		// by droppedMax, as a pass over everything is as good.
		names []droppedTopic
	}
	dropped atomic.Int64 // how often a topic was deleted
}

// New makes groups that serve nothing yet; Machine is to be given to the runtime
// that Start is then given.
func New(cfg Config) *Groups {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	g := &Groups{cfg: cfg}
	offsets := group.OffsetConfig{MetadataMax: int(cfg.Groups.OffsetMetadataMax), Retention: cfg.Groups.OffsetsRetention}
	g.classic = classic.Config{
		InitialRebalanceDelay: cfg.Groups.InitialRebalanceDelay,
		MinSessionTimeout:     cfg.Groups.MinSessionTimeout, MaxSessionTimeout: cfg.Groups.MaxSessionTimeout,
		MaxSize: int(cfg.Groups.MaxSize), Offsets: offsets,
	}
	g.topics.Store(newTopics(cfg.Watch.Image()))
	return g
}

// Machine makes the state of a partition; see coordinator.Config.NewMachine.
func (g *Groups) Machine(partition int32, _ cluster.LeaderEpoch) coordinator.Machine {
	return newShard(g, partition)
}

// Start begins to serve. It is called once, before any other method.
func (g *Groups) Start(r Runtime) {
	g.runtime = r
	g.cancel = g.cfg.Watch.Subscribe(g.changed)
}

// Close ends the subscription to the image. The runtime, which is closed by its
// owner, answers whoever waits.
func (g *Groups) Close() error {
	if g.cancel != nil {
		g.cancel()
	}
	return nil
}

// env is what an event of a KIP-848 group finds around it.
func (g *Groups) env(groupID string) consumer.Env {
	topics := g.topics.Load()
	return consumer.Env{Config: g.consumerConfig(topics.img, groupID), Topics: topics}
}

func (g *Groups) consumerConfig(img *image.Image, groupID string) consumer.Config {
	c := g.cfg.Groups
	own := config.EffectiveGroup(img.GroupConfig(groupID), c)
	return consumer.Config{
		MaxSize:        int(c.ConsumerMaxSize),
		SessionTimeout: own.SessionTimeout, HeartbeatInterval: own.HeartbeatInterval, AssignmentInterval: own.AssignmentInterval,
		RegexRefreshInterval: regexRefresh, Assignors: c.Assignors, Migration: consumer.MigrationPolicy(c.MigrationPolicy),
		Classic: g.classic,
	}
}

// partition is where a group is kept.
func (g *Groups) partition(groupID string) (int32, error) {
	t, ok := g.cfg.Watch.Image().Topic(Topic)
	if !ok || len(t.Partitions) == 0 {
		return 0, group.ErrNotCoordinator
	}
	return cluster.CoordinatorPartition(groupID, int32(len(t.Partitions))), nil
}

// changed learns of a new image.
func (g *Groups) changed(img *image.Image, d *image.Delta) {
	g.topics.Store(g.topics.Load().next(img, d))
	var names []string
	for _, c := range d.Topics {
		if c.New == nil {
			names = append(names, c.Old.Name)
		}
	}
	if len(names) > 0 {
		g.drop(names)
	}
}

// droppedTopic is a topic that was deleted, and when.
type droppedTopic struct {
	name string
	at   time.Time
}
