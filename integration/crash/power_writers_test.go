package crash

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/cmd/serve"
	"strandline/integration/kit"
	"strandline/metadata/cluster"
)

// createPlain makes a topic of one partition without a tier, in small segments.
func createPlain(t *testing.T, addr, topic string, config map[string]string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	defer cl.Close()
	all := map[string]*string{"internal.segment.bytes": kadm.StringPtr("20000"), "remote.storage.enable": kadm.StringPtr("false")}
	for k, v := range config {
		all[k] = &v
	}
	_, err = kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, all, topic)
	require.NoError(t, err)
}

// writePlain writes what nothing promises to survive a power loss.
func writePlain(ctx context.Context, t *testing.T, addr string, p *promises) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("plain"), kgo.MaxBufferedRecords(8),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Error(err)
		return
	}
	defer cl.Close()
	for n := int64(0); ctx.Err() == nil; n++ {
		cl.Produce(context.Background(), &kgo.Record{Value: value(n)}, func(rec *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce to plain: %v", err)
				return
			}
			p.change(func(p *promise) { p.plain = max(p.plain, rec.Offset+1) })
		})
	}
	_ = cl.Flush(context.Background())
}

// onceBatch is the batch of one producer with that sequence, which is its offset
// too.
func onceBatch(producer int64, sequence int32) []byte {
	b := recordbatch.NewBuilder(recordbatch.Options{Producer: &recordbatch.Producer{ID: cluster.ProducerID(producer), BaseSequence: sequence}})
	b.Add(time.Now().UnixMilli(), nil, value(int64(sequence)))
	return b.Build()
}

func produceOnce(c *kit.Raw, batch []byte) kmsg.ProduceResponseTopicPartition {
	return c.Call(kit.Produce(9, "once", 0, batch)).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

// writeOnce is an idempotent producer of batches of one record.
func writeOnce(ctx context.Context, t *testing.T, addr string, p *promises) {
	c := kit.Dial(t, addr)
	id := kmsg.NewPtrInitProducerIDRequest()
	id.Version, id.ProducerID, id.ProducerEpoch, id.TransactionTimeoutMillis = 4, -1, -1, 60000
	who := c.Call(id).(*kmsg.InitProducerIDResponse)
	if who.ErrorCode != 0 {
		t.Errorf("init producer id: %v", kerr.ErrorForCode(who.ErrorCode))
		return
	}
	p.change(func(p *promise) { p.producer = who.ProducerID })
	for n := int32(0); ctx.Err() == nil; n++ {
		got := produceOnce(c, onceBatch(who.ProducerID, n))
		if got.ErrorCode != 0 || got.BaseOffset != int64(n) {
			t.Errorf("sequence %d: offset %d, %v", n, got.BaseOffset, kerr.ErrorForCode(got.ErrorCode))
			return
		}
		p.change(func(p *promise) { p.next = n + 1 })
	}
}

// deleteTopics makes topics with records, gives them partitions, and
// keeps one, deletes one, and deletes one and makes it again under its name.
func deleteTopics(ctx context.Context, t *testing.T, addr string, p *promises) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Error(err)
		return
	}
	defer cl.Close()
	adm, done := kadm.NewClient(cl), context.Background()
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("doomed-%d", n)
		if _, err := adm.CreateTopic(done, 1, 1, nil, name); err != nil {
			t.Errorf("create: %v", err)
			return
		}
		if err := cl.ProduceSync(done, &kgo.Record{Topic: name, Value: value(int64(n))}).FirstErr(); err != nil {
			t.Errorf("produce to %s: %v", name, err)
		}
		if resp, err := adm.UpdatePartitions(done, 3, name); err != nil || resp[name].Err != nil {
			t.Errorf("partitions: %v %v", err, resp[name].Err)
			return
		}
		if n%3 == 2 {
			p.change(func(p *promise) { p.topics[name], p.partitions[name] = true, 3 })
			continue
		}
		if resp, err := adm.DeleteTopics(done, name); err != nil || resp[name].Err != nil {
			t.Errorf("delete: %v %v", err, resp[name].Err)
			return
		}
		p.change(func(p *promise) { p.gone[name] = true })
		if n%3 == 0 {
			continue
		}
		p.change(func(p *promise) { delete(p.gone, name) })
		if _, err := adm.CreateTopic(done, 2, 1, nil, name); err != nil {
			t.Errorf("create again: %v", err)
			return
		}
		p.change(func(p *promise) { p.topics[name], p.partitions[name] = true, 2 })
	}
}

func checkTopics(t *testing.T, i int, node *serve.Node, was promise) {
	t.Helper()
	for name := range was.gone {
		_, ok := node.Image().Topic(name)
		require.False(t, ok, "clone %d: the deletion of %s was acknowledged", i, name)
	}
	for name, n := range was.partitions {
		topic, ok := node.Image().Topic(name)
		require.True(t, ok, "clone %d: topic %s", i, name)
		require.Len(t, topic.Partitions, int(n), "clone %d: partitions of %s", i, name)
		for index := range topic.Partitions {
			s, err := node.PartitionStatus(name, int32(index))
			require.NoError(t, err, "clone %d: %s-%d", i, name, index)
			require.False(t, n == 2 && s.LogEndOffset > 0, "clone %d: %s-%d was made again and never written", i, name, index)
		}
	}
}

// checkPlain: what was never flushed is there up to somewhere, without a gap and
// as it was written; after an orderly stop all of it is.
func checkPlain(t *testing.T, i int, addr string, was promise) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"plain": {0: kgo.NewOffset().At(0)}}))
	require.NoError(t, err)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "plain")
	require.NoError(t, err)
	end, ok := ends.Lookup("plain", 0)
	if !ok || end.Err != nil {
		require.False(t, was.plain > 0, "clone %d: plain: %v", i, end.Err)
		return
	}
	if was.stopped {
		require.GreaterOrEqual(t, end.Offset, was.plain, "clone %d: an orderly stop loses nothing", i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for next := int64(0); next < end.Offset; {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err0(), "clone %d at %d of %d", i, next, end.Offset)
		for _, e := range fetches.Errors() {
			require.NoError(t, e.Err, "clone %d: plain", i)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(t, next, r.Offset, "clone %d: no gap", i)
			require.Equal(t, string(value(next)), string(r.Value), "clone %d", i)
			next++
		})
	}
}

// checkOnce: what was acknowledged is there; the last batch, sent again, is a
// duplicate, and the next one is new. More may have been written, and acknowledged,
// between the promise and the clone of the disk: a broker knows the last five alone.
func checkOnce(t *testing.T, i int, addr string, was promise) {
	t.Helper()
	if was.next == 0 {
		return
	}
	c := kit.Dial(t, addr)
	probe := c.Call(kit.Fetch(12, "once", 0, int64(was.next-1), 1)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	require.Zero(t, probe.ErrorCode, "clone %d: fetch of %d: %v", i, was.next-1, kerr.ErrorForCode(probe.ErrorCode))
	next := int32(probe.HighWatermark)
	require.GreaterOrEqual(t, next, was.next, "clone %d: acknowledged records survive", i)
	for _, sequence := range []int32{next - 1, next} {
		got := produceOnce(c, onceBatch(was.producer, sequence))
		require.Zero(t, got.ErrorCode, "clone %d: sequence %d after %d: %v", i, sequence, next-1, kerr.ErrorForCode(got.ErrorCode))
		require.Equal(t, int64(sequence), got.BaseOffset, "clone %d", i)
	}
}
