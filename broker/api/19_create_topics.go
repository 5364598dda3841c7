package api

import (
	"context"
	"fmt"
	"sort"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// createTopics creates topics, each on its own; with validate_only it only says
// what would happen.
//
// Versions: 4 takes -1 for the defaults of counts, 5 answers with what the topic
// has become, 7 with its id.
func (h *Handler) createTopics(ctx context.Context, req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	ctx, cancel := h.withTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	resp := kmsg.NewPtrCreateTopicsResponse()
	count := map[string]int{}
	for i := range req.Topics {
		count[req.Topics[i].Topic]++
	}
	var (
		asked []request.NewTopic
		at    []int // index in the response of each one asked for
	)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewCreateTopicsResponseTopic()
		out.Topic, out.NumPartitions, out.ReplicationFactor = t.Topic, -1, -1
		out.Configs = []kmsg.CreateTopicsResponseTopicConfig{} // null would say that describing is not allowed
		if count[t.Topic] > 1 {
			if count[t.Topic] == seenTwice {
				continue
			}
			count[t.Topic] = seenTwice
			setCreated(&out, refused(codeInvalidRequest, "Duplicate topic name."))
		} else if n, bad := newTopic(t); bad.code != codeNone {
			setCreated(&out, bad)
		} else {
			asked, at = append(asked, n), append(at, len(resp.Topics))
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(asked) == 0 {
		return resp
	}
	res, err := submit[request.CreateTopicsResult](ctx, h, request.CreateTopics{Topics: asked, ValidateOnly: req.ValidateOnly})
	if err == nil && len(res.Topics) != len(asked) {
		err = fmt.Errorf("controller answered %d topics for %d", len(res.Topics), len(asked))
	}
	img := h.cfg.Cluster.Image()
	for i, n := range asked {
		out := &resp.Topics[at[i]]
		switch {
		case err != nil:
			setCreated(out, outcomeOf(err))
		case res.Topics[i].Err != nil:
			setCreated(out, outcomeOf(res.Topics[i].Err))
		default:
			h.describeCreated(img, out, n, res.Topics[i])
		}
	}
	return resp
}

// seenTwice marks a repeated name that has been answered.
const seenTwice = 1 << 30

func setCreated(out *kmsg.CreateTopicsResponseTopic, o outcome) {
	out.ErrorCode, out.ErrorMessage = o.code, o.text
}

// newTopic checks what only the request's form can be wrong about.
func newTopic(t *kmsg.CreateTopicsRequestTopic) (request.NewTopic, outcome) {
	n := request.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, Replication: t.ReplicationFactor, Configs: map[string]string{}}
	if bad := invalidTopicName(t.Topic); bad != "" {
		return n, refused(codeInvalidTopic, bad)
	}
	for i := range t.Configs {
		c := &t.Configs[i]
		if c.Value == nil {
			return n, refused(codeInvalidConfig, "Null value not supported for topic configs: "+c.Name)
		}
		n.Configs[c.Name] = *c.Value
	}
	if len(t.ReplicaAssignment) == 0 {
		return n, outcome{}
	}
	if t.ReplicationFactor != -1 {
		return n, refused(codeInvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if t.NumPartitions != -1 {
		return n, refused(codeInvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	assignment := append([]kmsg.CreateTopicsRequestTopicReplicaAssignment(nil), t.ReplicaAssignment...)
	sort.Slice(assignment, func(i, j int) bool { return assignment[i].Partition < assignment[j].Partition })
	for i := range assignment {
		switch p := assignment[i].Partition; {
		case i > 0 && p == assignment[i-1].Partition:
			return n, refused(codeInvalidReplicaAssignment, fmt.Sprintf("Found multiple manual partition assignments for partition %d", p))
		case p != int32(i):
			return n, refused(codeInvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
		n.Assignment = append(n.Assignment, brokerIDs(assignment[i].Replicas))
	}
	return n, outcome{}
}

// describeCreated answers what the topic has become, or would.
func (h *Handler) describeCreated(img *image.Image, out *kmsg.CreateTopicsResponseTopic, asked request.NewTopic, made request.CreatedTopic) {
	out.TopicID = made.ID
	out.NumPartitions, out.ReplicationFactor = made.Partitions, made.Replication
	layers := h.layers(img, nil)
	layers.Topic = asked.Configs
	if t, ok := img.TopicByID(made.ID); ok {
		layers = h.layers(img, t)
	} else {
		layers.TieredByDefault = config.TierOf(layers, h.cfg.Broker.TierByDefault)
	}
	for _, v := range config.DescribeTopic(layers) {
		if v.Key.Internal && v.Source != config.SourceTopic {
			continue
		}
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value = v.Name, valueOf(v.Value, v.Null)
		c.ReadOnly, c.Source, c.IsSensitive = v.ReadOnly, int8(v.Source), v.Sensitive
		out.Configs = append(out.Configs, c)
	}
}

// layers are the levels of configuration of a topic, or of this broker.
func (h *Handler) layers(img *image.Image, t *image.Topic) config.Layers {
	l := config.Layers{
		Broker:  img.BrokerConfig(cluster.BrokerID(h.cfg.Broker.NodeID)),
		Cluster: img.BrokerConfig(cluster.NoBroker),
		Static:  h.cfg.Broker.Static,
	}
	if t != nil {
		l.Topic, l.TieredByDefault = t.Configs, t.TieredByDefault
	}
	return l
}

func valueOf(v string, null bool) *string {
	if null {
		return nil
	}
	return &v
}
