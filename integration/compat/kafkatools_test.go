package compat

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

// tool runs a class of Apache Kafka's tools with a bootstrap server and returns
// its standard output.
func tool(t *testing.T, s *kit.Server, stdin, class string, args ...string) string {
	t.Helper()
	out, errOut, code := kit.KafkaTool(t, stdin, "org.apache.kafka.tools."+class, append([]string{"--bootstrap-server", s.Addr}, args...)...)
	require.Zero(t, code, "%s %v\n%s\n%s", class, args, out, errOut)
	require.NotContains(t, errOut, "Exception")
	return out
}

func TestKafkaTopics(t *testing.T) {
	s := kit.Start(t, nil)
	out := tool(t, s, "", "TopicCommand", "--create", "--topic", "orders", "--partitions", "3", "--replication-factor", "1",
		"--config", "retention.ms=3600000")
	require.Contains(t, out, "Created topic orders.")
	require.Equal(t, "orders\n", tool(t, s, "", "TopicCommand", "--list"))
	out = tool(t, s, "", "TopicCommand", "--describe", "--topic", "orders")
	require.Regexp(t, `Topic: orders\s+TopicId: \S{22}\s+PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=3600000`, out)
	require.Regexp(t, `Topic: orders\s+Partition: 2\s+Leader: 1\s+Replicas: 1\s+Isr: 1`, out)
	tool(t, s, "", "TopicCommand", "--alter", "--topic", "orders", "--partitions", "5")
	require.Contains(t, tool(t, s, "", "TopicCommand", "--describe", "--topic", "orders"), "PartitionCount: 5")

	told, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", s.Addr, "--create", "--topic", "orders")
	require.NotZero(t, code)
	require.Contains(t, told+errOut, "already exists")
	tool(t, s, "", "TopicCommand", "--delete", "--topic", "orders")
	require.Equal(t, "", strings.TrimSpace(tool(t, s, "", "TopicCommand", "--list")))
}

func TestKafkaConfigs(t *testing.T) {
	s := kit.Start(t, nil)
	tool(t, s, "", "TopicCommand", "--create", "--topic", "c", "--partitions", "1", "--replication-factor", "1")
	out := tool(t, s, "", "ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", "c", "--add-config", "retention.ms=60000,segment.bytes=2097152")
	require.Contains(t, out, "Completed updating config for topic c.")
	out = tool(t, s, "", "ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", "c")
	require.Contains(t, out, "retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000")
	require.Contains(t, out, "segment.bytes=2097152")
	all := tool(t, s, "", "ConfigCommand", "--describe", "--all", "--entity-type", "topics", "--entity-name", "c")
	for _, key := range []string{"cleanup.policy=delete", "min.insync.replicas=1", "max.message.bytes=1048588", "message.timestamp.type=CreateTime"} {
		require.Contains(t, all, key)
	}
	tool(t, s, "", "ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", "c", "--delete-config", "retention.ms")
	require.NotContains(t, tool(t, s, "", "ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", "c"), "retention.ms=60000")
	broker := tool(t, s, "", "ConfigCommand", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
	require.Contains(t, broker, "log.segment.bytes=")
}

func TestKafkaProducersConsumersOffsets(t *testing.T) {
	s := kit.Start(t, nil)
	tool(t, s, "", "TopicCommand", "--create", "--topic", "p", "--partitions", "1", "--replication-factor", "1")
	tool(t, s, "one\ntwo\nthree\n", "ConsoleProducer", "--topic", "p")
	out := tool(t, s, "", "consumer.ConsoleConsumer", "--topic", "p", "--partition", "0", "--offset", "1", "--max-messages", "2", "--timeout-ms", "20000")
	require.Equal(t, "two\nthree\n", out)

	perf, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", s.Addr, "--topic", "p",
		"--num-records", "20000", "--record-size", "200", "--throughput", "-1")
	require.Zero(t, code, errOut)
	require.Contains(t, perf, "20000 records sent")

	require.Equal(t, "p:0:20003\n", tool(t, s, "", "GetOffsetShell", "--topic", "p"))
	require.Equal(t, "p:0:0\n", tool(t, s, "", "GetOffsetShell", "--topic", "p", "--time", "earliest"))

	file := filepath.Join(t.TempDir(), "delete.json")
	spec, _ := json.Marshal(map[string]any{"version": 1, "partitions": []any{map[string]any{"topic": "p", "partition": 0, "offset": 500}}})
	require.NoError(t, os.WriteFile(file, spec, 0o600))
	out = tool(t, s, "", "DeleteRecordsCommand", "--offset-json-file", file)
	require.Regexp(t, `partition: p-0\s+low_watermark: 500`, out)
	require.Equal(t, "p:0:500\n", tool(t, s, "", "GetOffsetShell", "--topic", "p", "--time", "earliest"))
}

func TestKafkaBrokerAPIVersions(t *testing.T) {
	s := kit.Start(t, nil)
	out := tool(t, s, "", "BrokerApiVersionsCommand")
	for _, want := range []string{
		"Produce(0): 0 to 13", "Fetch(1): 4 to 18", "ListOffsets(2): 1 to 11", "Metadata(3): 0 to 13",
		"ApiVersions(18): 0 to 5", "CreateTopics(19): 2 to 7", "DeleteTopics(20): 1 to 6", "DeleteRecords(21): 0 to 2",
	} {
		require.Contains(t, out, want)
	}
	require.Contains(t, out, "AddPartitionsToTxn(24): UNSUPPORTED", "what is not served is not advertised")
}

// dumped is one batch line of kafka-dump-log.
var dumped = regexp.MustCompile(`baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isvalid: (\w+)`)

func TestDumpLogReadsOurSegments(t *testing.T) {
	s := kit.Start(t, nil)
	tool(t, s, "", "TopicCommand", "--create", "--topic", "d", "--partitions", "1", "--replication-factor", "1", "--config", "segment.bytes=1048576")
	var lines strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, "record %d %s\n", i, strings.Repeat("x", 1000))
	}
	_, errOut, code := kit.Kcat(t, lines.String(), "-b", s.Addr, "-P", "-t", "d", "-p", "0", "-X", "enable.idempotence=true")
	require.Zero(t, code, errOut)
	require.Zero(t, s.Stop())
	dir := filepath.Join(s.Dir, "logs", "d-0")
	count := 0
	for _, pattern := range []string{"*.log", "*.index", "*.timeindex", "*.snapshot"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--index-sanity-check", "--files", strings.Join(files, ","))
		require.Zero(t, code, errOut)
		require.NotContains(t, out+errOut, "Found timestamp mismatch", pattern)
		require.NotContains(t, out+errOut, "corrupt", pattern)
		if pattern != "*.log" {
			continue
		}
		for _, m := range dumped.FindAllStringSubmatch(out, -1) {
			require.Equal(t, "true", m[4])
			var n int
			_, _ = fmt.Sscan(m[3], &n)
			count += n
		}
	}
	require.Equal(t, 3000, count)
	ours, stderr, code := s.CLI("", "segment", "dump", "--deep", mustGlob(t, filepath.Join(dir, "*.log"))[0])
	require.Zero(t, code, stderr)
	require.Contains(t, ours, "record 0 xxx")
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}
