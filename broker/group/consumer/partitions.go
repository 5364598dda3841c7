package consumer

import (
	"bytes"
	"maps"
	"slices"

	"strandline/broker/group"
	"strandline/metadata/cluster"
)

// assignment is partitions by topic, in order and without duplicates; a topic
// without any has no entry. Not changed once it is somebody's target.
type assignment map[cluster.TopicID][]int32

func (a assignment) topics() []cluster.TopicID { return sortedTopics(a) }

func (a assignment) count() int {
	n := 0
	for _, partitions := range a {
		n += len(partitions)
	}
	return n
}

func (a assignment) has(topic cluster.TopicID, partition int32) bool {
	_, ok := slices.BinarySearch(a[topic], partition)
	return ok
}

func (a assignment) equal(b assignment) bool { return maps.EqualFunc(a, b, slices.Equal) }

// normalize brings what was appended at random into the form of an assignment.
func (a assignment) normalize() {
	for topic, partitions := range a {
		slices.Sort(partitions)
		a[topic] = slices.Compact(partitions)
	}
}

func (a assignment) list() []group.TopicPartitions {
	list := make([]group.TopicPartitions, 0, len(a))
	for _, topic := range a.topics() {
		list = append(list, group.TopicPartitions{Topic: topic, Partitions: slices.Clone(a[topic])})
	}
	return list
}

// holding is partitions that a member has, each with the epoch at which it was
// assigned; a topic without any has no entry. Not changed once it is a member's.
type holding map[cluster.TopicID]map[int32]int32

func (h holding) topics() []cluster.TopicID { return sortedTopics(h) }

func (h holding) partitions(topic cluster.TopicID) []int32 {
	return slices.Sorted(maps.Keys(h[topic]))
}

func (h holding) add(topic cluster.TopicID, partition, epoch int32) {
	if h[topic] == nil {
		h[topic] = map[int32]int32{}
	}
	h[topic][partition] = epoch
}

// addAll adds what other has.
func (h holding) addAll(other holding) {
	for topic, partitions := range other {
		for p, epoch := range partitions {
			h.add(topic, p, epoch)
		}
	}
}

func (h holding) has(topic cluster.TopicID, partition int32) bool {
	_, ok := h[topic][partition]
	return ok
}

func (h holding) equal(other holding) bool { return maps.EqualFunc(h, other, maps.Equal) }

func (h holding) assignment() assignment {
	a := make(assignment, len(h))
	for topic := range h {
		a[topic] = h.partitions(topic)
	}
	return a
}

func sortedTopics[V any](m map[cluster.TopicID]V) []cluster.TopicID {
	return slices.SortedFunc(maps.Keys(m), compareTopics)
}

func compareTopics(a, b cluster.TopicID) int { return bytes.Compare(a[:], b[:]) }
