package consumer

import (
	"slices"

	"strandline/broker/group"
)

// Description is a group as ConsumerGroupDescribe shows it.
type Description struct {
	State           group.State
	Epoch           int32
	AssignmentEpoch int32
	Assignor        string
	// Members in the order of their ids.
	Members []MemberDescription
}

// MemberDescription is a member of a Description.
type MemberDescription struct {
	MemberID string
	// InstanceID and RackID are "" where the member has none.
	InstanceID, RackID string
	// Epoch is that of its assignment, or group.LeaveStaticEpoch of a static
	// member that is away.
	Epoch            int32
	Client           group.Client
	SubscribedTopics []string
	SubscribedRegex  string
	// Assigned is what it has, also what it is giving up; Target is where it is
	// going. Without topics that are deleted.
	Assigned, Target []NamedPartitions
	// Classic: the member speaks the classic protocol (version 1 tells).
	Classic bool
}

// NamedPartitions are partitions of a topic, in order.
type NamedPartitions struct {
	Topic      Topic
	Partitions []int32
}

// Describe shows the group.
func (g *Group) Describe(env Env) Description {
	d := Description{State: g.State(), Epoch: g.epoch, AssignmentEpoch: g.target.epoch, Assignor: g.preferred(env.Config)}
	for _, id := range sortedKeys(g.members) {
		m := g.members[id]
		has := holding{}
		has.addAll(m.assigned)
		has.addAll(m.revoking)
		d.Members = append(d.Members, MemberDescription{
			MemberID: id, InstanceID: m.instanceID(), RackID: text(m.rack), Epoch: m.epoch,
			Client:           group.Client{ID: m.clientID, Host: m.clientHost},
			SubscribedTopics: slices.Clone(m.topics), SubscribedRegex: m.expression(),
			Assigned: named(env.Topics, has.assignment()), Target: named(env.Topics, g.targets[id]), Classic: m.speaksClassic(),
		})
	}
	return d
}

func named(topics Topics, a assignment) []NamedPartitions {
	var list []NamedPartitions
	for _, id := range a.topics() {
		if t, ok := topics.TopicByID(id); ok {
			list = append(list, NamedPartitions{Topic: t, Partitions: slices.Clone(a[id])})
		}
	}
	return list
}
