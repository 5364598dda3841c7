package cases

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/recordbatch"
)

// readable is one line a record: what every format has, then @ and what old
// ones lack.
func readable(t *testing.T, b []byte) string {
	t.Helper()
	var out []string
	d := recordbatch.NewDecoder(0)
	for len(b) > 17 {
		if b[16] < 2 {
			key, value, rest := oldMessage(t, b)
			out = append(out, fmt.Sprintf("%d %s=%s @", binary.BigEndian.Uint64(b), key, value))
			b = rest
			continue
		}
		batch, rest, err := recordbatch.First(b)
		require.NoError(t, err)
		for r, err := range d.Records(batch) {
			require.NoError(t, err)
			key := "null"
			if r.Key != nil {
				key = string(r.Key)
			}
			out = append(out, fmt.Sprintf("%d %s=%s @%d %d", r.Offset, key, r.Value, r.Timestamp, len(r.Headers)))
		}
		b = rest
	}
	return strings.Join(out, ";")
}

// oldMessage reads one message of format 0 or 1, uncompressed.
func oldMessage(t *testing.T, b []byte) (key, value string, rest []byte) {
	t.Helper()
	size := 12 + int(binary.BigEndian.Uint32(b[8:]))
	require.LessOrEqual(t, size, len(b))
	m := b[:size]
	require.Equal(t, crc32.ChecksumIEEE(m[16:]), binary.BigEndian.Uint32(m[12:]))
	at := 18 + 8*int(m[16])
	field := func() string {
		n := int32(binary.BigEndian.Uint32(m[at:]))
		at += 4
		if n < 0 {
			return "null"
		}
		at += int(n)
		return string(m[at-int(n) : at])
	}
	key = field()
	return key, field(), b[size:]
}

// oldMessages are messages of format 0 or 1 with a key and a timestamp.
func oldMessages(magic byte, timestamp int64, values ...string) []byte {
	var out []byte
	for i, v := range values {
		body := []byte{magic, 0}
		if magic == 1 {
			body = binary.BigEndian.AppendUint64(body, uint64(timestamp))
		}
		body = binary.BigEndian.AppendUint32(body, 1)
		body = append(body, 'k')
		body = binary.BigEndian.AppendUint32(body, uint32(len(v)))
		body = append(body, v...)
		out = binary.BigEndian.AppendUint64(out, uint64(i))
		out = binary.BigEndian.AppendUint32(out, uint32(len(body)+4))
		out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
		out = append(out, body...)
	}
	return out
}

// writeable are records in the format that a version of Produce takes.
func writeable(version int16, values ...string) []byte {
	if version < 3 {
		return oldMessages(byte(version/2), 1_700_000_000_500, values...)
	}
	b := recordbatch.NewBuilder(recordbatch.Options{})
	for _, v := range values {
		b.Add(1_700_000_000_500, []byte("k"), []byte(v))
	}
	return b.Build()
}

// unnamed answers a topic that is not there the same by name and by id.
func unnamed(code int16) int16 {
	if code == 100 { // UNKNOWN_TOPIC_ID
		return 3 // UNKNOWN_TOPIC_OR_PARTITION
	}
	return code
}

func produceTo(w *world, name string, id [16]byte, partition int32, batch []byte, acks int16) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 7777
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: name, TopicID: id, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: batch}}}}
	return req
}

// contents is what lies in partition 1 of the world's first topic.
func contents(w *world) any {
	got := fetchOne(w.c, w.names[0], 1, 0)
	return []any{got.HighWatermark, common(readable(w.t, got.RecordBatches))}
}

// common leaves what every message format has.
func common(lines string) string {
	out := strings.Split(lines, ";")
	for i, l := range out {
		out[i], _, _ = strings.Cut(l, " @")
	}
	return strings.Join(out, ";")
}

func ofTopicNowhere(_ *world, resp kmsg.Response) {
	switch resp := resp.(type) {
	case *kmsg.ProduceResponse:
		p := &resp.Topics[0].Partitions[0]
		p.ErrorCode = unnamed(p.ErrorCode)
		resp.Topics[0].Topic, resp.Topics[0].TopicID = "nowhere", [16]byte{7}
	case *kmsg.FetchResponse:
		p := &resp.Topics[0].Partitions[0]
		p.ErrorCode = unnamed(p.ErrorCode)
		resp.Topics[0].Topic, resp.Topics[0].TopicID = "nowhere", [16]byte{7}
	}
}

var produceRow = walkRow{scenarios: []scenario{
	{name: "acks 1", after: contents, ask: func(w *world, v int16) kmsg.Request {
		name, id := w.topic()
		return produceTo(w, name, id, 1, writeable(v, "a", "b"), 1)
	}},
	{name: "acks all", after: contents, ask: func(w *world, v int16) kmsg.Request {
		name, id := w.topic()
		return produceTo(w, name, id, 1, writeable(v, "a", "b"), -1)
	}},
	{name: "acks 2", after: contents, ask: func(w *world, v int16) kmsg.Request {
		name, id := w.topic()
		return produceTo(w, name, id, 1, writeable(v, "a"), 2)
	}},
	{name: "the time of append", from: 2, after: contents, mean: func(_ *world, resp kmsg.Response) {
		if p := &resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.LogAppendTime > 1_750_000_000_000 {
			p.LogAppendTime = 1
		}
	}, ask: func(w *world, v int16) kmsg.Request {
		name, id := w.topic("message.timestamp.type=LogAppendTime")
		return produceTo(w, name, id, 1, writeable(v, "a"), 1)
	}},
	{name: "no such partition", ask: func(w *world, v int16) kmsg.Request {
		name, id := w.topic()
		return produceTo(w, name, id, 7, writeable(v, "a"), 1)
	}},
	{name: "no such topic", mean: ofTopicNowhere, ask: func(w *world, v int16) kmsg.Request {
		return produceTo(w, w.name(), [16]byte{7, 7}, 1, writeable(v, "a"), 1)
	}},
	{name: "damaged", after: contents, ask: func(w *world, v int16) kmsg.Request {
		name, id := w.topic()
		b := writeable(v, "a")
		b[len(b)-2] ^= 1
		return produceTo(w, name, id, 1, b, 1)
	}},
	{name: "too large", after: contents, ask: func(w *world, v int16) kmsg.Request {
		name, id := w.topic("max.message.bytes=200")
		return produceTo(w, name, id, 1, writeable(v, strings.Repeat("x", 300)), 1)
	}},
	{name: "a record without its key", from: 3, after: contents, ask: func(w *world, v int16) kmsg.Request {
		name, id := create(w.t, w.c, 2, "cleanup.policy=compact")
		w.names, w.ids = append(w.names, name), append(w.ids, id)
		return produceTo(w, name, id, 1, stamped(0, 1_700_000_000_500), 1)
	}},
	{name: "a transactional id and no transaction", from: 3, after: contents, ask: func(w *world, v int16) kmsg.Request {
		name, id := w.topic()
		req := produceTo(w, name, id, 1, writeable(v, "a"), -1)
		req.TransactionID = kmsg.StringPtr("tx")
		return req
	}},
}}

func fetchFrom(w *world, name string, id [16]byte, partition int32, offset int64, change func(*kmsg.FetchRequest, *kmsg.FetchRequestTopicPartition)) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel, req.SessionEpoch, req.Rack = 33, 2, 1<<20, 1, -1, "here"
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.LogStartOffset = partition, offset, 1<<19, 2
	if change != nil {
		change(req, &p)
	}
	req.Topics = []kmsg.FetchRequestTopic{{Topic: name, TopicID: id, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	return req
}

func asking(partition int32, offset int64, change func(*kmsg.FetchRequest, *kmsg.FetchRequestTopicPartition)) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		name, id := w.topic()
		same(w.t, nil, send(w.c, 9, name, id, 1, writeable(9, "d", "e")).ErrorCode)
		return fetchFrom(w, name, id, partition, offset, change)
	}
}

var fetchRow = walkRow{
	since: map[string]int16{"ReplicaState.ID": 15, "ReplicaState.Epoch": 15, "Topics.Partitions.ReplicaDirectoryID": 17, "Topics.Partitions.HighWatermark": 18},
	scenarios: []scenario{
		{name: "what every format has", ask: asking(1, 1, nil), mean: func(_ *world, resp kmsg.Response) {
			p := &resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
			// A batch comes whole, with what lies before the offset.
			p.RecordBatches = []byte(strings.TrimPrefix(common(string(p.RecordBatches)), "0 null=v;"))
		}},
		{name: "timestamps and headers", from: 4, ask: asking(1, 1, nil)},
		{name: "at the end", ask: asking(1, 5, nil)},
		{name: "beyond the end", ask: asking(1, 99, nil)},
		{name: "no such partition", ask: asking(7, 1, nil)},
		{name: "little room", from: 4, ask: asking(1, 1, func(r *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { r.MaxBytes, p.PartitionMaxBytes = 1, 1 })},
		{name: "the current epoch", from: 9, ask: asking(1, 1, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 0 })},
		{name: "an epoch to come", from: 9, ask: asking(1, 1, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 9 })},
		{name: "the epoch that was fetched last", from: 12, ask: asking(1, 1, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.LastFetchedEpoch = 0 })},
		{name: "a last epoch to come", from: 12, ask: asking(1, 1, func(_ *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) { p.LastFetchedEpoch = 9 })},
		{name: "no such topic", mean: ofTopicNowhere, ask: func(w *world, _ int16) kmsg.Request { return fetchFrom(w, w.name(), [16]byte{7, 7}, 1, 1, nil) }},
		{name: "a session", from: 7, ask: asking(1, 1, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) { r.SessionEpoch = 0 }), mean: func(_ *world, resp kmsg.Response) {
			if r := resp.(*kmsg.FetchResponse); r.SessionID > 0 {
				r.SessionID = 1
			}
		}},
		{name: "no such session", from: 7, ask: func(w *world, v int16) kmsg.Request {
			name, id := w.topic()
			req := fetchFrom(w, name, id, 1, 1, nil)
			req.SessionID, req.SessionEpoch = 1_000_001, 5
			req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: name, TopicID: id, Partitions: []int32{1}}}
			return req
		}},
		{name: "another cluster's id", from: 12, ask: asking(1, 1, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopicPartition) {
			r.ClusterID = kmsg.StringPtr("elsewhere")
		})},
		{name: "a broker that is no replica", ask: asBroker, mean: func(_ *world, resp kmsg.Response) {
			r := resp.(*kmsg.FetchResponse) // from 16 on it names the leader
			r.Brokers, r.Topics[0].Partitions[0].CurrentLeader = nil, kmsg.NewFetchResponseTopicPartitionCurrentLeader()
		}},
		{name: "a broker that is no replica, who leads", alone: true, ask: asBroker},
	},
}

// asBroker fetches as a broker does, where the version lets it say so.
func asBroker(w *world, v int16) kmsg.Request {
	return asking(1, 1, func(r *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition) {
		r.ReplicaID = 5
		if v >= 15 {
			r.ReplicaState.ID, r.ReplicaState.Epoch = 5, 3
		}
		if v >= 17 {
			p.ReplicaDirectoryID = [16]byte{5}
		}
		if v >= 18 {
			p.HighWatermark = 2
		}
	})(w, v)
}

func lookingUp(partition int32, timestamp int64, change func(*kmsg.ListOffsetsRequest, *kmsg.ListOffsetsRequestTopicPartition)) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		name, _ := w.topic()
		p := at(partition, timestamp)
		p.MaxNumOffsets = 2
		req := lookup(0, name, p)
		req.IsolationLevel, req.TimeoutMillis = 1, 7777
		if change != nil {
			change(req, &req.Topics[0].Partitions[0])
		}
		return req
	}
}

// listed compares the list of version 0 with the answer of a later one.
func listed(timestamp int64) func(*world, kmsg.Response) {
	return func(w *world, resp kmsg.Response) {
		p := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if resp.GetVersion() == 0 && p.ErrorCode == 0 {
			require.NotEmpty(w.t, p.OldStyleOffsets)
			require.Equal(w.t, listOffset(w.c, 7, w.names[0], 1, timestamp).Offset, p.OldStyleOffsets[0])
		}
	}
}

var listOffsetsRow = walkRow{scenarios: []scenario{
	{name: "a time", from: 1, ask: lookingUp(1, 1_700_000_000_150, nil)},
	{name: "the end", mean: listed(-1), ask: lookingUp(1, -1, nil)},
	{name: "the start", mean: listed(-2), ask: lookingUp(1, -2, nil)},
	{name: "the largest time", from: 7, ask: lookingUp(1, -3, nil)},
	{name: "the local start", from: 8, ask: lookingUp(1, -4, nil)},
	{name: "the end of the tier", from: 9, ask: lookingUp(1, -5, nil)},
	{name: "the first to be uploaded", from: 11, ask: lookingUp(1, -6, nil)},
	{name: "the largest time, before its version", from: 1, to: 6, alone: true, ask: lookingUp(1, -3, nil)},
	{name: "the local start, before its version", from: 1, to: 7, alone: true, ask: lookingUp(1, -4, nil)},
	{name: "the end of the tier, before its version", from: 1, to: 8, alone: true, ask: lookingUp(1, -5, nil)},
	{name: "no such meaning", from: 1, alone: true, ask: lookingUp(1, -9, nil)},
	{name: "no such partition", ask: lookingUp(7, -1, nil)},
	{name: "after the last", from: 1, ask: lookingUp(1, 1_900_000_000_000, nil)},
	{name: "the current epoch", from: 4, ask: lookingUp(1, -1, func(_ *kmsg.ListOffsetsRequest, p *kmsg.ListOffsetsRequestTopicPartition) { p.CurrentLeaderEpoch = 0 })},
	{name: "an epoch to come", from: 4, ask: lookingUp(1, -1, func(_ *kmsg.ListOffsetsRequest, p *kmsg.ListOffsetsRequestTopicPartition) { p.CurrentLeaderEpoch = 9 })},
	{name: "a broker that is no replica", ask: lookingUp(1, -1, func(r *kmsg.ListOffsetsRequest, _ *kmsg.ListOffsetsRequestTopicPartition) { r.ReplicaID = 5 })},
	{name: "no such topic", from: 1, ask: func(w *world, _ int16) kmsg.Request { return lookup(0, w.name(), at(1, -1)) }},
}}

func epochsOf(partition, current, epoch, replica int32) func(*world, int16) kmsg.Request {
	return func(w *world, _ int16) kmsg.Request {
		name, _ := w.topic()
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = replica
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, current, epoch
		req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: name, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}}}
		return req
	}
}

var epochsRow = walkRow{scenarios: []scenario{
	{name: "the only epoch", ask: epochsOf(1, 0, 0, -1)},
	{name: "an epoch to come", ask: epochsOf(1, 0, 4, -1)},
	{name: "a current epoch to come", ask: epochsOf(1, 9, 0, -1)},
	{name: "no such partition", ask: epochsOf(7, 0, 0, -1)},
	{name: "a broker that is no replica", ask: epochsOf(1, 0, 0, 5)},
	{name: "a debugger", ask: epochsOf(1, -1, 0, -2)},
}}

var deleteRecordsRow = walkRow{scenarios: []scenario{
	{name: "up to an offset", after: starts, ask: deletingUpTo(1, 2)},
	{name: "all", after: starts, ask: deletingUpTo(1, -1)},
	{name: "beyond the end", after: starts, ask: deletingUpTo(1, 9)},
	{name: "no such partition", ask: deletingUpTo(7, 1)},
}}

func deletingUpTo(partition int32, offset int64) func(*world, int16) kmsg.Request {
	return func(w *world, v int16) kmsg.Request {
		name, _ := w.topic()
		req := deleteRequest(v, name, map[int32]int64{partition: offset})
		req.TimeoutMillis = 7777
		return req
	}
}

func starts(w *world) any { return listOffset(w.c, 7, w.names[0], 1, -2).Offset }

var initProducerRow = walkRow{scenarios: []scenario{
	{name: "an id", mean: anyProducer, ask: initProducer(nil, -1, -1)},
	{name: "an id again", from: 3, mean: anyProducer, ask: initProducer(nil, 7, 3)},
	{name: "an id and no epoch", from: 3, ask: initProducer(nil, 7, -1)},
	{name: "an epoch and no id", from: 3, ask: initProducer(nil, -1, 7)},
	{name: "transactional", mean: anyProducer, ask: initProducer(kmsg.StringPtr("walk"), -1, -1)},
}}

func initProducer(txn *string, id int64, epoch int16) func(*world, int16) kmsg.Request {
	return func(*world, int16) kmsg.Request {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = txn, 1234, id, epoch
		return req
	}
}

func anyProducer(_ *world, resp kmsg.Response) {
	if r := resp.(*kmsg.InitProducerIDResponse); r.ProducerID >= 0 {
		r.ProducerID = 1
	}
}

// own leaves the topics of this world.
func (w *world) own(topics []kmsg.MetadataResponseTopic) []kmsg.MetadataResponseTopic {
	return slices.DeleteFunc(topics, func(t kmsg.MetadataResponseTopic) bool {
		return t.Topic == nil || !strings.HasPrefix(*t.Topic, "name-")
	})
}

func metadataAsking(change func(w *world, r *kmsg.MetadataRequest, v int16)) func(*world, int16) kmsg.Request {
	return func(w *world, v int16) kmsg.Request {
		req := kmsg.NewPtrMetadataRequest()
		req.IncludeClusterAuthorizedOperations, req.IncludeTopicAuthorizedOperations = true, true
		change(w, req, v)
		return req
	}
}

var metadataRow = walkRow{
	since: map[string]int16{"Topics.TopicID": 12}, // 10 and 11 have it and do not look for it
	scenarios: []scenario{
		{name: "a topic", ask: metadataAsking(func(w *world, r *kmsg.MetadataRequest, _ int16) {
			name, _ := w.topic()
			r.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		})},
		{name: "all topics", mean: func(w *world, resp kmsg.Response) {
			r := resp.(*kmsg.MetadataResponse)
			r.Topics = w.own(r.Topics)
		}, ask: metadataAsking(func(w *world, r *kmsg.MetadataRequest, _ int16) { w.topic(); r.Topics = nil })},
		{name: "no topics", from: 1, ask: metadataAsking(func(w *world, r *kmsg.MetadataRequest, _ int16) { r.Topics = []kmsg.MetadataRequestTopic{} })},
		{name: "a topic by id", from: 12, ask: metadataAsking(func(w *world, r *kmsg.MetadataRequest, _ int16) {
			_, id := w.topic()
			r.Topics = []kmsg.MetadataRequestTopic{{TopicID: id}}
		})},
		{name: "no such id", from: 12, ask: metadataAsking(func(_ *world, r *kmsg.MetadataRequest, _ int16) {
			r.Topics = []kmsg.MetadataRequestTopic{{TopicID: [16]byte{7, 7}}}
		})},
		{name: "no such topic", from: 4, ask: metadataAsking(func(w *world, r *kmsg.MetadataRequest, _ int16) {
			r.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr(w.name())}}
		})},
		{name: "a name that cannot be", ask: metadataAsking(func(w *world, r *kmsg.MetadataRequest, _ int16) {
			r.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("no/name")}}
		})},
		{name: "a topic to be created", ask: metadataAsking(func(w *world, r *kmsg.MetadataRequest, _ int16) {
			r.AllowAutoTopicCreation = true
			r.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr(w.name())}}
		}), after: func(w *world) any {
			return w.await(func() bool { return metadata(w.c, 9, false, w.names[0]).Topics[0].ErrorCode == 0 })
		}},
	},
}
