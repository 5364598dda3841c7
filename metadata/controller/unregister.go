package controller

import (
	"slices"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/request"
)

// unregisterBroker forgets a broker. One that runs would go on without leading
// anything, so it has to be stopped first.
func (c *Controller) unregisterBroker(r request.UnregisterBroker) error {
	b, ok := c.img.Broker(r.Broker)
	switch {
	case !ok:
		return request.Refuse(request.ErrUnknownBroker, "Broker ID %d is not currently registered", r.Broker)
	case !b.Fenced || c.alive(b):
		return request.Refuse(request.ErrInvalidRequest, "Broker %d is running. Stop it before it is unregistered.", r.Broker)
	}
	delete(c.sessions, b.ID)
	if err := c.propose([]command.Record{command.BrokerUnregistered{ID: b.ID, Epoch: b.Epoch}}); err != nil {
		return err
	}
	c.log.Info("broker unregistered", "broker", b.ID, "epoch", b.Epoch)
	return nil
}

// hosts tells whether partitions were placed on a broker: one that registers for
// the first time, or once more, then does not have what it is counted on for.
func (c *Controller) hosts(id cluster.BrokerID) bool {
	for t := range c.img.Topics() {
		for _, p := range t.Partitions {
			if slices.Contains(p.Replicas, id) {
				return true
			}
		}
	}
	return false
}
