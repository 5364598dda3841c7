package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeController answers as the controller does, and keeps what it was sent.
type fakeController struct {
	mu       sync.Mutex
	down     error
	fence    bool
	mayStop  bool
	register int
	beats    []request.Heartbeat
}

func (c *fakeController) Submit(_ context.Context, req request.Request) (request.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down != nil {
		return nil, c.down
	}
	switch r := req.(type) {
	case request.RegisterBroker:
		c.register++
		return request.BrokerRegistered{Epoch: 42}, nil
	case request.Heartbeat:
		c.beats = append(c.beats, r)
		caughtUp := r.CaughtUpTo >= 42
		return request.HeartbeatResult{CaughtUp: caughtUp, Fenced: !caughtUp || c.fence, ShouldShutDown: r.WantShutdown && c.mayStop}, nil
	}
	return nil, errors.New("unexpected request")
}

func (c *fakeController) set(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
}

// sent returns the heartbeats so far.
func (c *fakeController) sent() []request.Heartbeat {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.beats)
}

type rig struct {
	ctl     *fakeController
	l       *Lifecycle
	mu      sync.Mutex
	applied uint64
	epochs  []cluster.BrokerEpoch
}

func start(ctl *fakeController) *rig {
	r := &rig{ctl: ctl}
	r.l = Start(Config{
		Submit: ctl, Registration: request.RegisterBroker{Broker: 1, PreviousEpoch: cluster.NoBrokerEpoch},
		HeartbeatEvery: 2 * time.Second, RequestTimeout: time.Second, RegistrationTimeout: time.Minute,
		Activate: func(e cluster.BrokerEpoch) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.epochs = append(r.epochs, e)
		},
		AppliedIndex: func() uint64 { r.mu.Lock(); defer r.mu.Unlock(); return r.applied },
		OfflineDirs:  func() []cluster.DirectoryID { return nil },
	})
	return r
}

func (r *rig) apply(index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applied = index
}

func TestUnfencedOnceCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(&fakeController{})
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, Fenced, r.l.Phase())
		require.Equal(t, []cluster.BrokerEpoch{42}, r.epochs)
		ready, reasons := r.l.Ready()
		require.False(t, ready)
		require.Equal(t, []string{"broker: fenced"}, reasons)
		began := time.Now()
		r.apply(42)
		require.NoError(t, r.l.WaitPhase(t.Context(), Running))
		require.LessOrEqual(t, time.Since(began), 2*eagerEvery)
		ready, _ = r.l.Ready()
		require.True(t, ready)
		require.Equal(t, cluster.BrokerEpoch(42), r.l.Epoch())
		before := len(r.ctl.sent())
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Equal(t, before+10, len(r.ctl.sent()))
		require.NoError(t, r.l.Close())
		require.NoError(t, r.l.Close())
	})
}

func TestControllerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := &fakeController{down: request.ErrNotController}
		r := start(ctl)
		r.apply(100)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, reasons := r.l.Ready()
		require.Contains(t, reasons[0], "not the active controller")
		ctl.set(func() { ctl.down = nil })
		require.NoError(t, r.l.WaitPhase(t.Context(), Running))
		require.Equal(t, 1, ctl.register)
		// Fenced while it was away; unfenced by itself.
		ctl.set(func() { ctl.fence = true })
		require.NoError(t, r.l.WaitPhase(t.Context(), Fenced))
		ctl.set(func() { ctl.fence = false })
		require.NoError(t, r.l.WaitPhase(t.Context(), Running))
		require.Equal(t, []cluster.BrokerEpoch{42}, r.epochs)
		require.NoError(t, r.l.Close())
	})
}

func TestRegistrationGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(&fakeController{down: request.ErrDuplicateBroker})
		err := r.l.WaitPhase(t.Context(), Running)
		require.ErrorIs(t, err, ErrNotRegistered)
		require.ErrorIs(t, err, request.ErrDuplicateBroker)
		require.NoError(t, r.l.Close())
	})
}

func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := &fakeController{}
		r := start(ctl)
		r.apply(42)
		require.NoError(t, r.l.WaitPhase(t.Context(), Running))
		ctl.set(func() { ctl.down = request.ErrStaleBrokerEpoch })
		require.ErrorIs(t, r.l.WaitPhase(t.Context(), Stopped), ErrReplaced)
		require.ErrorIs(t, r.l.Err(), ErrReplaced)
		require.NoError(t, r.l.Close())
	})
}

func TestControlledShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := &fakeController{}
		r := start(ctl)
		r.apply(42)
		require.NoError(t, r.l.WaitPhase(t.Context(), Running))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		require.ErrorIs(t, r.l.Shutdown(ctx), context.DeadlineExceeded, "not before the controller agrees")
		cancel()
		beats := ctl.sent()
		require.True(t, beats[len(beats)-1].WantShutdown)
		ctl.set(func() { ctl.mayStop = true })
		require.NoError(t, r.l.Shutdown(t.Context()))
		require.NoError(t, r.l.Close())
		require.NoError(t, r.l.Err())
	})
}
