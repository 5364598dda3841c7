package faultstore_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/faultstore"
	"strandline/tiering/objstore/mem"
	"strandline/tiering/objstore/objstoretest"
)

func TestSuiteWithoutFaults(t *testing.T) {
	objstoretest.Run(t, objstoretest.Options{}, func(*testing.T) objstore.Store { return faultstore.New(mem.New(), 1) })
}

func put(s objstore.Store, key string) error {
	_, err := s.Put(context.Background(), key, objstore.NewBytesBody([]byte("0123456789")), objstore.PutOptions{})
	return err
}

func TestRulesChooseByVerbKeyAndNumber(t *testing.T) {
	s := faultstore.New(mem.New(), 1)
	injected := s.Add(faultstore.Rule{Verb: objstore.VerbPut, Key: "*.seg", From: 1, Count: 2, Class: objstore.ErrThrottled})
	require.NoError(t, put(s, "a/0.seg"))
	require.NoError(t, put(s, "a/0.txt"))
	for range 2 {
		err := put(s, "a/1.seg")
		require.ErrorIs(t, err, objstore.ErrThrottled)
		require.ErrorIs(t, err, faultstore.ErrInjected)
		require.True(t, objstore.IsRetriable(err))
	}
	require.NoError(t, put(s, "a/1.seg"))
	require.Equal(t, 2, injected())
	require.Equal(t, 5, s.Calls(objstore.VerbPut))
	s.Add(faultstore.Rule{Verb: objstore.VerbDelete, Key: "a/*", Class: objstore.ErrAccess})
	require.NoError(t, s.Delete(t.Context(), "b"))
	require.ErrorIs(t, s.Delete(t.Context(), "b", "a/1.seg"), objstore.ErrAccess)
	s.Add(faultstore.Rule{Verb: objstore.VerbList, Class: objstore.ErrThrottled, AfterEffect: true})
	n := 0
	for _, err := range s.List(t.Context(), "", "") {
		if n++; n <= 3 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, objstore.ErrThrottled)
		}
	}
	require.Equal(t, 4, n)
	s.Clear()
	require.NoError(t, s.Delete(t.Context(), "a/1.seg"))
}

func TestProbabilityIsSeeded(t *testing.T) {
	run := func() (failed []int) {
		s := faultstore.New(mem.New(), 42)
		s.Add(faultstore.Rule{Probability: 0.3, Class: objstore.ErrThrottled})
		for i := range 200 {
			if put(s, "k") != nil {
				failed = append(failed, i)
			}
		}
		return failed
	}
	first := run()
	require.Equal(t, first, run())
	require.InDelta(t, 60, len(first), 25)
}

func TestAfterEffectAndOutage(t *testing.T) {
	s := faultstore.New(mem.New(), 1)
	s.Add(faultstore.Rule{Verb: objstore.VerbPut, Count: 1, Class: objstore.ErrUnavailable, AfterEffect: true})
	require.ErrorIs(t, put(s, "k"), objstore.ErrUnavailable)
	_, err := s.Head(t.Context(), "k")
	require.NoError(t, err, "it took effect")
	s.Outage(true)
	require.ErrorIs(t, put(s, "k"), objstore.ErrUnavailable)
	_, err = s.Get(t.Context(), "k", 0, -1)
	require.ErrorIs(t, err, objstore.ErrUnavailable)
	s.Outage(false)
	require.NoError(t, put(s, "k"))
}

func TestCutBody(t *testing.T) {
	s := faultstore.New(mem.New(), 1)
	require.NoError(t, put(s, "k"))
	s.Add(faultstore.Rule{Verb: objstore.VerbGet, CutBody: 4})
	r, err := s.Get(t.Context(), "k", 0, -1)
	require.NoError(t, err)
	b, err := io.ReadAll(r)
	require.Equal(t, "0123", string(b))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.True(t, objstore.IsRetriable(err))
}

func TestFlip(t *testing.T) {
	s := faultstore.New(mem.New(), 1)
	require.NoError(t, put(s, "k"))
	s.Add(faultstore.Rule{Verb: objstore.VerbGet, Count: 1, Flip: true})
	b, err := objstore.ReadAll(t.Context(), s, "k", 100)
	require.NoError(t, err)
	require.Equal(t, "\xcf123456789", string(b))
	b, err = objstore.ReadAll(t.Context(), s, "k", 100)
	require.NoError(t, err)
	require.Equal(t, "0123456789", string(b))
	require.Equal(t, 3, s.AllCalls())
}

func TestDelayAndHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.New(mem.New(), 1)
		s.Add(faultstore.Rule{Count: 1, Delay: time.Minute})
		s.Add(faultstore.Rule{From: 1, Hang: true})
		start := time.Now()
		require.NoError(t, put(s, "k"))
		require.Equal(t, time.Minute, time.Since(start))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("patience is over"))
		defer cancel()
		_, err := s.Head(ctx, "k")
		require.ErrorContains(t, err, "patience is over")
		require.Equal(t, time.Hour+time.Minute, time.Since(start))
	})
}
