package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// consumerProtocol tells whether groups may use the protocol of KIP-848:
// group.version is finalised, and group.coordinator.rebalance.protocols has it.
func (h *Handler) consumerProtocol() bool {
	return h.cfg.Broker.Groups.ConsumerEnabled && h.cfg.Cluster.Image().Features()[image.GroupFeature] > 0
}

// consumerGroupHeartbeat joins a KIP-848 group, keeps a member in it or takes it
// out.
//
// Versions: members of 0 may join without an id and are given one; 1 makes its
// own, and adds regular expressions.
func (h *Handler) consumerGroupHeartbeat(ctx context.Context, client group.Client, req *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	beat := group.ConsumerHeartbeatRequest{
		MemberID: req.MemberID, InstanceID: textOf(req.InstanceID), MemberEpoch: req.MemberEpoch, Client: client, RackID: req.RackID,
		RebalanceTimeout: -1, SubscribedTopics: req.SubscribedTopicNames, SubscribedRegex: req.SubscribedTopicRegex, Assignor: req.ServerAssignor,
	}
	if req.RebalanceTimeoutMillis >= 0 {
		beat.RebalanceTimeout = time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond
	}
	if req.Version < 1 && beat.MemberID == "" && beat.MemberEpoch == group.JoinEpoch {
		beat.MemberID = cluster.NewUUID().String()
	}
	if req.Topics != nil {
		beat.Owned = []group.TopicPartitions{}
	}
	for i := range req.Topics {
		beat.Owned = append(beat.Owned, group.TopicPartitions{Topic: req.Topics[i].TopicID, Partitions: req.Topics[i].Partitions})
	}
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	if !h.consumerProtocol() {
		resp.ErrorCode = codeUnsupportedVersion
		return resp
	}
	switch {
	case req.Version >= 1 && req.MemberID == "":
		resp.ErrorCode, resp.ErrorMessage = codeInvalidRequest, kmsg.StringPtr("MemberId can't be empty.")
		return resp
	case req.InstanceID != nil && *req.InstanceID == "":
		resp.ErrorCode, resp.ErrorMessage = codeInvalidRequest, kmsg.StringPtr("InstanceId can't be empty.")
		return resp
	}
	res, err := h.cfg.Groups.ConsumerHeartbeat(ctx, req.Group, beat)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = h.groupCode(req.Key(), req.Group, err), groupText(err)
		return resp
	}
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = &res.MemberID, res.MemberEpoch, int32(res.HeartbeatInterval.Milliseconds())
	if res.HasAssignment {
		a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
		for _, t := range res.Assignment {
			out := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
			out.TopicID, out.Partitions = t.Topic, t.Partitions
			a.Topics = append(a.Topics, out)
		}
		resp.Assignment = &a
	}
	return resp
}
