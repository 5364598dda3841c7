package conformance

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// groupShell is a shell in front of a server of this test's own, or of the
// broker that STRANDLINE_REFERENCE names, and a prefix for its names there.
func groupShell(t *testing.T) (s shell, prefix string) {
	t.Helper()
	if addr := os.Getenv("STRANDLINE_REFERENCE"); addr != "" {
		server := kit.New(t, t.TempDir(), nil)
		server.Addr = addr
		return shell{server, t}, fmt.Sprintf("cli%x-", time.Now().UnixNano())
	}
	return shell{kit.Start(t, map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}), t}, ""
}

// group is what group describe says of one group in JSON.
type group struct {
	Group, Type, State, ProtocolType, Assignor string
	Epoch, AssignmentEpoch                     *int32
	Coordinator                                struct {
		ID, Port int32
		Host     string
	}
	Members []struct {
		MemberID, ClientID, Host     string
		InstanceID                   *string
		Epoch                        *int32
		Assignment, TargetAssignment []struct {
			Topic      string
			Partitions []int32
		}
	}
	Offsets []struct {
		Topic                                string
		Partition                            int32
		CommittedOffset, LogEndOffset, Lag   *int64
		MemberID, InstanceID, ClientID, Host *string
		Error                                string
	}
	TotalLag int64
}

func (s shell) group(name string) (g group) {
	s.t.Helper()
	require.NoError(s.t, json.Unmarshal([]byte(s.does("", "group", "describe", name, "-o", "json")), &g))
	require.Equal(s.t, name, g.Group)
	return g
}

// committed sums up what a group has committed.
func (g group) committed() (sum int64) {
	for _, o := range g.Offsets {
		if o.CommittedOffset != nil {
			sum += *o.CommittedOffset
		}
	}
	return sum
}

// feed writes records v0, v1, ... to each of a topic's partitions.
func (s shell) feed(topic string, partitions, from, to int) {
	s.t.Helper()
	for p := range partitions {
		var in strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&in, "%d-%d\n", p, i)
		}
		s.does(in.String(), "produce", topic, "--partition", itoa(p))
	}
}

// reader is a consume --group that runs in the background.
type reader struct {
	cmd *exec.Cmd
	out string // the file it prints to
	err bytes.Buffer
}

func (s shell) reader(args ...string) *reader {
	s.t.Helper()
	r := &reader{out: filepath.Join(s.t.TempDir(), "out")}
	out, err := os.Create(r.out)
	require.NoError(s.t, err)
	defer out.Close()
	r.cmd = exec.Command(kit.Binary(s.t), append([]string{"consume", "-b", s.Addr}, args...)...)
	r.cmd.Stdout, r.cmd.Stderr = out, &r.err
	require.NoError(s.t, kit.StartChild(r.cmd))
	s.t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

func (r *reader) lines(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(r.out)
	require.NoError(t, err)
	return lines(string(data))
}

// ends waits for the reader to end by itself.
func (r *reader) ends(t *testing.T) []string {
	t.Helper()
	require.NoError(t, r.cmd.Wait(), r.err.String())
	return r.lines(t)
}

// stop ends the reader as a person does, with a signal.
func (r *reader) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, r.cmd.Wait(), r.err.String())
}

// admin is a client of the broker for what the command line has no command for.
func (s shell) admin(opts ...kgo.Opt) *kadm.Client {
	s.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.Addr)}, opts...)...)
	require.NoError(s.t, err)
	s.t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

func TestGroupCommands(t *testing.T) {
	first, prefix := groupShell(t)
	for _, part := range []struct {
		name string
		run  func(s shell, topic, group string)
	}{
		{"what is printed is committed", printedIsCommitted},
		{"two members share a topic", twoMembers},
		{"where reading begins", readingBegins},
		{"reset as Apache Kafka does", resetAsKafka},
		{"reset by a file and back", resetByFile},
		{"offsets and groups are deleted", offsetsAndGroupsDeleted},
		{"groups of the consumer protocol", consumerProtocol},
		{"mistakes", groupMistakes},
	} {
		t.Run(part.name, func(t *testing.T) {
			name := prefix + strings.ReplaceAll(part.name, " ", "-")
			part.run(shell{first.Server, t}, name, name+"-group")
		})
	}
}

func printedIsCommitted(s shell, topic, name string) {
	s.does("", "topic", "create", topic, "--partitions", "4")
	s.feed(topic, 4, 0, 100)
	got := lines(s.does("", "consume", topic, "--group", name, "--count", "30"))
	require.Len(s.t, got, 30)
	g := s.group(name)
	require.Equal(s.t, int64(30), g.committed(), "exactly what was printed")
	require.Equal(s.t, "Empty", g.State, "a reader that ends leaves the group")
	require.Equal(s.t, "classic", g.Type)

	got = append(got, lines(s.does("", "consume", topic, "--group", name, "--exit-at-end"))...)
	want := map[string]bool{}
	for p := range 4 {
		for i := range 100 {
			want[fmt.Sprintf("%d-%d", p, i)] = true
		}
	}
	for _, l := range got {
		require.True(s.t, want[l], "%s is printed twice, or is none", l)
		delete(want, l)
	}
	require.Empty(s.t, want)
	require.Zero(s.t, s.group(name).TotalLag)
	require.Empty(s.t, s.does("", "consume", topic, "--group", name, "--exit-at-end"), "nothing is left")

	s.feed(topic, 1, 100, 110)
	r := s.reader(topic, "--group", name)
	kit.Eventually(s.t, 20*time.Second, "what is new is printed", func() bool { return len(r.lines(s.t)) == 10 })
	r.stop(s.t)
	g = s.group(name)
	require.Equal(s.t, int64(410), g.committed())
	require.Empty(s.t, g.Members, "a signal is no reason to stay in the group")
	require.Contains(s.t, s.does("", "group", "describe", name), "total lag")
}

func twoMembers(s shell, topic, name string) {
	s.does("", "topic", "create", topic, "--partitions", "4")
	a, b := s.reader(topic, "--group", name), s.reader(topic, "--group", name)
	var g group
	kit.Eventually(s.t, 30*time.Second, "both have two partitions", func() bool {
		_, _, code := s.CLI("", "group", "describe", name)
		if code != 0 {
			return false
		}
		g = s.group(name)
		return g.State == "Stable" && len(g.Members) == 2 && len(g.Members[0].Assignment) == 1 && len(g.Members[0].Assignment[0].Partitions) == 2 &&
			len(g.Members[1].Assignment) == 1 && len(g.Members[1].Assignment[0].Partitions) == 2
	})
	s.feed(topic, 4, 0, 50)
	kit.Eventually(s.t, 20*time.Second, "everything is printed", func() bool { return len(a.lines(s.t))+len(b.lines(s.t)) >= 200 })
	all := append(a.lines(s.t), b.lines(s.t)...)
	slices.Sort(all)
	require.Len(s.t, slices.Compact(all), 200)
	require.Len(s.t, a.lines(s.t), 100, "each prints what is its own")
	kit.Eventually(s.t, 10*time.Second, "everything is committed", func() bool { return s.group(name).TotalLag == 0 })

	g = s.group(name)
	require.Equal(s.t, "cooperative-sticky", g.Assignor)
	require.Equal(s.t, "consumer", g.ProtocolType)
	host, port, _ := strings.Cut(s.Addr, ":")
	require.Equal(s.t, host, g.Coordinator.Host)
	require.Equal(s.t, port, itoa(int(g.Coordinator.Port)))
	sameAsKafka(s, name)
	text := s.does("", "group", "describe", name, "--members", "--offsets")
	for _, m := range g.Members {
		require.Contains(s.t, text, m.MemberID)
		require.Equal(s.t, "strandline-cli", m.ClientID)
		require.NotEmpty(s.t, m.Host)
	}
	require.Regexp(s.t, `(?m)^`+topic+` +0 +50 +50 +0 +strandline-cli-\S+ +strandline-cli `, text)
	require.Contains(s.t, s.does("", "group", "list", "--state", "stable", "--type", "classic"), name)
	require.NotContains(s.t, s.does("", "group", "list", "--state", "Empty,Dead"), name)

	// While somebody reads, nothing can be changed from outside.
	for _, args := range [][]string{
		{"reset-offsets", name, "--topic", topic, "--to", "earliest"}, {"reset-offsets", name, "--all-topics", "--to", "0", "--execute"}, {"delete", name},
	} {
		s.fails(1, "", append([]string{"group"}, args...), "NON_EMPTY_GROUP", "stop its consumers", name)
	}
	s.fails(1, "", []string{"group", "delete-offsets", name, "--topic", topic + ":0,2"}, "topic "+topic+" partition 0, 2", "GROUP_SUBSCRIBED_TO_TOPIC", "stop them first")
	require.Equal(s.t, int64(200), s.group(name).committed())

	// Two that end at the end print what there is once, whoever reads it.
	a.stop(s.t)
	b.stop(s.t)
	s.feed(topic, 4, 50, 100)
	a, b = s.reader(topic, "--group", name, "--exit-at-end"), s.reader(topic, "--group", name, "--exit-at-end")
	all = append(a.ends(s.t), b.ends(s.t)...)
	slices.Sort(all)
	require.Len(s.t, all, 200)
	require.Len(s.t, slices.Compact(all), 200)
	require.Zero(s.t, s.group(name).TotalLag)
}

func readingBegins(s shell, topic, name string) {
	s.does("", "topic", "create", topic)
	s.feed(topic, 1, 0, 10)
	require.Empty(s.t, s.does("", "consume", topic, "--group", name, "--offset", "latest", "--exit-at-end"))
	s.fails(1, "", []string{"consume", topic, "--group", name, "--offset", "99"}, "OFFSET_OUT_OF_RANGE", "--offset earliest")
	require.Equal(s.t, "0-4\n", s.does("", "consume", topic, "--group", name, "--offset", "4", "--count", "1"))
	require.Equal(s.t, "0-5\n", s.does("", "consume", topic, "--group", name, "--offset", "earliest", "--count", "1"), "what is committed goes first")
	record := keysOf(s.t, s.does("", "consume", topic, "--group", name, "--count", "1", "-o", "json"))
	require.Equal(s.t, "0-6", record["value"])
	stamp := strconv.FormatInt(int64(record["timestamp"].(float64)), 10)
	require.NotEmpty(s.t, s.does("", "consume", topic, "--group", name+"-by-time", "--offset", "@"+stamp, "--count", "1"))

	var before kadm.Offsets
	before.AddOffset(topic, 0, 9, -1)
	_, err := s.admin().DeleteRecords(context.Background(), before)
	require.NoError(s.t, err)
	require.Equal(s.t, "0-9\n", s.does("", "consume", topic, "--group", name, "--exit-at-end"), "what was committed is gone")
	require.Zero(s.t, s.group(name).TotalLag)
}

// partition is a partition of a topic.
type partition struct {
	topic string
	id    int32
}

// plan is what group reset-offsets says.
func (s shell) plan(name string, args ...string) (offsets map[partition]int64, notes map[partition]string) {
	s.t.Helper()
	offsets, notes = map[partition]int64{}, map[partition]string{}
	for _, l := range lines(s.does("", append([]string{"group", "reset-offsets", name, "-o", "json"}, args...)...)) {
		var r struct {
			Group, Topic, Note string
			Partition          int32
			NewOffset          int64
			Executed           bool
		}
		require.NoError(s.t, json.Unmarshal([]byte(l), &r))
		require.Equal(s.t, name, r.Group)
		require.Equal(s.t, slices.Contains(args, "--execute"), r.Executed)
		offsets[partition{r.Topic, r.Partition}] = r.NewOffset
		if r.Note != "" {
			notes[partition{r.Topic, r.Partition}] = r.Note
		}
	}
	return offsets, notes
}

const kafkaGroups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

// kafkaPlan is what Apache Kafka's tool would reset to.
func (s shell) kafkaPlan(name string, args ...string) map[partition]int64 {
	s.t.Helper()
	out, errOut, code := kit.KafkaTool(s.t, "", kafkaGroups, append([]string{"--bootstrap-server", s.Addr, "--reset-offsets", "--group", name, "--export", "--dry-run"}, args...)...)
	require.Zero(s.t, code, "%v: %s%s", args, out, errOut)
	offsets := map[partition]int64{}
	for _, l := range lines(out) {
		fields, err := csv.NewReader(strings.NewReader(l)).Read()
		if l == "" || strings.HasPrefix(l, "Warn: ") {
			continue
		}
		require.NoError(s.t, err, out+errOut)
		require.Len(s.t, fields, 3, out+errOut)
		p, err := strconv.ParseInt(fields[1], 10, 32)
		require.NoError(s.t, err)
		o, err := strconv.ParseInt(fields[2], 10, 64)
		require.NoError(s.t, err)
		offsets[partition{fields[0], int32(p)}] = o
	}
	return offsets
}

// sameAsKafka compares what both say of a group's partitions.
func sameAsKafka(s shell, name string) {
	s.t.Helper()
	out, errOut, code := kit.KafkaTool(s.t, "", kafkaGroups, "--bootstrap-server", s.Addr, "--describe", "--group", name)
	require.Zero(s.t, code, out+errOut)
	kafka := map[partition][]string{}
	for _, l := range lines(out) {
		if f := strings.Fields(l); len(f) == 9 && f[0] == name {
			p, err := strconv.ParseInt(f[2], 10, 32)
			require.NoError(s.t, err)
			kafka[partition{f[1], int32(p)}] = f[3:]
		}
	}
	require.NotEmpty(s.t, kafka, out+errOut)
	number := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return strconv.FormatInt(*n, 10)
	}
	word := func(w *string) string {
		if w == nil {
			return "-"
		}
		return *w
	}
	ours := map[partition][]string{}
	for _, o := range s.group(name).Offsets {
		ours[partition{o.Topic, o.Partition}] = []string{number(o.CommittedOffset), number(o.LogEndOffset), number(o.Lag), word(o.MemberID), word(o.Host), word(o.ClientID)}
	}
	require.Equal(s.t, kafka, ours)
}

// timed writes records with these ages to a partition.
func (s shell) timed(topic string, partition int32, now time.Time, ages ...time.Duration) {
	s.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(s.t, err)
	defer cl.Close()
	for i, age := range ages {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(itoa(i)), Timestamp: now.Add(-age)}
		require.NoError(s.t, cl.ProduceSync(context.Background(), r).FirstErr())
	}
}

func resetAsKafka(s shell, topic, name string) {
	now, other := time.Now(), topic+"-other"
	s.does("", "topic", "create", topic, "--partitions", "4")
	s.does("", "topic", "create", other)
	hours := func(n ...time.Duration) []time.Duration { return n }
	s.timed(topic, 0, now, hours(5*time.Hour, 4*time.Hour, 3*time.Hour, 2*time.Hour, 30*time.Minute, 20*time.Minute, time.Minute)...)
	s.timed(topic, 1, now, hours(5*time.Hour, 5*time.Hour, 5*time.Hour)...) // 2 is empty
	s.timed(topic, 3, now, hours(5*time.Hour, 4*time.Hour, 3*time.Hour, 2*time.Hour, time.Hour, time.Minute)...)
	s.timed(other, 0, now, hours(time.Hour, time.Minute)...)
	var before kadm.Offsets
	before.AddOffset(topic, 3, 2, -1)
	_, err := s.admin().DeleteRecords(context.Background(), before)
	require.NoError(s.t, err)

	require.Contains(s.t, s.does("", "group", "reset-offsets", name, "--topic", topic, "--to", "1"), "no group "+name+" yet")
	s.fails(1, "", []string{"group", "describe", name}, "GROUP_ID_NOT_FOUND", "group list")
	made, notes := s.plan(name, "--topic", topic+":0,3", "--topic", other, "--to", "1", "--execute")
	require.Equal(s.t, map[partition]int64{{topic, 0}: 1, {topic, 3}: 2, {other, 0}: 1}, made)
	require.Equal(s.t, map[partition]string{{topic, 3}: "1 is below the start of the log"}, notes)
	sameAsKafka(s, name)
	require.Equal(s.t, "Empty", s.group(name).State)

	minutes150 := now.Add(-150 * time.Minute).UTC()
	for _, c := range []struct{ ours, kafka []string }{
		{[]string{"--to", "earliest"}, []string{"--to-earliest"}},
		{[]string{"--to", "latest"}, []string{"--to-latest"}},
		{[]string{"--to", "4"}, []string{"--to-offset", "4"}},
		{[]string{"--to", "0"}, []string{"--to-offset", "0"}},
		{[]string{"--to", "1000"}, []string{"--to-offset", "1000"}},
		{[]string{"--to", "@" + strconv.FormatInt(minutes150.UnixMilli(), 10)}, []string{"--to-datetime", minutes150.Format("2006-01-02T15:04:05.000")}},
		{[]string{"--to", "@0"}, []string{"--to-datetime", "1970-01-01T00:00:00.000"}},
		{[]string{"--by-duration", "150m"}, []string{"--by-duration", "PT2H30M"}},
		{[]string{"--by-duration", "P1D"}, []string{"--by-duration", "P1D"}},
		{[]string{"--by-duration", "0s"}, []string{"--by-duration", "PT0S"}},
		{[]string{"--shift-by", "2"}, []string{"--shift-by", "2"}},
		{[]string{"--shift-by", "-1"}, []string{"--shift-by", "-1"}},
		{[]string{"--shift-by", "-100"}, []string{"--shift-by", "-100"}},
		{[]string{"--shift-by", "9223372036854775"}, []string{"--shift-by", "9223372036854775"}},
		{[]string{"--to-current"}, []string{"--to-current"}},
	} {
		scopes := [][]string{{"--topic", topic}, {"--topic", topic + ":0,3", "--topic", other}, {"--all-topics"}}
		if c.ours[0] == "--shift-by" {
			scopes = scopes[1:]
			s.fails(1, "", append([]string{"group", "reset-offsets", name, "--topic", topic}, c.ours...), "committed nothing", "--to")
		}
		for i, scope := range scopes {
			got, _ := s.plan(name, slices.Concat(c.ours, scope)...)
			require.Len(s.t, got, []int{4, 3, 3}[i+3-len(scopes)], "%v %v", c.ours, scope)
			require.Equal(s.t, s.kafkaPlan(name, slices.Concat(c.kafka, scope)...), got, "%v %v", c.ours, scope)
		}
	}
	require.Equal(s.t, int64(4), s.group(name).committed(), "a dry run changes nothing")
	got, notes := s.plan(name, "--topic", topic, "--to-current", "--execute")
	require.Equal(s.t, map[partition]int64{{topic, 0}: 1, {topic, 1}: 3, {topic, 2}: 0, {topic, 3}: 2}, got)
	require.Len(s.t, notes, 2, "of the two that had nothing committed")
	_, notes = s.plan(name, "--topic", topic, "--to", "@"+strconv.FormatInt(now.Add(time.Hour).UnixMilli(), 10))
	require.Equal(s.t, "no record is that new: the end of the log", notes[partition{topic, 1}])
	sameAsKafka(s, name)
}

func resetByFile(s shell, topic, name string) {
	s.does("", "topic", "create", topic, "--partitions", "2")
	s.feed(topic, 2, 0, 10)
	file := filepath.Join(s.t.TempDir(), "plan.csv")
	write := func(text string) { require.NoError(s.t, os.WriteFile(file, []byte(text), 0o600)) }
	write(topic + ",0,3\n" + topic + ",1,50\n")
	want := map[partition]int64{{topic, 0}: 3, {topic, 1}: 10}
	got, notes := s.plan(name, "--from-file", file)
	require.Equal(s.t, want, got)
	require.Equal(s.t, "50 is above the end of the log", notes[partition{topic, 1}])
	require.Equal(s.t, s.kafkaPlan(name, "--from-file", file), got)
	s.plan(name, "--from-file", file, "--execute")
	require.Equal(s.t, int64(13), s.group(name).committed())

	kept := s.does("", "group", "reset-offsets", name, "--all-topics", "--to-current", "-o", "json")
	s.does("", "consume", topic, "--group", name, "--exit-at-end")
	require.Equal(s.t, int64(20), s.group(name).committed())
	s.does(kept, "group", "reset-offsets", name, "--from-file", "-", "--execute")
	require.Equal(s.t, int64(13), s.group(name).committed(), "as it was")

	reset := func(words ...string) {
		s.t.Helper()
		s.fails(2, "", []string{"group", "reset-offsets", name, "--from-file", file}, words...)
	}
	write("other," + topic + ",0,3\n")
	reset("none of group " + name)
	write("\n")
	reset("no offsets")
	write(topic + ",0,3\n" + topic + ",zero,3\n")
	reset("line 2", "want a partition and an offset")
	s.fails(2, "", []string{"group", "reset-offsets", name, "--from-file", file + ".not"}, "no such file")
}

func offsetsAndGroupsDeleted(s shell, topic, name string) {
	s.does("", "topic", "create", topic, "--partitions", "3")
	s.feed(topic, 3, 0, 5)
	s.does("", "consume", topic, "--group", name, "--exit-at-end")
	s.does("", "consume", topic, "--group", name+"-2", "--exit-at-end")
	require.Regexp(s.t, `^topic +partition +deleted offset\n`+topic+` +1 +5\n$`, s.does("", "group", "delete-offsets", name, "--topic", topic+":1"))
	g := s.group(name)
	require.Len(s.t, g.Offsets, 2)
	require.Equal(s.t, int64(10), g.committed())
	sameAsKafka(s, name)
	deleted := lines(s.does("", "group", "delete-offsets", name+"-2", "--topic", topic, "-o", "json"))
	require.Len(s.t, deleted, 3)
	require.InDelta(s.t, 5, keysOf(s.t, deleted[0])["oldOffset"], 0)

	out, errOut, code := s.CLI("", "group", "delete", name, name+"-never", "-o", "json")
	require.Equal(s.t, 1, code)
	require.Equal(s.t, map[string]any{"group": name, "deleted": true}, keysOf(s.t, out))
	require.Contains(s.t, errOut, "GROUP_ID_NOT_FOUND: there is no group "+name+"-never")
	s.fails(1, "", []string{"group", "describe", name}, "GROUP_ID_NOT_FOUND")
	require.NotContains(s.t, s.does("", "group", "list"), name+" ")
	require.Len(s.t, lines(s.does("", "consume", topic, "--group", name, "--exit-at-end")), 15, "it begins anew")
}

// consumerProtocol has a member of KIP-848, and then one of ours in its group.
func consumerProtocol(s shell, topic, name string) {
	s.does("", "topic", "create", topic, "--partitions", "2")
	s.feed(topic, 2, 0, 5)
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.ServerSideBalancer(),
		kgo.Balancers(kgo.StickyBalancer()), kgo.DisableAutoCommit(), kgo.ClientID("next"))
	require.NoError(s.t, err)
	closed := false
	defer func() {
		if !closed {
			cl.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	read := 0
	for read < 10 {
		fetches := cl.PollFetches(ctx)
		require.NoError(s.t, fetches.Err())
		read += fetches.NumRecords()
	}
	require.NoError(s.t, cl.CommitUncommittedOffsets(ctx))
	g := s.group(name)
	require.Equal(s.t, "consumer", g.Type)
	require.Equal(s.t, "Stable", g.State)
	require.Equal(s.t, "uniform", g.Assignor)
	require.NotNil(s.t, g.Epoch)
	require.NotNil(s.t, g.AssignmentEpoch)
	require.Len(s.t, g.Members, 1)
	require.NotNil(s.t, g.Members[0].Epoch)
	require.Equal(s.t, g.Members[0].Assignment, g.Members[0].TargetAssignment)
	require.Equal(s.t, "next", g.Members[0].ClientID)
	sameAsKafka(s, name)
	require.Contains(s.t, s.does("", "group", "describe", name, "--members"), topic+":0,1")
	require.Contains(s.t, s.does("", "group", "list", "--type", "consumer"), name)
	require.NotContains(s.t, s.does("", "group", "list", "--type", "classic"), name)
	s.fails(1, "", []string{"group", "reset-offsets", name, "--all-topics", "--to", "0"}, "NON_EMPTY_GROUP", "1 member")
	s.fails(1, "", []string{"group", "delete", name}, "NON_EMPTY_GROUP")

	closed = true
	cl.Close()
	kit.Eventually(s.t, 20*time.Second, "the member has left", func() bool { return s.group(name).State == "Empty" })
	got, _ := s.plan(name, "--all-topics", "--shift-by", "-2", "--execute")
	require.Equal(s.t, map[partition]int64{{topic, 0}: 3, {topic, 1}: 3}, got)
	require.Len(s.t, lines(s.does("", "consume", topic, "--group", name, "--exit-at-end")), 4)
	require.Equal(s.t, int64(10), s.group(name).committed())
}

func groupMistakes(s shell, topic, name string) {
	s.does("", "topic", "create", topic, "--partitions", "2")
	s.feed(topic, 2, 0, 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.ConsumerGroup(name+"-range"), kgo.ConsumeTopics(topic), kgo.Balancers(kgo.RangeBalancer()))
	require.NoError(s.t, err)
	defer cl.Close()
	kit.Eventually(s.t, 30*time.Second, "a member with another assignor is there", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return cl.PollFetches(ctx).NumRecords() > 0
	})
	reset := func(args ...string) []string { return append([]string{"group", "reset-offsets", name}, args...) }
	for _, m := range []struct {
		code  int
		args  []string
		words []string
	}{
		{2, []string{"group", "lst"}, []string{"lst", "--help"}},
		{2, []string{"group", "list", "extra"}, []string{"no argument"}},
		{2, []string{"group", "list", "--state", "stabel"}, []string{"--state stabel", "PreparingRebalance"}},
		{2, []string{"group", "list", "--type", "new"}, []string{"--type new", "classic"}},
		{2, []string{"group", "describe"}, []string{"name of a group"}},
		{2, []string{"group", "describe", ""}, []string{"not empty"}},
		{2, []string{"group", "delete"}, []string{"name of a group"}},
		{2, []string{"group", "reset-offsets", "a", "b"}, []string{"one group name"}},
		{2, reset(), []string{"one of --to, --shift-by"}},
		{2, reset("--to", "0"), []string{"--topic or --all-topics"}},
		{2, reset("--to", "0", "--shift-by", "0", "--all-topics"), []string{"one of --to, --shift-by"}},
		{2, reset("--to", "0", "--all-topics", "--topic", topic), []string{"not both"}},
		{2, reset("--to", "0", "--topic", topic, "--execute", "--dry-run"), []string{"not both"}},
		{2, reset("--to", "yesterday", "--all-topics"), []string{"--to yesterday", "@unix-ms"}},
		{2, reset("--to", "-1", "--all-topics"), []string{"--to -1"}},
		{2, reset("--to", "@-1", "--all-topics"), []string{"--to @-1"}},
		{2, reset("--to", "", "--all-topics"), []string{"@unix-ms"}},
		{2, reset("--by-duration", "1", "--all-topics"), []string{"--by-duration 1", "P1DT12H"}},
		{2, reset("--shift-by", "some", "--all-topics"), []string{"--shift-by some: want a whole number"}},
		{2, reset("--to", "0", "--topic", topic+":x"), []string{"--topic " + topic + ":x", "TOPIC:0,1"}},
		{1, reset("--to", "0", "--topic", topic+":7"), []string{"UNKNOWN_TOPIC_OR_PARTITION", "2 partitions", "no partition 7"}},
		{1, reset("--to", "0", "--topic", "nowhere"), []string{"UNKNOWN_TOPIC_OR_PARTITION", "nowhere"}},
		{1, reset("--to", "0", "--all-topics"), []string{"committed nothing", "--topic"}},
		{2, []string{"group", "delete-offsets", name}, []string{"--topic"}},
		{1, []string{"group", "delete-offsets", name, "--topic", "nowhere"}, []string{"UNKNOWN_TOPIC_OR_PARTITION", "nowhere"}},
		{1, []string{"group", "delete-offsets", name, "--topic", topic}, []string{"GROUP_ID_NOT_FOUND", "group list"}},
		{1, []string{"group", "describe", name}, []string{"GROUP_ID_NOT_FOUND", name}},
		{1, []string{"group", "delete", name}, []string{"GROUP_ID_NOT_FOUND", name}},
		{1, []string{"consume", "nowhere", "--group", name}, []string{"UNKNOWN_TOPIC_OR_PARTITION", "nowhere"}},
		{2, []string{"consume", topic, "--group", name, "--partition", "0"}, []string{"--partition", "--group"}},
		{2, []string{"consume", topic, "--group", name, "--offset", "yesterday"}, []string{"@unix-ms"}},
		{1, []string{"consume", topic, "--group", name + "-range"}, []string{"INCONSISTENT_GROUP_PROTOCOL", "cooperative-sticky", "another --group"}},
	} {
		s.fails(m.code, "", m.args, m.words...)
	}
	require.Contains(s.t, s.does("", "group", "--help"), "reset-offsets billing --topic orders:0,1 --to earliest")
}

// TestMetricsOfGroups reads the lag of each partition and the states of groups from
// the metrics, of both protocols, while members come and go.
// TestNoCoordinator: where the offsets topic cannot be made, commands say what is
// missing once their time is over, and the log says why, once.
func TestNoCoordinator(t *testing.T) {
	server := kit.Start(t, map[string]string{"offsets.topic.replication.factor": "3"})
	s := shell{server, t}
	s.does("", "topic", "create", "a")
	for _, args := range [][]string{
		{"group", "describe", "g"}, {"group", "delete", "g"}, {"group", "delete-offsets", "g", "--topic", "a"},
		{"group", "reset-offsets", "g", "--topic", "a", "--to", "earliest"}, {"consume", "a", "--group", "g", "--exit-at-end"},
	} {
		s.fails(1, "", append(args, "--timeout", "1s"), "COORDINATOR_NOT_AVAILABLE", "the coordinator of group g", "broker's log")
	}
	require.Equal(t, 1, strings.Count(server.Log(), "topic not created"), "it is said once a minute")
}

func TestMetricsOfGroups(t *testing.T) {
	s := shell{kit.Start(t, map[string]string{
		"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4", "offsets.retention.check.interval.ms": "200",
	}), t}
	s.does("", "topic", "create", "t", "--partitions", "2")
	s.feed("t", 2, 0, 50)
	s.does("", "consume", "t", "--group", "g", "--exit-at-end")
	s.feed("t", 1, 50, 57)
	lags := func(group string) (at [2]float64) {
		for p := range at {
			at[p] = s.Metric("strandline_group_lag", `group="`+group+`"`, `topic="t"`, fmt.Sprintf("partition=%q", itoa(p)))
		}
		return at
	}
	count := func(kind, state string) float64 {
		return s.Metric("strandline_groups", `type="`+kind+`"`, `state="`+state+`"`)
	}
	eventually := func(what string, cond func() bool) {
		t.Helper()
		kit.Eventually(t, 20*time.Second, what, cond)
	}
	require.Equal(t, [2]float64{7, 0}, lags("g"))
	eventually("the group without members is counted", func() bool {
		return count("classic", "Empty") == 1 && s.Metric("strandline_group_offsets") == 2
	})
	commits, rebalances := s.Metric("strandline_group_offset_commits_total"), s.Metric("strandline_group_rebalances_total", `type="classic"`)

	r := s.reader("t", "--group", "g")
	eventually("its member reads", func() bool { return count("classic", "Stable") == 1 && count("classic", "Empty") == 0 })
	eventually("nothing is left", func() bool { return lags("g") == [2]float64{} })
	require.Greater(t, s.Metric("strandline_group_offset_commits_total"), commits)
	require.Greater(t, s.Metric("strandline_group_rebalances_total", `type="classic"`), rebalances)

	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.ConsumerGroup("next"), kgo.ConsumeTopics("t"), kgo.ServerSideBalancer(),
		kgo.Balancers(kgo.StickyBalancer()), kgo.DisableAutoCommit())
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.PollRecords(t.Context(), 1).Err())
	eventually("the other group has a member", func() bool { return count("consumer", "Stable") == 1 })
	cl.CommitOffsetsSync(t.Context(), map[string]map[int32]kgo.EpochOffset{"t": {0: {Epoch: -1, Offset: 7}, 1: {Epoch: -1, Offset: 50}}},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
			require.NoError(t, err)
		})
	require.Equal(t, [2]float64{50, 0}, lags("next"))

	r.stop(t)
	cl.Close()
	eventually("nobody is left", func() bool {
		return count("classic", "Empty") == 1 && count("consumer", "Empty") == 1 && count("classic", "Stable")+count("consumer", "Stable") == 0
	})
	s.does("", "group", "delete", "g", "next")
	eventually("nothing is left of them", func() bool { return s.Metric("strandline_groups") == 0 })
	_, page := s.Get("/metrics")
	require.NotContains(t, page, "strandline_group_lag{")
}
