package groups

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/group"
	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
)

func TestAMemberJoinsCommitsAndIsMissed(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		began := time.Now()
		j := k.stable("g", "t")
		require.Equal(t, 3*time.Second, time.Since(began), "group.initial.rebalance.delay.ms")
		require.Equal(t, int32(1), j.Generation)
		require.NoError(t, k.heartbeat("g", j))
		require.NoError(t, k.commit("g", "t", 5, j))
		require.Equal(t, cluster.Offset(5), k.committed("g", "t"))
		require.Equal(t, group.Stable, k.list()["g"].State)
		require.ErrorIs(t, k.commit("g", "t", 6, group.JoinResponse{MemberID: j.MemberID, Generation: 7}), group.ErrIllegalGeneration)
		require.ErrorIs(t, k.heartbeat("g", group.JoinResponse{MemberID: "nobody", Generation: 1}), group.ErrUnknownMember)

		<-time.After(9 * time.Second)
		require.NoError(t, k.heartbeat("g", j))
		<-time.After(11 * time.Second)
		require.ErrorIs(t, k.heartbeat("g", j), group.ErrUnknownMember, "its session has ended")
		require.Equal(t, group.Listed{GroupID: "g", ProtocolType: "consumer", State: group.Empty, Type: group.Classic}, k.list()["g"])
		require.Empty(t, k.inMemory(), "the view has all there is of it")
		require.Equal(t, cluster.Offset(5), k.committed("g", "t"))
	})
}

func TestARestartKeepsGroupsAndOffsets(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		j := k.stable("g", "t")
		require.NoError(t, k.commit("g", "t", 5, j))
		require.NoError(t, k.commit("alone", "t", 7, group.JoinResponse{}))
		k.restart()
		require.Equal(t, []string{"g"}, k.inMemory(), "members must be missed")
		require.NoError(t, k.heartbeat("g", j))
		require.Equal(t, cluster.Offset(5), k.committed("g", "t"))
		require.Equal(t, cluster.Offset(7), k.committed("alone", "t"))
		<-time.After(11 * time.Second)
		require.Empty(t, k.inMemory())
		require.Len(t, k.list(group.Empty), 2)
	})
}

func TestWhoeverStopsWaitingIsNotAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		ctx, cancel := context.WithCancel(t.Context())
		j := k.join(ctx, "g", "", "t")
		require.True(t, j.pending())
		cancel()
		<-j.done
		require.ErrorIs(t, j.err, context.Canceled)
		<-time.After(4 * time.Second)
		d, err := k.groups.Describe(t.Context(), "g")
		require.NoError(t, err)
		require.Equal(t, group.CompletingRebalance, d.State, "the member is there all the same, until it is missed")
		require.Len(t, d.Members, 1)
		require.Len(t, k.inMemory(), 1)
	})
}

// TestTheLeadershipEndsInEveryState has each kind of caller wait while the
// partition goes to another broker.
func TestTheLeadershipEndsInEveryState(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		r := k.of("g")

		joining := k.join(t.Context(), "g", "", "t")
		require.True(t, joining.pending())
		k.resign(r)
		require.False(t, joining.pending())
		require.ErrorIs(t, joining.err, group.ErrNotCoordinator)
		_, err := k.groups.Describe(t.Context(), "g")
		require.ErrorIs(t, err, group.ErrNotCoordinator)
		_, err = k.groups.FetchOffsets(t.Context(), "g", group.OffsetFetchRequest{All: true, MemberEpoch: -1})
		require.ErrorIs(t, err, group.ErrNotCoordinator)
		k.again(r)
		d, err := k.groups.Describe(t.Context(), "g")
		require.NoError(t, err)
		require.Equal(t, group.Description{State: group.Empty}, d, "the log knows the group, nobody in it")

		one := k.join(t.Context(), "g", "", "t")
		two := k.join(t.Context(), "g", "", "t")
		leader, follower := one.wait(t), two.wait(t)
		if leader.MemberID != leader.Leader {
			leader, follower = follower, leader
		}
		syncing := k.sync("g", follower)
		require.True(t, syncing.pending())
		k.resign(r)
		require.False(t, syncing.pending())
		require.ErrorIs(t, syncing.err, group.ErrNotCoordinator)
		k.again(r)
		require.ErrorIs(t, k.heartbeat("g", leader), group.ErrUnknownMember, "the log never had the members")

		j := k.stable("g", "t")
		r.hold()
		committing := start(func() (struct{}, error) { return struct{}{}, k.commit("g", "t", 1, j) })
		leaving := start(func() (group.LeaveResponse, error) {
			return k.groups.Leave(t.Context(), "g", group.LeaveRequest{Members: []group.LeavingMember{{MemberID: j.MemberID}}})
		})
		require.True(t, committing.pending())
		require.True(t, leaving.pending())
		require.Equal(t, cluster.NoOffset, k.committed("g", "t"), "not yet")
		k.resign(r)
		require.ErrorIs(t, committing.err, group.ErrNotCoordinator)
		require.ErrorIs(t, leaving.err, group.ErrNotCoordinator)
		r.let()
		k.again(r)
		require.Equal(t, cluster.Offset(1), k.committed("g", "t"), "it was in the log, and stayed there")
	})
}

func TestAnAnswerWaitsForTheLog(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		j := k.stable("g", "t")
		r := k.of("g")
		r.hold()
		committing := start(func() (struct{}, error) { return struct{}{}, k.commit("g", "t", 1, j) })
		beating := start(func() (struct{}, error) { return struct{}{}, k.heartbeat("g", j) })
		require.True(t, committing.pending())
		require.True(t, beating.pending(), "it comes after the commit")
		r.let()
		committing.wait(t)
		beating.wait(t)

		r.hold()
		committing = start(func() (struct{}, error) { return struct{}{}, k.commit("g", "t", 2, j) })
		<-time.After(4900 * time.Millisecond)
		require.True(t, committing.pending())
		<-time.After(200 * time.Millisecond)
		require.False(t, committing.pending(), "offsets.commit.timeout.ms")
		require.ErrorIs(t, committing.err, group.ErrCoordinatorNotAvailable)
		require.Equal(t, cluster.Offset(1), k.committed("g", "t"))
		r.let()
		synctest.Wait()
		require.Equal(t, cluster.Offset(2), k.committed("g", "t"), "what it asked for happened all the same")
	})
}

func TestAGroupIsLoadedAgainWhereTheLogRefusesIt(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		j := k.stable("g", "t")
		r := k.of("g")

		// Offsets alone: nothing else is lost.
		r.fail(partition.ErrNotEnoughReplicas)
		require.ErrorIs(t, k.commit("g", "t", 1, j), group.ErrCoordinatorNotAvailable)
		require.NoError(t, k.heartbeat("g", j))
		r.fail(nil)
		require.NoError(t, k.commit("g", "t", 1, j))

		// A second member comes, both wait for what the log does not take.
		two := k.join(t.Context(), "g", "", "t")
		require.True(t, two.pending())
		require.ErrorIs(t, k.heartbeat("g", j), group.ErrRebalanceInProgress)
		one := k.join(t.Context(), "g", j.MemberID, "t")
		first, second := one.wait(t), two.wait(t)
		require.Equal(t, int32(2), first.Generation)
		leader, follower := first, second
		if leader.Leader != leader.MemberID {
			leader, follower = second, first
		}
		waiting := k.sync("g", follower)
		require.True(t, waiting.pending())
		r.fail(partition.ErrStorage)
		syncing := k.sync("g", leader, group.Assignment{MemberID: leader.MemberID, Assignment: []byte("x")})
		require.False(t, syncing.pending())
		require.ErrorIs(t, syncing.err, group.ErrNotCoordinator)
		require.False(t, waiting.pending())
		require.ErrorIs(t, waiting.err, group.ErrNotCoordinator)
		r.fail(nil)
		require.NoError(t, k.heartbeat("g", j), "the group is as the log has it: in generation 1")
		d, err := k.groups.Describe(t.Context(), "g")
		require.NoError(t, err)
		require.Equal(t, group.Stable, d.State)
		require.Len(t, d.Members, 1)
	})
}

func TestOffsetsOfGroupsWithoutMembers(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		id := k.w.topic("t", 3)
		ctx := t.Context()
		for _, g := range []string{"", "g"} {
			require.NoError(t, k.commit(g, "t", 4, group.JoinResponse{}))
			require.Equal(t, cluster.Offset(4), k.committed(g, "t"))
		}
		require.ErrorIs(t, k.commit("new", "t", 4, group.JoinResponse{MemberID: "m", Generation: 1}), group.ErrGroupIDNotFound)
		require.Empty(t, k.inMemory())

		res, err := k.groups.FetchOffsets(ctx, "g", group.OffsetFetchRequest{MemberEpoch: -1, All: true})
		require.NoError(t, err)
		require.Equal(t, []group.FetchedOffset{{
			PartitionName: group.PartitionName{Topic: "t"}, Offset: 4, LeaderEpoch: 3, Metadata: "meta",
		}}, res.Offsets)
		res, err = k.groups.FetchOffsets(ctx, "nobody", group.OffsetFetchRequest{MemberEpoch: -1, Partitions: []group.FetchPartition{{Topic: "t", Partition: 2}}})
		require.NoError(t, err)
		require.Equal(t, []group.FetchedOffset{group.NothingCommitted(group.PartitionName{Topic: "t", Partition: 2}, nil)}, res.Offsets)

		big := group.CommitRequest{Generation: -1, Retention: -1}
		for p := range int32(3) {
			big.Partitions = append(big.Partitions, group.CommitPartition{Topic: "t", TopicID: id, Partition: p, Offset: 9, Metadata: strings.Repeat("x", int(4095+p))})
		}
		done, err := k.groups.Commit(ctx, "g", big)
		require.NoError(t, err)
		require.Equal(t, []error{nil, nil, group.ErrOffsetMetadataTooLarge}, done.Partitions)

		gone, err := k.groups.DeleteOffsets(ctx, "g", group.OffsetDeleteRequest{Partitions: []group.PartitionName{{Topic: "t"}, {Topic: "t", Partition: 2}}})
		require.NoError(t, err)
		require.Equal(t, []error{nil, nil}, gone.Partitions)
		require.Equal(t, cluster.NoOffset, k.committed("g", "t"))
		_, err = k.groups.DeleteOffsets(ctx, "nobody", group.OffsetDeleteRequest{})
		require.ErrorIs(t, err, group.ErrGroupIDNotFound)
		require.EqualValues(t, 4, k.groups.Stats().Commits)
	})
}

func TestDeletedGroupsStayGone(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		ctx := t.Context()
		k.w.topic("t", 1)
		k.w.topic("u", 1)
		j := k.stable("g", "t")
		require.NoError(t, k.commit("g", "t", 1, j))
		require.NoError(t, k.commit("g", "u", 1, j))
		require.ErrorIs(t, k.groups.Delete(ctx, "g"), group.ErrNonEmptyGroup)
		res, err := k.groups.DeleteOffsets(ctx, "g", group.OffsetDeleteRequest{Partitions: []group.PartitionName{{Topic: "t"}, {Topic: "u"}}})
		require.NoError(t, err)
		require.ErrorIs(t, res.Partitions[0], group.ErrSubscribedToTopic)
		require.NoError(t, res.Partitions[1])
		_, err = k.groups.Leave(ctx, "g", group.LeaveRequest{Members: []group.LeavingMember{{MemberID: j.MemberID}}})
		require.NoError(t, err)
		require.NoError(t, k.groups.Delete(ctx, "g"))
		require.ErrorIs(t, k.groups.Delete(ctx, "g"), group.ErrGroupIDNotFound)
		_, err = k.groups.Describe(ctx, "g")
		require.ErrorIs(t, err, group.ErrGroupIDNotFound)

		// One with more offsets than a batch of tombstones.
		many := group.CommitRequest{Generation: -1, Retention: -1}
		for p := range int32(3*deleteMax + 7) {
			many.Partitions = append(many.Partitions, group.CommitPartition{Topic: "many", Partition: p, Offset: 1})
		}
		_, err = k.groups.Commit(ctx, "big", many)
		require.NoError(t, err)
		require.NoError(t, k.groups.Delete(ctx, "big"))
		k.restart()
		require.Empty(t, k.list())
		require.Equal(t, cluster.NoOffset, k.committed("g", "t"))
	})
}

// The name of a group is in the key of each of its records: their bytes are bounded,
// not only their number.
func TestOffsetsOfALongNameGo(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		deleted, expires := strings.Repeat("d", textMax), strings.Repeat("e", textMax)
		for _, id := range []string{deleted, expires} {
			for p := range int32(deleteMax / 4) {
				_, err := k.groups.Commit(t.Context(), id, group.CommitRequest{Generation: -1, Retention: -1, Partitions: []group.CommitPartition{{Topic: "t", Partition: p}}})
				require.NoError(t, err)
			}
		}
		require.Len(t, k.list(), 2)
		require.NoError(t, k.groups.Delete(t.Context(), deleted))
		require.Len(t, k.list(), 1)
		<-time.After(3 * time.Minute)
		require.Empty(t, k.list())
	}, "offsets.retention.minutes", "1", "offsets.retention.check.interval.ms", "1000")
}

func TestMemoryDoesNotGrowWithGroups(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		for i := range 300 {
			require.NoError(t, k.commit(fmt.Sprint("g", i), "t", 1, group.JoinResponse{}))
		}
		k.stable("members", "t")
		require.Equal(t, []string{"members"}, k.inMemory())
		require.Len(t, k.list(), 301)
		require.Len(t, k.list(group.Empty), 300)
		k.restart()
		require.Equal(t, []string{"members"}, k.inMemory())
		require.Len(t, k.list(), 301)
	})
}

func TestOffsetsExpire(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		ctx := t.Context()
		k.w.topic("t", 1)
		k.w.topic("u", 1)
		j := k.stable("g", "t")
		require.NoError(t, k.commit("g", "t", 1, j))
		require.NoError(t, k.commit("g", "u", 1, j))
		require.NoError(t, k.commit("alone", "t", 1, group.JoinResponse{}))
		for range 8 {
			<-time.After(9 * time.Second)
			require.NoError(t, k.heartbeat("g", j))
		}
		k.pass()
		require.Equal(t, cluster.NoOffset, k.committed("alone", "t"), "no member, and a minute since the commit")
		require.NotContains(t, k.list(), "alone")
		_ = ctx
		st := k.groups.Stats()
		require.Equal(t, int64(2), st.Expired, "and u, which the member does not read")
	}, "offsets.retention.minutes", "1", "offsets.retention.check.interval.ms", "1000")
}

func TestOffsetsOfAMemberStay(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		j := k.stable("g", "t")
		require.NoError(t, k.commit("g", "t", 1, j))
		for range 15 {
			<-time.After(9 * time.Second)
			require.NoError(t, k.heartbeat("g", j))
		}
		require.Equal(t, cluster.Offset(1), k.committed("g", "t"), "there is a member that reads it")
		<-time.After(30 * time.Second)
		require.Equal(t, cluster.Offset(1), k.committed("g", "t"), "empty for less than the retention")
		require.Contains(t, k.list(), "g")
		<-time.After(60 * time.Second)
		require.Equal(t, cluster.NoOffset, k.committed("g", "t"))
		require.NotContains(t, k.list(), "g", "the group goes with its last offset")
	}, "offsets.retention.minutes", "1", "offsets.retention.check.interval.ms", "1000")
}

func TestOffsetsOfDeletedTopicsGo(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		id := k.w.topic("t", 1)
		k.w.topic("u", 1)
		j := k.stable("g", "t")
		for _, topic := range []string{"t", "u"} {
			require.NoError(t, k.commit("g", topic, 1, j))
			require.NoError(t, k.commit("h", topic, 1, group.JoinResponse{}))
		}
		k.w.apply(command.TopicDeleted{Topic: id})
		again := k.w.topic("t", 1)
		require.NotEqual(t, id, again)
		require.Equal(t, cluster.NoOffset, k.committed("g", "t"), "at once: it is of another topic")
		<-time.After(time.Second)
		require.NoError(t, k.heartbeat("g", j), "the group goes on")
		for _, g := range []string{"g", "h"} {
			res, err := k.groups.FetchOffsets(t.Context(), g, group.OffsetFetchRequest{MemberEpoch: -1, Partitions: []group.FetchPartition{{Topic: "t"}, {Topic: "u"}}})
			require.NoError(t, err)
			require.Equal(t, cluster.NoOffset, res.Offsets[0].Offset, "it is dropped: no topic id was asked for")
			require.Equal(t, cluster.Offset(1), res.Offsets[1].Offset)
		}
	})
}

func TestTextsThatNoRecordHoldsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		ctx, long := t.Context(), strings.Repeat("x", textMax+1)
		_, err := k.groups.Join(ctx, long, group.JoinRequest{})
		require.ErrorIs(t, err, group.ErrInvalidGroupID)
		_, err = k.groups.Join(ctx, "", group.JoinRequest{})
		require.ErrorIs(t, err, group.ErrInvalidGroupID)
		_, err = k.groups.Join(ctx, "g", group.JoinRequest{InstanceID: long})
		require.ErrorIs(t, err, group.ErrInvalidRequest)
		_, err = k.groups.ConsumerHeartbeat(ctx, "g", group.ConsumerHeartbeatRequest{SubscribedTopics: []string{long}})
		require.ErrorIs(t, err, group.ErrInvalidRequest)
		many := slices.Repeat([]string{"a"}, subscriptionMax/2+1)
		_, err = k.groups.ConsumerHeartbeat(ctx, "g", group.ConsumerHeartbeatRequest{MemberID: "m", RebalanceTimeout: 1, Owned: []group.TopicPartitions{}, SubscribedTopics: many})
		require.ErrorIs(t, err, group.ErrInvalidRequest)
		_, err = k.groups.ConsumerHeartbeat(ctx, "g", group.ConsumerHeartbeatRequest{MemberID: "m", RebalanceTimeout: 1, Owned: []group.TopicPartitions{}, SubscribedTopics: many[1:]})
		require.NoError(t, err)
		_, err = k.groups.ConsumerHeartbeat(ctx, "", group.ConsumerHeartbeatRequest{})
		require.ErrorIs(t, err, group.ErrInvalidRequest)
		require.ErrorIs(t, k.commit(long, Topic, 1, group.JoinResponse{}), group.ErrInvalidGroupID)
		require.ErrorIs(t, k.groups.Delete(ctx, long), group.ErrInvalidGroupID)
	})
}

// An answer that says that nothing is there tells of a deletion, which must be
// in the log before.
func TestADeletionThatFindsNothingWaitsForTheOneBefore(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		ctx := t.Context()
		k.w.topic("t", 1)
		require.NoError(t, k.commit("g", "t", 1, group.JoinResponse{}))
		r := k.of("g")
		r.hold()
		offset := group.OffsetDeleteRequest{Partitions: []group.PartitionName{{Topic: "t"}}}
		remove := func() (group.OffsetDeleteResponse, error) { return k.groups.DeleteOffsets(ctx, "g", offset) }
		first, second := start(remove), start(remove)
		whole := start(func() (struct{}, error) { return struct{}{}, k.groups.Delete(ctx, "g") })
		require.True(t, first.pending())
		require.True(t, second.pending())
		beating := start(func() (struct{}, error) {
			return struct{}{}, k.heartbeat("g", group.JoinResponse{MemberID: "m", Generation: 1})
		})
		listing := start(func() ([]group.Listed, error) { return k.groups.List(ctx, group.ListFilter{}) })
		require.True(t, whole.pending())
		require.True(t, beating.pending())
		require.True(t, listing.pending())
		require.Equal(t, cluster.Offset(1), k.committed("g", "t"))
		r.let()
		first.wait(t)
		synctest.Wait()
		require.ErrorIs(t, second.err, group.ErrGroupIDNotFound)
		require.ErrorIs(t, whole.err, group.ErrGroupIDNotFound)
		require.ErrorIs(t, beating.err, group.ErrUnknownMember)
		require.Empty(t, listing.wait(t))
		require.Equal(t, cluster.NoOffset, k.committed("g", "t"))
	})
}
