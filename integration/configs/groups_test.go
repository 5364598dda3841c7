package configs

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/cmd/serve"
	"strandline/integration/kit"
	"strandline/metadata/disk"
)

const ofGroup kmsg.ConfigResourceType = 32

// groupRows show the effect of every key of a node about consumer groups.
var groupRows = map[string]func(t *testing.T){
	"group.coordinator.rebalance.protocols": func(t *testing.T) {
		codes(t, kerr.UnsupportedVersion, withGroups(t, "group.coordinator.rebalance.protocols=classic").beat("g", "m").ErrorCode)
		codes(t, nil, withGroups(t).beat("g", "m").ErrorCode)
	},
	"group.initial.rebalance.delay.ms": func(t *testing.T) {
		n := withGroups(t, "group.initial.rebalance.delay.ms=700")
		began := time.Now()
		codes(t, nil, n.join("g", "one", 10_000).ErrorCode)
		require.GreaterOrEqual(t, time.Since(began), 700*time.Millisecond)
	},
	"group.min.session.timeout.ms": func(t *testing.T) {
		codes(t, nil, withGroups(t, "group.min.session.timeout.ms=1000").join("g", "one", 1000).ErrorCode)
		codes(t, kerr.InvalidSessionTimeout, withGroups(t).join("g", "one", 5999).ErrorCode)
	},
	"group.max.session.timeout.ms": func(t *testing.T) {
		n := withGroups(t, "group.max.session.timeout.ms=7000")
		codes(t, kerr.InvalidSessionTimeout, n.join("g", "one", 7001).ErrorCode)
		codes(t, nil, n.join("g", "one", 7000).ErrorCode)
	},
	"group.max.size": func(t *testing.T) {
		n := withGroups(t, "group.max.size=1")
		codes(t, nil, n.join("g", "one", 10_000).ErrorCode)
		codes(t, kerr.GroupMaxSizeReached, n.join("g", "two", 10_000).ErrorCode)
	},
	"group.consumer.session.timeout.ms": func(t *testing.T) {
		n := withGroups(t, "group.consumer.min.session.timeout.ms=1000", "group.consumer.session.timeout.ms=1000",
			"group.consumer.min.heartbeat.interval.ms=100", "group.consumer.heartbeat.interval.ms=100")
		codes(t, nil, n.beat("g", "m").ErrorCode)
		n.eventually("the silent member is missed", func() bool { return n.consumers("g").State == "Empty" })
	},
	"group.consumer.min.session.timeout.ms": bound("group.consumer.min.session.timeout.ms=40000", "consumer.session.timeout.ms=40000"),
	"group.consumer.max.session.timeout.ms": bound("group.consumer.max.session.timeout.ms=70000", "consumer.session.timeout.ms=70000"),
	"group.consumer.heartbeat.interval.ms": func(t *testing.T) {
		require.EqualValues(t, 7000, withGroups(t, "group.consumer.heartbeat.interval.ms=7000").beat("g", "m").HeartbeatIntervalMillis)
	},
	"group.consumer.min.heartbeat.interval.ms": bound("group.consumer.min.heartbeat.interval.ms=100", "consumer.heartbeat.interval.ms=100"),
	"group.consumer.max.heartbeat.interval.ms": bound("group.consumer.max.heartbeat.interval.ms=20000", "consumer.heartbeat.interval.ms=20000"),
	"group.consumer.assignment.interval.ms": func(t *testing.T) {
		behind := func(n *running) bool {
			codes(t, nil, n.beat("g", "one").ErrorCode)
			codes(t, nil, n.beat("g", "two").ErrorCode)
			g := n.consumers("g")
			return g.AssignmentEpoch < g.Epoch
		}
		require.False(t, behind(withGroups(t, "group.consumer.assignment.interval.ms=0")))
		require.True(t, behind(withGroups(t, "group.consumer.assignment.interval.ms=15000")))
	},
	"group.consumer.min.assignment.interval.ms": func(t *testing.T) {
		n := withGroups(t, "group.consumer.min.assignment.interval.ms=500")
		codes(t, kerr.InvalidConfig, n.alter(ofGroup, "g", "consumer.assignment.interval.ms=499").ErrorCode)
	},
	"group.consumer.max.assignment.interval.ms": bound("group.consumer.max.assignment.interval.ms=20000", "consumer.assignment.interval.ms=20000"),
	"group.consumer.max.size": func(t *testing.T) {
		n := withGroups(t, "group.consumer.max.size=1")
		codes(t, nil, n.beat("g", "one").ErrorCode)
		codes(t, kerr.GroupMaxSizeReached, n.beat("g", "two").ErrorCode)
	},
	"group.consumer.assignors": func(t *testing.T) {
		for _, assignor := range []string{"range", "uniform"} {
			n := withGroups(t, "group.consumer.assignors="+assignor)
			codes(t, nil, n.beat("g", "m").ErrorCode)
			require.Equal(t, assignor, n.consumers("g").AssignorName)
		}
	},
	"group.consumer.migration.policy": func(t *testing.T) {
		for policy, want := range map[string]*kerr.Error{"disabled": kerr.GroupIDNotFound, "downgrade": kerr.GroupIDNotFound, "upgrade": nil, "bidirectional": nil} {
			n := withGroups(t, "group.consumer.migration.policy="+policy)
			codes(t, nil, n.join("g", "one", 10_000).ErrorCode)
			codes(t, want, n.beat("g", "two").ErrorCode)
		}
	},
	"metrics.partition.series.max": func(t *testing.T) {
		for most, want := range map[string]int{"0": 0, "2": 2, "10": 3} {
			n := withGroups(t, "metrics.partition.series.max="+most)
			topic := n.create(1)
			for _, g := range []string{"a", "b", "c"} {
				codes(t, nil, n.commitOffset(g, topic, ""))
			}
			_, page := n.Get("/metrics")
			require.Equal(t, want, strings.Count(page, "\nstrandline_group_lag{"), most)
		}
	},
	"offset.metadata.max.bytes": func(t *testing.T) {
		n := withGroups(t, "offset.metadata.max.bytes=3")
		topic := n.create(1)
		codes(t, nil, n.commitOffset("g", topic, "abc"))
		codes(t, kerr.OffsetMetadataTooLarge, n.commitOffset("g", topic, "abcd"))
	},
	"offsets.commit.timeout.ms":           commitTimeout,
	"offsets.retention.minutes":           func(t *testing.T) { expires(t, "2", "100") },
	"offsets.retention.check.interval.ms": func(t *testing.T) { expires(t, "1", "100") },
}

func codes(t *testing.T, want *kerr.Error, code int16) {
	t.Helper()
	if want == nil {
		require.NoError(t, kerr.ErrorForCode(code))
		return
	}
	require.ErrorIs(t, kerr.ErrorForCode(code), want)
}

// bound shows that a group may have a value because of a broker's key alone.
func bound(broker, group string) func(t *testing.T) {
	return func(t *testing.T) {
		codes(t, nil, withGroups(t, broker).alter(ofGroup, "g", group).ErrorCode)
		codes(t, kerr.InvalidConfig, withGroups(t).alter(ofGroup, "g", group).ErrorCode)
	}
}

// withGroups is a server with settings whose coordinators are ready; groups do
// not wait for more members unless they say so.
func withGroups(t *testing.T, settings ...string) *running {
	t.Helper()
	n := with(t, append([]string{"group.initial.rebalance.delay.ms=0"}, settings...)...)
	n.coordinated()
	return n
}

func (n *running) coordinated() {
	n.t.Helper()
	kit.Eventually(n.t, patience, "the coordinators are ready", func() bool {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorKeys = 4, []string{"g"}
		return ask[*kmsg.FindCoordinatorResponse](n, req).Coordinators[0].ErrorCode == 0 &&
			ask[*kmsg.ListGroupsResponse](n, kmsg.NewPtrListGroupsRequest()).ErrorCode == 0 && n.committed("g", "t") == -1
	})
}

// committed is a group's offset of a topic's first partition: -1 for none, -2
// where it is not told.
func (n *running) committed(group, topic string) int64 {
	n.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group = 7, group
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{0}}}
	resp := ask[*kmsg.OffsetFetchResponse](n, req)
	if resp.ErrorCode != 0 {
		return -2
	}
	return resp.Topics[0].Partitions[0].Offset
}

func (n *running) commitOffset(group, topic, metadata string) int16 {
	n.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, group, -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.Metadata = 5, &metadata
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	return ask[*kmsg.OffsetCommitResponse](n, req).Topics[0].Partitions[0].ErrorCode
}

// join makes a static member of a classic group.
func (n *running) join(group, instance string, sessionMs int32) *kmsg.JoinGroupResponse {
	n.t.Helper()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.InstanceID, req.ProtocolType = 5, group, &instance, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = sessionMs, 10_000
	subscription := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 0, 0, 1, 0, 1, 't'}, 1<<32-1)
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription}}
	return ask[*kmsg.JoinGroupResponse](n, req)
}

// beat is the first heartbeat of a member of a consumer group.
func (n *running) beat(group, member string) *kmsg.ConsumerGroupHeartbeatResponse {
	n.t.Helper()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, group, member, 10_000
	req.SubscribedTopicNames, req.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return ask[*kmsg.ConsumerGroupHeartbeatResponse](n, req)
}

func (n *running) consumers(group string) kmsg.ConsumerGroupDescribeResponseGroup {
	n.t.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	g := ask[*kmsg.ConsumerGroupDescribeResponse](n, req).Groups[0]
	codes(n.t, nil, g.ErrorCode)
	return g
}

// inProcess starts a node in this process.
func inProcess(t *testing.T, cfg serve.Config, set map[string]string) *running {
	t.Helper()
	dir := t.TempDir()
	props := quick(map[string]string{
		"log.dirs": filepath.Join(dir, "logs"), "metadata.log.dir": filepath.Join(dir, "metadata"), "remote.cache.dir": filepath.Join(dir, "cache"),
		"listeners": "PLAINTEXT://127.0.0.1:0", "admin.listeners": "", "remote.store.url": "mem:",
	}, set)
	cfg.Broker = parsed(t, props)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := serve.Start(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, n.Close(ctx))
	})
	_, addr, _ := strings.Cut(n.Listeners()[0], "://")
	r := &running{Server: &kit.Server{Addr: addr}, t: t}
	r.coordinated()
	return r
}

// commitTimeout has the log of groups wait for its disk.
func commitTimeout(t *testing.T) {
	var slow atomic.Bool
	let := make(chan struct{})
	fs := disk.NewFault(disk.OS(), func(op disk.Op) error {
		if op.Kind == disk.OpSyncData && slow.Load() && strings.Contains(op.Name, "__consumer_offsets") {
			<-let
		}
		return nil
	})
	n := inProcess(t, serve.Config{FS: fs}, map[string]string{"offsets.commit.timeout.ms": "300"})
	topic := n.create(1)
	codes(t, nil, n.commitOffset("g", topic, ""))
	slow.Store(true)
	began := time.Now()
	code := n.commitOffset("g", topic, "")
	took := time.Since(began)
	slow.Store(false)
	close(let)
	codes(t, kerr.CoordinatorNotAvailable, code)
	require.GreaterOrEqual(t, took, 300*time.Millisecond)
	require.Less(t, took, 3*time.Second, "the default is five seconds")
}

// expires moves a clock to just before and after an offset's retention, which is
// shorter than the default, and so is the time between two passes.
func expires(t *testing.T, minutes, checkMs string) {
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	n := inProcess(t, serve.Config{Now: now}, map[string]string{"offsets.retention.minutes": minutes, "offsets.retention.check.interval.ms": checkMs})
	topic := n.create(1)
	codes(t, nil, n.commitOffset("g", topic, ""))
	retention, err := time.ParseDuration(minutes + "m")
	require.NoError(t, err)
	ahead.Store(int64(retention - 30*time.Second))
	n.passed()
	require.EqualValues(t, 5, n.committed("g", topic))
	ahead.Store(int64(retention))
	n.eventually("the offset has expired", func() bool {
		codes(t, nil, n.commitOffset("other", topic, "")) // its coordinator looks at the clock
		return n.committed("g", topic) == -1
	})
}
