package objstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/faultstore"
	"strandline/tiering/objstore/mem"
)

// guarded is a guard over a faultstore over memory, with its registry.
func guarded(cfg objstore.GuardConfig) (*objstore.Guard, *faultstore.Store, *prometheus.Registry) {
	fault, reg := faultstore.New(mem.New(), 1), prometheus.NewRegistry()
	cfg.Metrics = objstore.NewMetrics(reg)
	return objstore.NewGuard(fault, cfg), fault, reg
}

func count(t *testing.T, reg *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metric:
		for _, m := range f.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !found {
					continue metric
				}
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return 0
}

var ten = []byte("0123456789")

func putTen(s objstore.Store, key string, o objstore.PutOptions) error {
	_, err := s.Put(context.Background(), key, objstore.NewBytesBody(ten), o)
	return err
}

// TestThrottledVerbsAreRetried: OP-03. A 503 on any verb is answered with
// back-off, within a bound.
func TestThrottledVerbsAreRetried(t *testing.T) {
	for _, verb := range []objstore.Verb{objstore.VerbPut, objstore.VerbGet, objstore.VerbHead, objstore.VerbDelete, objstore.VerbList} {
		t.Run(string(verb), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, fault, reg := guarded(objstore.GuardConfig{Attempts: 4, BackoffMin: time.Second, BackoffMax: 3 * time.Second, Rand: func() float64 { return 1 }})
				require.NoError(t, putTen(g, "k", objstore.PutOptions{}))
				call := func() error {
					switch verb {
					case objstore.VerbPut:
						return putTen(g, "k2", objstore.PutOptions{IfAbsent: true})
					case objstore.VerbGet:
						b, err := objstore.ReadRange(t.Context(), g, "k", 2, 3)
						if err == nil && string(b) != "234" {
							t.Errorf("got %q", b)
						}
						return err
					case objstore.VerbHead:
						_, err := g.Head(t.Context(), "k")
						return err
					case objstore.VerbDelete:
						return g.Delete(t.Context(), "x", "y")
					}
					for _, err := range g.List(t.Context(), "", "") {
						return err
					}
					return nil
				}
				fault.Add(faultstore.Rule{Verb: verb, Count: 3, Class: objstore.ErrThrottled})
				start := time.Now()
				require.NoError(t, call())
				require.Equal(t, (1+2+3)*time.Second, time.Since(start), "doubling up to the maximum")
				require.EqualValues(t, 3, count(t, reg, "strandline_remote_requests_total", "verb", string(verb), "result", "throttled"))
				require.EqualValues(t, 3, count(t, reg, "strandline_remote_retries_total", "verb", string(verb)))
				require.NoError(t, g.Delete(t.Context(), "k2"))

				fault.Clear()
				before := fault.Calls(verb)
				fault.Add(faultstore.Rule{Verb: verb, Class: objstore.ErrThrottled})
				err := call()
				require.ErrorIs(t, err, objstore.ErrThrottled)
				require.True(t, objstore.IsRetriable(err), "a caller may try again later")
				require.Equal(t, 4, fault.Calls(verb)-before, "bounded")
			})
		})
	}
}

func TestBackoffHasJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draws := []float64{0, 0.5}
		g, fault, _ := guarded(objstore.GuardConfig{Attempts: 3, BackoffMin: 8 * time.Second, BackoffMax: time.Minute, Rand: func() float64 {
			d := draws[0]
			draws = draws[1:]
			return d
		}})
		fault.Add(faultstore.Rule{Class: objstore.ErrThrottled})
		start := time.Now()
		_, err := g.Head(t.Context(), "k")
		require.Error(t, err)
		require.Equal(t, 4*time.Second+12*time.Second, time.Since(start))
	})
}

func TestPermanentErrorsAreNotRetried(t *testing.T) {
	g, fault, _ := guarded(objstore.GuardConfig{})
	for _, class := range []error{objstore.ErrNotFound, objstore.ErrExists, objstore.ErrAccess, objstore.ErrNoBucket, objstore.ErrRange, objstore.ErrInvalid, objstore.ErrInvalidKey, objstore.ErrClosed} {
		fault.Clear()
		fault.Add(faultstore.Rule{Verb: objstore.VerbHead, Class: class})
		before := fault.Calls(objstore.VerbHead)
		_, err := g.Head(t.Context(), "k")
		require.ErrorIs(t, err, class)
		require.Equal(t, 1, fault.Calls(objstore.VerbHead)-before, "%v", class)
	}
}

// TestDeniedPutIsTriedOnceMore: MinIO denies a put that races with a delete.
func TestDeniedPutIsTriedOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, fault, _ := guarded(objstore.GuardConfig{})
		fault.Add(faultstore.Rule{Verb: objstore.VerbPut, Count: 1, Class: objstore.ErrAccess})
		require.NoError(t, putTen(g, "k", objstore.PutOptions{}))
		fault.Clear()
		fault.Add(faultstore.Rule{Verb: objstore.VerbPut, Class: objstore.ErrAccess})
		before := fault.Calls(objstore.VerbPut)
		require.ErrorIs(t, putTen(g, "k", objstore.PutOptions{}), objstore.ErrAccess)
		require.Equal(t, 2, fault.Calls(objstore.VerbPut)-before)
	})
}

// TestRetriedConditionalPutRecognisesItsObject: O4. The answer of the first
// attempt is lost; the second one finds the key taken.
func TestRetriedConditionalPutRecognisesItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, fault, _ := guarded(objstore.GuardConfig{})
		fault.Add(faultstore.Rule{Verb: objstore.VerbPut, Count: 1, Class: objstore.ErrUnavailable, AfterEffect: true})
		info, err := g.Put(t.Context(), "k", objstore.NewBytesBody(ten), objstore.PutOptions{IfAbsent: true})
		require.NoError(t, err)
		require.EqualValues(t, 10, info.Bytes)
		require.Equal(t, 2, fault.Calls(objstore.VerbPut))
		require.Equal(t, 1, fault.Calls(objstore.VerbHead), "HEAD and compare")

		// Somebody else's object of the same size is no success.
		require.NoError(t, g.Delete(t.Context(), "k"))
		fault.Clear()
		fault.Add(faultstore.Rule{Verb: objstore.VerbPut, Count: 1, Class: objstore.ErrUnavailable})
		_, err = fault.Put(t.Context(), "k", objstore.NewBytesBody([]byte("9876543210")), objstore.PutOptions{})
		require.Error(t, err)
		_, err = fault.Put(t.Context(), "k", objstore.NewBytesBody([]byte("9876543210")), objstore.PutOptions{})
		require.NoError(t, err)
		fault.Clear()
		fault.Add(faultstore.Rule{Verb: objstore.VerbPut, Count: 1, Class: objstore.ErrUnavailable})
		require.ErrorIs(t, putTen(g, "k", objstore.PutOptions{IfAbsent: true}), objstore.ErrExists)

		// On the first attempt the same object is not ours either.
		fault.Clear()
		require.NoError(t, putTen(g, "same", objstore.PutOptions{}))
		require.ErrorIs(t, putTen(g, "same", objstore.PutOptions{IfAbsent: true}), objstore.ErrExists)
	})
}

func TestHangingCallsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, fault, reg := guarded(objstore.GuardConfig{RequestTimeout: 10 * time.Second, Attempts: 2, BackoffMin: time.Second, Rand: func() float64 { return 1 }})
		require.NoError(t, putTen(g, "k", objstore.PutOptions{}))
		fault.Add(faultstore.Rule{Hang: true})
		start := time.Now()
		_, err := g.Head(t.Context(), "k")
		require.ErrorIs(t, err, objstore.ErrStalled)
		require.NotEmpty(t, objstore.Remedy(err))
		require.True(t, objstore.IsRetriable(err))
		require.Equal(t, 21*time.Second, time.Since(start), "two attempts and a wait")
		require.EqualValues(t, 2, count(t, reg, "strandline_remote_requests_total", "verb", "head", "result", "timeout"))
		_, err = g.Get(t.Context(), "k", 0, -1)
		require.ErrorIs(t, err, objstore.ErrStalled)

		// The caller's own end is not retried, nor called a stall.
		fault.Clear()
		fault.Add(faultstore.Rule{Hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		before := fault.Calls(objstore.VerbHead)
		_, err = g.Head(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, fault.Calls(objstore.VerbHead)-before)
	})
}

// slowBody yields a few bytes at a time.
type slowBody struct {
	objstore.Body
	each time.Duration
}

func (b slowBody) ReadAt(p []byte, off int64) (int, error) {
	time.Sleep(b.each)
	return b.Body.ReadAt(p, off)
}

// pacedStore reads a body in small steps, as a slow network does.
type pacedStore struct {
	objstore.Store
	step int64
}

func (s pacedStore) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Info, error) {
	for off := int64(0); off < body.Size(); off += s.step {
		if _, err := body.ReadAt(make([]byte, min(s.step, body.Size()-off)), off); err != nil {
			return objstore.Info{}, err
		}
		if ctx.Err() != nil {
			return objstore.Info{}, &objstore.Error{Op: objstore.VerbPut, Key: key, Class: objstore.ErrUnavailable, Cause: context.Cause(ctx)}
		}
	}
	return s.Store.Put(ctx, key, objstore.NewBytesBody(make([]byte, body.Size())), objstore.PutOptions{})
}

func TestWatchdogWantsProgressNotSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		put := func(each time.Duration, cfg objstore.GuardConfig) (time.Duration, error) {
			cfg.Attempts, cfg.RequestTimeout = 1, 10*time.Second
			g := objstore.NewGuard(pacedStore{mem.New(), 10}, cfg)
			start := time.Now()
			_, err := g.Put(t.Context(), "k", slowBody{objstore.NewBytesBody(make([]byte, 100)), each}, objstore.PutOptions{HasCRC: true})
			return time.Since(start), err
		}
		took, err := put(9*time.Second, objstore.GuardConfig{MinBytesPerSecond: 1})
		require.NoError(t, err, "slow, but moving")
		require.Equal(t, 90*time.Second, took)
		took, err = put(11*time.Second, objstore.GuardConfig{MinBytesPerSecond: 1})
		require.ErrorIs(t, err, objstore.ErrStalled)
		require.Less(t, took, 30*time.Second)
		took, err = put(9*time.Second, objstore.GuardConfig{MinBytesPerSecond: 2})
		require.ErrorIs(t, err, objstore.ErrStalled, "the deadline in all")
		require.Less(t, took, 70*time.Second)
	})
}

func TestReaderResumesAfterACutBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, fault, reg := guarded(objstore.GuardConfig{Attempts: 5})
		require.NoError(t, putTen(g, "k", objstore.PutOptions{}))
		fault.Add(faultstore.Rule{Verb: objstore.VerbGet, Count: 4, CutBody: 2})
		b, err := objstore.ReadAll(t.Context(), g, "k", 100)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(b))
		require.Equal(t, 5, fault.Calls(objstore.VerbGet))
		require.EqualValues(t, 10, count(t, reg, "strandline_remote_bytes_total", "verb", "get"))
		require.EqualValues(t, 4, count(t, reg, "strandline_remote_requests_total", "verb", "get", "result", "unavailable"))
		require.EqualValues(t, 1, count(t, reg, "strandline_remote_requests_total", "verb", "get", "result", "ok"))

		fault.Clear()
		fault.Add(faultstore.Rule{Verb: objstore.VerbGet, CutBody: 1})
		b, err = objstore.ReadRange(t.Context(), g, "k", 2, 5)
		require.NoError(t, err, "one byte an attempt")
		require.Equal(t, "23456", string(b))
		_, err = objstore.ReadRange(t.Context(), g, "k", 2, 6)
		require.ErrorIs(t, err, objstore.ErrUnavailable, "the budget is for the whole body")

		// Cut just before the end, with an unknown length: all was read.
		fault.Clear()
		fault.Add(faultstore.Rule{Verb: objstore.VerbGet, Count: 1, CutBody: 10})
		b, err = objstore.ReadAll(t.Context(), g, "k", 100)
		require.NoError(t, err)
		require.Len(t, b, 10)
	})
}

func TestReaderWaitsForItsConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, reg := guarded(objstore.GuardConfig{RequestTimeout: time.Second})
		require.NoError(t, putTen(g, "k", objstore.PutOptions{}))
		r, err := g.Get(t.Context(), "k", 0, -1)
		require.NoError(t, err)
		for range 10 {
			time.Sleep(time.Hour) // a slow consumer is no stall
			_, err := io.ReadFull(r, make([]byte, 1))
			require.NoError(t, err)
		}
		_, err = r.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.NoError(t, r.Close())
		require.NoError(t, r.Close())
		require.Zero(t, count(t, reg, "strandline_remote_requests_in_flight", "verb", "get"))
	})
}

func TestConcurrencyLimitPerVerb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, fault, reg := guarded(objstore.GuardConfig{Concurrency: map[objstore.Verb]int{objstore.VerbGet: 2}})
		require.NoError(t, putTen(g, "k", objstore.PutOptions{}))
		open := func() io.ReadCloser {
			r, err := g.Get(context.Background(), "k", 0, -1)
			require.NoError(t, err)
			return r
		}
		a, b := open(), open()
		third := make(chan io.ReadCloser, 1)
		go func() { third <- open() }()
		synctest.Wait()
		require.Equal(t, 2, fault.Calls(objstore.VerbGet), "the third waits for a reader to be closed")
		_, err := g.Head(t.Context(), "k")
		require.NoError(t, err, "other verbs go on")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = g.Get(ctx, "k", 0, -1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "waiting ends with the caller's context")
		require.NoError(t, a.Close())
		c := <-third
		_, err = io.ReadAll(b)
		require.NoError(t, err)
		d := open() // b has been read to its end and holds no slot
		for _, r := range []io.Closer{b, c, d} {
			require.NoError(t, r.Close())
		}
		require.NotZero(t, count(t, reg, "strandline_remote_limited_total", "verb", "get"))
		require.Zero(t, count(t, reg, "strandline_remote_requests_in_flight", "verb", "get"))
	})
}

func TestListResumesAndPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, fault, _ := guarded(objstore.GuardConfig{})
		want := []string{}
		for i := range 2500 {
			k := fmt.Sprintf("k/%05d", i)
			require.NoError(t, putTen(g, k, objstore.PutOptions{}))
			want = append(want, k)
		}
		// Each listing fails at its end at first; pages that were full do not
		// get there.
		fault.Add(faultstore.Rule{Verb: objstore.VerbList, Count: 4, Class: objstore.ErrThrottled, AfterEffect: true})
		got := []string{}
		for info, err := range g.List(t.Context(), "k/", "") {
			require.NoError(t, err)
			got = append(got, info.Key)
			if len(got) == 1200 {
				require.NoError(t, g.Delete(t.Context(), "other"), "no slot is held while the caller's code runs")
			}
		}
		require.Equal(t, want, got)
	})
}

func TestOutageEndsCleanly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, fault, _ := guarded(objstore.GuardConfig{})
		fault.Outage(true)
		start := time.Now()
		require.ErrorIs(t, putTen(g, "k", objstore.PutOptions{IfAbsent: true}), objstore.ErrUnavailable)
		require.Less(t, time.Since(start), 30*time.Second)
		require.ErrorIs(t, objstore.Probe(t.Context(), g), objstore.ErrUnavailable)
		fault.Outage(false)
		require.NoError(t, putTen(g, "k", objstore.PutOptions{IfAbsent: true}))
		require.NoError(t, objstore.Probe(t.Context(), g))
	})
}

func TestMetricsAreWellFormed(t *testing.T) {
	g, _, reg := guarded(objstore.GuardConfig{})
	require.NoError(t, putTen(g, "k", objstore.PutOptions{}))
	_, err := objstore.ReadAll(t.Context(), g, "k", 100)
	require.NoError(t, err)
	families, err := reg.Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	require.EqualValues(t, 1, count(t, reg, "strandline_remote_requests_total", "verb", "put", "result", "ok"))
	require.EqualValues(t, 10, count(t, reg, "strandline_remote_bytes_total", "verb", "put"))
	require.EqualValues(t, 1, count(t, reg, "strandline_remote_request_seconds", "verb", "get"))
}

func TestErrorSaysEverything(t *testing.T) {
	err := error(&objstore.Error{Op: objstore.VerbPut, Key: "a/b", Endpoint: "host:9000", Bucket: "bkt", Class: objstore.ErrAccess, Cause: errors.New("403"), Remedy: "do this"})
	require.Equal(t, `put "a/b" in bkt at host:9000: access denied (403); do this`, err.Error())
	require.Equal(t, "do this", objstore.Remedy(fmt.Errorf("wrapped: %w", err)))
	require.Empty(t, objstore.Remedy(errors.New("x")))
	require.False(t, objstore.IsRetriable(errors.New("x")))
}
