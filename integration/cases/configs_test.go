package cases

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

func change(key string, op kmsg.IncrementalAlterConfigOp, value *string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = key, op, value
	return c
}

func set(key, value string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return change(key, kmsg.IncrementalAlterConfigOpSet, &value)
}

func remove(key string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return change(key, kmsg.IncrementalAlterConfigOpDelete, nil)
}

func add(key, value string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return change(key, kmsg.IncrementalAlterConfigOpAppend, &value)
}

func subtract(key, value string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return change(key, kmsg.IncrementalAlterConfigOpSubtract, &value)
}

func alterResource(c *kit.Raw, validate bool, kind kmsg.ConfigResourceType, name string, changes ...kmsg.IncrementalAlterConfigsRequestResourceConfig) kmsg.IncrementalAlterConfigsResponseResource {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version, req.ValidateOnly = 1, validate
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.Configs = kind, name, changes
	req.Resources = append(req.Resources, r)
	return ask[*kmsg.IncrementalAlterConfigsResponse](c, req).Resources[0]
}

// alter changes a topic's configs.
func alter(c *kit.Raw, topic string, changes ...kmsg.IncrementalAlterConfigsRequestResourceConfig) kmsg.IncrementalAlterConfigsResponseResource {
	return alterResource(c, false, kmsg.ConfigResourceTypeTopic, topic, changes...)
}

func describe(c *kit.Raw, version int16, kind kmsg.ConfigResourceType, name string, keys []string) kmsg.DescribeConfigsResponseResource {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms = version, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, r)
	return ask[*kmsg.DescribeConfigsResponse](c, req).Resources[0]
}
