package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// describeTopicPartitions lists topics page by page, ordered by name, with their
// eligible leader replicas.
func (h *Handler) describeTopicPartitions(_ context.Context, req *kmsg.DescribeTopicPartitionsRequest) *kmsg.DescribeTopicPartitionsResponse {
	img := h.cfg.Cluster.Image()
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	from, first := "", int32(0)
	if req.Cursor != nil {
		from, first = req.Cursor.Topic, req.Cursor.Partition
	}
	names := make([]string, 0, len(req.Topics))
	for i := range req.Topics {
		names = append(names, req.Topics[i].Topic)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	// Where topics are named, the cursor has to be on one of them.
	if _, named := slices.BinarySearch(names, from); first < 0 || req.Cursor != nil && len(names) > 0 && !named {
		for _, name := range names {
			t := missingPartitions(name, codeInvalidRequest)
			t.AuthorizedOperations = notAsked
			resp.Topics = append(resp.Topics, t)
		}
		return resp
	}
	left := max(int(req.ResponsePartitionLimit), 1)
	if most := int(h.cfg.Broker.MaxRequestPartitions); most > 0 {
		left = min(left, most)
	}
	page := func(name string, t *image.Topic) bool {
		start := int32(0)
		if name == from {
			start = first
		}
		return addPage(img, resp, name, t, start, &left)
	}
	if len(req.Topics) == 0 {
		for t := range img.TopicsFrom(from) {
			if !page(t.Name, t) {
				break
			}
		}
		return resp
	}
	for _, name := range names {
		if name < from {
			continue
		}
		t, _ := img.Topic(name)
		if !page(name, t) {
			break
		}
	}
	return resp
}

// addPage adds what is left of the page; false once it is full and the cursor
// says where to go on.
func addPage(img *image.Image, resp *kmsg.DescribeTopicPartitionsResponse, name string, t *image.Topic, start int32, left *int) bool {
	if *left == 0 {
		resp.NextCursor = cursorAt(name, 0)
		return false
	}
	if t == nil {
		code := codeUnknownTopicOrPartition
		if invalidTopicName(name) != "" {
			code = codeInvalidTopic
		}
		resp.Topics = append(resp.Topics, missingPartitions(name, code))
		return true
	}
	out := missingPartitions(name, codeNone)
	out.TopicID, out.IsInternal = t.ID, t.Internal
	for i := start; int(i) < len(t.Partitions); i++ {
		if *left == 0 {
			resp.NextCursor = cursorAt(name, i)
			break
		}
		*left--
		out.Partitions = append(out.Partitions, describePartition(img, t.Partitions[i], i))
	}
	resp.Topics = append(resp.Topics, out)
	return resp.NextCursor == nil
}

func describePartition(img *image.Image, p *image.Partition, index int32) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	q := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	q.Partition, q.LeaderID, q.LeaderEpoch = index, int32(p.Leader), int32(p.LeaderEpoch)
	if p.Leader == cluster.NoBroker {
		q.ErrorCode = codeLeaderNotAvailable
	}
	q.Replicas, q.ISR, q.OfflineReplicas = ids(p.Replicas), ids(p.ISR), offline(img, p)
	q.EligibleLeaderReplicas, q.LastKnownELR = notNull(ids(p.ELR)), notNull(ids(p.LastKnownELR))
	return q
}

func missingPartitions(name string, code int16) kmsg.DescribeTopicPartitionsResponseTopic {
	t := kmsg.NewDescribeTopicPartitionsResponseTopic()
	t.Topic, t.ErrorCode, t.AuthorizedOperations = &name, code, topicOperations
	return t
}

func cursorAt(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}

func notNull(s []int32) []int32 {
	if s == nil {
		return []int32{}
	}
	return s
}
