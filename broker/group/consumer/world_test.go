package consumer

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"strandline/broker/group"
	"strandline/metadata/cluster"
)

// world is the topics of a cluster.
type world struct {
	byName           map[string]Topic
	former           map[string]Topic // deleted ones
	hidden           map[string]bool
	version, created int64
}

func newWorld() *world {
	return &world{byName: map[string]Topic{}, former: map[string]Topic{}, hidden: map[string]bool{}, version: 1, created: 1}
}

// idOf is the id of a topic of these tests; one that was created again under its
// name has another.
func idOf(name string, incarnation byte) (id cluster.TopicID) {
	copy(id[:15], name)
	id[15] = incarnation
	return id
}

func (w *world) set(name string, partitions int32, racks [][]string) {
	w.version++
	t, ok := w.byName[name]
	if !ok {
		w.created = w.version
		t = Topic{ID: idOf(name, byte(w.version)), Name: name}
	}
	t.Partitions, t.Racks = partitions, racks
	w.byName[name] = t
}

func (w *world) remove(name string) {
	w.version++
	w.former[name] = w.byName[name]
	delete(w.byName, name)
}

func (w *world) Topic(name string) (Topic, bool) { t, ok := w.byName[name]; return t, ok }
func (w *world) Version() int64                  { return w.version }
func (w *world) CreatedVersion() int64           { return w.created }

func (w *world) TopicByID(id cluster.TopicID) (Topic, bool) {
	for _, t := range w.byName {
		if t.ID == id {
			return t, true
		}
	}
	return Topic{}, false
}

func (w *world) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range w.byName {
			if !w.hidden[name] && !yield(name) {
				return
			}
		}
	}
}

// nameOf is the name that idOf was given.
func nameOf(id cluster.TopicID) string { return strings.TrimRight(string(id[:15]), "\x00") }

// view is what the log says of a group: the latest record of each key.
type view map[string]group.Record

func (v view) add(t require.TestingT, records []group.Record) {
	for _, r := range records {
		k, err := group.ViewKey(r.Key)
		require.NoError(t, err)
		if r.Value == nil {
			delete(v, string(k))
		} else {
			v[string(k)] = r
		}
	}
}

func (v view) records() []group.Record {
	var list []group.Record
	for _, k := range slices.Sorted(maps.Keys(v)) {
		list = append(list, v[k])
	}
	return list
}

// hard is the state of a group that records say, and what follows from it, in
// words.
func hard(g *Group) string {
	var out strings.Builder
	fmt.Fprintf(&out, "epoch %d, hash %x, target %d at %v, partitions record %t\n", g.epoch, g.hash, g.target.epoch, g.target.at, g.partitionsRecord)
	for _, id := range sortedKeys(g.members) {
		m := g.members[id]
		fmt.Fprintf(&out, "%s: %x, %s\n", id, m.memberValue.encode(), showCurrent(m.currentValue))
	}
	for _, id := range sortedKeys(g.targets) {
		fmt.Fprintf(&out, "target of %s: %s\n", id, shown(g.targets[id].list()))
	}
	for _, e := range sortedKeys(g.regexes) {
		fmt.Fprintf(&out, "%s: %v\n", e, g.regexes[e])
	}
	for _, topic := range sortedTopics(g.holders) {
		fmt.Fprintf(&out, "%s is held by %v\n", nameOf(topic), g.holders[topic])
	}
	fmt.Fprintln(&out, g.instances, g.byName, g.byRegex, g.regexMembers, g.assignors, g.classicMembers, g.classicProtocols)
	return out.String()
}

// checkGroup holds a group against its invariants, and against what a group
// loaded from its records is.
func checkGroup(t require.TestingT, g *Group, c Config, v view) {
	require.GreaterOrEqual(t, g.epoch, g.target.epoch, "C4: the group's epoch and its target's")
	held := map[place]string{}
	for id, m := range g.members {
		require.LessOrEqual(t, m.epoch, g.target.epoch, "C4: the target's epoch and that of %s", id)
		for _, h := range []holding{m.assigned, m.revoking} {
			for topic, partitions := range h {
				require.NotEmpty(t, partitions)
				for p := range partitions {
					at := place{topic, p}
					require.Empty(t, held[at], "C1: %s-%d is held by %s too", nameOf(topic), p, id)
					held[at] = id
					require.Equal(t, id, g.holders[topic][p])
				}
			}
		}
	}
	n := 0
	for _, partitions := range g.holders {
		n += len(partitions)
	}
	require.Len(t, held, n)
	if g.id == "" || len(v) == 0 {
		return
	}
	loaded, err := Load(zeroTime, c, g.id, v.records())
	require.NoError(t, err)
	require.Equal(t, hard(g), hard(loaded))
}

// shown writes partitions as people read them: a-0-2 are partitions 0 to 2 of a.
func shown(list []group.TopicPartitions) string {
	var words []string
	for _, t := range list {
		words = append(words, nameOf(t.Topic)+":"+ranges(t.Partitions))
	}
	return "[" + strings.Join(words, " ") + "]"
}

func ranges(partitions []int32) string {
	var words []string
	for i := 0; i < len(partitions); {
		j := i
		for j+1 < len(partitions) && partitions[j+1] == partitions[j]+1 {
			j++
		}
		word := fmt.Sprint(partitions[i])
		if j > i {
			word += fmt.Sprintf("-%d", partitions[j])
		}
		words = append(words, word)
		i = j + 1
	}
	return strings.Join(words, ",")
}

func showHolding(h holding) string {
	var words []string
	for _, topic := range h.topics() {
		byEpoch := map[int32][]int32{}
		for _, p := range h.partitions(topic) {
			byEpoch[h[topic][p]] = append(byEpoch[h[topic][p]], p)
		}
		for _, epoch := range slices.SortedFunc(maps.Keys(byEpoch), cmp.Compare[int32]) {
			words = append(words, fmt.Sprintf("%s:%s@%d", nameOf(topic), ranges(byEpoch[epoch]), epoch))
		}
	}
	return "[" + strings.Join(words, " ") + "]"
}
