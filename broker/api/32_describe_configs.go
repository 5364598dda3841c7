package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/config"
	"strandline/metadata/image"
)

// describeConfigs lists the keys of topics, consumer groups and brokers with their
// values and where these come from.
//
// Versions: 1 has synonyms, 3 types and documentation.
func (h *Handler) describeConfigs(_ context.Context, req *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	img := h.cfg.Cluster.Image()
	resp := kmsg.NewPtrDescribeConfigsResponse()
	for i := range req.Resources {
		asked := &req.Resources[i]
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName = asked.ResourceType, asked.ResourceName
		values, bad := h.valuesOf(img, asked)
		r.ErrorCode, r.ErrorMessage = bad.code, kmsg.StringPtr("")
		if bad.text != nil {
			r.ErrorMessage = bad.text
		}
		for _, v := range values {
			if len(asked.ConfigNames) > 0 && !slices.Contains(asked.ConfigNames, v.Name) {
				continue
			}
			if v.Key.Internal && v.Source == config.SourceDefault {
				continue
			}
			r.Configs = append(r.Configs, describeValue(v, req))
		}
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}

func (h *Handler) valuesOf(img *image.Image, asked *kmsg.DescribeConfigsRequestResource) ([]config.Value, outcome) {
	switch asked.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if bad := invalidTopicName(asked.ResourceName); bad != "" {
			return nil, refused(codeInvalidTopic, bad)
		}
		t, ok := img.Topic(asked.ResourceName)
		if !ok {
			return nil, outcome{code: codeUnknownTopicOrPartition}
		}
		return config.DescribeTopic(h.layers(img, t)), outcome{}
	case kmsg.ConfigResourceTypeBroker:
		layers := h.layers(img, nil)
		if asked.ResourceName == "" {
			return config.DescribeCluster(layers.Cluster), outcome{}
		}
		id, err := strconv.ParseInt(asked.ResourceName, 10, 32)
		if err != nil {
			return nil, refused(codeInvalidRequest, "Broker id must be an integer, but it is: "+asked.ResourceName)
		}
		if int32(id) != h.cfg.Broker.NodeID {
			return nil, refused(codeInvalidRequest, fmt.Sprintf("Unexpected broker id, expected %d or empty string, but received %d", h.cfg.Broker.NodeID, id))
		}
		return config.DescribeBroker(layers), outcome{}
	case groupResource:
		if asked.ResourceName == "" {
			return nil, refused(codeInvalidRequest, "Group name must not be empty")
		}
		return config.DescribeGroup(img.GroupConfig(asked.ResourceName), h.cfg.Broker.Static), outcome{}
	}
	return nil, refused(codeInvalidRequest, textInvalidRequest)
}

func describeValue(v config.Value, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value = v.Name, valueOf(v.Value, v.Null)
	c.ReadOnly, c.IsSensitive, c.Source = v.ReadOnly, v.Sensitive, kmsg.ConfigSource(v.Source)
	c.ConfigType = kmsg.ConfigType(v.Key.Type)
	if req.IncludeDocumentation && v.Key.Doc != "" {
		c.Documentation = &v.Key.Doc
	}
	if req.IncludeSynonyms {
		for _, s := range v.Synonyms {
			y := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			y.Name, y.Value, y.Source = s.Name, valueOf(s.Value, s.Null), kmsg.ConfigSource(s.Source)
			c.ConfigSynonyms = append(c.ConfigSynonyms, y)
		}
	}
	return c
}
