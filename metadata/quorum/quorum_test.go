package quorum_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
	"strandline/metadata/quorum"
)

// small limits make snapshots come after a few commands.
func small(c *quorum.Config) {
	c.Limits = quorum.Limits{SnapshotBytes: 4 << 10, SnapshotEntries: 20, TrailingBytes: 1 << 10, TrailingEntries: 5}
}

func TestLoneVoter(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	began := time.Now()
	q, _ := mustStart(t, fs, nil)
	require.NoError(t, lead(q))
	// Waiting for a timeout would take 250 ms or more.
	require.Less(t, time.Since(began), 200*time.Millisecond)

	tenure, _ := q.Tenure()
	require.Equal(t, "1-a", q.Leader())
	require.ErrorContains(t, q.Bootstrap(nil), "before")
	answer, index, err := q.Propose([]byte("one")).Wait()
	require.NoError(t, err)
	require.Equal(t, "1:one", answer)
	propose(t, q, "two")
	require.Greater(t, q.Status().Applied, index)
	require.Equal(t, "Leader", q.Status().State)
	require.NoError(t, q.Close())
	require.NoError(t, q.Close())
	_, _, err = q.Propose([]byte("late")).Wait()
	require.ErrorIs(t, err, quorum.ErrOutcomeUnknown)

	q, c := mustStart(t, fs, nil)
	require.NoError(t, lead(q))
	require.Equal(t, []string{"one", "two"}, c.commands())
	later, _ := q.Tenure()
	require.Greater(t, later.Term, tenure.Term, "each tenure has a term of its own")
	require.NoError(t, q.Close())
}

// A restart replays what came after the last checkpoint, and no more.
func TestRestartReplaysTheRest(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	q, _ := mustStart(t, fs, nil)
	require.NoError(t, lead(q))
	for i := range 10 {
		propose(t, q, fmt.Sprint(i))
	}
	require.NoError(t, q.Snapshot())
	require.NoError(t, q.Snapshot(), "nothing new is no error")
	for i := range 7 {
		propose(t, q, fmt.Sprint(10+i))
	}
	require.NoError(t, q.Close())
	q, c := mustStart(t, fs, nil)
	require.NoError(t, lead(q))
	seen, skipped, restored := c.counts()
	require.Equal(t, 7, seen)
	require.Zero(t, skipped)
	require.Zero(t, restored, "the state was not behind")
	require.Len(t, c.commands(), 17)
	require.NoError(t, q.Close())
}

func TestLogIsBounded(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	q, c := mustStart(t, fs, small)
	require.NoError(t, lead(q))
	for i := range 300 {
		propose(t, q, fmt.Sprintf("%03d", i))
	}
	require.NoError(t, q.Snapshot())
	require.NoError(t, q.Close())

	// Whatever was replayed is what the log still held.
	fs2 := fs.Kill()
	require.NoError(t, fs2.Remove(dir+"/state.json"))
	q, c2 := mustStart(t, fs2, small)
	require.NoError(t, lead(q))
	seen, _, restored := c2.counts()
	require.LessOrEqual(t, seen, 20)
	require.Equal(t, 1, restored, "a lost state comes from the snapshot")
	require.Equal(t, c.commands(), c2.commands())
	require.NoError(t, q.Close())
	names, err := fs2.List(dir + "/snapshots")
	require.NoError(t, err)
	require.Len(t, names, 1)
}

// Neither a state nor a log may be lost on its own.
func TestGapIsRefused(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	q, _ := mustStart(t, fs, small)
	require.NoError(t, lead(q))
	for i := range 60 {
		propose(t, q, fmt.Sprint(i))
	}
	require.NoError(t, q.Snapshot())
	require.NoError(t, q.Close())
	require.NoError(t, fs.Remove(dir+"/state.json"))
	require.NoError(t, fs.RemoveAll(dir+"/snapshots"))
	_, _, err := start(fs, small)
	var corrupt *quorum.CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.ErrorContains(t, err, "the log begins at")
}

// A log that lost its end would give the indexes that the state has applied to
// other commands, which the state would skip.
func TestLogThatLostItsEndIsRefused(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	q, c := mustStart(t, fs, nil)
	require.NoError(t, lead(q))
	propose(t, q, "early")
	before := fs.Kill()
	for i := range 10 {
		propose(t, q, fmt.Sprint(i))
	}
	require.NoError(t, q.Close())
	state, err := json.Marshal(counterState{Applied: c.Applied(), Commands: c.commands()})
	require.NoError(t, err)
	require.NoError(t, disk.WriteFileAtomic(before, dir+"/state.json", state))
	_, _, err = start(before, nil)
	var corrupt *quorum.CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.ErrorContains(t, err, "the log ends at")
}

func TestDamagedSnapshotIsReported(t *testing.T) {
	noLeak(t)
	fs := disk.NewCrash(1)
	q, _ := mustStart(t, fs, nil)
	require.NoError(t, lead(q))
	propose(t, q, "x")
	require.NoError(t, q.Snapshot())
	require.NoError(t, q.Close())
	names, err := fs.List(dir + "/snapshots")
	require.NoError(t, err)
	meta := dir + "/snapshots/" + names[0] + "/meta.json"
	for _, bad := range []string{"{", `{"format":9}`} {
		require.NoError(t, disk.WriteFileAtomic(fs, meta, []byte(bad)))
		_, _, err = start(fs, nil)
		var corrupt *quorum.CorruptError
		require.ErrorAs(t, err, &corrupt)
		require.Equal(t, meta, corrupt.Name)
	}
}

// What was acknowledged survives a power loss at any moment.
func TestPowerLoss(t *testing.T) {
	noLeak(t)
	rng := rand.New(rand.NewPCG(5, 6))
	fs := disk.NewCrash(2)
	q, c := mustStart(t, fs, small)
	require.NoError(t, lead(q))
	for i := range 150 {
		p := q.Propose(fmt.Appendf(nil, "%d", i))
		if rng.IntN(5) == 0 {
			// Just now: in the middle of the proposal, and often of a snapshot.
			acked := c.commands()
			clone := fs.Clone(rng)
			again, c2 := mustStart(t, clone, small)
			require.NoError(t, lead(again))
			got := c2.commands()
			require.GreaterOrEqual(t, len(got), len(acked))
			require.Equal(t, acked, got[:len(acked)])
			require.LessOrEqual(t, len(got), i+1)
			propose(t, again, "more")
			require.NoError(t, again.Close())
		}
		_, _, err := p.Wait()
		require.NoError(t, err)
	}
	require.NoError(t, q.Close())
}

// Whatever call to the disk fails: what was acknowledged is there, and the
// quorum opens again.
func TestEveryCallFails(t *testing.T) {
	var failures int
	stride := int64(2) // a call in two: their order varies from run to run
	if testing.Short() {
		stride = 7
	}
	for step := int64(0); ; step += stride {
		crash := disk.NewCrash(uint64(step))
		fault := disk.NewFault(crash, disk.FailOnce(step))
		fatal := make(chan error, 64)
		var acked atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			q, _, err := start(fault, func(c *quorum.Config) {
				small(c)
				c.Fatal = func(err error) { fatal <- err }
			})
			if err != nil {
				fatal <- err
				return
			}
			if err := lead(q); err != nil {
				fatal <- err
			}
			for i := range 6 {
				if _, _, err := q.Propose(fmt.Appendf(nil, "%d", i)).Wait(); err == nil {
					acked.Add(1)
				}
				if i == 3 {
					if err := q.Snapshot(); err != nil {
						fatal <- err
					}
				}
			}
			if err := q.Close(); err != nil {
				fatal <- err
			}
		}()
		select {
		case <-done:
		case err := <-fatal:
			failures++
			require.ErrorContains(t, err, disk.ErrInjected.Error(), "step %d", step)
			_ = waitOr(done, 10*time.Millisecond) // the engine may have stopped its goroutine
		}
		if len(fatal) > 0 {
			failures++
		}
		want := acked.Load()
		clone := crash.Clone(nil)
		q, c := mustStart(t, clone, small)
		require.NoError(t, lead(q))
		require.GreaterOrEqual(t, int64(len(c.commands())), want, "step %d", step)
		require.NoError(t, q.Close())
		if fault.Calls() <= step {
			break
		}
	}
	require.Positive(t, failures)
}

func waitOr(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// member is one of several servers.
type member struct {
	id string
	fs *disk.Crash
	q  *quorum.Quorum
	c  *counter
}

func startMember(t *testing.T, n *network, fs *disk.Crash, id string, voters []quorum.Server) *member {
	t.Helper()
	require.NoError(t, disk.EnsureDir(fs, dir))
	c, err := openCounter(fs, dir)
	require.NoError(t, err)
	cfg := quorum.Config{FS: fs, Dir: dir, ID: id, Machine: c, Streams: n.port(id)}
	small(&cfg)
	q, err := quorum.Open(cfg)
	require.NoError(t, err)
	if empty, err := q.Empty(); err == nil && empty && len(voters) > 0 {
		require.NoError(t, q.Bootstrap(voters))
	}
	require.NoError(t, q.Start())
	return &member{id: id, fs: fs, q: q, c: c}
}

func leaderOf(t *testing.T, members ...*member) *member {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		woken, over := make(chan struct{}, len(members)), make(chan struct{})
		for _, m := range members {
			tenure, changed := m.q.Tenure()
			if tenure.Leader && m.q.Barrier() == nil {
				close(over)
				return m
			}
			go func() {
				select {
				case <-changed:
				case <-over:
				}
				woken <- struct{}{}
			}()
		}
		select {
		case <-woken:
			close(over)
		case <-deadline:
			t.Fatal("nobody leads")
		}
	}
}

// caughtUp waits until a member has applied what the leader has.
func caughtUp(t *testing.T, m *member, want []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(m.c.commands())
		return bytes.Equal(a, b)
	}, 20*time.Second, 5*time.Millisecond)
}

func TestThreeVotersAndAnObserver(t *testing.T) {
	noLeak(t)
	n := newNetwork()
	voters := []quorum.Server{{ID: "1-a", Voter: true}, {ID: "2-b", Voter: true}, {ID: "3-c", Voter: true}}
	var members []*member
	for i, v := range voters {
		members = append(members, startMember(t, n, disk.NewCrash(uint64(i)), v.ID, voters))
	}
	leader := leaderOf(t, members...)
	for i := range 100 {
		propose(t, leader.q, fmt.Sprint(i))
	}
	for _, m := range members {
		caughtUp(t, m, leader.c.commands())
		if m != leader {
			_, _, err := m.q.Propose([]byte("no")).Wait()
			require.ErrorIs(t, err, quorum.ErrNotLeader)
		}
	}

	// A new server finds the log's beginning gone: it gets the snapshot.
	require.NoError(t, leader.q.Snapshot())
	observer := startMember(t, n, disk.NewCrash(9), "4-d", nil)
	require.NoError(t, leader.q.AddObserver("4-d"))
	caughtUp(t, observer, leader.c.commands())
	_, _, restored := observer.c.counts()
	require.Equal(t, 1, restored)
	servers, err := leader.q.Servers()
	require.NoError(t, err)
	require.Equal(t, append(voters, quorum.Server{ID: "4-d"}), servers)

	// The observer comes back with its snapshot, and does not replay it.
	require.NoError(t, observer.q.Close())
	observer = startMember(t, n, observer.fs, "4-d", nil)
	propose(t, leader.q, "after")
	caughtUp(t, observer, leader.c.commands())

	// The leader is cut off: another one is elected, with a later term.
	before, _ := leader.q.Tenure()
	n.setCut(leader.id, true)
	var rest []*member
	for _, m := range members {
		if m != leader {
			rest = append(rest, m)
		}
	}
	lost := leader.q.Propose([]byte("lost"))
	next := leaderOf(t, rest...)
	after, _ := next.q.Tenure()
	require.Greater(t, after.Term, before.Term)
	_, _, err = lost.Wait()
	require.ErrorIs(t, err, quorum.ErrOutcomeUnknown)
	propose(t, next.q, "kept")
	n.setCut(leader.id, false)
	caughtUp(t, leader, next.c.commands())
	require.NotContains(t, leader.c.commands(), "lost")

	require.NoError(t, next.q.Remove("4-d"))
	for _, m := range append(members, observer) {
		require.NoError(t, m.q.Close())
	}
}
