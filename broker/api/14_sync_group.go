package api

import (
	"bytes"
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
)

// syncGroup gives a member of a classic group its assignment, once the leader has
// sent all of them.
//
// Versions: 3 adds static members; 5 must say which protocol the member follows.
func (h *Handler) syncGroup(ctx context.Context, req *kmsg.SyncGroupRequest) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.MemberAssignment = []byte{}
	if req.Version >= 5 && (textOf(req.ProtocolType) == "" || textOf(req.Protocol) == "") {
		resp.ErrorCode = codeInconsistentGroupProtocol
		return resp
	}
	sync := group.SyncRequest{
		MemberID: req.MemberID, InstanceID: textOf(req.InstanceID), Generation: req.Generation,
		ProtocolType: textOf(req.ProtocolType), Protocol: textOf(req.Protocol),
	}
	for i := range req.GroupAssignment {
		a := &req.GroupAssignment[i]
		sync.Assignments = append(sync.Assignments, group.Assignment{MemberID: a.MemberID, Assignment: bytes.Clone(a.MemberAssignment)})
	}
	res, err := h.cfg.Groups.Sync(ctx, req.Group, sync)
	if err != nil {
		resp.ErrorCode = h.groupCode(req.Key(), req.Group, err)
		return resp
	}
	resp.ProtocolType, resp.Protocol = textOrNil(res.ProtocolType), textOrNil(res.Protocol)
	if res.Assignment != nil {
		resp.MemberAssignment = res.Assignment
	}
	return resp
}
