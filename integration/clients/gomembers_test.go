package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// memberVariable has the command line of a member where the test binary is run
// as one: a client of Go can only be killed as a process of its own.
const memberVariable = "STRANDLINE_TEST_MEMBER"

// goMembers are the members of a group by clients of Go. Each returns once
// standard input has ended and it has left the group.
var goMembers = map[string]func(ctx context.Context, m *voice) error{
	"franz-go": franzMember, "sarama": saramaMember, "kafka-go": kafkaGoMember,
}

// voice is what a member knows of itself, and how it says what member.py says.
type voice struct {
	addr, group, topic, protocol, instance string
	session                                time.Duration

	mu   sync.Mutex
	held map[int32]bool
}

func (v *voice) say(word string, more ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sayLocked(word, more...)
}

func (v *voice) sayLocked(word string, more ...any) {
	for _, x := range more {
		word += " " + strings.ReplaceAll(fmt.Sprint(x), "\n", " ")
	}
	fmt.Println(word)
}

// hold says what the member holds after it was given partitions, or lost them.
func (v *voice) hold(held bool, parts ...int32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range parts {
		if delete(v.held, p); held {
			v.held[p] = true
		}
	}
	var all []any
	for _, p := range slices.Sorted(maps.Keys(v.held)) {
		all = append(all, p)
	}
	v.sayLocked("hold", all...)
}

// beMember runs the member that memberVariable names, if it does.
func beMember() (ran bool) {
	words := strings.Split(os.Getenv(memberVariable), "\n")
	if len(words) != 7 {
		return false
	}
	session, err := time.ParseDuration(words[6] + "ms")
	if err != nil {
		panic(err)
	}
	v := &voice{addr: words[1], group: words[2], topic: words[3], protocol: words[4], instance: words[5], session: session, held: map[int32]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	v.say("ready")
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		panic(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := goMembers[words[0]](ctx, v); err != nil {
		v.say("failed", err)
	}
	v.say("left")
	return true
}

func franzMember(ctx context.Context, v *voice) error {
	hold := func(held bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, cl *kgo.Client, parts map[string][]int32) {
			_, generation := cl.GroupMetadata()
			v.say("generation", generation)
			v.hold(held, parts[v.topic]...)
		}
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(v.addr), kgo.ConsumeTopics(v.topic), kgo.ConsumerGroup(v.group), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(v.session), kgo.HeartbeatInterval(heartbeatInterval), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
		kgo.OnPartitionsAssigned(hold(true)), kgo.OnPartitionsRevoked(hold(false)), kgo.OnPartitionsLost(hold(false)),
	}
	switch v.protocol {
	case "eager":
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative":
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case "consumer":
		opts = append(opts, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	if v.instance != "" {
		opts = append(opts, kgo.InstanceID(v.instance))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	for uncommitted := false; ctx.Err() == nil; {
		poll, cancel := context.WithTimeout(ctx, time.Second)
		fetches := cl.PollRecords(poll, 100)
		cancel()
		var session *kgo.ErrGroupSession
		if err := fetches.Err(); errors.As(err, &session) && errors.Is(err, kerr.FencedInstanceID) {
			v.say("fenced", err)
			<-ctx.Done()
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			uncommitted = uncommitted || len(p.Records) > 0
			sayRead(v, p.Partition, p.Records, func(r *kgo.Record) int64 { return r.Offset })
		})
		if uncommitted { // what it keeps through a rebalance it does not read again
			err := cl.CommitUncommittedOffsets(ctx)
			if uncommitted = err != nil; uncommitted {
				v.say("uncommitted", err)
			}
		}
		cl.AllowRebalance()
	}
	return nil
}

// sayRead says which records of a partition were read.
func sayRead[R any](v *voice, partition int32, records []R, offset func(R) int64) {
	if len(records) == 0 {
		return
	}
	words := []any{partition}
	for _, r := range records {
		words = append(words, offset(r))
	}
	v.say("read", words...)
}

// saramaHandler reads the claims of one generation after the other.
type saramaHandler struct{ v *voice }

func (h saramaHandler) Setup(s sarama.ConsumerGroupSession) error {
	h.v.hold(true, s.Claims()[h.v.topic]...)
	return nil
}

func (h saramaHandler) Cleanup(s sarama.ConsumerGroupSession) error {
	h.v.hold(false, s.Claims()[h.v.topic]...)
	return nil
}

func (h saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		sayRead(h.v, m.Partition, []int64{m.Offset}, func(o int64) int64 { return o })
		s.MarkMessage(m, "")
		if len(claim.Messages()) == 0 {
			s.Commit()
		}
	}
	return nil
}

func saramaMember(ctx context.Context, v *voice) error {
	c := sarama.NewConfig()
	c.Version = sarama.V4_0_0_0
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = v.session, heartbeatInterval
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRoundRobin()}
	c.Consumer.Group.InstanceId = v.instance
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 50, 100*time.Millisecond
	g, err := sarama.NewConsumerGroup([]string{v.addr}, v.group, c)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		err := g.Consume(ctx, []string{v.topic}, saramaHandler{v})
		if errors.Is(err, sarama.ErrFencedInstancedId) {
			v.say("fenced", err)
			<-ctx.Done()
		}
		if err != nil {
			v.say("uncommitted", err)
		}
	}
	return g.Close()
}

// kafkaGoMember uses the client's ConsumerGroup: its Reader does not tell what
// it was given.
func kafkaGoMember(ctx context.Context, v *voice) error {
	g, err := kafkago.NewConsumerGroup(kafkago.ConsumerGroupConfig{
		ID: v.group, Brokers: []string{v.addr}, Topics: []string{v.topic}, GroupBalancers: []kafkago.GroupBalancer{kafkago.RoundRobinGroupBalancer{}},
		HeartbeatInterval: heartbeatInterval, SessionTimeout: v.session, RebalanceTimeout: 5 * time.Second, JoinGroupBackoff: 100 * time.Millisecond,
		StartOffset: kafkago.FirstOffset,
	})
	if err != nil {
		return err
	}
	for {
		gen, err := g.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return g.Close()
		case err != nil:
			v.say("uncommitted", err)
			continue
		}
		var parts []int32
		for _, a := range gen.Assignments[v.topic] {
			parts = append(parts, int32(a.ID))
			gen.Start(func(ctx context.Context) { kafkaGoRead(ctx, v, gen, a) })
		}
		v.hold(true, parts...)
		gen.Start(func(ctx context.Context) {
			<-ctx.Done()
			v.hold(false, parts...)
		})
	}
}

// kafkaGoRead reads a partition until its generation ends.
func kafkaGoRead(ctx context.Context, v *voice, gen *kafkago.Generation, a kafkago.PartitionAssignment) {
	r := kafkago.NewReader(kafkago.ReaderConfig{Brokers: []string{v.addr}, Topic: v.topic, Partition: a.ID, MaxWait: 100 * time.Millisecond})
	defer r.Close()
	if err := r.SetOffset(a.Offset); err != nil {
		v.say("failed", err)
	}
	for {
		m, err := r.ReadMessage(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			v.say("uncommitted", err)
			continue
		}
		sayRead(v, int32(a.ID), []int64{m.Offset}, func(o int64) int64 { return o })
		if r.Stats().QueueLength > 0 {
			continue
		}
		if err := gen.CommitOffsets(map[string]map[int]int64{v.topic: {a.ID: m.Offset + 1}}); err != nil {
			v.say("uncommitted", err)
		}
	}
}
