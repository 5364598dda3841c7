package cases

import (
	"context"
	"fmt"
	"math/rand/v2"
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

func TestFetch(t *testing.T) {
	addr := broker(t)
	t.Run("FE-01 an idle partition answers when the wait is over", func(t *testing.T) { idleFetch(t, addr) })
	t.Run("FE-01 a record ends the wait", func(t *testing.T) { recordEndsWait(t, addr) })
	t.Run("FE-01 clients at the end of a partition", func(t *testing.T) { clientsAtTheEnd(t, addr) })
	t.Run("least bytes", func(t *testing.T) { leastBytes(t, addr) })
	t.Run("most bytes", func(t *testing.T) { mostBytes(t, addr) })
	t.Run("what does not wait", func(t *testing.T) { noWait(t, addr) })
	t.Run("deletion ends the wait", func(t *testing.T) { deletionEndsWait(t, addr) })
	t.Run("FE-03 a full fetch below the high watermark", func(t *testing.T) { fullFetches(t, addr) })
	t.Run("FE-03 offsets at the edges", func(t *testing.T) { edgeOffsets(t, addr) })
	t.Run("FE-07 lookups by time inside a batch", func(t *testing.T) { lookupsInsideBatch(t, addr) })
	t.Run("FE-07 lookups over several batches", func(t *testing.T) { lookupsOverBatches(t, addr) })
	t.Run("FE-09 no record is new enough", func(t *testing.T) { nothingNewEnough(t, addr) })
	t.Run("FE-13 a partition twice in one lookup", func(t *testing.T) { partitionTwice(t, addr) })
	t.Run("special timestamps", func(t *testing.T) { specialTimestamps(t, addr) })
	t.Run("leader epochs", func(t *testing.T) { leaderEpochs(t, addr) })
}

// waiting is a fetch that may wait.
func waiting(version int16, topic string, id [16]byte, partition int32, offset int64, wait time.Duration, least int32) *kmsg.FetchRequest {
	req := kit.Fetch(version, topic, partition, offset, 1<<20)
	req.Topics[0].TopicID = id
	req.MaxWaitMillis, req.MinBytes = int32(wait.Milliseconds()), least
	return req
}

func idleFetch(t *testing.T, addr string) {
	setup := kit.Dial(t, addr)
	topic, id := create(t, setup, 3)
	same(t, nil, send(setup, 9, topic, id, 1, records("one")).ErrorCode)
	const wait = 300 * time.Millisecond
	var wg sync.WaitGroup
	for version := int16(4); version <= 18; version++ {
		c := kit.Dial(t, addr)
		wg.Go(func() {
			req := waiting(version, topic, id, 0, 0, wait, 1)
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, waiting(version, topic, id, 1, 1, wait, 1).Topics[0].Partitions...)
			start := time.Now()
			c.Send(req)
			got, err := c.Receive(req)
			took := time.Since(start)
			if err != nil {
				t.Errorf("version %d: %v", version, err)
				return
			}
			resp := got.(*kmsg.FetchResponse)
			if took < wait-20*time.Millisecond || took > 10*wait {
				t.Errorf("version %d: answered after %s", version, took)
			}
			if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 2 {
				t.Errorf("version %d: %+v", version, resp)
				return
			}
			for _, p := range resp.Topics[0].Partitions {
				if p.ErrorCode != 0 || len(p.RecordBatches) != 0 || p.HighWatermark != int64(p.Partition) {
					t.Errorf("version %d: %+v", version, p)
				}
			}
		})
	}
	wg.Wait()
}

func recordEndsWait(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 4)
	for _, version := range []int16{4, 7, 11, 12, 13, 18} {
		for partition := range int32(4) {
			fetcher := kit.Dial(t, addr)
			last := end(t, c, topic, partition)
			req := waiting(version, topic, id, 0, end(t, c, topic, 0), 15*time.Second, 1)
			req.IsolationLevel = int8(partition % 2)
			for p := int32(1); p < 4; p++ {
				more := waiting(version, topic, id, p, end(t, c, topic, p), 0, 0).Topics[0].Partitions
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, more...)
			}
			start := time.Now()
			fetcher.Send(req)
			same(t, nil, send(c, 9, topic, id, partition, records("here")).ErrorCode)
			got, err := fetcher.Receive(req)
			require.NoError(t, err)
			require.Less(t, time.Since(start), 10*time.Second)
			for _, p := range got.(*kmsg.FetchResponse).Topics[0].Partitions {
				if p.Partition == partition {
					require.Equal(t, []string{"here"}, values(t, p.RecordBatches))
					require.Equal(t, last+1, p.HighWatermark)
				} else {
					require.Empty(t, p.RecordBatches)
				}
			}
		}
	}
	// Several that wait for the same record, and one connection with two.
	topic, id = create(t, c, 1)
	both := kit.Dial(t, addr)
	first, second := waiting(12, topic, id, 0, 0, 15*time.Second, 1), waiting(12, topic, id, 0, 0, 15*time.Second, 1)
	others := make([]*kit.Raw, 6)
	for i := range others {
		others[i] = kit.Dial(t, addr)
		others[i].Send(first)
	}
	both.Send(first)
	both.Send(second)
	same(t, nil, send(c, 9, topic, id, 0, records("all")).ErrorCode)
	for _, o := range others {
		got, err := o.Receive(first)
		require.NoError(t, err)
		require.Equal(t, []string{"all"}, values(t, got.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches))
	}
	for range 2 {
		frame, err := both.Frame()
		require.NoError(t, err)
		require.Contains(t, string(frame), "all")
	}
}

func clientsAtTheEnd(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cl := client(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}), kgo.FetchMaxWait(200*time.Millisecond))
	short, stop := context.WithTimeout(ctx, 700*time.Millisecond)
	defer stop()
	got := cl.PollFetches(short)
	require.Zero(t, got.NumRecords())
	for _, e := range got.Errors() {
		require.ErrorIs(t, e.Err, context.DeadlineExceeded)
	}
	same(t, nil, send(c, 9, topic, id, 0, records("late")).ErrorCode)
	got = cl.PollFetches(ctx)
	require.Empty(t, got.Errors())
	require.Equal(t, 1, got.NumRecords())
	out, errOut, code := kit.Kcat(t, "", "-C", "-b", addr, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
	require.Zero(t, code, errOut)
	require.Equal(t, "late\n", out)
}

func leastBytes(t *testing.T, addr string) {
	c, fetcher := kit.Dial(t, addr), kit.Dial(t, addr)
	topic, id := create(t, c, 2)
	req := waiting(12, topic, id, 0, 0, 15*time.Second, 2500)
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, waiting(12, topic, id, 1, 0, 0, 0).Topics[0].Partitions...)
	fetcher.Send(req)
	for i := range int32(3) { // counted over all partitions
		same(t, nil, send(c, 9, topic, id, i%2, records(string(make([]byte, 1000)))).ErrorCode)
	}
	got, err := fetcher.Receive(req)
	require.NoError(t, err)
	total := 0
	for _, p := range got.(*kmsg.FetchResponse).Topics[0].Partitions {
		total += len(p.RecordBatches)
	}
	require.Greater(t, total, 3000)
	// Too little, and the wait is over: what there is.
	req = waiting(12, topic, id, 1, 0, 200*time.Millisecond, 1<<20)
	start := time.Now()
	resp := ask[*kmsg.FetchResponse](fetcher, req)
	require.GreaterOrEqual(t, time.Since(start), 180*time.Millisecond)
	require.Len(t, values(t, resp.Topics[0].Partitions[0].RecordBatches), 1)
	// More than may be sent is never waited for.
	req = waiting(12, topic, id, 0, 0, 15*time.Second, 1<<20)
	req.MaxBytes = 1000
	start = time.Now()
	resp = ask[*kmsg.FetchResponse](fetcher, req)
	require.Less(t, time.Since(start), 10*time.Second)
	require.NotEmpty(t, resp.Topics[0].Partitions[0].RecordBatches)
}

func mostBytes(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 3)
	size := 0
	for p := range int32(3) {
		for range 10 {
			b := records(string(make([]byte, 10_000)))
			size = len(b)
			same(t, nil, send(c, 9, topic, id, p, b).ErrorCode)
		}
	}
	fetch := func(offset int64, most, partMost int32) (bytes []int) {
		req := kit.Fetch(12, topic, 0, offset, most)
		req.Topics[0].Partitions = nil
		for p := range int32(3) {
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p, offset, partMost, -1
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
		}
		bytes = make([]int, 3)
		for _, p := range ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions {
			same(t, nil, p.ErrorCode)
			bytes[p.Partition] = len(p.RecordBatches)
			require.Zero(t, len(whole(p.RecordBatches))%size)
		}
		return bytes
	}
	require.Equal(t, []int{10 * size, 10 * size, 10 * size}, fetch(0, 1<<20, 1<<20))
	require.Equal(t, []int{size, 0, 0}, fetch(0, 1, 1), "one batch, though it is larger than both limits")
	require.Equal(t, []int{size, 0, 0}, fetch(3, 1, 1<<20))
	require.Equal(t, []int{size, 0, 0}, fetch(0, 0, 0))
	require.Equal(t, []int{size, 0, 0}, fetch(9, 1<<20, 10), "only the first partition's")
	got := fetch(0, int32(2*size+size/2), 1<<20)
	require.LessOrEqual(t, got[0]+got[1]+got[2], 2*size+size/2)
	require.GreaterOrEqual(t, got[0], 2*size)
	got = fetch(0, 1<<20, int32(2*size))
	require.Equal(t, []int{2 * size, 2 * size, 2 * size}, got)
	// One request after the other goes over everything once.
	offset, n := int64(0), 0
	for offset < 10 {
		req := kit.Fetch(12, topic, 1, offset, 25_000)
		got := values(t, whole(ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions[0].RecordBatches))
		require.NotEmpty(t, got)
		offset, n = offset+int64(len(got)), n+1
	}
	require.EqualValues(t, 10, offset)
}

func noWait(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 2)
	quick := func(what string, req *kmsg.FetchRequest) *kmsg.FetchResponse {
		t.Helper()
		start := time.Now()
		resp := ask[*kmsg.FetchResponse](c, req)
		require.Less(t, time.Since(start), 10*time.Second, what)
		return resp
	}
	quick("no wait", waiting(12, topic, id, 0, 0, 0, 1))
	quick("no least", waiting(12, topic, id, 0, 0, 15*time.Second, 0))
	same(t, kerr.UnknownTopicOrPartition, quick("a partition that is not there", waiting(12, topic, id, 7, 0, 15*time.Second, 1)).Topics[0].Partitions[0].ErrorCode)
	req := waiting(12, topic, id, 0, 0, 200*time.Millisecond, 1)
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, waiting(12, topic, id, 7, 0, 0, 0).Topics[0].Partitions...)
	for _, p := range quick("one that is there and one that is not", req).Topics[0].Partitions {
		if p.Partition == 7 {
			same(t, kerr.UnknownTopicOrPartition, p.ErrorCode)
		} else {
			same(t, nil, p.ErrorCode)
		}
	}
	req = waiting(12, topic, id, 0, 5, 15*time.Second, 1)
	same(t, kerr.OffsetOutOfRange, quick("an offset that is not there", req).Topics[0].Partitions[0].ErrorCode)
	req = waiting(12, topic, id, 0, 0, 15*time.Second, 1)
	req.Topics = nil
	require.Empty(t, quick("nothing asked", req).Topics)
	req = waiting(13, "", [16]byte{1, 2, 3}, 0, 0, 15*time.Second, 1)
	same(t, kerr.UnknownTopicID, quick("an unknown id", req).Topics[0].Partitions[0].ErrorCode)
}

func deletionEndsWait(t *testing.T, addr string) {
	c, fetcher := kit.Dial(t, addr), kit.Dial(t, addr)
	for _, version := range []int16{12, 13} {
		topic, id := create(t, c, 1)
		req := waiting(version, topic, id, 0, 0, 15*time.Second, 1)
		start := time.Now()
		fetcher.Send(req)
		same(t, nil, deleteTopics(c, 6, named(topic))[0].ErrorCode)
		got, err := fetcher.Receive(req)
		require.NoError(t, err)
		require.Less(t, time.Since(start), 10*time.Second)
		code := got.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode
		require.Contains(t, []int16{kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.NotLeaderForPartition.Code}, code)
	}
}

// fullFetches reads at random offsets while others write and read in sessions.
func fullFetches(t *testing.T, addr string) {
	setup := kit.Dial(t, addr)
	topic, id := create(t, setup, 1)
	b := recordbatch.NewBuilder(recordbatch.Options{})
	for i := range 7 {
		b.Add(time.Now().UnixMilli(), nil, fmt.Append(nil, i))
	}
	same(t, nil, send(setup, 9, topic, id, 0, b.Build()).ErrorCode)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	writer := kit.Dial(t, addr)
	wg.Go(func() {
		for n := range 300 {
			select {
			case <-stop:
				return
			default:
			}
			b := recordbatch.NewBuilder(recordbatch.Options{})
			for i := range n%9 + 1 {
				b.Add(time.Now().UnixMilli(), nil, fmt.Append(nil, i))
			}
			send(writer, 9, topic, id, 0, b.Build())
		}
	})
	for range 3 {
		c := kit.Dial(t, addr)
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				req := waiting(12, topic, id, 0, int64(n%7), 0, 1)
				req.SessionEpoch = 0
				session := c.Call(req).(*kmsg.FetchResponse).SessionID
				req.SessionID, req.SessionEpoch = session, 1
				resp := c.Call(req).(*kmsg.FetchResponse)
				if session == 0 && resp.ErrorCode != kerr.FetchSessionIDNotFound.Code {
					t.Errorf("an incremental fetch without a session: %d", resp.ErrorCode)
					return
				}
			}
		})
	}
	c := kit.Dial(t, addr)
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 400 {
		version := int16(4 + n%15)
		high := end(t, c, topic, 0)
		offset := rng.Int64N(high)
		req := waiting(version, topic, id, 0, offset, 0, 1)
		req.SessionEpoch = []int32{0, -1}[n%2]
		resp := ask[*kmsg.FetchResponse](c, req)
		same(t, nil, resp.ErrorCode)
		p := resp.Topics[0].Partitions[0]
		same(t, nil, p.ErrorCode)
		require.GreaterOrEqual(t, p.HighWatermark, high)
		require.Equal(t, p.HighWatermark, p.LastStableOffset)
		if version >= 5 {
			require.Zero(t, p.LogStartOffset)
		}
		first, _, err := recordbatch.First(p.RecordBatches)
		require.NoError(t, err, "data below the high watermark")
		require.LessOrEqual(t, int64(first.BaseOffset()), offset)
		require.GreaterOrEqual(t, int64(first.LastOffset()), offset)
	}
	close(stop)
	wg.Wait()
}

func edgeOffsets(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1)
	for range 10 {
		same(t, nil, send(c, 9, topic, id, 0, records("x")).ErrorCode)
	}
	require.EqualValues(t, 4, deleteRecords(c, 1, topic, 0, 4).LowWatermark)
	for version := int16(4); version <= 18; version++ {
		for offset, want := range map[int64]*kerr.Error{
			-1: kerr.OffsetOutOfRange, 0: kerr.OffsetOutOfRange, 3: kerr.OffsetOutOfRange, 4: nil, 9: nil, 10: nil,
			11: kerr.OffsetOutOfRange, 1 << 62: kerr.OffsetOutOfRange, -1 << 63: kerr.OffsetOutOfRange,
		} {
			p := ask[*kmsg.FetchResponse](c, waiting(version, topic, id, 0, offset, 0, 1)).Topics[0].Partitions[0]
			same(t, want, p.ErrorCode, "version %d offset %d", version, offset)
			if want != nil {
				require.Empty(t, p.RecordBatches)
				continue
			}
			require.EqualValues(t, 10, p.HighWatermark)
			require.Equal(t, int(10-offset), len(values(t, p.RecordBatches)))
			if version >= 5 {
				require.EqualValues(t, 4, p.LogStartOffset)
			}
		}
	}
}

func stamped(codec recordbatch.Codec, stamps ...int64) []byte {
	b := recordbatch.NewBuilder(recordbatch.Options{Codec: codec})
	for _, s := range stamps {
		b.Add(s, nil, []byte("v"))
	}
	return b.Build()
}

func lookupsInsideBatch(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	for _, codec := range []recordbatch.Codec{recordbatch.None, recordbatch.Gzip, recordbatch.Snappy, recordbatch.LZ4, recordbatch.Zstd} {
		topic, id := create(t, c, 1)
		same(t, nil, send(c, 9, topic, id, 0, stamped(codec, 2, 4, 6, 8)).ErrorCode)
		for version := int16(1); version <= 11; version++ {
			for ts, want := range map[int64][2]int64{0: {0, 2}, 1: {0, 2}, 2: {0, 2}, 3: {1, 4}, 4: {1, 4}, 5: {2, 6}, 6: {2, 6}, 7: {3, 8}, 8: {3, 8}, 9: {-1, -1}, 1<<63 - 1: {-1, -1}} {
				got := listOffset(c, version, topic, 0, ts)
				same(t, nil, got.ErrorCode)
				require.Equal(t, want, [2]int64{got.Offset, got.Timestamp}, "codec %d version %d time %d", codec, version, ts)
				if version >= 4 {
					require.Equal(t, want[0] < 0, got.LeaderEpoch < 0)
				}
			}
		}
	}
	// Stamps that go back: the first record in the order of offsets.
	topic, id := create(t, c, 1)
	same(t, nil, send(c, 9, topic, id, 0, stamped(recordbatch.None, 5, 1, 9, 3)).ErrorCode)
	for ts, want := range map[int64]int64{1: 0, 5: 0, 6: 2, 9: 2, 10: -1} {
		require.Equal(t, want, listOffset(c, 7, topic, 0, ts).Offset, "time %d", ts)
	}
	top := listOffset(c, 7, topic, 0, -3)
	require.Equal(t, [2]int64{2, 9}, [2]int64{top.Offset, top.Timestamp})
}

func lookupsOverBatches(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1, "segment.bytes=1048576", "index.interval.bytes=200")
	// Batches of 3, each second stamp of an even number; equal stamps over a seam.
	var stamps []int64
	for n := range int64(60) {
		batch := []int64{n*4 + 2, n*4 + 4, n*4 + 6}
		stamps = append(stamps, batch...)
		same(t, nil, send(c, 9, topic, id, 0, stamped(recordbatch.Codec(n%5), batch...)).ErrorCode)
	}
	check := func() {
		t.Helper()
		for ts := int64(0); ts <= 244; ts++ {
			want := int64(-1)
			for offset, s := range stamps {
				if s >= ts {
					want = int64(offset)
					break
				}
			}
			require.Equal(t, want, listOffset(c, 7, topic, 0, ts).Offset, "time %d", ts)
		}
	}
	check()
	require.EqualValues(t, 100, deleteRecords(c, 1, topic, 0, 100).LowWatermark)
	for i := range 100 {
		stamps[i] = -1 // gone
	}
	check()
}

func nothingNewEnough(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	empty, _ := create(t, c, 1)
	full, fullID := create(t, c, 1)
	same(t, nil, send(c, 9, full, fullID, 0, records("a", "b")).ErrorCode)
	gone, goneID := create(t, c, 1)
	same(t, nil, send(c, 9, gone, goneID, 0, records("a", "b")).ErrorCode)
	require.EqualValues(t, 2, deleteRecords(c, 1, gone, 0, -1).LowWatermark)
	tomorrow := time.Now().Add(24 * time.Hour).UnixMilli()
	for _, topic := range []string{empty, full, gone} {
		for version := int16(1); version <= 11; version++ {
			got := listOffset(c, version, topic, 0, tomorrow)
			same(t, nil, got.ErrorCode)
			require.Equal(t, [2]int64{-1, -1}, [2]int64{got.Offset, got.Timestamp}, "version %d", version)
			require.EqualValues(t, -1, got.LeaderEpoch)
		}
	}
	for _, topic := range []string{empty, gone} {
		got := listOffset(c, 7, topic, 0, 0)
		require.Equal(t, [2]int64{-1, -1}, [2]int64{got.Offset, got.Timestamp}, "nothing at all is there")
		if topic == gone && reference() {
			continue // Apache Kafka names a record that was deleted
		}
		got = listOffset(c, 7, topic, 0, -3)
		same(t, nil, got.ErrorCode)
		require.Equal(t, [2]int64{-1, -1}, [2]int64{got.Offset, got.Timestamp})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	offsets, err := kadm.NewClient(client(t, addr)).ListOffsetsAfterMilli(ctx, tomorrow, empty, full, gone)
	require.NoError(t, err)
	require.NoError(t, offsets.Error())
}

func partitionTwice(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 3)
	same(t, nil, send(c, 9, topic, id, 1, records("a", "b")).ErrorCode)
	codes := func(resp *kmsg.ListOffsetsResponse) map[int32]int16 {
		out := map[int32]int16{}
		for _, rt := range resp.Topics {
			for _, p := range rt.Partitions {
				out[p.Partition] = p.ErrorCode
				if p.Partition == 1 && p.ErrorCode == 0 {
					require.EqualValues(t, 2, p.Offset)
				}
				if p.ErrorCode != 0 {
					require.EqualValues(t, -1, p.Offset)
					require.EqualValues(t, -1, p.Timestamp)
				}
			}
		}
		return out
	}
	invalid := kerr.InvalidRequest.Code
	for version := int16(1); version <= 11; version++ {
		require.Equal(t, map[int32]int16{0: invalid, 1: 0}, codes(ask[*kmsg.ListOffsetsResponse](c, lookup(version, topic, at(0, -1), at(0, -1), at(1, -1)))), "version %d", version)
	}
	require.Equal(t, map[int32]int16{0: invalid, 1: 0, 2: invalid}, codes(ask[*kmsg.ListOffsetsResponse](c,
		lookup(7, topic, at(2, 5), at(0, -2), at(1, -1), at(0, -1), at(2, -1), at(2, 9)))))
	// The same in two entries of one topic.
	req := lookup(7, topic, at(0, -1), at(1, -1))
	req.Topics = append(req.Topics, lookup(7, topic, at(0, -1)).Topics...)
	require.Equal(t, map[int32]int16{0: invalid, 1: 0}, codes(ask[*kmsg.ListOffsetsResponse](c, req)))
	unknown := codes(ask[*kmsg.ListOffsetsResponse](c, lookup(7, fresh("nowhere"), at(0, -1), at(3, -1), at(4, -1), at(4, -1))))
	require.Equal(t, map[int32]int16{0: 3, 3: 3, 4: invalid}, unknown)
	require.Equal(t, map[int32]int16{0: 0, 9: 3}, codes(ask[*kmsg.ListOffsetsResponse](c, lookup(7, topic, at(0, -1), at(9, -1)))))
}

func specialTimestamps(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1)
	same(t, nil, send(c, 9, topic, id, 0, stamped(recordbatch.None, 100, 300, 200)).ErrorCode)
	same(t, nil, send(c, 9, topic, id, 0, stamped(recordbatch.Gzip, 250)).ErrorCode)
	require.EqualValues(t, 1, deleteRecords(c, 1, topic, 0, 1).LowWatermark)
	for ts, want := range map[int64][3]int64{-1: {1, 4, -1}, -2: {1, 1, -1}, -3: {7, 1, 300}, -4: {8, 1, -1}, -5: {9, -1, -1}} {
		for version := int16(want[0]); version <= 11; version++ {
			got := listOffset(c, version, topic, 0, ts)
			same(t, nil, got.ErrorCode, "version %d special %d", version, ts)
			require.Equal(t, want[1:], []int64{got.Offset, got.Timestamp}, "version %d special %d", version, ts)
		}
	}
	for version := int16(1); version <= 11; version++ {
		for _, ts := range []int64{-7, -100, -1 << 63} {
			same(t, kerr.UnsupportedVersion, listOffset(c, version, topic, 0, ts).ErrorCode, "version %d special %d", version, ts)
		}
	}
	nowhere := fresh("nowhere")
	same(t, kerr.UnsupportedVersion, listOffset(c, 7, nowhere, 0, -7).ErrorCode, "what is asked comes before where")
	same(t, kerr.UnsupportedVersion, listOffset(c, 7, topic, 9, -7).ErrorCode)
	same(t, kerr.UnsupportedVersion, listOffset(c, 6, topic, 0, -3).ErrorCode)
	same(t, kerr.UnsupportedVersion, listOffset(c, 7, topic, 0, -4).ErrorCode)
	same(t, kerr.UnsupportedVersion, listOffset(c, 8, topic, 0, -5).ErrorCode)
}

func leaderEpochs(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1)
	same(t, nil, send(c, 9, topic, id, 0, records("a", "b")).ErrorCode)
	now := metadata(c, 12, false, topic).Topics[0].Partitions[0].LeaderEpoch
	for epoch, want := range map[int32]*kerr.Error{-1: nil, now: nil, now + 1: kerr.UnknownLeaderEpoch, now + 99: kerr.UnknownLeaderEpoch} {
		p := at(0, -1)
		p.CurrentLeaderEpoch = epoch
		same(t, want, ask[*kmsg.ListOffsetsResponse](c, lookup(7, topic, p)).Topics[0].Partitions[0].ErrorCode)
		req := waiting(12, topic, id, 0, 0, 0, 1)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		same(t, want, ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions[0].ErrorCode)
		for version := int16(2); version <= 4; version++ {
			got := epochEnd(c, version, topic, 0, epoch, now)
			same(t, want, got.ErrorCode)
			if want == nil {
				require.Equal(t, int64(now), int64(got.LeaderEpoch))
				require.EqualValues(t, 2, got.EndOffset)
			}
		}
	}
	got := epochEnd(c, 4, topic, 0, -1, now+5)
	require.Equal(t, [2]int64{-1, -1}, [2]int64{int64(got.LeaderEpoch), got.EndOffset}, "an epoch from the future")
	same(t, kerr.UnknownTopicOrPartition, epochEnd(c, 4, topic, 9, -1, now).ErrorCode)
	same(t, kerr.UnknownTopicOrPartition, epochEnd(c, 4, fresh("nowhere"), 0, -1, now).ErrorCode)
}

func epochEnd(c *kit.Raw, version int16, topic string, partition, current, epoch int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = version, -1
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = partition, current, epoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.OffsetForLeaderEpochResponse](c, req).Topics[0].Partitions[0]
}
