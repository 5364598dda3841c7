package clients

import (
	"fmt"
	"strconv"
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

// compactedLog writes 100 records over five keys, lets them be compacted, and
// returns what is left, in order. With emptied some are written by idempotent
// producers, whose last batches stay without records.
func compactedLog(t *testing.T, addr, topic string, emptied bool) []record {
	t.Helper()
	raw := kit.Dial(t, addr)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 10000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, 1, 1
	for name, value := range map[string]string{"cleanup.policy": "compact", "internal.segment.bytes": "600", "min.cleanable.dirty.ratio": "0.01"} {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, &value
		rt.Configs = append(rt.Configs, c)
	}
	req.Topics = append(req.Topics, rt)
	require.NoError(t, kerr.ErrorForCode(raw.Call(req).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode))
	n := 0
	put := func(producer int64, keys ...string) {
		o := recordbatch.Options{}
		if producer >= 0 {
			o.Producer = &recordbatch.Producer{ID: cluster.ProducerID(producer)}
		}
		b := recordbatch.NewBuilder(o)
		for _, k := range keys {
			b.Add(1_700_000_000_000+int64(n), []byte(k), fmt.Appendf(nil, "value-%03d", n), recordbatch.Header{Key: "n", Value: []byte(strconv.Itoa(n))})
			n++
		}
		kit.Eventually(t, 15*time.Second, "the batch is written", func() bool {
			return raw.Call(kit.Produce(9, topic, 0, b.Build())).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode == 0
		})
	}
	for i := range 33 {
		producer := int64(-1)
		if emptied && i%4 == 0 {
			producer = int64(7000 + i)
		}
		put(producer, fmt.Sprint("k", i%5), fmt.Sprint("k", (i+1)%5), fmt.Sprint("k", (i+2)%5))
	}
	for _, k := range []string{"end-1", "end-2", "end-3", "end-4"} {
		put(-1, k, k+"x", k+"y") // so that the rest is sealed
	}
	var left []record
	kit.Eventually(t, 20*time.Second, "the log is compacted", func() bool {
		left = leftOf(t, raw, topic)
		return len(left) < 25
	})
	return left
}

func leftOf(t *testing.T, raw *kit.Raw, topic string) []record {
	t.Helper()
	var out []record
	for from := int64(0); ; {
		p := raw.Call(kit.Fetch(11, topic, 0, from, 1<<20)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		require.NoError(t, kerr.ErrorForCode(p.ErrorCode))
		if from >= p.HighWatermark {
			return out
		}
		for data := p.RecordBatches; len(data) > 0; {
			b, rest, err := recordbatch.First(data)
			require.NoError(t, err)
			for r, err := range new(recordbatch.Decoder).Records(b) {
				require.NoError(t, err)
				out = append(out, record{Offset: int64(r.Offset), Timestamp: r.Timestamp, Key: r.Key, Value: r.Value, Headers: []field{{r.Headers[0].Key, r.Headers[0].Value}}})
			}
			data, from = rest, int64(b.NextOffset())
		}
	}
}

// TestEveryClientReadsCompactedLogs is CO-03: from whatever offset a client starts,
// one that compaction removed or not, it comes to the end and gets every record
// that is left, as it was written. kafka-go takes the header of what follows a
// batch without records for a record, whoever leaves such batches; Apache Kafka does
// in the same places (integration/compaction).
func TestEveryClientReadsCompactedLogs(t *testing.T) {
	s := kit.Start(t, map[string]string{"log.cleaner.backoff.ms": "100"})
	for topic, emptied := range map[string]bool{"plain": false, "emptied": true} {
		left := compactedLog(t, s.Addr, topic, emptied)
		for _, c := range table {
			if !c.consumes && c.name != "kafkajs" || emptied && c.name == "kafka-go" {
				continue
			}
			t.Run(topic+"/"+c.name, func(t *testing.T) { readsFromEverywhere(t, c, c.start(t, s.Addr), topic, left) })
		}
		t.Run(topic+"/Java", func(t *testing.T) { javaReadsFromEverywhere(t, s.Addr, topic, left) })
	}
}

func from(left []record, offset int64) []record {
	for i, r := range left {
		if r.Offset >= offset {
			return left[i:]
		}
	}
	return nil
}

// every is how far the offsets are apart from which a client starts.
func every() int64 {
	if kit.Long() {
		return 1
	}
	return 11
}

func readsFromEverywhere(t *testing.T, c client, d driver, topic string, left []record) {
	step := every()
	if c.name == "kafkajs" { // joins a group each time
		step *= 4
	}
	for offset := int64(0); offset <= left[len(left)-1].Offset; offset += step {
		want := from(left, offset)
		got, err := d.consume(topic, 0, offset, len(want))
		require.NoError(t, err, "from %d", offset)
		require.Len(t, got, len(want), "from %d", offset)
		for i, r := range got {
			require.Equal(t, want[i].Offset, r.Offset, "from %d", offset)
			require.Equal(t, want[i].Timestamp, r.Timestamp, "from %d", offset)
			require.Equal(t, string(want[i].Key), string(r.Key), "from %d", offset)
			require.Equal(t, string(want[i].Value), string(r.Value), "from %d", offset)
			require.Equal(t, want[i].Headers, r.Headers, "from %d", offset)
		}
	}
}

func javaReadsFromEverywhere(t *testing.T, addr, topic string, left []record) {
	for offset := int64(0); offset <= left[len(left)-1].Offset; offset += 4 * every() {
		want := from(left, offset)
		out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", addr, "--topic", topic,
			"--partition", "0", "--offset", strconv.FormatInt(offset, 10), "--max-messages", strconv.Itoa(len(want)), "--timeout-ms", "20000",
			"--formatter-property", "print.offset=true", "--formatter-property", "print.key=true")
		require.Zero(t, code, "%s%s", out, errOut)
		var lines []string
		for _, r := range want {
			lines = append(lines, fmt.Sprintf("Offset:%d\t%s\t%s", r.Offset, r.Key, r.Value))
		}
		require.Equal(t, lines, strings.Split(strings.TrimSpace(out), "\n"), "from %d", offset)
	}
}
