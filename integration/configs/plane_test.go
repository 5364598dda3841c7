package configs

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/lifecycle"
	"strandline/integration/kit"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/node"
	"strandline/metadata/request"
)

// parsed is the typed configuration of a node.
func parsed(t *testing.T, props map[string]string) config.Broker {
	t.Helper()
	b, _, err := config.ParseBroker(props)
	require.NoError(t, err)
	return b
}

// plane is the metadata plane of this process with two brokers that only it
// knows, for what one broker cannot show.
type plane struct {
	*node.Node
	t      *testing.T
	epochs [3]cluster.BrokerEpoch // by broker
}

func newPlane(t *testing.T, props map[string]string) *plane {
	t.Helper()
	dir := t.TempDir()
	n, err := node.Open(node.Config{FS: disk.OS(), Dir: dir, Broker: parsed(t, props), Fatal: func(err error) { t.Error(err) }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, n.Start(ctx, ""))
	p := &plane{Node: n, t: t}
	for id := cluster.BrokerID(1); id <= 2; id++ {
		r := p.submit(request.RegisterBroker{
			Broker: id, Incarnation: cluster.NewIncarnationID(), Features: image.SupportedFeatures(), PreviousEpoch: cluster.NoBrokerEpoch,
			Listeners: []request.Listener{{Name: "PLAINTEXT", Host: "localhost", Port: 9092, Security: "PLAINTEXT"}},
			LogDirs:   []cluster.DirectoryID{cluster.NewDirectoryID()},
		}).(request.BrokerRegistered)
		p.epochs[id] = r.Epoch
		p.fenced(id, false)
	}
	return p
}

func (p *plane) submit(req request.Request) request.Result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := p.Submit(ctx, req)
	require.NoError(p.t, err)
	return r
}

// fenced has a broker fenced or not.
func (p *plane) fenced(id cluster.BrokerID, want bool) {
	p.t.Helper()
	kit.Eventually(p.t, patience, "the broker is fenced or not", func() bool {
		p.submit(request.Heartbeat{Broker: id, Epoch: p.epochs[id], CaughtUpTo: p.Image().Index(), WantFence: want})
		return p.isFenced(id) == want
	})
}

func (p *plane) isFenced(id cluster.BrokerID) bool {
	b, ok := p.Image().Broker(id)
	require.True(p.t, ok)
	return b.Fenced
}

// pair is a topic with a replica on each broker, the first leads.
func (p *plane) pair() *image.Partition {
	p.t.Helper()
	p.submit(request.CreateTopics{Topics: []request.NewTopic{{
		Name: "t", Partitions: -1, Replication: -1, Assignment: [][]cluster.BrokerID{{1, 2}},
	}}})
	part := p.partition()
	require.Equal(p.t, []cluster.BrokerID{1, 2}, part.ISR)
	return part
}

func (p *plane) partition() *image.Partition {
	t, ok := p.Image().Topic("t")
	require.True(p.t, ok)
	return t.Partitions[0]
}

// set gives the key of a row its value.
func (p *plane) set(w way, value string) {
	p.t.Helper()
	change := request.AlterConfig{Kind: request.BrokerResource, Name: w.of, Ops: []request.ConfigOp{{Key: w.key, Value: value}}}
	if w.kind == ofTopic {
		change.Kind, change.Name = request.TopicResource, "t"
	}
	out := p.submit(request.AlterConfigs{Resources: []request.AlterConfig{change}}).(request.Outcomes)
	for _, o := range out.Errs {
		require.NoError(p.t, o)
	}
}

// uncleanElection needs a second replica: one that may lack records leads where
// the topic allows it.
func uncleanElection(w way) {
	p := newPlane(w.t, nil)
	p.pair()
	p.fenced(2, true)
	p.fenced(1, true)
	p.fenced(2, false)
	require.Equal(w.t, cluster.NoBroker, p.partition().Leader)
	p.set(w, "true")
	kit.Eventually(w.t, patience, "the replica that was behind leads", func() bool { return p.partition().Leader == 2 })
}

// minInsyncReplicas needs a second replica: who leaves the in-sync replicas below
// the minimum stays eligible, since nothing is acknowledged until it is back.
func minInsyncReplicas(w way) {
	p := newPlane(w.t, nil)
	p.pair()
	p.fenced(2, true)
	require.Empty(w.t, p.partition().ELR, "one is enough")
	p.fenced(2, false)
	require.Equal(w.t, config.Topic{MinInsyncReplicas: 2}.MinISR(1), 1, "a partition with one replica needs one")
	part := p.partition()
	topic, _ := p.Image().Topic("t")
	p.submit(request.ChangeISR{
		Partition: cluster.TopicPartition{Topic: topic.ID}, Broker: 1, BrokerEpoch: p.epochs[1],
		LeaderEpoch: part.LeaderEpoch, PartitionEpoch: part.PartitionEpoch, ISR: []cluster.BrokerID{1, 2},
	})
	p.set(w, "2")
	p.fenced(2, true)
	require.Equal(w.t, []cluster.BrokerID{2}, p.partition().ELR, "two are needed")
}

// sessionTimeout needs a broker that falls silent.
func sessionTimeout(t *testing.T) {
	p := newPlane(t, map[string]string{"broker.session.timeout.ms": "300", "broker.heartbeat.interval.ms": "100"})
	kit.Eventually(t, 5*time.Second, "a silent broker is fenced", func() bool { return p.isFenced(1) && p.isFenced(2) })
}

// controllerDouble counts heartbeats, or answers nothing.
type controllerDouble struct {
	heartbeats atomic.Int64
	refuse     bool
}

func (c *controllerDouble) Submit(_ context.Context, req request.Request) (request.Result, error) {
	switch req.(type) {
	case request.RegisterBroker:
		if c.refuse {
			return nil, errors.New("no controller")
		}
		return request.BrokerRegistered{Epoch: 1}, nil
	case request.Heartbeat:
		c.heartbeats.Add(1)
		return request.HeartbeatResult{CaughtUp: true}, nil
	}
	return nil, errors.New("what is this")
}

// lifecycleOf is the part that registers, as a node starts it.
func lifecycleOf(t *testing.T, c *controllerDouble, b config.Broker) *lifecycle.Lifecycle {
	l := lifecycle.Start(lifecycle.Config{
		Submit: c, HeartbeatEvery: b.HeartbeatInterval, RequestTimeout: b.SessionTimeout / 2, RegistrationTimeout: b.RegistrationTimeout,
		Activate: func(cluster.BrokerEpoch) {}, AppliedIndex: func() uint64 { return 1 }, OfflineDirs: func() []cluster.DirectoryID { return nil },
	})
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func heartbeats(t *testing.T) {
	var rare, often controllerDouble
	lifecycleOf(t, &rare, parsed(t, map[string]string{"broker.heartbeat.interval.ms": "8000"}))
	lifecycleOf(t, &often, parsed(t, map[string]string{"broker.heartbeat.interval.ms": "10"}))
	kit.Eventually(t, patience, "heartbeats", func() bool { return often.heartbeats.Load() > 20 })
	require.LessOrEqual(t, rare.heartbeats.Load(), int64(2))
}

func registration(t *testing.T) {
	l := lifecycleOf(t, &controllerDouble{refuse: true}, parsed(t, map[string]string{"initial.broker.registration.timeout.ms": "100"}))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := l.WaitPhase(ctx, lifecycle.Running)
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "given up before")
}
