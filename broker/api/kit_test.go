package api_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"strandline/broker/api"
	"strandline/broker/locallog"
	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/broker/server"
	"strandline/broker/wire"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/request"
	"strandline/metadata/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	self      = cluster.BrokerID(1)
	clusterID = "test-cluster"
)

// kit is a broker of this package's and server's real parts, and real
// partitions, under a controller that does what its tests need.
type kit struct {
	t        testing.TB
	dir      string
	broker   config.Broker
	handler  *api.Handler
	server   *server.Server
	metrics  *server.Metrics
	registry *prometheus.Registry
	addr     string

	mu       sync.Mutex
	img      *image.Image
	sequence uint64
	hosted   map[cluster.TopicPartition]api.Partition
	real     []*partition.Partition
	created  chan string // receives the names of created topics, where there is room
	asked    chan request.NewTopic
	refuse   error // answers every request to the controller
	features request.UpdateFeatures
	// refuseFeatures answers UpdateFeatures.
	refuseFeatures error
	closed         []func() // to be called once the server is closed
	groups         groupsDouble
	// double replaces the partitions of new topics, where set.
	double func(tp cluster.TopicPartition) api.Partition
}

func newKit(t testing.TB, change func(*config.Broker)) *kit {
	t.Helper()
	k := &kit{t: t, dir: filepath.ToSlash(t.TempDir()), hosted: map[cluster.TopicPartition]api.Partition{}, created: make(chan string, 100), asked: make(chan request.NewTopic, 100)}
	broker, _, err := config.ParseBroker(map[string]string{})
	require.NoError(t, err)
	if change != nil {
		change(&broker)
	}
	k.broker = broker
	k.registry = prometheus.NewRegistry()
	k.metrics = server.NewMetrics(k.registry)
	k.handler = api.New(api.Config{Cluster: k, Replicas: k, Groups: &k.groups, GroupAdmin: &k.groups, Broker: broker, LimitHit: k.metrics.LimitHit, Conversions: api.NewConversions(k.registry)})
	k.server = server.New(server.Config{Handler: k.handler, Metrics: k.metrics, Dirs: []string{k.dir}})
	port, err := k.server.Listen("PLAINTEXT", "127.0.0.1", 0)
	require.NoError(t, err)
	k.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	k.img = image.Empty()
	k.apply(command.ControllerStarted{Node: self}, command.ClusterCreated{ClusterID: clusterID},
		command.BrokerRegistered{ID: self, Listeners: []request.Listener{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: int32(port)}}})
	b, _ := k.img.Broker(self)
	k.apply(command.BrokerState{ID: self, Epoch: b.Epoch})
	require.NoError(t, k.server.Serve())
	t.Cleanup(k.close)
	return k
}

func (k *kit) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	require.NoError(k.t, k.server.Close(ctx))
	require.NoError(k.t, k.handler.Close())
	for _, fn := range k.closed {
		fn()
	}
	for _, p := range k.real {
		_ = p.Close(false)
	}
}

// apply changes the image as an ordered command would.
func (k *kit) apply(records ...command.Record) {
	c := command.Command{Level: command.Level, ControllerEpoch: 1, Sequence: k.sequence, TimeMs: 1, Records: records}
	img, _, err := k.img.Apply(image.Position{Index: k.sequence + 1, Term: 1}, c)
	if err != nil {
		panic(err)
	}
	k.sequence++
	k.img = img
}

func (k *kit) Image() *image.Image {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.img
}

func (k *kit) Get(tp cluster.TopicPartition) (api.Partition, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p, ok := k.hosted[tp]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("%s: no replica here", tp)
}

func (k *kit) Submit(_ context.Context, req request.Request) (request.Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse != nil {
		return nil, k.refuse
	}
	switch req := req.(type) {
	case request.CreateTopics:
		var res request.CreateTopicsResult
		for _, n := range req.Topics {
			res.Topics = append(res.Topics, k.create(n, req.ValidateOnly))
		}
		return res, nil
	case request.DeleteTopics:
		return k.each(len(req.Topics), func(i int) error { return k.delete(req.Topics[i]) }), nil
	case request.CreatePartitions:
		return k.each(len(req.Topics), func(i int) error { return k.grow(req.Topics[i], req.ValidateOnly) }), nil
	case request.AlterConfigs:
		return k.each(len(req.Resources), func(i int) error { return k.alter(req.Resources[i], req.ValidateOnly) }), nil
	case request.UnregisterBroker:
		if req.Broker != 7 {
			return nil, request.Refuse(request.ErrUnknownBroker, "Broker ID %d is not currently registered", req.Broker)
		}
		return nil, nil
	case request.UpdateFeatures:
		k.features = req
		return nil, k.refuseFeatures
	case request.AllocateProducerIDs:
		first := k.img.NextProducerID()
		k.apply(command.ProducerIDsAllocated{Next: first + 3})
		return request.ProducerIDBlock{First: first, Count: 3}, nil
	}
	return nil, fmt.Errorf("unexpected %T", req)
}

func (k *kit) Quorum() (watch.Quorum, error) {
	return watch.Quorum{Leader: self, Epoch: 3, Committed: 41, Replicas: []watch.QuorumReplica{
		{Node: self, Directory: cluster.DirectoryID{9}, Voter: true, LogEnd: 43, FetchedMs: 5, CaughtUpMs: 5},
		{Node: 4, LogEnd: -1, FetchedMs: -1, CaughtUpMs: -1},
	}}, nil
}

func (k *kit) each(n int, fn func(int) error) request.Outcomes {
	var o request.Outcomes
	for i := range n {
		o.Errs = append(o.Errs, fn(i))
	}
	return o
}

func (k *kit) create(n request.NewTopic, validateOnly bool) request.CreatedTopic {
	select {
	case k.asked <- n:
	default:
	}
	fail := func(err error) request.CreatedTopic { return request.CreatedTopic{Name: n.Name, Err: err} }
	if _, ok := k.img.Topic(n.Name); ok {
		return fail(fmt.Errorf("Topic '%s' already exists.%w", n.Name, hidden{request.ErrTopicExists}))
	}
	if n.Partitions == -1 {
		n.Partitions = max(1, int32(len(n.Assignment)))
	}
	if n.Partitions <= 0 {
		return fail(request.ErrInvalidPartitions)
	}
	if n.Replication == -1 {
		n.Replication = 1
	}
	if n.Replication != 1 {
		return fail(request.ErrInvalidReplicas)
	}
	if err := config.ValidateTopic(config.TopicCheck{Layers: config.Layers{Topic: n.Configs}}); err != nil {
		return fail(err)
	}
	made := request.CreatedTopic{Name: n.Name, Partitions: n.Partitions, Replication: n.Replication}
	if validateOnly {
		return made
	}
	made.ID = cluster.NewTopicID()
	k.apply(command.TopicCreated{ID: made.ID, Name: n.Name, Partitions: n.Partitions, Configs: n.Configs},
		command.PartitionsAdded{Topic: made.ID, Total: n.Partitions, Partitions: alone(n.Partitions)})
	k.host(made.ID, n.Name)
	select {
	case k.created <- n.Name:
	default:
	}
	return made
}

// hidden wraps an error without its text.
type hidden struct{ error }

func (hidden) Error() string   { return "" }
func (h hidden) Unwrap() error { return h.error }

func alone(n int32) []command.NewPartition {
	out := make([]command.NewPartition, n)
	for i := range out {
		out[i] = command.NewPartition{Leader: self, Replicas: []cluster.BrokerID{self}, ISR: []cluster.BrokerID{self}}
	}
	return out
}

func (k *kit) host(id cluster.TopicID, name string) {
	t, _ := k.img.TopicByID(id)
	for i := range t.Partitions {
		tp := cluster.TopicPartition{Topic: id, Partition: int32(i)}
		if k.hosted[tp] != nil {
			continue
		}
		if k.double != nil {
			k.hosted[tp] = k.double(tp)
			continue
		}
		settings := config.EffectiveTopic(config.Layers{Topic: t.Configs})
		dir := fmt.Sprintf("%s/%s-%d", k.dir, name, i)
		if err := disk.EnsureDir(disk.OS(), dir); err != nil {
			panic(err)
		}
		log, err := locallog.Open(locallog.Config{
			FS: disk.OS(), Dir: dir, Partition: tp.String(),
			Settings: partition.LogSettings(settings), LogStart: cluster.NoOffset,
		})
		if err != nil {
			panic(err)
		}
		p := partition.New(partition.Config{TopicPartition: tp, Topic: name, Self: self, Settings: settings, Log: log, HighWatermark: cluster.NoOffset})
		one := []cluster.BrokerID{self}
		if err := p.Become(context.Background(), partition.Leadership{Leader: self, Replicas: one, ISR: one}); err != nil {
			panic(err)
		}
		k.real = append(k.real, p)
		k.hosted[tp] = api.Hosted{Partition: p}
	}
}

func (k *kit) delete(ref request.TopicRef) error {
	t, ok := k.img.Topic(ref.Name)
	if ref.Name == "" {
		if t, ok = k.img.TopicByID(ref.ID); !ok {
			return request.ErrUnknownTopicID
		}
	}
	if !ok {
		return request.ErrUnknownTopic
	}
	k.apply(command.TopicDeleted{Topic: t.ID})
	return nil
}

func (k *kit) grow(m request.MorePartitions, validateOnly bool) error {
	t, ok := k.img.Topic(m.Name)
	if !ok {
		return request.ErrUnknownTopic
	}
	have := int32(len(t.Partitions))
	if m.Total == have {
		return fmt.Errorf("Topic already has %d partition(s).%w", have, hidden{request.ErrInvalidPartitions})
	}
	if m.Total < have {
		return fmt.Errorf("The topic %s currently has %d partition(s); %d would not be an increase.%w", m.Name, have, m.Total, hidden{request.ErrInvalidPartitions})
	}
	if validateOnly {
		return nil
	}
	k.apply(command.PartitionsAdded{Topic: t.ID, First: have, Total: m.Total, Partitions: alone(m.Total - have)})
	k.host(t.ID, t.Name)
	return nil
}

func (k *kit) alter(a request.AlterConfig, validateOnly bool) error {
	c := command.ConfigsChanged{Kind: a.Kind, Broker: cluster.NoBroker}
	if a.Kind == request.TopicResource {
		t, ok := k.img.Topic(a.Name)
		if !ok {
			return request.ErrUnknownTopic
		}
		c.Topic = t.ID
	} else if a.Name != "" {
		c.Broker = self
	}
	if t, ok := k.img.Topic(a.Name); ok && a.Replace {
		for key := range t.Configs {
			c.Changes = append(c.Changes, command.ConfigChange{Key: key, Delete: true})
		}
	}
	for _, op := range a.Ops {
		c.Changes = append(c.Changes, command.ConfigChange{Key: op.Key, Value: op.Value, Delete: op.Op == request.ConfigDelete})
	}
	if !validateOnly {
		k.apply(c)
	}
	return nil
}

// topic creates a topic without the protocol.
func (k *kit) topic(name string, partitions int32, configs ...string) cluster.TopicID {
	k.t.Helper()
	n := request.NewTopic{Name: name, Partitions: partitions, Replication: -1, Configs: map[string]string{}}
	for i := 0; i < len(configs); i += 2 {
		n.Configs[configs[i]] = configs[i+1]
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	made := k.create(n, false)
	require.NoError(k.t, made.Err)
	return made.ID
}

// client is a connection that speaks raw requests.
type client struct {
	t           testing.TB
	c           net.Conn
	correlation int32
	format      *kmsg.RequestFormatter
}

func (k *kit) dial() *client {
	k.t.Helper()
	c, err := net.Dial("tcp", k.addr)
	require.NoError(k.t, err)
	k.t.Cleanup(func() { _ = c.Close() })
	return &client{t: k.t, c: c, format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))}
}

func (c *client) send(req kmsg.Request, version int16) {
	c.t.Helper()
	req.SetVersion(version)
	c.correlation++
	_, err := c.c.Write(c.format.AppendRequest(nil, req, c.correlation))
	require.NoError(c.t, err)
}

func (c *client) frame() []byte {
	c.t.Helper()
	require.NoError(c.t, c.c.SetReadDeadline(time.Now().Add(20*time.Second)))
	var size [4]byte
	_, err := io.ReadFull(c.c, size[:])
	require.NoError(c.t, err)
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(c.c, b)
	require.NoError(c.t, err)
	return b
}

func (c *client) receive(correlation int32, resp kmsg.Response, version int16) {
	c.t.Helper()
	b := c.frame()
	require.Equal(c.t, correlation, int32(binary.BigEndian.Uint32(b)))
	b = b[4:]
	resp.SetVersion(version)
	if resp.IsFlexible() && resp.Key() != wire.KeyAPIVersions {
		require.Zero(c.t, b[0])
		b = b[1:]
	}
	require.NoError(c.t, resp.ReadFrom(b))
	if resp.Key() != wire.KeyFetch { // encoded by ourselves, compared field by field
		require.Equal(c.t, b, resp.AppendTo(nil), "nothing after the response")
	}
}

// closed tells that the server ends the connection without a word.
func (c *client) closed() {
	c.t.Helper()
	require.NoError(c.t, c.c.SetReadDeadline(time.Now().Add(20*time.Second)))
	n, err := c.c.Read(make([]byte, 1))
	require.Zero(c.t, n)
	require.Error(c.t, err)
	var ne net.Error
	if errors.As(err, &ne) {
		require.False(c.t, ne.Timeout())
	}
}

// ask sends a request and returns its answer.
func ask[R kmsg.Response](c *client, req kmsg.Request, version int16) R {
	c.t.Helper()
	c.send(req, version)
	resp := req.ResponseKind().(R)
	c.receive(c.correlation, resp, version)
	return resp
}

// batch makes a batch of records with these values, one ms apart from ts on.
func batch(ts int64, values ...string) recordbatch.Batch {
	b := recordbatch.NewBuilder(recordbatch.Options{})
	for i, v := range values {
		b.Add(ts+int64(i), []byte("k"), []byte(v))
	}
	return b.Build()
}

func now() int64 { return time.Now().UnixMilli() }

func produceRequest(acks int16, topic string, id [16]byte, parts map[int32][]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 5000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, id
	for i := range int32(100) {
		if records, ok := parts[i]; ok {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = i, records
			t.Partitions = append(t.Partitions, p)
		}
	}
	req.Topics = append(req.Topics, t)
	return req
}

func fetchRequest(topic string, id [16]byte, offsets ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 5000, 1, 1<<20, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, id
	for i, o := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = int32(i), o, 1<<20, -1
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// finalise raises group.version.
func (k *kit) finalise() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.apply(command.FeatureSet{Name: image.GroupFeature, Level: 1})
}
