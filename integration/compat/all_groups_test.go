package compat

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

// threeGroups has groups c and d without members, which have read what there is of
// t and u, and a group h of KIP-848 with a static member, which has read t.
func threeGroups(t *testing.T) *kit.Server {
	t.Helper()
	s := kit.Start(t, map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"})
	does := func(stdin string, args ...string) {
		_, errOut, code := s.CLI(stdin, args...)
		require.Zero(t, code, errOut)
	}
	for topic, partition := range map[string]string{"t": "0", "u": "1"} {
		does("", "topic", "create", topic, "--partitions", "2")
		does("a\nb\nc\nd\n", "produce", topic, "--partition", partition)
		does("", "consume", topic, "--group", "c", "--count", "4")
	}
	does("", "consume", "u", "--group", "d", "--count", "4")
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.ConsumerGroup("h"), kgo.ConsumeTopics("t"), kgo.ServerSideBalancer(), kgo.InstanceID("one"),
		kgo.Balancers(kgo.StickyBalancer()), kgo.DisableAutoCommit(), kgo.ClientID("next"))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	for read := 0; read < 4; {
		fetches := cl.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		read += fetches.NumRecords()
	}
	require.NoError(t, cl.CommitUncommittedOffsets(t.Context()))
	return s
}

// TestKafkaConsumerGroupsOfAll describes, resets and deletes several groups of both
// protocols in one command of kafka-consumer-groups, and lists them by kind with
// kafka-groups.
func TestKafkaConsumerGroupsOfAll(t *testing.T) {
	s := threeGroups(t)
	describe := func(args ...string) string { return groupTool(t, s, append([]string{"--describe"}, args...)...) }
	const (
		host   = `\s+/127\.0\.0\.1\s+`
		broker = `\s+127\.0\.0\.1:\d+\s+\(1\)\s+`
	)
	offsets := describe("--all-groups")
	for _, row := range []string{`c\s+t\s+0\s+4\s+4\s+0\s+-\s+-\s+-`, `c\s+u\s+1\s+4\s+4\s+0\s+-\s+-\s+-`, `d\s+u\s+1\s+4\s+4\s+0\s+-\s+-\s+-`, `h\s+t\s+0\s+4\s+4\s+0\s+\S+` + host + `next`, `h\s+t\s+1\s+-\s+0\s+-\s+\S+` + host + `next`} {
		require.Regexp(t, `(?m)^`+row+`\s*$`, offsets)
	}
	require.Regexp(t, `(?m)^h\s+t\s+0\s+0\s+4\s+4\s+0\s+\S+`+host+`next\s*$`, describe("--offsets", "--verbose", "--group", "h"), "with the leader epoch")
	states := describe("--state", "--all-groups")
	require.Regexp(t, `(?m)^c`+broker+`-\s+Empty\s+0\s*$`, states)
	require.Regexp(t, `(?m)^h`+broker+`uniform\s+Stable\s+1\s*$`, states)
	require.Regexp(t, `(?m)^h`+broker+`uniform\s+Stable\s+[1-9]\s+[1-9]\s+1\s*$`, describe("--state", "--verbose", "--group", "h"), "with both epochs")
	require.Regexp(t, `(?m)^h\s+\S+\s+one`+host+`next\s+2\s*$`, describe("--members", "--group", "h"))
	require.Regexp(t, `(?m)^h\s+\S+\s+one`+host+`next\s+2\s+[1-9]\s+t:0,1\s+[1-9]\s+t:0,1\s*$`, describe("--members", "--verbose", "--group", "h"))
	refused(t, s, "Group nowhere not found", "--describe", "--group", "nowhere")

	listed := func(args ...string) (names []string) {
		for _, line := range strings.Split(strings.TrimSpace(tool(t, s, "", "GroupsCommand", append(args, "--list")...)), "\n")[1:] {
			names = append(names, strings.Fields(line)[0])
		}
		slices.Sort(names)
		return names
	}
	require.Equal(t, []string{"c", "d", "h"}, listed())
	require.Equal(t, []string{"c", "d", "h"}, listed("--consumer"))
	require.Equal(t, []string{"h"}, listed("--group-type", "consumer"))
	require.Equal(t, []string{"c", "d"}, listed("--group-type", "classic", "--protocol", "consumer"))
	require.Empty(t, listed("--protocol", "connect"))
	require.Empty(t, listed("--share"))

	two := []string{"--reset-offsets", "--group", "c", "--group", "d"}
	require.Equal(t, []string{"c,t,0,2", "c,u,1,2", "d,u,1,2"}, sortedLines(groupTool(t, s, append(two, "--all-topics", "--to-offset", "2", "--export", "--dry-run")...)))
	file := filepath.Join(t.TempDir(), "groups.csv")
	require.NoError(t, os.WriteFile(file, []byte("c,t,0,1\nd,u,1,3\n"), 0o600))
	groupTool(t, s, append(two, "--from-file", file, "--execute")...)
	committed := func(name string) map[string]string {
		at, _ := offsetsOf(t, s, name)
		return at
	}
	require.Equal(t, map[string]string{"t-0": "1", "u-1": "4"}, committed("c"))
	require.Equal(t, map[string]string{"u-1": "3"}, committed("d"))
	require.Equal(t, []string{"t,0,4", "u,1,4"}, sortedLines(groupTool(t, s, "--reset-offsets", "--group", "c", "--all-topics", "--to-latest", "--export", "--execute")))
	require.Equal(t, map[string]string{"t-0": "4", "u-1": "4"}, committed("c"), "an export that is executed")
	groupTool(t, s, "--reset-offsets", "--group", "c", "--all-topics", "--to-earliest")
	require.Equal(t, map[string]string{"t-0": "4", "u-1": "4"}, committed("c"), "a dry run unless it says --execute")
	refused(t, s, "can only be reset if the group 'h' is inactive", "--reset-offsets", "--all-groups", "--all-topics", "--to-earliest", "--execute")
	require.Equal(t, map[string]string{"t-0": "0", "u-1": "0"}, committed("c"), "the others are")

	refused(t, s, "GroupSubscribedToTopicException", "--delete-offsets", "--group", "h", "--topic", "t")
	refused(t, s, "Group 'h' could not be deleted due to: org.apache.kafka.common.errors.GroupNotEmptyException", "--delete", "--all-groups")
	require.Equal(t, []string{"h"}, listed(), "the others are")
}

func sortedLines(text string) []string {
	lines := strings.Fields(text)
	slices.Sort(lines)
	return lines
}

// TestOldKafkaTools (WI-05) reads with Apache Kafka 2.8's console-consumer and does
// with its group, and that of a newer member, what its kafka-consumer-groups can.
func TestOldKafkaTools(t *testing.T) {
	s := threeGroups(t)
	old := func(class string, args ...string) string {
		t.Helper()
		out, errOut, code := kit.OldKafkaTool(t, class, append(args, "--bootstrap-server", s.Addr)...)
		require.Zero(t, code, "%v\n%s%s", args, out, errOut)
		require.NotContains(t, out+errOut, "Exception", "%v", args)
		return out
	}
	groups := func(args ...string) string {
		t.Helper()
		return old("kafka.admin.ConsumerGroupCommand", args...)
	}
	read := old("kafka.tools.ConsoleConsumer", "--topic", "t", "--group", "old", "--from-beginning", "--max-messages", "4", "--timeout-ms", "20000")
	require.Equal(t, []string{"a", "b", "c", "d"}, strings.Fields(read))
	kit.Eventually(t, 20*time.Second, "its member has left", func() bool {
		return slices.Contains(strings.Fields(groupTool(t, s, "--list", "--state", "empty")), "old")
	})
	require.ElementsMatch(t, []string{"c", "d", "h", "old"}, strings.Fields(groups("--list")))
	require.ElementsMatch(t, strings.Fields(groupTool(t, s, "--list")), strings.Fields(groups("--list")), "as Apache Kafka 4.4's says")
	states := groups("--list", "--state")
	require.Regexp(t, `(?m)^old\s+Empty\s*$`, states)
	require.Regexp(t, `(?m)^h\s+Stable\s*$`, states)
	require.Regexp(t, `(?m)^old\s+t\s+0\s+4\s+4\s+0\s+-\s+-\s+-\s*$`, groups("--describe", "--group", "old"))
	require.Regexp(t, `(?m)^c\s+127\.0\.0\.1:\d+\s+\(1\)\s+Empty\s+0\s*$`, groups("--describe", "--state", "--all-groups"))
	require.Regexp(t, `(?m)^old\s+t\s+0\s+1\s*$`, groups("--reset-offsets", "--group", "old", "--topic", "t:0", "--to-offset", "1", "--execute"))
	committed, _ := offsetsOf(t, s, "old")
	require.Equal(t, "1", committed["t-0"])
	require.Regexp(t, `(?m)^t\s+0\s+Successful\s*$`, groups("--delete-offsets", "--group", "old", "--topic", "t:0"))
	committed, _ = offsetsOf(t, s, "old")
	require.NotContains(t, committed, "t-0")
	require.Contains(t, groups("--delete", "--group", "old"), "Deletion of requested consumer groups ('old') was successful.")
	require.ElementsMatch(t, []string{"c", "d", "h"}, strings.Fields(groupTool(t, s, "--list")))
}
