package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/request"
)

// resourceKinds are the kinds of config resources that Apache Kafka lists, in
// its order. Here client metrics and loggers have none.
var resourceKinds = []int8{int8(request.GroupResource), 16, 8, int8(kmsg.ConfigResourceTypeBroker), int8(kmsg.ConfigResourceTypeTopic)}

// listConfigResources lists what has configurations.
//
// Versions: 0 asks for client metrics.
func (h *Handler) listConfigResources(_ context.Context, req *kmsg.ListConfigResourcesRequest) *kmsg.ListConfigResourcesResponse {
	resp := kmsg.NewPtrListConfigResourcesResponse()
	asked := map[int8]bool{}
	for _, kind := range req.ResourceTypes {
		asked[kind] = true
	}
	for _, kind := range resourceKinds {
		if req.Version >= 1 && len(req.ResourceTypes) == 0 {
			asked[kind] = true
		}
	}
	add := func(kind kmsg.ConfigResourceType, name string) {
		r := kmsg.NewListConfigResourcesResponseConfigResource()
		r.Type, r.Name = int8(kind), name
		resp.ConfigResources = append(resp.ConfigResources, r)
	}
	img := h.cfg.Cluster.Image()
	for _, kind := range resourceKinds {
		if !asked[kind] {
			continue
		}
		delete(asked, kind)
		switch kmsg.ConfigResourceType(kind) {
		case kmsg.ConfigResourceTypeBroker:
			for _, b := range img.Brokers() {
				add(kmsg.ConfigResourceTypeBroker, itoa(int(b.ID)))
			}
		case groupResource:
			for id := range img.ConfiguredGroups() {
				add(groupResource, id)
			}
		case kmsg.ConfigResourceTypeTopic:
			for t := range img.Topics() {
				add(kmsg.ConfigResourceTypeTopic, t.Name)
			}
		}
	}
	if len(asked) > 0 {
		resp.ErrorCode, resp.ConfigResources = codeUnsupportedVersion, nil
	}
	return resp
}
