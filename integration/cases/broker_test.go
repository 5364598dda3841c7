package cases

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

// broker starts a server with default settings, or names the reference.
func broker(t *testing.T) string {
	t.Helper()
	if addr := os.Getenv("STRANDLINE_REFERENCE"); addr != "" {
		return addr
	}
	return kit.Start(t, nil).Addr
}

// reference tells whether the tests run against another broker than ours.
func reference() bool { return os.Getenv("STRANDLINE_REFERENCE") != "" }

// own starts a server with settings; a test that needs one says nothing about
// the reference.
func own(t *testing.T, set map[string]string) *kit.Server {
	t.Helper()
	if reference() {
		t.Skip("needs a server of its own")
	}
	return kit.Start(t, set)
}

var topics atomic.Int64

// fresh is a topic name that nobody has used.
func fresh(prefix string) string {
	return fmt.Sprintf("%s-%d-%x", prefix, topics.Add(1), time.Now().UnixNano())
}

// ask sends a request and returns its answer.
func ask[R kmsg.Response](c *kit.Raw, req kmsg.Request) R { return c.Call(req).(R) }

// same requires an error code, by its Kafka name.
func same(t *testing.T, want *kerr.Error, code int16, why ...any) {
	t.Helper()
	if want == nil {
		require.NoError(t, kerr.ErrorForCode(code), why...)
		return
	}
	require.ErrorIs(t, kerr.ErrorForCode(code), want, why...)
}

// newTopic is a CreateTopics entry; configs are key=value.
func newTopic(name string, partitions int32, configs ...string) kmsg.CreateTopicsRequestTopic {
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, 1
	for _, kv := range configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		k, v, _ := strings.Cut(kv, "=")
		c.Name, c.Value = k, &v
		rt.Configs = append(rt.Configs, c)
	}
	return rt
}

func createTopics(c *kit.Raw, version int16, validate bool, topics ...kmsg.CreateTopicsRequestTopic) []kmsg.CreateTopicsResponseTopic {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.ValidateOnly, req.TimeoutMillis, req.Topics = version, validate, 10000, topics
	return ask[*kmsg.CreateTopicsResponse](c, req).Topics
}

// create creates a topic under a fresh name and waits until it can be written.
func create(t *testing.T, c *kit.Raw, partitions int32, configs ...string) (name string, id [16]byte) {
	t.Helper()
	name = fresh("t")
	out := createTopics(c, 7, false, newTopic(name, partitions, configs...))
	require.Len(t, out, 1)
	require.NoError(t, kerr.ErrorForCode(out[0].ErrorCode), "%v", out[0].ErrorMessage)
	kit.Eventually(t, 10*time.Second, "every partition has offsets", func() bool {
		for p := range partitions {
			if got := listOffset(c, 7, name, p, -1); got.ErrorCode != 0 {
				return false
			}
		}
		return true
	})
	return name, out[0].TopicID
}

func lookup(version int16, topic string, partitions ...kmsg.ListOffsetsRequestTopicPartition) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.TimeoutMillis = version, -1, 10000
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic, rt.Partitions = topic, partitions
	req.Topics = append(req.Topics, rt)
	return req
}

func at(partition int32, timestamp int64) kmsg.ListOffsetsRequestTopicPartition {
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestamp, -1
	return p
}

func listOffset(c *kit.Raw, version int16, topic string, partition int32, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	return ask[*kmsg.ListOffsetsResponse](c, lookup(version, topic, at(partition, timestamp))).Topics[0].Partitions[0]
}

// end is the partition's end offset.
func end(t *testing.T, c *kit.Raw, topic string, partition int32) int64 {
	t.Helper()
	got := listOffset(c, 7, topic, partition, -1)
	same(t, nil, got.ErrorCode)
	return got.Offset
}

// records builds a batch of values with timestamps of now.
func records(values ...string) []byte {
	b := recordbatch.NewBuilder(recordbatch.Options{})
	for _, v := range values {
		b.Add(time.Now().UnixMilli(), nil, []byte(v))
	}
	return b.Build()
}

// send produces a batch to a partition and returns the partition's answer.
func send(c *kit.Raw, version int16, topic string, id [16]byte, partition int32, batch []byte) kmsg.ProduceResponseTopicPartition {
	req := kit.Produce(version, topic, partition, batch)
	req.Topics[0].TopicID = id
	return ask[*kmsg.ProduceResponse](c, req).Topics[0].Partitions[0]
}

// fetchOne fetches from one partition, by name (version 12).
func fetchOne(c *kit.Raw, topic string, partition int32, offset int64) kmsg.FetchResponseTopicPartition {
	return ask[*kmsg.FetchResponse](c, kit.Fetch(12, topic, partition, offset, 1<<20)).Topics[0].Partitions[0]
}

// values decodes the values of whole batches.
func values(t *testing.T, batches []byte) []string {
	t.Helper()
	var out []string
	var d recordbatch.Decoder
	for len(batches) > 0 {
		b, rest, err := recordbatch.First(batches)
		require.NoError(t, err)
		for r, err := range d.Records(b) {
			require.NoError(t, err)
			out = append(out, string(r.Value))
		}
		batches = rest
	}
	return out
}

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// freePort is a port that a server can have again after a restart.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}
