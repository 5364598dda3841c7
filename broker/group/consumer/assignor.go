package consumer

import (
	"cmp"
	"slices"

	"strandline/metadata/cluster"
)

// The server-side assignors.
const (
	// Uniform gives every member the same number of partitions, as near as the
	// subscriptions allow, and moves no partition that it need not.
	Uniform = "uniform"
	// Range gives every member the same range of each topic.
	Range = "range"
)

// Assignors are the names of the server-side assignors, the default first.
func Assignors() []string { return []string{Uniform, Range} }

// subscriber is a member as an assignor sees it.
type subscriber struct {
	id, instance string
	// topics that it reads, each with partitions; in order, without duplicates.
	topics []cluster.TopicID
	// current is its target so far.
	current assignment
}

// reads tells whether s subscribes to a topic.
func (s subscriber) reads(topic cluster.TopicID) bool {
	_, ok := slices.BinarySearchFunc(s.topics, topic, compareTopics)
	return ok
}

// assign computes the targets of subscribers: one for each of them, in their
// order. partitions are the partition counts of all topics that they read. The
// result does not depend on the order of the subscribers.
func assign(assignor string, subscribers []subscriber, partitions map[cluster.TopicID]int32) []assignment {
	if len(subscribers) == 0 {
		return nil
	}
	if assignor == Range {
		return assignRanges(subscribers, partitions)
	}
	return assignUniformly(subscribers, partitions)
}

// assignRanges cuts each topic into as many ranges as it has subscribers; where
// they do not come out even, the first ones are longer by one partition. The
// subscribers of every topic are in the same order, static ones first, so those
// of topics with as many partitions and the same subscribers read the same
// partitions of each.
func assignRanges(subscribers []subscriber, partitions map[cluster.TopicID]int32) []assignment {
	order := make([]int, len(subscribers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := subscribers[i], subscribers[j]
		switch {
		case a.instance != "" && b.instance != "":
			return cmp.Compare(a.instance, b.instance)
		case a.instance != "":
			return -1
		case b.instance != "":
			return 1
		}
		return cmp.Compare(a.id, b.id)
	})
	readers := map[cluster.TopicID][]int{}
	for _, i := range order {
		for _, topic := range subscribers[i].topics {
			readers[topic] = append(readers[topic], i)
		}
	}
	targets := make([]assignment, len(subscribers))
	for i := range targets {
		targets[i] = assignment{}
	}
	for topic, members := range readers {
		each, longer := partitions[topic]/int32(len(members)), partitions[topic]%int32(len(members))
		next := int32(0)
		for n, i := range members {
			end := next + each
			if int32(n) < longer {
				end++
			}
			if end > next {
				targets[i][topic] = sequence(next, end)
			}
			next = end
		}
	}
	return targets
}

func sequence(from, end int32) []int32 {
	list := make([]int32, 0, end-from)
	for p := from; p < end; p++ {
		list = append(list, p)
	}
	return list
}
