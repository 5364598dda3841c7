package cases

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
	"strandline/metadata/cluster"
)

func TestProduce(t *testing.T) {
	addr := broker(t)
	t.Run("PR-01 a repeated batch is answered with its offset", func(t *testing.T) { repeatedBatches(t, addr) })
	t.Run("PR-01 repeats in every version", func(t *testing.T) { repeatsInEveryVersion(t, addr) })
	t.Run("PR-01 repeats from many connections at once", func(t *testing.T) { repeatsAtOnce(t, addr) })
	t.Run("PR-01 sequences and epochs", func(t *testing.T) { sequences(t, addr) })
	t.Run("PR-05 a record without a key on a compacted topic", func(t *testing.T) { keysRequired(t, addr) })
	t.Run("PR-07 the first produce creates the topic", func(t *testing.T) { firstProduceCreates(t, addr) })
	t.Run("PR-07 names that are never created", func(t *testing.T) { neverCreated(t, addr) })
	t.Run("PR-07 internal topics", func(t *testing.T) { internalTopics(t, addr) })
	t.Run("acks", func(t *testing.T) { acknowledgements(t, addr) })
	t.Run("max.message.bytes changes at once", func(t *testing.T) { messageBytesLive(t, addr) })
	t.Run("log append time", func(t *testing.T) { logAppendTime(t, addr) })
	t.Run("timestamps out of bounds", func(t *testing.T) { timestampBounds(t, addr) })
}

// idempotent is an idempotent producer of which the test says each step.
type idempotent struct {
	id    cluster.ProducerID
	epoch cluster.ProducerEpoch
}

func newIdempotent(t *testing.T, c *kit.Raw) idempotent {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 4, 60000, -1, -1
	resp := ask[*kmsg.InitProducerIDResponse](c, req)
	same(t, nil, resp.ErrorCode)
	return idempotent{cluster.ProducerID(resp.ProducerID), cluster.ProducerEpoch(resp.ProducerEpoch)}
}

func (p idempotent) batch(sequence int32, count int) []byte {
	b := recordbatch.NewBuilder(recordbatch.Options{Producer: &recordbatch.Producer{ID: p.id, Epoch: p.epoch, BaseSequence: sequence}})
	for i := range count {
		b.Add(time.Now().UnixMilli(), nil, fmt.Append(nil, "s", int(sequence)+i))
	}
	return b.Build()
}

func repeatedBatches(t *testing.T, addr string) {
	for _, count := range []int{1, 7} {
		t.Run(fmt.Sprint(count, " records a batch"), func(t *testing.T) {
			c := kit.Dial(t, addr)
			topic, id := create(t, c, 2)
			p := newIdempotent(t, c)
			var sent [2][][]byte
			for i := range 5 {
				for part := range 2 { // each partition has its own sequence
					b := p.batch(int32(i*count), count)
					sent[part] = append(sent[part], slices.Clone(b))
					got := send(c, 9, topic, id, int32(part), b)
					same(t, nil, got.ErrorCode)
					require.EqualValues(t, i*count, got.BaseOffset)
				}
			}
			for round := range 2 {
				for i := range 5 {
					i = []int{i, 4 - i}[round] // in order and backwards
					for part := range 2 {
						got := send(c, 9, topic, id, int32(part), slices.Clone(sent[part][i]))
						same(t, nil, got.ErrorCode)
						require.EqualValues(t, i*count, got.BaseOffset)
					}
				}
			}
			require.EqualValues(t, 5*count, end(t, c, topic, 0))
			require.EqualValues(t, 5*count, end(t, c, topic, 1))
			got := send(c, 9, topic, id, 0, p.batch(int32(5*count), count))
			same(t, nil, got.ErrorCode, "the next one goes on")
			require.EqualValues(t, 5*count, got.BaseOffset)
			got = send(c, 9, topic, id, 0, slices.Clone(sent[0][0]))
			same(t, kerr.OutOfOrderSequenceNumber, got.ErrorCode, "the sixth last is not remembered")
			require.EqualValues(t, -1, got.BaseOffset)
		})
	}
}

func repeatsInEveryVersion(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1, "message.timestamp.type=LogAppendTime")
	p := newIdempotent(t, c)
	for version := int16(3); version <= 13; version++ {
		n := int32(version - 3)
		b := p.batch(n, 1)
		first := send(c, version, topic, id, 0, slices.Clone(b))
		same(t, nil, first.ErrorCode)
		require.EqualValues(t, n, first.BaseOffset)
		again := send(c, version, topic, id, 0, b)
		same(t, nil, again.ErrorCode)
		require.Equal(t, first.BaseOffset, again.BaseOffset)
		require.Positive(t, first.LogAppendTime)
		require.Equal(t, first.LogAppendTime, again.LogAppendTime)
		require.Equal(t, first.LogStartOffset, again.LogStartOffset)
	}
	require.EqualValues(t, 11, end(t, c, topic, 0))
}

func repeatsAtOnce(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1)
	p := newIdempotent(t, c)
	const callers = 8
	conns := make([]*kit.Raw, callers)
	for i := range conns {
		conns[i] = kit.Dial(t, addr)
	}
	for n := range int32(10) {
		b := p.batch(n, 1)
		var wg sync.WaitGroup
		answers := make([]kmsg.ProduceResponseTopicPartition, callers)
		for i, conn := range conns {
			wg.Go(func() { answers[i] = send(conn, 9, topic, id, 0, slices.Clone(b)) })
		}
		wg.Wait()
		for _, a := range answers {
			same(t, nil, a.ErrorCode)
			require.EqualValues(t, n, a.BaseOffset)
		}
	}
	require.EqualValues(t, 10, end(t, c, topic, 0))
}

func sequences(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1)
	p := newIdempotent(t, c)
	next := func(p idempotent, sequence int32, count int) int16 {
		return send(c, 9, topic, id, 0, p.batch(sequence, count)).ErrorCode
	}
	same(t, nil, next(p, 0, 2))
	same(t, nil, next(p, 2, 2))
	same(t, kerr.OutOfOrderSequenceNumber, next(p, 5, 1), "a gap")
	same(t, kerr.OutOfOrderSequenceNumber, next(p, 0, 4), "two batches made one")
	same(t, kerr.OutOfOrderSequenceNumber, next(p, 1, 2), "half and half")
	same(t, kerr.OutOfOrderSequenceNumber, next(p, 2, 1), "the start of one")
	same(t, nil, next(p, 4, 1))
	newer := idempotent{p.id, p.epoch + 2}
	same(t, kerr.OutOfOrderSequenceNumber, next(newer, 5, 1), "a newer epoch starts at 0")
	same(t, nil, next(newer, 0, 1))
	same(t, kerr.InvalidProducerEpoch, next(p, 5, 1), "an older epoch")
	same(t, nil, next(newer, 1, 1))
	other := newIdempotent(t, c)
	require.NotEqual(t, p.id, other.id)
	same(t, nil, next(other, 4711, 3), "one that is not known may be anywhere")
	same(t, nil, next(other, 4714, 1))
	wrap := newIdempotent(t, c)
	same(t, nil, next(wrap, 1<<31-3, 2))
	same(t, nil, next(wrap, 1<<31-1, 3), "over the end of the numbers")
	same(t, nil, next(wrap, 2, 1))
	require.EqualValues(t, 17, end(t, c, topic, 0))
}

func TestProducersAfterRestart(t *testing.T) {
	s := own(t, nil)
	c := kit.Dial(t, s.Addr)
	topic, id := create(t, c, 1)
	p := newIdempotent(t, c)
	var sent [][]byte
	for i := range int32(5) {
		b := p.batch(i, 1)
		sent = append(sent, slices.Clone(b))
		same(t, nil, send(c, 9, topic, id, 0, b).ErrorCode)
	}
	for _, kill := range []bool{true, false} {
		s.Restart(kill)
		c = kit.Dial(t, s.Addr)
		for i, b := range sent {
			got := send(c, 9, topic, id, 0, slices.Clone(b))
			same(t, nil, got.ErrorCode, "PR-01 batch %d, kill %v", i, kill)
			require.EqualValues(t, i, got.BaseOffset)
		}
		require.EqualValues(t, 5, end(t, c, topic, 0))
		require.NotEqual(t, p.id, newIdempotent(t, c).id, "an id is given once")
	}
}

func TestProducerThatWasIdleForLong(t *testing.T) {
	s := own(t, map[string]string{"producer.id.expiration.ms": "300", "producer.id.expiration.check.interval.ms": "100"})
	c := kit.Dial(t, s.Addr)
	topic, id := create(t, c, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cl := client(t, s.Addr, kgo.DefaultProduceTopic(topic))
	for range 7 {
		require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Value: []byte("early")}).FirstErr())
	}
	raw := newIdempotent(t, c)
	first := raw.batch(0, 1)
	same(t, nil, send(c, 9, topic, id, 0, slices.Clone(first)).ErrorCode)
	idle := time.NewTimer(1500 * time.Millisecond)
	defer idle.Stop()
	<-idle.C
	for range 8 {
		require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Value: []byte("late")}).FirstErr(), "PR-03")
	}
	same(t, nil, send(c, 9, topic, id, 0, raw.batch(1, 1)).ErrorCode, "PR-03 the next sequence of a producer that was forgotten")
	same(t, kerr.OutOfOrderSequenceNumber, send(c, 9, topic, id, 0, first).ErrorCode, "it had been forgotten")
	got := values(t, fetchOne(c, topic, 0, 0).RecordBatches)
	require.Equal(t, append(append(slices.Repeat([]string{"early"}, 7), "s0"), append(slices.Repeat([]string{"late"}, 8), "s1")...), got)
}

// keyed builds a batch of records with keys; "-" is null.
func keyed(codec recordbatch.Codec, keys ...string) []byte {
	b := recordbatch.NewBuilder(recordbatch.Options{Codec: codec})
	for _, k := range keys {
		key := []byte(k)
		if k == "-" {
			key = nil
		}
		b.Add(time.Now().UnixMilli(), key, []byte("v"))
	}
	return b.Build()
}

func keysRequired(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1, "cleanup.policy=compact")
	for version := int16(3); version <= 13; version++ {
		got := send(c, version, topic, id, 0, keyed(recordbatch.None, "k1", "-", "k2"))
		same(t, kerr.InvalidRecord, got.ErrorCode, "version %d", version)
		require.EqualValues(t, -1, got.BaseOffset)
		if version >= 8 {
			require.Len(t, got.ErrorRecords, 1)
			require.EqualValues(t, 1, got.ErrorRecords[0].RelativeOffset)
			require.NotNil(t, got.ErrorRecords[0].ErrorMessage)
			require.NotNil(t, got.ErrorMessage)
		}
	}
	for _, codec := range []recordbatch.Codec{recordbatch.Gzip, recordbatch.Snappy, recordbatch.LZ4, recordbatch.Zstd} {
		got := send(c, 9, topic, id, 0, keyed(codec, "-", "k1", "-", "k2", "-"))
		same(t, kerr.InvalidRecord, got.ErrorCode, "codec %d", codec)
		var at []int32
		for _, r := range got.ErrorRecords {
			at = append(at, r.RelativeOffset)
		}
		require.Equal(t, []int32{0, 2, 4}, at, "codec %d", codec)
	}
	require.Zero(t, end(t, c, topic, 0), "nothing was appended")
	same(t, nil, send(c, 9, topic, id, 0, keyed(recordbatch.Zstd, "k1", "", "k2")).ErrorCode, "an empty key is a key")
	require.EqualValues(t, 3, end(t, c, topic, 0))

	both, bothID := create(t, c, 1, "cleanup.policy=compact,delete")
	same(t, kerr.InvalidRecord, send(c, 9, both, bothID, 0, keyed(recordbatch.None, "-")).ErrorCode)
	plain, plainID := create(t, c, 1)
	same(t, nil, send(c, 9, plain, plainID, 0, keyed(recordbatch.None, "-")).ErrorCode)
	// Each partition of a request is on its own.
	req := kit.Produce(9, topic, 0, keyed(recordbatch.None, "-"))
	req.Topics = append(req.Topics, kit.Produce(9, plain, 0, keyed(recordbatch.None, "-")).Topics...)
	for _, rt := range ask[*kmsg.ProduceResponse](c, req).Topics {
		want := kerr.InvalidRecord
		if rt.Topic == plain {
			want = nil
		}
		same(t, want, rt.Partitions[0].ErrorCode)
	}
	same(t, nil, alter(c, plain, set("cleanup.policy", "compact")).ErrorCode)
	kit.Eventually(t, 10*time.Second, "the new policy asks for keys", func() bool {
		return send(c, 9, plain, plainID, 0, keyed(recordbatch.None, "-")).ErrorCode == kerr.InvalidRecord.Code
	})
}

func firstProduceCreates(t *testing.T, addr string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c := kit.Dial(t, addr)
	one := func(t *testing.T, topic string) {
		t.Helper()
		require.Equal(t, []string{"hello"}, values(t, fetchOne(c, topic, 0, 0).RecordBatches))
	}
	runs := 5
	if kit.Long() {
		runs = 50
	}
	t.Run("franz-go", func(t *testing.T) {
		for range runs {
			topic := fresh("auto")
			cl := client(t, addr, kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic(topic))
			require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Value: []byte("hello")}).FirstErr())
			one(t, topic)
		}
	})
	t.Run("kcat", func(t *testing.T) {
		for range runs {
			topic := fresh("auto")
			_, errOut, code := kit.Kcat(t, "hello\n", "-P", "-b", addr, "-t", topic)
			require.Zero(t, code, errOut)
			one(t, topic)
		}
	})
	t.Run("kafka-python", func(t *testing.T) {
		const script = `
import sys
from kafka import KafkaProducer
p = KafkaProducer(bootstrap_servers=sys.argv[1])
for topic in sys.argv[2:]:
    p.send(topic, b"hello").get(timeout=20)
`
		names := make([]string, runs)
		for i := range names {
			names[i] = fresh("auto")
		}
		_, errOut, code := kit.PythonKafka(t, script, append([]string{addr}, names...)...)
		require.Zero(t, code, errOut)
		for _, topic := range names {
			one(t, topic)
		}
	})
	t.Run("many clients at once", func(t *testing.T) {
		topic := fresh("auto")
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			cl := client(t, addr, kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic(topic))
			wg.Go(func() { errs[i] = cl.ProduceSync(ctx, &kgo.Record{Value: []byte("hello")}).FirstErr() })
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.EqualValues(t, len(errs), end(t, c, topic, 0))
	})
	t.Run("many topics in one request", func(t *testing.T) {
		names := make([]string, 20)
		for i := range names {
			names[i] = fresh("auto")
		}
		kit.Eventually(t, 20*time.Second, "all have a leader", func() bool {
			ready := 0
			for _, m := range metadata(c, 12, true, names...).Topics {
				require.Contains(t, []int16{0, kerr.UnknownTopicOrPartition.Code, kerr.LeaderNotAvailable.Code}, m.ErrorCode, "only what can be tried again")
				if m.ErrorCode == 0 && len(m.Partitions) == 1 && m.Partitions[0].Leader >= 0 {
					ready++
				}
			}
			return ready == len(names)
		})
	})
	t.Run("versions without the choice", func(t *testing.T) {
		for version := range int16(4) {
			topic := fresh("auto")
			kit.Eventually(t, 20*time.Second, "it is created", func() bool { return metadata(c, version, false, topic).Topics[0].ErrorCode == 0 })
		}
	})
	t.Run("a produce does not create", func(t *testing.T) {
		topic := fresh("auto")
		same(t, kerr.UnknownTopicOrPartition, send(c, 9, topic, [16]byte{}, 0, records("x")).ErrorCode)
		same(t, kerr.UnknownTopicID, send(c, 13, "", [16]byte{9, 9}, 0, records("x")).ErrorCode)
		same(t, kerr.UnknownTopicOrPartition, metadata(c, 12, false, topic).Topics[0].ErrorCode)
	})
}

// metadata asks for topics by name.
func metadata(c *kit.Raw, version int16, create bool, names ...string) *kmsg.MetadataResponse {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = version, create
	for _, n := range names {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &n
		req.Topics = append(req.Topics, rt)
	}
	return ask[*kmsg.MetadataResponse](c, req)
}

func neverCreated(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	long := string(slices.Repeat([]byte("x"), 250))
	for _, name := range []string{"", ".", "..", "a b", "a/b", "naïve", "a:b", "a,b", "tab\t", long} {
		for version := range int16(14) {
			got := metadata(c, version, true, name).Topics
			require.Len(t, got, 1)
			same(t, kerr.InvalidTopicException, got[0].ErrorCode, "%q version %d", name, version)
			require.Equal(t, name, *got[0].Topic)
			require.Empty(t, got[0].Partitions)
		}
	}
	longest := long[:249-30] + fresh("-")
	if len(longest) > 249 {
		longest = longest[:249]
	}
	kit.Eventually(t, 10*time.Second, "a long name is created", func() bool { return metadata(c, 9, true, longest).Topics[0].ErrorCode == 0 })
	dot := fresh("a.b")
	kit.Eventually(t, 10*time.Second, "a name with a dot is created", func() bool { return metadata(c, 9, true, dot).Topics[0].ErrorCode == 0 })
}

func internalTopics(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	const name = "__consumer_offsets"
	for range 3 {
		got := metadata(c, 12, true, name).Topics[0]
		require.True(t, got.IsInternal)
		if !reference() {
			same(t, kerr.UnknownTopicOrPartition, got.ErrorCode, "nobody makes it with the defaults of other topics")
		}
	}
	if !reference() {
		require.Empty(t, metadata(c, 12, false, name).Topics[0].Partitions)
		same(t, nil, createTopics(c, 7, false, newTopic(name, 1))[0].ErrorCode)
	}
	kit.Eventually(t, 10*time.Second, "the topic can be read", func() bool { return listOffset(c, 7, name, 0, -1).ErrorCode == 0 })
	for version := int16(3); version <= 12; version++ {
		got := send(c, version, name, [16]byte{}, 0, records("x"))
		same(t, kerr.InvalidTopicException, got.ErrorCode, "only brokers write it")
		require.EqualValues(t, -1, got.BaseOffset)
	}
	got := deleteRecords(c, 1, name, 0, 0)
	same(t, kerr.InvalidTopicException, got.ErrorCode)
	require.EqualValues(t, -1, got.LowWatermark)
	require.Zero(t, end(t, c, name, 0))
	same(t, nil, deleteTopics(c, 6, named(name))[0].ErrorCode)
}

// sendNow writes a produce request that is not answered.
func sendNow(c *kit.Raw, topic string, batch []byte) {
	req := kit.Produce(9, topic, 0, batch)
	req.Acks = 0
	c.Send(req)
}

func acknowledgements(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, _ := create(t, c, 2)
	with := func(acks int16, timeout int32) kmsg.ProduceResponseTopicPartition {
		req := kit.Produce(9, topic, 0, records("x"))
		req.Acks, req.TimeoutMillis = acks, timeout
		return ask[*kmsg.ProduceResponse](c, req).Topics[0].Partitions[0]
	}
	for _, acks := range []int16{1, -1} {
		for _, timeout := range []int32{0, 1, 30000, -1, 1<<31 - 1} {
			same(t, nil, with(acks, timeout).ErrorCode, "acks %d timeout %d", acks, timeout)
		}
	}
	for _, acks := range []int16{2, -2, 127} {
		same(t, kerr.InvalidRequiredAcks, with(acks, 1000).ErrorCode, "acks %d", acks)
	}
	before := end(t, c, topic, 0)
	require.EqualValues(t, 10, before)
	sendNow(c, topic, records("silent"))
	sendNow(c, topic, records("silent"))
	require.EqualValues(t, before+2, end(t, c, topic, 0), "the next answer is of the next request that has one")

	quiet := kit.Dial(t, addr)
	sendNow(quiet, fresh("nowhere"), records("x"))
	require.True(t, quiet.Closed(), "an error has no other way to be told")
}

func messageBytesLive(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1)
	produce := func(n int) int16 { return send(c, 9, topic, id, 0, records(string(make([]byte, n)))).ErrorCode }
	until := func(what string, n int, want int16) {
		t.Helper()
		kit.Eventually(t, 10*time.Second, what, func() bool { return produce(n) == want })
	}
	same(t, nil, produce(10_000))
	same(t, kerr.MessageTooLarge, produce(1_100_000))
	same(t, nil, alter(c, topic, set("max.message.bytes", "2000")).ErrorCode)
	until("the lower limit refuses", 10_000, kerr.MessageTooLarge.Code)
	same(t, nil, produce(1800))
	same(t, nil, alter(c, topic, set("max.message.bytes", "3000000")).ErrorCode)
	until("the higher limit allows", 2_000_000, 0)
	same(t, nil, alter(c, topic, remove("max.message.bytes")).ErrorCode)
	until("the default is back", 1_100_000, kerr.MessageTooLarge.Code)
	same(t, nil, alter(c, topic, set("max.message.bytes", "0")).ErrorCode)
	until("nothing is small enough", 1, kerr.MessageTooLarge.Code)
	// What was stored under another limit stays readable.
	last := end(t, c, topic, 0)
	for offset := int64(0); offset < last; {
		got := fetchOne(c, topic, 0, offset)
		same(t, nil, got.ErrorCode)
		n := len(values(t, whole(got.RecordBatches)))
		require.Positive(t, n)
		offset += int64(n)
	}
}

// whole cuts what follows the last whole batch.
func whole(b []byte) []byte {
	for at := 0; ; {
		_, rest, err := recordbatch.First(b[at:])
		if err != nil {
			return b[:at]
		}
		at = len(b) - len(rest)
	}
}

func logAppendTime(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1, "message.timestamp.type=LogAppendTime")
	stamped := func(codec recordbatch.Codec, stamps ...int64) []byte {
		b := recordbatch.NewBuilder(recordbatch.Options{Codec: codec})
		for _, s := range stamps {
			b.Add(s, nil, []byte("v"))
		}
		return b.Build()
	}
	for i, codec := range []recordbatch.Codec{recordbatch.None, recordbatch.Gzip, recordbatch.Snappy, recordbatch.LZ4, recordbatch.Zstd} {
		before := time.Now().UnixMilli()
		got := send(c, 9, topic, id, 0, stamped(codec, 1, 2, 3, 4, 5))
		same(t, nil, got.ErrorCode)
		require.GreaterOrEqual(t, got.LogAppendTime, before)
		first := int64(i * 5)
		require.Equal(t, first, got.BaseOffset)
		batch, _, err := recordbatch.First(fetchOne(c, topic, 0, first).RecordBatches)
		require.NoError(t, err)
		require.NoError(t, batch.Verify())
		require.True(t, batch.LogAppendTime())
		require.Equal(t, got.LogAppendTime, batch.MaxTimestamp())
		for _, ts := range []int64{got.LogAppendTime} {
			found := listOffset(c, 7, topic, 0, ts)
			require.LessOrEqual(t, found.Offset, first)
			require.Zero(t, found.Offset%5, "FE-11 the first offset of a batch")
			require.Equal(t, ts, found.Timestamp)
		}
		found := listOffset(c, 7, topic, 0, got.LogAppendTime+1)
		require.EqualValues(t, -1, found.Offset)
		require.EqualValues(t, -1, found.Timestamp)
	}
	require.Zero(t, listOffset(c, 7, topic, 0, 3).Offset)
	same(t, nil, alter(c, topic, set("message.timestamp.type", "CreateTime")).ErrorCode)
	kit.Eventually(t, 10*time.Second, "create time is kept", func() bool {
		return send(c, 9, topic, id, 0, stamped(recordbatch.None, time.Now().UnixMilli())).LogAppendTime == -1
	})
}

func timestampBounds(t *testing.T, addr string) {
	c := kit.Dial(t, addr)
	topic, id := create(t, c, 1, "message.timestamp.before.max.ms=60000", "message.timestamp.after.max.ms=60000")
	now := time.Now().UnixMilli()
	for name, tc := range map[string]struct {
		stamps []int64
		want   *kerr.Error
		at     []int32
	}{
		"near":        {[]int64{now, now - 30_000, now + 30_000}, nil, nil},
		"too early":   {[]int64{now, now - 90_000}, kerr.InvalidTimestamp, []int32{1}},
		"too late":    {[]int64{now + 90_000, now}, kerr.InvalidTimestamp, []int32{0}},
		"both":        {[]int64{now + 90_000, now, now - 90_000}, kerr.InvalidTimestamp, []int32{0, 2}},
		"none at all": {[]int64{-1}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := recordbatch.NewBuilder(recordbatch.Options{})
			for _, s := range tc.stamps {
				b.Add(s, nil, []byte("v"))
			}
			got := send(c, 9, topic, id, 0, b.Build())
			same(t, tc.want, got.ErrorCode)
			var at []int32
			for _, r := range got.ErrorRecords {
				at = append(at, r.RelativeOffset)
			}
			require.Equal(t, tc.at, at)
		})
	}
}

// RP-07: on one replica more than one in sync cannot be asked for.
func TestMoreInSyncReplicasThanReplicas(t *testing.T) {
	s := own(t, map[string]string{"min.insync.replicas": "2"})
	c := kit.Dial(t, s.Addr)
	topic, id := create(t, c, 2)
	higher, higherID := create(t, c, 1, "min.insync.replicas=3")
	for version := int16(3); version <= 13; version++ {
		same(t, nil, send(c, version, topic, id, 1, records("x")).ErrorCode, "RP-07 version %d", version)
		same(t, nil, send(c, version, higher, higherID, 0, records("x")).ErrorCode, "RP-07 version %d", version)
	}
	same(t, nil, alter(c, topic, set("min.insync.replicas", "5")).ErrorCode)
	same(t, nil, send(c, 9, topic, id, 0, records("x")).ErrorCode)
	require.EqualValues(t, 11, end(t, c, topic, 1), "the high watermark moves")
	s.Restart(true)
	c = kit.Dial(t, s.Addr)
	same(t, nil, send(c, 9, topic, id, 0, records("x")).ErrorCode)
	require.EqualValues(t, 2, end(t, c, topic, 0))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, client(t, s.Addr, kgo.DefaultProduceTopic(higher)).ProduceSync(ctx, &kgo.Record{Value: []byte("x")}).FirstErr())
}
