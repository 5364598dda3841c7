package consumer

import (
	"strandline/broker/group"
	"strandline/metadata/cluster"
)

// memberState is where a member is on the way to its target. The numbers are
// those of the records.
type memberState int8

const (
	// stable: it has all it may have at its epoch.
	stable memberState = 0
	// unrevoked: it has yet to say that it gave partitions up.
	unrevoked memberState = 1
	// unreleased: others have yet to give up partitions of its target.
	unreleased memberState = 2
	// unknown: written by a later version.
	unknown memberState = 127
)

// step leads a member towards a target.
type step struct {
	target assignment
	epoch  int32
	// reads tells whether the member subscribes to a topic that exists.
	reads func(cluster.TopicID) bool
	// free tells whether no other member holds a partition.
	free func(cluster.TopicID, int32) bool
	// owned is what the member says it has; nil: it says nothing of it.
	owned []group.TopicPartitions
	// prune: the member is not to keep what it does not subscribe to any more,
	// also where the target is not a new one.
	prune bool
}

// from returns where the member is next. One in an unknown state has nothing: see
// lost.
func (s step) from(c currentValue) currentValue {
	switch {
	case c.state == unreleased,
		c.state == stable && c.epoch != s.epoch,
		c.state == unrevoked && !s.owns(c.revoking):
		return s.advance(c)
	case c.state == unknown:
		c.epoch = s.epoch
		return s.advance(c)
	case s.prune:
		return s.pruned(c)
	}
	return c
}

// lost tells whether a member has to begin again: nothing is known of what it
// holds, and it does not say that this is nothing.
func (c currentValue) lost(owned []group.TopicPartitions) bool {
	return c.state == unknown && (owned == nil || len(owned) > 0)
}

// owns tells whether the member still has any of the partitions, or may have.
func (s step) owns(partitions holding) bool {
	if s.owned == nil {
		return true
	}
	for _, t := range s.owned {
		for _, p := range t.Partitions {
			if partitions.has(t.Topic, p) {
				return true
			}
		}
	}
	return false
}

// pruned takes what the member does not subscribe to out of c.
func (s step) pruned(c currentValue) currentValue {
	next := currentValue{epoch: c.epoch, previous: c.epoch, state: c.state, assigned: holding{}, revoking: holding{}}
	next.revoking.addAll(c.revoking)
	changed := false
	for topic, partitions := range c.assigned {
		if s.reads(topic) {
			next.assigned[topic] = partitions
			continue
		}
		changed = true
		next.revoking.addAll(holding{topic: partitions})
	}
	if !changed {
		return c
	}
	if s.owns(next.revoking) {
		next.state = unrevoked
	} else {
		next.revoking = c.revoking
	}
	return next
}

// advance leads the member as near to the target as can be: first it gives up
// what is not in it (C2), then it gets what is free (C1).
func (s step) advance(c currentValue) currentValue {
	next := currentValue{epoch: s.epoch, previous: c.epoch, assigned: holding{}, revoking: holding{}}
	for topic, partitions := range c.assigned {
		for p, epoch := range partitions {
			if s.reads(topic) && s.target.has(topic, p) {
				next.assigned.add(topic, p, epoch)
			} else {
				next.revoking.add(topic, p, epoch)
			}
		}
	}
	if len(next.revoking) > 0 && s.owns(next.revoking) {
		next.state, next.epoch = unrevoked, c.epoch
		return next
	}
	next.revoking = holding{}
	for topic, partitions := range s.target {
		if !s.reads(topic) {
			continue
		}
		for _, p := range partitions {
			switch {
			case next.assigned.has(topic, p):
			case s.free(topic, p):
				next.assigned.add(topic, p, s.epoch)
			default:
				next.state = unreleased
			}
		}
	}
	return next
}
