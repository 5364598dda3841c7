package scale

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// groupLoad is how many groups commit how many offsets each, over how many
// connections with one request in flight each.
type groupLoad struct {
	groups, offsets, connections int
	// again are the commits that are timed, over several times the connections,
	// after every group is there.
	again int
}

func groupName(n int) string { return fmt.Sprintf("group-%06d", n) }

const groupsTopic = "committed"

// commitOf commits one offset for every partition.
func (g groupLoad) commitOf(n int, at int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, groupName(n), -1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = groupsTopic
	for p := range g.offsets {
		q := kmsg.NewOffsetCommitRequestTopicPartition()
		q.Partition, q.Offset, q.LeaderEpoch = int32(p), at, -1
		topic.Partitions = append(topic.Partitions, q)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

// refusal is the first error of an answer.
func refusal(resp *kmsg.OffsetCommitResponse) error {
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			if p.ErrorCode != 0 {
				return kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return nil
}

// commit has the connections commit for the groups from a first one to a last,
// exclusive, going round where count is more than that. It returns the times of
// the answers, sorted.
func (g groupLoad) commit(t testing.TB, addr string, connections, count int, at int64) []time.Duration {
	t.Helper()
	all := make([][]time.Duration, connections)
	var wg sync.WaitGroup
	for c := range connections {
		conn := kit.Dial(t, addr)
		wg.Go(func() {
			defer conn.Close()
			for i := c; i < count; i += connections {
				began := time.Now()
				err := g.commitUntilAnswered(conn, i%g.groups, at)
				if err != nil {
					t.Errorf("commit for %s: %v", groupName(i%g.groups), err)
					return
				}
				all[c] = append(all[c], time.Since(began))
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	sorted := slices.Concat(all...)
	slices.Sort(sorted)
	return sorted
}

// commitUntilAnswered asks again where the log took too long: a disk that others
// use may stand still for longer than offsets.commit.timeout.ms.
func (g groupLoad) commitUntilAnswered(conn *kit.Raw, n int, at int64) error {
	for range 20 {
		resp, err := conn.Try(g.commitOf(n, at))
		if err != nil {
			return err
		}
		if err = refusal(resp.(*kmsg.OffsetCommitResponse)); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			return err
		}
	}
	return kerr.CoordinatorNotAvailable
}

// prepare makes the topic and waits until groups are served.
func (g groupLoad) prepare(t testing.TB, addr string) {
	t.Helper()
	l := &load{t: t, size: size{topics: 1, partitions: g.offsets}, conn: kit.Dial(t, addr)}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 15_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = groupsTopic, int32(g.offsets), 1
	req.Topics = append(req.Topics, topic)
	require.Zero(t, l.conn.Call(req).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	kit.Eventually(t, time.Minute, "a coordinator is found", func() bool {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKeys = 4, []string{groupName(0)}
		return l.conn.Call(find).(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode == 0
	})
	g.allServed(t, l.conn)
}

// allServed waits until every group's coordinator is loaded: there are 50
// partitions, which the first hundreds of names cover.
func (g groupLoad) allServed(t testing.TB, conn *kit.Raw) {
	t.Helper()
	req := kmsg.NewPtrListGroupsRequest()
	req.Version = 4
	kit.Eventually(t, 10*time.Minute, "every coordinator is loaded", func() bool {
		if resp, err := conn.Try(req); err != nil || resp.(*kmsg.ListGroupsResponse).ErrorCode != 0 {
			return false
		}
		for n := range min(g.groups, 500) {
			if _, err := g.fetch(conn, n); err != nil {
				return false
			}
		}
		return true
	})
}

// fetch reads what a group has committed: the offset of its last partition.
func (g groupLoad) fetch(conn *kit.Raw, n int) (int64, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 8
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = groupName(n)
	req.Groups = append(req.Groups, group)
	resp, err := conn.Try(req)
	if err != nil {
		return 0, err
	}
	got := resp.(*kmsg.OffsetFetchResponse).Groups[0]
	if got.ErrorCode != 0 {
		return 0, kerr.ErrorForCode(got.ErrorCode)
	}
	if len(got.Topics) == 0 {
		return -1, nil
	}
	if len(got.Topics[0].Partitions) != g.offsets {
		return 0, fmt.Errorf("%d of %d offsets", len(got.Topics[0].Partitions), g.offsets)
	}
	return got.Topics[0].Partitions[g.offsets-1].Offset, nil
}

// requireAll reads every group's offsets, and gives how long one takes.
func (g groupLoad) requireAll(t testing.TB, addr string, want func(n int) int64) []time.Duration {
	t.Helper()
	conn := kit.Dial(t, addr)
	defer conn.Close()
	var took []time.Duration
	for n := range g.groups {
		began := time.Now()
		got, err := g.fetch(conn, n)
		// Another partition of the topic may be served later than the first.
		for deadline := time.Now().Add(time.Minute); errors.Is(err, kerr.CoordinatorLoadInProgress) && time.Now().Before(deadline); {
			got, err = g.fetch(conn, n)
		}
		require.NoError(t, err, groupName(n))
		require.Equal(t, want(n), got, groupName(n))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took
}

// list gives how long it takes to list all groups.
func (g groupLoad) list(t testing.TB, addr string) time.Duration {
	t.Helper()
	conn := kit.Dial(t, addr)
	defer conn.Close()
	req := kmsg.NewPtrListGroupsRequest()
	req.Version = 4
	began := time.Now()
	resp := conn.Call(req).(*kmsg.ListGroupsResponse)
	took := time.Since(began)
	require.Zero(t, resp.ErrorCode)
	require.Len(t, resp.Groups, g.groups)
	return took
}

// describe gives how long it takes to describe some groups, one at a time.
func (g groupLoad) describe(t testing.TB, addr string, count int) []time.Duration {
	t.Helper()
	conn := kit.Dial(t, addr)
	defer conn.Close()
	var took []time.Duration
	for n := range count {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = 5, []string{groupName(n * g.groups / count)}
		began := time.Now()
		got := conn.Call(req).(*kmsg.DescribeGroupsResponse).Groups[0]
		took = append(took, time.Since(began))
		require.Zero(t, got.ErrorCode)
		require.Equal(t, "Empty", got.State)
	}
	slices.Sort(took)
	return took
}

// requireServed asks each group once: a broker that says that it is ready has
// loaded them.
func (g groupLoad) requireServed(t testing.TB, addr string) {
	t.Helper()
	conn := kit.Dial(t, addr)
	defer conn.Close()
	for n := range g.groups {
		_, err := g.fetch(conn, n)
		require.NoError(t, err, groupName(n))
	}
}

// TestManyGroups holds what must not grow with the number of groups, and that
// all of them come back after kill -9 and are served once the broker is ready.
func TestManyGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	g := groupLoad{groups: 1000, offsets: 10, connections: 20, again: 1000}
	s := kit.Start(t, nil)
	s.Set("listeners", "PLAINTEXT://"+s.Addr)
	g.prepare(t, s.Addr)
	goroutines, before := s.Metric("go_goroutines"), kit.ProcessOf(t, s.Pid())
	g.commit(t, s.Addr, g.connections, g.groups, 1)
	g.commit(t, s.Addr, g.connections, g.again, 2)
	want := func(int) int64 { return 2 }
	g.requireAll(t, s.Addr, want)
	kit.Eventually(t, time.Minute, "goroutines do not grow with groups", func() bool { return s.Metric("go_goroutines")-goroutines < 50 })
	full := kit.ProcessOf(t, s.Pid())
	t.Logf("%d groups: %+v, without them %+v", g.groups, full, before)
	require.Less(t, full.Descriptors-before.Descriptors, 100)
	s.Restart(true)
	g.requireServed(t, s.Addr)
	g.requireAll(t, s.Addr, want)
	g.list(t, s.Addr)
	g.describe(t, s.Addr, 100)
	s.Restart(false)
	g.requireServed(t, s.Addr)
	g.requireAll(t, s.Addr, want)
	require.Zero(t, s.Metric("strandline_coordinator_views_rebuilt_total"))
}

// TestHundredThousandGroups prints what they cost, beside Apache Kafka unless
// SCALE_ALONE is set.
func TestHundredThousandGroups(t *testing.T) {
	if !kit.Long() {
		return // TestManyGroups is the short form; this one is make test-long-scale
	}
	g := groupLoad{groups: 100_000, offsets: 10, connections: 50, again: 50_000}
	rows := newTable()
	defer func() { t.Log("\n" + rows.String()) }()
	s := kit.New(t, t.TempDir(), map[string]string{"log.level": "warn"})
	walkGroups(t, rows, system{
		broker: s, name: "Strandline", syncs: true,
		addr: func() string {
			require.NoError(t, s.AwaitReady(10*time.Minute))
			return s.Addr
		},
		stop: func() { s.Signal(syscall.SIGTERM); <-s.Exited() },
	}, g)
	s.Kill()
	if os.Getenv("SCALE_ALONE") == "" {
		k := kit.NewKafka(t, t.TempDir(), "2G", nil)
		walkGroups(t, rows, system{broker: k, name: "Apache Kafka " + kit.KafkaVersion, addr: func() string { return k.Addr }, stop: k.Stop}, g)
	}
}

// beginGroups starts a system and returns once every group is served.
func beginGroups(t testing.TB, sys system, g groupLoad, made bool) (string, cost) {
	kit.Binary(t) // built before anything is timed
	m := measure()
	sys.Spawn()
	addr := sys.addr()
	var conn *kit.Raw
	kit.Eventually(t, 10*time.Minute, "the broker answers", func() bool {
		c, err := kit.TryDial(t, addr)
		conn = c
		return err == nil
	})
	if made {
		g.allServed(t, conn)
	} else {
		g.prepare(t, addr)
	}
	return addr, m.since(t, sys.Pid(), 0)
}

func walkGroups(t *testing.T, rows *table, sys system, g groupLoad) {
	put := func(row, format string, args ...any) {
		rows.put(row, sys.name, fmt.Sprintf(format, args...))
		t.Logf("%s: %s: %s", sys.name, row, fmt.Sprintf(format, args...))
	}
	cpu := func() time.Duration { return kit.ProcessOf(t, sys.Pid()).CPU }
	resident := func(when string) {
		put("resident, "+when, "%d MiB", kit.ProcessOf(t, sys.Pid()).ResidentBytes>>20)
	}
	addr, c := beginGroups(t, sys, g, false)
	put("start on empty directories, to the first coordinator", "%v", c)
	resident("without groups")
	m, before := measure(), cpu()
	g.commit(t, addr, g.connections, g.groups, 1)
	put("every group commits once", "%v", m.since(t, sys.Pid(), before))
	resident("with all groups")
	for _, connections := range []int{1, g.connections} {
		count := g.again / max(1, g.connections/connections/5)
		m, before = measure(), cpu()
		took := g.commit(t, addr, connections, count, 2)
		c = m.since(t, sys.Pid(), before)
		put(fmt.Sprintf("commits a second, %d connections", connections), "%.0f; %.0f us CPU each", float64(count)/c.wall.Seconds(), c.cpu.Seconds()*1e6/float64(count))
		put(fmt.Sprintf("the same, p50 p99 ms, %d connections", connections), "%.2f %.2f", ms(took, 50), ms(took, 99))
	}
	// Whether a commit is on the disk when it is answered is a setting of the topic,
	// with another default in each system.
	for _, synced := range []bool{!sys.syncs, sys.syncs} {
		how, flush := "none synced", fmt.Sprint(int64(math.MaxInt64))
		if synced {
			how, flush = "each synced before its answer", "1"
		}
		setFlush(t, addr, flush)
		m, before = measure(), cpu()
		took := g.commit(t, addr, g.connections, g.again, 2)
		c = m.since(t, sys.Pid(), before)
		put(fmt.Sprintf("commits a second, %d connections, %s", g.connections, how), "%.0f; %.0f us CPU each; p50 p99 ms %.2f %.2f",
			float64(g.again)/c.wall.Seconds(), c.cpu.Seconds()*1e6/float64(g.again), ms(took, 50), ms(took, 99))
	}
	m, before = measure(), cpu()
	g.commit(t, addr, g.connections, g.groups, 3)
	put("every group commits once more", "%v", m.since(t, sys.Pid(), before))
	three := func(int) int64 { return 3 }
	took := g.requireAll(t, addr, three)
	put("OffsetFetch of a group, p50 p99 ms", "%.2f %.2f", ms(took, 50), ms(took, 99))
	g.measureLists(t, addr, put)
	resident("after all that")
	m = measure()
	sys.stop()
	put("orderly stop", "%.2f s", time.Since(m.began).Seconds())
	addr, c = beginGroups(t, sys, g, true)
	put("every group served after that stop", "%v", c)
	resident("after that start")
	g.requireAll(t, addr, three)
	g.commit(t, addr, g.connections, g.groups/10, 4)
	sys.Kill()
	addr, c = beginGroups(t, sys, g, true)
	put("every group served after kill -9", "%v", c)
	resident("after that")
	g.requireAll(t, addr, func(n int) int64 {
		if n < g.groups/10 {
			return 4
		}
		return 3
	})
	g.measureLists(t, addr, func(row, format string, args ...any) { put(row+", after kill -9", format, args...) })
}

// setFlush sets flush.messages of the topic of offsets.
func setFlush(t testing.TB, addr, value string) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "__consumer_offsets"
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = "flush.messages", kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr(value)
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	conn := kit.Dial(t, addr)
	for _, r := range conn.Call(req).(*kmsg.IncrementalAlterConfigsResponse).Resources {
		require.Zero(t, r.ErrorCode, "%v", r.ErrorMessage)
	}
}

func (g groupLoad) measureLists(t *testing.T, addr string, put func(row, format string, args ...any)) {
	var lists []string
	for range 3 {
		lists = append(lists, fmt.Sprintf("%.0f", g.list(t, addr).Seconds()*1000))
	}
	put("ListGroups of all, three times, ms", "%s", strings.Join(lists, " "))
	took := g.describe(t, addr, 1000)
	put("DescribeGroups of one, p50 p99 ms", "%.2f %.2f", ms(took, 50), ms(took, 99))
}
