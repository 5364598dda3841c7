package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// offsetFetch reads committed offsets. Where nothing is committed the offset is
// -1, the leader epoch -1 and the metadata "", never null.
//
// Versions: 0, for clients older than Kafka 4, and 1 have no error but those of
// partitions; 2 can ask for all offsets; 5 adds leader epochs; 7 may refuse what
// an open transaction is about to change; 8 asks for several groups; 9 says which
// member of a KIP-848 group asks; 10 names topics by id.
func (h *Handler) offsetFetch(ctx context.Context, req *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	img := h.cfg.Cluster.Image()
	resp := kmsg.NewPtrOffsetFetchResponse()
	if req.Version >= 8 {
		for i := range req.Groups {
			resp.Groups = append(resp.Groups, h.fetchGroup(ctx, img, req.Version, &req.Groups[i], req.RequireStable))
		}
		return resp
	}
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group, asked.MemberEpoch = req.Group, -1
	if req.Topics != nil {
		asked.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for i := range req.Topics {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = req.Topics[i].Topic, req.Topics[i].Partitions
		asked.Topics = append(asked.Topics, t)
	}
	if req.Version < 2 && asked.Topics == nil {
		asked.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	g := h.fetchGroup(ctx, img, req.Version, &asked, req.RequireStable)
	resp.ErrorCode, resp.Topics = g.ErrorCode, []kmsg.OffsetFetchResponseTopic{}
	if g.ErrorCode != codeNone && req.Version < 2 {
		g.Topics = failedTopics(asked.Topics, g.ErrorCode)
	}
	for i := range g.Topics {
		t := kmsg.NewOffsetFetchResponseTopic()
		t.Topic = g.Topics[i].Topic
		for _, p := range g.Topics[i].Partitions {
			t.Partitions = append(t.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (h *Handler) fetchGroup(
	ctx context.Context, img *image.Image, version int16, asked *kmsg.OffsetFetchRequestGroup, stable bool,
) kmsg.OffsetFetchResponseGroup {
	answer := kmsg.NewOffsetFetchResponseGroup()
	answer.Group, answer.Topics = asked.Group, []kmsg.OffsetFetchResponseGroupTopic{}
	req := group.OffsetFetchRequest{
		MemberID: textOf(asked.MemberID), MemberEpoch: asked.MemberEpoch, RequireStable: stable, All: asked.Topics == nil,
	}
	if version < 9 {
		req.MemberEpoch = -1
	}
	unknown := map[int]int16{} // topics of the request, by their place
	for i := range asked.Topics {
		t := &asked.Topics[i]
		topic, code := topicFor(img, version >= 10, t.Topic, t.TopicID)
		if code == codeUnknownTopicID {
			unknown[i] = code
			continue
		}
		p := group.FetchPartition{Topic: t.Topic}
		if code == codeNone {
			p.Topic, p.TopicID = topic.Name, topic.ID
		}
		for _, p.Partition = range t.Partitions {
			req.Partitions = append(req.Partitions, p)
		}
	}
	res, err := h.cfg.Groups.FetchOffsets(ctx, asked.Group, req)
	switch {
	case err != nil:
		answer.ErrorCode = h.groupCode(9, asked.Group, err)
	case req.All:
		answer.Topics = allTopics(img, version, res.Offsets)
	default:
		answer.Topics = askedTopics(asked.Topics, unknown, res.Offsets)
	}
	return answer
}

// askedTopics answers in the order of the request.
func askedTopics(asked []kmsg.OffsetFetchRequestGroupTopic, unknown map[int]int16, offsets []group.FetchedOffset) []kmsg.OffsetFetchResponseGroupTopic {
	topics := make([]kmsg.OffsetFetchResponseGroupTopic, 0, len(asked))
	for i := range asked {
		t := kmsg.NewOffsetFetchResponseGroupTopic()
		t.Topic, t.TopicID = asked[i].Topic, asked[i].TopicID
		t.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, 0, len(asked[i].Partitions))
		code, bad := unknown[i]
		for _, partition := range asked[i].Partitions {
			switch {
			case bad:
				t.Partitions = append(t.Partitions, nothingFetched(partition, code))
			case len(offsets) == 0: // cannot be: the answer has an entry for each
				t.Partitions = append(t.Partitions, nothingFetched(partition, codeUnknownServerError))
			default:
				t.Partitions = append(t.Partitions, fetchedPartition(offsets[0]))
				offsets = offsets[1:]
			}
		}
		topics = append(topics, t)
	}
	return topics
}

// allTopics answers with every offset, by topic. Offsets of topics that no id is
// known of cannot be told in version 10.
func allTopics(img *image.Image, version int16, offsets []group.FetchedOffset) []kmsg.OffsetFetchResponseGroupTopic {
	topics := []kmsg.OffsetFetchResponseGroupTopic{}
	for rest := offsets; len(rest) > 0; {
		name := rest[0].Topic
		n := slices.IndexFunc(rest, func(o group.FetchedOffset) bool { return o.Topic != name })
		if n < 0 {
			n = len(rest)
		}
		t := kmsg.NewOffsetFetchResponseGroupTopic()
		t.Topic = name
		topic, known := img.Topic(name)
		if known {
			t.TopicID = topic.ID
		}
		for _, o := range rest[:n] {
			t.Partitions = append(t.Partitions, fetchedPartition(o))
		}
		if rest = rest[n:]; known || version < 10 {
			topics = append(topics, t)
		}
	}
	return topics
}

func failedTopics(asked []kmsg.OffsetFetchRequestGroupTopic, code int16) []kmsg.OffsetFetchResponseGroupTopic {
	topics := make([]kmsg.OffsetFetchResponseGroupTopic, 0, len(asked))
	for i := range asked {
		t := kmsg.NewOffsetFetchResponseGroupTopic()
		t.Topic = asked[i].Topic
		for _, partition := range asked[i].Partitions {
			t.Partitions = append(t.Partitions, nothingFetched(partition, code))
		}
		topics = append(topics, t)
	}
	return topics
}

func nothingFetched(partition int32, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	return kmsg.OffsetFetchResponseGroupTopicPartition{
		Partition: partition, Offset: int64(cluster.NoOffset), LeaderEpoch: int32(cluster.NoLeaderEpoch), Metadata: kmsg.StringPtr(""), ErrorCode: code,
	}
}

func fetchedPartition(o group.FetchedOffset) kmsg.OffsetFetchResponseGroupTopicPartition {
	return kmsg.OffsetFetchResponseGroupTopicPartition{
		Partition: o.Partition, Offset: int64(o.Offset), LeaderEpoch: int32(o.LeaderEpoch), Metadata: &o.Metadata, ErrorCode: codeOf(o.Err),
	}
}
