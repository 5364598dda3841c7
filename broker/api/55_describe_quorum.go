package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
	"strandline/metadata/watch"
)

// metadataTopic is what Apache Kafka calls the log of its quorum. Here it is the
// log of another one, and can be neither read nor written by its name.
const metadataTopic = "__cluster_metadata"

// describeQuorum describes the metadata quorum.
//
// Versions: 1 adds times, 2 directories, texts and the voters' endpoints.
func (h *Handler) describeQuorum(_ context.Context, req *kmsg.DescribeQuorumRequest) *kmsg.DescribeQuorumResponse {
	resp := kmsg.NewPtrDescribeQuorumResponse()
	if req.Version >= 2 {
		resp.ErrorMessage = kmsg.StringPtr("")
	}
	known := len(req.Topics) == 1 && req.Topics[0].Topic == metadataTopic &&
		len(req.Topics[0].Partitions) == 1 && req.Topics[0].Partitions[0].Partition == 0
	q, err := h.cfg.Cluster.Quorum()
	for i := range req.Topics {
		asked := &req.Topics[i]
		t := kmsg.NewDescribeQuorumResponseTopic()
		t.Topic = asked.Topic
		for j := range asked.Partitions {
			p := kmsg.NewDescribeQuorumResponseTopicPartition()
			p.Partition = asked.Partitions[j].Partition
			text := ""
			switch {
			case !known:
				p.ErrorCode, text = codeUnknownTopicOrPartition, textUnknownTopic
			case err != nil || q.Leader == cluster.NoBroker:
				p.ErrorCode, text = codeLeaderNotAvailable, "The metadata quorum has no leader at present."
			default:
				quorumOf(&p, q)
				resp.Nodes = h.quorumNodes(q)
			}
			if req.Version >= 2 {
				p.ErrorMessage = &text
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func quorumOf(p *kmsg.DescribeQuorumResponseTopicPartition, q watch.Quorum) {
	p.LeaderID, p.LeaderEpoch, p.HighWatermark = int32(q.Leader), int32(q.Epoch), int64(q.Committed)+1
	for _, r := range q.Replicas {
		state := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		state.ReplicaID, state.ReplicaDirectoryID, state.LogEndOffset = int32(r.Node), r.Directory, r.LogEnd
		state.LastFetchTimestamp, state.LastCaughtUpTimestamp = r.FetchedMs, r.CaughtUpMs
		if r.Voter {
			p.CurrentVoters = append(p.CurrentVoters, state)
		} else {
			p.Observers = append(p.Observers, state)
		}
	}
}

// quorumNodes lists where the voters are reached.
func (h *Handler) quorumNodes(q watch.Quorum) []kmsg.DescribeQuorumResponseNode {
	var nodes []kmsg.DescribeQuorumResponseNode
	for _, r := range q.Replicas {
		b, ok := h.cfg.Cluster.Image().Broker(r.Node)
		if !r.Voter || !ok {
			continue
		}
		n := kmsg.NewDescribeQuorumResponseNode()
		n.NodeID = int32(r.Node)
		for _, l := range b.Listeners {
			e := kmsg.NewDescribeQuorumResponseNodeListener()
			e.Name, e.Host, e.Port = l.Name, l.Host, uint16(l.Port)
			n.Listeners = append(n.Listeners, e)
		}
		nodes = append(nodes, n)
	}
	return nodes
}
