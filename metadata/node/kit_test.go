package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/node"
	"strandline/metadata/quorum"
	"strandline/metadata/request"
)

const dir = "/m"

func noLeak(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

func nodeConfig(t require.TestingT, fs disk.FS) node.Config {
	broker, _, err := config.ParseBroker(map[string]string{"node.id": "1", "broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"})
	require.NoError(t, err)
	return node.Config{FS: fs, Dir: dir, Broker: broker, LogDirs: []string{"/data"}}
}

// start opens and starts a node.
func start(t require.TestingT, cfg node.Config, logDirs string) (*node.Node, error) {
	n, err := node.Open(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.Start(ctx, logDirs); err != nil {
		require.NoError(t, n.Close())
		return nil, err
	}
	return n, nil
}

func mustStart(t require.TestingT, fs disk.FS) *node.Node {
	n, err := start(t, nodeConfig(t, fs), "")
	require.NoError(t, err)
	return n
}

// small limits make snapshots come often.
func small(cfg node.Config) node.Config {
	cfg.Limits = quorum.Limits{SnapshotBytes: 16 << 10, SnapshotEntries: 40, TrailingBytes: 4 << 10, TrailingEntries: 10}
	return cfg
}

func submit[R any](t require.TestingT, n *node.Node, req request.Request) R {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	result, err := n.Submit(ctx, req)
	require.NoError(t, err)
	out, ok := result.(R)
	if result != nil {
		require.True(t, ok, "%T", result)
	}
	return out
}

// register makes node 1 an active broker, and returns its epoch.
func register(t require.TestingT, n *node.Node) cluster.BrokerEpoch {
	features := map[string]request.FeatureRange{}
	for _, f := range image.FirstFeatures() {
		features[f.Name] = request.FeatureRange{Min: 0, Max: max(f.Level, 1)}
	}
	r := submit[request.BrokerRegistered](t, n, request.RegisterBroker{
		Broker: 1, Incarnation: cluster.NewIncarnationID(), Features: features,
		Listeners: []request.Listener{{Name: "PLAINTEXT", Host: "localhost", Port: 9092, Security: "PLAINTEXT"}},
		LogDirs:   []cluster.DirectoryID{{7}}, PreviousEpoch: cluster.NoBrokerEpoch,
	})
	b, ok := n.Image().Broker(1)
	require.True(t, ok)
	require.Equal(t, r.Epoch, b.Epoch, "the image shows it at once")
	for range 100 {
		h := submit[request.HeartbeatResult](t, n, request.Heartbeat{Broker: 1, Epoch: r.Epoch, CaughtUpTo: n.Image().Index()})
		if !h.Fenced {
			return r.Epoch
		}
	}
	t.Errorf("the broker stays fenced")
	t.FailNow()
	return 0
}

func newTopic(name string, partitions int32) request.CreateTopics {
	return request.CreateTopics{Topics: []request.NewTopic{{
		Name: name, Partitions: partitions, Replication: 1, Configs: map[string]string{"remote.storage.enable": "true"},
	}}}
}

func create(t require.TestingT, n *node.Node, name string) *image.Topic {
	r := submit[request.CreateTopicsResult](t, n, newTopic(name, 1))
	require.NoError(t, r.Topics[0].Err)
	topic, ok := n.Image().Topic(name)
	require.True(t, ok, "the image shows it at once")
	return topic
}

func span(id cluster.SegmentID, base, end cluster.Offset) request.SegmentSpan {
	return request.SegmentSpan{ID: id, Base: base, End: end, Location: "here", Key: fmt.Sprintf("key-%d", base)}
}

var object = request.ObjectSummary{
	ObjectBytes: 120, SegmentBytes: 100, IndexPosition: 100, IndexBytes: 10, FooterBytes: 10,
	MinTimestamp: 1, MaxTimestamp: 2, RecordCount: 5,
}
