package consumergroups

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"strandline/integration/kit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	kit.RemoveBinary()
	os.Exit(code)
}

const (
	partitions = 6
	limit      = 60 * time.Second
)

// protocols are the ways in which members share out their work.
var protocols = map[string][]kgo.Opt{
	"eager":       {kgo.Balancers(kgo.RangeBalancer())},
	"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
	"consumer":    {kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()},
}

// TestMembersComeAndGo has three members share a topic, one after the other, of
// which one leaves, one crashes, and the last one sees the server killed; then
// another one takes over. All records are read, those that were committed not
// again, and no partition is read by two at a time.
func TestMembersComeAndGo(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(protocols)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, protocols[name])
			g.produce(300)
			a := g.member()
			g.settled(a)
			b := g.member()
			g.settled(a, b)
			c := g.member()
			g.settled(a, b, c)
			g.produce(300)
			g.caughtUp(600)

			b.leave()
			g.settled(a, c)
			c.crash()
			g.produce(300)
			g.settled(a)
			g.caughtUp(900)

			g.server.Restart(true)
			g.produce(300)
			g.caughtUp(1200)
			a.leave()

			d := g.member()
			g.settled(d)
			g.produce(300)
			g.caughtUp(1500)
			require.Less(t, d.read.Load(), int64(600), "it begins where the others have stopped")
			d.leave()
		})
	}
}

// group is a consumer group of one topic, and who has read what.
type group struct {
	t      *testing.T
	server *kit.Server
	opts   []kgo.Opt
	topic  string
	made   int

	mu   sync.Mutex
	seen map[string]bool
	// owners has the members that hold a partition.
	owners map[int32]map[*member]bool
}

func newGroup(t *testing.T, opts []kgo.Opt) *group {
	g := &group{t: t, opts: opts, topic: "t", seen: map[string]bool{}, owners: map[int32]map[*member]bool{}}
	g.server = kit.Start(t, map[string]string{
		"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "200",
		"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "3000",
		"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "300",
	})
	g.server.Set("listeners", "PLAINTEXT://"+g.server.Addr) // the same after a restart
	adm := kadm.NewClient(g.client())
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := adm.CreateTopic(ctx, partitions, 1, nil, g.topic)
	require.NoError(t, err)
	return g
}

func (g *group) client(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(g.server.Addr)}, opts...)...)
	require.NoError(g.t, err)
	g.t.Cleanup(cl.Close)
	return cl
}

func (g *group) produce(count int) {
	g.t.Helper()
	cl := g.client(kgo.DefaultProduceTopic(g.topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	ctx, cancel := context.WithTimeout(g.t.Context(), limit)
	defer cancel()
	var records []*kgo.Record
	for range count {
		records = append(records, kgo.StringRecord(fmt.Sprint("record ", g.made)))
		g.made++
	}
	require.NoError(g.t, cl.ProduceSync(ctx, records...).FirstErr())
	cl.Close()
}

// caughtUp waits until so many records were read and the group has committed all.
func (g *group) caughtUp(count int) {
	g.t.Helper()
	kit.Eventually(g.t, limit, fmt.Sprint(count, " records are read"), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.seen) == count
	})
	adm := kadm.NewClient(g.client())
	kit.Eventually(g.t, limit, "everything is committed", func() bool {
		ctx, cancel := context.WithTimeout(g.t.Context(), limit)
		defer cancel()
		ends, err := adm.ListEndOffsets(ctx, g.topic)
		if err != nil || ends.Error() != nil {
			return false
		}
		committed, err := adm.FetchOffsets(ctx, "g")
		if err != nil {
			return false
		}
		for p := range int32(partitions) {
			end, _ := ends.Lookup(g.topic, p)
			at, ok := committed.Lookup(g.topic, p)
			if !ok || at.At != end.Offset {
				return false
			}
		}
		return true
	})
}

// settled waits until the members share all partitions, each having some.
func (g *group) settled(members ...*member) {
	g.t.Helper()
	kit.Eventually(g.t, limit, "the members share the partitions", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		has := map[*member]int{}
		for p := range int32(partitions) {
			if len(g.owners[p]) != 1 {
				return false
			}
			for m := range g.owners[p] {
				has[m]++
			}
		}
		for _, m := range members {
			if has[m] != partitions/len(members) {
				return false
			}
		}
		return len(has) == len(members)
	})
}

// member is a client in the group that reads, and commits what it has read.
type member struct {
	g    *group
	cl   *kgo.Client
	read atomic.Int64
	// cut makes every connection fail, and every new one.
	cut    atomic.Bool
	conns  sync.Map
	cancel context.CancelFunc
	done   chan struct{}
}

var errCut = errors.New("cut")

func (g *group) member() *member {
	m := &member{g: g, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(g.t.Context())
	m.cancel = cancel
	hold := func(held bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { m.hold(parts[g.topic], held) }
	}
	m.cl = g.client(append([]kgo.Opt{
		kgo.ConsumeTopics(g.topic), kgo.ConsumerGroup("g"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(3 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.Dialer(m.dial),
		kgo.OnPartitionsAssigned(hold(true)), kgo.OnPartitionsRevoked(hold(false)), kgo.OnPartitionsLost(hold(false)),
	}, g.opts...)...)
	go m.run(ctx)
	return m
}

func (m *member) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if m.cut.Load() {
		return nil, errCut
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		m.conns.Store(c, true)
	}
	return c, err
}

func (m *member) hold(parts []int32, held bool) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	for _, p := range parts {
		if m.g.owners[p] == nil {
			m.g.owners[p] = map[*member]bool{}
		}
		if delete(m.g.owners[p], m); held {
			m.g.owners[p][m] = true
		}
	}
}

// run reads until the member goes.
func (m *member) run(ctx context.Context) {
	defer close(m.done)
	for ctx.Err() == nil {
		fetches := m.cl.PollRecords(ctx, 50)
		records := fetches.Records()
		if len(records) > 0 && !m.cut.Load() {
			m.g.mu.Lock()
			for _, r := range records {
				m.g.seen[string(r.Value)] = true
			}
			m.g.mu.Unlock()
			m.read.Add(int64(len(records)))
			commit, cancel := context.WithTimeout(ctx, 5*time.Second)
			_ = m.cl.CommitRecords(commit, records...) // who is too late reads again
			cancel()
		}
		m.cl.AllowRebalance()
	}
}

// leave takes the member out of the group.
func (m *member) leave() {
	m.cancel()
	<-m.done
	m.cl.CloseAllowingRebalance()
	m.forget()
}

// crash makes the member unable to say another word.
func (m *member) crash() {
	m.cut.Store(true)
	m.conns.Range(func(c, _ any) bool {
		_ = c.(net.Conn).Close()
		return true
	})
	m.cancel()
	<-m.done
	go m.cl.CloseAllowingRebalance()
	m.forget()
}

// forget takes a member that has gone out of the owners.
func (m *member) forget() {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	for p := range m.g.owners {
		delete(m.g.owners[p], m)
	}
}
