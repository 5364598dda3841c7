package api

import (
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/wire"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// softwareName is what a client may call itself (KIP-511).
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// apiVersions answers with the version table. A version from the future is
// answered in version 0 with code 35 and the range of this API, so that the
// client can ask again on the same connection.
func (h *Handler) apiVersions(q *wire.Request, out *wire.Out) error {
	resp := kmsg.NewPtrApiVersionsResponse()
	if api, _ := wire.Lookup(q.Key); q.Version < api.Min || q.Version > api.Max {
		old := *q
		old.Version = 0
		resp.ErrorCode = codeUnsupportedVersion
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: api.Key, MinVersion: api.Advertised(h.cfg.Broker.LegacyClients), MaxVersion: api.Max}}
		respond(out, &old, resp)
		return nil
	}
	if err := wire.CheckShape(q); err != nil {
		return err
	}
	req := kmsg.NewPtrApiVersionsRequest()
	if err := h.decode(q, req, false); err != nil {
		return err
	}
	resp.ErrorCode = h.checkClient(req)
	if resp.ErrorCode == codeNone {
		h.describeVersions(resp)
	}
	respond(out, q, resp)
	return nil
}

func (h *Handler) checkClient(req *kmsg.ApiVersionsRequest) int16 {
	if req.Version >= 3 && (!softwareName.MatchString(req.ClientSoftwareName) || !softwareName.MatchString(req.ClientSoftwareVersion)) {
		return codeInvalidRequest
	}
	if req.Version < 5 {
		return codeNone
	}
	// KIP-1242: a client that meant another cluster or node is told so.
	if (req.ClusterID == nil) != (req.NodeID == -1) {
		return codeInvalidRequest // each says nothing without the other
	}
	otherCluster := req.ClusterID != nil && *req.ClusterID != h.cfg.Cluster.Image().ClusterID()
	otherNode := req.NodeID != -1 && req.NodeID != h.cfg.Broker.NodeID
	if otherCluster || otherNode {
		return codeRebootstrapRequired
	}
	return codeNone
}

func (h *Handler) describeVersions(resp *kmsg.ApiVersionsResponse) {
	for _, a := range wire.Supported() {
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: a.Key, MinVersion: a.Advertised(h.cfg.Broker.LegacyClients), MaxVersion: a.Max})
	}
	img := h.cfg.Cluster.Image()
	resp.FinalizedFeaturesEpoch = int64(img.Index())
	for _, f := range supportedFeatures(img, cluster.BrokerID(h.cfg.Broker.NodeID)) {
		resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{
			Name: f.name, MinVersion: int16(f.Min), MaxVersion: int16(f.Max),
		})
	}
	features := img.Features()
	for _, name := range sortedKeys(features) {
		// Level 0 is how a feature is absent.
		if level := int16(features[name]); level > 0 {
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{
				Name: name, MinVersionLevel: level, MaxVersionLevel: level,
			})
		}
	}
}

type namedRange struct {
	name string
	request.FeatureRange
}

// supportedFeatures is what the broker registered with.
func supportedFeatures(img *image.Image, id cluster.BrokerID) []namedRange {
	b, ok := img.Broker(id)
	if !ok {
		return nil
	}
	var all []namedRange
	for _, name := range sortedKeys(b.Features) {
		if r := b.Features[name]; r.Max > 0 {
			all = append(all, namedRange{name, r})
		}
	}
	return all
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
