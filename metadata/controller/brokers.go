package controller

import (
	"maps"
	"slices"
	"time"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// session is how the controller knows that an unfenced broker lives. It is
// this tenure's knowledge and in no image.
type session struct {
	epoch cluster.BrokerEpoch
	last  time.Time
	heard bool // in this tenure
}

func (c *Controller) registerBroker(r request.RegisterBroker) Output {
	old, known := c.img.Broker(r.Broker)
	if err := c.checkRegistration(r, old); err != nil {
		return c.answer(nil, err)
	}
	if !known || old.Incarnation != r.Incarnation {
		clean := known && r.PreviousEpoch >= 0 && r.PreviousEpoch == old.Epoch
		unclean := !clean && (known || c.hosts(r.Broker))
		delete(c.sessions, r.Broker)
		if err := c.propose([]command.Record{command.BrokerRegistered{
			ID: r.Broker, Incarnation: r.Incarnation, Listeners: slices.Clone(r.Listeners), Rack: r.Rack,
			LogDirs: slices.Clone(r.LogDirs), Features: maps.Clone(r.Features), Unclean: unclean,
		}}); err != nil {
			return c.answer(nil, err)
		}
		c.log.Info("broker registered", "broker", r.Broker, "incarnation", r.Incarnation.String(), "unclean", unclean)
		c.dirty = true
		c.reconcile()
	}
	return c.end(func(img *image.Image) (request.Result, error) {
		b, ok := img.Broker(r.Broker)
		if !ok || b.Incarnation != r.Incarnation {
			return nil, request.Refuse(request.ErrDuplicateBroker, "another incarnation of broker %d has registered since", r.Broker)
		}
		return request.BrokerRegistered{Epoch: b.Epoch}, nil
	})
}

func (c *Controller) checkRegistration(r request.RegisterBroker, old *image.Broker) error {
	if r.Broker < 0 || r.Incarnation == (cluster.IncarnationID{}) || len(r.Listeners) == 0 {
		return request.Refuse(request.ErrInvalidRequest, "a registration needs a node id, an incarnation id and listeners")
	}
	if len(r.LogDirs) == 0 {
		return request.Refuse(request.ErrInvalidRequest, "No directories specified in request")
	}
	for n, d := range r.LogDirs {
		if d.IsZero() {
			return request.Refuse(request.ErrInvalidRequest, "Reserved directory ID in request")
		}
		if slices.Contains(r.LogDirs[:n], d) {
			return request.Refuse(request.ErrInvalidRequest, "Duplicate directory ID in request")
		}
	}
	for _, b := range c.img.Brokers() {
		for _, d := range b.LogDirs {
			if b.ID != r.Broker && slices.Contains(r.LogDirs, d) {
				return request.Refuse(request.ErrInvalidRequest, "Broker %d is already registered with directory %s", b.ID, d)
			}
		}
	}
	features := c.img.Features()
	for _, name := range slices.Sorted(maps.Keys(features)) {
		level := features[name]
		if f := r.Features[name]; level > 0 && (level < f.Min || level > f.Max) {
			return request.Refuse(request.ErrUnsupportedFeatureLevel,
				"Unable to register because the broker does not support finalized version %d of %s. "+
					"The broker wants a version between %d and %d, inclusive.", level, name, f.Min, f.Max)
		}
	}
	// A process that shares a log directory with the registered one holds the
	// lock of that directory, so the registered one is gone.
	if old != nil && old.Incarnation != r.Incarnation && !old.Fenced && c.alive(old) &&
		!slices.ContainsFunc(r.LogDirs, func(d cluster.DirectoryID) bool { return slices.Contains(old.LogDirs, d) }) {
		return request.Refuse(request.ErrDuplicateBroker, "Another broker is registered with that broker id. If the broker was "+
			"recently restarted this should self-resolve once the heartbeat manager expires the broker's session.")
	}
	return nil
}

// alive tells whether an incarnation was heard in this tenure, not too long ago.
func (c *Controller) alive(b *image.Broker) bool {
	s := c.sessions[b.ID]
	return s != nil && s.epoch == b.Epoch && s.heard && c.now.Sub(s.last) < c.cfg.Broker.SessionTimeout
}

// checkBroker refuses requests of an incarnation that is not the registered one.
func (c *Controller) checkBroker(id cluster.BrokerID, epoch cluster.BrokerEpoch) (*image.Broker, error) {
	b, ok := c.img.Broker(id)
	if !ok {
		return nil, request.Refuse(request.ErrStaleBrokerEpoch, "No broker registration found for broker id %d", id)
	}
	if b.Epoch != epoch || epoch == cluster.NoBrokerEpoch {
		return nil, request.Refuse(request.ErrStaleBrokerEpoch, "Expected broker epoch %d, but got broker epoch %d", b.Epoch, epoch)
	}
	return b, nil
}

func (c *Controller) heartbeat(r request.Heartbeat) (request.Result, error) {
	b, err := c.checkBroker(r.Broker, r.Epoch)
	if err != nil {
		return nil, err
	}
	caughtUp := r.CaughtUpTo >= uint64(b.Epoch)
	s := c.sessions[b.ID]
	if s == nil || s.epoch != b.Epoch {
		s = &session{epoch: b.Epoch}
		c.sessions[b.ID] = s
	}
	s.last, s.heard = c.now, true

	want := *b
	if !slices.Equal(r.OfflineDirs, b.OfflineDirs) && len(r.OfflineDirs) > 0 {
		want.OfflineDirs = slices.Clone(r.OfflineDirs)
	}
	want.ShuttingDown = b.ShuttingDown || r.WantShutdown
	switch {
	case r.WantFence:
		want.Fenced = true
	case b.Fenced && caughtUp && !r.WantShutdown && !c.dirty:
		want.Fenced, want.ShuttingDown = false, false
	}
	if err := c.setBroker(b, want); err != nil {
		return nil, err
	}
	c.reconcile()
	return c.heartbeatResult(r, caughtUp)
}

func (c *Controller) heartbeatResult(r request.Heartbeat, caughtUp bool) (request.Result, error) {
	b, _ := c.img.Broker(r.Broker)
	done := r.WantShutdown && !c.dirty
	if done && !b.Fenced && c.othersActive(b.ID) {
		// It serves nothing from here: what it leads alone waits for its return.
		c.fence(b)
		c.reconcile()
		b, _ = c.img.Broker(r.Broker)
	}
	return request.HeartbeatResult{CaughtUp: caughtUp, Fenced: b.Fenced, ShouldShutDown: done}, nil
}

func (c *Controller) othersActive(id cluster.BrokerID) bool {
	return slices.ContainsFunc(c.img.Brokers(), func(b *image.Broker) bool { return b.ID != id && b.Active() })
}

// setBroker records a broker's new state where it differs.
func (c *Controller) setBroker(old *image.Broker, want image.Broker) error {
	if old.Fenced == want.Fenced && old.ShuttingDown == want.ShuttingDown && slices.Equal(old.OfflineDirs, want.OfflineDirs) {
		return nil
	}
	c.dirty = true
	return c.propose([]command.Record{command.BrokerState{
		ID: old.ID, Epoch: old.Epoch, Fenced: want.Fenced, ShuttingDown: want.ShuttingDown, OfflineDirs: want.OfflineDirs,
	}})
}

func (c *Controller) fence(b *image.Broker) {
	want := *b
	want.Fenced = true
	_ = c.setBroker(b, want) // the records follow from the image; commit has logged it if not
	delete(c.sessions, b.ID)
}

// expireSessions fences the brokers that were silent for too long. Where more
// than a third of several brokers are silent together, the controller may be
// the one that is cut off, and waits for one more session.
func (c *Controller) expireSessions() {
	timeout := c.cfg.Broker.SessionTimeout
	if late := c.now.Sub(c.lastTick) - timeout/2; late > 0 {
		// This node itself was stopped: what it did not hear means nothing.
		for _, s := range c.sessions {
			s.last = s.last.Add(late + timeout/2)
		}
	}
	c.lastTick = c.now
	var silent []*image.Broker
	unfenced := 0
	for _, b := range c.img.Brokers() {
		if b.Fenced {
			continue
		}
		unfenced++
		s := c.sessions[b.ID]
		if s == nil || s.epoch != b.Epoch {
			c.sessions[b.ID] = &session{epoch: b.Epoch, last: c.now}
		} else if c.now.Sub(s.last) >= timeout {
			silent = append(silent, b)
		}
	}
	if len(silent) == 0 {
		c.suspectAt = time.Time{}
		return
	}
	if len(silent)*3 > unfenced {
		if c.suspectAt.IsZero() {
			c.suspectAt = c.now
			c.log.Warn("over a third of the brokers are silent, waiting one more session", "silent", len(silent), "of", unfenced)
		}
		if c.now.Sub(c.suspectAt) < timeout {
			return
		}
	}
	c.suspectAt = time.Time{}
	for _, b := range silent {
		c.log.Warn("broker fenced, its session has timed out", "broker", b.ID, "epoch", b.Epoch)
		c.fence(b)
	}
}

func (c *Controller) allocateProducerIDs(r request.AllocateProducerIDs) (request.Result, error) {
	if _, err := c.checkBroker(r.Broker, r.Epoch); err != nil {
		return nil, err
	}
	first := c.img.NextProducerID()
	if err := c.propose([]command.Record{command.ProducerIDsAllocated{Next: first + producerIDBlock}}); err != nil {
		return nil, err
	}
	return request.ProducerIDBlock{First: first, Count: producerIDBlock}, nil
}

// producerIDBlock is how many producer ids a broker gets at once, as in Kafka.
const producerIDBlock = 1000
