package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/config"
	"strandline/metadata/request"
)

func findCoordinator(kind int8, keys ...string) *kmsg.FindCoordinatorRequest {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys, req.CoordinatorKey = kind, keys, keys[0]
	return req
}

// awaitCreated waits until the topic's creation for a client is over.
func (k *kit) awaitCreated(c *client, name string) {
	k.t.Helper()
	require.Equal(k.t, name, <-k.created)
	require.Eventually(k.t, func() bool {
		return ask[*kmsg.FindCoordinatorResponse](c, findCoordinator(0, "g"), 4).Coordinators[0].ErrorCode != 15
	}, 5*time.Second, time.Millisecond)
}

// TestFindCoordinatorNamesThePartitionsLeader holds the answers against those of
// Apache Kafka 4.4, version by version.
func TestFindCoordinatorNamesThePartitionsLeader(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	for v := int16(0); v <= 3; v++ {
		resp := ask[*kmsg.FindCoordinatorResponse](c, findCoordinator(0, "g"), v)
		if v == 0 {
			require.Equal(t, "__consumer_offsets", <-k.created, "the first one who asks has it created")
		}
		_ = resp
	}
	require.Eventually(t, func() bool {
		return ask[*kmsg.FindCoordinatorResponse](c, findCoordinator(0, "g"), 0).ErrorCode == 0
	}, 5*time.Second, time.Millisecond)

	topic, ok := k.Image().Topic("__consumer_offsets")
	require.True(t, ok)
	require.Len(t, topic.Partitions, 50)
	require.Equal(t, map[string]string{
		"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600", "flush.messages": "1",
	}, topic.Configs)

	none, text := "NONE", ""
	b, _ := k.Image().Broker(self)
	port := b.Listeners[0].Port
	for v := int16(0); v <= 6; v++ {
		resp := ask[*kmsg.FindCoordinatorResponse](c, findCoordinator(0, "g", "", "g"), v)
		if v < 4 {
			require.Zero(t, resp.ErrorCode)
			require.Equal(t, []any{int32(self), "127.0.0.1", port}, []any{resp.NodeID, resp.Host, resp.Port})
			if v > 0 {
				require.Equal(t, &none, resp.ErrorMessage)
			}
			continue
		}
		require.Len(t, resp.Coordinators, 3)
		for i, key := range []string{"g", "", "g"} {
			require.Equal(t, kmsg.FindCoordinatorResponseCoordinator{Key: key, NodeID: int32(self), Host: "127.0.0.1", Port: port, ErrorMessage: &text}, resp.Coordinators[i])
		}
	}
	require.Empty(t, k.created, "it is created once")
}

func TestFindCoordinatorRefusesWhatIsNotThere(t *testing.T) {
	k := newKit(t, nil)
	c := k.dial()
	malformed, unavailable := "This most likely occurs because of a request being malformed by the client library or the message was sent to an "+
		"incompatible broker. See the broker logs for more details.", "The coordinator is not available."
	for _, row := range []struct {
		kind     int8
		code     int16
		old, new string
	}{
		{1, 15, unavailable, ""}, {2, 42, malformed, ""}, {3, 42, malformed, malformed}, {-1, 42, malformed, malformed},
	} {
		for v := int16(1); v <= 6; v++ {
			resp := ask[*kmsg.FindCoordinatorResponse](c, findCoordinator(row.kind, "x"), v)
			if v < 4 {
				require.Equal(t, []any{row.code, row.old, int32(-1), "", int32(-1)}, []any{resp.ErrorCode, *resp.ErrorMessage, resp.NodeID, resp.Host, resp.Port})
				continue
			}
			require.Zero(t, resp.ErrorCode)
			require.Equal(t, []kmsg.FindCoordinatorResponseCoordinator{{Key: "x", NodeID: -1, Port: -1, ErrorCode: row.code, ErrorMessage: &row.new}}, resp.Coordinators)
		}
	}
	require.Empty(t, k.created, "neither transactions nor share groups have a topic here")
}

// TestFindCoordinatorGoesByTheImage moves, removes and fences leaders.
func TestFindCoordinatorGoesByTheImage(t *testing.T) {
	k := newKit(t, func(b *config.Broker) { b.OffsetsTopic.Partitions = 3 })
	c := k.dial()
	ask[*kmsg.FindCoordinatorResponse](c, findCoordinator(0, "g"), 4)
	k.awaitCreated(c, "__consumer_offsets")
	topic, _ := k.Image().Topic("__consumer_offsets")
	require.Len(t, topic.Partitions, 3)
	move := func(partition int32, leader cluster.BrokerID) {
		k.mu.Lock()
		defer k.mu.Unlock()
		topic, _ := k.img.Topic("__consumer_offsets")
		p := topic.Partitions[partition]
		k.apply(command.PartitionsChanged{Topic: topic.ID, Changes: []command.PartitionChange{{
			Partition: partition, PartitionEpoch: p.PartitionEpoch + 1, Leader: leader, LeaderEpoch: p.LeaderEpoch + 1, ISR: p.ISR,
		}}})
	}
	codes := func(keys ...string) []int16 {
		var out []int16
		for _, r := range ask[*kmsg.FindCoordinatorResponse](c, findCoordinator(0, keys...), 6).Coordinators {
			out = append(out, r.ErrorCode)
		}
		return out
	}
	keys := []string{"a", "b", "c"} // of the partitions 1, 2 and 0
	for i, key := range keys {
		require.Equal(t, int32((i+1)%3), cluster.CoordinatorPartition(key, 3))
	}
	require.Equal(t, []int16{0, 0, 0}, codes(keys...))
	move(1, cluster.NoBroker)
	require.Equal(t, []int16{15, 0, 0}, codes(keys...), "a partition without a leader")
	k.mu.Lock()
	b, _ := k.img.Broker(self)
	k.apply(command.BrokerState{ID: self, Epoch: b.Epoch, Fenced: true})
	k.mu.Unlock()
	require.Equal(t, []int16{15, 15, 15}, codes(keys...), "a fenced broker")
}

func TestTheGroupsTopicHasAsManyReplicasAsItCan(t *testing.T) {
	for _, row := range []struct {
		set      config.OffsetsTopic
		segment  string
		brokers  int
		replicas int16
	}{
		{config.OffsetsTopic{Partitions: 1, Replication: 3, SegmentBytes: 1 << 20}, "segment.bytes", 1, 1},
		{config.OffsetsTopic{Partitions: 1, Replication: 3, SegmentBytes: 1<<20 - 1}, "internal.segment.bytes", 2, 2},
		{config.OffsetsTopic{Partitions: 1, Replication: 3, SegmentBytes: 4096}, "internal.segment.bytes", 5, 3},
		{config.OffsetsTopic{Partitions: 1, Replication: 3, ReplicationSet: true, SegmentBytes: 1 << 20}, "segment.bytes", 1, 3},
	} {
		k := newKit(t, func(b *config.Broker) { b.OffsetsTopic = row.set })
		k.mu.Lock()
		for id := 2; id <= row.brokers; id++ {
			k.apply(command.BrokerRegistered{ID: cluster.BrokerID(id), Listeners: []request.Listener{{Name: "PLAINTEXT", Host: "h", Port: 1}}})
		}
		k.mu.Unlock()
		ask[*kmsg.FindCoordinatorResponse](k.dial(), findCoordinator(0, "g"), 4)
		got := <-k.asked
		require.Equal(t, row.replicas, got.Replication)
		require.Contains(t, got.Configs, row.segment)
		require.True(t, got.Internal)
	}
}
