package samples

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// Group is what a client sees of a consumer group.
type Group struct {
	Type    string            `json:"type"`
	State   string            `json:"state"`
	Members map[string]Member `json:"members"` // by instance id
	Offsets map[string]Offset `json:"offsets"` // by topic and partition
	Configs map[string]string `json:"configs"` // those that the group sets itself
}

// Member is what a client sees of a member.
type Member struct {
	ID         string `json:"id"`
	Epoch      int32  `json:"epoch"` // -1: of the classic protocol
	Assignment string `json:"assignment"`
}

// Offset is a committed offset.
type Offset struct {
	Offset      int64  `json:"offset"`
	LeaderEpoch int32  `json:"leaderEpoch"`
	Metadata    string `json:"metadata"`
}

// fillKeys makes compacted topics, with every codec, headers and tombstones, and
// lets them be compacted.
func fillKeys(t *testing.T, s *kit.Server) {
	adm := kadm.NewClient(client(t, s.Addr))
	for topic, policy := range map[string]string{"compacted": "compact", "both": "compact,delete"} {
		configs := map[string]string{
			"cleanup.policy": policy, "retention.ms": "-1", "internal.segment.bytes": "3000", "min.cleanable.dirty.ratio": "0.01", "index.interval.bytes": "500",
		}
		values := map[string]*string{}
		for name, value := range configs {
			values[name] = &value
		}
		_, err := adm.CreateTopic(t.Context(), 2, 1, values, topic)
		require.NoError(t, err)
		for c, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
			opts := []kgo.Opt{kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(1000)}
			if c%2 == 1 {
				opts = append(opts, kgo.DisableIdempotentWrite())
			}
			cl := client(t, s.Addr, opts...)
			for i := range 200 {
				r := &kgo.Record{
					Topic: topic, Partition: int32(i % 2), Key: fmt.Append(nil, "key ", i*7%30), Value: fmt.Append(nil, "value ", c, " ", i),
					Timestamp: time.UnixMilli(1_790_000_000_000 + int64(200*c+i)),
				}
				switch {
				case i%30 == 4:
					r.Value = nil
				case i%3 == 0:
					r.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte{byte(i)}}}
				}
				cl.Produce(t.Context(), r, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("%s: %v", topic, err)
					}
				})
			}
			require.NoError(t, cl.Flush(t.Context()))
		}
	}
	kit.Eventually(t, 30*time.Second, "logs are compacted", func() bool { return s.Metric("strandline_compaction_records_removed_total") > 1000 })
}

// commit commits an offset of a group as a member, or as nobody. The first one waits
// for the coordinator.
func commit(t *testing.T, cl *kgo.Client, group string, member *kmsg.OffsetCommitRequest, o kadm.Offset) {
	t.Helper()
	topics, err := kadm.NewClient(cl).ListTopics(t.Context(), o.Topic)
	require.NoError(t, err)
	req := kmsg.NewPtrOffsetCommitRequest()
	if member != nil {
		req.MemberID, req.InstanceID, req.Generation = member.MemberID, member.InstanceID, member.Generation
	}
	req.Group = group
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = o.Partition, o.At, o.LeaderEpoch, &o.Metadata
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = o.Topic, topics[o.Topic].ID, append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	kit.Eventually(t, 30*time.Second, "the offset is committed", func() bool {
		resp, err := req.RequestWith(t.Context(), cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
		require.True(t, err == nil || kerr.IsRetriable(err), "%v", err)
		return err == nil
	})
}

// fillGroups makes groups of both protocols, with static members and without any,
// with offsets, one that is deleted, and lets the log that keeps them be compacted.
func fillGroups(t *testing.T, s *kit.Server) {
	ctx, cl := t.Context(), client(t, s.Addr)
	adm := kadm.NewClient(cl)
	at := func(topic string, partition int32, offset int64, metadata string) kadm.Offset {
		return kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: 0, Metadata: metadata}
	}
	for _, group := range []string{"offsets", "gone"} {
		commit(t, cl, group, nil, at("local", 0, 5, "why"))
		commit(t, cl, group, nil, at("local", 1, 17, ""))
		commit(t, cl, group, nil, kadm.Offset{Topic: "tiered", At: 700, LeaderEpoch: -1})
	}
	_, err := adm.DeleteGroup(ctx, "gone")
	require.NoError(t, err)
	var two kadm.TopicsSet
	two.Add("local", 1)
	deleted, err := adm.DeleteOffsets(ctx, "offsets", two)
	require.NoError(t, err)
	require.NoError(t, deleted.Error())

	one := "one"
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.InstanceID, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = "classic", &one, "consumer", 1_800_000, 60_000
	subscription := kmsg.NewConsumerMemberMetadata()
	subscription.Topics = []string{"local"}
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", subscription.AppendTo(nil)
	join.Protocols = append(join.Protocols, protocol)
	joined, err := join.RequestWith(ctx, cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(joined.ErrorCode))
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.InstanceID, sync.Generation, sync.ProtocolType, sync.Protocol = "classic", joined.MemberID, &one, joined.Generation, &join.ProtocolType, &protocol.Name
	assigned := kmsg.NewConsumerMemberAssignment()
	assigned.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "local", Partitions: []int32{0, 1}}}
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: assigned.AppendTo(nil)}}
	synced, err := sync.RequestWith(ctx, cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(synced.ErrorCode))
	commit(t, cl, "classic", &kmsg.OffsetCommitRequest{MemberID: joined.MemberID, InstanceID: &one, Generation: joined.Generation}, at("local", 1, 20, "a member's"))

	for group, stays := range map[string]bool{"consumer": true, "left": false} {
		instance := group + "-1"
		beat := heartbeat(group, group+"'s member", 0)
		beat.InstanceID, beat.SubscribedTopicNames = &instance, []string{"local", "compacted"}
		epoch := beats(t, cl, beat)
		commit(t, cl, group, &kmsg.OffsetCommitRequest{MemberID: beat.MemberID, InstanceID: &instance, Generation: epoch}, at("compacted", 0, 30, ""))
		if !stays {
			leave := heartbeat(group, beat.MemberID, -1)
			leave.InstanceID = &instance
			require.EqualValues(t, -1, beats(t, cl, leave))
		}
	}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	interval := "6000"
	alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "consumer",
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "consumer.heartbeat.interval.ms", Value: &interval}},
	}}
	altered, err := alter.RequestWith(ctx, cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(altered.Resources[0].ErrorCode))

	// The log that keeps them is compacted as well.
	removed := s.Metric("strandline_compaction_records_removed_total")
	for i := range 60 {
		commit(t, cl, "offsets", nil, at("local", 0, int64(100+i), "again"))
	}
	kit.Eventually(t, 30*time.Second, "the log of groups is compacted", func() bool { return s.Metric("strandline_compaction_records_removed_total") > removed })
}

func heartbeat(group, member string, epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = group, member, epoch
	if epoch == 0 {
		req.RebalanceTimeoutMillis, req.Topics = 60_000, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	return req
}

// beats sends a heartbeat, and returns the member's epoch.
func beats(t *testing.T, cl *kgo.Client, req *kmsg.ConsumerGroupHeartbeatRequest) int32 {
	t.Helper()
	resp, err := req.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.ErrorCode), "%v", resp.ErrorMessage)
	return resp.MemberEpoch
}

// membersGoOn has the members of a sample's groups say that they are there.
func membersGoOn(t *testing.T, addr string, want Expected) {
	cl := client(t, addr)
	for name, g := range want.Groups {
		for instance, m := range g.Members {
			if m.Epoch >= 0 {
				beat := heartbeat(name, m.ID, m.Epoch)
				beat.InstanceID = &instance
				require.Equal(t, m.Epoch, beats(t, cl, beat), name)
				continue
			}
			beat := kmsg.NewPtrHeartbeatRequest()
			beat.Group, beat.MemberID, beat.InstanceID, beat.Generation = name, m.ID, &instance, 1
			resp, err := beat.RequestWith(t.Context(), cl)
			require.NoError(t, err)
			require.NoError(t, kerr.ErrorForCode(resp.ErrorCode), name)
		}
	}
}

// observeGroups reads everything that a client can see of groups.
func observeGroups(ctx context.Context, t *testing.T, addr string) map[string]Group {
	t.Helper()
	cl := client(t, addr)
	adm := kadm.NewClient(cl)
	var listed kadm.ListedGroups
	kit.Eventually(t, 30*time.Second, "groups are listed", func() (ok bool) {
		var err error
		listed, err = adm.ListGroups(ctx)
		return err == nil
	})
	var groups map[string]Group
	for name, l := range listed {
		g := Group{Type: l.GroupType, State: l.State, Members: map[string]Member{}, Offsets: map[string]Offset{}, Configs: map[string]string{}}
		members(ctx, t, adm, name, &g)
		offsets, err := adm.FetchOffsets(ctx, name)
		require.NoError(t, err)
		offsets.Each(func(o kadm.OffsetResponse) {
			require.NoError(t, o.Err)
			g.Offsets[fmt.Sprintf("%s-%d", o.Topic, o.Partition)] = Offset{o.At, o.LeaderEpoch, o.Metadata}
		})
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: name}}
		configs, err := req.RequestWith(ctx, cl)
		require.NoError(t, err)
		require.NoError(t, kerr.ErrorForCode(configs.Resources[0].ErrorCode))
		for _, c := range configs.Resources[0].Configs {
			if c.Source == kmsg.ConfigSourceGroupConfig {
				g.Configs[c.Name] = *c.Value
			}
		}
		if groups == nil {
			groups = map[string]Group{}
		}
		groups[name] = g
	}
	return groups
}

func members(ctx context.Context, t *testing.T, adm *kadm.Client, name string, g *Group) {
	t.Helper()
	if g.Type == "classic" {
		described, err := adm.DescribeGroups(ctx, name)
		require.NoError(t, err)
		require.NoError(t, described.Error())
		for _, m := range described[name].Members {
			assigned, _ := m.Assigned.AsConsumer()
			g.Members[*m.InstanceID] = Member{m.MemberID, -1, hex.EncodeToString(assigned.AppendTo(nil))}
		}
		return
	}
	described, err := adm.DescribeConsumerGroups(ctx, name)
	require.NoError(t, err)
	require.NoError(t, described.Error())
	for _, m := range described[name].Members {
		var parts []string
		m.Assignment.Each(func(topic string, partition int32) { parts = append(parts, fmt.Sprintf("%s-%d", topic, partition)) })
		slices.Sort(parts)
		g.Members[*m.InstanceID] = Member{m.MemberID, m.MemberEpoch, fmt.Sprint(parts)}
	}
}
