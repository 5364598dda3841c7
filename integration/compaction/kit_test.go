package compaction

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
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

// at is a broker at an address, ours or Apache Kafka's.
type at struct {
	t    testing.TB
	addr string
}

func call[R kmsg.Response](a at, req kmsg.Request) R {
	a.t.Helper()
	c := kit.Dial(a.t, a.addr)
	defer c.Close()
	return c.Call(req).(R)
}

// create creates a topic of one partition; configs are key=value.
func (a at) create(topic string, configs ...string) {
	a.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 6, 10000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, 1, 1
	for _, kv := range configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		name, value, _ := strings.Cut(kv, "=")
		c.Name, c.Value = name, &value
		rt.Configs = append(rt.Configs, c)
	}
	req.Topics = append(req.Topics, rt)
	resp := call[*kmsg.CreateTopicsResponse](a, req).Topics[0]
	require.NoError(a.t, kerr.ErrorForCode(resp.ErrorCode), "%v", resp.ErrorMessage)
	kit.Eventually(a.t, 15*time.Second, "the topic has a leader", func() bool {
		got := call[*kmsg.FetchResponse](a, kit.Fetch(11, topic, 0, 0, 1000)).Topics
		return len(got) == 1 && got[0].Partitions[0].ErrorCode == 0
	})
}

// produce appends one batch.
func (a at) produce(c *kit.Raw, topic string, batch []byte) {
	a.t.Helper()
	resp := c.Call(kit.Produce(9, topic, 0, batch)).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	require.NoError(a.t, kerr.ErrorForCode(resp.ErrorCode), "%v", resp.ErrorMessage)
}

// batches reads everything from an offset on.
func (a at) batches(topic string, from int64) []recordbatch.Batch {
	a.t.Helper()
	c := kit.Dial(a.t, a.addr)
	defer c.Close()
	var out []recordbatch.Batch
	for end := int64(-1); ; {
		p := c.Call(kit.Fetch(11, topic, 0, from, 4<<20)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		require.NoError(a.t, kerr.ErrorForCode(p.ErrorCode))
		if end < 0 {
			end = p.HighWatermark // not what is written meanwhile: writers may be faster
		}
		if from >= end {
			return out
		}
		asked := from
		for data := p.RecordBatches; len(data) > 0; {
			b, rest, err := recordbatch.First(data)
			if err != nil {
				break // cut off by the limit
			}
			require.NoError(a.t, b.Verify())
			out = append(out, append(recordbatch.Batch(nil), b...))
			data, from = rest, int64(b.NextOffset())
		}
		require.Greater(a.t, from, asked, "a fetch in range reaches past its offset")
	}
}

// line writes down a record, all of it.
func line(r recordbatch.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d %q=%q", r.Offset, r.Timestamp, r.Key, r.Value)
	if r.Value == nil {
		b.WriteString(" deleted")
	}
	for _, h := range r.Headers {
		fmt.Fprintf(&b, " %s:%q", h.Key, h.Value)
	}
	return b.String()
}

func lines(t testing.TB, batches []recordbatch.Batch) []string {
	t.Helper()
	var out []string
	for _, b := range batches {
		for r, err := range new(recordbatch.Decoder).Records(b) {
			require.NoError(t, err)
			out = append(out, line(r))
		}
	}
	return out
}

// shape writes down what of a batch compaction must leave alone.
func shape(b recordbatch.Batch) string {
	return fmt.Sprintf("%d-%d records=%d codec=%v epoch=%d producer=%d/%d/%d horizon=%v", b.BaseOffset(), b.LastOffset(), b.RecordCount(),
		b.Compression(), b.PartitionLeaderEpoch(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.HasDeleteHorizon())
}

func shapes(batches []recordbatch.Batch) []string {
	var out []string
	for _, b := range batches {
		out = append(out, shape(b))
	}
	return out
}

// workload is random batches of records: keys that repeat, values, tombstones,
// headers, codecs, producers with and without idempotence.
type workload struct {
	rng  *rand.Rand
	keys int
	now  int64
	next [4]int32
	n    int
}

func (w *workload) batch() []byte {
	o := recordbatch.Options{}
	if w.rng.IntN(6) == 0 {
		o.Codec = recordbatch.Codec(w.rng.IntN(5))
	}
	count := 1 + w.rng.IntN(30)
	if id := w.rng.IntN(8); id < len(w.next) {
		o.Producer = &recordbatch.Producer{ID: cluster.ProducerID(5000 + id), BaseSequence: w.next[id]}
		w.next[id] += int32(count)
	}
	b := recordbatch.NewBuilder(o)
	for range count {
		w.n++
		var value []byte
		if w.rng.IntN(20) > 0 {
			value = fmt.Appendf(nil, "value-%0*d", w.rng.IntN(150), w.n)
		}
		var headers []recordbatch.Header
		for range w.rng.IntN(3) {
			headers = append(headers, recordbatch.Header{Key: fmt.Sprint("h", w.rng.IntN(3)), Value: []byte{byte(w.n)}})
		}
		b.Add(w.now+int64(w.n), fmt.Appendf(nil, "key-%d", w.rng.IntN(w.keys)), value, headers...)
	}
	return b.Build()
}
