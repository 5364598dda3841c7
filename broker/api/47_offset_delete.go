package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
)

// offsetDelete deletes offsets that a group has committed (KIP-496), those of
// topics that its members read apart.
func (h *Handler) offsetDelete(ctx context.Context, req *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	img := h.cfg.Cluster.Image()
	resp := kmsg.NewPtrOffsetDeleteResponse()
	var asked group.OffsetDeleteRequest
	var at []*kmsg.OffsetDeleteResponseTopicPartition // parallel to asked.Partitions
	for i := range req.Topics {
		t := &req.Topics[i]
		answer := kmsg.NewOffsetDeleteResponseTopic()
		answer.Topic = t.Topic
		answer.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		topic, code := topicFor(img, false, t.Topic, [16]byte{})
		for j := range t.Partitions {
			a := &answer.Partitions[j]
			a.Partition, a.ErrorCode = t.Partitions[j].Partition, code
			switch {
			case code != codeNone:
			case !hasPartition(topic, a.Partition):
				a.ErrorCode = codeUnknownTopicOrPartition
			default:
				asked.Partitions = append(asked.Partitions, group.PartitionName{Topic: t.Topic, Partition: a.Partition})
				at = append(at, a)
			}
		}
		resp.Topics = append(resp.Topics, answer)
	}
	res, err := h.cfg.GroupAdmin.DeleteOffsets(ctx, req.Group, asked)
	if err != nil {
		resp.ErrorCode, resp.Topics = h.groupCode(req.Key(), req.Group, err), nil
		return resp
	}
	for i, a := range at {
		if i >= len(res.Partitions) {
			a.ErrorCode = codeUnknownServerError
			continue
		}
		a.ErrorCode = codeOf(res.Partitions[i])
	}
	return resp
}
