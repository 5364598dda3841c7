package state_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/request"
	"strandline/metadata/state"
)

func noLeak(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

func open(t *testing.T, fs disk.FS) *state.State {
	t.Helper()
	s, err := state.Open(state.Config{FS: fs, Dir: "/m/state", Fatal: func(err error) { t.Error(err) }})
	require.NoError(t, err)
	return s
}

// author writes commands as a controller would: in sequence, one tenure.
type author struct {
	epoch    cluster.ControllerEpoch
	sequence uint64
	nowMs    int64
	index    uint64
}

func (a *author) command(records ...command.Record) command.Command {
	a.nowMs += 10
	c := command.Command{
		Level: command.Level, ControllerEpoch: a.epoch, Sequence: a.sequence, TimeMs: a.nowMs, Records: records,
	}
	a.sequence++
	return c
}

// entry gives the next index, leaving gaps as Raft does.
func (a *author) entry() uint64 {
	a.index += 1 + a.index%3
	return a.index
}

func encode(t require.TestingT, c command.Command) []byte {
	b, err := command.Encode(c)
	require.NoError(t, err)
	return b
}

// apply applies a command of records that is expected to be carried out.
func (a *author) apply(t require.TestingT, s *state.State, records ...command.Record) {
	require.Nil(t, s.Apply(a.entry(), uint64(a.epoch), encode(t, a.command(records...))))
}

func begin(t require.TestingT, s *state.State) *author {
	a := &author{epoch: 2}
	a.apply(t, s, command.ControllerStarted{Node: 1}, command.ClusterCreated{ClusterID: "c"})
	return a
}

func topicID(n int) cluster.TopicID { return cluster.TopicID{15: byte(n), 0: 1} }

func segmentID(n int) cluster.SegmentID {
	return cluster.SegmentID{14: byte(n >> 8), 15: byte(n), 0: 2}
}

func newTopic(n, partitions int) []command.Record {
	added := command.PartitionsAdded{Topic: topicID(n), Total: int32(partitions)}
	for range partitions {
		added.Partitions = append(added.Partitions, command.NewPartition{
			Leader: 1, Replicas: []cluster.BrokerID{1}, ISR: []cluster.BrokerID{1}, Dirs: []cluster.DirectoryID{{1}},
		})
	}
	return []command.Record{command.TopicCreated{
		ID: topicID(n), Name: fmt.Sprintf("topic-%03d", n), Partitions: int32(partitions), TieredByDefault: true,
	}, added}
}

func started(tp cluster.TopicPartition, id int, base, end cluster.Offset) command.SegmentChanged {
	return command.SegmentChanged{Partition: tp, Event: catalog.StartedEvent{
		Span:       request.SegmentSpan{ID: segmentID(id), Base: base, End: end, Location: "loc", Key: fmt.Sprintf("key-%d", id)},
		DeadlineMs: 1 << 40,
	}}
}

func published(tp cluster.TopicPartition, id int, maxTimestamp int64) command.SegmentChanged {
	return command.SegmentChanged{Partition: tp, Event: catalog.PublishedEvent{ID: segmentID(id), Object: request.ObjectSummary{
		ObjectBytes: 120, SegmentBytes: 100, IndexPosition: 100, IndexBytes: 10, FooterBytes: 10,
		MinTimestamp: 1, MaxTimestamp: maxTimestamp, RecordCount: 5,
	}}}
}

// entries is the whole image in its stored form.
func entries(i *image.Image) []string {
	var out []string
	for e := range i.Entries() {
		out = append(out, fmt.Sprintf("%q=%q", e.Key, e.Value))
	}
	return out
}

// contents is everything that can be read of a state's catalog.
func contents(t require.TestingT, s *state.State) []string {
	out := []string{}
	for tp := range s.Partitions() {
		sum, ok := s.Summary(tp)
		require.True(t, ok)
		out = append(out, fmt.Sprintf("%s %+v", tp, sum))
		last := cluster.Offset(-1)
		for seg, err := range s.Segments(tp, 0) {
			require.NoError(t, err)
			require.GreaterOrEqual(t, seg.Base, last)
			last = seg.Base
			out = append(out, fmt.Sprintf("  %+v", seg))
			found, ok, err := s.Find(tp, seg.ID)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, seg, found)
		}
	}
	for _, d := range s.DeletedTopics() {
		out = append(out, fmt.Sprintf("deleted %+v", d))
	}
	return out
}

// workload makes random records that follow from what it has made before, and
// keeps the twin of the catalog in memory.
type workload struct {
	rng    *rand.Rand
	topics []int
	tables map[cluster.TopicPartition]*catalog.Table
	next   int // topic and segment number
}

func newWorkload(seed uint64) *workload {
	return &workload{rng: rand.New(rand.NewPCG(seed, 1)), tables: map[cluster.TopicPartition]*catalog.Table{}}
}

func (w *workload) table(tp cluster.TopicPartition) *catalog.Table {
	if w.tables[tp] == nil {
		w.tables[tp] = catalog.NewTable()
	}
	return w.tables[tp]
}

// step gives the records of the next command.
func (w *workload) step(t require.TestingT, nowMs int64) []command.Record {
	w.next++
	if len(w.topics) < 2 || w.rng.IntN(12) == 0 {
		w.topics = append(w.topics, w.next)
		return newTopic(w.next, 1+w.rng.IntN(3))
	}
	at := w.rng.IntN(len(w.topics))
	topic := w.topics[at]
	tp := cluster.TopicPartition{Topic: topicID(topic)}
	switch w.rng.IntN(12) {
	case 0:
		w.topics = slices.Delete(w.topics, at, at+1)
		delete(w.tables, tp)
		return []command.Record{command.TopicDeleted{Topic: topicID(topic)}}
	case 1:
		return []command.Record{command.ConfigsChanged{
			Kind: request.TopicResource, Topic: topicID(topic), Broker: cluster.NoBroker,
			Changes: []command.ConfigChange{{Key: "retention.ms", Value: fmt.Sprint(w.next)}},
		}}
	case 2, 3:
		tab := w.table(tp)
		if tab.Summary.RemoteEnd == 0 {
			break
		}
		o := cluster.Offset(w.rng.Int64N(int64(tab.Summary.RemoteEnd) + 1))
		return w.events(t, nowMs, tp, catalog.LogStartEvent{Offset: o, BatchBase: o})
	case 4:
		var ids []cluster.SegmentID
		for _, s := range w.table(tp).All() {
			if s.State == catalog.Expired {
				ids = append(ids, s.ID)
			}
		}
		if len(ids) == 0 {
			break
		}
		return w.events(t, nowMs, tp, catalog.RemovedEvent{IDs: ids})
	}
	end := w.table(tp).Summary.RemoteEnd
	start := started(tp, w.next, end, end+cluster.Offset(1+w.rng.Int64N(50)))
	events := []catalog.Event{start.Event}
	if w.rng.IntN(4) > 0 {
		events = append(events, published(tp, w.next, w.rng.Int64N(1000)).Event)
	}
	return w.events(t, nowMs, tp, events...)
}

// events carries events out on the twin.
func (w *workload) events(t require.TestingT, nowMs int64, tp cluster.TopicPartition, events ...catalog.Event) []command.Record {
	var records []command.Record
	tab := w.table(tp)
	for _, ev := range events {
		edit, err := catalog.Apply(catalog.Context{NowMs: nowMs}, tab.Summary, tab, ev)
		require.NoError(t, err)
		if edit.Changed {
			tab.Commit(edit)
		}
		records = append(records, command.SegmentChanged{Partition: tp, Event: ev})
	}
	return records
}
