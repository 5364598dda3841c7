package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/mem"
)

func TestJudgeClaim(t *testing.T) {
	mine, other := &Claim{Incarnation: "mine"}, &Claim{Incarnation: "other"}
	released := func(c Claim) *Claim { c.Released = true; return &c }
	for _, c := range []struct {
		name  string
		last  *Claim
		known []string
		want  verdict
	}{
		{"nobody, a new disk", nil, nil, takeNow},
		{"an emptied store", nil, []string{"mine"}, takeNow},
		{"after an orderly stop", released(*mine), []string{"mine"}, takeNow},
		{"after a kill, or beside the original", mine, []string{"mine"}, keepWatch},
		{"after a kill two starts ago, of which one claimed nothing", mine, []string{"mine", "next"}, keepWatch},
		{"a copy runs", other, []string{"mine"}, takenOver},
		{"a copy ran", released(*other), []string{"mine"}, takenOver},
		{"the record was removed, the other one runs", other, nil, keepWatch},
		{"the record was removed, the other one has stopped", released(*other), nil, takeNow},
	} {
		require.Equal(t, c.want, judgeClaim(c.last, c.known), c.name)
	}
}

func TestWatching(t *testing.T) {
	began := time.Unix(1000, 0)
	seen := Claim{Number: 3, Incarnation: "x", Renewals: 7}
	renewed := func(n uint64) *Claim { c := seen; c.Renewals = n; return &c }
	quiet := 4 * time.Second
	type look struct {
		at   time.Duration
		last *Claim
		want verdict
	}
	stopped := seen
	stopped.Released = true
	for name, looks := range map[string][]look{
		"silent":                    {{time.Second, &seen, keepWatch}, {quiet, &seen, keepWatch}, {quiet + 1, &seen, takeNow}},
		"one late request":          {{quiet - 1, renewed(8), keepWatch}, {quiet + 1, renewed(8), keepWatch}, {2*quiet - 1, renewed(8), keepWatch}, {2 * quiet, renewed(8), takeNow}},
		"renewed":                   {{time.Second, renewed(8), keepWatch}, {2 * time.Second, renewed(9), isRunning}},
		"renewed often in a moment": {{time.Second, renewed(20), keepWatch}, {2 * time.Second, renewed(21), isRunning}},
		"released":                  {{time.Second, &stopped, takeNow}},
		"a higher one":              {{time.Second, &Claim{Number: 4, Incarnation: "y"}, takenOver}},
		"a higher one, released":    {{time.Second, &Claim{Number: 4, Incarnation: "y", Released: true}, takenOver}},
		"emptied":                   {{quiet, nil, keepWatch}, {quiet + 1, nil, takeNow}},
	} {
		w := watching{seen: seen, since: began}
		for i, l := range looks {
			require.Equal(t, l.want, w.see(l.last, began.Add(l.at), quiet), "%s, look %d", name, i)
		}
	}
}

func TestClaimObjects(t *testing.T) {
	good := `{"format":1,"clusterId":"c","broker":2,"number":3,"incarnation":"x","renewals":4,"released":true,"renewedMs":5}`
	c, err := DecodeClaim("k", []byte(good))
	require.NoError(t, err)
	require.Equal(t, Claim{1, "c", 2, 3, "x", 4, true, 5}, c)
	for _, bad := range []string{"", "{}", "[]", `{"format":1,"clusterId":"c","number":3}`, `{"format":1,"clusterId":"c","incarnation":"x"}`, good[:40]} {
		_, err := DecodeClaim("k", []byte(bad))
		require.ErrorIs(t, err, ErrCorrupt, bad)
	}
	_, err = DecodeClaim("k", []byte(`{"format":2}`))
	require.ErrorIs(t, err, ErrVersion)
}

func FuzzDecodeClaim(f *testing.F) {
	f.Add([]byte(`{"format":1,"clusterId":"c","broker":2,"number":3,"incarnation":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := DecodeClaim("k", b); err == nil {
			require.NotZero(t, c.Number)
			require.NotEmpty(t, c.Incarnation)
		}
	})
}

func TestClaimRecordIsBounded(t *testing.T) {
	r, err := decodeClaimRecord(nil)
	require.NoError(t, err)
	r = r.with("elsewhere", "z")
	for i := range 40 {
		r = r.with("here", fmt.Sprint(i))
	}
	b, err := json.Marshal(r)
	require.NoError(t, err)
	r, err = decodeClaimRecord(b)
	require.NoError(t, err)
	require.Len(t, r.Incarnations["here"], knownIncarnations)
	require.Equal(t, "39", r.Incarnations["here"][knownIncarnations-1])
	require.Equal(t, []string{"z"}, r.Incarnations["elsewhere"])
	_, err = decodeClaimRecord([]byte(`{"format":9}`))
	require.Error(t, err)
	_, err = decodeClaimRecord([]byte(`x`))
	require.Error(t, err)
}

const leaseTick = time.Second

// testDisk is a broker's disk, as far as claims go.
type testDisk struct{ data []byte }

func (d *testDisk) clone() *testDisk { return &testDisk{slices.Clone(d.data)} }

// testProcess is a process on a disk and a store.
type testProcess struct {
	*Ownership
	mu  sync.Mutex
	log bytes.Buffer
}

func (p *testProcess) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *testProcess) errorLines() (lines []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "level=ERROR") {
			lines = append(lines, line)
		}
	}
	return lines
}

// kill ends a process as a kill does.
func (p *testProcess) kill() {
	p.lease.cancel()
	p.lease.done.Wait()
}

func runOn(t *testing.T, store objstore.Store, d *testDisk) *testProcess {
	t.Helper()
	p := &testProcess{}
	p.Ownership = NewOwnership(OwnershipConfig{
		Store: store, ClusterID: "ours", Logger: slog.New(slog.NewTextHandler(p, nil)),
		Lease: LeaseConfig{
			Interval: leaseTick, Broker: 5,
			Load: func() ([]byte, error) { return d.data, nil },
			Save: func(b []byte) error { d.data = slices.Clone(b); return nil },
		},
	})
	p.Start()
	t.Cleanup(p.kill)
	synctest.Wait()
	return p
}

// after lets time pass and the processes do what is due.
func after(d time.Duration) {
	time.Sleep(d) // on the fake clock
	synctest.Wait()
}

func (p *testProcess) requireOwner(t *testing.T) {
	t.Helper()
	require.NoError(t, p.MayDelete())
	_, err := p.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, p.errorLines())
}

func (p *testProcess) requireWaiting(t *testing.T) {
	t.Helper()
	require.ErrorIs(t, p.MayDelete(), ErrUnsettled)
	require.ErrorIs(t, p.Delete(t.Context(), "x"), ErrUnsettled)
	_, err := p.Check(t.Context())
	require.NoError(t, err, "uploads go on")
	require.Empty(t, p.errorLines())
}

func (p *testProcess) requireRefused(t *testing.T) {
	t.Helper()
	require.ErrorIs(t, p.MayDelete(), ErrCopy)
	require.ErrorIs(t, p.Delete(t.Context(), "x"), ErrCopy)
	_, err := p.Check(t.Context())
	require.ErrorIs(t, err, ErrCopy)
	lines := p.errorLines()
	require.Len(t, lines, 1)
	for _, word := range []string{"copy of this broker's disks", "cluster.id=ours", "node.id=5", "remedy=", "remote-claim.json"} {
		require.Contains(t, lines[0], word)
	}
	select {
	case <-p.Lost():
	default:
		t.Fatal("not told")
	}
}

func TestOrderlyRestartDeletesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := mem.New(), &testDisk{}
		for range claimsKept + 10 {
			p := runOn(t, store, d)
			p.requireOwner(t)
			after(2 * leaseTick)
			p.requireOwner(t)
			require.NoError(t, p.Close(t.Context()))
			require.Error(t, p.MayDelete())
		}
		keys := 0
		for info, err := range store.List(t.Context(), "owner/broker-5/", "") {
			require.NoError(t, err)
			require.Contains(t, info.Key, "owner/broker-5/0000000000000000")
			keys++
		}
		require.LessOrEqual(t, keys, claimsKept+1)
		require.GreaterOrEqual(t, keys, claimsKept)
	})
}

func TestKilledProcessIsFollowedWhenItsLeaseHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := mem.New(), &testDisk{}
		first := runOn(t, store, d)
		after(10 * leaseTick)
		first.requireOwner(t)
		first.kill()
		second := runOn(t, store, d)
		second.requireWaiting(t)
		after(leaseQuiet * leaseTick)
		second.requireWaiting(t)
		require.ErrorIs(t, first.MayDelete(), ErrUnsettled, "it could not have deleted any more")
		after(leaseTick)
		second.requireOwner(t)
		// A kill while it waits is no different.
		second.kill()
		third := runOn(t, store, d)
		third.kill()
		fourth := runOn(t, store, d)
		after((leaseQuiet + 1) * leaseTick)
		fourth.requireOwner(t)
	})
}

func TestCloneBesideItsOriginal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := mem.New(), &testDisk{}
		original := runOn(t, store, d)
		after(10 * leaseTick)
		after(leaseTick / 2)
		clone := runOn(t, store, d.clone())
		for range 3 {
			if clone.MayDelete() != nil && len(clone.errorLines()) > 0 {
				break
			}
			clone.requireWaiting(t)
			after(leaseTick)
		}
		clone.requireRefused(t)
		after(100 * leaseTick)
		clone.requireRefused(t)
		original.requireOwner(t)
		// The clone has left nothing behind that would stop the original.
		require.NoError(t, clone.Close(t.Context()))
		require.NoError(t, original.Close(t.Context()))
		runOn(t, store, d).requireOwner(t)
	})
}

func TestCloneOfAStoppedOriginal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := mem.New(), &testDisk{}
		require.NoError(t, runOn(t, store, d).Close(t.Context()))
		copied := d.clone()
		clone := runOn(t, store, copied)
		clone.requireOwner(t)
		// The original refuses, while the clone runs and when it has stopped.
		original := runOn(t, store, d)
		original.requireRefused(t)
		after(100 * leaseTick)
		clone.requireOwner(t)
		original.requireRefused(t)
		require.NoError(t, original.Close(t.Context()))
		require.NoError(t, clone.Close(t.Context()))
		original = runOn(t, store, d)
		original.requireRefused(t)
		require.NoError(t, original.Close(t.Context()))
		// Until a person says that it is the one to keep; then the clone refuses.
		d.data = nil
		original = runOn(t, store, d)
		original.requireOwner(t)
		runOn(t, store, copied).requireRefused(t)
		original.requireOwner(t)
	})
}

// Removing the record does not take the store from a process that runs.
func TestRecordRemovedBesideARunningProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		one := runOn(t, store, &testDisk{})
		after(leaseTick / 2) // else one may replace its claim while the other reads it
		other := runOn(t, store, &testDisk{})
		other.requireWaiting(t)
		after(3 * leaseTick)
		other.requireRefused(t)
		one.requireOwner(t)
	})
}

func TestRunningOwnerFindsAHigherClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := mem.New(), &testDisk{}
		flaky := &pausedStore{Store: store}
		original := runOn(t, flaky, d)
		after(2 * leaseTick)
		flaky.pause(true) // a network that is cut
		clone := runOn(t, store, d.clone())
		after(leaseHold * leaseTick)
		require.ErrorIs(t, original.MayDelete(), ErrUnsettled)
		after(2 * leaseTick)
		clone.requireOwner(t)
		require.Error(t, original.MayDelete())
		flaky.pause(false)
		after(2 * leaseTick)
		original.requireRefused(t)
		clone.requireOwner(t)
	})
}

func TestOutageHoldsDeletionsUpOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flaky := &pausedStore{Store: mem.New()}
		p := runOn(t, flaky, &testDisk{})
		flaky.pause(true)
		after(time.Hour)
		require.ErrorIs(t, p.MayDelete(), ErrUnsettled)
		flaky.pause(false)
		after(leaseTick)
		p.requireOwner(t)
	})
}

// What is under way when the lease ends is cancelled; what takes longer than a
// lease that is renewed is not.
func TestDeletionsEndWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flaky := &pausedStore{Store: mem.New()}
		p := runOn(t, flaky, &testDisk{})
		require.NoError(t, p.WhileOwner(t.Context(), func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * leaseTick):
				return nil
			}
		}))
		flaky.pause(true)
		began := time.Now()
		err := p.WhileOwner(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, ErrUnsettled)
		require.LessOrEqual(t, time.Since(began), leaseHold*leaseTick)
	})
}

func TestEmptiedStoreIsHeldOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := mem.New(), &testDisk{}
		p := runOn(t, store, d)
		after(3 * leaseTick)
		empty := func() {
			for info, err := range store.List(t.Context(), "", "") {
				require.NoError(t, err)
				require.NoError(t, store.Delete(t.Context(), info.Key))
			}
		}
		empty()
		after(leaseTick)
		require.NoError(t, p.MayDelete())
		location, _ := p.Location()
		p.kill()
		empty()
		p = runOn(t, store, d)
		again, _ := p.Location()
		require.NotEqual(t, location, again, "nothing says that it is the same: no live segments")
		p.requireOwner(t)
	})
}

// A bucket and a disk of the release before claims are taken up.
func TestStoreOfAReleaseWithoutClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		before := NewOwnership(OwnershipConfig{Store: store, ClusterID: "ours"})
		layout, err := before.Check(t.Context())
		require.NoError(t, err)
		p := runOn(t, store, &testDisk{})
		p.requireOwner(t)
		again, err := p.Check(t.Context())
		require.NoError(t, err)
		require.Equal(t, layout, again)
		// The earlier release passes over claims.
		_, found, err := before.Peek(t.Context(), time.Second)
		require.NoError(t, err)
		require.True(t, found)
	})
}

// Of many copies that start at the same time one owns the location.
func TestClonesRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kill := range []bool{false, true} {
			store, d := mem.New(), &testDisk{}
			first := runOn(t, store, d)
			if kill {
				first.kill()
			} else {
				require.NoError(t, first.Close(t.Context()))
			}
			var clones []*testProcess
			for range 8 {
				clones = append(clones, runOn(t, store, d.clone()))
			}
			for range 20 {
				after(leaseTick / 2)
				owners := 0
				for _, c := range clones {
					if c.MayDelete() == nil {
						owners++
					}
				}
				require.LessOrEqual(t, owners, 1)
			}
			owners := 0
			for _, c := range clones {
				if c.MayDelete() == nil {
					owners++
					continue
				}
				c.requireRefused(t)
			}
			require.Equal(t, 1, owners)
		}
	})
}

func TestLeaseIntervalIsBounded(t *testing.T) {
	require.Equal(t, LeaseIntervalMin, newLease(LeaseConfig{Interval: 1}).cfg.Interval)
	require.Equal(t, LeaseIntervalMax, newLease(LeaseConfig{Interval: time.Hour}).cfg.Interval)
	require.Zero(t, newLease(LeaseConfig{}).cfg.Interval)
}

// pausedStore fails every put while it is paused.
type pausedStore struct {
	objstore.Store
	mu     sync.Mutex
	paused bool
}

func (s *pausedStore) pause(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = on
}

func (s *pausedStore) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Info, error) {
	s.mu.Lock()
	paused := s.paused
	s.mu.Unlock()
	if paused {
		return objstore.Info{}, errors.New("cut")
	}
	return s.Store.Put(ctx, key, body, o)
}
