package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
)

// describeGroups shows classic groups with their members.
//
// Versions: a group that is not there is Dead, and from 6 on an error; 3 can ask
// what the client may do, which is everything.
func (h *Handler) describeGroups(ctx context.Context, req *kmsg.DescribeGroupsRequest) *kmsg.DescribeGroupsResponse {
	resp := kmsg.NewPtrDescribeGroupsResponse()
	resp.Groups = make([]kmsg.DescribeGroupsResponseGroup, len(req.Groups))
	eachGroup(len(req.Groups), func(i int) {
		g, id := &resp.Groups[i], req.Groups[i]
		g.Default()
		g.Group = id
		d, err := h.cfg.GroupAdmin.Describe(ctx, id)
		switch {
		case err == nil:
			describeGroup(g, d)
			if req.IncludeAuthorizedOperations {
				g.AuthorizedOperations = groupOperations
			}
		case errors.Is(err, group.ErrGroupIDNotFound):
			if g.State = string(group.Dead); req.Version >= 6 {
				g.ErrorCode, g.ErrorMessage = codeOf(err), kmsg.StringPtr(fmt.Sprintf("Group %s not found.", id))
			} else if req.IncludeAuthorizedOperations {
				g.AuthorizedOperations = groupOperations
			}
		default:
			g.ErrorCode = h.groupCode(req.Key(), id, err)
		}
	})
	return resp
}

func describeGroup(g *kmsg.DescribeGroupsResponseGroup, d group.Description) {
	g.State, g.ProtocolType, g.Protocol = string(d.State), d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		out := kmsg.NewDescribeGroupsResponseGroupMember()
		out.MemberID, out.InstanceID, out.ClientID, out.ClientHost = m.MemberID, textOrNil(m.InstanceID), m.Client.ID, m.Client.Host
		out.ProtocolMetadata, out.MemberAssignment = m.Metadata, m.Assignment
		g.Members = append(g.Members, out)
	}
}
