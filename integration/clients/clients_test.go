package clients

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	if beMember() {
		return
	}
	flag.Parse()
	// Groups wait for timeouts most of the time.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

// record is one record of a plan, or one that was read: null is told from empty.
type record struct {
	Partition  int32   `json:"partition"`
	Offset     int64   `json:"offset"`
	Timestamp  int64   `json:"timestamp"`
	Key, Value []byte  `json:"-"`
	Headers    []field `json:"-"`
}

type field struct {
	Name  string
	Value []byte
}

// driver is one client. What it cannot do it answers with an error; the table
// says what it can.
type driver interface {
	produce(topic, codec string, idempotent bool, records []record) error
	// consume reads count records of a partition from an offset on, in a group
	// of nobody.
	consume(topic string, partition int32, offset int64, count int) ([]record, error)
	// offsets looks up a partition's first and next offset and the first one
	// that is not older than a timestamp; -1 is none.
	offsets(topic string, partition int32, timestamp int64) (earliest, latest, at int64, err error)
	create(topic string, partitions int32) error
	describe(topic string) (partitions int, err error)
	remove(topic string) error
}

var allCodecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// client is a row of the table.
type client struct {
	name  string
	start func(t *testing.T, addr string) driver
	// fit leaves what the client can express; nil: everything.
	fit                                  func([]record) []record
	idempotent, consumes, admin, offsets bool
	// blurs tells that it cannot tell an empty key, value or header from null.
	blurs bool
}

var table = []client{
	{name: "franz-go", start: newFranz, idempotent: true, consumes: true, admin: true, offsets: true},
	{name: "sarama", start: newSarama, idempotent: true, consumes: true, admin: true, offsets: true},
	{name: "kafka-go", start: newKafkaGo, blurs: true, consumes: true, admin: true, offsets: true},
	{name: "confluent-kafka", start: python("confluent"), idempotent: true, consumes: true, admin: true, offsets: true},
	{name: "kafka-python", start: python("kafka-python"), fit: pythonic, idempotent: true, consumes: true, admin: true, offsets: true},
	{name: "kafka-python of Debian", start: debianPython, fit: pythonic, consumes: true, admin: true, offsets: true},
	{name: "aiokafka", start: python("aiokafka"), fit: pythonic, idempotent: true, consumes: true, admin: true, offsets: true},
	{name: "kafkajs", start: kafkajs, fit: noNullHeaders, idempotent: true, admin: true, offsets: true}, // it consumes in groups only: groups_test.go
	{name: "kcat of Debian", start: newKcat, fit: text, idempotent: true, consumes: true, offsets: true},
}

// TestEveryClientWithEveryCodec lets every client write with every codec that it
// has, idempotently too where it can, and every client that consumes without a
// group read what all of them wrote. Batches must lie in the log with the codec
// and the producer that were asked for.
func TestEveryClientWithEveryCodec(t *testing.T) {
	s := kit.Start(t, nil)
	raw := kit.Dial(t, s.Addr)
	for _, codec := range allCodecs {
		createTopic(t, raw, codec)
	}
	written := map[string][]record{}
	for _, c := range table {
		t.Run(c.name+" produces", func(t *testing.T) {
			d := c.start(t, s.Addr)
			for _, codec := range allCodecs {
				t.Run(codec, func(t *testing.T) { produces(t, raw, c, d, codec, written) })
			}
		})
	}
	for _, c := range table {
		if !c.consumes {
			continue
		}
		t.Run(c.name+" consumes", func(t *testing.T) {
			d := c.start(t, s.Addr)
			for _, codec := range allCodecs {
				t.Run(codec, func(t *testing.T) { consumes(t, d, codec, written[codec], c.blurs) })
			}
		})
	}
}

func createTopic(t *testing.T, raw *kit.Raw, name string) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 10000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 2, 1
	req.Topics = append(req.Topics, rt)
	require.NoError(t, kerr.ErrorForCode(raw.Call(req).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode))
}

func produces(t *testing.T, raw *kit.Raw, c client, d driver, codec string, written map[string][]record) {
	runs := []bool{false}
	if c.idempotent {
		runs = append(runs, true)
	}
	for _, idempotent := range runs {
		plan := planOf(c.name)
		if c.fit != nil {
			plan = c.fit(plan)
		}
		require.Greater(t, len(plan), 20)
		before := int64(len(written[codec]))
		started := time.Now().UnixMilli()
		require.NoError(t, d.produce(codec, codec, idempotent, plan))
		arrived, batches := stored(t, raw, codec, before)
		seen := map[string]bool{}
		for _, b := range batches {
			seen[b.Compression().String()] = true
			require.Equal(t, idempotent, b.HasProducerID())
		}
		require.True(t, seen[codec], "%v", seen)
		delete(seen, codec)
		delete(seen, "none") // librdkafka leaves a batch alone that would not become smaller
		require.Empty(t, seen)
		require.Equal(t, len(plan), len(arrived))
		for i := range plan {
			plan[i].Offset = before + int64(i)
			if plan[i].Timestamp == 0 { // left to the client
				require.GreaterOrEqual(t, arrived[i].Timestamp, started)
				plan[i].Timestamp = arrived[i].Timestamp
			}
		}
		equal(t, plan, arrived)
		written[codec] = append(written[codec], plan...)
	}
}

// stored reads the batches of partition 1 from an offset on as they lie there.
func stored(t *testing.T, raw *kit.Raw, topic string, from int64) (records []record, batches []recordbatch.Batch) {
	t.Helper()
	d := recordbatch.NewDecoder(0)
	for {
		got := raw.Call(kit.Fetch(12, topic, 1, from, 32<<20)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		require.NoError(t, kerr.ErrorForCode(got.ErrorCode))
		for rest := got.RecordBatches; len(rest) > 0; {
			b, after, err := recordbatch.First(rest)
			require.NoError(t, err)
			for r, err := range d.Records(b) {
				require.NoError(t, err)
				out := record{Partition: 1, Offset: int64(r.Offset), Timestamp: r.Timestamp, Key: clone(r.Key), Value: clone(r.Value)}
				for _, h := range r.Headers {
					out.Headers = append(out.Headers, field{h.Key, clone(h.Value)})
				}
				records = append(records, out)
			}
			batches, rest, from = append(batches, b), after, int64(b.NextOffset())
		}
		if from >= got.HighWatermark {
			return records, batches
		}
	}
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

func consumes(t *testing.T, d driver, topic string, want []record, blurs bool) {
	require.Greater(t, len(want), 100, "all have written")
	for _, from := range []int{0, len(want) / 2} {
		got, err := d.consume(topic, 1, int64(from), len(want)-from)
		require.NoError(t, err)
		require.Equal(t, len(want)-from, len(got))
		for i := range got {
			got[i].Partition = 1
			if blurs {
				w := want[from+i]
				got[i].Key, got[i].Value = sharpened(got[i].Key, w.Key), sharpened(got[i].Value, w.Value)
				for j := range min(len(w.Headers), len(got[i].Headers)) {
					got[i].Headers[j].Value = sharpened(got[i].Headers[j].Value, w.Headers[j].Value)
				}
			}
		}
		equal(t, want[from:], got)
	}
}

// sharpened is got, or the wanted one of null and empty where got is either.
func sharpened(got, want []byte) []byte {
	if len(got) == 0 && len(want) == 0 {
		return want
	}
	return got
}

// equal compares records and says only what differs: some are large.
func equal(t *testing.T, want, got []record) {
	t.Helper()
	for i := range want {
		w, g := want[i], got[i]
		same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
		require.Equal(t, [3]int64{int64(w.Partition), w.Offset, w.Timestamp}, [3]int64{int64(g.Partition), g.Offset, g.Timestamp})
		require.True(t, same(w.Key, g.Key), "key of %d: %.40q, want %.40q", w.Offset, g.Key, w.Key)
		require.True(t, same(w.Value, g.Value), "value of %d: %.40q, want %.40q (null %t %t)", w.Offset, g.Value, w.Value, g.Value == nil, w.Value == nil)
		require.True(t, slices.EqualFunc(w.Headers, g.Headers, func(a, b field) bool { return a.Name == b.Name && same(a.Value, b.Value) }),
			"headers of %d: %q, want %q", w.Offset, g.Headers, w.Headers)
	}
}

// planOf is what a client writes to partition 1: nulls, empties, headers that
// are there twice, bytes that are no text, one record that is large.
func planOf(name string) []record {
	now := time.Now().Add(-time.Minute).UnixMilli()
	noise := make([]byte, 3000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	plan := []record{
		{Key: nil, Value: nil},
		{Key: nil, Value: []byte("no key")},
		{Key: []byte("a tombstone"), Value: nil},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte{0, 0xff, 0xfe, '\n'}, Value: noise, Headers: []field{{"bytes", []byte{0xff, 0xfe, 1}}}},
		{Key: []byte("schlüssel"), Value: []byte("wärt ✓"), Headers: []field{{"twice", []byte("1")}, {"twice", []byte("2")}}},
		{Key: []byte("h"), Value: []byte("h"), Headers: []field{{"empty", []byte{}}, {"null", nil}}},
		{Key: []byte("large"), Value: bytes.Repeat([]byte("shore and sea, "), 10000)},
	}
	for i := range 24 {
		plan = append(plan, record{Key: fmt.Appendf(nil, "%s %d", name, i), Value: bytes.Repeat(fmt.Appendf(nil, "%s writes %d. ", name, i), 1+i)})
	}
	for i := range plan {
		plan[i].Partition, plan[i].Timestamp = 1, now+int64(i)
	}
	return plan
}

func noNullHeaders(plan []record) []record {
	return slices.DeleteFunc(plan, func(r record) bool {
		return slices.ContainsFunc(r.Headers, func(f field) bool { return f.Value == nil })
	})
}

// pythonic leaves records with a key or a value, without null headers.
func pythonic(plan []record) []record {
	return slices.DeleteFunc(noNullHeaders(plan), func(r record) bool { return r.Key == nil && r.Value == nil })
}

// text leaves what kcat can say on its standard input: an empty key or value is
// null, separators are not in the text, headers and timestamps are not a
// record's own.
func text(plan []record) []record {
	plan = slices.DeleteFunc(plan, func(r record) bool {
		both := append(slices.Clone(r.Key), r.Value...)
		return bytes.ContainsAny(both, kcatSeparators) || r.Key != nil && len(r.Key) == 0
	})
	for i := range plan {
		plan[i].Timestamp, plan[i].Headers = 0, kcatHeaders
	}
	return plan
}

// TestEveryClientLooksOffsetsUp asks for the first, the next and a time's offset
// of a partition whose beginning is deleted.
func TestEveryClientLooksOffsetsUp(t *testing.T) {
	s := kit.Start(t, nil)
	raw := kit.Dial(t, s.Addr)
	createTopic(t, raw, "times")
	first := time.Now().Add(-time.Hour).UnixMilli()
	b := recordbatch.NewBuilder(recordbatch.Options{})
	for i := range int64(100) {
		b.Add(first+10*i, nil, []byte("x"))
	}
	answer := raw.Call(kit.Produce(9, "times", 1, b.Build())).(*kmsg.ProduceResponse)
	require.NoError(t, kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode))
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = 2, 10000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "times", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 1, Offset: 30}}}}
	deleted := raw.Call(req).(*kmsg.DeleteRecordsResponse)
	require.EqualValues(t, 30, deleted.Topics[0].Partitions[0].LowWatermark)
	for _, c := range table {
		if !c.offsets {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			d := c.start(t, s.Addr)
			for timestamp, want := range map[int64]int64{first: 30, first + 305: 31, first + 500: 50, first + 990: 99} {
				earliest, latest, at, err := d.offsets("times", 1, timestamp)
				require.NoError(t, err)
				require.Equal(t, [3]int64{30, 100, want}, [3]int64{earliest, latest, at}, "%d", timestamp-first)
			}
			_, _, at, err := d.offsets("times", 1, first+991)
			require.NoError(t, err)
			require.Contains(t, []int64{-1, 100}, at, "no record is that young: none, or the end")
		})
	}
}

// TestEveryClientAdministersTopics creates, describes and deletes a topic.
func TestEveryClientAdministersTopics(t *testing.T) {
	s := kit.Start(t, nil)
	raw := kit.Dial(t, s.Addr)
	partitions := func(name string) int {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 9
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		return len(raw.Call(req).(*kmsg.MetadataResponse).Topics[0].Partitions)
	}
	for i, c := range table {
		if !c.admin {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			d, name := c.start(t, s.Addr), fmt.Sprint("made-", i)
			require.NoError(t, d.create(name, 3))
			require.Equal(t, 3, partitions(name))
			require.Error(t, d.create(name, 3), "it is there already")
			got, err := d.describe(name)
			require.NoError(t, err)
			require.Equal(t, 3, got)
			require.NoError(t, d.remove(name))
			require.Zero(t, partitions(name))
		})
	}
}
