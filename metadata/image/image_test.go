package image

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/request"
)

func tid(n int) cluster.TopicID { return cluster.TopicID{byte(n), 1} }

// log applies commands in order, as a committed log does.
type log struct {
	t     require.TestingT
	img   *Image
	index uint64
	term  uint64
	seq   uint64
}

func newLog(t require.TestingT) *log {
	l := &log{t: t, img: Empty()}
	l.tenure()
	l.do(command.ClusterCreated{ClusterID: "c"}, command.FeatureSet{Name: VersionFeature, Level: 1})
	return l
}

func (l *log) tenure() *Delta {
	l.term, l.seq = l.term+1, 0
	return l.apply(0, command.ControllerStarted{Node: 1})
}

func (l *log) try(seq uint64, rs ...command.Record) (*Image, *Delta, error) {
	return l.img.Apply(Position{Index: l.index + 1, Term: l.term}, command.Command{
		Level: 1, ControllerEpoch: cluster.ControllerEpoch(l.term), Sequence: seq, TimeMs: int64(l.index), Records: rs,
	})
}

func (l *log) apply(seq uint64, rs ...command.Record) *Delta {
	img, d, err := l.try(seq, rs...)
	require.NoError(l.t, err)
	l.img, l.index, l.seq = img, l.index+1, seq
	return d
}

func (l *log) do(rs ...command.Record) *Delta { return l.apply(l.seq+1, rs...) }

func (l *log) refused(why string, rs ...command.Record) {
	before := dump(l.img)
	img, _, err := l.try(l.seq+1, rs...)
	var re *RefusedError
	require.True(l.t, errors.As(err, &re), "%v", err)
	require.ErrorContains(l.t, err, why)
	require.Same(l.t, l.img, img)
	require.Equal(l.t, before, dump(l.img), "M2: a refused command changes nothing")
}

func created(n int, total int32) command.TopicCreated {
	return command.TopicCreated{ID: tid(n), Name: fmt.Sprintf("t%d", n), Partitions: total}
}

func added(n int, first, count, total int32) command.PartitionsAdded {
	r := command.PartitionsAdded{Topic: tid(n), First: first, Total: total}
	for range count {
		r.Partitions = append(r.Partitions, command.NewPartition{
			Leader: 1, Replicas: []cluster.BrokerID{1, 2}, ISR: []cluster.BrokerID{1, 2}, Dirs: []cluster.DirectoryID{{1}, {2}},
		})
	}
	return r
}

func dump(i *Image) map[string]string {
	m := map[string]string{}
	for e := range i.Entries() {
		m[string(e.Key)] = string(e.Value)
	}
	return m
}

func TestEnvelope(t *testing.T) {
	l := newLog(t)
	_, _, err := l.try(l.seq + 2)
	require.ErrorContains(t, err, "sequence 3 after 1")
	_, _, err = l.try(l.seq)
	require.ErrorContains(t, err, "sequence")
	_, _, err = l.img.Apply(Position{Index: l.index + 1, Term: 9}, command.Command{ControllerEpoch: 1, Sequence: l.seq + 1})
	require.ErrorContains(t, err, "controller epoch 1 in term 9")
	_, _, err = l.img.Apply(Position{Index: l.index, Term: 1}, command.Command{ControllerEpoch: 1, Sequence: l.seq + 1})
	require.ErrorContains(t, err, "is not past")
	_, _, err = l.img.Apply(Position{Index: l.index + 1, Term: 1}, command.Command{ControllerEpoch: 1, Records: []command.Record{command.ControllerStarted{}}})
	require.ErrorContains(t, err, "cannot start")
	_, _, err = l.img.Apply(Position{Index: l.index + 1, Term: 1}, command.Command{Level: 2, ControllerEpoch: 1, Sequence: l.seq + 1})
	require.ErrorContains(t, err, "level 2")
	l.refused("first record", command.ProducerIDsAllocated{Next: 5}, command.ControllerStarted{})
	l.refused("has an id", command.ClusterCreated{ClusterID: "d"})
	l.tenure()
	require.Equal(t, uint64(0), l.img.Meta().Sequence)
	require.Equal(t, cluster.ControllerEpoch(2), l.img.ControllerEpoch())
	skipped := l.img.Skip(99)
	require.Equal(t, uint64(99), skipped.Index())
	require.NotEqual(t, uint64(99), l.img.Index())
}

func TestTopics(t *testing.T) {
	l := newLog(t)
	d := l.do(created(1, 3), added(1, 0, 2, 3))
	require.True(t, d.Empty(), "M4: not visible yet")
	require.Zero(t, l.img.TopicCount())
	l.refused("being created", command.TopicCreated{ID: tid(9), Name: "t1", Partitions: 1})
	l.refused("do not follow", added(1, 1, 1, 3))
	l.refused("do not follow", added(1, 2, 2, 3))
	l.refused("does not exist", command.TopicDeleted{Topic: tid(5)})
	d = l.do(added(1, 2, 1, 3))
	require.Len(t, d.Topics, 1)
	require.Nil(t, d.Topics[0].Old)
	require.Equal(t, []int32{0, 1, 2}, d.Topics[0].Partitions)
	require.Equal(t, 3, l.img.PartitionCount())
	l.refused("exists already", command.TopicCreated{ID: tid(9), Name: "t1", Partitions: 1})

	before := l.img
	d = l.do(command.PartitionsChanged{Topic: tid(1), Changes: []command.PartitionChange{
		{Partition: 1, PartitionEpoch: 1, Leader: 2, LeaderEpoch: 1, ISR: []cluster.BrokerID{2}, ELR: []cluster.BrokerID{1}},
	}})
	require.Equal(t, []int32{1}, d.Topics[0].Partitions)
	old, _ := before.Topic("t1")
	now, _ := l.img.Topic("t1")
	require.Equal(t, cluster.BrokerID(1), old.Partitions[1].Leader, "M1")
	require.Equal(t, cluster.BrokerID(2), now.Partitions[1].Leader)
	require.Same(t, old.Partitions[0], now.Partitions[0], "what did not change is shared")
	l.refused("partition epoch", command.PartitionsChanged{Topic: tid(1), Changes: []command.PartitionChange{{Partition: 1, PartitionEpoch: 1, Leader: 2, LeaderEpoch: 1}}})
	l.refused("at leader epoch", command.PartitionsChanged{Topic: tid(1), Changes: []command.PartitionChange{{Partition: 1, PartitionEpoch: 2, Leader: 1, LeaderEpoch: 1}}})
	l.refused("at leader epoch", command.PartitionsChanged{Topic: tid(1), Changes: []command.PartitionChange{{Partition: 1, PartitionEpoch: 2, Leader: 2, LeaderEpoch: 0}}})
	l.refused("does not exist", command.PartitionsChanged{Topic: tid(1), Changes: []command.PartitionChange{{Partition: 3, PartitionEpoch: 1}}})

	l.do(added(1, 3, 1, 5))
	require.Equal(t, 3, l.img.PartitionCount(), "M4")
	l.tenure()
	d = l.do(added(1, 3, 2, 5))
	require.Equal(t, []int32{3, 4}, d.Topics[0].Partitions)
	require.Equal(t, 5, l.img.PartitionCount())
	l.refused("already", added(1, 3, 2, 5))

	l.do(created(2, 2))
	l.tenure()
	l.refused("does not exist", added(2, 0, 2, 2))
	d = l.do(command.TopicDeleted{Topic: tid(1)}, command.TopicCreated{ID: tid(3), Name: "t1", Partitions: 1}, added(3, 0, 1, 1))
	require.Len(t, d.Topics, 2, "deleted and created again under its name")
	again, ok := l.img.Topic("t1")
	require.True(t, ok)
	require.Equal(t, tid(3), again.ID)
	_, ok = l.img.TopicByID(tid(1))
	require.False(t, ok)
	require.Equal(t, 1, l.img.PartitionCount())
}

func TestTieredAndConfigs(t *testing.T) {
	l := newLog(t)
	c := created(1, 1)
	c.TieredByDefault = true
	l.do(c, added(1, 0, 1, 1))
	tiered := func() bool { x, _ := l.img.Topic("t1"); return x.Tiered }
	require.True(t, tiered())
	set := func(ch ...command.ConfigChange) *Delta {
		return l.do(command.ConfigsChanged{Kind: request.TopicResource, Topic: tid(1), Changes: ch})
	}
	d := set(command.ConfigChange{Key: TierKey, Value: "false"})
	require.True(t, d.Topics[0].Configs)
	require.False(t, tiered())
	set(command.ConfigChange{Key: TierKey, Delete: true})
	require.True(t, tiered())
	d = l.do(command.ConfigsChanged{Kind: request.BrokerResource, Broker: cluster.NoBroker, Changes: []command.ConfigChange{{Key: "a", Value: "1"}}})
	require.Equal(t, []cluster.BrokerID{cluster.NoBroker}, d.Configs)
	require.Equal(t, map[string]string{"a": "1"}, l.img.BrokerConfig(cluster.NoBroker))
	l.do(command.ConfigsChanged{Kind: request.BrokerResource, Broker: cluster.NoBroker, Changes: []command.ConfigChange{{Key: "a", Delete: true}}})
	require.Nil(t, l.img.BrokerConfig(cluster.NoBroker))

	before := l.img
	d = l.do(command.GroupConfigsChanged{Group: "h", Changes: []command.ConfigChange{{Key: "a", Value: "1"}}},
		command.GroupConfigsChanged{Group: "g", Changes: []command.ConfigChange{{Key: "b", Value: "2"}}})
	require.Equal(t, []string{"g", "h"}, d.Groups)
	require.False(t, d.Empty())
	require.Equal(t, map[string]string{"b": "2"}, l.img.GroupConfig("g"))
	require.Nil(t, before.GroupConfig("g"), "M1")
	require.Equal(t, []string{"g", "h"}, slices.Collect(l.img.ConfiguredGroups()))
	l.do(command.GroupConfigsChanged{Group: "g", Changes: []command.ConfigChange{{Key: "b", Delete: true}}})
	require.Equal(t, []string{"h"}, slices.Collect(l.img.ConfiguredGroups()))
}

func TestBrokers(t *testing.T) {
	l := newLog(t)
	d := l.do(command.BrokerRegistered{ID: 2, Unclean: true})
	require.Len(t, d.Brokers, 1)
	b, _ := l.img.Broker(2)
	require.True(t, b.Fenced)
	require.Equal(t, cluster.BrokerEpoch(l.index), b.Epoch)
	l.do(command.BrokerRegistered{ID: 1})
	require.Equal(t, cluster.BrokerID(1), l.img.Brokers()[0].ID)
	l.refused("not registered", command.BrokerState{ID: 2, Epoch: 1})
	l.do(command.BrokerState{ID: 2, Epoch: b.Epoch})
	now, _ := l.img.Broker(2)
	require.False(t, now.Unclean, "its past is dealt with once it is unfenced")
	require.True(t, now.Active())
	require.True(t, b.Fenced, "M1")
	l.refused("below", command.ProducerIDsAllocated{Next: -1})
}

// step makes a random record that follows from the image.
func (l *log) step(t *rapid.T) []command.Record {
	n := rapid.IntRange(0, 5).Draw(t, "topic")
	x, visible := l.img.TopicByID(tid(n))
	p, unfinished := l.img.pending[tid(n)]
	switch kind := rapid.IntRange(0, 10).Draw(t, "kind"); {
	case kind <= 2 && !visible && !unfinished:
		c := created(n, rapid.Int32Range(1, 4).Draw(t, "total"))
		c.TieredByDefault = n%2 == 0
		return []command.Record{c}
	case kind <= 4 && unfinished:
		next := p.first + int32(len(p.partitions))
		return []command.Record{added(n, next, rapid.Int32Range(0, p.total-next).Draw(t, "count"), p.total)}
	case kind <= 4 && visible:
		have := int32(len(x.Partitions))
		return []command.Record{added(n, have, rapid.Int32Range(0, 2).Draw(t, "count"), have+2)}
	case kind == 5 && (visible || unfinished):
		return []command.Record{command.TopicDeleted{Topic: tid(n)}}
	case kind == 6 && visible:
		i := rapid.IntRange(0, len(x.Partitions)-1).Draw(t, "partition")
		old := x.Partitions[i]
		return []command.Record{command.PartitionsChanged{Topic: tid(n), Changes: []command.PartitionChange{{
			Partition: int32(i), PartitionEpoch: old.PartitionEpoch + 1, Leader: 2, LeaderEpoch: old.LeaderEpoch + 1, ISR: []cluster.BrokerID{2},
		}}}}
	case kind == 7 && visible:
		return []command.Record{command.ConfigsChanged{Kind: request.TopicResource, Topic: tid(n), Changes: []command.ConfigChange{
			{Key: "k", Value: fmt.Sprint(l.index), Delete: l.index%3 == 0},
		}}}
	case kind == 8:
		return []command.Record{command.ConfigsChanged{Kind: request.BrokerResource, Broker: cluster.BrokerID(n - 1), Changes: []command.ConfigChange{
			{Key: "k", Value: fmt.Sprint(l.index), Delete: l.index%3 == 0},
		}}}
	case kind == 9:
		return []command.Record{command.GroupConfigsChanged{Group: strings.Repeat("g", n), Changes: []command.ConfigChange{
			{Key: "k", Value: fmt.Sprint(l.index), Delete: l.index%3 == 0},
		}}}
	}
	return []command.Record{command.BrokerRegistered{ID: cluster.BrokerID(n), Rack: fmt.Sprint(l.index)}}
}

// TestEntries keeps stored entries beside a random log (M6).
func TestEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLog(t)
		stored, from := dump(l.img), l.img
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before := l.img
			var d *Delta
			if rapid.IntRange(0, 12).Draw(t, "tenure") == 0 {
				d = l.tenure()
			} else {
				d = l.do(l.step(t)...)
			}
			store(stored, d)
			if !maps.Equal(stored, dump(l.img)) {
				t.Fatalf("stored entries differ from the image's after %+v", d)
			}
			same(t, d, Diff(before, l.img))
		}
		again, err := Load(seq(l.img))
		require.NoError(t, err)
		if !reflect.DeepEqual(dump(again), dump(l.img)) || again.PartitionCount() != l.img.PartitionCount() || again.TopicCount() != l.img.TopicCount() {
			t.Fatalf("the loaded image differs")
		}
		// One delta over the whole way does the same.
		last := dump(from)
		store(last, Diff(from, l.img))
		if !maps.Equal(last, dump(l.img)) {
			t.Fatalf("the delta of the whole way differs")
		}
	})
}

func store(m map[string]string, d *Delta) {
	put, del := d.Entries()
	for _, k := range del {
		delete(m, string(k))
	}
	for _, e := range put {
		m[string(e.Key)] = string(e.Value)
	}
}

// same compares what Apply said with what Diff finds.
func same(t *rapid.T, a, b *Delta) {
	strip := func(d *Delta) string {
		var out []string
		for _, c := range d.Topics {
			out = append(out, fmt.Sprint(c.Topic().Name, c.Topic().ID, c.Old != nil, c.New != nil, c.Partitions))
		}
		return fmt.Sprint(out, len(d.Brokers), d.Meta)
	}
	if strip(a) != strip(b) {
		t.Fatalf("apply says\n%s\ndiff says\n%s", strip(a), strip(b))
	}
}

// seq gives an image's entries in random order.
func seq(i *Image) iter.Seq2[Entry, error] {
	all := slices.Collect(i.Entries())
	rand.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	return func(yield func(Entry, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func TestEntriesAreSorted(t *testing.T) {
	l := newLog(t)
	for n := range 5 {
		l.do(created(n, 3), added(n, 0, 3, 3), command.BrokerRegistered{ID: cluster.BrokerID(n)})
		l.do(command.ConfigsChanged{Kind: request.BrokerResource, Broker: cluster.BrokerID(n - 1), Changes: []command.ConfigChange{{Key: "a", Value: "1"}}})
		l.do(command.GroupConfigsChanged{Group: fmt.Sprint("g", 9-n), Changes: []command.ConfigChange{{Key: "a", Value: "1"}}})
	}
	l.do(created(7, 3), added(7, 0, 2, 3), added(1, 3, 1, 5))
	var keys []string
	for e := range l.img.Entries() {
		keys = append(keys, string(e.Key))
	}
	require.True(t, slices.IsSorted(keys))
	require.Len(t, slices.Compact(keys), len(dump(l.img)))
	names := []string{}
	for x := range l.img.TopicsFrom("t2") {
		names = append(names, x.Name)
	}
	require.Equal(t, []string{"t2", "t3", "t4"}, names)
}

func TestLoadRefuses(t *testing.T) {
	l := newLog(t)
	l.do(created(1, 3), added(1, 0, 3, 3), command.BrokerRegistered{ID: 1})
	l.do(created(2, 3), added(2, 0, 2, 3))
	all := slices.Collect(l.img.Entries())
	load := func(entries []Entry) error {
		_, err := Load(func(yield func(Entry, error) bool) {
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		})
		return err
	}
	require.NoError(t, load(all))
	var ce *CorruptError
	for n, e := range all {
		for cut := range e.Value {
			bad := slices.Clone(all)
			bad[n].Value = e.Value[:cut]
			require.True(t, errors.As(load(bad), &ce), "%q cut to %d", e.Key, cut)
		}
		if e.Key[0] == 'p' || e.Key[0] == 't' || e.Key[0] == 'q' {
			require.True(t, errors.As(load(slices.Delete(slices.Clone(all), n, n+1)), &ce), "%q missing", e.Key)
		}
	}
	require.True(t, errors.As(load([]Entry{{Key: []byte("z"), Value: []byte{1}}}), &ce))
	fails := errors.New("read failed")
	_, err := Load(func(yield func(Entry, error) bool) { yield(Entry{}, fails) })
	require.ErrorIs(t, err, fails)
}

func BenchmarkApplyISRChange(b *testing.B) {
	l := newLog(b)
	for n := range 100 {
		l.do(created(n, 100), added(n, 0, 100, 100))
	}
	epoch := cluster.PartitionEpoch(0)
	b.ReportAllocs()
	for b.Loop() {
		epoch++
		l.do(command.PartitionsChanged{Topic: tid(50), Changes: []command.PartitionChange{
			{Partition: 3, PartitionEpoch: epoch, Leader: 1, ISR: []cluster.BrokerID{1}},
		}})
	}
}
