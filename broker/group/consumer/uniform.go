package consumer

import (
	"cmp"
	"slices"

	"strandline/metadata/cluster"
)

// balancePasses bounds how often all topics are gone through to even out loads
// that depend on each other. Each pass but the last moves a partition; a few are
// usual.
const balancePasses = 64

// place is a partition.
type place struct {
	topic     cluster.TopicID
	partition int32
}

// uniform is one run of the uniform assignor. Subscribers are meant by their
// place in the order of ids.
type uniform struct {
	subscribers []subscriber
	partitions  map[cluster.TopicID]int32
	topics      []cluster.TopicID
	// readers of each topic, in order.
	readers map[cluster.TopicID][]int
	// owner of each partition; none where nobody has it yet.
	owner map[cluster.TopicID][]int
	// load is how many partitions each has, holds how many of each topic.
	load  []int
	holds []map[cluster.TopicID]int
}

const none = -1

func assignUniformly(subscribers []subscriber, partitions map[cluster.TopicID]int32) []assignment {
	order := make([]int, len(subscribers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(subscribers[i].id, subscribers[j].id) })
	u := newUniform(subscribers, order, partitions)
	if u.alike() {
		u.fillQuotas()
	} else {
		u.keep()
		u.handOut()
		u.balance()
		u.chain()
		u.restore()
	}
	targets := make([]assignment, len(subscribers))
	for i := range targets {
		targets[i] = assignment{}
	}
	for _, topic := range u.topics {
		for p, i := range u.owner[topic] {
			if i != none {
				to := targets[order[i]]
				to[topic] = append(to[topic], int32(p))
			}
		}
	}
	return targets
}

func newUniform(subscribers []subscriber, order []int, partitions map[cluster.TopicID]int32) *uniform {
	u := &uniform{
		partitions: partitions, readers: map[cluster.TopicID][]int{}, owner: map[cluster.TopicID][]int{},
		load: make([]int, len(order)),
	}
	for i, at := range order {
		s := subscribers[at]
		u.subscribers = append(u.subscribers, s)
		u.holds = append(u.holds, map[cluster.TopicID]int{})
		for _, topic := range s.topics {
			u.readers[topic] = append(u.readers[topic], i)
		}
	}
	u.topics = sortedTopics(u.readers)
	for _, topic := range u.topics {
		u.owner[topic] = slices.Repeat([]int{none}, int(partitions[topic]))
	}
	return u
}

// alike tells whether all subscribers read the same topics.
func (u *uniform) alike() bool {
	for _, topic := range u.topics {
		if len(u.readers[topic]) != len(u.subscribers) {
			return false
		}
	}
	return true
}

// give makes i the owner of a partition.
func (u *uniform) give(at place, i int) {
	if from := u.owner[at.topic][at.partition]; from != none {
		u.load[from]--
		u.holds[from][at.topic]--
	}
	u.owner[at.topic][at.partition] = i
	u.load[i]++
	u.holds[i][at.topic]++
}

// held calls visit with the partitions that i has so far and may keep.
func (u *uniform) held(i int, visit func(place)) {
	s := u.subscribers[i]
	for _, topic := range s.current.topics() {
		if !s.reads(topic) {
			continue
		}
		for _, p := range s.current[topic] {
			if p >= 0 && p < u.partitions[topic] && u.owner[topic][p] == none {
				visit(place{topic: topic, partition: p})
			}
		}
	}
}

// keep lets everyone have what it has.
func (u *uniform) keep() {
	for i := range u.subscribers {
		u.held(i, func(at place) { u.give(at, i) })
	}
}

// fillQuotas serves subscribers of the same topics: the quotas are known
// beforehand. Where they do not come out even, those who have more already get
// the larger ones.
func (u *uniform) fillQuotas() {
	total := 0
	for _, topic := range u.topics {
		total += int(u.partitions[topic])
	}
	each, larger := total/len(u.subscribers), total%len(u.subscribers)
	quota := slices.Repeat([]int{each}, len(u.subscribers))
	var small []int
	for i := range u.subscribers {
		has := 0
		u.held(i, func(place) { has++ })
		if has > each && larger > 0 {
			quota[i]++
			larger--
		} else {
			small = append(small, i)
		}
	}
	for _, i := range small[:larger] {
		quota[i]++
	}
	for i := range u.subscribers {
		u.held(i, func(at place) {
			if u.load[i] < quota[i] {
				u.give(at, i)
			}
		})
	}
	next := 0
	for _, topic := range u.topics {
		for p, owner := range u.owner[topic] {
			if owner != none {
				continue
			}
			for u.load[next] >= quota[next] {
				next++
			}
			u.give(place{topic: topic, partition: int32(p)}, next)
		}
	}
}

// byDemand are the topics with the most partitions for each of their
// subscribers first: the others leave more choice.
func (u *uniform) byDemand() []cluster.TopicID {
	return slices.SortedFunc(slices.Values(u.topics), func(a, b cluster.TopicID) int {
		// Crosswise, as the fractions are compared without dividing.
		more := cmp.Compare(int64(u.partitions[b])*int64(len(u.readers[a])), int64(u.partitions[a])*int64(len(u.readers[b])))
		return cmp.Or(more, cmp.Compare(len(u.readers[a]), len(u.readers[b])), compareTopics(a, b))
	})
}

// handOut gives each partition without an owner to the subscriber that has the
// fewest.
func (u *uniform) handOut() {
	least := u.heap(1)
	for _, topic := range u.byDemand() {
		least.reset(u.readers[topic])
		for p, owner := range u.owner[topic] {
			if owner != none {
				continue
			}
			to := least.top()
			u.give(place{topic: topic, partition: int32(p)}, to)
			least.fix(to)
		}
	}
}

// balance moves partitions from who has the most to who has the fewest of their
// subscribers, until no topic can even out anything more.
func (u *uniform) balance() {
	topics := u.byDemand()
	most, least := u.heap(-1), u.heap(1)
	for range balancePasses {
		moved := false
		for _, topic := range topics {
			moved = u.balanceTopic(topic, most, least) || moved
		}
		if !moved {
			return
		}
	}
}

// chain evens out what no single move can: where a has two more than c, but only
// b reads a topic of each, b takes over from a and c from b. Afterwards no loads
// could be closer together.
func (u *uniform) chain() {
	done := make([]bool, len(u.subscribers))
	for {
		order := make([]int, 0, len(u.subscribers))
		for i := range u.subscribers {
			order = append(order, i)
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(u.load[b], u.load[a]), cmp.Compare(a, b)) })
		// Who can be reached from one with at least as many, and to no use, is of
		// no use itself.
		clear(done)
		seen := map[cluster.TopicID]bool{}
		improved := false
		for _, from := range order {
			if improved = u.chainFrom(from, done, seen); improved {
				break
			}
		}
		if !improved {
			return
		}
	}
}

// hop is how a search came to a subscriber: from takes over less, the subscriber
// gets a partition of topic.
type hop struct {
	from  int
	topic cluster.TopicID
}

// chainFrom looks for the nearest subscriber that has two less than from, along
// partitions that one has and the next one reads, and moves one along each.
func (u *uniform) chainFrom(from int, done []bool, seen map[cluster.TopicID]bool) bool {
	if done[from] {
		return false
	}
	done[from] = true
	came := map[int]hop{}
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		i := queue[0]
		for _, topic := range u.topics {
			if seen[topic] || u.holds[i][topic] == 0 {
				continue
			}
			seen[topic] = true
			for _, to := range u.readers[topic] {
				if done[to] {
					continue
				}
				done[to] = true
				came[to] = hop{from: i, topic: topic}
				if u.load[from]-u.load[to] >= 2 {
					u.shift(from, to, came)
					return true
				}
				queue = append(queue, to)
			}
		}
	}
	return false
}

// shift moves a partition along each hop from one subscriber to another.
func (u *uniform) shift(from, to int, came map[int]hop) {
	for to != from {
		h := came[to]
		u.give(place{topic: h.topic, partition: u.spare(h.from, h.topic)}, to)
		to = h.from
	}
}

// spare is the partition of a topic that an owner would rather give away.
func (u *uniform) spare(owner int, topic cluster.TopicID) int32 {
	var found int32
	for p, i := range u.owner[topic] {
		if i != owner {
			continue
		}
		if found = int32(p); !u.subscribers[owner].current.has(topic, found) {
			break
		}
	}
	return found
}

// restore gives partitions back to who had them before, where that leaves the
// loads as even as they are.
func (u *uniform) restore() {
	for i, s := range u.subscribers {
		for _, topic := range s.current.topics() {
			if !s.reads(topic) {
				continue
			}
			for _, p := range s.current[topic] {
				if p >= 0 && p < u.partitions[topic] && u.load[u.owner[topic][p]] > u.load[i] {
					u.give(place{topic: topic, partition: p}, i)
				}
			}
		}
	}
}

// balanceTopic moves partitions of a topic while an owner has at least two more
// than another subscriber; those that an owner had before go last.
func (u *uniform) balanceTopic(topic cluster.TopicID, most, least *loadHeap) (moved bool) {
	least.reset(u.readers[topic])
	most.reset(u.readers[topic])
	if u.load[most.top()]-u.load[least.top()] < 2 {
		return false
	}
	owned := map[int][]int32{}
	for _, before := range []bool{true, false} {
		for p, i := range u.owner[topic] {
			if u.subscribers[i].current.has(topic, int32(p)) == before {
				owned[i] = append(owned[i], int32(p))
			}
		}
	}
	for !most.empty() {
		from, to := most.top(), least.top()
		if u.load[from]-u.load[to] < 2 {
			return moved
		}
		has := owned[from]
		if len(has) == 0 {
			most.pop()
			continue
		}
		p := has[len(has)-1]
		owned[from], owned[to] = has[:len(has)-1], append(owned[to], p)
		u.give(place{topic: topic, partition: p}, to)
		moved = true
		for _, i := range []int{from, to} {
			most.fix(i)
			least.fix(i)
		}
	}
	return moved
}

// heap makes a heap with the fewest partitions on top for sign 1, and with the
// most for -1.
func (u *uniform) heap(sign int) *loadHeap {
	return &loadHeap{load: u.load, sign: sign, at: slices.Repeat([]int{none}, len(u.subscribers))}
}

// loadHeap is a heap of subscribers by their load; of equals, the first in order
// is on top.
type loadHeap struct {
	load []int
	sign int
	list []int
	// at is where each is in list, or none.
	at []int
}

func (h *loadHeap) reset(list []int) {
	for _, i := range h.list {
		h.at[i] = none
	}
	// A list in order is a heap.
	h.list = append(h.list[:0], list...)
	slices.SortFunc(h.list, func(a, b int) int { return cmp.Or(h.sign*cmp.Compare(h.load[a], h.load[b]), cmp.Compare(a, b)) })
	for at, i := range h.list {
		h.at[i] = at
	}
}

func (h *loadHeap) empty() bool { return len(h.list) == 0 }
func (h *loadHeap) top() int    { return h.list[0] }

func (h *loadHeap) pop() {
	last := len(h.list) - 1
	h.swap(0, last)
	h.at[h.list[last]] = none
	h.list = h.list[:last]
	if last > 0 {
		h.fix(h.list[0])
	}
}

// fix brings i to its place after its load has changed.
func (h *loadHeap) fix(i int) {
	at := h.at[i]
	if at == none {
		return
	}
	for at > 0 && h.before(at, (at-1)/2) {
		h.swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
	for {
		child := 2*at + 1
		if child+1 < len(h.list) && h.before(child+1, child) {
			child++
		}
		if child >= len(h.list) || !h.before(child, at) {
			return
		}
		h.swap(at, child)
		at = child
	}
}

func (h *loadHeap) before(a, b int) bool {
	i, j := h.list[a], h.list[b]
	return cmp.Or(h.sign*cmp.Compare(h.load[i], h.load[j]), cmp.Compare(i, j)) < 0
}

func (h *loadHeap) swap(a, b int) {
	h.list[a], h.list[b] = h.list[b], h.list[a]
	h.at[h.list[a]], h.at[h.list[b]] = a, b
}
