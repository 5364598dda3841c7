package api

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
	"strandline/broker/group/consumer"
)

// consumerGroupDescribe shows KIP-848 groups with their members.
//
// Versions: 1 tells which protocol each member speaks.
func (h *Handler) consumerGroupDescribe(ctx context.Context, req *kmsg.ConsumerGroupDescribeRequest) *kmsg.ConsumerGroupDescribeResponse {
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	resp.Groups = make([]kmsg.ConsumerGroupDescribeResponseGroup, len(req.Groups))
	served := h.consumerProtocol()
	eachGroup(len(req.Groups), func(i int) {
		g, id := &resp.Groups[i], req.Groups[i]
		g.Default()
		g.Group = id
		if !served {
			g.ErrorCode = codeUnsupportedVersion
			return
		}
		d, err := h.cfg.GroupAdmin.DescribeConsumer(ctx, id)
		if err != nil {
			if g.ErrorCode = h.groupCode(req.Key(), id, err); g.ErrorCode == codeGroupIDNotFound {
				//lint:ignore ST1005 Kafka's sentence
				g.ErrorMessage = groupText(fmt.Errorf("%w: Group %s not found.", group.ErrGroupIDNotFound, id))
			}
		} else {
			describeConsumers(g, d)
			if req.IncludeAuthorizedOperations {
				g.AuthorizedOperations = groupOperations
			}
		}
	})
	return resp
}

// The protocols of members.
const (
	memberClassic  int8 = 0
	memberConsumer int8 = 1
)

func describeConsumers(g *kmsg.ConsumerGroupDescribeResponseGroup, d consumer.Description) {
	g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName = string(d.State), d.Epoch, d.AssignmentEpoch, d.Assignor
	for _, m := range d.Members {
		out := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		out.MemberID, out.InstanceID, out.RackID, out.MemberEpoch = m.MemberID, textOrNil(m.InstanceID), textOrNil(m.RackID), m.Epoch
		out.ClientID, out.ClientHost = m.Client.ID, m.Client.Host
		out.SubscribedTopics, out.SubscribedTopicRegex = m.SubscribedTopics, kmsg.StringPtr(m.SubscribedRegex)
		out.Assignment.TopicPartitions, out.TargetAssignment.TopicPartitions = namedPartitions(m.Assigned), namedPartitions(m.Target)
		if out.MemberType = memberConsumer; m.Classic {
			out.MemberType = memberClassic
		}
		g.Members = append(g.Members, out)
	}
}

func namedPartitions(list []consumer.NamedPartitions) []kmsg.AssignmentTopicPartition {
	out := make([]kmsg.AssignmentTopicPartition, 0, len(list))
	for _, n := range list {
		out = append(out, kmsg.AssignmentTopicPartition{TopicID: n.Topic.ID, Topic: n.Topic.Name, Partitions: n.Partitions})
	}
	return out
}
