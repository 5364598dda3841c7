package consumer

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/group"
)

// newestEmbedded is the newest version of ConsumerProtocol.
const newestEmbedded = 3

// embedded is what a consumer of the classic protocol says in its metadata.
type embedded struct {
	version int16
	topics  []string
	rack    *string
	// owned is what it has, of topics that exist; never nil.
	owned []group.TopicPartitions
}

// readEmbedded reads the metadata of a consumer. Errors: ErrInconsistentProtocol.
func readEmbedded(topics Topics, protocols []group.Protocol) (embedded, error) {
	var m kmsg.ConsumerMemberMetadata
	if len(protocols) == 0 {
		return embedded{}, fmt.Errorf("%w: no protocol", group.ErrInconsistentProtocol)
	}
	if err := m.ReadFrom(protocols[0].Metadata); err != nil || m.Version < 0 {
		return embedded{}, fmt.Errorf("%w: malformed subscription of version %d", group.ErrInconsistentProtocol, m.Version)
	}
	s := embedded{version: min(m.Version, newestEmbedded), topics: nameSet(m.Topics), owned: []group.TopicPartitions{}}
	if text(m.Rack) != "" {
		s.rack = m.Rack
	}
	for _, o := range m.OwnedPartitions {
		if t, ok := topics.Topic(o.Topic); ok {
			s.owned = append(s.owned, group.TopicPartitions{Topic: t.ID, Partitions: o.Partitions})
		}
	}
	return s, nil
}

// readAssigned reads what the leader of a classic group has given to a member, of
// topics that exist. Errors: ErrGroupIDNotFound, as the group then stays what it
// is.
func readAssigned(topics Topics, b []byte) (assignment, error) {
	a := assignment{}
	if len(b) == 0 {
		return a, nil
	}
	var m kmsg.ConsumerMemberAssignment
	if err := m.ReadFrom(b); err != nil || m.Version < 0 {
		return nil, fmt.Errorf("%w: malformed assignment of version %d", group.ErrGroupIDNotFound, m.Version)
	}
	if len(m.UserData) > 0 {
		return nil, fmt.Errorf("%w: what the group's own assignor keeps would be lost; change to another one first", group.ErrGroupIDNotFound)
	}
	for _, t := range m.Topics {
		if known, ok := topics.Topic(t.Topic); ok && len(t.Partitions) > 0 {
			a[known.ID] = append(a[known.ID], t.Partitions...)
		}
	}
	a.normalize()
	return a, nil
}

// appendAssigned writes an assignment as the leader of a classic group would, in
// the version of a member's metadata; without topics that are deleted.
func appendAssigned(topics Topics, version int16, a assignment) []byte {
	m := kmsg.ConsumerMemberAssignment{Version: version}
	for _, id := range a.topics() {
		if t, ok := topics.TopicByID(id); ok {
			m.Topics = append(m.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: t.Name, Partitions: a[id]})
		}
	}
	return m.AppendTo(nil)
}

// holdingOf is partitions that were all assigned at an epoch.
func holdingOf(a assignment, epoch int32) holding {
	h := make(holding, len(a))
	for topic, partitions := range a {
		for _, p := range partitions {
			h.add(topic, p, epoch)
		}
	}
	return h
}

// overlap finds a place of a that is in seen already, and adds the others.
func overlap(seen map[place]bool, a assignment) (place, bool) {
	for _, topic := range a.topics() {
		for _, p := range a[topic] {
			at := place{topic: topic, partition: p}
			if seen[at] {
				return at, true
			}
			seen[at] = true
		}
	}
	return place{}, false
}
