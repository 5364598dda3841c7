package mem

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"strandline/tiering/objstore"
)

// Store is an objstore.Store in memory. It survives Close only as garbage.
type Store struct {
	now func() time.Time

	mu      sync.RWMutex
	objects map[string]object
	keys    []string // sorted
	closed  bool
}

// object is one stored object; its bytes never change.
type object struct {
	data []byte
	info objstore.Info
}

// New returns an empty store.
func New() *Store { return &Store{now: time.Now, objects: map[string]object{}} }

func fail(op objstore.Verb, key string, class, cause error) error {
	return &objstore.Error{Op: op, Key: key, Class: class, Cause: cause}
}

// check covers what every call with a key begins with.
func (s *Store) check(ctx context.Context, op objstore.Verb, key string) error {
	if err := ctx.Err(); err != nil {
		return fail(op, key, objstore.ErrUnavailable, err)
	}
	if err := objstore.ValidateKey(key); err != nil {
		return fail(op, key, objstore.ErrInvalidKey, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return fail(op, key, objstore.ErrClosed, nil)
	}
	return nil
}

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Info, error) {
	if err := s.check(ctx, objstore.VerbPut, key); err != nil {
		return objstore.Info{}, err
	}
	data := make([]byte, body.Size())
	if n, err := body.ReadAt(data, 0); n < len(data) {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return objstore.Info{}, fail(objstore.VerbPut, key, objstore.ErrInvalid, err)
	}
	crc := objstore.CRC32C(data)
	if o.HasCRC && o.CRC32C != crc {
		return objstore.Info{}, fail(objstore.VerbPut, key, objstore.ErrChecksum, nil)
	}
	info := objstore.Info{Key: key, Bytes: int64(len(data)), CRC32C: crc, HasCRC: true, Modified: s.now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := slices.BinarySearch(s.keys, key)
	if found && o.IfAbsent {
		return objstore.Info{}, fail(objstore.VerbPut, key, objstore.ErrExists, nil)
	}
	if !found {
		s.keys = slices.Insert(s.keys, i, key)
	}
	s.objects[key] = object{data, info}
	return info, nil
}

func (s *Store) lookup(ctx context.Context, op objstore.Verb, key string) (object, error) {
	if err := s.check(ctx, op, key); err != nil {
		return object{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	obj, ok := s.objects[key]
	if !ok {
		return object{}, fail(op, key, objstore.ErrNotFound, nil)
	}
	return obj, nil
}

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	obj, err := s.lookup(ctx, objstore.VerbGet, key)
	if err != nil {
		return nil, err
	}
	n, err = objstore.ClampRange(off, n, obj.info.Bytes)
	if err != nil {
		return nil, fail(objstore.VerbGet, key, objstore.ErrRange, err)
	}
	return io.NopCloser(bytes.NewReader(obj.data[off : off+n])), nil
}

// Head implements objstore.Store.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	obj, err := s.lookup(ctx, objstore.VerbHead, key)
	return obj.info, err
}

// Delete implements objstore.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := s.check(ctx, objstore.VerbDelete, key); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if i, found := slices.BinarySearch(s.keys, key); found {
			s.keys = slices.Delete(s.keys, i, i+1)
			delete(s.objects, key)
		}
	}
	return nil
}

// List implements objstore.Store. No lock is held while the caller's code runs.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(objstore.Info{}, fail(objstore.VerbList, prefix, objstore.ErrUnavailable, err))
			return
		}
		for {
			info, ok, err := s.next(prefix, after)
			if err != nil {
				yield(objstore.Info{}, err)
				return
			}
			if !ok || !yield(info, nil) {
				return
			}
			after = info.Key
		}
	}
}

// next returns the first object after a key.
func (s *Store) next(prefix, after string) (objstore.Info, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return objstore.Info{}, false, fail(objstore.VerbList, prefix, objstore.ErrClosed, nil)
	}
	i, found := slices.BinarySearch(s.keys, max(prefix, after))
	if found && s.keys[i] == after {
		i++
	}
	if i == len(s.keys) || !strings.HasPrefix(s.keys[i], prefix) {
		return objstore.Info{}, false, nil
	}
	info := s.objects[s.keys[i]].info
	info.CRC32C, info.HasCRC = 0, false
	return info, true, nil
}

// Location implements objstore.Store.
func (s *Store) Location() objstore.Location { return objstore.Location{Scheme: objstore.SchemeMem} }

// Close implements objstore.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

var _ objstore.Store = (*Store)(nil)
