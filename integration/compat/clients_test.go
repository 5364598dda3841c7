package compat

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// numbered returns lines that tell their place.
func numbered(name string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s %d %s\n", name, i, strings.Repeat("shore ", i%7))
	}
	return b.String()
}

func kcat(t *testing.T, s *kit.Server, stdin string, args ...string) string {
	t.Helper()
	out, errOut, code := kit.Kcat(t, stdin, append([]string{"-b", s.Addr}, args...)...)
	require.Zero(t, code, "kcat %v\n%s", args, errOut)
	return out
}

// dumpedBatches is what `segment dump` says of a file's batches.
func dumpedBatches(t *testing.T, s *kit.Server, file string) []string {
	t.Helper()
	out, errOut, code := s.CLI("", "segment", "dump", "--deep", file)
	require.Zero(t, code, errOut)
	var batches []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "baseOffset:") {
			batches = append(batches, strings.TrimSpace(line))
		}
	}
	return batches
}

// Every codec of kcat goes in and out unchanged, and lies on the disk as it came.
// lz4 is missing: librdkafka ties it to an API that is not served yet.
func TestKcatCodecs(t *testing.T) {
	s := kit.Start(t, nil)
	for _, codec := range []string{"none", "gzip", "snappy", "zstd"} {
		want := numbered(codec, 500)
		kcat(t, s, want, "-P", "-t", codec, "-p", "0", "-z", codec)
		require.Equal(t, sha256.Sum256([]byte(want)), sha256.Sum256([]byte(kcat(t, s, "", "-C", "-t", codec, "-e", "-q"))), codec)
		// librdkafka leaves a batch alone that compression would not make smaller.
		found := map[string]bool{}
		for _, line := range dumpedBatches(t, s, filepath.Join(s.Dir, "logs", codec+"-0", "00000000000000000000.log")) {
			found[regexp.MustCompile(`compresscodec: (\w+)`).FindStringSubmatch(line)[1]] = true
		}
		require.True(t, found[codec], "%v", found)
		delete(found, "none")
		delete(found, codec)
		require.Empty(t, found)
	}
}

// kcat looks offsets up by time, and reads from one time to another.
func TestKcatByTime(t *testing.T) {
	s := kit.Start(t, nil)
	var stamps []int64
	for i := range 3 {
		kcat(t, s, numbered(fmt.Sprint("round", i), 40), "-P", "-t", "times", "-p", "0")
	}
	for _, line := range strings.Fields(kcat(t, s, "", "-C", "-t", "times", "-e", "-q", "-f", "%T\n")) {
		ts, err := strconv.ParseInt(line, 10, 64)
		require.NoError(t, err)
		stamps = append(stamps, ts)
	}
	require.Len(t, stamps, 120)
	at := func(ts int64) int { return slices.IndexFunc(stamps, func(x int64) bool { return x >= ts }) }
	for _, ts := range []int64{stamps[0], stamps[40], stamps[80], stamps[119], stamps[0] - 1000} {
		require.Contains(t, kcat(t, s, "", "-Q", "-t", fmt.Sprintf("times:0:%d", ts)), fmt.Sprintf("times [0] offset %d\n", at(ts)))
	}
	require.Contains(t, kcat(t, s, "", "-Q", "-t", "times:0:-1"), "times [0] offset 120\n")
	require.Contains(t, kcat(t, s, "", "-Q", "-t", "times:0:-2"), "times [0] offset 0\n")
	from, to := stamps[40], stamps[80]
	require.Less(t, from, to)
	offsets := strings.Fields(kcat(t, s, "", "-C", "-t", "times", "-p", "0", "-q", "-e", "-f", "%o\n", "-o", fmt.Sprintf("s@%d", from), "-o", fmt.Sprintf("e@%d", to)))
	require.NotEmpty(t, offsets)
	require.Equal(t, strconv.Itoa(at(from)), offsets[0])
	require.Equal(t, strconv.Itoa(at(to)-1), offsets[len(offsets)-1])
	require.Equal(t, "round2 39 "+strings.Repeat("shore ", 39%7)+"\n", kcat(t, s, "", "-C", "-t", "times", "-p", "0", "-q", "-e", "-o", "-1"))
}

func TestKcatMetadata(t *testing.T) {
	s := kit.Start(t, nil)
	for name, partitions := range map[string]string{"m1": "1", "m3": "3"} {
		_, errOut, code := s.CLI("", "topic", "create", name, "--partitions", partitions)
		require.Zero(t, code, errOut)
	}
	type replica struct{ ID int }
	var got struct {
		ControllerID int
		Brokers      []struct {
			ID   int
			Name string
		}
		Topics []struct {
			Topic      string
			Partitions []struct {
				Partition, Leader int
				Replicas, ISRs    []replica
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(kcat(t, s, "", "-L", "-J")), &got))
	require.Equal(t, 1, got.ControllerID)
	require.Len(t, got.Brokers, 1)
	require.Equal(t, s.Addr, got.Brokers[0].Name)
	require.Len(t, got.Topics, 2)
	for _, topic := range got.Topics {
		require.Len(t, topic.Partitions, map[string]int{"m1": 1, "m3": 3}[topic.Topic])
		for _, p := range topic.Partitions {
			require.Equal(t, 1, p.Leader)
			require.Equal(t, []replica{{1}}, p.Replicas)
			require.Equal(t, []replica{{1}}, p.ISRs)
		}
	}
}

const pythonClient = `
import sys
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
addr, count, first = sys.argv[1], 200, 1700000000000
for codec in (None, 'gzip'):
    producer = KafkaProducer(bootstrap_servers=addr, acks='all', compression_type=codec)
    sent = [producer.send('py', key=b'k%d' % i, value=b'v%d' % i, partition=0, headers=[('h', b'x')], timestamp_ms=first + i)
            for i in range(count)]
    offsets = [f.get(timeout=20).offset for f in sent]
    assert offsets == list(range(offsets[0], offsets[0] + count)), offsets
    producer.close()
consumer = KafkaConsumer(bootstrap_servers=addr, consumer_timeout_ms=20000)
tp = TopicPartition('py', 0)
consumer.assign([tp])
consumer.seek_to_beginning(tp)
for i in range(2 * count):
    m = next(consumer)
    want = i % count
    assert (m.offset, m.key, m.value, m.timestamp, m.headers) == (i, b'k%d' % want, b'v%d' % want, first + want, [('h', b'x')]), m
print(consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp], consumer.offsets_for_times({tp: first + 50})[tp].offset)
consumer.close()
`

func TestPythonProducerAndConsumer(t *testing.T) {
	s := kit.Start(t, nil)
	out, errOut, code := kit.PythonKafka(t, pythonClient, s.Addr)
	require.Zero(t, code, errOut)
	require.Equal(t, "0 400 50\n", out)
}

// Apache Kafka's producer with each codec and each acks; its consumer reads one
// partition from an offset over the lot.
func TestKafkaProducerPerformance(t *testing.T) {
	s := kit.Start(t, nil)
	_, errOut, code := s.CLI("", "topic", "create", "perf", "--partitions", "2")
	require.Zero(t, code, errOut)
	const records = 2000
	payloads := filepath.Join(t.TempDir(), "payloads")
	require.NoError(t, os.WriteFile(payloads, []byte(numbered("payload", 50)), 0o600))
	runs := []struct{ codec, acks string }{{"none", "0"}, {"gzip", "1"}, {"snappy", "all"}, {"lz4", "all"}, {"zstd", "1"}}
	for _, r := range runs {
		codec, acks := r.codec, r.acks
		out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", s.Addr, "--topic", "perf",
			"--num-records", strconv.Itoa(records), "--payload-file", payloads, "--throughput", "-1",
			"--command-property", "compression.type="+codec, "acks="+acks, "enable.idempotence="+strconv.FormatBool(acks == "all"))
		require.Zero(t, code, "%s: %s", codec, errOut)
		require.Contains(t, out, fmt.Sprint(records, " records sent"), codec)
		require.NotContains(t, errOut, "Exception", codec)
	}
	found, total := map[string]bool{}, 0
	count := regexp.MustCompile(` count: (\d+) .* compresscodec: (\w+)`)
	var part0 int
	// The producer that asked for no answer may be ahead of the broker.
	kit.Eventually(t, 10*time.Second, "all records are written", func() bool {
		total, part0 = 0, 0
		for p := range 2 {
			for _, line := range dumpedBatches(t, s, filepath.Join(s.Dir, "logs", fmt.Sprint("perf-", p), "00000000000000000000.log")) {
				m := count.FindStringSubmatch(line)
				require.NotNil(t, m, line)
				n, _ := strconv.Atoi(m[1])
				found[m[2]] = true
				total += n
				if p == 0 {
					part0 += n
				}
			}
		}
		return total == records*len(runs)
	})
	require.Len(t, found, len(runs))
	require.Positive(t, part0)
	out := tool(t, s, "", "consumer.ConsoleConsumer", "--topic", "perf", "--partition", "0", "--offset", "3", "--max-messages", strconv.Itoa(part0-3),
		"--timeout-ms", "20000", "--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true")
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	require.Len(t, lines, part0-3)
	for i, line := range lines {
		require.Regexp(t, fmt.Sprintf(`^Partition:0\tOffset:%d\tpayload \d+ `, i+3), line)
	}
}
