package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/request"
)

// createPartitions raises partition counts, each topic on its own.
func (h *Handler) createPartitions(ctx context.Context, req *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	ctx, cancel := h.withTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	resp := kmsg.NewPtrCreatePartitionsResponse()
	count := map[string]int{}
	for i := range req.Topics {
		count[req.Topics[i].Topic]++
	}
	var (
		asked []request.MorePartitions
		at    []int
	)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = t.Topic
		switch {
		case count[t.Topic] == seenTwice:
			continue
		case count[t.Topic] > 1:
			count[t.Topic] = seenTwice
			bad := refused(codeInvalidRequest, "Duplicate topic name.")
			out.ErrorCode, out.ErrorMessage = bad.code, bad.text
		default:
			more := request.MorePartitions{Name: t.Topic, Total: t.Count}
			for j := range t.Assignment {
				more.Assignment = append(more.Assignment, brokerIDs(t.Assignment[j].Replicas))
			}
			asked, at = append(asked, more), append(at, len(resp.Topics))
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(asked) == 0 {
		return resp
	}
	for i, err := range h.outcomes(ctx, request.CreatePartitions{Topics: asked, ValidateOnly: req.ValidateOnly}, len(asked)) {
		o := outcomeOf(err)
		if o.code == codeUnknownTopicOrPartition {
			o.text = nil
		}
		resp.Topics[at[i]].ErrorCode, resp.Topics[at[i]].ErrorMessage = o.code, o.text
	}
	return resp
}
