package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
)

// offsetForLeaderEpoch tells where leader epochs ended.
//
// Versions: 3 adds the replica, which changes nothing here.
func (h *Handler) offsetForLeaderEpoch(_ context.Context, req *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	img := h.cfg.Cluster.Image()
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for i := range req.Topics {
		asked := &req.Topics[i]
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = asked.Topic
		topic, code := topicFor(img, false, asked.Topic, [16]byte{})
		for j := range asked.Partitions {
			a := &asked.Partitions[j]
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.ErrorCode = a.Partition, code
			p.LeaderEpoch, p.EndOffset = int32(cluster.NoLeaderEpoch), int64(cluster.NoOffset)
			if code == codeNone {
				var replica Partition
				if replica, p.ErrorCode = h.replica(topic, a.Partition); p.ErrorCode == codeNone {
					epoch, end, err := replica.EpochEnd(cluster.LeaderEpoch(a.CurrentLeaderEpoch), cluster.LeaderEpoch(a.LeaderEpoch))
					if p.ErrorCode = codeOf(err); p.ErrorCode == codeNone {
						p.LeaderEpoch, p.EndOffset = int32(epoch), int64(end)
					}
				}
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}
