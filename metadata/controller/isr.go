package controller

import (
	"slices"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/request"
)

// changeISR takes a leader's proposal of a new ISR. Only the leader of the
// current leader epoch, knowing the current partition epoch, may make one.
func (c *Controller) changeISR(r request.ChangeISR) (request.Result, error) {
	if _, err := c.checkBroker(r.Broker, r.BrokerEpoch); err != nil {
		return nil, err
	}
	t, p, ok := c.img.Partition(r.Partition)
	if !ok {
		if _, known := c.img.TopicByID(r.Partition.Topic); !known {
			return nil, request.Refuse(request.ErrUnknownTopicID, "This server does not host this topic ID.")
		}
		return nil, request.Refuse(request.ErrUnknownTopic, "This server does not host this topic-partition.")
	}
	switch {
	case r.LeaderEpoch > p.LeaderEpoch:
		return nil, request.Refuse(request.ErrNotController, "leader epoch %d is above %d", r.LeaderEpoch, p.LeaderEpoch)
	case r.PartitionEpoch > p.PartitionEpoch:
		return nil, request.Refuse(request.ErrNotController, "partition epoch %d is above %d", r.PartitionEpoch, p.PartitionEpoch)
	case r.LeaderEpoch < p.LeaderEpoch:
		return nil, request.Refuse(request.ErrFencedLeaderEpoch, "leader epoch %d, the current one is %d", r.LeaderEpoch, p.LeaderEpoch)
	case r.Broker != p.Leader:
		return nil, request.Refuse(request.ErrInvalidRequest, "broker %d does not lead, %d does", r.Broker, p.Leader)
	case r.PartitionEpoch < p.PartitionEpoch:
		return nil, request.Refuse(request.ErrStalePartitionEpoch, "partition epoch %d, the current one is %d", r.PartitionEpoch, p.PartitionEpoch)
	case !validISR(r.ISR, p.Replicas) || !slices.Contains(r.ISR, p.Leader):
		return nil, request.Refuse(request.ErrInvalidRequest, "the ISR %v does not fit replicas %v and leader %d", r.ISR, p.Replicas, p.Leader)
	}
	for _, id := range r.ISR {
		if b, ok := c.img.Broker(id); !ok || !b.Active() {
			return nil, request.Refuse(request.ErrIneligibleReplica, "broker %d is fenced, shutting down or not registered", id)
		}
	}
	state := request.PartitionState{
		Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, ISR: p.ISR,
	}
	minISR := c.topicConfig(t).MinISR(len(p.Replicas))
	elr := nextELR(p, r.ISR, minISR)
	if slices.Equal(r.ISR, p.ISR) && slices.Equal(elr, p.ELR) {
		return state, nil
	}
	state.ISR, state.PartitionEpoch = slices.Clone(r.ISR), p.PartitionEpoch+1
	err := c.propose([]command.Record{command.PartitionsChanged{
		Topic: t.ID, Changes: []command.PartitionChange{{
			Partition: r.Partition.Partition, PartitionEpoch: state.PartitionEpoch, Leader: p.Leader,
			LeaderEpoch: p.LeaderEpoch, ISR: state.ISR, ELR: elr,
		}},
	}})
	if err != nil {
		return nil, err
	}
	return state, nil
}

// validISR tells whether an ISR holds replicas only, each once.
func validISR(isr, replicas []cluster.BrokerID) bool {
	for n, id := range isr {
		if !slices.Contains(replicas, id) || slices.Contains(isr[:n], id) {
			return false
		}
	}
	return len(isr) > 0
}
