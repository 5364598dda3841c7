package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

// updateFeatures finalises levels of features, all or none.
//
// Versions: 0 only raises levels, 1 names the direction and may validate only,
// 2 has no results of single features.
func (h *Handler) updateFeatures(ctx context.Context, req *kmsg.UpdateFeaturesRequest) *kmsg.UpdateFeaturesResponse {
	resp := kmsg.NewPtrUpdateFeaturesResponse()
	update := request.UpdateFeatures{ValidateOnly: req.ValidateOnly}
	for i := range req.FeatureUpdates {
		u := &req.FeatureUpdates[i]
		kind := request.FeatureUpgrade
		if req.Version >= 1 {
			kind = request.FeatureUpdateType(u.UpgradeType)
		}
		update.Updates = append(update.Updates, request.FeatureUpdate{Name: u.Feature, Level: cluster.FeatureLevel(u.MaxVersionLevel), Type: kind})
	}
	ctx, cancel := h.withTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	if _, err := h.cfg.Cluster.Submit(ctx, update); err != nil {
		o := outcomeOf(err)
		resp.ErrorCode, resp.ErrorMessage = o.code, o.text
		return resp
	}
	if req.Version >= 2 {
		return resp
	}
	for i := range req.FeatureUpdates {
		r := kmsg.NewUpdateFeaturesResponseResult()
		r.Feature, r.ErrorMessage = req.FeatureUpdates[i].Feature, kmsg.StringPtr("NONE")
		resp.Results = append(resp.Results, r)
	}
	return resp
}
