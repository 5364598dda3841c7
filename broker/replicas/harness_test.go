package replicas

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	self      = cluster.BrokerID(1)
	clusterID = "abcdefghijklmnopqrstuv"
)

// controller stands for the metadata plane: it applies records to an image at
// once and tells its subscribers.
type controller struct {
	t testing.TB

	mu   sync.Mutex
	img  *image.Image
	subs map[int]func(*image.Image, *image.Delta)
	next int
	seq  uint64
}

func newController(t testing.TB) *controller {
	c := &controller{t: t, img: image.Empty(), subs: map[int]func(*image.Image, *image.Delta){}}
	c.apply(command.ControllerStarted{Node: self})
	c.apply(command.ClusterCreated{ClusterID: clusterID})
	return c
}

// fork is the same state without the subscribers: what a node that restarts
// finds in its metadata.
func (c *controller) fork(t testing.TB) *controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &controller{t: t, img: c.img, seq: c.seq, subs: map[int]func(*image.Image, *image.Delta){}}
}

func (c *controller) Image() *image.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.img
}

func (c *controller) Catalog() watch.Catalog { return nil }

func (c *controller) Subscribe(fn func(*image.Image, *image.Delta)) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	id := c.next
	c.subs[id] = fn
	fn(c.img, image.Diff(image.Empty(), c.img))
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subs, id)
	}
}

func (c *controller) apply(records ...command.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, starts := records[0].(command.ControllerStarted); !starts {
		c.seq++
	}
	at := image.Position{Index: c.img.Index() + 1, Term: 1}
	img, delta, err := c.img.Apply(at, command.Command{Level: command.Level, ControllerEpoch: 1, Sequence: c.seq, Records: records})
	require.NoError(c.t, err)
	c.img = img
	for _, fn := range c.subs {
		fn(img, delta)
	}
}

// register registers a new incarnation as the controller does: fenced, then
// everything that it led at a higher leader epoch, then unfenced.
func (c *controller) register() cluster.BrokerEpoch {
	c.apply(command.BrokerRegistered{ID: self, Incarnation: cluster.NewIncarnationID()})
	epoch := cluster.BrokerEpoch(c.Image().Index())
	for topic := range c.Image().Topics() {
		change := command.PartitionsChanged{Topic: topic.ID}
		for n, p := range topic.Partitions {
			change.Changes = append(change.Changes, command.PartitionChange{
				Partition: int32(n), PartitionEpoch: p.PartitionEpoch + 1, Leader: self, LeaderEpoch: p.LeaderEpoch + 1, ISR: p.ISR,
			})
		}
		c.apply(change)
	}
	return epoch
}

func (c *controller) unfence(epoch cluster.BrokerEpoch) {
	c.apply(command.BrokerState{ID: self, Epoch: epoch})
}

func (c *controller) create(name string, partitions int, configs map[string]string) cluster.TopicID {
	id := cluster.NewTopicID()
	added := command.PartitionsAdded{Topic: id, Total: int32(partitions)}
	for range partitions {
		added.Partitions = append(added.Partitions, command.NewPartition{Leader: self, Replicas: []cluster.BrokerID{self}, ISR: []cluster.BrokerID{self}, Dirs: make([]cluster.DirectoryID, 1)})
	}
	c.apply(command.TopicCreated{ID: id, Name: name, Partitions: int32(partitions), Configs: configs}, added)
	return id
}

// node is one broker process over a file system.
type node struct {
	t        testing.TB
	fs       disk.FS
	ctl      *controller
	dirs     *Dirs
	m        *Manager
	epoch    cluster.BrokerEpoch
	log      logText
	compacts []bool // what OnCompaction was told
}

// logText is what the node has logged so far.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var twoDirs = []string{"/data/logs-a", "/data/logs-b"}

const metadataDir = "/data/metadata"

func brokerConfig(t testing.TB, props map[string]string) config.Broker {
	all := map[string]string{
		"node.id": "1", "log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000",
		"log.segment.delete.delay.ms": "1000",
	}
	maps.Copy(all, props)
	b, _, err := config.ParseBroker(all)
	require.NoError(t, err)
	return b
}

// startNode opens the directories and starts a manager, not yet registered.
func startNode(t testing.TB, fs disk.FS, ctl *controller, props map[string]string, dirs ...string) *node {
	n, err := tryNode(t, fs, ctl, props, nil, dirs...)
	require.NoError(t, err)
	return n
}

func tryNode(t testing.TB, fs disk.FS, ctl *controller, props map[string]string, hook func(string), dirs ...string) (*node, error) {
	if err := disk.EnsureDir(fs, metadataDir); err != nil {
		return nil, err
	}
	n := &node{t: t, fs: fs, ctl: ctl}
	var err error
	if n.dirs, err = OpenDirs(DirsConfig{FS: fs, Dirs: dirs, MetadataDir: metadataDir, NodeID: self}); err != nil {
		return nil, err
	}
	if err := n.dirs.Init(clusterID); err != nil {
		return nil, closing(err, n.dirs)
	}
	n.m = New(Config{FS: fs, Dirs: n.dirs, Broker: brokerConfig(t, props), Watch: ctl, ImageComplete: true, Hook: hook, Logger: slog.New(slog.NewTextHandler(&n.log, nil))})
	return n, n.m.Start(context.Background())
}

func closing(err error, d *Dirs) error {
	_ = d.Close()
	return err
}

// activate registers the node and waits until it leads what it should.
func (n *node) activate() {
	n.epoch = n.ctl.register()
	n.m.Activate(n.epoch)
	n.ctl.unfence(n.epoch)
	synctest.Wait()
}

func (n *node) stop() {
	n.t.Helper()
	require.NoError(n.t, n.m.Close(context.Background()))
}

// kill ends the process without a word: what it wrote stays as it is.
func (n *node) kill() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.m.Close(ctx)
}

func (n *node) get(topic cluster.TopicID, number int32) *partition.Partition {
	n.t.Helper()
	p, err := n.m.Get(cluster.TopicPartition{Topic: topic, Partition: number})
	require.NoError(n.t, err)
	return p
}

func records(count int) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{})
	for i := range count {
		b.Add(-1, []byte("k"), fmt.Appendf(nil, "%08d", i))
	}
	return b.Build()
}

func produce(p *partition.Partition, batch recordbatch.Batch) (partition.AppendResult, error) {
	result, commit, err := p.Append(partition.AppendRequest{Records: batch, CurrentLeaderEpoch: cluster.NoLeaderEpoch, RequiredAcks: -1})
	if err == nil && commit != nil {
		err = commit.Err()
	}
	return result, err
}

func (n *node) produce(topic cluster.TopicID, number int32, count int) partition.AppendResult {
	n.t.Helper()
	result, err := produce(n.get(topic, number), records(count))
	require.NoError(n.t, err)
	return result
}

func exists(fs disk.FS, name string) bool {
	_, err := fs.Stat(name)
	return err == nil
}

func list(t testing.TB, fs disk.FS, dir string) []string {
	names, err := fs.List(dir)
	require.NoError(t, err)
	return names
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }
