package api

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

// producerIDs hands out ids of the block that this broker holds.
type producerIDs struct {
	mu   sync.Mutex
	next cluster.ProducerID
	left int32
}

// initProducerID gives an idempotent producer an id of its own. Transactional
// ids need a coordinator, which is not advertised.
//
// Versions: 3 and later name the id that the producer has; without a
// transactional id it gets a new one all the same.
func (h *Handler) initProducerID(ctx context.Context, req *kmsg.InitProducerIDRequest) *kmsg.InitProducerIDResponse {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = int64(cluster.NoProducerID), int16(cluster.NoProducerEpoch)
	known, epoch := req.ProducerID != int64(cluster.NoProducerID), req.ProducerEpoch != int16(cluster.NoProducerEpoch)
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "":
		resp.ErrorCode = codeInvalidRequest
		return resp
	case req.Version >= 3 && known != epoch:
		resp.ErrorCode = codeInvalidRequest
		return resp
	case req.TransactionalID != nil:
		resp.ErrorCode = codeUnsupportedVersion
		return resp
	}
	id, err := h.newProducerID(ctx)
	if err != nil {
		resp.ErrorCode = codeOf(err)
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = int64(id), 0
	return resp
}

// newProducerID takes the next id. The lock is held while a block is asked for,
// so that one request serves all who wait.
func (h *Handler) newProducerID(ctx context.Context) (cluster.ProducerID, error) {
	ctx, cancel := h.withTimeout(ctx, 0)
	defer cancel()
	h.ids.mu.Lock()
	defer h.ids.mu.Unlock()
	if h.ids.left == 0 {
		block, err := submit[request.ProducerIDBlock](ctx, h, request.AllocateProducerIDs{
			Broker: cluster.BrokerID(h.cfg.Broker.NodeID), Epoch: h.cfg.BrokerEpoch(),
		})
		if err != nil {
			return 0, err
		}
		h.ids.next, h.ids.left = block.First, block.Count
	}
	id := h.ids.next
	h.ids.next++
	h.ids.left--
	return id, nil
}
