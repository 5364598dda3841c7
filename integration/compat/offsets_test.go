package compat

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// Apache Kafka's get-offsets over the seam, its delete-records and its
// cluster command, beside a topic of which most lies in the remote tier.
func TestKafkaOffsetsOverTwoTiers(t *testing.T) {
	s := kit.Start(t, map[string]string{
		"remote.store.url":                    "file://" + filepath.Join(t.TempDir(), "store"),
		"remote.log.manager.task.interval.ms": "100", "log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100",
		"log.segment.delete.delay.ms": "100",
	})
	_, errOut, code := s.CLI("", "topic", "create", "tiered", "--config", "internal.segment.bytes=20000", "--config", "local.retention.bytes=1")
	require.Zero(t, code, errOut)
	_, errOut, code = s.CLI("", "topic", "create", "local", "--config", "remote.storage.enable=false")
	require.Zero(t, code, errOut)
	kcat(t, s, strings.Repeat("0123456789 abcdefghij\n", 8000), "-P", "-t", "tiered", "-p", "0", "-X", "batch.num.messages=400")
	kcat(t, s, "a\nb\nc\n", "-P", "-t", "local", "-p", "0")
	var status struct {
		Partitions []struct {
			Topic                                                                            string
			LogStartOffset, LocalStartOffset, RemoteEndOffset, LogEndOffset, PendingSegments int64
		}
	}
	kit.Eventually(t, 20*time.Second, "sealed segments are in the tier alone", func() bool {
		out, _, code := s.CLI("", "tier", "status", "tiered", "-o", "json", "--admin", s.Admin)
		if code != 0 || json.Unmarshal([]byte(out), &status) != nil || len(status.Partitions) != 1 {
			return false
		}
		p := status.Partitions[0]
		return p.PendingSegments == 0 && p.RemoteEndOffset > 7000 && p.LocalStartOffset == p.RemoteEndOffset
	})
	p := status.Partitions[0]
	require.Equal(t, int64(8000), p.LogEndOffset)

	stamp := strings.Fields(kcat(t, s, "", "-C", "-t", "tiered", "-p", "0", "-o", "1000", "-c", "1", "-q", "-f", "%T\n"))[0]
	for spec, want := range map[string][2]int64{
		"earliest-local": {0, p.LocalStartOffset}, "latest-tiered": {-1, p.RemoteEndOffset - 1}, "earliest-pending-upload": {-1, p.RemoteEndOffset},
	} {
		out := tool(t, s, "", "GetOffsetShell", "--topic-partitions", "local:0,tiered:0", "--time", spec)
		got := map[string]int64{}
		for _, m := range regexp.MustCompile(`(?m)^(\w+):0:(-?\d*)$`).FindAllStringSubmatch(out, -1) {
			got[m[1]] = -1 // said as nothing
			if m[2] != "" {
				got[m[1]], _ = strconv.ParseInt(m[2], 10, 64)
			}
		}
		if got["local"] == 0 && !strings.Contains(out, "local:") {
			got["local"] = -1
		}
		require.Equal(t, want, [2]int64{got["local"], got["tiered"]}, "%s: %s", spec, out)
	}
	out := tool(t, s, "", "GetOffsetShell", "--topic", "tiered", "--time", stamp)
	var byTime int64
	_, err := fmt.Sscanf(out, "tiered:0:%d", &byTime)
	require.NoError(t, err, out)
	require.LessOrEqual(t, byTime, int64(1000), "the first record of that millisecond")
	require.Equal(t, stamp+"\n", kcat(t, s, "", "-C", "-t", "tiered", "-p", "0", "-o", strconv.FormatInt(byTime, 10), "-c", "1", "-q", "-f", "%T\n"))

	file := filepath.Join(t.TempDir(), "delete.json")
	spec, _ := json.Marshal(map[string]any{"version": 1, "partitions": []any{
		map[string]any{"topic": "tiered", "partition": 0, "offset": 1500},
		map[string]any{"topic": "local", "partition": 0, "offset": -1},
	}})
	require.NoError(t, os.WriteFile(file, spec, 0o600))
	out = tool(t, s, "", "DeleteRecordsCommand", "--offset-json-file", file)
	require.Regexp(t, `partition: tiered-0\s+low_watermark: 1500`, out)
	require.Regexp(t, `partition: local-0\s+low_watermark: 3`, out)
	require.Contains(t, kcat(t, s, "", "-Q", "-t", "tiered:0:-2"), "tiered [0] offset 1500\n")

	out, errOut, code = kit.KafkaTool(t, "", "org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", s.Addr)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "Cluster ID: "+s.Ready.ClusterID)
}
