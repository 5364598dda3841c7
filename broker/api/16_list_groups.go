package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
)

// listGroups lists the groups that this broker coordinates.
//
// Versions: 4 filters by state (KIP-518), 5 by type (KIP-848).
func (h *Handler) listGroups(ctx context.Context, req *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	var filter group.ListFilter
	for _, s := range req.StatesFilter {
		filter.States = append(filter.States, group.ParseState(s))
	}
	for _, t := range req.TypesFilter {
		filter.Types = append(filter.Types, group.ParseType(t))
	}
	resp := kmsg.NewPtrListGroupsResponse()
	list, err := h.cfg.GroupAdmin.List(ctx, filter)
	if err != nil {
		resp.ErrorCode = h.groupCode(req.Key(), "", err)
		return resp
	}
	resp.Groups = make([]kmsg.ListGroupsResponseGroup, 0, len(list))
	for _, l := range list {
		resp.Groups = append(resp.Groups, kmsg.ListGroupsResponseGroup{
			Group: l.GroupID, ProtocolType: l.ProtocolType, GroupState: string(l.State), GroupType: string(l.Type),
		})
	}
	return resp
}
