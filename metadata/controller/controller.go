package controller

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/config"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// TickInterval is how often Tick wants to be called.
const TickInterval = 100 * time.Millisecond

// limits bound what one call and one command hold. Tests make them small.
type limits struct {
	recordsBytes int // of a command's records
	changesBytes int // of one PartitionsChanged record, so that commands fill well
	// reconcileBytes bounds what one call adds for unfinished work; the rest
	// follows with the next call.
	reconcileBytes int
}

var defaultLimits = limits{
	recordsBytes: command.RecordsMaxBytes, changesBytes: 32 << 10, reconcileBytes: 64 * command.RecordsMaxBytes,
}

// Catalog reads the committed catalog.
type Catalog interface {
	// Partition gives a partition's summary (catalog.NewSummary where nothing
	// was ever said of it) and a reader of its segments. Both may be ahead of
	// the image that Committed was last told of.
	Partition(tp cluster.TopicPartition) (catalog.Summary, catalog.Reader, error)
	// Deleted gives the tombstone of a deleted topic.
	Deleted(topic cluster.TopicID) (catalog.DeletedTopic, bool, error)
}

// Config is what a controller is made of.
type Config struct {
	Node   cluster.BrokerID
	Broker config.Broker // this node's static configuration
	// ClusterID names the cluster where the image has none yet.
	ClusterID string
	Catalog   Catalog
	Rand      *rand.Rand             // replica placement; nil: seeded by chance
	NewID     func() cluster.TopicID // nil: cluster.NewTopicID
	Logger    *slog.Logger           // nil: none
}

// Output is what a call asks of the node. Commands may be empty.
type Output struct {
	// Commands are to be proposed in this order, each on its own.
	Commands []command.Command
	// Reply gives the answer once every command is applied, at once where
	// there are none. It is nil where nobody asked.
	Reply func(img *image.Image) (request.Result, error)
}

// Controller holds one node's controller. See the package comment.
type Controller struct {
	cfg    Config
	limits limits
	log    *slog.Logger
	active bool
	epoch  cluster.ControllerEpoch

	img      *image.Image // committed, and everything in flight on top
	inflight []command.Command
	sequence uint64 // of the last command of this tenure

	partitions map[cluster.TopicPartition]*overlay
	sessions   map[cluster.BrokerID]*session
	dirty      bool // partitions may need a change because of a broker's state
	started    time.Time
	lastTick   time.Time
	suspectAt  time.Time // since when too many brokers are silent together

	out Output // of the call in progress
	now time.Time
}

// New returns a controller that is not active.
func New(cfg Config) *Controller {
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if cfg.NewID == nil {
		cfg.NewID = cluster.NewTopicID
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg, limits: defaultLimits, log: log, img: image.Empty()}
}

// Start begins a tenure on the committed image. The output holds
// ControllerStarted, and the cluster's first records where it has none.
func (c *Controller) Start(img *image.Image, epoch cluster.ControllerEpoch, now time.Time) Output {
	c.begin(now)
	c.active, c.epoch = true, epoch
	c.img, c.inflight, c.partitions = img, nil, map[cluster.TopicPartition]*overlay{}
	c.sessions, c.started, c.lastTick, c.suspectAt, c.dirty = map[cluster.BrokerID]*session{}, now, now, time.Time{}, true
	records := []command.Record{command.ControllerStarted{Node: c.cfg.Node}}
	if img.ClusterID() == "" {
		records = append(records, command.ClusterCreated{ClusterID: c.cfg.ClusterID})
		for _, f := range image.FirstFeatures() {
			records = append(records, command.FeatureSet{Name: f.Name, Level: f.Level})
		}
	}
	for _, b := range img.Brokers() {
		if !b.Fenced {
			c.sessions[b.ID] = &session{epoch: b.Epoch, last: now}
		}
	}
	c.sequence = 0
	_ = c.commit(0, records) // an older epoch than the image's is refused when it is applied, and logged here
	c.reconcile()
	return c.end(nil)
}

// Stop ends the tenure. Until the next Start every request is answered
// request.ErrNotController.
func (c *Controller) Stop() {
	c.active, c.inflight, c.partitions, c.sessions = false, nil, nil, nil
}

// Active tells whether a tenure runs.
func (c *Controller) Active() bool { return c.active }

// Reset forgets everything in flight. Where not even the start of the tenure
// has been committed, it ends the tenure, and the node calls Start again if it
// still leads.
func (c *Controller) Reset(img *image.Image, now time.Time) {
	if !c.active {
		return
	}
	if img.ControllerEpoch() != c.epoch {
		c.Stop()
		return
	}
	c.img, c.inflight, c.dirty = img, nil, true
	c.partitions, c.sequence = map[cluster.TopicPartition]*overlay{}, img.Meta().Sequence
	for _, b := range img.Brokers() {
		if s := c.sessions[b.ID]; !b.Fenced && (s == nil || s.epoch != b.Epoch) {
			c.sessions[b.ID] = &session{epoch: b.Epoch, last: now}
		}
	}
}

// Committed tells of a newer committed image. The output continues work that
// waited for it; it has no Reply.
func (c *Controller) Committed(img *image.Image, now time.Time) Output {
	if !c.active || img.ControllerEpoch() != c.epoch {
		return Output{}
	}
	c.begin(now)
	done, registered := img.Meta().Sequence, false
	n := 0
	for ; n < len(c.inflight) && c.inflight[n].Sequence <= done; n++ {
		for _, r := range c.inflight[n].Records {
			_, is := r.(command.BrokerRegistered)
			registered = registered || is
		}
	}
	c.inflight = c.inflight[n:]
	for tp, o := range c.partitions {
		if o.sequence <= done {
			delete(c.partitions, tp)
		}
	}
	switch {
	case len(c.inflight) == 0:
		c.img = img
	case registered:
		// Only a commit tells the broker's epoch: build anew on the image.
		c.img = img
		for _, cmd := range c.inflight {
			next, _, err := c.img.Apply(image.Position{}, cmd)
			if err != nil {
				c.log.Error("commands in flight do not follow from the committed image", "error", err)
				c.Reset(img, now)
				return Output{}
			}
			c.img = next
		}
	}
	c.reconcile()
	return c.end(nil)
}

// Handle answers one request. Commands in the output are in flight from here.
func (c *Controller) Handle(req request.Request, now time.Time) Output {
	c.begin(now)
	if !c.active || c.img.ControllerEpoch() != c.epoch {
		return c.answer(nil, request.Refuse(request.ErrNotController, "node %d is not the active controller", c.cfg.Node))
	}
	switch r := req.(type) {
	case request.RegisterBroker:
		return c.registerBroker(r)
	case request.Heartbeat:
		return c.answer(c.heartbeat(r))
	case request.UnregisterBroker:
		return c.answer(nil, c.unregisterBroker(r))
	case request.UpdateFeatures:
		return c.answer(nil, c.updateFeatures(r))
	case request.CreateTopics:
		return c.answer(c.createTopics(r))
	case request.DeleteTopics:
		return c.answer(c.deleteTopics(r))
	case request.CreatePartitions:
		return c.answer(c.createPartitions(r))
	case request.AlterConfigs:
		return c.answer(c.alterConfigs(r))
	case request.ChangeISR:
		return c.answer(c.changeISR(r))
	case request.AssignDirs:
		return c.answer(c.assignDirs(r))
	case request.AllocateProducerIDs:
		return c.answer(c.allocateProducerIDs(r))
	}
	return c.answer(c.segmentRequest(req))
}

// Tick fences brokers whose session is over and continues unfinished work. The
// output has no Reply.
func (c *Controller) Tick(now time.Time) Output {
	if !c.active {
		return Output{}
	}
	c.begin(now)
	c.expireSessions()
	c.reconcile()
	return c.end(nil)
}

// Suspect fences a broker early, on positive evidence that the process of that
// broker epoch is gone. In the first session period of a tenure it waits for
// the session. The output has no Reply.
func (c *Controller) Suspect(id cluster.BrokerID, epoch cluster.BrokerEpoch, now time.Time) Output {
	b, ok := c.img.Broker(id)
	if !c.active || !ok || b.Epoch != epoch || b.Fenced || now.Sub(c.started) < c.cfg.Broker.SessionTimeout {
		return Output{}
	}
	c.begin(now)
	c.fence(b)
	c.reconcile()
	return c.end(nil)
}

func (c *Controller) begin(now time.Time) { c.out, c.now = Output{}, now }

func (c *Controller) end(reply func(*image.Image) (request.Result, error)) Output {
	out := c.out
	out.Reply, c.out = reply, Output{}
	return out
}

// answer ends a call whose answer is known already.
func (c *Controller) answer(result request.Result, err error) Output {
	return c.end(func(*image.Image) (request.Result, error) { return result, err })
}

// propose puts records in flight, in order, in as many commands as they need. A
// record never spans two; see command.RecordsMaxBytes.
func (c *Controller) propose(records []command.Record) error {
	for len(records) > 0 {
		n, size := 0, 0
		for n < len(records) {
			s := command.Size(records[n])
			if n > 0 && size+s > c.limits.recordsBytes {
				break
			}
			size += s
			n++
		}
		if err := c.commit(c.sequence+1, records[:n:n]); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

func (c *Controller) commit(sequence uint64, records []command.Record) error {
	cmd := command.Command{
		Level: command.Level, ControllerEpoch: c.epoch, Sequence: sequence, TimeMs: c.now.UnixMilli(), Records: records,
	}
	img, _, err := c.img.Apply(image.Position{}, cmd)
	if err != nil {
		// The rules above made records that do not follow from the image.
		c.log.Error("the controller contradicts its image", "error", err)
		return fmt.Errorf("%w: %w", request.ErrInvalidRequest, err)
	}
	c.img, c.sequence = img, sequence
	c.inflight = append(c.inflight, cmd)
	c.out.Commands = append(c.out.Commands, cmd)
	return nil
}

// layers are the levels of configuration that hold for a topic here.
func (c *Controller) layers(topic map[string]string, tieredByDefault bool) config.Layers {
	return config.Layers{
		Topic: topic, Broker: c.img.BrokerConfig(c.cfg.Node), Cluster: c.img.BrokerConfig(cluster.NoBroker),
		Static: c.cfg.Broker.Static, TieredByDefault: tieredByDefault,
	}
}

func (c *Controller) topicConfig(t *image.Topic) config.Topic {
	return config.EffectiveTopic(c.layers(t.Configs, t.TieredByDefault))
}
