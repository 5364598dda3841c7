package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
)

// deleteRecords moves log start offsets forward. An answer means that the new
// one is durable.
func (h *Handler) deleteRecords(ctx context.Context, req *kmsg.DeleteRecordsRequest) *kmsg.DeleteRecordsResponse {
	ctx, cancel := h.withTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	img := h.cfg.Cluster.Image()
	resp := kmsg.NewPtrDeleteRecordsResponse()
	for i := range req.Topics {
		asked := &req.Topics[i]
		t := kmsg.NewDeleteRecordsResponseTopic()
		t.Topic = asked.Topic
		topic, code := topicFor(img, false, asked.Topic, [16]byte{})
		for j := range asked.Partitions {
			a := &asked.Partitions[j]
			p := kmsg.NewDeleteRecordsResponseTopicPartition()
			p.Partition, p.ErrorCode, p.LowWatermark = a.Partition, code, int64(cluster.NoOffset)
			if code == codeNone && topic.Internal {
				p.ErrorCode = codeInvalidTopic
			} else if code == codeNone {
				var replica Partition
				if replica, p.ErrorCode = h.replica(topic, a.Partition); p.ErrorCode == codeNone {
					p.LowWatermark, p.ErrorCode = h.deleteTo(ctx, replica, topic.Name, a)
				}
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (h *Handler) deleteTo(ctx context.Context, replica Partition, topic string, asked *kmsg.DeleteRecordsRequestTopicPartition) (int64, int16) {
	// -1 is the high watermark; nothing else below 0 is an offset.
	if asked.Offset < int64(cluster.NoOffset) {
		return int64(cluster.NoOffset), codeOffsetOutOfRange
	}
	low, err := replica.DeleteRecords(ctx, cluster.Offset(asked.Offset))
	code := codeOf(err)
	if code == codeUnknownServerError {
		h.cfg.Logger.Error("delete of records failed", "topic", topic, "partition", asked.Partition, "error", err)
	}
	if code != codeNone {
		return int64(cluster.NoOffset), code
	}
	return int64(low), codeNone
}
