package api

import (
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// Operations that a client may do where nothing is restricted, as bits of
// Kafka's AclOperation; notAsked is the answer where the client did not ask.
const (
	clusterOperations int32 = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
	topicOperations   int32 = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	groupOperations   int32 = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11
	notAsked          int32 = -1 << 31
)

// metadata lists brokers and topics.
//
// Versions: 0 has no null list, empty means all; 1 to 9 take null for all; 4
// adds whether to create; 8 to 10 the cluster's operations; 10 topic ids, which
// 12 may ask by; 13 a top-level code.
func (h *Handler) metadata(c *Conn, req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	img := h.cfg.Cluster.Image()
	resp := kmsg.NewPtrMetadataResponse()
	for _, b := range img.Brokers() {
		if e, ok := endpointOn(b, c.Listener); ok && !b.Fenced {
			m := kmsg.NewMetadataResponseBroker()
			m.NodeID, m.Host, m.Port, m.Rack = e.id, e.host, e.port, e.rack
			resp.Brokers = append(resp.Brokers, m)
		}
	}
	if id := img.ClusterID(); id != "" {
		resp.ClusterID = &id
	}
	resp.ControllerID = controllerFor(img, c.Listener)
	resp.AuthorizedOperations = notAsked
	if req.IncludeClusterAuthorizedOperations && req.Version <= 10 {
		resp.AuthorizedOperations = clusterOperations
	}
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		resp.Topics = make([]kmsg.MetadataResponseTopic, 0, img.TopicCount())
		for t := range img.Topics() {
			resp.Topics = append(resp.Topics, describeTopic(img, t, c.Listener, req))
		}
		return resp
	}
	if req.Version < 12 && byID(req) {
		return refuseIDs(req)
	}
	h.describeAsked(img, c, req, resp)
	return resp
}

// byID tells whether the request names topics by id.
func byID(req *kmsg.MetadataRequest) bool {
	for i := range req.Topics {
		if req.Topics[i].Topic == nil || req.Topics[i].TopicID != [16]byte{} {
			return true
		}
	}
	return false
}

// refuseIDs answers versions 10 and 11, which have a field for ids and may not
// use it.
func refuseIDs(req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	resp := kmsg.NewPtrMetadataResponse()
	resp.AuthorizedOperations = notAsked
	for i := range req.Topics {
		asked := &req.Topics[i]
		name := asked.Topic
		if name == nil {
			name = kmsg.StringPtr("")
		}
		resp.Topics = append(resp.Topics, missingTopic(name, asked.TopicID, codeInvalidRequest))
	}
	return resp
}

// describeAsked answers each topic asked for once, in order, and has missing
// ones created where that is allowed. Where there are ids, names do not count.
func (h *Handler) describeAsked(img *image.Image, c *Conn, req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
	seen := make(map[string]struct{}, len(req.Topics))
	ids := byID(req)
	for i := range req.Topics {
		asked := &req.Topics[i]
		key := string(asked.TopicID[:])
		if !ids {
			key = *asked.Topic
		} else if asked.Topic != nil && asked.TopicID == [16]byte{} {
			continue
		}
		if _, twice := seen[key]; twice {
			continue
		}
		seen[key] = struct{}{}
		if ids {
			if t, ok := img.TopicByID(cluster.TopicID(asked.TopicID)); ok {
				resp.Topics = append(resp.Topics, describeTopic(img, t, c.Listener, req))
			} else {
				resp.Topics = append(resp.Topics, missingTopic(nil, asked.TopicID, codeUnknownTopicID))
			}
			continue
		}
		if h.creating(*asked.Topic) {
			resp.Topics = append(resp.Topics, missingTopic(asked.Topic, [16]byte{}, codeUnknownTopicOrPartition))
			continue
		}
		if t, ok := img.Topic(*asked.Topic); ok {
			resp.Topics = append(resp.Topics, describeTopic(img, t, c.Listener, req))
			continue
		}
		m := missingTopic(asked.Topic, [16]byte{}, h.missing(*asked.Topic, req))
		m.IsInternal = cluster.InternalTopic(*asked.Topic)
		if req.IncludeTopicAuthorizedOperations && (m.ErrorCode == codeUnknownTopicOrPartition || m.ErrorCode == codeInvalidTopic) {
			m.AuthorizedOperations = topicOperations
		}
		resp.Topics = append(resp.Topics, m)
	}
}

// missing is the code of a topic that does not exist; it starts its creation
// where that is allowed. The client asks again. Internal topics are made by the
// coordinators that keep their state in them, never with the defaults of others.
func (h *Handler) missing(name string, req *kmsg.MetadataRequest) int16 {
	if invalidTopicName(name) != "" {
		return codeInvalidTopic
	}
	if h.cfg.Broker.AutoCreateTopics && !cluster.InternalTopic(name) && (req.Version < 4 || req.AllowAutoTopicCreation) {
		h.autoCreate(name)
	}
	return codeUnknownTopicOrPartition
}

func missingTopic(name *string, id [16]byte, code int16) kmsg.MetadataResponseTopic {
	m := kmsg.NewMetadataResponseTopic()
	m.Topic, m.TopicID, m.ErrorCode, m.AuthorizedOperations = name, id, code, notAsked
	return m
}

func describeTopic(img *image.Image, t *image.Topic, listener string, req *kmsg.MetadataRequest) kmsg.MetadataResponseTopic {
	m := kmsg.NewMetadataResponseTopic()
	m.Topic, m.TopicID, m.IsInternal = &t.Name, t.ID, t.Internal
	m.AuthorizedOperations = notAsked
	if req.IncludeTopicAuthorizedOperations {
		m.AuthorizedOperations = topicOperations
	}
	m.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i, p := range t.Partitions {
		q := &m.Partitions[i]
		q.Partition, q.LeaderEpoch = int32(i), int32(p.LeaderEpoch)
		q.Leader, q.ErrorCode = leaderFor(img, p, listener)
		q.Replicas, q.ISR, q.OfflineReplicas = ids(p.Replicas), ids(p.ISR), offline(img, p)
	}
	return m
}

// leaderFor is a partition's leader as clients of a listener may see it.
func leaderFor(img *image.Image, p *image.Partition, listener string) (int32, int16) {
	if p.Leader == cluster.NoBroker {
		return int32(cluster.NoBroker), codeLeaderNotAvailable
	}
	b, ok := img.Broker(p.Leader)
	if !ok || b.Fenced {
		return int32(cluster.NoBroker), codeLeaderNotAvailable
	}
	if _, ok := endpointOn(b, listener); !ok {
		return int32(cluster.NoBroker), codeListenerNotFound
	}
	return int32(p.Leader), codeNone
}

// offline lists the replicas on brokers or directories that are not there.
func offline(img *image.Image, p *image.Partition) []int32 {
	var out []int32
	for _, id := range p.Replicas {
		b, ok := img.Broker(id)
		if ok && !b.Fenced && !offlineDir(b, p.Dir(id)) {
			continue
		}
		out = append(out, int32(id))
	}
	return out
}

func offlineDir(b *image.Broker, dir cluster.DirectoryID) bool {
	for _, d := range b.OfflineDirs {
		if d == dir {
			return true
		}
	}
	return false
}

// creations are the topics being created because clients asked for them.
type creations struct {
	mu      sync.Mutex
	names   map[string]struct{}
	refused map[string]time.Time // when it was last said that a topic is not created
}

// refusalEvery is how often it is said of a topic that it cannot be created:
// clients ask again, five times a second and for as long as they run.
const refusalEvery = time.Minute

// tellRefusal reports whether it is time to say that a topic is not created. Of
// very many topics it is not said of all.
func (c *creations) tellRefusal(name string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.refused[name]; ok && now.Sub(at) < refusalEvery {
		return false
	}
	maps.DeleteFunc(c.refused, func(_ string, at time.Time) bool { return now.Sub(at) >= refusalEvery })
	if len(c.refused) >= AutoCreateMax {
		return false
	}
	c.refused[name] = now
	return true
}

// autoCreate starts to create a topic with the defaults.
func (h *Handler) autoCreate(name string) {
	h.createSoon(request.NewTopic{Name: name, Partitions: -1, Replication: -1})
}

// createSoon starts to create a topic, once at a time.
func (h *Handler) createSoon(topic request.NewTopic) {
	h.create.mu.Lock()
	defer h.create.mu.Unlock()
	if _, under := h.create.names[topic.Name]; under || h.ctx.Err() != nil {
		return
	}
	if len(h.create.names) >= AutoCreateMax {
		h.cfg.LimitHit(LimitAutoCreate)
		return
	}
	h.create.names[topic.Name] = struct{}{}
	h.wg.Add(1)
	go h.createNow(topic)
}

// creating tells whether a topic's creation for a client is under way. Until its
// partitions can be written nobody is told of a leader: a client that does not
// try again would fail with its first record.
func (h *Handler) creating(name string) bool {
	h.create.mu.Lock()
	defer h.create.mu.Unlock()
	_, under := h.create.names[name]
	return under
}

func (h *Handler) createNow(topic request.NewTopic) {
	name := topic.Name
	defer h.wg.Done()
	defer func() {
		h.create.mu.Lock()
		delete(h.create.names, name)
		h.create.mu.Unlock()
	}()
	ctx, cancel := h.withTimeout(h.ctx, 0)
	defer cancel()
	res, err := submit[request.CreateTopicsResult](ctx, h, request.CreateTopics{Topics: []request.NewTopic{topic}})
	if err == nil && len(res.Topics) == 1 {
		err = res.Topics[0].Err
	}
	switch code := codeOf(err); {
	case code == codeNone:
		h.cfg.Logger.Info("topic created because a client asked for it", "topic", name)
	case code != codeTopicAlreadyExists && h.ctx.Err() == nil && h.create.tellRefusal(name, time.Now()):
		h.cfg.Logger.Warn("topic not created although a client asked for it; this is said once a minute", "topic", name, "error", err)
	}
}

// invalidTopicName says what is wrong with a topic's name, "" if nothing is.
func invalidTopicName(name string) string {
	const longest = 249
	switch {
	case name == "":
		return "Topic name is invalid: the empty string is not allowed"
	case name == "." || name == "..":
		return "Topic name is invalid: '" + name + "' is not allowed"
	case len(name) > longest:
		return "Topic name is invalid: the length of '" + name + "' is longer than the max allowed length " + itoa(longest)
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return "Topic name is invalid: '" + name + "' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
	}
	return ""
}
