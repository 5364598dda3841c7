package configs

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

const (
	ofTopic  = kmsg.ConfigResourceTypeTopic
	ofBroker = kmsg.ConfigResourceTypeBroker
	patience = 15 * time.Second
)

// quick makes every timer of retention, tier and checkpoints short.
func quick(more ...map[string]string) map[string]string {
	set := map[string]string{
		"log.retention.check.interval.ms":         "50",
		"log.initial.task.delay.ms":               "50",
		"log.flush.offset.checkpoint.interval.ms": "50",
		"remote.log.manager.task.interval.ms":     "50",
		"remote.manifest.interval.ms":             "100",
		"remote.object.delete.delay.ms":           "50",
		"disk.reserved.bytes":                     "0",
		"log.cleaner.backoff.ms":                  "50",
	}
	for _, m := range more {
		maps.Copy(set, m)
	}
	return set
}

// start starts a server whose tier is a directory.
func start(t *testing.T, set ...map[string]string) *running {
	t.Helper()
	dir := t.TempDir()
	all := quick(map[string]string{"remote.store.url": "file://" + filepath.Join(dir, "tier"), "log.remote.storage.enable": "false"})
	for _, m := range set {
		maps.Copy(all, m)
	}
	s := kit.New(t, dir, all)
	s.MustStart()
	return &running{Server: s, t: t}
}

// running is a running server.
type running struct {
	*kit.Server
	t *testing.T
}

// to is the server as another test sees it.
func (n *running) to(t *testing.T) *running { return &running{Server: n.Server, t: t} }

// ask sends a request on a connection of its own and returns the answer.
func ask[R kmsg.Response](n *running, req kmsg.Request) R {
	n.t.Helper()
	c := kit.Dial(n.t, n.Addr)
	defer c.Close()
	return c.Call(req).(R)
}

var topics atomic.Int64

// create creates a topic under a fresh name and waits until it can be written.
// Configs are key=value.
func (n *running) create(partitions int32, configs ...string) string {
	n.t.Helper()
	name := fmt.Sprintf("t-%d", topics.Add(1))
	resp := n.tryCreate(name, partitions, 1, configs...)
	require.NoError(n.t, kerr.ErrorForCode(resp.ErrorCode), "%v", resp.ErrorMessage)
	n.writable(name, partitions)
	return name
}

func (n *running) writable(name string, partitions int32) {
	n.t.Helper()
	kit.Eventually(n.t, patience, "every partition has offsets", func() bool {
		for p := range partitions {
			if n.lookup(name, p, -1).ErrorCode != 0 {
				return false
			}
		}
		return true
	})
}

func (n *running) tryCreate(name string, partitions int32, replication int16, configs ...string) kmsg.CreateTopicsResponseTopic {
	n.t.Helper()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, replication
	for _, kv := range configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		k, v, _ := strings.Cut(kv, "=")
		c.Name, c.Value = k, &v
		rt.Configs = append(rt.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis, req.Topics = 7, 10000, append(req.Topics, rt)
	return ask[*kmsg.CreateTopicsResponse](n, req).Topics[0]
}

func (n *running) remove(name string) int16 {
	n.t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = 6, 10000
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.Topic = &name
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.DeleteTopicsResponse](n, req).Topics[0].ErrorCode
}

// alter sets keys, key=value, or removes those without a =.
func (n *running) alter(kind kmsg.ConfigResourceType, name string, changes ...string) kmsg.IncrementalAlterConfigsResponseResource {
	n.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, kv := range changes {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		k, v, ok := strings.Cut(kv, "=")
		c.Name, c.Value, c.Op = k, &v, kmsg.IncrementalAlterConfigOpSet
		if !ok {
			c.Value, c.Op = nil, kmsg.IncrementalAlterConfigOpDelete
		}
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	return ask[*kmsg.IncrementalAlterConfigsResponse](n, req).Resources[0]
}

func (n *running) mustAlter(kind kmsg.ConfigResourceType, name string, changes ...string) {
	n.t.Helper()
	r := n.alter(kind, name, changes...)
	require.NoError(n.t, kerr.ErrorForCode(r.ErrorCode), "%v: %s", changes, said(r.ErrorMessage))
}

// describe lists a resource's configs by name, with synonyms and documentation.
func (n *running) describe(kind kmsg.ConfigResourceType, name string) map[string]kmsg.DescribeConfigsResponseResourceConfig {
	n.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms, req.IncludeDocumentation = 4, true, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, nil
	req.Resources = append(req.Resources, r)
	resp := ask[*kmsg.DescribeConfigsResponse](n, req).Resources[0]
	require.NoError(n.t, kerr.ErrorForCode(resp.ErrorCode))
	out := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, c := range resp.Configs {
		out[c.Name] = c
	}
	return out
}

// batch holds one record of about so many bytes, with a timestamp.
func batch(size int, stamp time.Time) []byte {
	b := recordbatch.NewBuilder(recordbatch.Options{})
	b.Add(stamp.UnixMilli(), []byte("key"), bytes.Repeat([]byte("x"), size))
	return b.Build()
}

// put produces a batch and returns the answer.
func (n *running) put(topic string, partition int32, batch []byte) kmsg.ProduceResponseTopicPartition {
	n.t.Helper()
	return ask[*kmsg.ProduceResponse](n, kit.Produce(9, topic, partition, batch)).Topics[0].Partitions[0]
}

// write produces single records of a size with a timestamp.
func (n *running) write(topic string, count, size int, stamp time.Time) {
	n.t.Helper()
	c := kit.Dial(n.t, n.Addr)
	defer c.Close()
	for range count {
		resp := c.Call(kit.Produce(9, topic, 0, batch(size, stamp))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		require.NoError(n.t, kerr.ErrorForCode(resp.ErrorCode))
	}
}

// lookup asks for an offset: -1 the end, -2 the start, -4 the local start, -5 the
// last one in the tier.
func (n *running) lookup(topic string, partition int32, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	n.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.TimeoutMillis = 10, -1, 10000
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, timestamp, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.ListOffsetsResponse](n, req).Topics[0].Partitions[0]
}

func (n *running) start(topic string) int64 { n.t.Helper(); return n.lookup(topic, 0, -2).Offset }

func (n *running) localStart(topic string) int64 { n.t.Helper(); return n.lookup(topic, 0, -4).Offset }

// uploaded is how many records of a tiered topic are in the tier.
func (n *running) uploaded(topic string) int64 {
	n.t.Helper()
	return n.lookup(topic, 0, -5).Offset + 1
}

// fetch reads one partition's first batches.
func (n *running) fetch(topic string, offset int64, most int32) []byte {
	n.t.Helper()
	return ask[*kmsg.FetchResponse](n, kit.Fetch(12, topic, 0, offset, most)).Topics[0].Partitions[0].RecordBatches
}

// files lists the names of a partition's folder that end in suffix.
func (n *running) files(topic string, partition int, suffix string) []string {
	n.t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.Dir, "logs", fmt.Sprintf("%s-%d", topic, partition)))
	require.NoError(n.t, err)
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// segments is how many segments a partition has.
func (n *running) segments(topic string, partition int) int {
	n.t.Helper()
	return len(n.files(topic, partition, ".log"))
}

// tree lists all files below a folder, by path.
func tree(dir string) map[string]int64 {
	out := map[string]int64{}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				rel, _ := filepath.Rel(dir, path)
				out[rel] = info.Size()
			}
		}
		return nil // files come and go
	})
	return out
}

// objects lists the segment objects of a topic in the tier.
func (n *running) objects(topic string) []string {
	n.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	id := base64.RawURLEncoding.EncodeToString(sliceOf(ask[*kmsg.MetadataResponse](n, req).Topics[0].TopicID))
	var out []string
	for path := range tree(filepath.Join(n.Dir, "tier")) {
		if strings.Contains(path, id) && strings.Contains(filepath.Base(path), "seg") {
			out = append(out, path)
		}
	}
	return out
}

func sliceOf(id [16]byte) []byte { return id[:] }

func (n *running) eventually(what string, done func() bool) {
	n.t.Helper()
	kit.Eventually(n.t, patience, what, done)
}

// applied returns once every change of before it was called is applied: an answer
// to a change says that it is recorded, and changes are applied in order. Several
// may be applied at once, two with an answer between them are not.
func (n *running) applied() {
	n.t.Helper()
	n.create(1)
	n.create(1)
}

// passed returns once retention has looked at every partition at least once
// since it was called: a partition that loses everything loses it twice.
func (n *running) passed() {
	n.t.Helper()
	topic := n.create(1, "retention.ms=1", "internal.segment.bytes=200", "cleanup.policy=delete", "file.delete.delay.ms=0")
	for round := range int64(2) {
		n.write(topic, 2, 100, time.Now().Add(-time.Hour))
		n.eventually("a retention pass", func() bool { return n.start(topic) >= 2*round+1 })
	}
}

// archived returns once the archiver has had two segments of another topic in
// turn, each after its interval.
func (n *running) archived() {
	n.t.Helper()
	topic := n.create(1, "remote.storage.enable=true", "internal.segment.bytes=200", "remote.copy.lag.ms=0", "remote.copy.lag.bytes=-1")
	for round := range int64(2) {
		n.write(topic, 2, 100, time.Now())
		n.eventually("a segment goes to the tier", func() bool { return n.uploaded(topic) >= 2*round+1 })
	}
}

func said(message *string) string {
	if message == nil {
		return ""
	}
	return *message
}
