package compat

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// Every way to say what kafka-get-offsets shall find, by name and by number,
// and every way to say of which partitions.
func TestGetOffsetsSpecs(t *testing.T) {
	s := kit.Start(t, nil)
	for topic, partitions := range map[string]string{"g1": "3", "g2": "1", "other": "1"} {
		_, errOut, code := s.CLI("", "topic", "create", topic, "--partitions", partitions, "--config", "remote.storage.enable=false")
		require.Zero(t, code, errOut)
	}
	began := time.Now().UnixMilli()
	for i := range 3 {
		kcat(t, s, numbered("x", 10*(i+1)), "-P", "-t", "g1", "-p", strconv.Itoa(i))
	}
	kcat(t, s, numbered("x", 5), "-P", "-t", "g2", "-p", "0")
	get := func(args ...string) map[string]string {
		out := tool(t, s, "", "GetOffsetShell", args...)
		got := map[string]string{}
		for line := range strings.Lines(out) {
			at := strings.LastIndexByte(line, ':')
			require.Positive(t, at, out)
			got[line[:at]] = strings.TrimSpace(line[at+1:])
		}
		return got
	}
	ends := map[string]string{"g1:0": "10", "g1:1": "20", "g1:2": "30"}
	starts := map[string]string{"g1:0": "0", "g1:1": "0", "g1:2": "0"}
	for _, spec := range []string{"latest", "-1"} {
		require.Equal(t, ends, get("--topic", "g1", "--time", spec), spec)
	}
	for _, spec := range []string{"earliest", "-2", "earliest-local", "-4"} {
		require.Equal(t, starts, get("--topic", "g1", "--time", spec), spec)
	}
	for _, spec := range []string{"max-timestamp", "-3"} {
		for partition, offset := range get("--topic", "g1", "--time", spec) {
			n, err := strconv.Atoi(offset)
			require.NoError(t, err)
			end, _ := strconv.Atoi(ends[partition])
			require.Less(t, n, end, "%s of %s", spec, partition)
		}
	}
	for _, spec := range []string{"latest-tiered", "-5", "earliest-pending-upload", "-6"} {
		for partition, offset := range get("--topic", "g1", "--time", spec) {
			require.Contains(t, []string{"", "-1"}, offset, "%s of %s: nothing is tiered", spec, partition)
		}
	}
	require.Equal(t, starts, get("--topic", "g1", "--time", strconv.FormatInt(began, 10)), "a time")
	for _, offset := range get("--topic", "g1", "--time", strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)) {
		require.Contains(t, []string{"", "-1"}, offset, "a time to come")
	}

	require.Equal(t, map[string]string{"g1:0": "10", "g1:2": "30"}, get("--topic", "g1", "--partitions", "0,2"))
	require.Equal(t, []string{"g1:0", "g1:1", "g1:2", "g2:0"}, slices.Sorted(maps.Keys(get("--topic", "g."))), "a pattern")
	require.Equal(t, map[string]string{"g1:1": "20", "g1:2": "30", "g2:0": "5"}, get("--topic-partitions", "g1:1-,g2"))
	require.Len(t, get("--exclude-internal-topics"), 5)

	for _, bad := range [][]string{{"--topic", "nowhere"}, {"--topic", "g1", "--time", "yesterday"}, {"--topic", "g1", "--partitions", "7"}} {
		out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.GetOffsetShell", append([]string{"--bootstrap-server", s.Addr}, bad...)...)
		require.NotZero(t, code, fmt.Sprint(bad, out))
		require.NotEmpty(t, errOut+out)
	}
}

// kafka-delete-records over several partitions, to the end of one, and what it
// says of an offset that is not there.
func TestDeleteRecordsOfSeveralPartitions(t *testing.T) {
	s := kit.Start(t, nil)
	_, errOut, code := s.CLI("", "topic", "create", "d", "--partitions", "3")
	require.Zero(t, code, errOut)
	for i := range 3 {
		kcat(t, s, numbered("x", 10), "-P", "-t", "d", "-p", strconv.Itoa(i))
	}
	file := writeJSON(t, `{"version":1,"partitions":[{"topic":"d","partition":0,"offset":4},{"topic":"d","partition":1,"offset":-1},{"topic":"d","partition":2,"offset":99}]}`)
	out, errOut, _ := kit.KafkaTool(t, "", "org.apache.kafka.tools.DeleteRecordsCommand", "--bootstrap-server", s.Addr, "--offset-json-file", file)
	require.Regexp(t, `partition: d-0\s+low_watermark: 4`, out, errOut)
	require.Regexp(t, `partition: d-1\s+low_watermark: 10`, out)
	require.Regexp(t, `partition: d-2\s+error: .*OffsetOutOfRange`, out)
	for partition, want := range []string{"4", "10", "0"} {
		require.Contains(t, kcat(t, s, "", "-Q", "-t", fmt.Sprintf("d:%d:-2", partition)), "offset "+want+"\n")
	}
}

// kafka-configs over every way to change a topic and the cluster's default, and
// kafka-topics over its filters.
func TestConfigsAndTopicsInEveryWay(t *testing.T) {
	s := kit.Start(t, nil)
	tool(t, s, "", "TopicCommand", "--create", "--topic", "one", "--partitions", "2", "--config", "retention.ms=60000")
	tool(t, s, "", "TopicCommand", "--create", "--topic", "two", "--replica-assignment", "1,1,1")
	tool(t, s, "", "TopicCommand", "--create", "--topic", "one", "--if-not-exists")
	require.Regexp(t, `Topic: two\s.*PartitionCount: 3\s`, tool(t, s, "", "TopicCommand", "--describe", "--topic", "two"))
	require.NotContains(t, tool(t, s, "", "TopicCommand", "--describe", "--topics-with-overrides"), "Topic: two")
	for _, filter := range []string{"--under-replicated-partitions", "--unavailable-partitions", "--at-min-isr-partitions", "--under-min-isr-partitions"} {
		want := ""
		if filter == "--at-min-isr-partitions" {
			want = "Topic: one"
		}
		require.Contains(t, tool(t, s, "", "TopicCommand", "--describe", filter), want, filter)
	}
	configs := func(args ...string) string { return tool(t, s, "", "ConfigCommand", args...) }
	of := func(name string) string {
		return configs("--describe", "--entity-type", "topics", "--entity-name", name)
	}
	configs("--alter", "--entity-type", "topics", "--entity-name", "one", "--add-config", "cleanup.policy=[compact,delete],segment.bytes=2097152")
	require.Contains(t, of("one"), "cleanup.policy=compact,delete ")
	configs("--alter", "--entity-type", "topics", "--entity-name", "one", "--delete-config", "cleanup.policy,segment.bytes")
	require.NotContains(t, of("one"), "segment.bytes=2097152")
	require.Contains(t, of("one"), "retention.ms=60000 ")
	configs("--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=7200000")
	require.Contains(t, configs("--describe", "--entity-type", "brokers", "--entity-default"), "log.retention.ms=7200000 ")
	require.Contains(t, configs("--describe", "--all", "--entity-type", "topics", "--entity-name", "two"), "retention.ms=7200000 ")
	configs("--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", "log.retention.ms")
	for _, bad := range []string{"no.such.key=1", "retention.ms=soon"} {
		out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", s.Addr, "--alter", "--entity-type", "topics",
			"--entity-name", "one", "--add-config", bad)
		require.NotZero(t, code)
		require.Contains(t, out+errOut, "InvalidConfigurationException", bad)
	}
}

func writeJSON(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
