package node_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
	"strandline/metadata/node"
	"strandline/metadata/request"
)

// ledger is what was asked and what was acknowledged, by topic name.
type ledger struct {
	mu sync.Mutex
	ledgerState
}

type ledgerState struct {
	createAsked, createAcked map[string]bool
	deleteAsked, deleteAcked map[string]bool
	configAsked, configAcked map[string]string
}

func newLedger() *ledger {
	return &ledger{ledgerState: ledgerState{
		createAsked: map[string]bool{}, createAcked: map[string]bool{},
		deleteAsked: map[string]bool{}, deleteAcked: map[string]bool{},
		configAsked: map[string]string{}, configAcked: map[string]string{},
	}}
}

func note[V any](l *ledger, m map[string]V, name string, v V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m[name] = v
}

func clone[V any](m map[string]V) map[string]V {
	out := map[string]V{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func (l *ledger) copy() ledgerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ledgerState{
		clone(l.createAsked), clone(l.createAcked), clone(l.deleteAsked), clone(l.deleteAcked),
		clone(l.configAsked), clone(l.configAcked),
	}
}

// moment is a disk with what was acknowledged before, and asked by then.
type moment struct {
	fs            *disk.Crash
	before, after ledgerState
	kind          string
}

// check starts a node on the disk and compares: nothing acknowledged is lost,
// and there is nothing that nobody asked for.
func (m moment) check(t *testing.T) {
	t.Helper()
	n, err := start(t, small(nodeConfig(t, m.fs)), "")
	require.NoError(t, err, m.kind)
	img := n.Image()
	for name := range m.before.createAcked {
		if _, ok := img.Topic(name); !ok {
			require.True(t, m.after.deleteAsked[name], "%s: acknowledged topic %s is lost", m.kind, name)
		}
	}
	for topic := range img.Topics() {
		require.True(t, m.after.createAsked[topic.Name], "%s: ghost topic %s", m.kind, topic.Name)
		require.False(t, m.before.deleteAcked[topic.Name], "%s: deleted topic %s is back", m.kind, topic.Name)
		value, set := topic.Configs["retention.ms"]
		if want, ok := m.before.configAcked[topic.Name]; ok {
			require.Equal(t, want, value, "%s: acknowledged config of %s", m.kind, topic.Name)
		}
		if set {
			require.Equal(t, m.after.configAsked[topic.Name], value)
		}
	}
	require.NoError(t, n.Close())
}

// OP-05: parallel creations, deletions and config edits; after kill -9 or a
// power loss at any moment the state is the acknowledged one.
func TestParallelChangesSurvive(t *testing.T) {
	noLeak(t)
	const creates, deletes, edits, workers = 200, 100, 100, 12
	fs := disk.NewCrash(3)
	n, err := start(t, small(nodeConfig(t, fs)), "")
	require.NoError(t, err)
	register(t, n)
	l := newLedger()
	rng := rand.New(rand.NewPCG(4, 4))
	var moments []moment
	look := func() {
		before := l.copy()
		kind, seen := "kill", fs.Kill
		if rng.IntN(2) == 0 {
			kind, seen = "power loss", func() *disk.Crash { return fs.Clone(rng) }
		}
		disk := seen()
		moments = append(moments, moment{fs: disk, before: before, after: l.copy(), kind: kind})
	}

	jobs := make(chan func())
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}
	ctx := context.Background()
	created := make([]chan struct{}, creates)
	for i := range created {
		created[i] = make(chan struct{})
	}
	for i := range creates {
		name := fmt.Sprintf("topic-%03d", i)
		jobs <- func() {
			defer close(created[i])
			note(l, l.createAsked, name, true)
			r, err := n.Submit(ctx, newTopic(name, 2))
			if err == nil && r.(request.CreateTopicsResult).Topics[0].Err == nil {
				note(l, l.createAcked, name, true)
			}
		}
		if i < 20 {
			continue
		}
		other := fmt.Sprintf("topic-%03d", i-20)
		switch at := i - 20; {
		case at%2 == 0 && at/2 < deletes:
			jobs <- func() {
				<-created[at]
				note(l, l.deleteAsked, other, true)
				r, err := n.Submit(ctx, request.DeleteTopics{Topics: []request.TopicRef{{Name: other}}})
				if err == nil && r.(request.Outcomes).Errs[0] == nil {
					note(l, l.deleteAcked, other, true)
				}
			}
		case at/2 < edits:
			jobs <- func() {
				<-created[at]
				value := fmt.Sprint(1000 + at)
				note(l, l.configAsked, other, value)
				r, err := n.Submit(ctx, request.AlterConfigs{Resources: []request.AlterConfig{{
					Kind: request.TopicResource, Name: other, Ops: []request.ConfigOp{{Key: "retention.ms", Value: value}},
				}}})
				if err == nil && r.(request.Outcomes).Errs[0] == nil {
					note(l, l.configAcked, other, value)
				}
			}
		}
		if i%12 == 0 {
			look()
		}
	}
	close(jobs)
	wg.Wait()
	look()
	require.Len(t, l.createAcked, creates)
	require.Greater(t, len(l.deleteAcked), 80)
	require.Greater(t, len(l.configAcked), 80)
	require.NoError(t, n.Close())
	for _, m := range moments {
		m.check(t)
	}
}

// Acknowledged publishes and log starts survive a power loss at any moment.
func TestSegmentsSurvive(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(5)
	n, err := start(t, small(nodeConfig(t, fs)), "")
	require.NoError(t, err)
	register(t, n)
	tp := cluster.TopicPartition{Topic: create(t, n, "t").ID}
	rng := rand.New(rand.NewPCG(6, 6))
	for i := range 60 {
		base := cluster.Offset(i * 10)
		id := cluster.NewSegmentID()
		submit[any](t, n, request.StartSegment{Partition: tp, Span: span(id, base, base+10), Deadline: time.Now().Add(time.Hour)})
		submit[any](t, n, request.PublishSegment{Partition: tp, ID: id, Object: object})
		start0 := max(base-50, 0)
		submit[request.LogStart](t, n, request.AdvanceLogStart{Partition: tp, Offset: start0, BatchBase: start0})
		if rng.IntN(5) > 0 {
			continue
		}
		again, err := start(t, small(nodeConfig(t, fs.Clone(rng))), "")
		require.NoError(t, err)
		sum, _ := again.Catalog().Summary(tp)
		require.Equal(t, base+10, sum.RemoteEnd)
		require.Equal(t, start0, sum.LogStart)
		end := start0
		for seg, err := range again.Catalog().Live(tp, start0) {
			require.NoError(t, err)
			require.Equal(t, end, seg.Base, "no gap")
			end = seg.End
		}
		require.Equal(t, base+10, end)
		for seg, err := range again.Catalog().Segments(tp, 0) {
			require.NoError(t, err)
			require.Contains(t, []catalog.State{catalog.Live, catalog.Expired}, seg.State)
		}
		require.NoError(t, again.Close())
	}
	require.NoError(t, n.Close())
}

// Whatever call to the disk fails: what was acknowledged is there after a power
// loss, and the node starts again.
func TestEveryCallFails(t *testing.T) {
	failed := 0
	for step := int64(0); ; step += 9 {
		crash := disk.NewCrash(uint64(step))
		fault := disk.NewFault(crash, disk.FailOnce(step))
		cfg := small(nodeConfig(t, fault))
		fatal := make(chan error, 1)
		cfg.Fatal = func(err error) { fatal <- err }
		var mu sync.Mutex
		acked := map[string]bool{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			n, err := node.Open(cfg)
			if err != nil {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := n.Start(ctx, ""); err == nil {
				register(helperFailed{}, n)
				for i := range 8 {
					name := fmt.Sprintf("t%d", i)
					if res, err := n.Submit(ctx, newTopic(name, 1)); err == nil && res.(request.CreateTopicsResult).Topics[0].Err == nil {
						mu.Lock()
						acked[name] = true
						mu.Unlock()
					}
					if i == 4 {
						_ = n.Snapshot()
					}
				}
			}
			_ = n.Close()
		}()
		select {
		case <-done:
		case err := <-fatal:
			failed++
			require.ErrorContains(t, err, disk.ErrInjected.Error(), "step %d", step)
		}
		mu.Lock()
		want := clone(acked)
		mu.Unlock()
		again, err := start(t, small(nodeConfig(t, crash.Clone(nil))), "")
		require.NoError(t, err, "step %d", step)
		for name := range want {
			_, ok := again.Image().Topic(name)
			require.True(t, ok, "step %d: %s", step, name)
		}
		require.NoError(t, again.Close())
		if fault.Calls() <= step {
			break
		}
	}
	require.Positive(t, failed)
}

// helperFailed ends the goroutine of a helper that fails.
type helperFailed struct{}

func (helperFailed) Errorf(string, ...any) {}

func (helperFailed) FailNow() { runtime.Goexit() }
