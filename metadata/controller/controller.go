package controller

import (
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

// Catalog reads the committed catalog.
type Catalog interface {
	// Partition gives a partition's summary (catalog.NewSummary where nothing
	// was ever said of it) and a reader of its segments.
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
	cfg Config
}

// New returns a controller that is not active.
func New(cfg Config) *Controller { return &Controller{cfg: cfg} }

// Start begins a tenure on the committed image. The output holds
// ControllerStarted, and the cluster's first records where it has none.
func (c *Controller) Start(img *image.Image, epoch cluster.ControllerEpoch, now time.Time) Output {
	return Output{}
}

// Stop ends the tenure. Until the next Start every request is answered
// request.ErrNotController.
func (c *Controller) Stop() {}

// Active tells whether a tenure runs.
func (c *Controller) Active() bool { return false }

// Reset forgets everything in flight.
func (c *Controller) Reset(img *image.Image, now time.Time) {}

// Committed tells of a newer committed image. The output continues work that
// waited for it; it has no Reply.
func (c *Controller) Committed(img *image.Image, now time.Time) Output { return Output{} }

// Handle answers one request. Commands in the output are in flight from here.
func (c *Controller) Handle(req request.Request, now time.Time) Output { return Output{} }

// Tick fences brokers whose session is over and continues unfinished work. The
// output has no Reply.
func (c *Controller) Tick(now time.Time) Output { return Output{} }

// Suspect fences a broker early, on positive evidence that the process of that
// broker epoch is gone. The output has no Reply.
func (c *Controller) Suspect(id cluster.BrokerID, epoch cluster.BrokerEpoch, now time.Time) Output {
	return Output{}
}
