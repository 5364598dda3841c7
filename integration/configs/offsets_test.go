package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

// offsetsRows show how the topic of consumer groups is created.
var offsetsRows = map[string]func(t *testing.T){
	"offsets.topic.num.partitions": func(t *testing.T) {
		n := grouped(t, "offsets.topic.num.partitions=3")
		require.Len(t, n.offsetLogs(""), 3)
	},
	"offsets.topic.replication.factor": func(t *testing.T) {
		n := with(t, "offsets.topic.replication.factor=2")
		n.eventually("it is said that the topic cannot be created", func() bool {
			require.ErrorIs(t, n.findCoordinator("g"), kerr.CoordinatorNotAvailable)
			return strings.Contains(n.Log(), "topic not created")
		})
		grouped(t, "offsets.topic.replication.factor=1")
		grouped(t) // as many as there are brokers
	},
	"offsets.topic.segment.bytes": func(t *testing.T) {
		n := grouped(t, "offsets.topic.num.partitions=1", "offsets.topic.segment.bytes=4096")
		for i := range 60 {
			n.commit("g", i)
		}
		require.Greater(t, len(n.offsetLogs("*.log")), 1)
		n = grouped(t, "offsets.topic.segment.bytes=2097152")
		require.Equal(t, "2097152", *n.describe(ofTopic, "__consumer_offsets")["segment.bytes"].Value)
	},
	"offsets.topic.compression.codec": func(t *testing.T) {
		for codec, id := range map[recordbatch.Codec]int{recordbatch.None: 0, recordbatch.Gzip: 1, recordbatch.LZ4: 3} {
			n := grouped(t, "offsets.topic.num.partitions=1", fmt.Sprint("offsets.topic.compression.codec=", id))
			n.commit("g", 1)
			written, err := os.ReadFile(n.offsetLogs("*.log")[0])
			require.NoError(t, err)
			first, _, err := recordbatch.First(written)
			require.NoError(t, err)
			require.Equal(t, codec, first.Compression())
		}
	},
}

// grouped is a server that serves groups.
func grouped(t *testing.T, settings ...string) *running {
	t.Helper()
	n := with(t, settings...)
	n.eventually("there is a coordinator", func() bool { return n.findCoordinator("g") == nil })
	return n
}

func (n *running) findCoordinator(group string) error {
	n.t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 6, []string{group}
	return kerr.ErrorForCode(ask[*kmsg.FindCoordinatorResponse](n, req).Coordinators[0].ErrorCode)
}

// commit commits an offset of a group without members, which shares no batch with
// another.
func (n *running) commit(group string, offset int) {
	n.t.Helper()
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = n.anyTopic()
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = int64(offset)
	topic.Partitions = append(topic.Partitions, p)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation, req.Topics = 8, group, -1, append(req.Topics, topic)
	kit.Eventually(n.t, patience, "the offset is committed", func() bool {
		code := ask[*kmsg.OffsetCommitResponse](n, req).Topics[0].Partitions[0].ErrorCode
		return code == 0
	})
}

// anyTopic is a topic to commit offsets of.
func (n *running) anyTopic() string {
	n.t.Helper()
	const name = "any"
	if _, ok := n.topicNames()[name]; !ok {
		require.NoError(n.t, kerr.ErrorForCode(n.tryCreate(name, 1, 1).ErrorCode))
	}
	return name
}

func (n *running) topicNames() map[string]struct{} {
	n.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 12, nil
	names := map[string]struct{}{}
	for _, t := range ask[*kmsg.MetadataResponse](n, req).Topics {
		names[*t.Topic] = struct{}{}
	}
	return names
}

// offsetLogs are the folders of the topic of groups, or files in them.
func (n *running) offsetLogs(pattern string) []string {
	n.t.Helper()
	found, err := filepath.Glob(filepath.Join(n.Dir, "*", "__consumer_offsets-*", pattern))
	require.NoError(n.t, err)
	return found
}
