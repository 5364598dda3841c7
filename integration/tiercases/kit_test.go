package tiercases

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

// fast makes every timer of retention and tier short.
func fast(more ...map[string]string) map[string]string {
	set := map[string]string{
		"log.retention.check.interval.ms":     "100",
		"remote.log.manager.task.interval.ms": "100",
		"log.segment.delete.delay.ms":         "100",
		"log.initial.task.delay.ms":           "100",
		"remote.manifest.interval.ms":         "200",
		"remote.object.delete.delay.ms":       "300",
		"remote.cache.size.bytes":             "16777216",
		"remote.store.request.timeout.ms":     "5000",
		"auto.create.topics.enable":           "false",
	}
	for _, m := range more {
		maps.Copy(set, m)
	}
	return set
}

// broker is a server with clients.
type broker struct {
	*kit.Server
	t     *testing.T
	cl    *kgo.Client
	admin *kadm.Client
}

// start starts a server. Without a store in set its tier is a directory.
func start(t *testing.T, set map[string]string) *broker {
	t.Helper()
	dir := t.TempDir()
	if set["remote.store.url"] == "" {
		set["remote.store.url"] = "file://" + filepath.Join(dir, "tier")
	}
	b := &broker{t: t, Server: kit.New(t, dir, set)}
	b.MustStart()
	b.connect()
	t.Cleanup(func() { b.cl.Close() })
	return b
}

func (b *broker) connect() {
	b.t.Helper()
	if b.cl != nil {
		b.cl.Close()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(8<<20), kgo.MetadataMinAge(10*time.Millisecond))
	require.NoError(b.t, err)
	b.cl, b.admin = cl, kadm.NewClient(cl)
}

// again restarts the server.
func (b *broker) again(kill bool) {
	b.t.Helper()
	b.Restart(kill)
	b.connect()
}

func (b *broker) create(topic string, partitions int32, configs map[string]string) {
	b.t.Helper()
	require.NoError(b.t, b.tryCreate(topic, partitions, configs))
}

func (b *broker) tryCreate(topic string, partitions int32, configs map[string]string) error {
	m := map[string]*string{}
	for k, v := range configs {
		m[k] = &v
	}
	_, err := b.admin.CreateTopic(context.Background(), partitions, 1, m, topic)
	return err
}

func (b *broker) alter(topic string, kv ...string) error {
	var changes []kadm.AlterConfig
	for i := 0; i < len(kv); i += 2 {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: kv[i], Value: &kv[i+1]})
	}
	resps, err := b.admin.AlterTopicConfigs(context.Background(), changes, topic)
	if err != nil {
		return err
	}
	return resps[0].Err
}

func (b *broker) remove(topic string) {
	b.t.Helper()
	_, err := b.admin.DeleteTopic(context.Background(), topic)
	require.NoError(b.t, err)
}

// id is the topic's id as keys have it.
func (b *broker) id(topic string) string {
	b.t.Helper()
	d, err := b.admin.ListTopics(context.Background(), topic)
	require.NoError(b.t, err)
	id := d[topic].ID
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// value is what record number n of a partition holds.
func value(topic string, partition int32, n int64, size int) []byte {
	v := fmt.Appendf(nil, "%s/%d %08d ", topic, partition, n)
	for len(v) < size {
		v = append(v, 'a'+byte(n%26))
	}
	return v
}

// write appends records from..from+n-1 in batches of five, all with a timestamp,
// or now where it is zero.
func (b *broker) write(topic string, partition int32, from, n int64, size int, stamp time.Time) {
	b.t.Helper()
	for n > 0 {
		var batch []*kgo.Record
		for range min(n, 5) {
			batch = append(batch, &kgo.Record{Topic: topic, Partition: partition, Value: value(topic, partition, from, size), Timestamp: stamp})
			from, n = from+1, n-1
		}
		require.NoError(b.t, b.cl.ProduceSync(context.Background(), batch...).FirstErr())
	}
}

// offset asks for a special offset: -1 end, -2 start, -4 local start.
func (b *broker) offset(topic string, partition int32, timestamp int64) int64 {
	b.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, timestamp
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(b.t.Context(), b.cl)
	require.NoError(b.t, err)
	p := resp.Topics[0].Partitions[0]
	require.Zero(b.t, p.ErrorCode)
	return p.Offset
}

// check reads [from, to) and compares offsets and values with what write wrote.
func (b *broker) check(topic string, partition int32, from, to int64, size int, more ...kgo.Opt) {
	b.t.Helper()
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(b.Addr), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from)}}),
	}, more...)
	cl, err := kgo.NewClient(opts...)
	require.NoError(b.t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for next := from; next < to; {
		fetches := cl.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			require.NoError(b.t, e.Err, "reading %s-%d at %d", topic, partition, next)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if next >= to {
				return
			}
			require.Equal(b.t, next, r.Offset)
			require.Equal(b.t, string(value(topic, partition, next, size)), string(r.Value))
			next++
		})
	}
}

type partitionStatus struct {
	Topic            string `json:"topic"`
	Partition        int32  `json:"partition"`
	LogStartOffset   int64  `json:"logStartOffset"`
	LocalStartOffset int64  `json:"localStartOffset"`
	RemoteEndOffset  int64  `json:"remoteEndOffset"`
	LogEndOffset     int64  `json:"logEndOffset"`
	LocalBytes       int64  `json:"localBytes"`
	RemoteSegments   int64  `json:"remoteSegments"`
	PendingSegments  int64  `json:"pendingSegments"`
	LastError        string `json:"lastError"`
}

type tierStatus struct {
	Store struct {
		OK        bool   `json:"ok"`
		LastError string `json:"lastError"`
	} `json:"store"`
	Partitions     []partitionStatus `json:"partitions"`
	Deleting       []string          `json:"deleting"`
	DeletionErrors []string          `json:"deletionErrors"`
}

func (b *broker) status() tierStatus {
	b.t.Helper()
	code, page := b.Get("/tier/status")
	require.Equal(b.t, 200, code)
	var st tierStatus
	require.NoError(b.t, json.Unmarshal([]byte(page), &st))
	return st
}

func (b *broker) partition(topic string, partition int32) partitionStatus {
	b.t.Helper()
	for _, p := range b.status().Partitions {
		if p.Topic == topic && p.Partition == partition {
			return p
		}
	}
	return partitionStatus{}
}

// tiered waits until everything sealed is remote and at least so many segments
// are.
func (b *broker) tiered(topic string, partition int32, segments int64) {
	b.t.Helper()
	kit.Eventually(b.t, 30*time.Second, "the segments of "+topic+" are remote", func() bool {
		p := b.partition(topic, partition)
		return p.RemoteSegments >= segments && p.PendingSegments == 0
	})
}

// localOnlyTail waits until local segments have left for the tier.
func (b *broker) localOnlyTail(topic string, partition int32) {
	b.t.Helper()
	kit.Eventually(b.t, 20*time.Second, "local segments of "+topic+" are gone", func() bool {
		p := b.partition(topic, partition)
		return p.RemoteEndOffset > 0 && p.LocalStartOffset == p.RemoteEndOffset
	})
}

// liveKeys is what the catalog names.
func (b *broker) liveKeys() []string {
	b.t.Helper()
	out, errOut, code := b.CLI("", "tier", "ls", "--admin", b.Admin, "-o", "json")
	require.Zero(b.t, code, errOut)
	var keys []string
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		var seg struct{ Key, State string }
		require.NoError(b.t, json.Unmarshal(lines.Bytes(), &seg))
		if seg.State == "live" {
			keys = append(keys, seg.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// directoryKeys lists the files of the directory tier, without the owner object.
func (b *broker) directoryKeys() []string {
	b.t.Helper()
	root := filepath.Join(b.Dir, "tier")
	var keys []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if !d.IsDir() && !strings.HasPrefix(rel, "owner") && !strings.HasPrefix(rel, ".") {
			keys = append(keys, filepath.ToSlash(rel))
		}
		return nil
	})
	require.NoError(b.t, err)
	slices.Sort(keys)
	return keys
}

func segments(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !strings.HasSuffix(k, ".seg") })
}

// small are topic configs with segments of about n bytes of which no local one
// stays once it is remote.
func small(n int, more ...string) map[string]string {
	c := map[string]string{"internal.segment.bytes": fmt.Sprint(n), "local.retention.bytes": "1", "file.delete.delay.ms": "100"}
	for i := 0; i < len(more); i += 2 {
		c[more[i]] = more[i+1]
	}
	return c
}
