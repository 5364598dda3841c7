package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
)

// leaveGroup takes members out of a group.
//
// Versions: before 3 it is one member, whose error is that of the response; 3
// names several, also static ones by their instance id; 5 adds reasons.
func (h *Handler) leaveGroup(ctx context.Context, req *kmsg.LeaveGroupRequest) *kmsg.LeaveGroupResponse {
	leave := group.LeaveRequest{Members: make([]group.LeavingMember, 0, max(1, len(req.Members)))}
	if req.Version < 3 {
		leave.Members = append(leave.Members, group.LeavingMember{MemberID: req.MemberID})
	}
	for i := range req.Members {
		m := &req.Members[i]
		leave.Members = append(leave.Members, group.LeavingMember{MemberID: m.MemberID, InstanceID: textOf(m.InstanceID), Reason: textOf(m.Reason)})
	}
	resp := kmsg.NewPtrLeaveGroupResponse()
	res, err := h.cfg.Groups.Leave(ctx, req.Group, leave)
	if errors.Is(err, group.ErrUnknownMember) {
		// There is no such group: nobody is in it.
		res, err = group.LeaveResponse{}, nil
		for _, m := range leave.Members {
			res.Members = append(res.Members, group.LeaveResult{MemberID: m.MemberID, InstanceID: m.InstanceID, Err: group.ErrUnknownMember})
		}
	}
	switch {
	case err != nil:
		resp.ErrorCode = h.groupCode(req.Key(), req.Group, err)
	case req.Version < 3:
		for _, m := range res.Members {
			resp.ErrorCode = codeOf(m.Err)
		}
	default:
		for _, m := range res.Members {
			out := kmsg.NewLeaveGroupResponseMember()
			out.MemberID, out.InstanceID, out.ErrorCode = m.MemberID, textOrNil(m.InstanceID), codeOf(m.Err)
			resp.Members = append(resp.Members, out)
		}
	}
	return resp
}
