package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
)

// joinGroup asks for membership of a classic group, and waits until its members
// have come.
//
// Versions: 1 has a rebalance timeout; 4 makes new members join again with the id
// that they are given (KIP-394); 5 adds static members, 8 a reason; a leader of
// version 9 may be told to keep the assignment.
func (h *Handler) joinGroup(ctx context.Context, client group.Client, req *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	join := group.JoinRequest{
		MemberID: req.MemberID, InstanceID: textOf(req.InstanceID), RequireMemberID: req.Version >= 4, CanSkipAssignment: req.Version >= 9,
		NewMemberID: group.NewMemberID(client.ID, textOf(req.InstanceID), randomText()), Client: client, ProtocolType: req.ProtocolType,
		SessionTimeout: milliseconds(req.SessionTimeoutMillis), RebalanceTimeout: milliseconds(req.RebalanceTimeoutMillis),
		Reason: textOf(req.Reason),
	}
	if req.Version < 1 {
		join.RebalanceTimeout = join.SessionTimeout
	}
	for i := range req.Protocols {
		join.Protocols = append(join.Protocols, group.Protocol{Name: req.Protocols[i].Name, Metadata: bytes.Clone(req.Protocols[i].Metadata)})
	}
	res, err := h.cfg.Groups.Join(ctx, req.Group, join)
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.MemberID, resp.Generation = res.MemberID, -1
	if err != nil {
		resp.ErrorCode = h.groupCode(req.Key(), req.Group, err)
		resp.Protocol = protocolName(req.Version, "")
		return resp
	}
	resp.Generation, resp.ProtocolType, resp.Protocol = res.Generation, textOrNil(res.ProtocolType), protocolName(req.Version, res.Protocol)
	resp.LeaderID, resp.SkipAssignment = res.Leader, res.SkipAssignment
	for _, m := range res.Members {
		out := kmsg.NewJoinGroupResponseMember()
		out.MemberID, out.InstanceID, out.ProtocolMetadata = m.MemberID, textOrNil(m.InstanceID), m.Metadata
		resp.Members = append(resp.Members, out)
	}
	return resp
}

// protocolName is null where there is none, once versions can say so.
func protocolName(version int16, name string) *string {
	if version < 7 {
		return &name
	}
	return textOrNil(name)
}

func milliseconds(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }

// randomText is a random UUID in the form that Java writes.
func randomText() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
