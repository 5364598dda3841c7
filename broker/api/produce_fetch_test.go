package api_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
)

// Every served version of Produce and Fetch carries records from several
// partitions of two topics, and gives them back (WI-03).
func TestProduceAndFetchInEveryVersion(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	const one, two = "a", "b"
	ids := map[string][16]byte{one: k.topic(one, 3), two: k.topic(two, 3)}
	for version := int16(3); version <= 13; version++ {
		offset := int64(version - 3)
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 5000
		for _, name := range []string{one, two} {
			parts := map[int32][]byte{}
			for p := range int32(3) {
				parts[p] = batch(now(), fmt.Sprintf("%s-%d in %d", name, p, version))
			}
			req.Topics = append(req.Topics, produceRequest(-1, name, ids[name], parts).Topics[0])
		}
		resp := ask[*kmsg.ProduceResponse](c, req, version)
		require.Len(t, resp.Topics, 2)
		for i, rt := range resp.Topics {
			if version < 13 {
				require.Equal(t, []string{one, two}[i], rt.Topic)
			} else {
				require.Equal(t, ids[[]string{one, two}[i]], rt.TopicID)
			}
			require.Len(t, rt.Partitions, 3)
			for j, p := range rt.Partitions {
				require.Equal(t, int32(j), p.Partition)
				require.Zero(t, p.ErrorCode)
				require.Equal(t, offset, p.BaseOffset)
				require.Equal(t, int64(-1), p.LogAppendTime)
			}
		}
		for fetchVersion := int16(4); fetchVersion <= 18; fetchVersion++ {
			fetch := fetchRequest(one, ids[one], offset, offset, offset)
			fetch.Topics = append(fetch.Topics, fetchRequest(two, ids[two], offset, offset, offset).Topics...)
			got := ask[*kmsg.FetchResponse](c, fetch, fetchVersion)
			require.Zero(t, got.SessionID)
			require.Len(t, got.Topics, 2)
			for i, rt := range got.Topics {
				for j, p := range rt.Partitions {
					require.Equal(t, int32(j), p.Partition)
					require.Zero(t, p.ErrorCode)
					require.Equal(t, offset+1, p.HighWatermark)
					require.Equal(t, offset+1, p.LastStableOffset)
					require.Equal(t, []string{fmt.Sprintf("%s-%d in %d", []string{one, two}[i], j, version)}, values(t, p.RecordBatches))
				}
			}
		}
	}
}

func values(t testing.TB, b []byte) []string {
	t.Helper()
	var out []string
	d := recordbatch.NewDecoder(1 << 24)
	for len(b) > 0 {
		one, rest, err := recordbatch.First(b)
		require.NoError(t, err)
		for r, err := range d.Records(one) {
			require.NoError(t, err)
			out = append(out, string(r.Value))
		}
		b = rest
	}
	return out
}

func TestProduceIsRefusedAsApacheKafkaDoes(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("t", 1)
	k.topic("compacted", 1, "cleanup.policy", "compact")
	good := batch(now(), "x")
	two := append(append([]byte(nil), good...), batch(now(), "y")...)
	zstd := recordbatch.NewBuilder(recordbatch.Options{Codec: recordbatch.Zstd})
	zstd.Add(now(), nil, []byte("x"))
	badCRC := append([]byte(nil), good...)
	badCRC[len(badCRC)-1] ^= 1
	old := append([]byte(nil), good...)
	old[16] = 1
	future := append([]byte(nil), good...)
	future[16] = 103
	late := batch(now()+1000*3600*24, "x")
	for _, test := range []struct {
		name    string
		records []byte
		acks    int16
		version int16
		code    int16
		start   int64 // Kafka's refusals of records, not of requests, name the log's start
	}{
		{"null", nil, 1, 9, 87, -1},
		{"empty", []byte{}, 1, 9, 87, -1},
		{"short", []byte("short"), 1, 9, 87, -1},
		{"garbage", bytes.Repeat([]byte("garbage "), 12), 1, 9, 2, -1},
		{"cut", good[:len(good)-1], 1, 9, 87, -1},
		{"two batches", two, 1, 9, 87, -1},
		{"zstd in 6", zstd.Build(), 1, 6, 76, -1},
		{"wrong CRC", badCRC, 1, 9, 2, -1},
		{"magic 1", old, 1, 9, 87, -1},
		{"magic 103", future, 1, 9, 2, -1},
		{"a day ahead", late, 1, 9, 32, 0},
		{"acks 5", good, 5, 9, 21, -1},
		{"acks 5 and empty", nil, 5, 9, 87, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := k.dial()
			resp := ask[*kmsg.ProduceResponse](c, produceRequest(test.acks, "t", id, map[int32][]byte{0: append([]byte(nil), test.records...)}), test.version)
			p := resp.Topics[0].Partitions[0]
			require.Equal(t, test.code, p.ErrorCode, "%v", p.ErrorMessage)
			require.Equal(t, int64(-1), p.BaseOffset)
			require.Equal(t, test.start, p.LogStartOffset)
		})
	}
	c := k.dial()
	for _, test := range []struct {
		topic   string
		id      [16]byte
		part    int32
		version int16
		code    int16
	}{
		{"nope", [16]byte{}, 0, 9, 3}, {"t", id, 9, 9, 3}, {"", [16]byte{1}, 0, 13, 100}, {"", [16]byte{}, 0, 13, 100},
	} {
		resp := ask[*kmsg.ProduceResponse](c, produceRequest(1, test.topic, test.id, map[int32][]byte{test.part: good}), test.version)
		require.Equal(t, test.code, resp.Topics[0].Partitions[0].ErrorCode)
	}
	fetch := fetchRequest("t", id, 0)
	fetch.MaxWaitMillis = 0
	require.Zero(t, ask[*kmsg.FetchResponse](c, fetch, 18).Topics[0].Partitions[0].HighWatermark, "nothing was appended")
}

// PR-05
func TestANullKeyRefusesTheBatchAndNamesTheRecord(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("compacted", 1, "cleanup.policy", "compact")
	b := recordbatch.NewBuilder(recordbatch.Options{})
	b.Add(now(), []byte("k1"), []byte("v"))
	b.Add(now(), nil, []byte("v"))
	b.Add(now(), []byte("k2"), []byte("v"))
	c := k.dial()
	records := b.Build()
	for version := int16(3); version <= 13; version++ {
		resp := ask[*kmsg.ProduceResponse](c, produceRequest(-1, "compacted", id, map[int32][]byte{0: append([]byte(nil), records...)}), version)
		p := resp.Topics[0].Partitions[0]
		require.Equal(t, int16(87), p.ErrorCode)
		if version >= 8 {
			require.Len(t, p.ErrorRecords, 1)
			require.Equal(t, int32(1), p.ErrorRecords[0].RelativeOffset)
			require.NotNil(t, p.ErrorMessage)
		}
	}
	fetch := fetchRequest("compacted", id, 0)
	fetch.MaxWaitMillis = 0
	require.Zero(t, ask[*kmsg.FetchResponse](c, fetch, 18).Topics[0].Partitions[0].HighWatermark)
}

func TestProduceWithoutAnswer(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("t", 1)
	c := k.dial()
	c.send(produceRequest(0, "t", id, map[int32][]byte{0: batch(now(), "a")}), 13)
	c.send(produceRequest(1, "t", id, map[int32][]byte{0: batch(now(), "b")}), 13)
	resp := kmsg.NewPtrProduceResponse()
	c.receive(2, resp, 13)
	require.Equal(t, int64(1), resp.Topics[0].Partitions[0].BaseOffset)
	c.send(produceRequest(0, "nope", id, map[int32][]byte{0: batch(now(), "a")}), 9)
	c.closed()
}

func TestOldProduceClosesTheConnection(t *testing.T) {
	k := newKit(t, nil)
	for version := range int16(3) {
		c := k.dial()
		c.send(produceRequest(1, "t", [16]byte{}, map[int32][]byte{0: {}}), version)
		c.closed()
	}
}

// FE-01
func TestFetchOnAnIdlePartition(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("t", 2)
	c := k.dial()
	start := time.Now()
	fetch := fetchRequest("t", id, 0, 0)
	fetch.MaxWaitMillis = 300
	resp := ask[*kmsg.FetchResponse](c, fetch, 18)
	require.InDelta(t, 300, time.Since(start).Milliseconds(), 250)
	for _, p := range resp.Topics[0].Partitions {
		require.Zero(t, p.ErrorCode)
		require.Zero(t, p.HighWatermark)
		require.Empty(t, p.RecordBatches)
	}
	fetch.MaxWaitMillis = 60000
	fetch.MinBytes = int32(2 * len(batch(now(), "woken")))
	c.send(fetch, 18)
	producer := k.dial()
	for range 2 {
		ask[*kmsg.ProduceResponse](producer, produceRequest(-1, "t", id, map[int32][]byte{1: batch(now(), "woken")}), 13)
	}
	got := kmsg.NewPtrFetchResponse()
	c.receive(2, got, 18)
	require.Equal(t, []string{"woken", "woken"}, values(t, got.Topics[0].Partitions[1].RecordBatches), "not before min_bytes")
}

// FE-03
func TestFullFetchesServeDataWhateverTheirSession(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("t", 1)
	c := k.dial()
	for i := range 20 {
		ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", id, map[int32][]byte{0: batch(now(), fmt.Sprint(i), "second")}), 13)
	}
	for offset := range int64(40) {
		for _, session := range [][2]int32{{0, -1}, {0, 0}, {77, -1}, {77, 0}} {
			fetch := fetchRequest("t", id, offset)
			fetch.SessionID, fetch.SessionEpoch = session[0], session[1]
			fetch.Topics[0].Partitions[0].PartitionMaxBytes = 1
			resp := ask[*kmsg.FetchResponse](c, fetch, 17)
			require.Zero(t, resp.ErrorCode)
			require.Equal(t, session[1] == 0, resp.SessionID != 0)
			p := resp.Topics[0].Partitions[0]
			first, _, err := recordbatch.First(p.RecordBatches)
			require.NoError(t, err)
			require.LessOrEqual(t, int64(first.BaseOffset()), offset)
			require.GreaterOrEqual(t, int64(first.LastOffset()), offset)
			require.Equal(t, []int64{40, 40, 0}, []int64{p.HighWatermark, p.LastStableOffset, p.LogStartOffset})
		}
		fetch := fetchRequest("t", id, offset)
		fetch.SessionID, fetch.SessionEpoch = 77, 3
		resp := ask[*kmsg.FetchResponse](c, fetch, 17)
		require.Equal(t, int16(70), resp.ErrorCode)
		require.Empty(t, resp.Topics)
	}
}

func TestFetchErrors(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("t", 1)
	c := k.dial()
	ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", id, map[int32][]byte{0: batch(now(), "x")}), 13)
	for _, test := range []struct {
		name    string
		version int16
		code    int16
		change  func(*kmsg.FetchRequest, *kmsg.FetchRequestTopicPartition)
	}{
		{"past the end", 18, 1, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = 99 }},
		{"negative", 18, 1, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = -5 }},
		{"no such partition", 18, 3, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.Partition = 7 }},
		{"no such id", 18, 100, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) { r.Topics[0].TopicID = [16]byte{7} }},
		{"no id", 18, 100, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) { r.Topics[0].TopicID = [16]byte{} }},
		{"no such name", 12, 3, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) { r.Topics[0].Topic = "nope" }},
		{"another broker", 18, 6, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) { r.ReplicaState.ID = 5 }},
		{"the leader itself", 14, 6, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) { r.ReplicaID = 1 }},
		{"epoch from the future", 18, 75, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 9 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			fetch := fetchRequest("t", id, 0)
			fetch.MaxWaitMillis = 60000
			test.change(fetch, &fetch.Topics[0].Partitions[0])
			p := ask[*kmsg.FetchResponse](c, fetch, test.version).Topics[0].Partitions[0]
			require.Equal(t, test.code, p.ErrorCode)
			require.Equal(t, int64(-1), p.HighWatermark)
			require.Empty(t, p.RecordBatches)
		})
	}
	fetch := fetchRequest("t", id, 0)
	fetch.IsolationLevel = 7
	require.Equal(t, int16(42), ask[*kmsg.FetchResponse](c, fetch, 18).ErrorCode)
	fetch = fetchRequest("t", id, 1)
	fetch.MinBytes = 0
	require.Zero(t, ask[*kmsg.FetchResponse](c, fetch, 18).Topics[0].Partitions[0].ErrorCode)
	fetch.IsolationLevel = 1
	require.NotNil(t, ask[*kmsg.FetchResponse](c, fetch, 18).Topics[0].Partitions[0].AbortedTransactions)
	fetch.Topics = nil
	fetch.MaxWaitMillis, fetch.MinBytes = 60000, 1
	require.Empty(t, ask[*kmsg.FetchResponse](c, fetch, 18).Topics, "nothing to wait for")
}

func TestFetchKeepsToItsLimits(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("t", 3)
	c := k.dial()
	one := batch(now(), string(make([]byte, 1000)))
	for range 10 {
		parts := map[int32][]byte{}
		for i := range int32(3) {
			parts[i] = append([]byte(nil), one...)
		}
		ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", id, parts), 13)
	}
	size := len(one)
	for _, test := range []struct {
		max, partMax int
		want         [3]int // batches
	}{
		{1, 1 << 20, [3]int{1, 0, 0}},
		{1 << 20, 1, [3]int{1, 0, 0}},
		{1 << 20, 3 * size, [3]int{3, 3, 3}},
		{4 * size, 3 * size, [3]int{3, 1, 0}},
		{4*size - 1, 3 * size, [3]int{3, 0, 0}},
		{1 << 20, 1 << 20, [3]int{10, 10, 10}},
		{0, 0, [3]int{1, 0, 0}},
	} {
		fetch := fetchRequest("t", id, 0, 0, 0)
		fetch.MaxBytes = int32(test.max)
		for i := range fetch.Topics[0].Partitions {
			fetch.Topics[0].Partitions[i].PartitionMaxBytes = int32(test.partMax)
		}
		resp := ask[*kmsg.FetchResponse](c, fetch, 18)
		var got [3]int
		for i, p := range resp.Topics[0].Partitions {
			got[i] = len(p.RecordBatches) / size
			require.Equal(t, int64(10), p.HighWatermark)
		}
		require.Equal(t, test.want, got, "%+v", test)
	}
}

func TestLargeFetchesGoBySendfile(t *testing.T) {
	k := newKit(t, nil)
	id := k.topic("t", 2)
	c := k.dial()
	want := string(bytes.Repeat([]byte("0123456789abcdef"), 40000))
	for i := range int32(2) {
		ask[*kmsg.ProduceResponse](c, produceRequest(-1, "t", id, map[int32][]byte{i: batch(now(), want)}), 13)
	}
	fetch := fetchRequest("t", id, 0, 0)
	fetch.MaxBytes = 4 << 20
	for _, version := range []int16{4, 11, 12, 18} {
		for _, p := range ask[*kmsg.FetchResponse](c, fetch, version).Topics[0].Partitions {
			require.Equal(t, []string{want}, values(t, p.RecordBatches))
		}
	}
	require.Greater(t, k.metrics.Stats().Bytes(0, 0), int64(5_000_000))
	require.Zero(t, k.metrics.Stats().Bytes(0, 1))
}
