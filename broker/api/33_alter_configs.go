package api

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/request"
)

// alterConfigs replaces all overrides of topics and brokers, each resource on
// its own.
func (h *Handler) alterConfigs(ctx context.Context, req *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	resp := kmsg.NewPtrAlterConfigsResponse()
	asked := make([]configChange, len(req.Resources))
	for i := range req.Resources {
		r := &req.Resources[i]
		asked[i] = h.configReplacement(r)
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		resp.Resources = append(resp.Resources, out)
	}
	for i, o := range h.changeConfigs(ctx, asked, req.ValidateOnly) {
		resp.Resources[i].ErrorCode, resp.Resources[i].ErrorMessage = o.code, o.text
	}
	return resp
}

func (h *Handler) configReplacement(r *kmsg.AlterConfigsRequestResource) configChange {
	c := h.configResource(r.ResourceType, r.ResourceName)
	c.Replace = true
	var null []string
	seen := map[string]bool{}
	for i := range r.Configs {
		k := &r.Configs[i]
		if seen[k.Name] && c.bad.code == codeNone {
			c.bad = refused(codeInvalidRequest, "Error due to duplicate config keys")
		}
		seen[k.Name] = true
		if k.Value == nil {
			null = append(null, k.Name)
			continue
		}
		c.Ops = append(c.Ops, request.ConfigOp{Key: k.Name, Op: request.ConfigSet, Value: *k.Value})
	}
	if len(null) > 0 && c.bad.code == codeNone {
		c.bad = refused(codeInvalidRequest, "Null value not supported for : "+strings.Join(null, ", "))
	}
	return c
}
