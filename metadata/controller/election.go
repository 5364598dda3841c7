package controller

import (
	"slices"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/image"
)

// standing is what the election rules ask about a replica's broker.
type standing struct {
	// acceptable: it may lead and be in the ISR.
	acceptable func(cluster.BrokerID) bool
	// lost: what it had acknowledged may be gone, so that it leaves the ELR.
	lost func(cluster.BrokerID) bool
	// leaving: it is in controlled shutdown, and stays where nobody can take
	// over.
	leaving func(cluster.BrokerID) bool

	minISR  int
	unclean bool // unclean.leader.election.enable
}

// staying is the standing in which the leader keeps its place although it is
// leaving, since nobody else can take it.
func (s standing) staying(leader cluster.BrokerID) standing {
	others := s.acceptable
	s.acceptable = func(id cluster.BrokerID) bool { return id == leader || others(id) }
	s.leaving = func(cluster.BrokerID) bool { return false }
	return s
}

// settle gives the state that a partition should have now, and whether it
// differs from the one it has. It is the only place that elects.
func settle(number int32, p *image.Partition, s standing) (command.PartitionChange, bool) {
	n := command.PartitionChange{Partition: number, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, LastKnownELR: p.LastKnownELR}
	n.ISR = filter(p.ISR, s.acceptable)
	n.ELR = nextELR(p, n.ISR, s.minISR)
	n.ELR = filter(n.ELR, func(id cluster.BrokerID) bool { return !s.lost(id) })

	if leader := elect(p, &n, s); leader != p.Leader {
		if leader == cluster.NoBroker && s.leaving(p.Leader) {
			return settle(number, p, s.staying(p.Leader))
		}
		n.Leader = leader
		n.LeaderEpoch++
	}
	switch {
	case n.Leader != cluster.NoBroker:
		n.LastKnownELR = nil
	case p.Leader != cluster.NoBroker:
		n.LastKnownELR = []cluster.BrokerID{p.Leader}
	}
	if n.Leader == p.Leader && slices.Equal(n.ISR, p.ISR) && slices.Equal(n.ELR, p.ELR) &&
		slices.Equal(n.LastKnownELR, p.LastKnownELR) {
		return n, false
	}
	n.PartitionEpoch = p.PartitionEpoch + 1
	return n, true
}

// elect picks the leader and adjusts ISR and ELR to it.
func elect(p *image.Partition, n *command.PartitionChange, s standing) cluster.BrokerID {
	valid := func(id cluster.BrokerID) bool {
		return s.acceptable(id) && (slices.Contains(n.ISR, id) || len(n.ISR) == 0 && slices.Contains(n.ELR, id))
	}
	leader := p.Leader
	if leader == cluster.NoBroker || !valid(leader) {
		leader = cluster.NoBroker
		if at := slices.IndexFunc(p.Replicas, valid); at >= 0 {
			leader = p.Replicas[at]
		}
	}
	if leader != cluster.NoBroker {
		if !slices.Contains(n.ISR, leader) {
			n.ISR = []cluster.BrokerID{leader}
			n.ELR = filter(n.ELR, func(id cluster.BrokerID) bool { return id != leader })
		}
		return leader
	}
	// No replica is known to have everything. The last leader comes back
	// whatever the topic says; others only where it allows that.
	if len(n.ELR) == 0 && len(p.LastKnownELR) == 1 && s.acceptable(p.LastKnownELR[0]) {
		leader = p.LastKnownELR[0]
	} else if at := slices.IndexFunc(p.Replicas, s.acceptable); s.unclean && at >= 0 {
		leader = p.Replicas[at]
	}
	if leader != cluster.NoBroker {
		n.ISR, n.ELR = []cluster.BrokerID{leader}, nil
	}
	return leader
}

// nextELR is who else has everything up to the high watermark: nobody needs to
// be remembered while the ISR is large enough to move it; below that the high
// watermark stands still, and whoever was in the ISR or ELR still has it all.
func nextELR(p *image.Partition, isr []cluster.BrokerID, minISR int) []cluster.BrokerID {
	if len(isr) >= minISR {
		return nil
	}
	var elr []cluster.BrokerID
	for _, id := range slices.Concat(p.ELR, p.ISR) {
		if !slices.Contains(isr, id) && !slices.Contains(elr, id) {
			elr = append(elr, id)
		}
	}
	return elr
}

func filter(ids []cluster.BrokerID, keep func(cluster.BrokerID) bool) []cluster.BrokerID {
	var out []cluster.BrokerID
	for _, id := range ids {
		if keep(id) {
			out = append(out, id)
		}
	}
	return out
}

// reconcile proposes every change that partitions need because of the state of
// brokers, as far as one call may go. The image alone says what is to do, so a
// new controller goes on where the last one stopped.
func (c *Controller) reconcile() {
	if !c.dirty {
		return
	}
	states := map[cluster.BrokerID]*image.Broker{}
	for _, b := range c.img.Brokers() {
		states[b.ID] = b
	}
	pack := packer{limits: c.limits}
	more := false
	for t := range c.img.Topics() {
		if pack.full() {
			more = true
			break
		}
		settings := c.topicConfig
		var cached *standing
		for n, p := range t.Partitions {
			if quiet(p, states) {
				continue
			}
			if cached == nil {
				e := settings(t)
				cached = &standing{minISR: int(e.MinInsyncReplicas), unclean: e.UncleanLeaderElection && !t.Internal}
			}
			s := standingOf(p, states, *cached)
			s.minISR = min(s.minISR, len(p.Replicas))
			if change, ok := settle(int32(n), p, s); ok {
				pack.add(t.ID, change)
			}
		}
	}
	c.dirty = more
	if err := c.propose(pack.records()); err != nil {
		c.dirty = true
	}
}

// quiet tells cheaply that a partition needs nothing: it has a leader, and all
// brokers in its ISR and ELR are as they should be.
func quiet(p *image.Partition, states map[cluster.BrokerID]*image.Broker) bool {
	if p.Leader == cluster.NoBroker {
		return false
	}
	for _, ids := range [][]cluster.BrokerID{p.ISR, p.ELR} {
		for _, id := range ids {
			if b := states[id]; b == nil || !b.Active() || len(b.OfflineDirs) > 0 {
				return false
			}
		}
	}
	return true
}

func standingOf(p *image.Partition, states map[cluster.BrokerID]*image.Broker, s standing) standing {
	offline := func(b *image.Broker, id cluster.BrokerID) bool {
		d := p.Dir(id)
		return !d.IsZero() && slices.Contains(b.OfflineDirs, d)
	}
	s.acceptable = func(id cluster.BrokerID) bool {
		b := states[id]
		return b != nil && b.Active() && !offline(b, id)
	}
	s.lost = func(id cluster.BrokerID) bool {
		b := states[id]
		return b == nil || b.Fenced && b.Unclean || offline(b, id)
	}
	s.leaving = func(id cluster.BrokerID) bool {
		b := states[id]
		return b != nil && !b.Fenced && b.ShuttingDown && !offline(b, id)
	}
	return s
}

// packer groups partition changes into records that fit commands.
type packer struct {
	limits limits
	bytes  int
	out    []command.Record
	open   command.PartitionsChanged
	size   int
}

func (k *packer) full() bool { return k.bytes >= k.limits.reconcileBytes }

func (k *packer) add(topic cluster.TopicID, c command.PartitionChange) {
	if k.open.Topic != topic || k.size >= k.limits.changesBytes {
		k.flush()
		k.open = command.PartitionsChanged{Topic: topic}
	}
	size := 4*5 + 5*(1+len(c.ISR)+len(c.ELR)+len(c.LastKnownELR))
	k.open.Changes = append(k.open.Changes, c)
	k.size += size
	k.bytes += size
}

func (k *packer) flush() {
	if len(k.open.Changes) > 0 {
		k.out = append(k.out, k.open)
	}
	k.open, k.size = command.PartitionsChanged{}, 0
}

func (k *packer) records() []command.Record {
	k.flush()
	return k.out
}
