package cases

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

func TestDeleteRecords(t *testing.T) {
	addr := broker(t)
	t.Run("LO-01 offsets at the edges", func(t *testing.T) { deleteAtEdges(t, addr) })
	t.Run("LO-01 several partitions", func(t *testing.T) { deleteInSeveral(t, addr) })
	t.Run("LO-01 many callers", func(t *testing.T) { deleteByMany(t, addr) })
}

func deleteRequest(version int16, topic string, offsets map[int32]int64) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = version, 10000
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = topic
	for p, o := range offsets {
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Partition, rp.Offset = p, o
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func deleteRecords(c *kit.Raw, version int16, topic string, partition int32, offset int64) kmsg.DeleteRecordsResponseTopicPartition {
	return ask[*kmsg.DeleteRecordsResponse](c, deleteRequest(version, topic, map[int32]int64{partition: offset})).Topics[0].Partitions[0]
}

func fill(t *testing.T, c *kit.Raw, topic string, id [16]byte, partition int32, count, size int) {
	t.Helper()
	for n := 0; n < count; n += size {
		b := recordbatch.NewBuilder(recordbatch.Options{})
		for i := range size {
			b.Add(time.Now().UnixMilli(), nil, strconv.AppendInt(nil, int64(n+i), 10))
		}
		same(t, nil, send(c, 9, topic, id, partition, b.Build()).ErrorCode)
	}
}

func deleteAtEdges(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	for version := range int16(3) {
		for _, size := range []int{1, 20} { // edges inside of batches too
			topic, id := create(t, c, 1)
			fill(t, c, topic, id, 0, 100, size)
			for _, step := range []struct {
				offset, low int64
				err         *kerr.Error
			}{
				{0, 0, nil},
				{10, 10, nil},
				{5, 10, nil},
				{10, 10, nil},
				{0, 10, nil},
				{-2, -1, kerr.OffsetOutOfRange},
				{101, -1, kerr.OffsetOutOfRange},
				{-1 << 63, -1, kerr.OffsetOutOfRange},
				{1<<63 - 1, -1, kerr.OffsetOutOfRange},
				{99, 99, nil},
				{-1, 100, nil},
				{100, 100, nil},
				{-1, 100, nil},
				{10, 100, nil},
				{101, -1, kerr.OffsetOutOfRange},
			} {
				got := deleteRecords(c, version, topic, 0, step.offset)
				same(t, step.err, got.ErrorCode, "version %d to %d", version, step.offset)
				require.Equal(t, step.low, got.LowWatermark, "version %d to %d", version, step.offset)
				if step.low >= 0 {
					require.Equal(t, step.low, listOffset(c, 7, topic, 0, -2).Offset)
					require.EqualValues(t, 100, end(t, c, topic, 0))
				}
				if step.low > 0 {
					same(t, kerr.OffsetOutOfRange, fetchOne(c, topic, 0, step.low-1).ErrorCode)
				}
			}
			got := send(c, 9, topic, id, 0, records("next"))
			same(t, nil, got.ErrorCode)
			require.EqualValues(t, 100, got.BaseOffset)
			require.EqualValues(t, 100, got.LogStartOffset)
			require.EqualValues(t, 101, deleteRecords(c, version, topic, 0, 101).LowWatermark)
		}
	}
	empty, _ := create(t, c, 1)
	require.Zero(t, deleteRecords(c, 1, empty, 0, -1).LowWatermark)
	require.Zero(t, deleteRecords(c, 1, empty, 0, 0).LowWatermark)
	same(t, kerr.OffsetOutOfRange, deleteRecords(c, 1, empty, 0, 1).ErrorCode)
}

func deleteInSeveral(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 3)
	for p := range int32(3) {
		fill(t, c, topic, id, p, 20, 5)
	}
	resp := ask[*kmsg.DeleteRecordsResponse](c, deleteRequest(2, topic, map[int32]int64{0: 7, 1: 21, 2: -1, 3: 0}))
	got := map[int32][2]int64{}
	for _, p := range resp.Topics[0].Partitions {
		got[p.Partition] = [2]int64{p.LowWatermark, int64(p.ErrorCode)}
	}
	require.Equal(t, map[int32][2]int64{0: {7, 0}, 1: {-1, 1}, 2: {20, 0}, 3: {-1, 3}}, got)
	same(t, kerr.UnknownTopicOrPartition, deleteRecords(c, 1, fresh("nowhere"), 0, 0).ErrorCode)
	require.Empty(t, ask[*kmsg.DeleteRecordsResponse](c, func() *kmsg.DeleteRecordsRequest {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = 2
		return req
	}()).Topics)
	kept, keptID := create(t, c, 1, "cleanup.policy=compact")
	same(t, nil, send(c, 9, kept, keptID, 0, keyed(recordbatch.None, "k")).ErrorCode)
	same(t, kerr.PolicyViolation, deleteRecords(c, 1, kept, 0, 1).ErrorCode, "records of a compacted topic stay")
	both, bothID := create(t, c, 1, "cleanup.policy=compact,delete")
	same(t, nil, send(c, 9, both, bothID, 0, keyed(recordbatch.None, "k")).ErrorCode)
	require.EqualValues(t, 1, deleteRecords(c, 1, both, 0, 1).LowWatermark)
}

func deleteByMany(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1)
	fill(t, c, topic, id, 0, 100, 10)
	var wg sync.WaitGroup
	lows := make([]kmsg.DeleteRecordsResponseTopicPartition, 8)
	for i := range lows {
		conn := kit.Dial(t, addr)
		wg.Go(func() { lows[i] = deleteRecords(conn, 1, topic, 0, int64(i*10+10)) })
	}
	wg.Wait()
	for i, l := range lows {
		same(t, nil, l.ErrorCode)
		require.GreaterOrEqual(t, l.LowWatermark, int64(i*10+10))
	}
	require.EqualValues(t, 80, listOffset(c, 7, topic, 0, -2).Offset)
}

func TestDeletedRecordsStayDeleted(t *testing.T) {
	s := own(t, nil)
	c := kit.Dial(t, s.Addr)
	topic, id := create(t, c, 2)
	fill(t, c, topic, id, 0, 100, 10)
	fill(t, c, topic, id, 1, 10, 10)
	require.EqualValues(t, 37, deleteRecords(c, 1, topic, 0, 37).LowWatermark)
	require.EqualValues(t, 10, deleteRecords(c, 1, topic, 1, -1).LowWatermark)
	for _, kill := range []bool{true, false} {
		s.Restart(kill)
		c = kit.Dial(t, s.Addr)
		require.EqualValues(t, 37, listOffset(c, 7, topic, 0, -2).Offset, "LO-01")
		require.EqualValues(t, 100, end(t, c, topic, 0))
		require.EqualValues(t, 10, listOffset(c, 7, topic, 1, -2).Offset, "an empty log keeps its place")
		require.EqualValues(t, 10, end(t, c, topic, 1))
		require.EqualValues(t, 37, deleteRecords(c, 1, topic, 0, 5).LowWatermark)
		same(t, kerr.OffsetOutOfRange, fetchOne(c, topic, 0, 36).ErrorCode)
		require.Equal(t, "30", values(t, fetchOne(c, topic, 0, 37).RecordBatches)[0], "whole batches")
	}
	got := send(c, 9, topic, id, 1, records("next"))
	require.EqualValues(t, 10, got.BaseOffset)
}

// LO-03: after a kill in the middle of writes everything acknowledged is read
// back, and the producer that was cut off goes on.
func TestWritesThroughKills(t *testing.T) {
	s := own(t, map[string]string{"listeners": "PLAINTEXT://127.0.0.1:" + freePort(t)})
	c := kit.Dial(t, s.Addr)
	topic, _ := create(t, c, 2, "segment.bytes=1048576")
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	rounds, each := 3, 2000
	if kit.Long() {
		rounds, each = 20, 10_000
	}
	cl := client(t, s.Addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(16<<10), kgo.MaxBufferedRecords(500), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	rng := rand.New(rand.NewPCG(3, 4))
	next := [2]int{}
	for round := range rounds {
		killAt := rng.IntN(each / 2)
		var mu sync.Mutex
		acked, killed := 0, make(chan struct{})
		var failed error
		go func() {
			<-killed
			s.Restart(true)
			killed <- struct{}{}
		}()
		for n := range each {
			p := n % 2
			r := &kgo.Record{Partition: int32(p), Value: fmt.Appendf(nil, "%d %0200d", next[p], next[p])}
			next[p]++
			cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil && failed == nil {
					failed = err
				}
				if acked++; acked == killAt+1 {
					killed <- struct{}{}
				}
			})
		}
		require.NoError(t, cl.Flush(ctx))
		<-killed
		require.NoError(t, failed, "round %d", round)
	}
	for p := range 2 {
		reader := client(t, s.Addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {int32(p): kgo.NewOffset().At(0)}}))
		for want := 0; want < next[p]; {
			got := reader.PollFetches(ctx)
			require.Empty(t, got.Errors())
			got.EachRecord(func(r *kgo.Record) {
				require.Equal(t, int64(want), r.Offset)
				require.Equal(t, fmt.Sprintf("%d %0200d", want, want), string(r.Value))
				want++
			})
		}
	}
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	require.NoError(t, err)
	for p := range int32(2) {
		o, _ := ends.Lookup(topic, p)
		require.EqualValues(t, next[p], o.Offset, "LO-03 nothing twice")
	}
}

// FE-09 once retention has removed everything: no offset, and no stamp.
func TestLookupsInExpiredTopics(t *testing.T) {
	s := own(t, map[string]string{
		"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100", "log.segment.delete.delay.ms": "100",
	})
	c := kit.Dial(t, s.Addr)
	topic, id := create(t, c, 2)
	for p := range int32(2) {
		fill(t, c, topic, id, p, 40, 10)
	}
	same(t, nil, alter(c, topic, set("retention.ms", "1")).ErrorCode)
	kit.Eventually(t, 10*time.Second, "retention removes everything, what is written last included", func() bool {
		return listOffset(c, 7, topic, 0, -2).Offset == 40 && listOffset(c, 7, topic, 1, -2).Offset == 40
	})
	for _, kill := range []bool{false, true} {
		for version := int16(1); version <= 11; version++ {
			for _, ts := range []int64{0, 1, time.Now().UnixMilli(), time.Now().Add(24 * time.Hour).UnixMilli()} {
				got := listOffset(c, version, topic, 1, ts)
				same(t, nil, got.ErrorCode)
				require.Equal(t, [2]int64{-1, -1}, [2]int64{got.Offset, got.Timestamp}, "version %d time %d", version, ts)
			}
		}
		require.EqualValues(t, 40, end(t, c, topic, 1))
		same(t, kerr.OffsetOutOfRange, fetchOne(c, topic, 1, 39).ErrorCode)
		empty := fetchOne(c, topic, 1, 40)
		same(t, nil, empty.ErrorCode)
		require.EqualValues(t, 40, empty.LogStartOffset)
		s.Restart(kill)
		c = kit.Dial(t, s.Addr)
	}
	same(t, nil, alter(c, topic, remove("retention.ms")).ErrorCode)
	require.EqualValues(t, 40, send(c, 9, topic, id, 0, records("next")).BaseOffset)
	require.Equal(t, []string{"next"}, values(t, fetchOne(c, topic, 0, 40).RecordBatches))
}
