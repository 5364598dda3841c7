package consumer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"strandline/metadata/cluster"
)

// The heap has on top who comes first by load, whatever happens to the loads.
func TestLoadHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "n")
		load := rapid.SliceOfN(rapid.IntRange(0, 9), n, n).Draw(t, "load")
		sign := rapid.SampledFrom([]int{1, -1}).Draw(t, "sign")
		u := &uniform{load: load, subscribers: make([]subscriber, n)}
		h := u.heap(sign)
		for range 3 {
			in := map[int]bool{}
			var list []int
			for i := range n {
				if rapid.Bool().Draw(t, "in") {
					in[i], list = true, append(list, i)
				}
			}
			h.reset(list)
			for range rapid.IntRange(0, 30).Draw(t, "steps") {
				if h.empty() {
					break
				}
				if rapid.IntRange(0, 5).Draw(t, "step") == 0 {
					delete(in, h.top())
					h.pop()
				} else {
					i := rapid.IntRange(0, n-1).Draw(t, "who")
					load[i] = rapid.IntRange(0, 9).Draw(t, "load")
					h.fix(i)
				}
				first := none
				for i := range n {
					if in[i] && (first == none || sign*load[i] < sign*load[first]) {
						first = i
					}
				}
				require.Equal(t, first == none, h.empty())
				if first != none {
					require.Equal(t, first, h.top())
				}
			}
		}
	})
}

// scattered is subscribers of whom some have what they read, the rest is nobody's.
func scattered(t *rapid.T) (*uniform, party) {
	p := party{partitions: drawTopics(t)}
	p.draw(t, false)
	order := make([]int, len(p.subscribers))
	for i := range order {
		order[i] = i
	}
	u := newUniform(p.subscribers, order, p.partitions)
	for _, topic := range u.topics {
		few := u.readers[topic][:rapid.IntRange(1, len(u.readers[topic])).Draw(t, "few")]
		for n := range p.partitions[topic] {
			if rapid.IntRange(0, 2).Draw(t, "owned") > 0 {
				u.give(place{topic: topic, partition: n}, rapid.SampledFrom(few).Draw(t, "owner"))
			}
		}
	}
	return u, p
}

// What nobody has goes to who has the fewest at that moment.
func TestHandOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, p := scattered(t)
		had := map[place]int{}
		for _, topic := range u.topics {
			for n, i := range u.owner[topic] {
				had[place{topic, int32(n)}] = i
			}
		}
		load := append([]int{}, u.load...)
		u.handOut()
		previous := cluster.TopicID{}
		for k, topic := range u.byDemand() {
			if k > 0 {
				before, now := float64(p.partitions[previous])/float64(len(u.readers[previous])), float64(p.partitions[topic])/float64(len(u.readers[topic]))
				require.GreaterOrEqual(t, before, now)
			}
			previous = topic
			for n, i := range u.owner[topic] {
				if had[place{topic, int32(n)}] != none {
					require.Equal(t, had[place{topic, int32(n)}], i)
					continue
				}
				least := u.readers[topic][0]
				for _, r := range u.readers[topic] {
					if load[r] < load[least] {
						least = r
					}
				}
				require.Equal(t, least, i)
				load[i]++
			}
		}
		require.Equal(t, load, u.load)
	})
}

// Balancing leaves no partition that could go from who has at least two more to
// another who reads its topic; who gives keeps what it had before, if it can.
func TestBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, _ := scattered(t)
		u.handOut()
		total := 0
		for _, n := range u.load {
			total += n
		}
		u.balance()
		for _, topic := range u.topics {
			for n, i := range u.owner[topic] {
				require.NotEqual(t, none, i)
				total--
				for _, r := range u.readers[topic] {
					require.Less(t, u.load[i]-u.load[r], 2, "%s-%d", nameOf(topic), n)
				}
			}
		}
		require.Zero(t, total)
	})
	// Of two topics' worth, what is new to a goes.
	topic := idOf("t", 0)
	targets := assign(Uniform, []subscriber{
		{id: "a", topics: []cluster.TopicID{topic}, current: assignment{topic: {1, 3}}},
		{id: "b", topics: []cluster.TopicID{topic, idOf("u", 0)}},
	}, map[cluster.TopicID]int32{topic: 4, idOf("u", 0): 1})
	require.Equal(t, assignment{topic: {1, 3}}, targets[0])
}

// manyToOne is many that come to a member that has everything, each with topics
// of its own.
func manyToOne() party {
	p := party{partitions: map[cluster.TopicID]int32{}}
	first := subscriber{id: "first", current: assignment{}}
	for i := range 60 {
		topic := idOf(fmt.Sprintf("t%02d", i), 0)
		p.partitions[topic] = 200
		first.topics = append(first.topics, topic)
		first.current[topic] = sequence(0, 200)
	}
	p.subscribers = append(p.subscribers, first)
	for i := range 300 {
		p.subscribers = append(p.subscribers, subscriber{id: fmt.Sprintf("m%03d", i), topics: first.topics[i%31 : i%31+30], current: assignment{}})
	}
	return p
}

func TestManyComeToOne(t *testing.T) {
	p := manyToOne()
	targets := p.uniformly()
	p.check(t, targets)
	for i, target := range targets {
		require.InDelta(t, 12000/301, target.count(), 1, p.subscribers[i].id)
	}
}

// Partitions go in bulk, not one search each.
func BenchmarkManyComeToOne(b *testing.B) {
	p := manyToOne()
	for b.Loop() {
		p.uniformly()
	}
}
