package node_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/disk"
	"strandline/metadata/image"
	"strandline/metadata/node"
	"strandline/metadata/request"
)

func TestStartsFastAndComesBack(t *testing.T) {
	noLeak(t)
	cfg := nodeConfig(t, disk.OS())
	cfg.Dir = filepath.Join(t.TempDir(), "metadata")
	began := time.Now()
	n, err := start(t, cfg, "")
	require.NoError(t, err)
	t.Logf("first start: %v", time.Since(began))
	id := n.ClusterID()
	require.Len(t, id, 22)
	require.Equal(t, id, n.Image().ClusterID())
	require.False(t, n.DirectoryID().IsZero())
	register(t, n)
	topic := create(t, n, "t")
	require.Equal(t, "Leader", n.Status().Quorum.State)
	epoch := n.Image().ControllerEpoch()
	require.NoError(t, n.Close())
	require.NoError(t, n.Close())
	_, err = n.Submit(context.Background(), newTopic("late", 1))
	require.ErrorIs(t, err, request.ErrNotController)

	began = time.Now()
	n, err = start(t, cfg, id)
	require.NoError(t, err)
	t.Logf("second start: %v", time.Since(began))
	require.Equal(t, id, n.ClusterID())
	require.Greater(t, n.Image().ControllerEpoch(), epoch, "each tenure has an epoch of its own")
	again, ok := n.Image().TopicByID(topic.ID)
	require.True(t, ok)
	before := again.Partitions[0].LeaderEpoch
	register(t, n)
	again, _ = n.Image().TopicByID(topic.ID)
	require.Equal(t, cluster.BrokerID(1), again.Partitions[0].Leader)
	require.Greater(t, again.Partitions[0].LeaderEpoch, before, "leader epochs rise at every restart (I3)")
	require.NoError(t, n.Close())
}

func TestSegments(t *testing.T) {
	noLeak(t)
	n := mustStart(t, disk.NewCrash(1))
	register(t, n)
	topic := create(t, n, "t")
	tp := cluster.TopicPartition{Topic: topic.ID}
	var mu sync.Mutex
	var seen []cluster.TopicPartition
	notified := make(chan struct{}, 100)
	cancel := n.Catalog().SubscribeCatalog(func(tp cluster.TopicPartition) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, tp)
		notified <- struct{}{}
	})
	id := cluster.NewSegmentID()
	submit[any](t, n, request.StartSegment{Partition: tp, Span: span(id, 0, 10), Deadline: time.Now().Add(time.Hour)})
	publish := request.PublishSegment{Partition: tp, ID: id, Object: object}
	submit[any](t, n, publish)
	sum, ok := n.Catalog().Summary(tp)
	require.True(t, ok)
	require.Equal(t, cluster.Offset(10), sum.RemoteEnd)
	_, ok, err := n.Catalog().FindOffset(tp, 3)
	require.NoError(t, err)
	require.True(t, ok)
	submit[any](t, n, publish) // once more
	<-notified
	cancel()
	mu.Lock()
	require.Equal(t, tp, seen[0])
	mu.Unlock()

	_, err = n.Submit(context.Background(), request.StartSegment{
		Partition: tp, LeaderEpoch: 5, Span: span(cluster.NewSegmentID(), 10, 20), Deadline: time.Now().Add(time.Hour),
	})
	require.Error(t, err)
	_, err = n.Submit(context.Background(), request.StartSegment{
		Partition: tp, Span: span(cluster.NewSegmentID(), 5, 20), Deadline: time.Now().Add(time.Hour),
	})
	require.ErrorIs(t, err, request.ErrSegmentNotContiguous)
	r := submit[request.LogStart](t, n, request.AdvanceLogStart{Partition: tp, Offset: 10, BatchBase: 10})
	require.Equal(t, cluster.Offset(10), r.Offset)
	submit[request.Outcomes](t, n, request.DeleteTopics{Topics: []request.TopicRef{{Name: "t"}}})
	require.Len(t, n.Catalog().DeletedTopics(), 1)
	submit[any](t, n, request.RemoveSegments{Partition: tp, LeaderEpoch: cluster.NoLeaderEpoch, IDs: []cluster.SegmentID{id}})
	submit[any](t, n, request.RemoveDeletedTopic{Topic: topic.ID})
	require.Empty(t, n.Catalog().DeletedTopics())
	require.NoError(t, n.Close())
}

// A subscriber gets the whole image first and then every change once, each
// leading on from the one before (W2).
func TestSubscribe(t *testing.T) {
	noLeak(t)
	n := mustStart(t, disk.NewCrash(1))
	register(t, n)
	create(t, n, "before")
	var mu sync.Mutex
	topics := map[string]bool{}
	var last *image.Image
	problem := ""
	arrived := make(chan string, 1000)
	cancel := n.Subscribe(func(img *image.Image, d *image.Delta) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case d.To != img:
			problem = "To is not the image"
		case last == nil && d.From.TopicCount() != 0:
			problem = "the first call does not come from the empty image"
		case last != nil && d.From != last:
			problem = "a gap"
		}
		last = img
		for _, c := range d.Topics {
			topics[c.Topic().Name] = c.New != nil
			arrived <- c.Topic().Name
		}
	})
	require.Equal(t, "before", <-arrived)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() { create(t, n, fmt.Sprintf("t%02d", i)) })
	}
	wg.Wait()
	for range 40 {
		<-arrived
	}
	submit[request.Outcomes](t, n, request.DeleteTopics{Topics: []request.TopicRef{{Name: "t07"}}})
	require.Equal(t, "t07", <-arrived)
	cancel()
	create(t, n, "after")
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, problem)
	require.False(t, topics["t07"])
	require.True(t, topics["t08"])
	require.NotContains(t, topics, "after")
	require.NoError(t, n.Close())
}

// A restart replays what came after the last snapshot's flush, and no more.
func TestRestartReplaysTheRest(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	n := mustStart(t, fs)
	register(t, n)
	for i := range 20 {
		create(t, n, fmt.Sprintf("a%d", i))
	}
	require.NoError(t, n.Snapshot())
	for i := range 5 {
		create(t, n, fmt.Sprintf("b%d", i))
	}
	before := n.Status().Counts.Applied
	require.Positive(t, before)
	require.NoError(t, n.Close())
	n = mustStart(t, fs)
	require.Equal(t, 25, n.Image().TopicCount())
	c := n.Status().Counts
	require.LessOrEqual(t, c.Applied, uint64(2), "the state had everything: only the new tenure was applied")
	require.LessOrEqual(t, c.Skipped, uint64(10))
	require.NoError(t, n.Close())

	// A state that lost its unsynced end gets the rest from the Raft log.
	fs = disk.NewCrash(2)
	n = mustStart(t, fs)
	register(t, n)
	create(t, n, "a")
	clone := fs.Clone(nil)
	require.NoError(t, n.Close())
	n = mustStart(t, clone)
	_, ok := n.Image().Topic("a")
	require.True(t, ok)
	require.NoError(t, n.Close())
}

func TestRefusals(t *testing.T) {
	noLeak(t)
	base := disk.NewCrash(1)
	n := mustStart(t, base)
	id := n.ClusterID()
	require.NoError(t, n.Close())
	meta, err := disk.ReadFile(base, dir+"/meta.properties")
	require.NoError(t, err)
	rewrite := func(data string) func(*disk.Crash) {
		return func(fs *disk.Crash) {
			require.NoError(t, disk.WriteFileAtomic(fs, dir+"/meta.properties", []byte(data)))
		}
	}
	for name, c := range map[string]struct {
		damage  func(fs *disk.Crash)
		logDirs string
		change  func(cfg *node.Config)
		cause   error
		reason  string
	}{
		"another node":    {change: func(cfg *node.Config) { cfg.Broker.NodeID = 2 }, cause: node.ErrForeign, reason: "belongs to node.id 1"},
		"another cluster": {logDirs: "other", cause: node.ErrForeign, reason: "the log directories to other"},
		"newer format":    {damage: rewrite(string(meta) + "strandline.format=2\n"), cause: node.ErrNewerFormat, reason: "newer"},
		"empty name":      {damage: rewrite(""), cause: node.ErrForeign, reason: "meta.properties is empty or damaged"},
		"of kafka":        {damage: rewrite("version=1\nnode.id=1\ncluster.id=x\n"), cause: node.ErrForeign, reason: "Apache Kafka"},
		"kafka's log": {damage: func(fs *disk.Crash) {
			require.NoError(t, fs.MkdirAll(dir+"/__cluster_metadata-0"))
		}, cause: node.ErrForeign, reason: "__cluster_metadata-0"},
		"garbage":   {damage: rewrite("what"), reason: "cannot be understood"},
		"no ids":    {damage: rewrite("version=1\nnode.id=1\nstrandline.format=1\n"), cause: node.ErrForeign, reason: "lacks cluster.id"},
		"name lost": {damage: func(fs *disk.Crash) { require.NoError(t, fs.Remove(dir+"/meta.properties")) }, cause: node.ErrWiped, reason: "meta.properties is missing"},
		"raft lost": {damage: func(fs *disk.Crash) { require.NoError(t, fs.RemoveAll(dir+"/raft")) }, cause: node.ErrWiped, reason: "raft log is missing"},
		"raft cut short": {damage: func(fs *disk.Crash) {
			names, err := fs.List(dir + "/raft")
			require.NoError(t, err)
			for _, name := range names {
				if path.Ext(name) != ".log" {
					continue
				}
				f, err := fs.Open(path.Join(dir, "raft", name))
				require.NoError(t, err)
				size, err := f.Size()
				require.NoError(t, err)
				require.NoError(t, f.Truncate(size/2))
				require.NoError(t, f.Close())
			}
		}, reason: "the log ends at"},
		"all lost": {damage: func(fs *disk.Crash) { require.NoError(t, fs.RemoveAll(dir)) }, logDirs: id, cause: node.ErrWiped, reason: "/data"},
		"all but the name lost": {damage: func(fs *disk.Crash) {
			require.NoError(t, fs.RemoveAll(dir+"/raft"))
			require.NoError(t, fs.RemoveAll(dir+"/state"))
		}, logDirs: id, cause: node.ErrWiped, reason: "/data"},
		"another id in the image": {damage: rewrite("version=1\nnode.id=1\ncluster.id=zzz\ndirectory.id=" + n.DirectoryID().String() + "\nstrandline.format=1\n"), cause: node.ErrForeign, reason: "its contents are of " + id},
	} {
		t.Run(name, func(t *testing.T) {
			fs := base.Kill()
			if c.damage != nil {
				c.damage(fs)
			}
			before, _ := fs.List(dir)
			cfg := nodeConfig(t, fs)
			if c.change != nil {
				c.change(&cfg)
			}
			_, err := start(t, cfg, c.logDirs)
			require.ErrorContains(t, err, c.reason)
			var refused *node.DirError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, dir, refused.Dir)
			if c.cause != nil {
				require.ErrorIs(t, err, c.cause)
			}
			if len(before) > 0 && c.logDirs == "" && name != "raft lost" {
				after, _ := fs.List(dir)
				require.Equal(t, before, after, "nothing was added")
			}
		})
	}
}

func TestOneVoterForNow(t *testing.T) {
	cfg := nodeConfig(t, disk.NewCrash(1))
	cfg.Broker.Voters = []config.Voter{{ID: 1}, {ID: 2}}
	_, err := node.Open(cfg)
	require.ErrorContains(t, err, "controller.quorum.voters names node 2")
}

func TestLocked(t *testing.T) {
	noLeak(t)
	cfg := nodeConfig(t, disk.OS())
	cfg.Dir = t.TempDir()
	n, err := node.Open(cfg)
	require.NoError(t, err)
	_, err = node.Open(cfg)
	require.ErrorIs(t, err, disk.ErrLocked)
	require.ErrorContains(t, err, "locked by process")
	var locked *disk.LockedError
	require.ErrorAs(t, err, &locked)
	require.Positive(t, locked.PID)
	require.NoError(t, n.Close())
	n, err = node.Open(cfg)
	require.NoError(t, err)
	require.NoError(t, n.Close())
}

func TestSubmitEndsWithItsContext(t *testing.T) {
	noLeak(t)
	n := mustStart(t, disk.NewCrash(1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := n.Submit(ctx, newTopic("x", 1))
	if err != nil { // it may win the race, and then answer
		require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, request.ErrInvalidReplicas), "%v", err)
	}
	require.NoError(t, n.Close())
}

// A node whose disk fails answers nothing more, and lets go of its lock (D5).
func TestFails(t *testing.T) {
	fault := disk.NewFault(disk.NewCrash(1), nil)
	cfg := nodeConfig(t, fault)
	fatal := make(chan error, 1)
	cfg.Fatal = func(err error) { fatal <- err }
	n, err := start(t, cfg, "")
	require.NoError(t, err)
	register(t, n)
	create(t, n, "kept")
	fault.SetInjector(disk.FailFrom(0, disk.OpSyncData))
	_, err = n.Submit(context.Background(), newTopic("lost", 1))
	require.ErrorIs(t, err, request.ErrOutcomeUnknown)
	require.ErrorContains(t, <-fatal, disk.ErrInjected.Error())
	_, err = n.Submit(context.Background(), newTopic("lost", 1))
	require.Error(t, err)
	require.NoError(t, n.Close())
}

// An answer that changes nothing waits for what was in flight when it was made:
// a publish that is repeated is not confirmed before it is committed (D3).
func TestAnswersWaitForWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := disk.NewFault(disk.NewCrash(1), nil)
		n, err := start(t, nodeConfig(t, fault), "")
		require.NoError(t, err)
		register(t, n)
		tp := cluster.TopicPartition{Topic: create(t, n, "t").ID}
		release := make(chan struct{})
		fault.SetInjector(func(op disk.Op) error {
			if op.Kind == disk.OpSyncData && strings.HasPrefix(op.Name, dir+"/raft/") {
				<-release
			}
			return nil
		})
		req := request.StartSegment{Partition: tp, Span: span(cluster.SegmentID{1}, 0, 10), Deadline: time.Now().Add(time.Hour)}
		ask := func(req request.Request) <-chan error {
			answer := make(chan error, 1)
			go func() {
				_, err := n.Submit(context.Background(), req)
				answer <- err
			}()
			synctest.Wait()
			return answer
		}
		first, again := ask(req), ask(req)
		refused := ask(request.Heartbeat{Broker: 1, Epoch: 12345})
		for _, answer := range []<-chan error{first, again, refused} {
			require.Empty(t, answer)
		}
		_, ok := n.Catalog().Summary(tp)
		require.False(t, ok)
		close(release)
		require.NoError(t, <-first)
		require.NoError(t, <-again)
		require.ErrorIs(t, <-refused, request.ErrStaleBrokerEpoch)
		require.NoError(t, n.Close())
	})
}

// A broker that falls silent is fenced, by the clock alone.
func TestSessionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := mustStart(t, disk.NewCrash(1))
		epoch := register(t, n)
		fenced := make(chan time.Time, 1)
		cancel := n.Subscribe(func(img *image.Image, _ *image.Delta) {
			if b, ok := img.Broker(1); ok && b.Fenced && b.Epoch == epoch {
				select {
				case fenced <- time.Now():
				default:
				}
			}
		})
		began := time.Now()
		at := <-fenced
		// The only broker is over a third of them: it gets one more session.
		require.GreaterOrEqual(t, at.Sub(began), 2*time.Second)
		require.Less(t, at.Sub(began), 6*time.Second)
		cancel()
		require.NoError(t, n.Close())
	})
}
