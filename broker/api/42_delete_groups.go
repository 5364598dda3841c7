package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteGroups deletes empty groups with their offsets, each on its own.
func (h *Handler) deleteGroups(ctx context.Context, req *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse {
	resp := kmsg.NewPtrDeleteGroupsResponse()
	seen := map[string]bool{}
	for _, id := range req.Groups {
		if seen[id] {
			continue
		}
		seen[id] = true
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group = id
		if err := h.cfg.GroupAdmin.Delete(ctx, id); err != nil {
			g.ErrorCode = h.groupCode(req.Key(), id, err)
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp
}
