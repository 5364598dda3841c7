package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

// unregisterBroker forgets a broker that does not run.
func (h *Handler) unregisterBroker(ctx context.Context, req *kmsg.UnregisterBrokerRequest) *kmsg.UnregisterBrokerResponse {
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	ctx, cancel := h.withTimeout(ctx, 0)
	defer cancel()
	_, err := h.cfg.Cluster.Submit(ctx, request.UnregisterBroker{Broker: cluster.BrokerID(req.BrokerID)})
	o := outcomeOf(err)
	resp.ErrorCode, resp.ErrorMessage = o.code, o.text
	return resp
}
