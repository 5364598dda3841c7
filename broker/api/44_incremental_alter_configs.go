package api

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/request"
)

// incrementalAlterConfigs changes the overrides of topics and brokers, each
// resource on its own, all of its keys or none.
func (h *Handler) incrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	asked := make([]configChange, len(req.Resources))
	for i := range req.Resources {
		r := &req.Resources[i]
		asked[i] = h.configEdit(r)
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		resp.Resources = append(resp.Resources, out)
	}
	for i, o := range h.changeConfigs(ctx, asked, req.ValidateOnly) {
		resp.Resources[i].ErrorCode, resp.Resources[i].ErrorMessage = o.code, o.text
	}
	return resp
}

// configEdit checks what only the request's form can be wrong about.
func (h *Handler) configEdit(r *kmsg.IncrementalAlterConfigsRequestResource) configChange {
	c := h.configResource(r.ResourceType, r.ResourceName)
	seen := map[string]bool{}
	for i := range r.Configs {
		k := &r.Configs[i]
		op := request.ConfigOp{Key: k.Name, Op: request.ConfigOpKind(k.Op)}
		switch {
		case c.bad.code != codeNone:
			return c
		case seen[k.Name]:
			c.bad = refused(codeInvalidRequest, "Error due to duplicate config keys")
		case op.Op < request.ConfigSet || op.Op > request.ConfigSubtract:
			c.bad = refused(codeInvalidRequest, fmt.Sprintf("Unknown operation %d for key %s", k.Op, k.Name))
		case k.Value == nil && op.Op != request.ConfigDelete:
			c.bad = refused(codeInvalidRequest, "Null value not supported for : "+k.Name)
		}
		seen[k.Name] = true
		if k.Value != nil {
			op.Value = *k.Value
		}
		c.Ops = append(c.Ops, op)
	}
	return c
}
