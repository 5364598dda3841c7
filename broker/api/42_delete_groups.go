package api

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupsAtOnce bounds the groups of one request that are asked for at once: those of
// one partition are written together then.
const groupsAtOnce = 64

// eachGroup calls fn for the numbers below n, at most groupsAtOnce at a time.
func eachGroup(n int, fn func(i int)) {
	var workers sync.WaitGroup
	next := make(chan int)
	for range min(n, groupsAtOnce) {
		workers.Go(func() {
			for i := range next {
				fn(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

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
		resp.Groups = append(resp.Groups, g)
	}
	eachGroup(len(resp.Groups), func(i int) {
		g := &resp.Groups[i]
		if err := h.cfg.GroupAdmin.Delete(ctx, g.Group); err != nil {
			g.ErrorCode = h.groupCode(req.Key(), g.Group, err)
		}
	})
	return resp
}
