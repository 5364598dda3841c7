package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
)

// alterReplicaLogDirs begins to move replicas between the log directories of
// this broker. It answers at once; DescribeLogDirs tells how far a move is.
func (h *Handler) alterReplicaLogDirs(_ context.Context, req *kmsg.AlterReplicaLogDirsRequest) *kmsg.AlterReplicaLogDirsResponse {
	resp := kmsg.NewPtrAlterReplicaLogDirsResponse()
	img := h.cfg.Cluster.Image()
	at := map[string]int{}
	for i := range req.Dirs {
		d := &req.Dirs[i]
		for j := range d.Topics {
			t := &d.Topics[j]
			n, known := at[t.Topic]
			if !known {
				n = len(resp.Topics)
				at[t.Topic] = n
				out := kmsg.NewAlterReplicaLogDirsResponseTopic()
				out.Topic = t.Topic
				resp.Topics = append(resp.Topics, out)
			}
			topic, there := img.Topic(t.Topic)
			for _, p := range t.Partitions {
				out := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				out.Partition = p
				switch {
				case invalidTopicName(t.Topic) != "":
					out.ErrorCode = codeInvalidTopic
				case !h.cfg.LogDirs.Known(d.Dir):
					out.ErrorCode = codeLogDirNotFound
				case !there || p < 0 || int(p) >= len(topic.Partitions):
					out.ErrorCode = codeUnknownTopicOrPartition
				default:
					out.ErrorCode = codeOf(h.cfg.LogDirs.Move(cluster.TopicPartition{Topic: topic.ID, Partition: p}, d.Dir))
				}
				resp.Topics[n].Partitions = append(resp.Topics[n].Partitions, out)
			}
		}
	}
	return resp
}
