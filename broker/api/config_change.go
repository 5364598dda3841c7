package api

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/request"
)

// configChange is what a request wants of one resource, and what is wrong with
// its form.
type configChange struct {
	request.AlterConfig
	resource configResource
	bad      outcome
}

type configResource struct {
	kind kmsg.ConfigResourceType
	name string
}

// groupResource is the kind of resource that a consumer group is.
const groupResource = kmsg.ConfigResourceType(request.GroupResource)

// configResource finds what a change is for: a topic, a consumer group, this
// broker, or all brokers.
func (h *Handler) configResource(kind kmsg.ConfigResourceType, name string) configChange {
	c := configChange{AlterConfig: request.AlterConfig{Name: name}, resource: configResource{kind, name}}
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		c.Kind = request.TopicResource
		if name == "" {
			c.bad = refused(codeInvalidRequest, "Default topic resources are not allowed.")
		}
	case groupResource:
		c.Kind = request.GroupResource
		if name == "" {
			c.bad = refused(codeInvalidRequest, "Default group resources are not allowed.")
		}
	case kmsg.ConfigResourceTypeBroker:
		c.Kind = request.BrokerResource
		if name == "" {
			break
		}
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			c.bad = refused(codeInvalidRequest, "Node id must be an integer, but it is: "+name)
		} else if int32(id) != h.cfg.Broker.NodeID {
			c.bad = refused(codeInvalidRequest, fmt.Sprintf("Unexpected broker id, expected %d, but received %d", h.cfg.Broker.NodeID, id))
		}
	default:
		c.bad = refused(codeInvalidRequest, fmt.Sprintf("Unknown resource type %d", kind))
	}
	return c
}

// changeConfigs carries the changes out that are well formed.
func (h *Handler) changeConfigs(ctx context.Context, changes []configChange, validateOnly bool) []outcome {
	count := map[configResource]int{}
	for i := range changes {
		count[changes[i].resource]++
	}
	out := make([]outcome, len(changes))
	var asked []request.AlterConfig
	var at []int
	for i := range changes {
		c := &changes[i]
		if count[c.resource] > 1 {
			c.bad = refused(codeInvalidRequest, "Each resource must appear at most once.")
		}
		if out[i] = c.bad; c.bad.code == codeNone {
			asked, at = append(asked, c.AlterConfig), append(at, i)
		}
	}
	if len(asked) == 0 {
		return out
	}
	ctx, cancel := h.withTimeout(ctx, 0)
	defer cancel()
	for i, err := range h.outcomes(ctx, request.AlterConfigs{Resources: asked, ValidateOnly: validateOnly}, len(asked)) {
		o := outcomeOf(err)
		if o.code == codeUnknownTopicOrPartition {
			o = refused(o.code, "The topic '"+asked[i].Name+"' does not exist.")
		}
		out[at[i]] = o
	}
	return out
}
