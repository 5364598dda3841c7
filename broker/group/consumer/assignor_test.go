package consumer

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"strandline/metadata/cluster"
)

// party is members and topics for an assignor.
type party struct {
	subscribers []subscriber
	partitions  map[cluster.TopicID]int32
}

func drawTopics(t *rapid.T) map[cluster.TopicID]int32 {
	partitions := map[cluster.TopicID]int32{}
	for i := range rapid.IntRange(1, 6).Draw(t, "topics") {
		partitions[idOf(fmt.Sprintf("t%d", i), 0)] = int32(rapid.IntRange(1, 12).Draw(t, "partitions"))
	}
	return partitions
}

// draw makes members that all read the same topics, or each its own.
func (p *party) draw(t *rapid.T, alike bool) {
	all := sortedTopics(p.partitions)
	topics := func() []cluster.TopicID {
		var some []cluster.TopicID
		for _, topic := range all {
			if rapid.Bool().Draw(t, "reads") {
				some = append(some, topic)
			}
		}
		return some
	}
	same := topics()
	old := map[string]assignment{}
	for _, s := range p.subscribers {
		old[s.id] = s.current
	}
	p.subscribers = nil
	for i := range rapid.IntRange(1, 8).Draw(t, "members") {
		id := fmt.Sprintf("m%d", i)
		if rapid.IntRange(0, 3).Draw(t, "away") == 0 && i > 0 {
			continue
		}
		s := subscriber{id: id, topics: same, current: old[id]}
		if !alike {
			s.topics = topics()
		}
		if rapid.IntRange(0, 4).Draw(t, "static") == 0 {
			s.instance = fmt.Sprintf("i%d", 9-i)
		}
		p.subscribers = append(p.subscribers, s)
	}
}

// check holds targets against what any assignor promises: every partition of a
// topic that is read has one owner, who reads it (C3).
func (p *party) check(t require.TestingT, targets []assignment) {
	require.Len(t, targets, len(p.subscribers))
	read := map[cluster.TopicID]bool{}
	owners := map[place]string{}
	for i, s := range p.subscribers {
		for _, topic := range s.topics {
			read[topic] = true
		}
		for topic, list := range targets[i] {
			require.True(t, s.reads(topic), "%s does not read %s", s.id, nameOf(topic))
			require.NotEmpty(t, list)
			require.True(t, slices.IsSorted(list))
			for _, n := range list {
				at := place{topic, n}
				require.Empty(t, owners[at], "%v has two owners", at)
				owners[at] = s.id
			}
		}
	}
	want := 0
	for topic := range read {
		want += int(p.partitions[topic])
	}
	require.Len(t, owners, want)
}

func (p *party) uniformly() []assignment { return assign(Uniform, p.subscribers, p.partitions) }

// take makes targets what the members have.
func (p *party) take(targets []assignment) {
	for i := range p.subscribers {
		p.subscribers[i].current = targets[i]
	}
}

// uneven finds two members whose loads could be closer together: the first has
// at least two more, and a chain of members leads to the second, each of which
// reads a topic of which the one before has a partition. Without such a chain, no
// assignment is more even.
func (p *party) uneven(targets []assignment) string {
	n := len(targets)
	reach := make([][]bool, n)
	for i := range reach {
		reach[i] = make([]bool, n)
		for j := range reach[i] {
			for topic := range targets[i] {
				reach[i][j] = reach[i][j] || p.subscribers[j].reads(topic)
			}
		}
	}
	for via := range n {
		for i := range n {
			for j := range n {
				reach[i][j] = reach[i][j] || reach[i][via] && reach[via][j]
			}
		}
	}
	for i := range n {
		for j := range n {
			if reach[i][j] && targets[i].count()-targets[j].count() >= 2 {
				return fmt.Sprintf("%s has %d, %s %d", p.subscribers[i].id, targets[i].count(), p.subscribers[j].id, targets[j].count())
			}
		}
	}
	return ""
}

// kept counts the partitions that stay where they were.
func (p *party) kept(targets []assignment) int {
	n := 0
	for i, s := range p.subscribers {
		for topic, list := range s.current {
			for _, partition := range list {
				if targets[i].has(topic, partition) {
					n++
				}
			}
		}
	}
	return n
}

func TestUniformIsCompleteBalancedAndSticky(t *testing.T) {
	for _, alike := range []bool{true, false} {
		t.Run(fmt.Sprintf("alike=%t", alike), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p := party{partitions: drawTopics(t)}
				for range rapid.IntRange(1, 4).Draw(t, "rounds") {
					p.draw(t, alike)
					targets := p.uniformly()
					p.check(t, targets)
					require.Empty(t, p.uneven(targets))
					if alike {
						require.Equal(t, p.mostKept(), p.kept(targets), "no more moves than balance needs")
					}
					p.take(targets)
					again := p.uniformly()
					require.Equal(t, targets, again, "what is balanced stays")
				}
			})
		})
	}
}

// mostKept is how many partitions can stay with members of the same topics at
// best: each keeps what it has up to its quota, and who has more gets the larger
// ones.
func (p *party) mostKept() int {
	total := 0
	for _, topic := range p.subscribers[0].topics {
		total += int(p.partitions[topic])
	}
	each, larger := total/len(p.subscribers), total%len(p.subscribers)
	n := 0
	for _, s := range p.subscribers {
		has := 0
		for topic, list := range s.current {
			if s.reads(topic) {
				has += len(list)
			}
		}
		if has > each && larger > 0 {
			larger--
			n++
		}
		n += min(has, each)
	}
	return n
}

// A member that comes or goes moves no partition between two that stay, where all
// read the same topics.
func TestUniformMovesNothingBetweenThoseWhoStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := party{partitions: drawTopics(t)}
		p.draw(t, true)
		p.take(p.uniformly())
		before := map[place]string{}
		for _, s := range p.subscribers {
			for topic, list := range s.current {
				for _, n := range list {
					before[place{topic, n}] = s.id
				}
			}
		}
		stay := map[string]bool{}
		if len(p.subscribers) > 1 && rapid.Bool().Draw(t, "leaves") {
			p.subscribers = p.subscribers[1:]
		} else {
			p.subscribers = append(p.subscribers, subscriber{id: "new", topics: p.subscribers[0].topics})
		}
		for _, s := range p.subscribers {
			stay[s.id] = s.id != "new"
		}
		for i, target := range p.uniformly() {
			to := p.subscribers[i].id
			for topic, list := range target {
				for _, n := range list {
					from := before[place{topic, n}]
					require.False(t, stay[from] && stay[to] && from != to, "%s-%d moved from %s to %s", nameOf(topic), n, from, to)
				}
			}
		}
	})
}

// The order in which members are named makes no difference.
func TestAssignorsDoNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := party{partitions: drawTopics(t)}
		p.draw(t, rapid.Bool().Draw(t, "alike"))
		name := rapid.SampledFrom(Assignors()).Draw(t, "assignor")
		want := map[string]assignment{}
		for i, target := range assign(name, p.subscribers, p.partitions) {
			want[p.subscribers[i].id] = target
		}
		other := rapid.Permutation(p.subscribers).Draw(t, "order")
		got := map[string]assignment{}
		for i, target := range assign(name, other, p.partitions) {
			got[other[i].id] = target
		}
		require.Equal(t, want, got)
	})
}

// Topics of the same size and the same readers are cut alike, ranges differ by
// one partition at most, the first are the longer ones, and static members come
// first.
func TestRangeCutsTopicsAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := party{partitions: drawTopics(t)}
		p.draw(t, rapid.Bool().Draw(t, "alike"))
		targets := assign(Range, p.subscribers, p.partitions)
		p.check(t, targets)
		for topic, n := range p.partitions {
			var readers []int
			for i, s := range p.subscribers {
				if s.reads(topic) {
					readers = append(readers, i)
				}
			}
			slices.SortFunc(readers, func(i, j int) int {
				return slices.Compare(targets[i][topic], targets[j][topic])
			})
			for k, i := range readers {
				length := len(targets[i][topic])
				require.Contains(t, []int{int(n) / len(readers), int(n)/len(readers) + 1}, length)
				if length > 0 {
					require.Equal(t, targets[i][topic][length-1], targets[i][topic][0]+int32(length)-1, "contiguous")
				}
				if k > 0 && len(targets[readers[k-1]][topic]) > 0 {
					require.LessOrEqual(t, length, len(targets[readers[k-1]][topic]))
				}
			}
			for other, m := range p.partitions {
				if m != n || !slices.EqualFunc(p.subscribers, p.subscribers, func(a, b subscriber) bool { return a.reads(topic) == b.reads(other) }) {
					continue
				}
				for i := range targets {
					require.Equal(t, targets[i][topic], targets[i][other])
				}
			}
		}
	})
	two := []subscriber{{id: "a", topics: []cluster.TopicID{idOf("t", 0)}}, {id: "b", instance: "i", topics: []cluster.TopicID{idOf("t", 0)}}}
	require.Equal(t, []assignment{{idOf("t", 0): {2}}, {idOf("t", 0): {0, 1}}}, assign(Range, two, map[cluster.TopicID]int32{idOf("t", 0): 3}))
}

// A large group is assigned in a time that a coordinator has.
func BenchmarkUniform(b *testing.B) {
	for _, alike := range []bool{true, false} {
		b.Run(fmt.Sprintf("alike=%t", alike), func(b *testing.B) {
			p := party{partitions: map[cluster.TopicID]int32{}}
			for i := range 100 {
				p.partitions[idOf(fmt.Sprintf("t%d", i), 0)] = 100
			}
			all := sortedTopics(maps.Clone(p.partitions))
			for i := range 1000 {
				s := subscriber{id: fmt.Sprintf("m%d", i), topics: all}
				if !alike {
					s.topics = all[i%50 : i%50+50]
				}
				p.subscribers = append(p.subscribers, s)
			}
			for b.Loop() {
				p.uniformly()
			}
		})
	}
}
