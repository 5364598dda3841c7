package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// oldClient speaks as a client of an old Kafka: message format v0 until 0.9, v1
// with 0.10, each on its own versions of Produce and Fetch.
type oldClient struct {
	version string
	codecs  []string // that it writes
	produce func(topic, codec string, records []record) error
	consume func(topic string, count int) ([]record, error)
}

func (c oldClient) stamped() bool { return strings.HasPrefix(c.version, "0.10") }

func oldSarama(addr string, version sarama.KafkaVersion) oldClient {
	config := func() *sarama.Config {
		c := sarama.NewConfig()
		c.Version, c.ApiVersionsRequest = version, false
		c.Producer.Return.Successes, c.Producer.Retry.Max = true, 0
		c.Producer.Flush.Messages, c.Producer.Flush.Frequency = 10, 50*time.Millisecond
		c.Producer.Partitioner = sarama.NewManualPartitioner
		return c
	}
	codecs := []string{"none", "gzip", "snappy"}
	if version.IsAtLeast(sarama.V0_10_0_0) {
		codecs = append(codecs, "lz4")
	}
	return oldClient{
		version.String(), codecs,
		func(topic, codec string, records []record) error {
			c := config()
			if err := c.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
				return err
			}
			p, err := sarama.NewSyncProducer([]string{addr}, c)
			if err != nil {
				return err
			}
			defer p.Close()
			var out []*sarama.ProducerMessage
			for _, r := range records {
				m := &sarama.ProducerMessage{Topic: topic, Timestamp: time.UnixMilli(r.Timestamp)}
				if r.Key != nil {
					m.Key = sarama.ByteEncoder(r.Key)
				}
				if r.Value != nil {
					m.Value = sarama.ByteEncoder(r.Value)
				}
				out = append(out, m)
			}
			return p.SendMessages(out)
		},
		func(topic string, count int) ([]record, error) {
			return saramaDriver{[]string{addr}, config()}.consume(topic, 0, 0, count)
		},
	}
}

func oldPython(t *testing.T, addr, version string) oldClient {
	python := kit.DebianPythonKafka(t)
	codecs := []string{"none", "gzip", "snappy", "lz4"}
	// Before 0.10 it needs a module more for lz4.
	if exec.Command(python, "-c", "import xxhash").Run() != nil {
		kit.Missing(t, "python3-xxhash")
	}
	run := func(in io.Reader, args ...string) ([]byte, error) {
		cmd := exec.Command(python, append([]string{"testdata/old.py", addr, version}, args...)...)
		var errOut bytes.Buffer
		cmd.Stdin, cmd.Stderr = in, &errOut
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, errOut.String())
		}
		return out, err
	}
	type line struct {
		Offset     int64
		Timestamp  *int64
		Key, Value []byte
	}
	return oldClient{
		version, codecs,
		func(topic, codec string, records []record) error {
			var in bytes.Buffer
			for _, r := range records {
				if err := json.NewEncoder(&in).Encode(map[string]any{"timestamp": r.Timestamp, "key": r.Key, "value": r.Value}); err != nil {
					return err
				}
			}
			_, err := run(&in, "produce", topic, codec)
			return err
		},
		func(topic string, count int) ([]record, error) {
			out, err := run(nil, "consume", topic, fmt.Sprint(count))
			var all []record
			for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
				var l line
				if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
					return all, err
				}
				r := record{Offset: l.Offset, Timestamp: -1, Key: l.Key, Value: l.Value}
				if l.Timestamp != nil {
					r.Timestamp = *l.Timestamp
				}
				all = append(all, r)
			}
			return all, err
		},
	}
}

// oldPlan is ten records, among them null and empty keys and values.
func oldPlan() []record {
	var all []record
	for i := range 10 {
		r := record{Timestamp: 1700000000000 + int64(i)*1000, Value: bytes.Repeat([]byte(fmt.Sprint(i)), i*i*40)}
		switch i % 3 {
		case 1:
			r.Key = []byte(fmt.Sprint("key-", i))
		case 2:
			r.Key = []byte{}
		}
		if i == 7 {
			r.Value, r.Key = nil, []byte("gone")
		}
		all = append(all, r)
	}
	return all
}

// Clients that speak as those of Kafka 0.8 to 0.10 do write with each of their
// codecs and read what all others wrote, today's clients included, which read
// what the old ones wrote.
func TestOldClients(t *testing.T) {
	s := kit.Start(t, map[string]string{"compat.legacy.clients": "true", "log.retention.ms": "-1"})
	sarama.Logger = log.New(io.Discard, "", 0)
	newest := newFranz(t, s.Addr)
	require.NoError(t, newest.create("mixed", 1))
	require.NoError(t, newest.create("lz4", 1))
	table := map[string]oldClient{}
	for _, v := range []sarama.KafkaVersion{sarama.V0_8_2_0, sarama.V0_9_0_0, sarama.V0_10_0_0, sarama.V0_10_2_0} {
		table["sarama-"+v.String()] = oldSarama(s.Addr, v)
	}
	for _, v := range []string{"0.8.2", "0.9", "0.10.0"} {
		table["kafka-python-"+v] = oldPython(t, s.Addr, v)
	}
	plan := oldPlan()
	// By topic, whether each plan that was written has timestamps.
	stamped := map[string][]bool{}
	// lz4 has a topic of its own: sarama reads its frames only in v1 and later.
	topicOf := func(codec string) string {
		if codec == "lz4" {
			return "lz4"
		}
		return "mixed"
	}
	for _, codec := range allCodecs {
		topic := topicOf(codec)
		require.NoError(t, newest.produce(topic, codec, false, plan))
		stamped[topic] = append(stamped[topic], true)
	}
	old := 0
	for name, c := range table {
		for _, codec := range c.codecs {
			topic := topicOf(codec)
			require.NoError(t, c.produce(topic, codec, plan), "%s with %s", name, codec)
			stamped[topic] = append(stamped[topic], c.stamped())
			old += len(plan)
		}
	}
	check := func(name, topic string, got []record, err error, reads bool) {
		require.NoError(t, err, "%s read %d of %s", name, len(got), topic)
		require.Len(t, got, len(stamped[topic])*len(plan), name)
		for i, r := range got {
			want := plan[i%len(plan)]
			require.Equal(t, int64(i), r.Offset, name)
			require.True(t, bytes.Equal(want.Key, r.Key) && bytes.Equal(want.Value, r.Value), "%s at %d: %q", name, i, r.Key)
			if reads {
				ts := int64(-1)
				if stamped[topic][i/len(plan)] {
					ts = want.Timestamp
				}
				require.Equal(t, ts, r.Timestamp, "%s at %d", name, i)
			}
		}
	}
	for topic, plans := range stamped {
		got, err := newest.consume(topic, 0, 0, len(plans)*len(plan))
		check("franz-go", topic, got, err, true)
		for name, c := range table {
			python := strings.HasPrefix(name, "kafka-python")
			if topic == "lz4" && !python && !c.stamped() {
				continue
			}
			got, err := c.consume(topic, len(plans)*len(plan))
			// sarama has a time of its own for "none".
			check(name, topic, got, err, c.stamped() && python)
		}
	}
	require.EqualValues(t, old, s.Metric("strandline_converted_records_total", `kind="up"`))
}

// Without the setting an old client is refused: its connection ends.
func TestOldClientsAreOffByDefault(t *testing.T) {
	s := kit.Start(t, nil)
	sarama.Logger = log.New(io.Discard, "", 0)
	for _, v := range []sarama.KafkaVersion{sarama.V0_8_2_0, sarama.V0_10_2_0} {
		require.Error(t, oldSarama(s.Addr, v).produce("never", "none", oldPlan()))
	}
	require.Positive(t, s.Metric("strandline_connections_closed_total", `reason="unsupported"`))
	newest := newFranz(t, s.Addr)
	require.NoError(t, newest.create("t", 1))
	require.NoError(t, newest.produce("t", "none", false, oldPlan()))
}
