package cost

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
	"strandline/metadata/cluster"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

// load is one kind of request, and the bounds that it must keep to.
type load struct {
	name string
	// prepare makes n requests, and on the server what they need.
	prepare func(b *bench, n int) []kmsg.Request
	check   func(t testing.TB, r kmsg.Response)
	depth   int // requests in flight
	// n requests are enough to count system calls, many to count allocations:
	// reading that counter allocates some thousands itself.
	n, many int
	// tail has a consumer on a second connection, with a fetch session, wait for
	// each record; what is counted is both requests together, and
	// the scheduler's own events, as timers are set.
	tail bool
	// allocations is the most of them a request; calls the most system calls, by
	// kind. A kind that is not named must not occur.
	allocations float64
	calls       map[string]float64
}

// slack is how many calls of a kind may happen besides, a request: a timer that
// falls into the measurement.
const slack = 0.1

var loads = []load{
	{
		name: "Produce, one record of 100 B, acks=1", prepare: produce(1, 1), check: produced, n: 2000, many: 20_000,
		allocations: 1.7, calls: map[string]float64{"read": 1, "pwrite64": 1, "write": 1},
	},
	{
		name: "the same, 5 in flight", prepare: produce(1, 1), check: produced, n: 2000, many: 20_000, depth: 5,
		allocations: 1.7, calls: map[string]float64{"read": 1, "pwrite64": 1, "write": 1},
	},
	{
		name: "Produce, one record of 100 B, acks=all, idempotent", prepare: produceIdempotent, check: produced, n: 2000, many: 20_000,
		allocations: 1.7, calls: map[string]float64{"read": 1, "pwrite64": 1, "write": 1},
	},
	{
		name: "Produce, a batch of 16 KiB, acks=1", prepare: produce(1, 150), check: produced, n: 2000, many: 20_000,
		allocations: 1.7, calls: map[string]float64{"read": 1, "pwrite64": 1, "write": 1},
	},
	{
		name: "Fetch of one batch of 1 KB", prepare: fetch(9, 1), check: fetched(1000), n: 2000, many: 20_000,
		allocations: 3.7, calls: map[string]float64{"read": 1, "pread64": 2, "write": 1},
	},
	{
		name: "Fetch of 1 MiB in batches of 16 KiB", prepare: fetch(150, 1<<20), check: fetched(900_000), n: 500, many: 2000,
		allocations: 5, calls: map[string]float64{"read": 1, "pread64": 1, "sendmsg": 2, "sendfile": 20},
	},
	{
		name: "Produce of 100 B and the Fetch that waits for it", prepare: produce(1, 1), check: produced, n: 2000, many: 20_000, tail: true,
		allocations: 12, calls: map[string]float64{"read": 2.4, "pwrite64": 1, "pread64": 1, "write": 2.4},
	},
	{
		name: "OffsetCommit of 1 offset, a group without members", prepare: commit(1), check: committed, n: 1000, many: 5000,
		allocations: 48, calls: map[string]float64{"read": 1, "pwrite64": 1, "fdatasync": 1, "pread64": 1, "write": 1},
	},
	{
		name: "OffsetCommit of 10 offsets, a group without members", prepare: commit(10), check: committed, n: 1000, many: 5000,
		allocations: 56, calls: map[string]float64{"read": 1, "pwrite64": 1, "fdatasync": 1, "pread64": 1, "write": 1},
	},
}

// bench is a server and a connection to it.
type bench struct {
	t    testing.TB
	srv  *kit.Server
	conn *kit.Raw
}

func newBench(t testing.TB) *bench {
	// No pass of a timer falls into a measurement.
	srv := kit.Start(t, map[string]string{
		"log.retention.check.interval.ms": "3600000", "remote.log.manager.task.interval.ms": "3600000", "log.flush.offset.checkpoint.interval.ms": "3600000",
		"log.flush.start.offset.checkpoint.interval.ms": "3600000",
	})
	return &bench{t: t, srv: srv, conn: kit.Dial(t, srv.Addr)}
}

// made counts topics.
var made atomic.Int64

// topic makes one of one partition and returns its name.
func (b *bench) topic() string { return b.topicOf(1) }

func (b *bench) topicOf(partitions int32) string {
	b.t.Helper()
	name := fmt.Sprintf("cost-%d", made.Add(1))
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 5, 10_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, topic)
	require.Zero(b.t, b.conn.Call(req).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	kit.Eventually(b.t, 10*time.Second, "the partition is led", func() bool {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version, req.ReplicaID = 7, -1
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = name
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp, p.CurrentLeaderEpoch = -1, -1
		topic.Partitions = append(topic.Partitions, p)
		req.Topics = append(req.Topics, topic)
		return b.conn.Call(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode == 0
	})
	return name
}

// batch makes one of records of 100 B each.
func batch(records int, o recordbatch.Options) []byte {
	builder := recordbatch.NewBuilder(o)
	for range records {
		builder.Add(time.Now().UnixMilli(), nil, make([]byte, 100))
	}
	return builder.Build()
}

// run sends requests, with up to depth of them in flight, and looks at every
// answer. A fetch goes on where the last one ended, and from the log's start
// again at its end.
func (b *bench) run(l load, requests []kmsg.Request) {
	b.t.Helper()
	var c *consumer
	if l.tail {
		c = b.consumer(requests[0].(*kmsg.ProduceRequest).Topics[0].Topic)
	}
	format, frame, sent := kmsg.NewRequestFormatter(kmsg.FormatterClientID("cost")), []byte(nil), 0
	send := func() {
		if sent == len(requests) {
			return
		}
		if c != nil {
			c.ask()
		}
		frame = format.AppendRequest(frame[:0], requests[sent], int32(sent))
		_, err := b.conn.Write(frame)
		require.NoError(b.t, err)
		sent++
	}
	for range max(l.depth, 1) {
		send()
	}
	for i, req := range requests {
		frame, err := b.conn.Frame()
		require.NoError(b.t, err)
		require.EqualValues(b.t, i, binary.BigEndian.Uint32(frame))
		resp := req.ResponseKind()
		resp.SetVersion(req.GetVersion())
		body := frame[4:]
		if resp.IsFlexible() {
			body = body[1:]
		}
		require.NoError(b.t, resp.ReadFrom(body))
		l.check(b.t, resp)
		if f, ok := resp.(*kmsg.FetchResponse); ok && sent < len(requests) {
			goOn(b.t, f, requests[sent].(*kmsg.FetchRequest))
		}
		if c != nil {
			c.receive()
		}
		send()
	}
}

// goOn has the next fetch begin where an answer ends; near the log's end at its
// start.
func goOn(t testing.TB, answer *kmsg.FetchResponse, next *kmsg.FetchRequest) {
	p := answer.Topics[0].Partitions[0]
	at := int64(0)
	for rest := p.RecordBatches; len(rest) > 0; {
		b, more, err := recordbatch.First(rest)
		require.NoError(t, err)
		at, rest = int64(b.NextOffset()), more
	}
	if q := &next.Topics[0].Partitions[0]; at < p.HighWatermark/2 {
		q.FetchOffset = at
	} else {
		q.FetchOffset = 0
	}
}

// consumer reads a topic from its end on in a fetch session, as clients do.
type consumer struct {
	t    testing.TB
	conn *kit.Raw
	req  *kmsg.FetchRequest
}

// consumer opens the session; its topic is read to the end.
func (b *bench) consumer(topic string) *consumer {
	c := &consumer{t: b.t, conn: kit.Dial(b.t, b.srv.Addr), req: kit.Fetch(12, topic, 0, 0, 1<<20)}
	ends := kmsg.NewPtrListOffsetsRequest()
	ends.Version, ends.ReplicaID = 7, -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp, rp.CurrentLeaderEpoch = -1, -1
	rt.Partitions = append(rt.Partitions, rp)
	ends.Topics = append(ends.Topics, rt)
	c.req.Topics[0].Partitions[0].FetchOffset = c.conn.Call(ends).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset
	c.req.SessionEpoch, c.req.MaxWaitMillis = 0, 0
	first := c.conn.Call(c.req).(*kmsg.FetchResponse)
	require.Zero(b.t, first.ErrorCode)
	require.NotZero(b.t, first.SessionID)
	c.req.SessionID, c.req.MaxWaitMillis = first.SessionID, 10_000
	return c
}

func (c *consumer) ask() {
	c.req.SessionEpoch++
	c.conn.Send(c.req)
}

func (c *consumer) receive() {
	resp, err := c.conn.Receive(c.req)
	require.NoError(c.t, err)
	require.Zero(c.t, resp.(*kmsg.FetchResponse).ErrorCode)
	fetched(100)(c.t, resp)
	c.req.Topics[0].Partitions[0].FetchOffset++
}

func produced(t testing.TB, r kmsg.Response) {
	p := r.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	require.Zero(t, p.ErrorCode, "%v", p.ErrorMessage)
}

func fetched(bytes int) func(testing.TB, kmsg.Response) {
	return func(t testing.TB, r kmsg.Response) {
		p := r.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		require.Zero(t, p.ErrorCode)
		require.GreaterOrEqual(t, len(p.RecordBatches), bytes)
	}
}

// produce makes requests of one batch each.
func produce(acks int16, records int) func(*bench, int) []kmsg.Request {
	return func(b *bench, n int) []kmsg.Request {
		topic, out := b.topic(), make([]kmsg.Request, n)
		for i := range out {
			req := kit.Produce(9, topic, 0, batch(records, recordbatch.Options{}))
			req.Acks = acks
			out[i] = req
		}
		return out
	}
}

// produceIdempotent makes what a client sends by default: acks=all, with a
// producer id and sequence numbers.
func produceIdempotent(b *bench, n int) []kmsg.Request {
	init := kmsg.NewPtrInitProducerIDRequest()
	init.Version = 4
	init.ProducerID, init.ProducerEpoch = -1, -1
	id := b.conn.Call(init).(*kmsg.InitProducerIDResponse)
	require.Zero(b.t, id.ErrorCode)
	topic, out := b.topic(), make([]kmsg.Request, n)
	for i := range out {
		out[i] = kit.Produce(9, topic, 0, batch(1, recordbatch.Options{Producer: &recordbatch.Producer{ID: cluster.ProducerID(id.ProducerID), Epoch: cluster.ProducerEpoch(id.ProducerEpoch), BaseSequence: int32(i)}}))
	}
	return out
}

// fetch makes requests for up to maxBytes of a log of equal batches.
func fetch(records int, maxBytes int32) func(*bench, int) []kmsg.Request {
	return func(b *bench, n int) []kmsg.Request {
		topic, out := b.topic(), make([]kmsg.Request, n)
		for range 1000 {
			produced(b.t, b.conn.Call(kit.Produce(9, topic, 0, batch(records, recordbatch.Options{}))))
		}
		for i := range out {
			out[i] = kit.Fetch(12, topic, 0, 0, maxBytes)
		}
		return out
	}
}

// commit makes requests that commit offsets of one of a hundred groups each.
func commit(offsets int) func(*bench, int) []kmsg.Request {
	return func(b *bench, n int) []kmsg.Request {
		name, out := b.topicOf(int32(offsets)), make([]kmsg.Request, n)
		for i := range out {
			req := kmsg.NewPtrOffsetCommitRequest()
			req.Version, req.Group, req.Generation = 8, fmt.Sprintf("cost-%02d", i%100), -1
			topic := kmsg.NewOffsetCommitRequestTopic()
			topic.Topic = name
			for p := range offsets {
				q := kmsg.NewOffsetCommitRequestTopicPartition()
				q.Partition, q.Offset = int32(p), int64(i)
				topic.Partitions = append(topic.Partitions, q)
			}
			req.Topics = append(req.Topics, topic)
			out[i] = req
		}
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKeys = 4, []string{"cost"}
		b.conn.Call(find) // makes the topic that offsets are kept in
		for i := range min(n, 100) {
			kit.Eventually(b.t, 10*time.Second, "the group is served", func() bool {
				return b.conn.Call(out[i]).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode == 0
			})
		}
		return out
	}
}

func committed(t testing.TB, r kmsg.Response) {
	for _, p := range r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions {
		require.Zero(t, p.ErrorCode)
	}
}

// with is the same for a subtest.
func (b *bench) with(t testing.TB) *bench {
	return &bench{t: t, srv: b.srv, conn: kit.Dial(t, b.srv.Addr)}
}
