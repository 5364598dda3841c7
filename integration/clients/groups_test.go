package clients

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

const (
	groupPartitions = 6
	groupLimit      = 60 * time.Second
)

// group is a consumer group whose members are processes of one client.
type group struct {
	t                *testing.T
	client, protocol string
	name, topic      string
	subscription     string // of members that are prepared: topic, or an expression
	session          time.Duration
	server           *kit.Server
	kgo              *kgo.Client
	admin            *kadm.Client
	readers          sync.WaitGroup

	mu      sync.Mutex
	members []*member
	seen    map[[2]int]int // partition and offset: how often it was read
}

// newGroup starts a server with short timeouts for one group, and makes its topic.
func newGroup(t *testing.T, client, protocol string, session time.Duration) *group {
	g := &group{t: t, client: client, protocol: protocol, name: "g", topic: "t", subscription: "t", session: session, seen: map[[2]int]int{}}
	t.Cleanup(g.end)
	g.server = kit.Start(t, map[string]string{
		"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "200",
		"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": fmt.Sprint(session.Milliseconds()),
		"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "300",
	})
	g.server.Set("listeners", "PLAINTEXT://"+g.server.Addr) // the same after a restart
	t.Cleanup(g.tell)
	var err error
	g.kgo, err = kgo.NewClient(kgo.SeedBrokers(g.server.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression())) // kafkajs reads no other by itself
	require.NoError(t, err)
	t.Cleanup(g.kgo.Close)
	g.admin = kadm.NewClient(g.kgo)
	_, err = g.admin.CreateTopic(g.context(), groupPartitions, 1, nil, g.topic)
	require.NoError(t, err)
	return g
}

// tell logs what the server knows of the group, where the test has failed.
func (g *group) tell() {
	if g.t.Failed() {
		out, errOut, _ := g.server.CLI("", "group", "describe", g.name)
		g.t.Logf("%s%s", out, errOut)
	}
}

func (g *group) context() context.Context {
	ctx, cancel := context.WithTimeout(g.t.Context(), groupLimit)
	g.t.Cleanup(cancel)
	return ctx
}

// produce writes so many records to each partition.
func (g *group) produce(count int) {
	g.t.Helper()
	var records []*kgo.Record
	for i := range count * groupPartitions {
		records = append(records, &kgo.Record{Topic: g.topic, Partition: int32(i % groupPartitions), Value: fmt.Append(nil, "record ", i)})
	}
	require.NoError(g.t, g.kgo.ProduceSync(g.context(), records...).FirstErr())
}

// settled waits until the members, and they alone, hold all partitions, each as
// many, and none has two holders.
func (g *group) settled(members ...*member) {
	g.t.Helper()
	kit.Eventually(g.t, groupLimit, fmt.Sprintf("%d members share the partitions of %s", len(members), g.client), func() bool {
		var all []int
		for _, m := range members {
			held := m.holds()
			if len(held) != groupPartitions/len(members) {
				return false
			}
			all = append(all, held...)
		}
		slices.Sort(all)
		return slices.Equal(all, []int{0, 1, 2, 3, 4, 5})
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		require.True(g.t, slices.Contains(members, m) || len(m.holds()) == 0, "%s holds nothing any more", m.name)
	}
}

// committed asks for the group's offsets, by partition; -1 is none.
func (g *group) committed() (offsets [groupPartitions]int64) {
	g.t.Helper()
	got, err := g.admin.FetchOffsets(g.context(), g.name)
	require.NoError(g.t, err)
	for p := range offsets {
		offsets[p] = -1
		if at, ok := got.Lookup(g.topic, int32(p)); ok {
			require.NoError(g.t, at.Err)
			offsets[p] = at.At
		}
	}
	return offsets
}

// caughtUp waits until all records are read and committed. What is committed has
// been read, at every time.
func (g *group) caughtUp() {
	g.t.Helper()
	ends, err := g.admin.ListEndOffsets(g.context(), g.topic)
	require.NoError(g.t, err)
	require.NoError(g.t, ends.Error())
	kit.Eventually(g.t, groupLimit, g.client+": everything is read and committed", func() bool {
		for p, at := range g.committed() {
			if end, _ := ends.Lookup(g.topic, int32(p)); at != end.Offset {
				return false
			}
		}
		return true
	})
	// A member says what it has read before it commits: it is on its way at most.
	kit.Eventually(g.t, groupLimit, g.client+": what is committed was read", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for p, end := range ends[g.topic] {
			for o := range int(end.Offset) {
				if g.seen[[2]int{int(p), o}] == 0 {
					return false
				}
			}
		}
		return true
	})
}

// TestGroups has three members share a topic, join, leave, crash and come back,
// and the server killed under them and without them. Whatever the client and the
// protocol: all partitions have one holder after each step, all records are read,
// what is committed has been read and what comes after it is read next.
func TestGroups(t *testing.T) {
	for _, c := range []struct {
		client, protocol string
		static           bool
	}{
		{"java", "eager", false},
		{"java", "cooperative", false},
		{"java", "eager", true},
		{"java", "consumer", false},
		{"java", "consumer", true},
		{"franz-go", "eager", false},
		{"franz-go", "cooperative", false},
		{"franz-go", "cooperative", true},
		{"franz-go", "consumer", false},
		{"confluent", "eager", false},
		{"confluent", "cooperative", true},
		{"confluent", "consumer", false},
		{"kafka-python", "eager", false},
		{"kafka-python", "cooperative", true},
		{"aiokafka", "eager", false},
		{"sarama", "eager", true},
		{"kafka-go", "eager", false},
		{"kafkajs", "eager", false},
		{"kcat", "eager", true},
	} {
		name := c.client + " " + c.protocol
		if c.static {
			name += " static"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			session := 3 * time.Second
			if c.static { // it must come back before its session ends, on a busy machine too
				session *= 10
			}
			lifeOfAGroup(newGroup(t, c.client, c.protocol, session), c.static)
		})
	}
}

// serverKills is how often the server is killed under the three members.
func serverKills() int {
	if kit.Long() {
		return 10
	}
	return 1
}

func lifeOfAGroup(g *group, static bool) {
	instance := func(name string) string {
		if static {
			return name
		}
		return ""
	}
	g.produce(20)
	a := g.start(instance("a"))
	g.settled(a)
	b := g.start(instance("b"))
	g.settled(a, b)
	g.produce(20)
	c := g.start(instance("c"))
	g.settled(a, b, c)
	g.caughtUp()

	for range serverKills() {
		g.produce(20)
		g.server.Restart(true)
		if g.client == "kcat" { // it ends when no broker is there
			a.kill()
			b.kill()
			c.kill()
			a, b, c = g.start(instance("a")), g.start(instance("b")), g.start(instance("c"))
		}
		g.produce(20)
		g.caughtUp()
		g.settled(a, b, c)
	}

	if static {
		before, told := c.holds(), a.toldTimes()+b.toldTimes()
		again := g.prepare(instance("c"))
		if g.protocol == "consumer" {
			g.leave(c) // its id is not given away otherwise, until its session ends
		} else {
			c.kill()
		}
		c = again
		g.join(c)
		g.settled(a, b, c)
		require.Equal(g.t, before, c.holds(), "a static member finds what it held")
		g.produce(20)
		g.caughtUp()
		require.Equal(g.t, told, a.toldTimes()+b.toldTimes(), "nobody else heard of it")
	}

	// A static member that has left is still one, until its session ends or it is
	// taken out.
	gone := func(name string) {
		if static {
			g.evict(name)
		}
	}
	g.leave(b)
	gone("b")
	g.settled(a, c)
	g.produce(20)
	c.kill()
	gone("c")
	g.settled(a)
	g.caughtUp()
	g.leave(a)
	gone("a")

	g.server.Restart(true)
	committed := g.committed()
	g.produce(20)
	d := g.start(instance("d"))
	g.settled(d)
	g.caughtUp()
	d.mu.Lock()
	for p, at := range committed {
		require.Equal(g.t, at, d.first[p], "partition %d: the first record that is read after a restart", p)
	}
	d.mu.Unlock()
	g.leave(d)
	for _, m := range g.members {
		for _, line := range m.heard() {
			require.NotRegexp(g.t, "^(failed|fenced)", line, m.name)
		}
	}
}

// evict takes a static member out of the group, as an administrator does.
func (g *group) evict(instance string) {
	g.t.Helper()
	left, err := g.admin.LeaveGroup(g.context(), kadm.LeaveGroup(g.name).InstanceIDs(instance))
	require.NoError(g.t, err)
	require.NoError(g.t, left.Error())
}

// TestAMemberComesInOneRebalance (GR-01): each member that joins, and one that
// crashes, costs one generation, and nobody who lives is told that he is unknown.
func TestAMemberComesInOneRebalance(t *testing.T) {
	t.Parallel()
	g := newGroup(t, "franz-go", "eager", 3*time.Second)
	a := g.start("")
	g.settled(a)
	require.Equal(t, 1, a.generationNow())
	b := g.start("")
	g.settled(a, b)
	require.Equal(t, []int{2, 2}, []int{a.generationNow(), b.generationNow()})
	c := g.start("")
	g.settled(a, b, c)
	require.Equal(t, []int{3, 3, 3}, []int{a.generationNow(), b.generationNow(), c.generationNow()})
	a.kill()
	g.settled(b, c)
	require.Equal(t, []int{4, 4}, []int{b.generationNow(), c.generationNow()})
	g.produce(10)
	g.caughtUp()
	for _, m := range g.members {
		require.NotContains(t, strings.Join(m.heard(), "\n"), "UNKNOWN_MEMBER_ID", m.name)
	}
}

// TestAnInstanceIsOneMember (GR-07): of two processes with one instance id the
// newer stays, during a rebalance too, the older is told, and no record is read
// twice. kafka-python tells its user of it at the next commit only, and reads on.
func TestAnInstanceIsOneMember(t *testing.T) {
	for _, client := range []string{"java", "franz-go", "confluent", "sarama"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, client, "eager", 3*time.Second)
			older, other := g.start("x"), g.start("y")
			g.settled(older, other)
			g.produce(10)
			g.caughtUp()
			third, newer := g.prepare("z"), g.prepare("x")
			g.join(third)
			g.join(newer)
			kit.Eventually(t, groupLimit, "the older one is told", older.isFenced)
			g.settled(newer, other, third)
			g.produce(10)
			g.caughtUp()
			g.mu.Lock()
			defer g.mu.Unlock()
			for at, times := range g.seen {
				require.Equal(t, 1, times, "%v", at)
			}
		})
	}
}

// TestMembersSubscribeByExpression: members of KIP-848 whose regular expression the
// broker matches share a topic that is made after they have joined.
func TestMembersSubscribeByExpression(t *testing.T) {
	for _, client := range []string{"java", "confluent"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, client, "consumer", 3*time.Second)
			g.subscription = "^late.*"
			a := g.start("")
			b := g.start("")
			kit.Eventually(t, groupLimit, "both are members", func() bool {
				d, err := g.admin.DescribeConsumerGroups(g.context(), g.name)
				return err == nil && len(d[g.name].Members) == 2
			})
			require.Empty(t, append(a.holds(), b.holds()...))
			g.topic = "later"
			_, err := g.admin.CreateTopic(g.context(), groupPartitions, 1, nil, g.topic)
			require.NoError(t, err)
			g.settled(a, b)
			g.produce(10)
			g.caughtUp()
			g.leave(b)
			g.settled(a)
		})
	}
}

// TestProtocolsChangeUnderMembers: a member of KIP-848 joins one of the classic
// protocol, whose group is upgraded; one of the classic protocol joins it, and stays
// in a group that is downgraded. Nobody stops reading.
func TestProtocolsChangeUnderMembers(t *testing.T) {
	for client, classic := range map[string]string{"java": "cooperative", "confluent": "eager"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, client, classic, 10*time.Second)
			is := func(kind string) {
				t.Helper()
				kit.Eventually(t, groupLimit, "the group is of the "+kind+" protocol", func() bool {
					listed, err := g.admin.ListGroups(g.context())
					return err == nil && listed[g.name].GroupType == kind
				})
			}
			g.produce(10)
			a := g.start("")
			g.settled(a)
			is("classic")
			g.protocol = "consumer"
			b := g.start("")
			g.settled(a, b)
			is("consumer")
			g.produce(10)
			g.caughtUp()
			g.leave(a)
			g.settled(b)
			g.protocol = classic
			c := g.start("")
			g.settled(b, c)
			is("consumer")
			g.produce(10)
			g.caughtUp()
			g.leave(b)
			g.settled(c)
			is("classic")
			g.produce(10)
			g.caughtUp()
			for at, times := range g.seen {
				require.LessOrEqual(t, times, 2, "%v: read again at most by who has it next", at)
			}
			for _, m := range g.members {
				require.NotContains(t, strings.Join(m.heard(), "\n"), "failed", m.name)
			}
		})
	}
}
