package disks

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

const mib = 1 << 20

// broker is a server with clients, and with what they were told.
type broker struct {
	*kit.Server
	t     testing.TB
	cl    *kgo.Client
	admin *kadm.Client
	acked map[string]map[int]int64 // by topic: number of the record, offset
	next  map[string]int           // number of the next record
}

func start(t testing.TB, dir string, set map[string]string) *broker {
	b := &broker{Server: kit.New(t, dir, set), t: t, acked: map[string]map[int]int64{}, next: map[string]int{}}
	b.MustStart()
	b.connect()
	return b
}

func (b *broker) connect() {
	b.t.Helper()
	if b.cl != nil {
		b.cl.Close()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(),
		kgo.RecordRetries(0), kgo.ProducerLinger(0), kgo.MetadataMinAge(20*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RetryTimeout(10*time.Second))
	require.NoError(b.t, err)
	b.cl, b.admin = cl, kadm.NewClient(cl)
	b.t.Cleanup(cl.Close)
}

func (b *broker) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	b.t.Cleanup(cancel)
	return ctx
}

func (b *broker) create(topic string, partitions int32, configs map[string]string) {
	b.t.Helper()
	all := map[string]*string{}
	for k, v := range configs {
		all[k] = &v
	}
	r, err := b.admin.CreateTopic(b.ctx(), partitions, 1, all, topic)
	require.NoError(b.t, err)
	require.NoError(b.t, r.Err)
	b.acked[topic] = map[int]int64{}
}

// value is record n of a topic: incompressible, and known by its number.
func value(n, bytes int) []byte {
	v := make([]byte, bytes)
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(n))
	_, _ = rand.NewChaCha8(seed).Read(v)
	return v
}

// write produces one record and remembers it where it is acknowledged.
func (b *broker) write(topic string, partition int32, bytes int) error {
	n := b.next[topic]
	b.next[topic]++
	rec := &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "%d", n), Value: value(n, bytes)}
	err := b.cl.ProduceSync(b.ctx(), rec).FirstErr()
	if err == nil {
		b.acked[topic][n] = rec.Offset
	}
	return err
}

func (b *broker) mustWrite(topic string, partition int32, count, bytes int) {
	b.t.Helper()
	for range count {
		require.NoError(b.t, b.write(topic, partition, bytes))
	}
}

// fill produces until the answer is KAFKA_STORAGE_ERROR, and no other error.
func (b *broker) fill(topic string, bytes int) {
	b.t.Helper()
	for {
		err := b.write(topic, 0, bytes)
		if err == nil {
			continue
		}
		require.ErrorIs(b.t, err, kerr.KafkaStorageError)
		require.True(b.t, kerr.IsRetriable(err))
		return
	}
}

// resumes waits until the topic can be written again.
func (b *broker) resumes(topic string, within time.Duration, bytes int) {
	b.t.Helper()
	kit.Eventually(b.t, within, "writes resume by themselves", func() bool {
		err := b.write(topic, 0, bytes)
		if err != nil {
			require.ErrorIs(b.t, err, kerr.KafkaStorageError)
		}
		return err == nil
	})
}

// readBack consumes a partition from an offset on and compares it with what was
// acknowledged from there. What was refused must not be there.
func (b *broker) readBack(topic string, partition int32, from int64) {
	b.t.Helper()
	var end kadm.ListedOffset
	kit.Eventually(b.t, 20*time.Second, "the end offset is known", func() bool {
		ends, err := b.admin.ListEndOffsets(b.ctx(), topic)
		require.NoError(b.t, err)
		var ok bool
		end, ok = ends.Lookup(topic, partition)
		require.True(b.t, ok)
		if end.Err != nil { // right after a start what is there is flushed first
			require.ErrorIs(b.t, end.Err, kerr.OffsetNotAvailable)
		}
		return end.Err == nil
	})
	want := map[int64]int{}
	for n, offset := range b.acked[topic] {
		if offset >= from {
			want[offset] = n
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.FetchMaxWait(200*time.Millisecond), kgo.MetadataMinAge(20*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from)}}))
	require.NoError(b.t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for at := from; at < end.Offset; {
		fetches := cl.PollFetches(ctx)
		require.NoError(b.t, fetches.Err0(), "%d of %d", at, end.Offset)
		for _, e := range fetches.Errors() {
			require.True(b.t, kerr.IsRetriable(e.Err) || errors.Is(e.Err, context.Canceled), "%v", e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n, known := want[r.Offset]
			require.True(b.t, known, "offset %d holds record %s, which was never acknowledged there", r.Offset, r.Key)
			require.Equal(b.t, fmt.Sprint(n), string(r.Key))
			require.Equal(b.t, value(n, len(r.Value)), r.Value)
			delete(want, r.Offset)
			at = r.Offset + 1
		})
	}
	require.Empty(b.t, want, "everything that was acknowledged is there")
}

// localStart is the first offset that needs no object store.
func (b *broker) localStart(topic string) int64 {
	b.t.Helper()
	_, page := b.Get("/tier/status?topic=" + topic)
	var status struct {
		Partitions []struct{ LocalStartOffset int64 }
	}
	require.NoError(b.t, json.Unmarshal([]byte(page), &status))
	require.Len(b.t, status.Partitions, 1)
	return status.Partitions[0].LocalStartOffset
}

func (b *broker) deleteRecords(topic string, to int64) {
	b.t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: to})
	r, err := b.admin.DeleteRecords(b.ctx(), offsets)
	require.NoError(b.t, err)
	require.NoError(b.t, r.Error())
	got, _ := r.Lookup(topic, 0)
	require.Equal(b.t, to, got.LowWatermark)
}

func (b *broker) deleteTopic(topic string) {
	b.t.Helper()
	r, err := b.admin.DeleteTopic(b.ctx(), topic)
	require.NoError(b.t, err)
	require.NoError(b.t, r.Err)
}

func (b *broker) alter(topic, key, value string) {
	b.t.Helper()
	r, err := b.admin.AlterTopicConfigs(b.ctx(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	require.NoError(b.t, err)
	require.NoError(b.t, r[0].Err)
}

// on puts every directory of a server on one file system.
func on(fs string, set map[string]string) map[string]string {
	all := map[string]string{
		"log.dirs": filepath.Join(fs, "logs"), "metadata.log.dir": filepath.Join(fs, "metadata"), "remote.cache.dir": filepath.Join(fs, "cache"),
		"remote.cache.size.bytes":   fmt.Sprint(4 * mib),
		"log.initial.task.delay.ms": "200", "remote.log.manager.task.interval.ms": "200",
	}
	for k, v := range set {
		all[k] = v
	}
	return all
}
