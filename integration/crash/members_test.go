package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

const (
	crowdTopic      = "crowd"
	crowdPartitions = 6
)

// crowd is groups of several members each, which commit what they have read, and
// what is known of them.
type crowd struct {
	t    *testing.T
	addr string

	mu   sync.Mutex
	sent [crowdPartitions]int64             // one past the last record that was acknowledged
	read map[string]*[crowdPartitions]int64 // by group: one past the last record that any member has read
	// acked is what was answered to commits, seen what was found later.
	acked, seen map[string]*[crowdPartitions]int64
	owners      map[string]string // of partitions in a generation of a classic group
}

// place is where a member may be.
type place struct {
	group, instance string
	opts            []kgo.Opt
	leave           func() // nil: nobody is there
}

// crowdPlaces are groups of each protocol, of members that are static and that
// are not, and of members of both protocols.
func crowdPlaces() []*place {
	eager, cooperative := kgo.Balancers(kgo.RangeBalancer()), kgo.Balancers(kgo.CooperativeStickyBalancer())
	consumer := kgo.ServerSideBalancer()
	var places []*place
	for name, members := range map[string][3]kgo.Opt{
		"eager": {eager, eager, eager}, "cooperative": {cooperative, cooperative, cooperative},
		"consumer": {consumer, consumer, consumer}, "mixed": {cooperative, consumer, consumer},
	} {
		for i, opt := range members {
			places = append(places, &place{group: name, opts: []kgo.Opt{opt}})
			static := fmt.Sprint("instance-", i)
			places = append(places, &place{group: name + "-static", instance: static, opts: []kgo.Opt{opt, kgo.InstanceID(static)}})
		}
	}
	return places
}

// enter has a member come to a place.
func (c *crowd) enter(p *place) {
	opts := append([]kgo.Opt{
		kgo.ConsumerGroup(p.group), kgo.ConsumeTopics(crowdTopic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(2 * time.Second), kgo.RebalanceTimeout(4 * time.Second),
		kgo.HeartbeatInterval(200 * time.Millisecond), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, got map[string][]int32) { c.assigned(p, cl, got[crowdTopic]) }),
	}, p.opts...)
	cl := groupClient(c.t, c.addr, opts...)
	ctx, stop := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			c.step(ctx, cl, p.group)
			cl.AllowRebalance()
		}
	})
	p.leave = func() {
		stop()
		reading.Wait()
		cl.CloseAllowingRebalance()
		p.leave = nil
	}
}

// assigned checks that a partition has one owner in a generation. Static members
// follow each other in one.
func (c *crowd) assigned(p *place, cl *kgo.Client, partitions []int32) {
	id, generation := cl.GroupMetadata()
	if p.instance != "" {
		id = p.instance
	}
	if p.group != "eager" && p.group != "cooperative" && p.group != "eager-static" && p.group != "cooperative-static" {
		return // owners is what descriptions show
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range partitions {
		key := fmt.Sprintf("%s generation %d partition %d", p.group, generation, n)
		if owner, ok := c.owners[key]; ok && owner != id {
			c.t.Errorf("%s: %s and %s", key, owner, id)
		}
		c.owners[key] = id
	}
}

// step reads some records, and commits them.
func (c *crowd) step(ctx context.Context, cl *kgo.Client, group string) {
	poll, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	records := cl.PollRecords(poll, 200).Records()
	cancel()
	if len(records) == 0 {
		return
	}
	ends := map[int32]kgo.EpochOffset{}
	c.mu.Lock()
	for _, r := range records {
		if read := &c.read[group][r.Partition]; r.Offset > *read {
			c.t.Errorf("%s skips from %d to %d of partition %d", group, *read, r.Offset, r.Partition)
		} else {
			*read = max(*read, r.Offset+1)
		}
		ends[r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	}
	c.mu.Unlock()
	commit, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	cl.CommitOffsetsSync(commit, map[string]map[int32]kgo.EpochOffset{crowdTopic: ends}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				if p.ErrorCode == 0 {
					acked := &c.acked[group][p.Partition]
					*acked = max(*acked, ends[p.Partition].Offset)
				}
			}
		}
	})
}

// produce writes until ctx ends.
func (c *crowd) produce(ctx context.Context) {
	cl := groupClient(c.t, c.addr, kgo.DefaultProduceTopic(crowdTopic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	defer cl.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		var records []*kgo.Record
		for range 2 * crowdPartitions {
			records = append(records, kgo.StringRecord("r"))
		}
		for _, r := range cl.ProduceSync(context.Background(), records...) {
			if r.Err != nil {
				c.t.Errorf("produce: %v", r.Err)
				return
			}
			c.mu.Lock()
			c.sent[r.Record.Partition] = max(c.sent[r.Record.Partition], r.Record.Offset+1)
			c.mu.Unlock()
		}
	}
}

// describe looks, until ctx ends, whether a partition has two owners in a group of
// KIP-848.
func (c *crowd) describe(ctx context.Context) {
	cl := groupClient(c.t, c.addr)
	defer cl.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Groups = []string{"consumer", "consumer-static", "mixed", "mixed-static"}
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			continue
		}
		for _, g := range resp.Groups {
			owners := map[int32]string{}
			for _, m := range g.Members {
				for _, topic := range m.Assignment.TopicPartitions {
					for _, p := range topic.Partitions {
						if owner, ok := owners[p]; ok {
							c.t.Errorf("%s epoch %d partition %d: %s and %s", g.Group, g.Epoch, p, owner, m.MemberID)
						}
						owners[p] = m.MemberID
					}
				}
			}
		}
	}
}

// check looks whether a committed offset is older than what was acknowledged, or
// than what was found before.
func (c *crowd) check(when string) {
	c.t.Helper()
	cl := groupClient(c.t, c.addr)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	c.mu.Lock()
	low := map[string][crowdPartitions]int64{}
	for group, acked := range c.acked {
		low[group] = *acked
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	for group, acked := range low {
		offsets, err := adm.FetchOffsets(ctx, group)
		require.NoError(c.t, err, "%s: %s", when, group)
		for p := range int32(crowdPartitions) {
			o, ok := offsets.Lookup(crowdTopic, p)
			if !ok {
				require.Zero(c.t, acked[p], "%s: %s partition %d", when, group, p)
				continue
			}
			require.NoError(c.t, o.Err, "%s: %s partition %d", when, group, p)
			require.NoError(c.t, o.Err, "%s: %s partition %d", when, group, p)
			require.GreaterOrEqual(c.t, o.At, max(acked[p], c.seen[group][p]), "%s: %s partition %d", when, group, p)
			c.seen[group][p] = o.At
		}
	}
}

// TestCrowdThroughKillsAndPauses has members of all kinds come and go while the
// server is killed, and stopped for longer than their sessions, and the log of the
// groups is compacted all the time: no partition has two owners, no record is
// skipped, no commit is lost, and in the end all is read and committed.
func TestCrowdThroughKillsAndPauses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	steps := 9
	if kit.Long() {
		steps = 120
	}
	r := rand.New(rand.NewPCG(seedOf(t), 6))
	addr := fixedPort(t)
	s := kit.New(t, t.TempDir(), map[string]string{
		"listeners": "PLAINTEXT://" + addr, "remote.log.storage.system.enable": "false", "offsets.topic.num.partitions": "3",
		"log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0.01", "log.cleaner.delete.retention.ms": "100", "log.segment.delete.delay.ms": "0",
		"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0",
		"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "2000",
		"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "200",
	})
	s.MustStart()
	fillTopic(t, addr, crowdTopic, crowdPartitions, 0)
	c := &crowd{t: t, addr: addr, owners: map[string]string{}}
	places := crowdPlaces()
	c.read, c.acked, c.seen = map[string]*[crowdPartitions]int64{}, map[string]*[crowdPartitions]int64{}, map[string]*[crowdPartitions]int64{}
	for _, p := range places {
		c.read[p.group], c.acked[p.group], c.seen[p.group] = &[crowdPartitions]int64{}, &[crowdPartitions]int64{}, &[crowdPartitions]int64{}
	}
	for _, p := range places {
		c.enter(p)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { c.produce(ctx) })
	wg.Go(func() { c.describe(ctx) })
	for step := range steps {
		<-time.After(time.Duration(100+r.IntN(900)) * time.Millisecond)
		switch step % 3 {
		case 0:
			s.Set("offsets.topic.segment.bytes", strconv.Itoa([]int{5000, 20000, 1 << 20}[r.IntN(3)]))
			s.Kill()
			s.MustStart()
			c.check(fmt.Sprint("after kill ", step))
		case 1:
			s.Signal(syscall.SIGSTOP)
			<-time.After(time.Duration(r.IntN(3000)) * time.Millisecond)
			s.Signal(syscall.SIGCONT)
			c.check(fmt.Sprint("after pause ", step))
		default:
			for range 3 {
				if p := places[r.IntN(len(places))]; p.leave != nil {
					p.leave()
				} else {
					c.enter(p)
				}
			}
		}
	}
	stop()
	wg.Wait()
	for _, p := range places {
		if p.leave == nil {
			c.enter(p)
		}
	}
	kit.Eventually(t, 90*time.Second, "all is read and committed", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for acked := range maps.Values(c.acked) {
			if *acked != c.sent {
				return false
			}
		}
		return true
	})
	c.check("in the end")
	for _, p := range places {
		p.leave()
	}
	require.NotContains(t, s.Log(), "built again", "the views went on where they were")
	require.NotContains(t, s.Log(), "level=ERROR")
}
