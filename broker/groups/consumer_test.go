package groups

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/group"
	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
)

// beat sends a heartbeat of KIP-848 that joins with a subscription, or, with an
// epoch, only says that the member is there.
func (k *kit) beat(groupID, member string, epoch int32, topics ...string) (group.ConsumerHeartbeatResponse, error) {
	req := group.ConsumerHeartbeatRequest{MemberID: member, MemberEpoch: epoch, RebalanceTimeout: -1}
	if epoch == group.JoinEpoch {
		req.RebalanceTimeout, req.SubscribedTopics, req.Owned = 20*time.Second, topics, []group.TopicPartitions{}
	}
	return k.groups.ConsumerHeartbeat(k.t.Context(), groupID, req)
}

func (k *kit) mustBeat(groupID, member string, epoch int32, topics ...string) group.ConsumerHeartbeatResponse {
	k.t.Helper()
	r, err := k.beat(groupID, member, epoch, topics...)
	require.NoError(k.t, err)
	return r
}

func count(r group.ConsumerHeartbeatResponse) int {
	n := 0
	for _, a := range r.Assignment {
		n += len(a.Partitions)
	}
	return n
}

func TestConsumersShareATopicThatGrows(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		id := k.w.topic("t", 4)
		one := k.mustBeat("g", "one", 0, "t")
		require.Equal(t, 4, count(one))
		require.NoError(t, k.commit("g", "t", 5, group.JoinResponse{MemberID: "one", Generation: one.MemberEpoch}))
		require.ErrorIs(t, k.commit("g", "t", 5, group.JoinResponse{MemberID: "one", Generation: 9}), group.ErrStaleMemberEpoch)

		<-time.After(2 * time.Second)
		two := k.mustBeat("g", "two", 0, "t")
		require.Zero(t, count(two), "the other has to give them up first")
		one = k.mustBeat("g", "one", one.MemberEpoch)
		require.Equal(t, 2, count(one))
		owned := group.ConsumerHeartbeatRequest{MemberID: "one", MemberEpoch: one.MemberEpoch, RebalanceTimeout: -1, Owned: one.Assignment}
		one, err := k.groups.ConsumerHeartbeat(t.Context(), "g", owned)
		require.NoError(t, err)
		two = k.mustBeat("g", "two", two.MemberEpoch)
		require.Equal(t, 2, count(two))

		// A member reads the offsets that it may, by its epoch.
		fetch := group.OffsetFetchRequest{MemberID: "one", MemberEpoch: one.MemberEpoch, Partitions: []group.FetchPartition{{Topic: "t"}}}
		res, err := k.groups.FetchOffsets(t.Context(), "g", fetch)
		require.NoError(t, err)
		require.Equal(t, cluster.Offset(5), res.Offsets[0].Offset)
		fetch.MemberEpoch = 77
		_, err = k.groups.FetchOffsets(t.Context(), "g", fetch)
		require.ErrorIs(t, err, group.ErrStaleMemberEpoch)
		fetch.MemberID = "nobody"
		_, err = k.groups.FetchOffsets(t.Context(), "g", fetch)
		require.ErrorIs(t, err, group.ErrUnknownMember)
		_, err = k.groups.FetchOffsets(t.Context(), "no-group", fetch)
		require.NoError(t, err)

		k.w.apply(command.PartitionsAdded{Topic: id, First: 4, Total: 8, Partitions: alone(4)})
		<-time.After(2 * time.Second)
		total := func() int {
			d, err := k.groups.DescribeConsumer(t.Context(), "g")
			require.NoError(t, err)
			n := 0
			for _, m := range d.Members {
				for _, a := range m.Target {
					n += len(a.Partitions)
				}
			}
			return n
		}
		require.Equal(t, 4, total())
		k.mustBeat("g", "one", one.MemberEpoch)
		require.Equal(t, 8, total(), "a heartbeat notices the new partitions")
		require.Contains(t, k.list(), "g")
		require.Equal(t, group.Consumer, k.list()["g"].Type)
		_, err = k.groups.Describe(t.Context(), "g")
		require.ErrorIs(t, err, group.ErrGroupIDNotFound)

		k.restart()
		require.Equal(t, []string{"g"}, k.inMemory())
		require.Equal(t, 8, total())
		<-time.After(46 * time.Second)
		require.Empty(t, k.inMemory(), "nobody was heard from")
		require.Equal(t, group.Empty, k.list()["g"].State)
		require.Equal(t, cluster.Offset(5), k.committed("g", "t"))
	})
}

func TestConfigsOfAGroupCountAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		m := k.mustBeat("g", "m", 0, "t")
		require.Equal(t, 5*time.Second, m.HeartbeatInterval)
		set := func(changes ...command.ConfigChange) {
			k.w.apply(command.GroupConfigsChanged{Group: "g", Changes: changes})
		}
		set(command.ConfigChange{Key: "consumer.heartbeat.interval.ms", Value: "7000"}, command.ConfigChange{Key: "consumer.session.timeout.ms", Value: "60000"})
		require.Equal(t, 7*time.Second, k.mustBeat("g", "m", m.MemberEpoch).HeartbeatInterval)
		require.Equal(t, 5*time.Second, k.mustBeat("h", "m", 0, "t").HeartbeatInterval)
		<-time.After(50 * time.Second)
		require.Equal(t, []string{"g"}, k.inMemory(), "h had the broker's session timeout")
		set(command.ConfigChange{Key: "consumer.heartbeat.interval.ms", Delete: true})
		require.Equal(t, 5*time.Second, k.mustBeat("g", "m", m.MemberEpoch).HeartbeatInterval)
	})
}

// TestAGroupChangesItsProtocol goes from the classic protocol to that of KIP-848
// and back, with members on both sides.
func TestAGroupChangesItsProtocol(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 2)
		old := k.stable("g", "t")
		require.NoError(t, k.commit("g", "t", 1, old))

		fresh := k.mustBeat("g", "new", 0, "t")
		require.Equal(t, 1, count(fresh), "the other one holds the other partition")
		require.Equal(t, group.Consumer, k.list()["g"].Type)
		require.ErrorIs(t, k.heartbeat("g", old), group.ErrRebalanceInProgress, "it is to join again")
		again := k.join(t.Context(), "g", old.MemberID, "t").wait(t)
		require.Equal(t, old.MemberID, again.MemberID)
		require.NoError(t, k.commit("g", "t", 2, group.JoinResponse{MemberID: again.MemberID, Generation: again.Generation}))
		d, err := k.groups.DescribeConsumer(t.Context(), "g")
		require.NoError(t, err)
		require.Len(t, d.Members, 2)
		k.restart()
		d, err = k.groups.DescribeConsumer(t.Context(), "g")
		require.NoError(t, err)
		require.Len(t, d.Members, 2)

		// The last of the new kind leaves: the others are a classic group again.
		k.mustBeat("g", "new", group.LeaveEpoch)
		require.Equal(t, group.Classic, k.list()["g"].Type)
		require.NotEqual(t, group.Empty, k.list()["g"].State)
		_, err = k.groups.DescribeConsumer(t.Context(), "g")
		require.ErrorIs(t, err, group.ErrGroupIDNotFound)
		rejoined := k.join(t.Context(), "g", old.MemberID, "t").wait(t)
		require.Greater(t, rejoined.Generation, again.Generation)
		k.sync("g", rejoined, group.Assignment{MemberID: rejoined.MemberID, Assignment: assigned("t", 0, 1)}).wait(t)
		k.restart()
		require.NoError(t, k.heartbeat("g", rejoined))
		require.Equal(t, cluster.Offset(2), k.committed("g", "t"))
	})
}

func TestPoliciesOfMigration(t *testing.T) {
	for policy, upgrades := range map[string]bool{"disabled": false, "downgrade": false, "upgrade": true, "bidirectional": true} {
		bubble(t, func(t *testing.T, k *kit) {
			k.w.topic("t", 2)
			k.stable("g", "t")
			_, err := k.beat("g", "new", 0, "t")
			if !upgrades {
				require.ErrorIs(t, err, group.ErrGroupIDNotFound, policy)
				require.Equal(t, group.Stable, k.list()["g"].State)
				return
			}
			require.NoError(t, err, policy)
			require.Equal(t, group.Consumer, k.list()["g"].Type)
		}, "group.consumer.migration.policy", policy)
	}
}

func TestEmptyGroupsMakeRoomForTheOtherProtocol(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		j := k.stable("g", "t")
		require.NoError(t, k.commit("g", "t", 3, j))
		_, err := k.groups.Leave(t.Context(), "g", group.LeaveRequest{Members: []group.LeavingMember{{MemberID: j.MemberID}}})
		require.NoError(t, err)
		k.mustBeat("g", "m", 0, "t")
		require.Equal(t, group.Consumer, k.list()["g"].Type)
		k.mustBeat("g", "m", group.LeaveEpoch)
		require.Equal(t, group.Listed{GroupID: "g", ProtocolType: "consumer", State: group.Empty, Type: group.Consumer}, k.list()["g"])
		require.ErrorIs(t, k.join(t.Context(), "g", "stranger", "t").err, group.ErrUnknownMember)
		k.stable("g", "t")
		require.Equal(t, group.Classic, k.list()["g"].Type)
		k.restart()
		require.Equal(t, group.Classic, k.list()["g"].Type)
		require.Equal(t, cluster.Offset(3), k.committed("g", "t"))
	})
}

// TestAChangeOfProtocolThatTheLogRefuses leaves the group as it was.
func TestAChangeOfProtocolThatTheLogRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 2)
		old := k.stable("g", "t")
		r := k.of("g")
		r.fail(partition.ErrNotEnoughReplicas)
		_, err := k.beat("g", "new", 0, "t")
		require.ErrorIs(t, err, group.ErrCoordinatorNotAvailable)
		r.fail(nil)
		require.Equal(t, group.Listed{GroupID: "g", ProtocolType: "consumer", State: group.Stable, Type: group.Classic}, k.list()["g"])
		require.NoError(t, k.heartbeat("g", old))

		k.mustBeat("g", "new", 0, "t")
		r.fail(partition.ErrNotEnoughReplicas)
		_, err = k.beat("g", "new", group.LeaveEpoch)
		require.ErrorIs(t, err, group.ErrCoordinatorNotAvailable)
		r.fail(nil)
		require.Equal(t, group.Consumer, k.list()["g"].Type)
		d, err := k.groups.DescribeConsumer(t.Context(), "g")
		require.NoError(t, err)
		require.Len(t, d.Members, 2)
	})
}

func TestRequestsThatFindNoConsumerGroup(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		_, err := k.beat("g", "m", 3)
		require.ErrorIs(t, err, group.ErrGroupIDNotFound)
		_, err = k.beat("g", "m", -7)
		require.ErrorIs(t, err, group.ErrInvalidRequest, "whatever the group is")
		_, err = k.beat("g", "m", group.LeaveEpoch)
		require.ErrorIs(t, err, group.ErrGroupIDNotFound)
		_, err = k.groups.DescribeConsumer(t.Context(), "g")
		require.ErrorIs(t, err, group.ErrGroupIDNotFound)
		_, err = k.groups.DescribeConsumer(t.Context(), "")
		require.ErrorIs(t, err, group.ErrInvalidGroupID)
		require.Empty(t, k.inMemory())
		require.Empty(t, k.list())
	})
}

// TestAnIdleConsumerGroupGoesWithItsOffsets has the pass delete it.
func TestAnIdleConsumerGroupGoesWithItsOffsets(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		m := k.mustBeat("g", "m", 0, "t")
		require.NoError(t, k.commit("g", "t", 3, group.JoinResponse{MemberID: "m", Generation: m.MemberEpoch}))
		k.mustBeat("g", "m", group.LeaveEpoch)
		<-time.After(50 * time.Second)
		require.Contains(t, k.list(), "g")
		require.EqualValues(t, 1, k.groups.Stats().Offsets)
		<-time.After(20 * time.Second)
		require.Empty(t, k.list())
		require.Zero(t, k.groups.Stats().Offsets)
	}, "offsets.retention.minutes", "1", "offsets.retention.check.interval.ms", "1000")
}

func TestACommitThatFitsNoBatch(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		j := k.stable("g", "t")
		req := group.CommitRequest{MemberID: j.MemberID, Generation: j.Generation, Retention: -1}
		for p := range int32(400) {
			req.Partitions = append(req.Partitions, group.CommitPartition{Topic: "t", Partition: p, Metadata: strings.Repeat("x", 4000)})
		}
		_, err := k.groups.Commit(t.Context(), "g", req)
		require.ErrorIs(t, err, group.ErrInvalidCommitOffsetSize)
		require.NoError(t, k.heartbeat("g", j), "the group is none the worse")
	})
}

func TestOffsetsForMetricsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		for i := range 20 {
			require.NoError(t, k.commit(fmt.Sprint("idle", i), "t", 1, group.JoinResponse{}))
		}
		require.NoError(t, k.commit("active", "t", 7, k.stable("active", "t")))
		list, more := k.groups.Offsets(t.Context(), 5)
		require.True(t, more)
		require.Len(t, list, 5)
		require.Equal(t, "active", list[0].Group)
		require.Equal(t, cluster.Offset(7), list[0].Offset)
		list, more = k.groups.Offsets(t.Context(), 21)
		require.False(t, more)
		require.Len(t, list, 21)
		require.True(t, slices.ContainsFunc(list, func(o GroupOffset) bool { return o.Group == "idle19" && o.Topic == "t" && o.Offset == 1 }))
	})
}

// Thousands of members that are missed at once leave in several batches: in one
// they would be too large for the log, and never go.
func TestThousandsOfMembersAreMissed(t *testing.T) {
	bubble(t, func(t *testing.T, k *kit) {
		k.w.topic("t", 1)
		const members = 6000
		for i := range members {
			_, err := k.groups.ConsumerHeartbeat(t.Context(), "g", group.ConsumerHeartbeatRequest{
				MemberID: fmt.Sprintf("a-client-with-a-name-and-a-number-%d", i), RebalanceTimeout: time.Minute,
				SubscribedTopics: []string{"t"}, Owned: []group.TopicPartitions{},
			})
			require.NoError(t, err)
		}
		require.Contains(t, k.inMemory(), "g")
		<-time.After(time.Minute)
		require.Empty(t, k.inMemory())
		d, err := k.groups.DescribeConsumer(t.Context(), "g")
		require.NoError(t, err)
		require.Equal(t, group.Empty, d.State)
	})
}
