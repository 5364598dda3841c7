package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/tiering/objstore"
	"strandline/tiering/objstore/mem"
)

// partStore is a store in memory that takes parts, and fails steps on request.
type partStore struct {
	objstore.Store
	partBytes int64
	fail      func(verb objstore.Verb, number int) (err error, afterEffect bool)

	mu      sync.Mutex
	next    int
	uploads map[string]map[int][]byte
	begun   map[string]objstore.Upload
}

func newPartStore(partBytes int64) *partStore {
	return &partStore{Store: mem.New(), partBytes: partBytes, uploads: map[string]map[int][]byte{}, begun: map[string]objstore.Upload{}}
}

func (s *partStore) step(verb objstore.Verb, number int, do func() error) error {
	var err error
	var after bool
	if s.fail != nil {
		err, after = s.fail(verb, number)
	}
	if err != nil && !after {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(do(), err)
}

func (s *partStore) PartBytes() int64 { return s.partBytes }

func (s *partStore) BeginUpload(_ context.Context, key string, size int64, _ objstore.PutOptions) (u objstore.Upload, err error) {
	err = s.step(objstore.VerbBegin, 0, func() error {
		s.next++
		u = objstore.Upload{Key: key, ID: fmt.Sprint(s.next), Bytes: size, Begun: time.Now()}
		s.uploads[u.ID], s.begun[u.ID] = map[int][]byte{}, u
		return nil
	})
	return u, err
}

func (s *partStore) PutPart(_ context.Context, u objstore.Upload, number int, body objstore.Body, crc uint32) (p objstore.Part, err error) {
	b := make([]byte, body.Size())
	if _, err := body.ReadAt(b, 0); err != nil {
		return p, err
	}
	if objstore.CRC32C(b) != crc {
		return p, &objstore.Error{Op: objstore.VerbPart, Class: objstore.ErrChecksum}
	}
	err = s.step(objstore.VerbPart, number, func() error {
		s.uploads[u.ID][number] = b
		p = objstore.Part{Number: number, Tag: fmt.Sprintf("%s/%d", u.ID, number)}
		return nil
	})
	return p, err
}

func (s *partStore) CompleteUpload(ctx context.Context, u objstore.Upload, parts []objstore.Part, o objstore.PutOptions) (info objstore.Info, err error) {
	err = s.step(objstore.VerbComplete, 0, func() error {
		stored, ok := s.uploads[u.ID]
		if !ok {
			return &objstore.Error{Op: objstore.VerbComplete, Key: u.Key, Class: objstore.ErrNotFound}
		}
		var whole []byte
		for i, p := range parts {
			if p.Number != i+1 || p.Tag != fmt.Sprintf("%s/%d", u.ID, p.Number) {
				return fmt.Errorf("part %d is %+v", i, p)
			}
			whole = append(whole, stored[p.Number]...)
		}
		if info, err = s.Store.Put(ctx, u.Key, objstore.NewBytesBody(whole), o); err == nil {
			delete(s.uploads, u.ID)
			delete(s.begun, u.ID)
		}
		return err
	})
	return info, err
}

func (s *partStore) AbortUpload(_ context.Context, u objstore.Upload) error {
	return s.step(objstore.VerbAbort, 0, func() error {
		delete(s.uploads, u.ID)
		delete(s.begun, u.ID)
		return nil
	})
}

func (s *partStore) ListUploads(context.Context, string) iter.Seq2[objstore.Upload, error] {
	return func(yield func(objstore.Upload, error) bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, u := range s.begun {
			if !yield(u, nil) {
				return
			}
		}
	}
}

func (s *partStore) pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestEachStepOfAnUploadMayFailOnce injects a failure at each step, before and
// after its effect, until nothing is left to inject.
func TestEachStepOfAnUploadMayFailOnce(t *testing.T) {
	data := randomBytes(1050)
	for _, after := range []bool{false, true} {
		for at := 0; ; at++ {
			var steps, injected atomic.Int64
			synctest.Test(t, func(t *testing.T) {
				s := newPartStore(100)
				s.fail = func(objstore.Verb, int) (error, bool) {
					if steps.Add(1)-1 == int64(at) {
						injected.Add(1)
						return &objstore.Error{Op: objstore.VerbPart, Class: objstore.ErrUnavailable}, after
					}
					return nil, false
				}
				g := objstore.NewGuard(s, objstore.GuardConfig{})
				info, err := g.Put(t.Context(), "k", objstore.NewBytesBody(data), objstore.PutOptions{IfAbsent: true})
				require.NoError(t, err, "step %d, after effect %v", at, after)
				require.EqualValues(t, 1050, info.Bytes)
				require.Equal(t, objstore.CRC32C(data), info.CRC32C)
				b, err := objstore.ReadAll(t.Context(), g, "k", 2000)
				require.NoError(t, err)
				require.True(t, bytes.Equal(data, b))
			})
			if injected.Load() == 0 {
				require.Equal(t, 13, at, "begin, eleven parts, complete")
				break
			}
		}
	}
}

func TestFailedUploadLeavesNoParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, verb := range []objstore.Verb{objstore.VerbPart, objstore.VerbComplete} {
			s := newPartStore(100)
			s.fail = func(v objstore.Verb, number int) (error, bool) {
				if v == verb && (number == 0 || number == 7) {
					return &objstore.Error{Op: v, Class: objstore.ErrUnavailable}, false
				}
				return nil, false
			}
			g := objstore.NewGuard(s, objstore.GuardConfig{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := g.Put(ctx, "k", objstore.NewBytesBody(randomBytes(1050)), objstore.PutOptions{IfAbsent: true})
			require.ErrorIs(t, err, objstore.ErrUnavailable)
			require.Zero(t, s.pending())
			_, err = g.Head(t.Context(), "k")
			require.ErrorIs(t, err, objstore.ErrNotFound)
		}
	})
}

func TestUploadConditionAndChecksum(t *testing.T) {
	s := newPartStore(100)
	g := objstore.NewGuard(s, objstore.GuardConfig{})
	data := randomBytes(500)
	_, err := g.Put(t.Context(), "k", objstore.NewBytesBody(data), objstore.PutOptions{IfAbsent: true, CRC32C: 5, HasCRC: true})
	require.ErrorIs(t, err, objstore.ErrChecksum)
	require.Zero(t, s.pending())
	// The key is taken while the parts are under way.
	s.fail = func(v objstore.Verb, number int) (error, bool) {
		if v == objstore.VerbPart && number == 3 {
			_, err := s.Store.Put(context.Background(), "k", objstore.NewBytesBody([]byte("other")), objstore.PutOptions{})
			return err, false
		}
		return nil, false
	}
	_, err = g.Put(t.Context(), "k", objstore.NewBytesBody(data), objstore.PutOptions{IfAbsent: true})
	require.ErrorIs(t, err, objstore.ErrExists)
	require.Zero(t, s.pending())
	s.fail = nil
	_, err = g.Put(t.Context(), "k", objstore.NewBytesBody(data), objstore.PutOptions{IfAbsent: true})
	require.ErrorIs(t, err, objstore.ErrExists, "known before anything is sent")
	require.Equal(t, 2, s.next)
}

func TestStaleUploadsAreAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPartStore(100)
		g := objstore.NewGuard(s, objstore.GuardConfig{})
		_, err := s.BeginUpload(t.Context(), "old", 1000, objstore.PutOptions{})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		_, err = s.BeginUpload(t.Context(), "new", 1000, objstore.PutOptions{})
		require.NoError(t, err)
		n, err := objstore.AbortStaleUploads(t.Context(), g, "", time.Now().Add(-time.Minute))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, 1, s.pending())
	})
}
