package api

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/request"
)

// incrementalAlterConfigs changes the overrides of topics and brokers, each
// resource on its own, all of its keys or none.
func (h *Handler) incrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	count := map[resource]int{}
	for i := range req.Resources {
		count[resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	var (
		asked []request.AlterConfig
		at    []int
	)
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		change, bad := h.configChange(r)
		if count[resource{r.ResourceType, r.ResourceName}] > 1 {
			bad = refused(codeInvalidRequest, "Each resource must appear at most once.")
		}
		if bad.code == codeNone {
			asked, at = append(asked, change), append(at, i)
		}
		out.ErrorCode, out.ErrorMessage = bad.code, bad.text
		resp.Resources = append(resp.Resources, out)
	}
	if len(asked) == 0 {
		return resp
	}
	ctx, cancel := h.withTimeout(ctx, 0)
	defer cancel()
	for i, err := range h.outcomes(ctx, request.AlterConfigs{Resources: asked, ValidateOnly: req.ValidateOnly}, len(asked)) {
		o := outcomeOf(err)
		if o.code == codeUnknownTopicOrPartition {
			o = refused(o.code, "The topic '"+asked[i].Name+"' does not exist.")
		}
		resp.Resources[at[i]].ErrorCode, resp.Resources[at[i]].ErrorMessage = o.code, o.text
	}
	return resp
}

// configChange checks what only the request's form can be wrong about.
func (h *Handler) configChange(r *kmsg.IncrementalAlterConfigsRequestResource) (request.AlterConfig, outcome) {
	change := request.AlterConfig{Name: r.ResourceName}
	switch r.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		change.Kind = request.TopicResource
		if r.ResourceName == "" {
			return change, refused(codeInvalidRequest, "Default topic resources are not allowed.")
		}
	case kmsg.ConfigResourceTypeBroker:
		change.Kind = request.BrokerResource
		if r.ResourceName == "" {
			break
		}
		id, err := strconv.ParseInt(r.ResourceName, 10, 32)
		if err != nil {
			return change, refused(codeInvalidRequest, "Node id must be an integer, but it is: "+r.ResourceName)
		}
		if int32(id) != h.cfg.Broker.NodeID {
			return change, refused(codeInvalidRequest, fmt.Sprintf("Unexpected broker id, expected %d, but received %d", h.cfg.Broker.NodeID, id))
		}
	default:
		return change, refused(codeInvalidRequest, fmt.Sprintf("Unknown resource type %d", r.ResourceType))
	}
	seen := map[string]bool{}
	for i := range r.Configs {
		c := &r.Configs[i]
		op := request.ConfigOp{Key: c.Name, Op: request.ConfigOpKind(c.Op)}
		switch {
		case seen[c.Name]:
			return change, refused(codeInvalidRequest, "Error due to duplicate config keys")
		case op.Op < request.ConfigSet || op.Op > request.ConfigSubtract:
			return change, refused(codeInvalidRequest, fmt.Sprintf("Unknown operation %d for key %s", c.Op, c.Name))
		case c.Value == nil && op.Op != request.ConfigDelete:
			return change, refused(codeInvalidRequest, "Null value not supported for : "+c.Name)
		}
		seen[c.Name] = true
		if c.Value != nil {
			op.Value = *c.Value
		}
		change.Ops = append(change.Ops, op)
	}
	return change, outcome{}
}
