package cases

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

func TestGroups(t *testing.T) {
	addr := walkedBroker(t)
	t.Run("GR-07 the newer of two with one instance id wins", func(t *testing.T) { newerInstanceWins(t, addr) })
	t.Run("GR-09 offsets that nobody reads can be deleted", func(t *testing.T) { offsetsAreDeleted(t, addr) })
	t.Run("WI-05 groups are listed in every version", func(t *testing.T) { groupsAreListed(t, addr) })
	t.Run("WI-09 nothing was committed", func(t *testing.T) { nothingCommitted(t, addr) })
	t.Run("AD-11 OP-09 offsets go with their topic", func(t *testing.T) { offsetsGoWithTheTopic(t, addr) })
}

// walkedBroker is a broker whose groups do not wait for more members.
func walkedBroker(t *testing.T) string {
	if reference() {
		return broker(t)
	}
	return kit.Start(t, walked).Addr
}

func newWorld(t *testing.T, addr string) *world {
	return &world{t: t, c: kit.Dial(t, addr), addr: addr}
}

// newerInstanceWins has two processes with one instance id: the second takes the
// first one's place, which is told so by everything it asks (GR-07).
func newerInstanceWins(t *testing.T, addr string) {
	w := newWorld(t, addr)
	topic, tid := w.topic()
	id := w.group()
	first := w.member(id, topic)
	second := ask[*kmsg.JoinGroupResponse](w.c, joining(id, "", &first.instance, topic))
	same(t, nil, second.ErrorCode)
	require.NotEqual(t, first.id, second.MemberID)

	beat := &kmsg.HeartbeatRequest{Version: 4, Group: id, Generation: first.generation, MemberID: first.id, InstanceID: &first.instance}
	same(t, kerr.FencedInstanceID, ask[*kmsg.HeartbeatResponse](w.c, beat).ErrorCode)
	commit := committing(id, first, topic, tid, 1, "")
	commit.Version = 8
	same(t, kerr.FencedInstanceID, ask[*kmsg.OffsetCommitResponse](w.c, commit).Topics[0].Partitions[0].ErrorCode)
	same(t, kerr.FencedInstanceID, ask[*kmsg.SyncGroupResponse](w.c, syncing(5, id, first, "range")).ErrorCode)
	same(t, kerr.FencedInstanceID, ask[*kmsg.JoinGroupResponse](w.c, joining(id, first.id, &first.instance, topic)).ErrorCode)

	beat.MemberID, beat.Generation = second.MemberID, second.Generation
	same(t, nil, ask[*kmsg.HeartbeatResponse](w.c, beat).ErrorCode)
	g := ask[*kmsg.DescribeGroupsResponse](w.c, &kmsg.DescribeGroupsRequest{Version: 5, Groups: []string{id}}).Groups[0]
	require.Len(t, g.Members, 1)
	require.Equal(t, second.MemberID, g.Members[0].MemberID)
}

func offsetsAreDeleted(t *testing.T, addr string) {
	w := newWorld(t, addr)
	topic, tid := w.topic()
	other, oid := w.topic()
	remove := func(id, topic string) int16 {
		resp := ask[*kmsg.OffsetDeleteResponse](w.c, &kmsg.OffsetDeleteRequest{Group: id, Topics: []kmsg.OffsetDeleteRequestTopic{
			{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 1}}},
		}})
		same(t, nil, resp.ErrorCode)
		return resp.Topics[0].Partitions[0].ErrorCode
	}
	commit := func(id string, m membership, topic string, tid [16]byte) {
		req := committing(id, m, topic, tid, 1, "")
		req.Version = 8
		same(t, nil, ask[*kmsg.OffsetCommitResponse](w.c, req).Topics[0].Partitions[0].ErrorCode)
	}
	manual := w.group()
	commit(manual, nobody, topic, tid)
	same(t, nil, remove(manual, topic), "it commits, and subscribes to nothing")
	require.Empty(t, w.offsets(manual).Topics)

	id := w.group()
	m := w.member(id, topic)
	commit(id, m, topic, tid)
	commit(id, m, other, oid)
	same(t, kerr.GroupSubscribedToTopic, remove(id, topic))
	same(t, nil, remove(id, other))
	require.Len(t, w.offsets(id).Topics, 1)
}

func groupsAreListed(t *testing.T, addr string) {
	w := newWorld(t, addr)
	id := w.group()
	w.member(id, "t")
	for version := int16(0); version <= 5; version++ {
		req := &kmsg.ListGroupsRequest{Version: version}
		found := map[string]string{}
		for _, g := range ask[*kmsg.ListGroupsResponse](w.c, req).Groups {
			found[g.Group] = g.ProtocolType
		}
		require.Equal(t, "consumer", found[id], "version %d", version)
	}
}

// nothingCommitted asks for the offsets of a new group, in every version by hand
// and with sarama, which cannot read null metadata (WI-09).
func nothingCommitted(t *testing.T, addr string) {
	w := newWorld(t, addr)
	topic, tid := w.topic()
	id := w.group()
	for version := int16(1); version <= 9; version++ {
		req := fetching(version, id, "", -1, topic, tid, 1)
		req.Version = version
		resp := ask[*kmsg.OffsetFetchResponse](w.c, req)
		oneForm(w, resp)
		same(t, nil, resp.ErrorCode)
		p := resp.Topics[0].Partitions[0]
		same(t, nil, p.ErrorCode)
		require.EqualValues(t, -1, p.Offset)
		require.EqualValues(t, -1, p.LeaderEpoch)
		require.NotNil(t, p.Metadata)
		require.Empty(t, *p.Metadata)
	}
	for _, version := range []sarama.KafkaVersion{sarama.V0_10_2_0, sarama.V2_8_0_0, sarama.MaxVersion} {
		cfg := sarama.NewConfig()
		cfg.Version, cfg.Consumer.Offsets.Initial = version, sarama.OffsetOldest
		client, err := sarama.NewClient([]string{addr}, cfg)
		require.NoError(t, err)
		m, err := sarama.NewOffsetManagerFromClient(w.group(), client)
		require.NoError(t, err)
		p, err := m.ManagePartition(topic, 1)
		require.NoError(t, err, "%v", version)
		offset, metadata := p.NextOffset()
		require.Equal(t, sarama.OffsetOldest, offset, "none: where the client begins")
		require.Empty(t, metadata)
		require.NoError(t, p.Close())
		require.NoError(t, m.Close())
		require.NoError(t, client.Close())
	}
}

// offsetsGoWithTheTopic deletes a topic that groups have offsets of, one of them
// with a member, and makes it again under its name.
func offsetsGoWithTheTopic(t *testing.T, addr string) {
	w := newWorld(t, addr)
	topic, tid := w.topic()
	kept, kid := w.topic()
	idle, busy := w.group(), w.group()
	m := w.member(busy, topic)
	for id, by := range map[string]membership{idle: nobody, busy: m} {
		for name, topicID := range map[string][16]byte{topic: tid, kept: kid} {
			req := committing(id, by, name, topicID, 1, "")
			req.Version = 8
			same(t, nil, ask[*kmsg.OffsetCommitResponse](w.c, req).Topics[0].Partitions[0].ErrorCode)
		}
	}
	same(t, nil, deleteTopics(w.c, 6, byID(tid))[0].ErrorCode)
	kit.Eventually(t, 20*time.Second, "its offsets are gone", func() bool {
		return len(w.offsets(idle).Topics) == 1 && len(w.offsets(busy).Topics) == 1
	})
	out := createTopics(w.c, 7, false, newTopic(topic, 2))
	same(t, nil, out[0].ErrorCode)
	for _, id := range []string{idle, busy} {
		req := fetching(7, id, "", -1, topic, tid, 1)
		req.Version = 7
		require.EqualValues(t, -1, ask[*kmsg.OffsetFetchResponse](w.c, req).Topics[0].Partitions[0].Offset)
		require.Equal(t, kept, w.offsets(id).Topics[0].Topic)
	}
	beat := &kmsg.HeartbeatRequest{Version: 4, Group: busy, Generation: m.generation, MemberID: m.id, InstanceID: &m.instance}
	same(t, nil, ask[*kmsg.HeartbeatResponse](w.c, beat).ErrorCode, "the group runs on")
}

// TestDeletedGroupStaysGone deletes groups and kills the server (GR-05).
func TestDeletedGroupStaysGone(t *testing.T) {
	s := own(t, walked)
	s.Set("listeners", "PLAINTEXT://"+s.Addr)
	w := newWorld(t, s.Addr)
	topic, tid := w.topic()
	gone, kept := w.group(), w.group()
	m := w.member(kept, topic)
	commit := func(id string, by membership) {
		req := committing(id, by, topic, tid, 1, "")
		req.Version = 8
		same(t, nil, ask[*kmsg.OffsetCommitResponse](w.c, req).Topics[0].Partitions[0].ErrorCode)
	}
	commit(gone, nobody)
	commit(kept, m)
	deleted := ask[*kmsg.DeleteGroupsResponse](w.c, &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{gone, kept}}).Groups
	same(t, nil, deleted[0].ErrorCode)
	same(t, kerr.NonEmptyGroup, deleted[1].ErrorCode)
	s.Restart(true)

	w = newWorld(t, s.Addr)
	listed := listedOnceLoaded(w, 1)
	require.False(t, listed[gone])
	require.True(t, listed[kept])
	require.Empty(t, w.offsets(gone).Topics)
	require.Len(t, w.offsets(kept).Topics, 1)
	describe := func(version int16) kmsg.DescribeGroupsResponseGroup {
		return ask[*kmsg.DescribeGroupsResponse](w.c, &kmsg.DescribeGroupsRequest{Version: version, Groups: []string{gone}}).Groups[0]
	}
	require.Equal(t, "Dead", describe(5).State)
	same(t, kerr.GroupIDNotFound, describe(6).ErrorCode)
	beat := &kmsg.HeartbeatRequest{Version: 4, Group: kept, Generation: m.generation, MemberID: m.id, InstanceID: &m.instance}
	same(t, nil, ask[*kmsg.HeartbeatResponse](w.c, beat).ErrorCode, "its member goes on")
}

// listedOnceLoaded lists all groups as soon as every coordinator has loaded and at
// least count groups are there: until then groups are answered
// COORDINATOR_LOAD_IN_PROGRESS.
func listedOnceLoaded(w *world, count int) map[string]bool {
	listed := map[string]bool{}
	kit.Eventually(w.t, 20*time.Second, "the coordinators have loaded", func() bool {
		resp := ask[*kmsg.ListGroupsResponse](w.c, &kmsg.ListGroupsRequest{Version: 4})
		for _, g := range resp.Groups {
			listed[g.Group] = true
		}
		return resp.ErrorCode == 0 && len(listed) >= count
	})
	return listed
}

// TestParkedMembersDoNotHoldUpAStop stops the server while members wait for others
// to join and for their leader.
func TestParkedMembersDoNotHoldUpAStop(t *testing.T) {
	s := own(t, walked)
	s.Set("listeners", "PLAINTEXT://"+s.Addr)
	w := newWorld(t, s.Addr)
	topic, _ := w.topic()
	id := w.group()
	m := w.member(id, topic)
	parked := kit.Dial(t, s.Addr)
	join := joining(id, "", kmsg.StringPtr("another"), topic)
	parked.Send(join)
	kit.Eventually(t, 20*time.Second, "a join waits for the other member's", func() bool {
		g := ask[*kmsg.DescribeGroupsResponse](w.c, &kmsg.DescribeGroupsRequest{Version: 5, Groups: []string{id}}).Groups[0]
		return g.State == "PreparingRebalance"
	})
	began := time.Now()
	s.Restart(false)
	require.Less(t, time.Since(began), 15*time.Second)
	if resp, err := parked.Receive(join); err == nil {
		same(t, kerr.NotCoordinator, resp.(*kmsg.JoinGroupResponse).ErrorCode)
	}
	w = newWorld(t, s.Addr)
	listedOnceLoaded(w, 1)
	beat := &kmsg.HeartbeatRequest{Version: 4, Group: id, Generation: m.generation, MemberID: m.id, InstanceID: &m.instance}
	same(t, nil, ask[*kmsg.HeartbeatResponse](w.c, beat).ErrorCode, "the generation that was complete goes on")
}

// TestGroupsSurviveCompaction has groups rebalance and commit while the log that
// keeps them is compacted all the time, and kills the server (GR-13).
func TestGroupsSurviveCompaction(t *testing.T) {
	const groups = 50
	length := 5 * time.Second
	if kit.Long() {
		length = 5 * time.Minute
	}
	s := own(t, map[string]string{
		"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3", "offsets.topic.segment.bytes": "16384",
		"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.01", "offsets.commit.timeout.ms": "60000",
	})
	s.Set("listeners", "PLAINTEXT://"+s.Addr)
	w := newWorld(t, s.Addr)
	topic, tid := w.topic()
	names := make([]string, groups)
	for i := range names {
		names[i] = w.group()
	}
	last := make([]int64, groups)
	members := make([]membership, groups)
	until := time.After(length)
	stop := make(chan struct{})
	go func() { <-until; close(stop) }()
	var wg sync.WaitGroup
	for i, id := range names {
		wg.Go(func() {
			own := newWorld(t, s.Addr)
			for round := int64(1); ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				members[i] = next(own, id, topic, round, members[i], i%2 == 1)
				req := committing(id, members[i], topic, tid, 1, "")
				req.Version, req.Topics[0].Partitions[0].Offset = 9, round
				same(t, nil, ask[*kmsg.OffsetCommitResponse](own.c, req).Topics[0].Partitions[0].ErrorCode)
				last[i] = round
			}
		})
	}
	wg.Wait()
	require.Positive(t, s.Metric("strandline_compaction_records_removed_total"), "the log of the groups is compacted")
	require.Zero(t, s.Metric("strandline_compaction_failures_total"))
	s.Restart(true)

	w = newWorld(t, s.Addr)
	require.Len(t, listedOnceLoaded(w, groups), groups)
	for i, id := range names {
		g := ask[*kmsg.DescribeGroupsResponse](w.c, &kmsg.DescribeGroupsRequest{Version: 5, Groups: []string{id}}).Groups[0]
		same(t, nil, g.ErrorCode, id)
		m := members[i]
		require.Equal(t, last[i], w.offsets(id).Topics[0].Partitions[0].Offset)
		if i%2 == 1 {
			require.Equal(t, "Dead", g.State, "for clients of the classic protocol")
			beat := beating(id, m.id, m.generation, topic)
			same(t, nil, ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, beat).ErrorCode, fmt.Sprint("the member of ", id, " goes on"))
			continue
		}
		require.Equal(t, "Stable", g.State)
		beat := &kmsg.HeartbeatRequest{Version: 4, Group: id, Generation: m.generation, MemberID: m.id, InstanceID: &m.instance}
		same(t, nil, ask[*kmsg.HeartbeatResponse](w.c, beat).ErrorCode, fmt.Sprint("the member of ", id, " goes on"))
	}
}

// next is a new member in the place of the last one, of the KIP-848 protocol where
// that is asked for.
func next(w *world, id, topic string, round int64, last membership, kip848 bool) membership {
	if !kip848 {
		return w.member(id, topic)
	}
	if last.id != "" {
		left := ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, beating(id, last.id, -1))
		same(w.t, nil, left.ErrorCode)
	}
	member := fmt.Sprint("member ", round)
	beat := ask[*kmsg.ConsumerGroupHeartbeatResponse](w.c, beating(id, member, 0, topic))
	same(w.t, nil, beat.ErrorCode)
	return membership{id: member, generation: beat.MemberEpoch}
}
