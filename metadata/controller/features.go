package controller

import (
	"fmt"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// updateFeatures finalises levels, all or none.
func (c *Controller) updateFeatures(r request.UpdateFeatures) error {
	var records []command.Record
	finalized := c.img.Features()
	for _, u := range r.Updates {
		if reason := c.refusal(u, finalized[u.Name]); reason != "" {
			return request.Refuse(request.ErrInvalidFeatureUpdate, "The update failed for all features since the following "+
				"feature had an error: Invalid update version %d for feature %s. %s", u.Level, u.Name, reason)
		}
		if u.Level != finalized[u.Name] {
			records = append(records, command.FeatureSet{Name: u.Name, Level: u.Level})
		}
	}
	if r.ValidateOnly || len(records) == 0 {
		return nil
	}
	return c.propose(records)
}

// refusal says why a level cannot be finalised; empty: it can.
func (c *Controller) refusal(u request.FeatureUpdate, now cluster.FeatureLevel) string {
	if u.Type < request.FeatureUpgrade || u.Type > request.FeatureUnsafeDowngrade {
		return "The controller does not support the given upgrade type."
	}
	if u.Level < 0 {
		return "A feature version cannot be less than 0."
	}
	if why := unsupported(u, image.SupportedFeatures()); why != "" {
		return fmt.Sprintf("Local controller %d %s", c.cfg.Node, why)
	}
	for _, b := range c.img.Brokers() {
		if why := unsupported(u, b.Features); why != "" {
			return fmt.Sprintf("Broker %d %s", b.ID, why)
		}
	}
	switch {
	case u.Level < now && u.Type == request.FeatureUpgrade:
		return "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
	case u.Level > now && u.Type != request.FeatureUpgrade:
		return "Can't downgrade to a newer version."
	}
	return ""
}

func unsupported(u request.FeatureUpdate, ranges map[string]request.FeatureRange) string {
	f := ranges[u.Name]
	switch {
	case f.Max == 0:
		return "does not support this feature."
	case u.Level < f.Min || u.Level > f.Max:
		return fmt.Sprintf("only supports versions %d-%d", f.Min, f.Max)
	}
	return ""
}
