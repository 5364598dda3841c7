package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// committed is the place of one committed offset.
type committed struct {
	group, topic string
	partition    int32
}

// commitLedger is what those who commit were told. Each place has one who
// commits, and commits rising offsets.
type commitLedger struct {
	mu    sync.Mutex
	acked map[committed]int64 // the last acknowledged offset
	sent  map[committed]int64 // the highest offset that was ever sent
	gone  map[string]bool     // groups whose deletion was answered
	acks  int
}

func newCommitLedger() *commitLedger {
	return &commitLedger{acked: map[committed]int64{}, sent: map[committed]int64{}, gone: map[string]bool{}}
}

func (l *commitLedger) sending(at int64, places ...committed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range places {
		l.sent[p] = max(l.sent[p], at)
	}
}

func (l *commitLedger) acknowledged(at int64, places ...committed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks++
	for _, p := range places {
		l.acked[p] = max(l.acked[p], at)
	}
}

func (l *commitLedger) ackedNow() map[committed]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.acked)
}

func (l *commitLedger) sentNow() map[committed]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.sent)
}

// check asks for every place, and for every deleted group. What was acknowledged
// before it asks is a lower bound of the answer, what was sent by then an upper one.
func (l *commitLedger) check(t *testing.T, addr, when string) {
	t.Helper()
	cl := groupClient(t, addr)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	low := l.ackedNow()
	groups := map[string]bool{}
	for p := range low {
		groups[p.group] = true
	}
	for group := range groups {
		offsets, err := adm.FetchOffsets(ctx, group)
		require.NoError(t, err, "%s: offsets of %s", when, group)
		high := l.sentNow()
		for p, acked := range low {
			if p.group != group {
				continue
			}
			got, ok := offsets.Lookup(p.topic, p.partition)
			require.True(t, ok, "%s: %v was acknowledged at %d and is gone", when, p, acked)
			require.NoError(t, got.Err, "%s: %v", when, p)
			require.GreaterOrEqual(t, got.At, acked, "%s: %v went back", when, p)
			require.LessOrEqual(t, got.At, high[p], "%s: %v was never sent", when, p)
		}
	}
	l.checkGone(ctx, t, adm, when)
}

func (l *commitLedger) checkGone(ctx context.Context, t *testing.T, adm *kadm.Client, when string) {
	t.Helper()
	l.mu.Lock()
	gone := maps.Clone(l.gone)
	l.mu.Unlock()
	if len(gone) == 0 {
		return
	}
	listed, err := adm.ListGroups(ctx)
	require.NoError(t, err, when)
	for group := range gone {
		_, there := listed[group]
		require.False(t, there, "%s: the deletion of %s was acknowledged", when, group)
	}
}

// groupClient asks again until a broker that is down is up.
func groupClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.RequestRetries(1000),
		kgo.RetryTimeout(30 * time.Second), kgo.DialTimeout(time.Second), kgo.MetadataMinAge(50 * time.Millisecond), kgo.AlwaysRetryEOF(),
	}, opts...)...)
	require.NoError(t, err)
	return cl
}

// topicRef names a topic in both ways.
type topicRef struct {
	name string
	id   [16]byte
}

// commitOffset commits one offset for several partitions of a topic, as somebody who is
// no member. It returns what was refused or not answered.
func commitOffset(ctx context.Context, cl *kgo.Client, group string, topic topicRef, at int64, partitions ...int32) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = topic.name, topic.id
	for _, p := range partitions {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata = p, at, kmsg.StringPtr(fmt.Sprint(group, " at ", at))
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("%s-%d: %w", topic.Topic, p.Partition, err)
			}
		}
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != len(partitions) {
		return fmt.Errorf("the answer is not about what was committed: %+v", resp)
	}
	return nil
}

// commitRising commits 1, 2, 3 ... until ctx ends, each until it is answered.
func (l *commitLedger) commitRising(ctx context.Context, t *testing.T, addr, group string, topic topicRef, partitions ...int32) {
	cl := groupClient(t, addr)
	defer cl.Close()
	var places []committed
	for _, p := range partitions {
		places = append(places, committed{group, topic.name, p})
	}
	for at := int64(1); ctx.Err() == nil; at++ {
		l.sending(at, places...)
		for ctx.Err() == nil {
			err := commitOffset(ctx, cl, group, topic, at, partitions...)
			if err == nil {
				l.acknowledged(at, places...)
				break
			}
			if ctx.Err() == nil && !down(err) {
				t.Errorf("%s at %d: %v", group, at, err)
				return
			}
		}
	}
}

// down says whether an error is what a broker that is down or loading may cause.
func down(err error) bool {
	return kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, new(interface{ Timeout() bool })) || errors.Is(err, kgo.ErrClientClosed)
}

// deleteGroups makes groups that have only offsets, and deletes them.
func (l *commitLedger) deleteGroups(ctx context.Context, t *testing.T, addr string, topic topicRef) {
	cl := groupClient(t, addr)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		<-tick.C
		group := fmt.Sprint("doomed-", n)
		if err := commitOffset(ctx, cl, group, topic, int64(n), 0, 1); err != nil {
			continue
		}
		// A deletion that is repeated because its answer was lost finds no group.
		_, err := adm.DeleteGroup(ctx, group)
		if err == nil || errors.Is(err, kerr.GroupIDNotFound) {
			l.mu.Lock()
			l.gone[group] = true
			l.mu.Unlock()
		}
	}
}

// consume is one member after the other of a group, each of which reads,
// commits what it read, and leaves or vanishes. Each begins at or after what
// was acknowledged before it came (GR-11, here with a coordinator that is killed
// instead of moved).
func (l *commitLedger) consume(ctx context.Context, t *testing.T, r *rand.Rand, addr, group, topic string, opts ...kgo.Opt) {
	for ctx.Err() == nil {
		l.member(ctx, t, addr, group, topic, 20+r.IntN(150), opts...)
	}
}

// member reads at most that many times. Only one member commits at a time: the
// one before has closed its connections.
func (l *commitLedger) member(ctx context.Context, t *testing.T, addr, group, topic string, polls int, opts ...kgo.Opt) {
	was := l.ackedNow()
	cl := groupClient(t, addr, append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(time.Second), kgo.HeartbeatInterval(100*time.Millisecond),
		kgo.FetchMaxWait(100*time.Millisecond))...)
	defer func() {
		if polls%2 == 0 {
			leave, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_ = cl.LeaveGroupContext(leave)
			cancel()
		}
		cl.CloseAllowingRebalance()
	}()
	begun := map[int32]bool{}
	for n := 0; n < polls && ctx.Err() == nil; n++ {
		poll, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		fetches := cl.PollRecords(poll, 5)
		cancel()
		var last []*kgo.Record
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) == 0 {
				return
			}
			place := committed{group, topic, p.Partition}
			if !begun[p.Partition] {
				begun[p.Partition] = true
				if got := p.Records[0].Offset; got < was[place] {
					t.Errorf("a member begins %v at %d, %d was acknowledged before it came", place, got, was[place])
				}
			}
			end := p.Records[len(p.Records)-1]
			last = append(last, end)
			l.sending(end.Offset+1, place)
		})
		if len(last) == 0 {
			continue
		}
		commit, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := cl.CommitRecords(commit, last...)
		cancel()
		if err != nil {
			continue // not answered, or no member any more
		}
		for _, r := range last {
			l.acknowledged(r.Offset+1, committed{group, topic, r.Partition})
		}
	}
}

// TestCommitsSurviveKills kills the server at random while several clients
// commit for several groups, some of them members of both protocols, others
// none, and others delete groups. The log of the groups rolls and is compacted
// all the time. After every start no offset is older than the last one that was acknowledged.
func TestCommitsSurviveKills(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	rounds := 5
	if kit.Long() {
		rounds = 50
	}
	r := rand.New(rand.NewPCG(seedOf(t), 5))
	addr := fixedPort(t)
	s := kit.New(t, t.TempDir(), map[string]string{
		"listeners": "PLAINTEXT://" + addr, "remote.log.storage.system.enable": "false",
		"offsets.topic.num.partitions": "5", "offsets.topic.segment.bytes": "30000",
		"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.01", "log.cleaner.delete.retention.ms": "100",
		"log.initial.task.delay.ms": "100", "log.segment.delete.delay.ms": "100",
		"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0",
		"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "1000",
		"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "100",
	})
	s.MustStart()
	const topic, partitions = "read", 4
	ref := fillTopic(t, addr, topic, partitions, 2000+500*rounds)
	l := newCommitLedger()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for n := range 6 {
		group := fmt.Sprint("rising-", n)
		wg.Go(func() { l.commitRising(ctx, t, addr, group, ref, 0, 1) })
		wg.Go(func() { l.commitRising(ctx, t, addr, group, ref, 2) })
	}
	wg.Go(func() { l.deleteGroups(ctx, t, addr, ref) })
	for name, opts := range map[string][]kgo.Opt{
		"eager":       {kgo.Balancers(kgo.RangeBalancer())},
		"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
		"consumer":    {kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()},
	} {
		mine := rand.New(rand.NewPCG(r.Uint64(), 1))
		wg.Go(func() { l.consume(ctx, t, mine, addr, name, topic, opts...) })
	}
	for round := range rounds {
		<-time.After(time.Duration(100+r.IntN(900)) * time.Millisecond)
		s.Kill()
		s.MustStart()
		l.check(t, addr, fmt.Sprint("after kill ", round))
	}
	<-time.After(2 * time.Second) // members come back
	stop()
	wg.Wait()
	l.check(t, addr, "at rest")
	s.Restart(false)
	l.check(t, addr, "after an orderly stop")
	s.Restart(true)
	l.check(t, addr, "after the last kill")
	acked := l.ackedNow()
	for n := range 6 {
		require.Greater(t, acked[committed{fmt.Sprint("rising-", n), topic, 1}], int64(2*rounds))
	}
	for _, group := range []string{"eager", "cooperative", "consumer"} {
		require.Positive(t, acked[committed{group, topic, 0}], "members of %s commit", group)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NotEmpty(t, l.gone)
	t.Logf("%d kills, %d acknowledged commits, %d acknowledged deletions: %v", rounds+1, l.acks, len(l.gone), acked)
}

// fillTopic makes a topic and writes that many small records to each partition.
func fillTopic(t *testing.T, addr, topic string, partitions int32, records int) topicRef {
	t.Helper()
	cl := groupClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	made, err := kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 1, nil, topic)
	require.NoError(t, err)
	for n := range records {
		for p := range partitions {
			cl.Produce(t.Context(), &kgo.Record{Partition: p, Value: fmt.Append(nil, n)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
	}
	require.NoError(t, cl.Flush(t.Context()))
	return topicRef{topic, made.ID}
}
