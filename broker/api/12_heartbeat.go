package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
)

// heartbeat keeps the session of a member of a classic group. While the
// coordinator is loading nothing is known against the member: it gets no error.
func (h *Handler) heartbeat(ctx context.Context, req *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	resp := kmsg.NewPtrHeartbeatResponse()
	err := h.cfg.Groups.Heartbeat(ctx, req.Group, group.HeartbeatRequest{
		MemberID: req.MemberID, InstanceID: textOf(req.InstanceID), Generation: req.Generation,
	})
	if err != nil && !errors.Is(err, group.ErrCoordinatorLoading) {
		resp.ErrorCode = h.groupCode(req.Key(), req.Group, err)
	}
	return resp
}
