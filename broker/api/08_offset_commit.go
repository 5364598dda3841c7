package api

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// offsetCommit stores offsets of a group.
//
// Versions: 0 and 1, for clients older than Kafka 4, have no retention, and 0 no
// member; 1 alone has times of the commit, which nothing uses any more; 2 to 4 say
// how long to keep the offsets; 6 adds leader epochs, 7 static members, 9 member
// epochs of KIP-848 groups, 10 names topics by id.
func (h *Handler) offsetCommit(ctx context.Context, req *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	img := h.cfg.Cluster.Image()
	byID := req.Version >= 10
	resp := kmsg.NewPtrOffsetCommitResponse()
	commit := group.CommitRequest{MemberID: req.MemberID, InstanceID: textOf(req.InstanceID), Generation: req.Generation, NoMemberEpochs: req.Version < 9, Retention: -1}
	if req.Version < 1 {
		commit.Generation = -1
	}
	if req.RetentionTimeMillis >= 0 && req.Version >= 2 && req.Version <= 4 {
		commit.Retention = time.Duration(min(req.RetentionTimeMillis, retentionMaxMs)) * time.Millisecond
	}
	var asked []*kmsg.OffsetCommitResponseTopicPartition // parallel to commit.Partitions
	for i := range req.Topics {
		t := &req.Topics[i]
		answer := kmsg.NewOffsetCommitResponseTopic()
		answer.Topic, answer.TopicID = t.Topic, t.TopicID
		answer.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		topic, code := topicFor(img, byID, t.Topic, t.TopicID)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			a := &answer.Partitions[j]
			a.Default()
			a.Partition, a.ErrorCode = p.Partition, code
			switch {
			case code != codeNone:
			case !hasPartition(topic, p.Partition):
				a.ErrorCode = codeUnknownTopicOrPartition
			default:
				commit.Partitions = append(commit.Partitions, commitPartition(topic, p))
				asked = append(asked, a)
			}
		}
		if len(t.Partitions) > 0 {
			resp.Topics = append(resp.Topics, answer)
		}
	}
	if len(asked) == 0 {
		return resp
	}
	res, err := h.cfg.Groups.Commit(ctx, req.Group, commit)
	for i, a := range asked {
		switch {
		case err != nil:
			a.ErrorCode = h.commitCode(req, err)
		case i < len(res.Partitions):
			a.ErrorCode = codeOf(res.Partitions[i])
		default:
			a.ErrorCode = codeUnknownServerError
		}
	}
	return resp
}

// retentionMaxMs is the longest retention that a client can ask for: a hundred
// years, so that adding it to now cannot overflow.
const retentionMaxMs = 100 * 365 * 24 * 3600 * 1000

func commitPartition(topic *image.Topic, p *kmsg.OffsetCommitRequestTopicPartition) group.CommitPartition {
	c := group.CommitPartition{
		Topic: topic.Name, TopicID: topic.ID, Partition: p.Partition, Offset: cluster.Offset(p.Offset),
		LeaderEpoch: cluster.LeaderEpoch(p.LeaderEpoch), Metadata: textOf(p.Metadata),
	}
	if c.LeaderEpoch < 0 {
		c.LeaderEpoch = cluster.NoLeaderEpoch
	}
	return c
}

// commitCode answers a commit that failed as a whole in the words that its
// version knows.
func (h *Handler) commitCode(req *kmsg.OffsetCommitRequest, err error) int16 {
	if req.Version < 9 && errors.Is(err, group.ErrGroupIDNotFound) {
		return codeIllegalGeneration
	}
	return h.groupCode(req.Key(), req.Group, err)
}

func hasPartition(t *image.Topic, partition int32) bool {
	return partition >= 0 && int(partition) < len(t.Partitions)
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// textOrNil is null for "".
func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
