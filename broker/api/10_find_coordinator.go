package api

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// Kinds of keys of FindCoordinator.
const (
	coordinatorGroup       int8 = 0
	coordinatorTransaction int8 = 1
	coordinatorShare       int8 = 2
)

// groupsTopic is the topic that consumer groups are kept in.
const groupsTopic = "__consumer_offsets"

// texts of FindCoordinator, which are Apache Kafka's.
const (
	coordinatorNotAvailableText = "The coordinator is not available."
	invalidRequestText          = "This most likely occurs because of a request being malformed by the client library or the message was sent to an " +
		"incompatible broker. See the broker logs for more details."
)

// findCoordinator names the broker that coordinates a group: the leader of the
// partition that keeps it, as clients of the same listener see it. The first one
// who asks has the topic of groups created.
//
// Versions: 1 asks for a transactional id too, 4 for many keys, 6 for share
// groups. Transactions and share groups are not there yet.
func (h *Handler) findCoordinator(c *Conn, req *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	img := h.cfg.Cluster.Image()
	kind := req.CoordinatorType
	if req.Version < 1 {
		kind = coordinatorGroup
	}
	if req.Version < 4 {
		e, code := h.coordinatorOf(img, c.Listener, kind, req.CoordinatorKey)
		resp.ErrorCode, resp.NodeID, resp.Host, resp.Port = code, e.id, e.host, e.port
		resp.ErrorMessage = coordinatorText(code)
		return resp
	}
	resp.Coordinators = make([]kmsg.FindCoordinatorResponseCoordinator, 0, len(req.CoordinatorKeys))
	for _, key := range req.CoordinatorKeys {
		e, code := h.coordinatorOf(img, c.Listener, kind, key)
		out := kmsg.NewFindCoordinatorResponseCoordinator()
		out.Key, out.ErrorCode, out.NodeID, out.Host, out.Port = key, code, e.id, e.host, e.port
		out.ErrorMessage = kmsg.StringPtr("")
		if kind < coordinatorGroup || kind > coordinatorShare {
			out.ErrorMessage = coordinatorText(code)
		}
		resp.Coordinators = append(resp.Coordinators, out)
	}
	return resp
}

func coordinatorText(code int16) *string {
	switch code {
	case codeNone:
		return kmsg.StringPtr("NONE")
	case codeInvalidRequest:
		return kmsg.StringPtr(invalidRequestText)
	}
	return kmsg.StringPtr(coordinatorNotAvailableText)
}

// nowhere is the endpoint of no coordinator.
var nowhere = endpoint{id: int32(cluster.NoBroker), port: -1}

// coordinatorOf finds the coordinator of one key.
func (h *Handler) coordinatorOf(img *image.Image, listener string, kind int8, key string) (endpoint, int16) {
	switch kind {
	case coordinatorGroup:
	case coordinatorTransaction: // as where its topic cannot be created
		return nowhere, codeCoordinatorNotAvailable
	default:
		return nowhere, codeInvalidRequest
	}
	t, ok := img.Topic(groupsTopic)
	if !ok {
		h.createSoon(groupsTopicFor(img, h.cfg.Broker))
		return nowhere, codeCoordinatorNotAvailable
	}
	if h.creating(groupsTopic) || len(t.Partitions) == 0 {
		return nowhere, codeCoordinatorNotAvailable
	}
	p := t.Partitions[cluster.CoordinatorPartition(key, int32(len(t.Partitions)))]
	leader, code := leaderFor(img, p, listener)
	if code != codeNone {
		return nowhere, codeCoordinatorNotAvailable
	}
	e, ok := endpointOf(img, cluster.BrokerID(leader), listener)
	if !ok {
		return nowhere, codeCoordinatorNotAvailable
	}
	return e, codeNone
}

// groupsTopicFor is how the topic of groups is created. Where nobody said how
// many replicas it shall have, a cluster of fewer brokers does with those.
func groupsTopicFor(img *image.Image, b config.Broker) request.NewTopic {
	replication := b.OffsetsTopic.Replication
	if !b.OffsetsTopic.ReplicationSet {
		replication = int16(max(1, min(int(replication), len(img.Brokers()))))
	}
	configs := map[string]string{
		"cleanup.policy": "compact", "compression.type": "producer",
		// What was acknowledged to a group survives a loss of power.
		"flush.messages": "1",
	}
	segment := "segment.bytes"
	if b.OffsetsTopic.SegmentBytes < segmentBytesMin {
		segment = "internal.segment.bytes"
	}
	configs[segment] = strconv.Itoa(int(b.OffsetsTopic.SegmentBytes))
	return request.NewTopic{
		Name: groupsTopic, Partitions: b.OffsetsTopic.Partitions, Replication: replication, Configs: configs, Internal: true,
	}
}

// segmentBytesMin is the floor of segment.bytes.
const segmentBytesMin = 1 << 20
