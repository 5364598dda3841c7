package state_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/request"
	"strandline/metadata/state"
	"strandline/metadata/store"
)

func TestLifeOfASegment(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	s := open(t, fs)
	a := begin(t, s)
	require.Equal(t, "c", s.Image().ClusterID())
	a.apply(t, s, newTopic(1, 2)...)
	tp := cluster.TopicPartition{Topic: topicID(1), Partition: 1}
	_, ok := s.Summary(tp)
	require.False(t, ok)

	a.apply(t, s, started(tp, 1, 0, 10))
	_, ok, err := s.FindOffset(tp, 5)
	require.NoError(t, err)
	require.False(t, ok, "not live yet")
	a.apply(t, s, published(tp, 1, 100))
	a.apply(t, s, started(tp, 2, 10, 20), published(tp, 2, 50))
	a.apply(t, s, started(tp, 3, 20, 30), published(tp, 3, 200))
	a.apply(t, s, started(tp, 4, 30, 40))

	check := func() {
		t.Helper()
		sum, ok := s.Summary(tp)
		require.True(t, ok)
		require.Equal(t, cluster.Offset(30), sum.RemoteEnd)
		require.Equal(t, int64(3), sum.LiveCount)
		for o, want := range map[cluster.Offset]int{0: 1, 9: 1, 10: 2, 29: 3} {
			seg, ok, err := s.FindOffset(tp, o)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, segmentID(want), seg.ID)
		}
		for _, o := range []cluster.Offset{-1, 30, 99} {
			_, ok, err := s.FindOffset(tp, o)
			require.NoError(t, err)
			require.False(t, ok)
		}
		seg, ok, err := s.FindTimestamp(tp, 101, 0)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, segmentID(3), seg.ID)
		seg, ok, err = s.FindEpoch(tp, 0)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, segmentID(3), seg.ID)
		var live []cluster.Offset
		for seg, err := range s.Live(tp, 5) {
			require.NoError(t, err)
			live = append(live, seg.Base)
		}
		require.Equal(t, []cluster.Offset{10, 20}, live)
	}
	check()
	require.NoError(t, s.Close())
	s = open(t, fs)
	check()

	a.apply(t, s, command.SegmentChanged{Partition: tp, Event: catalog.LogStartEvent{Offset: 12, BatchBase: 12}})
	seg, ok, err := s.Find(tp, segmentID(1))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, catalog.Expired, seg.State)
	before := contents(t, s)
	require.Len(t, before, 5)

	a.apply(t, s, command.TopicDeleted{Topic: topicID(1)})
	require.Len(t, s.DeletedTopics(), 1)
	for seg, err := range s.Segments(tp, 0) {
		require.NoError(t, err)
		require.NotEqual(t, catalog.Live, seg.State, "a deleted topic has nothing live")
	}
	deleted, ok, err := s.Deleted(topicID(1))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "topic-001", deleted.Name)
	a.apply(t, s, command.SegmentChanged{Partition: tp, Event: catalog.RemovedEvent{
		LeaderEpoch: cluster.NoLeaderEpoch, IDs: []cluster.SegmentID{segmentID(1), segmentID(2)},
	}})
	a.apply(t, s, command.DeletedTopicForgotten{Topic: topicID(1)})
	require.Empty(t, contents(t, s))
	require.NoError(t, s.Close())
	s = open(t, fs)
	require.Empty(t, contents(t, s))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
}

// A topic of which the catalog never heard leaves nothing behind.
func TestPlainTopicLeavesNoTombstone(t *testing.T) {
	noLeak(t)
	s := open(t, disk.NewCrash(1))
	a := begin(t, s)
	a.apply(t, s, newTopic(1, 1)...)
	a.apply(t, s, command.TopicDeleted{Topic: topicID(1)})
	require.Empty(t, s.DeletedTopics())
	require.NoError(t, s.Close())
}

// Entries at or below the applied index are no-ops (T2), refused ones move the
// index alone (T3), here and after a restart.
func TestReplayAndRefusals(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	s := open(t, fs)
	a := begin(t, s)
	a.apply(t, s, newTopic(1, 1)...)
	tp := cluster.TopicPartition{Topic: topicID(1)}
	a.apply(t, s, started(tp, 1, 0, 10))
	at := a.index
	state0 := contents(t, s)

	require.Nil(t, s.Apply(at, 2, encode(t, a.command(newTopic(9, 1)...))))
	require.Nil(t, s.Apply(1, 2, []byte("not even a command")))
	require.Equal(t, uint64(2), s.Counts().Skipped)
	require.Equal(t, 1, s.Image().TopicCount())
	a.sequence--

	refuse := func(term uint64, c command.Command) error {
		t.Helper()
		index := a.entry()
		err, _ := s.Apply(index, term, encode(t, c)).(error)
		require.Error(t, err)
		require.Equal(t, index, s.Applied())
		require.Equal(t, index, s.Image().Index())
		require.Equal(t, state0, contents(t, s))
		return err
	}
	var byImage *image.RefusedError
	other := a.command(newTopic(2, 1)...)
	a.sequence--
	require.ErrorAs(t, refuse(3, other), &byImage, "the epoch is not the entry's term")
	gap := other
	gap.Sequence += 5
	require.ErrorAs(t, refuse(2, gap), &byImage)
	// The catalog refuses the second record: the topic of the first is not made.
	mixed := other
	mixed.Records = append(mixed.Records, published(tp, 7, 1))
	require.ErrorIs(t, refuse(2, mixed), request.ErrUnknownSegment)
	_, ok := s.Image().Topic("topic-002")
	require.False(t, ok)
	strange := other
	strange.Records = []command.Record{started(cluster.TopicPartition{Topic: topicID(8)}, 1, 0, 1)}
	require.ErrorIs(t, refuse(2, strange), request.ErrUnknownTopicID)
	require.Equal(t, uint64(4), s.Counts().Refused)

	require.NoError(t, s.Close())
	s = open(t, fs)
	require.Equal(t, a.index, s.Applied())
	a.apply(t, s, newTopic(2, 1)...)
	require.NoError(t, s.Close())
}

func TestStops(t *testing.T) {
	noLeak(t)
	for name, bad := range map[string]func(good []byte) []byte{
		"corrupt": func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"empty":   func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var fatal []error
			s, err := state.Open(state.Config{
				FS: disk.NewCrash(1), Dir: "/m/state", Fatal: func(err error) { fatal = append(fatal, err) },
			})
			require.NoError(t, err)
			a := begin(t, s)
			at := s.Applied()
			got, _ := s.Apply(a.entry(), 2, bad(encode(t, a.command(newTopic(1, 1)...)))).(error)
			var corrupt *command.CorruptError
			require.ErrorAs(t, got, &corrupt)
			require.Len(t, fatal, 1)
			a.sequence--
			got, _ = s.Apply(a.entry(), 2, encode(t, a.command(newTopic(1, 1)...))).(error)
			require.ErrorIs(t, got, state.ErrStopped)
			require.Equal(t, at, s.Applied())
			_, err = s.Checkpoint("/m/copy")
			require.ErrorIs(t, err, state.ErrStopped)
			require.ErrorIs(t, s.Restore("/m/copy"), state.ErrStopped)
			require.NoError(t, s.Close())
		})
	}
}

// The state equals a twin in memory after every command, and after reopening.
func TestTwin(t *testing.T) {
	noLeak(t)
	for seed := range uint64(2) {
		fs := disk.NewCrash(seed)
		s := open(t, fs)
		a, w := begin(t, s), newWorkload(seed)
		twin := s.Image()
		for n := range 120 {
			c := a.command(w.step(t, a.nowMs+10)...)
			index := a.entry()
			require.Nil(t, s.Apply(index, 2, encode(t, c)))
			var err error
			twin, _, err = twin.Apply(image.Position{Index: index, Term: 2}, c)
			require.NoError(t, err)
			if n%30 == 0 {
				require.NoError(t, s.Close())
				s = open(t, fs)
			}
			require.Equal(t, entries(twin), entries(s.Image()))
			for tp, tab := range w.tables {
				var all []catalog.Segment
				for seg, err := range s.Segments(tp, 0) {
					require.NoError(t, err)
					all = append(all, seg)
				}
				sum, _ := s.Summary(tp)
				require.Equal(t, tab.Summary, sum)
				require.Equal(t, len(tab.All()), len(all))
				if len(all) > 0 {
					require.Equal(t, tab.All(), all)
				}
			}
		}
		require.NoError(t, s.Close())
	}
}

// After a power loss the state is that of some earlier command, whole, and not
// before the last checkpoint (T1); the rest can be applied again.
func TestPowerLoss(t *testing.T) {
	noLeak(t)
	rng := rand.New(rand.NewPCG(8, 8))
	fs := disk.NewCrash(1)
	s := open(t, fs)
	a, w := begin(t, s), newWorkload(4)
	type past struct {
		data    []byte
		entries []string
		catalog []string
	}
	history := map[uint64]past{s.Applied(): {entries: entries(s.Image()), catalog: contents(t, s)}}
	order := []uint64{s.Applied()}
	durable := uint64(0)
	for n := range 50 {
		index, data := a.entry(), encode(t, a.command(w.step(t, a.nowMs+10)...))
		require.Nil(t, s.Apply(index, 2, data))
		history[index] = past{data: data, entries: entries(s.Image()), catalog: contents(t, s)}
		order = append(order, index)
		if rng.IntN(20) == 0 {
			applied, err := s.Checkpoint(fmt.Sprintf("/m/copy-%d", n))
			require.NoError(t, err)
			require.Equal(t, index, applied)
			durable = index
		}
		if rng.IntN(5) > 0 {
			continue
		}
		again := open(t, fs.Clone(rng))
		found := again.Applied()
		require.GreaterOrEqual(t, found, durable)
		if found > 0 {
			require.Equal(t, history[found].entries, entries(again.Image()))
			require.Equal(t, history[found].catalog, contents(t, again))
			for _, index := range order {
				require.Nil(t, again.Apply(index, 2, history[index].data))
			}
			require.Equal(t, contents(t, s), contents(t, again))
		}
		require.NoError(t, again.Close())
	}
	require.NoError(t, s.Close())
}

func TestCheckpointAndRestore(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	s := open(t, fs)
	a, w := begin(t, s), newWorkload(5)
	for range 80 {
		a.apply(t, s, w.step(t, a.nowMs+10)...)
	}
	applied, err := s.Checkpoint("/m/copy")
	require.NoError(t, err)
	require.Equal(t, s.Applied(), applied)
	want, wantImage := contents(t, s), entries(s.Image())
	for range 30 {
		a.apply(t, s, w.step(t, a.nowMs+10)...)
	}

	var changes []state.Change
	other, err := state.Open(state.Config{FS: fs, Dir: "/m/other", Applied: func(c state.Change) { changes = append(changes, c) }})
	require.NoError(t, err)
	b := begin(t, other)
	b.apply(t, other, newTopic(200, 1)...)
	tp := cluster.TopicPartition{Topic: topicID(200)}
	b.apply(t, other, started(tp, 1, 0, 5), published(tp, 1, 1))
	changes = nil
	// A reader in the middle of a sequence keeps the old state.
	for seg, err := range other.Live(tp, 0) {
		require.NoError(t, err)
		require.NoError(t, other.Restore("/m/copy"))
		require.Equal(t, segmentID(1), seg.ID)
	}
	require.Equal(t, want, contents(t, other))
	require.Equal(t, wantImage, entries(other.Image()))
	require.Equal(t, applied, other.Applied())
	require.Len(t, changes, 1)
	require.Contains(t, changes[0].Partitions, tp)
	require.Equal(t, other.Image(), changes[0].Image)
	require.Equal(t, uint64(1), other.Counts().Restores)
	_, ok, err := other.FindOffset(tp, 1)
	require.NoError(t, err)
	require.False(t, ok)

	// The copy is untouched, and the restored state goes on by itself.
	c := &author{epoch: 3, index: applied + 10, nowMs: a.nowMs}
	require.Nil(t, other.Apply(c.entry(), 3, encode(t, c.command(command.ControllerStarted{Node: 2}))))
	require.NoError(t, other.Close())
	names, err := fs.List("/m/other")
	require.NoError(t, err)
	require.Equal(t, []string{"00000002", "current"}, names)
	other, err = state.Open(state.Config{FS: fs, Dir: "/m/other"})
	require.NoError(t, err)
	require.Equal(t, cluster.BrokerID(2), other.Image().Controller())
	require.NoError(t, other.Restore("/m/copy"))
	require.Equal(t, want, contents(t, other))
	require.NoError(t, other.Close())
	require.NoError(t, s.Close())
}

// A restore that loses power is done or not done.
func TestRestorePowerLoss(t *testing.T) {
	noLeak(t)
	rng := rand.New(rand.NewPCG(8, 9))
	var before, after int
	for step := int64(0); ; step += 5 {
		fs := disk.NewCrash(uint64(step))
		s := open(t, fs)
		a := begin(t, s)
		a.apply(t, s, newTopic(1, 1)...)
		_, err := s.Checkpoint("/m/copy")
		require.NoError(t, err)
		require.NoError(t, s.Close())

		cfg := state.Config{FS: fs, Dir: "/m/other"}
		other, err := state.Open(cfg)
		require.NoError(t, err)
		require.NoError(t, other.Close())
		var mu sync.Mutex // the replaced database is closed on a goroutine of its own
		var clones []*disk.Crash
		fault := disk.NewFault(fs, nil)
		cfg.FS, cfg.Fatal = fault, func(err error) { t.Error(err) }
		other, err = state.Open(cfg)
		require.NoError(t, err)
		start := fault.Calls()
		fault.SetInjector(func(op disk.Op) error {
			if op.Index == start+step && op.Kind.Mutates() {
				mu.Lock()
				defer mu.Unlock()
				clones = append(clones, fs.Clone(rng), fs.Clone(rng))
			}
			return nil
		})
		require.NoError(t, other.Restore("/m/copy"))
		mu.Lock()
		last := fs.Clone(rng)
		mu.Unlock()
		require.NoError(t, other.Close())
		done := fault.Calls() <= start+step
		clones = append(clones, last)
		for i, clone := range clones {
			again, err := state.Open(state.Config{FS: clone, Dir: "/m/other"})
			require.NoError(t, err)
			switch again.Image().TopicCount() {
			case 0:
				before++
				require.Less(t, i, len(clones)-1, "a restore that returned is durable")
			case 1:
				after++
			}
			require.NoError(t, again.Close())
		}
		if done {
			break
		}
	}
	require.Positive(t, before)
	require.Positive(t, after)
}

// Whatever call fails, the state is that of a command it has applied.
func TestEveryCallFails(t *testing.T) {
	for step := int64(0); ; step += 4 {
		crash := disk.NewCrash(uint64(step))
		fault := disk.NewFault(crash, disk.FailOnce(step))
		fatal := make(chan error, 16)
		done := make(chan struct{})
		var failed error
		go func() {
			defer close(done)
			s, err := state.Open(state.Config{FS: fault, Dir: "/m/state", Fatal: func(err error) { fatal <- err }})
			if failed = err; err != nil {
				return
			}
			a := begin(t, s)
			a.apply(t, s, newTopic(1, 1)...)
			if _, err := s.Checkpoint("/m/copy"); err == nil {
				failed = errors.Join(failed, s.Restore("/m/copy"))
			} else {
				failed = err
			}
			failed = errors.Join(failed, s.Close())
		}()
		select {
		case <-done:
			if failed != nil {
				require.ErrorContains(t, failed, disk.ErrInjected.Error())
			}
		case err := <-fatal:
			require.ErrorContains(t, err, disk.ErrInjected.Error())
		}
		again := open(t, crash.Kill())
		if n := again.Image().TopicCount(); n == 1 {
			_, ok := again.Image().Topic("topic-001")
			require.True(t, ok)
		}
		require.NoError(t, again.Close())
		if fault.Calls() <= step {
			break
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	s := open(t, fs)
	begin(t, s)
	require.NoError(t, s.Close())
	try := func() error {
		s, err := state.Open(state.Config{FS: fs, Dir: "/m/state"})
		if err == nil {
			require.NoError(t, s.Close())
		}
		return err
	}
	set := func(value []byte) {
		db, err := store.Open(store.Config{FS: fs, Dir: "/m/state/00000001"})
		require.NoError(t, err)
		b := db.NewBatch()
		b.Set(store.AppliedKey(), value)
		require.NoError(t, b.Commit(store.Sync))
		require.NoError(t, b.Close())
		require.NoError(t, db.Close())
	}
	set([]byte{2, 0, 0, 0, 0, 0, 0, 0, 1})
	require.ErrorIs(t, try(), state.ErrNewerFormat)
	set([]byte{1, 0, 0, 0, 0, 0, 0, 0, 99})
	var corrupt *store.CorruptError
	require.ErrorAs(t, try(), &corrupt)
	set([]byte{1})
	require.ErrorContains(t, try(), "1 bytes")

	// A live folder that is gone begins again; the quorum knows whether the
	// rest can be replayed.
	require.NoError(t, fs.RemoveAll("/m/state/00000001"))
	require.NoError(t, fs.MkdirAll("/m/state/00000007"))
	require.NoError(t, try())
	_, err := fs.Stat("/m/state/00000007")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, disk.WriteFileAtomic(fs, "/m/state/current", []byte("x")))
	require.ErrorContains(t, try(), "names no folder")
}
