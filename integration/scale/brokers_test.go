package scale

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
	"strandline/integration/kit"
)

// broker is a server of either make.
type broker interface {
	Spawn()
	Pid() int
	Kill()
}

// system is a broker with what the measurements need of it.
type system struct {
	broker
	name string
	addr func() string // once it may listen
	stop func()
	// syncs says whether commits are synced unless something else is set
	syncs bool
	// of one topic: its configuration
	configs map[string]string
}

// size is how much a measurement makes.
type size struct {
	topics, partitions int // partitions a topic
	segments, records  int // segments a partition, records a segment
	valueBytes         int
}

func (s size) all() int { return s.topics * s.partitions }

// load drives a broker over one connection.
type load struct {
	t    testing.TB
	size size
	conn *kit.Raw
}

func topicName(n int) string { return "scale-" + string(rune('a'+n/26)) + string(rune('a'+n%26)) }

const minute = 60_000

// create makes all topics with one request.
func (l *load) create(configs map[string]string) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 15_000
	for n := range l.size.topics {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = topicName(n), int32(l.size.partitions), 1
		for k, v := range configs {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = k, kmsg.StringPtr(v)
			topic.Configs = append(topic.Configs, c)
		}
		req.Topics = append(req.Topics, topic)
	}
	for _, topic := range l.conn.Call(req).(*kmsg.CreateTopicsResponse).Topics {
		require.Zero(l.t, topic.ErrorCode, "%s: %v", topic.Topic, topic.ErrorMessage)
	}
}

// led says whether the leader of every partition of a topic answers.
func (l *load) led(name string) bool {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 7, -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = name
	for p := range l.size.partitions {
		q := kmsg.NewListOffsetsRequestTopicPartition()
		q.Partition, q.CurrentLeaderEpoch, q.Timestamp = int32(p), -1, -1
		topic.Partitions = append(topic.Partitions, q)
	}
	req.Topics = append(req.Topics, topic)
	for _, p := range l.conn.Call(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			return false
		}
	}
	return true
}

// fill writes one batch a segment to every partition. The batches of two
// segments are eight days apart by their timestamps: segment.ms seals the first
// one, of a few KiB as it is.
func (l *load) fill() {
	value := make([]byte, l.size.valueBytes)
	for i := range value {
		value[i] = byte(i * 7)
	}
	now := time.Now().UnixMilli()
	for s := range l.size.segments {
		stamp := now - int64(l.size.segments-1-s)*8*24*60*minute - minute
		b := recordbatch.NewBuilder(recordbatch.Options{})
		for range l.size.records {
			b.Add(stamp, nil, value)
		}
		batch := []byte(b.Build())
		for n := range l.size.topics {
			req := kmsg.NewPtrProduceRequest()
			req.Version, req.Acks, req.TimeoutMillis = 9, 1, 15_000
			topic := kmsg.NewProduceRequestTopic()
			topic.Topic = topicName(n)
			for p := range l.size.partitions {
				q := kmsg.NewProduceRequestTopicPartition()
				q.Partition, q.Records = int32(p), batch
				topic.Partitions = append(topic.Partitions, q)
			}
			req.Topics = append(req.Topics, topic)
			for _, p := range l.conn.Call(req).(*kmsg.ProduceResponse).Topics[0].Partitions {
				require.Zero(l.t, p.ErrorCode, "%s-%d", topic.Topic, p.Partition)
			}
		}
	}
}

// readBack fetches every partition whole and counts its records.
func (l *load) readBack() {
	l.t.Helper()
	want := int64(l.size.segments * l.size.records)
	for n := range l.size.topics {
		at := make([]int64, l.size.partitions)
		for left := l.size.partitions; left > 0; {
			req := kmsg.NewPtrFetchRequest()
			req.Version, req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 11, -1, 100, 1, 64<<20, -1
			topic := kmsg.NewFetchRequestTopic()
			topic.Topic = topicName(n)
			for p := range at {
				if at[p] == want {
					continue
				}
				q := kmsg.NewFetchRequestTopicPartition()
				q.Partition, q.FetchOffset, q.PartitionMaxBytes, q.CurrentLeaderEpoch = int32(p), at[p], 1<<20, -1
				topic.Partitions = append(topic.Partitions, q)
			}
			req.Topics = append(req.Topics, topic)
			progress := false
			for _, p := range l.conn.Call(req).(*kmsg.FetchResponse).Topics[0].Partitions {
				require.Zero(l.t, p.ErrorCode, "%s-%d", topic.Topic, p.Partition)
				for rest := p.RecordBatches; len(rest) > 0; {
					b, more, err := recordbatch.First(rest)
					require.NoError(l.t, err)
					require.NoError(l.t, b.Verify())
					require.Equal(l.t, at[p.Partition], int64(b.BaseOffset()))
					at[p.Partition], rest, progress = int64(b.NextOffset()), more, true
				}
				if at[p.Partition] == want {
					left--
				}
			}
			require.True(l.t, progress, "a fetch brought nothing")
		}
	}
}

// metadata asks for one topic, or for all, and gives how long the answer took;
// it is not decoded.
func (l *load) metadata(topics ...string) time.Duration {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	began := time.Now()
	l.conn.Send(req)
	_, err := l.conn.Frame()
	require.NoError(l.t, err)
	return time.Since(began)
}
