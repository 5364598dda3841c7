package compat

import (
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

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// groupTool runs kafka-consumer-groups.
func groupTool(t *testing.T, s *kit.Server, args ...string) string {
	t.Helper()
	return tool(t, s, "", "consumer.group.ConsumerGroupCommand", args...)
}

// groupRow is a line of kafka-consumer-groups --describe --offsets.
var groupRow = regexp.MustCompile(`(?m)^(\S+)\s+(\S+)\s+(\d)\s+(\S+)\s+(\d+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*$`)

// offsetsOf is what --describe says of a group: what is committed, by topic and
// partition, and the lag in all.
func offsetsOf(t *testing.T, s *kit.Server, name string) (committed map[string]string, lag int) {
	t.Helper()
	committed = map[string]string{}
	for _, m := range groupRow.FindAllStringSubmatch(groupTool(t, s, "--describe", "--offsets", "--group", name), -1) {
		require.Equal(t, name, m[1])
		committed[m[2]+"-"+m[3]] = m[4]
		if n, err := strconv.Atoi(m[6]); err == nil {
			lag += n
		}
	}
	return committed, lag
}

// TestKafkaConsumerGroups reads with console-consumer and does with its group
// what kafka-consumer-groups and kafka-groups can.
func TestKafkaConsumerGroups(t *testing.T) {
	s := kit.Start(t, map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"})
	for _, topic := range []string{"t", "u"} {
		tool(t, s, "", "TopicCommand", "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
		for p := range 2 {
			var lines strings.Builder
			for i := range 10 {
				fmt.Fprintf(&lines, "%s-%d-%d\n", topic, p, i)
			}
			_, errOut, code := kit.Kcat(t, lines.String(), "-b", s.Addr, "-P", "-t", topic, "-p", strconv.Itoa(p))
			require.Zero(t, code, errOut)
		}
	}
	consume := func(args ...string) []string {
		out := tool(t, s, "", "consumer.ConsoleConsumer", append(args, "--from-beginning", "--timeout-ms", "20000")...)
		lines := strings.Fields(out)
		slices.Sort(lines)
		return lines
	}
	alone := consume("--topic", "t", "--max-messages", "20")
	require.Len(t, slices.Compact(alone), 20, "without a group of its own")
	require.Len(t, consume("--topic", "t", "--group", "g", "--max-messages", "20"), 20)
	require.Len(t, consume("--topic", "u", "--group", "h", "--max-messages", "20", "--command-property", "group.protocol=consumer"), 20)

	listed := strings.Fields(groupTool(t, s, "--list"))
	require.Contains(t, listed, "g")
	require.Contains(t, listed, "h")
	require.Regexp(t, `(?m)^g\s+Classic\s+Empty\s*$`, groupTool(t, s, "--list", "--state", "--type"))
	require.Regexp(t, `(?m)^h\s+Consumer\s+Empty\s*$`, groupTool(t, s, "--list", "--state", "--type"))
	require.NotContains(t, strings.Fields(groupTool(t, s, "--list", "--type", "consumer")), "g")
	require.Equal(t, []string{"GROUP", "STATE"}, strings.Fields(groupTool(t, s, "--list", "--state", "stable")))
	groups := tool(t, s, "", "GroupsCommand", "--list")
	require.Regexp(t, `(?m)^g\s+Classic\s+consumer\s*$`, groups)
	require.Regexp(t, `(?m)^h\s+Consumer\s+consumer\s*$`, groups)

	require.Regexp(t, `(?m)^g\s+127\.0\.0\.1:\d+\s+\(1\)\s+.*Empty\s+0\s*$`, groupTool(t, s, "--describe", "--state", "--group", "g"))
	require.NotRegexp(t, `(?m)^g\s`, groupTool(t, s, "--describe", "--members", "--group", "g"))
	committed, lag := offsetsOf(t, s, "g")
	require.Equal(t, map[string]string{"t-0": "10", "t-1": "10"}, committed)
	require.Zero(t, lag)

	t.Run("reset-offsets", func(t *testing.T) { resetsOffsets(t, s) })
	t.Run("members", func(t *testing.T) { describesMembers(t, s) })

	require.Contains(t, groupTool(t, s, "--delete-offsets", "--group", "g", "--topic", "t:1"), "Request succeeded for deleting offsets from group g")
	committed, _ = offsetsOf(t, s, "g")
	require.Equal(t, map[string]string{"t-0": "10"}, committed)
	require.Contains(t, groupTool(t, s, "--delete", "--group", "g", "--group", "h"), "Deletion of requested consumer groups ('g', 'h') was successful.")
	require.NotContains(t, strings.Fields(groupTool(t, s, "--list")), "g")
	refused(t, s, "GroupIdNotFoundException", "--delete", "--group", "g")
}

// resetsOffsets sets the group's offsets in each way there is; the dry run says
// the same and does nothing.
func resetsOffsets(t *testing.T, s *kit.Server) {
	file := filepath.Join(t.TempDir(), "offsets.csv")
	require.NoError(t, os.WriteFile(file, []byte("t,0,3\nt,1,4\n"), 0o600))
	for _, c := range []struct {
		args      []string
		zero, one string
		scoped    bool // it says itself which topics
	}{
		{args: []string{"--to-earliest"}, zero: "0", one: "0"},
		{args: []string{"--shift-by", "6"}, zero: "6", one: "6"},
		{args: []string{"--shift-by", "-2"}, zero: "4", one: "4"},
		{args: []string{"--to-current"}, zero: "4", one: "4"},
		{args: []string{"--to-offset", "7"}, zero: "7", one: "7"},
		{args: []string{"--to-offset", "99"}, zero: "10", one: "10"},
		{args: []string{"--by-duration", "P1D"}, zero: "0", one: "0"},
		{args: []string{"--by-duration", "PT0S"}, zero: "10", one: "10"},
		{args: []string{"--to-datetime", "1999-01-01T00:00:00.000"}, zero: "0", one: "0"},
		{args: []string{"--to-datetime", "2999-01-01T00:00:00.000"}, zero: "10", one: "10"},
		{args: []string{"--from-file", file}, zero: "3", one: "4", scoped: true},
		{args: []string{"--all-topics", "--to-offset", "5"}, zero: "5", one: "5", scoped: true},
		{args: []string{"--topic", "t:0", "--topic", "t:1", "--shift-by", "-3"}, zero: "2", one: "2", scoped: true},
		{args: []string{"--to-latest"}, zero: "10", one: "10"},
	} {
		before, _ := offsetsOf(t, s, "g")
		args := append([]string{"--reset-offsets", "--group", "g"}, c.args...)
		if !c.scoped {
			args = append(args, "--topic", "t")
		}
		planned := groupTool(t, s, append(args, "--dry-run")...)
		now, _ := offsetsOf(t, s, "g")
		require.Equal(t, before, now, "%v: a dry run", c.args)
		done := groupTool(t, s, append(args, "--execute")...)
		for p, want := range []string{c.zero, c.one} {
			row := fmt.Sprintf(`(?m)^g\s+t\s+%d\s+%s\s*$`, p, want)
			require.Regexp(t, row, planned, "%v", c.args)
			require.Regexp(t, row, done, "%v", c.args)
		}
		now, _ = offsetsOf(t, s, "g")
		require.Equal(t, map[string]string{"t-0": c.zero, "t-1": c.one}, now, "%v", c.args)
	}
	exported := groupTool(t, s, "--reset-offsets", "--group", "g", "--topic", "t:1", "--to-offset", "2", "--dry-run", "--export")
	require.Equal(t, "t,1,2", strings.TrimSpace(exported))
}

// describesMembers describes a group while a member reads in it, and tries what may
// not be done to it then.
func describesMembers(t *testing.T, s *kit.Server) {
	c := sarama.NewConfig()
	c.ClientID, c.Version = "reader", sarama.V4_0_0_0
	g, err := sarama.NewConsumerGroup([]string{s.Addr}, "g", c)
	require.NoError(t, err)
	defer g.Close()
	joined := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- g.Consume(t.Context(), []string{"t"}, signals{joined}) }()
	select {
	case <-joined:
	case err := <-ended:
		require.NoError(t, err)
	}
	require.Regexp(t, `(?m)^g\s+reader-\S+\s+/127\.0\.0\.1\s+reader\s+2\s+-\s+t:0,1\s`, groupTool(t, s, "--describe", "--members", "--verbose", "--group", "g"))
	require.Regexp(t, `(?m)^g\s+127\.0\.0\.1:\d+\s+\(1\)\s+range\s+Stable\s+1\s*$`, groupTool(t, s, "--describe", "--state", "--group", "g"))
	require.Regexp(t, `(?m)^g\s+t\s+1\s+10\s+10\s+0\s+reader-\S+\s+/127\.0\.0\.1\s+reader\s*$`, groupTool(t, s, "--describe", "--group", "g"))
	refused(t, s, "GroupNotEmptyException", "--delete", "--group", "g")
	refused(t, s, "GroupSubscribedToTopicException", "--delete-offsets", "--group", "g", "--topic", "t")
	refused(t, s, "can only be reset if the group 'g' is inactive", "--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--execute")
}

// refused runs kafka-consumer-groups where it fails, and says so.
func refused(t *testing.T, s *kit.Server, want string, args ...string) {
	t.Helper()
	out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", append(args, "--bootstrap-server", s.Addr)...)
	require.Contains(t, out+errOut, want, "%d", code)
}

// signals tells that its member has joined.
type signals struct{ joined chan struct{} }

func (h signals) Setup(sarama.ConsumerGroupSession) error   { close(h.joined); return nil }
func (h signals) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h signals) ConsumeClaim(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
	<-s.Context().Done()
	return nil
}

// TestKafkaVerifiableClients runs verifiable-producer and verifiable-consumer:
// what the one says was acknowledged, the other says it has read and committed.
func TestKafkaVerifiableClients(t *testing.T) {
	s := kit.Start(t, map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"})
	tool(t, s, "", "TopicCommand", "--create", "--topic", "v", "--partitions", "2", "--replication-factor", "1")
	events := func(out string) (all []map[string]any) {
		for line := range strings.Lines(out) {
			var e map[string]any
			if json.Unmarshal([]byte(line), &e) == nil {
				all = append(all, e)
			}
		}
		return all
	}
	acked := 0
	for _, e := range events(tool(t, s, "", "VerifiableProducer", "--topic", "v", "--max-messages", "500", "--acks", "-1")) {
		if e["name"] == "producer_send_success" {
			acked++
		}
	}
	require.Equal(t, 500, acked)
	for _, protocol := range []string{"classic", "consumer"} {
		read, committed := 0.0, map[float64]float64{}
		for _, e := range events(tool(t, s, "", "VerifiableConsumer", "--topic", "v", "--group-id", protocol, "--group-protocol", protocol, "--max-messages", "500", "--reset-policy", "earliest")) {
			switch e["name"] {
			case "records_consumed":
				read += e["count"].(float64)
			case "offsets_committed":
				require.Equal(t, true, e["success"], "%v", e)
				for _, o := range e["offsets"].([]any) {
					committed[o.(map[string]any)["partition"].(float64)] = o.(map[string]any)["offset"].(float64)
				}
			}
		}
		require.EqualValues(t, 500, read, protocol)
		require.EqualValues(t, 500, committed[0]+committed[1], protocol)
		_, lag := offsetsOf(t, s, protocol)
		require.Zero(t, lag)
	}
}

// TestAdminClientsListTheSameGroups (WI-05) asks every version of ListGroups, and
// the admin clients of several languages, of which Debian's kafka-python is 2.0.2
// and kafkajs 2.2.4.
func TestAdminClientsListTheSameGroups(t *testing.T) {
	s := kit.Start(t, map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"})
	raw := kit.Dial(t, s.Addr)
	want := []string{"g0", "g1", "g2"}
	tool(t, s, "", "TopicCommand", "--create", "--topic", "t", "--partitions", "1", "--replication-factor", "1")
	for _, name := range want {
		commit(t, raw, name)
	}
	for version := range int16(6) {
		req := kmsg.NewPtrListGroupsRequest()
		req.Version = version
		resp := raw.Call(req).(*kmsg.ListGroupsResponse)
		require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
		var names []string
		for _, g := range resp.Groups {
			names = append(names, g.Group)
		}
		require.ElementsMatch(t, want, names, "version %d", version)
	}
	require.ElementsMatch(t, want, strings.Fields(groupTool(t, s, "--list")))
	admin, err := sarama.NewClusterAdmin([]string{s.Addr}, sarama.NewConfig())
	require.NoError(t, err)
	defer admin.Close()
	listed, err := admin.ListConsumerGroups()
	require.NoError(t, err)
	require.Len(t, listed, len(want))
	python := "import sys, kafka\nprint(*[g if isinstance(g, str) else g[0] if isinstance(g, tuple) else g['group_id'] for g in " +
		"getattr(kafka.KafkaAdminClient(bootstrap_servers=sys.argv[1]), 'list_groups' if hasattr(kafka.KafkaAdminClient, 'list_groups') else 'list_consumer_groups')()])"
	for name, interpreter := range map[string]string{"pip": kit.PythonClients(t), "Debian": kit.DebianPythonKafka(t)} {
		out, errOut, code := kit.Run(interpreter, "-c", python, s.Addr)
		require.Zero(t, code, "%s: %s", name, errOut)
		require.ElementsMatch(t, want, strings.Fields(out), name)
	}
	js := "const { Kafka, logLevel } = require(process.argv[1]); const a = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING }).admin();" +
		"a.connect().then(() => a.listGroups()).then(l => { console.log(...l.groups.map(g => g.groupId)); return a.disconnect() })"
	out, errOut, code := kit.Run(kit.Tool(t, "node"), "-e", js, filepath.Join(kit.NodeClients(t), "kafkajs"), s.Addr)
	require.Zero(t, code, errOut)
	require.ElementsMatch(t, want, strings.Fields(out))
}

// commit commits an offset of partition 0 of t for a group without members. The
// first one that looks for a coordinator makes its topic.
func commit(t *testing.T, raw *kit.Raw, group string) {
	t.Helper()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorKey, find.CoordinatorKeys = 4, group, []string{group}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, group, -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = 1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	kit.Eventually(t, 20*time.Second, "an offset is committed", func() bool {
		raw.Call(find)
		err := kerr.ErrorForCode(raw.Call(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
		require.True(t, err == nil || kerr.IsRetriable(err), "%v", err)
		return err == nil
	})
}

// TestOffsetsNeverCommitted (WI-09): a partition without a commit has offset -1,
// leader epoch -1, no metadata, and no error, in every version and for sarama.
func TestOffsetsNeverCommitted(t *testing.T) {
	s := kit.Start(t, map[string]string{"offsets.topic.num.partitions": "3"})
	raw := kit.Dial(t, s.Addr)
	tool(t, s, "", "TopicCommand", "--create", "--topic", "t", "--partitions", "2", "--replication-factor", "1")
	commit(t, raw, "other")
	for version := int16(1); version <= 8; version++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.Group = version, "fresh"
		req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{1}}}
		req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "fresh", Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{1}}}}}
		resp := raw.Call(req).(*kmsg.OffsetFetchResponse)
		empty := ""
		if version == 8 {
			require.Zero(t, resp.Groups[0].ErrorCode)
			require.Equal(t, kmsg.OffsetFetchResponseGroupTopicPartition{Partition: 1, Offset: -1, LeaderEpoch: -1, Metadata: &empty}, resp.Groups[0].Topics[0].Partitions[0])
			continue
		}
		require.Zero(t, resp.ErrorCode)
		require.Equal(t, kmsg.OffsetFetchResponseTopicPartition{Partition: 1, Offset: -1, LeaderEpoch: -1, Metadata: &empty}, resp.Topics[0].Partitions[0], "version %d", version)
	}
	for _, version := range []sarama.KafkaVersion{sarama.V0_10_2_0, sarama.V2_0_0_0, sarama.V4_0_0_0} {
		c := sarama.NewConfig()
		c.Version = version
		admin, err := sarama.NewClusterAdmin([]string{s.Addr}, c)
		require.NoError(t, err)
		defer admin.Close()
		resp, err := admin.ListConsumerGroupOffsets("fresh", map[string][]int32{"t": {1}})
		require.NoError(t, err, "%s", version)
		block := resp.GetBlock("t", 1)
		require.NotNil(t, block)
		require.Equal(t, sarama.ErrNoError, block.Err)
		require.Equal(t, [2]int64{-1, -1}, [2]int64{block.Offset, int64(block.LeaderEpoch)}, "%s", version)
		require.Empty(t, block.Metadata)
	}
}
