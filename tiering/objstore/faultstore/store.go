package faultstore

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"path"
	"sync"
	"time"

	"strandline/tiering/objstore"
)

// ErrInjected is matched by every error that comes from here.
var ErrInjected = errors.New("injected")

// Rule says what happens to the calls that it matches.
type Rule struct {
	// Verb to match; empty: all.
	Verb objstore.Verb
	// Key is a pattern as of path.Match, in which * also matches slashes at
	// the end of a pattern; empty: all. Delete matches if one key does, List by
	// its prefix.
	Key string
	// From and Count choose among the matching calls, counted from 0: those
	// in [From, From+Count). Count 0: all from From on.
	From, Count int
	// Probability, where above 0, chooses among those at random.
	Probability float64
	// Class is the class of the error (objstore.ErrThrottled is S3's 503
	// SlowDown). Nil: no error.
	Class error
	// AfterEffect lets the call happen before it fails: the answer is lost.
	AfterEffect bool
	// Delay passes before anything else, or until the context ends.
	Delay time.Duration
	// Hang waits for the context's end and fails then.
	Hang bool
	// CutBody breaks a body of Get off after so many bytes, where above 0.
	CutBody int64
	// Flip inverts the first byte of a body of Get.
	Flip bool
}

// rule is a Rule with its count.
type rule struct {
	Rule
	matched, injected int
}

// Store wraps another store.
type Store struct {
	inner objstore.Store

	mu    sync.Mutex
	rng   *rand.Rand
	rules []*rule
	down  error
	calls map[objstore.Verb]int
}

// New wraps a store; seed is for Rule.Probability. Closing it closes inner.
func New(inner objstore.Store, seed uint64) *Store {
	return &Store{inner: inner, rng: rand.New(rand.NewPCG(seed, 0)), calls: map[objstore.Verb]int{}}
}

// Add adds a rule and returns how often it has injected so far, asked later.
func (s *Store) Add(r Rule) (injected func() int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := &rule{Rule: r}
	s.rules = append(s.rules, added)
	return func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return added.injected
	}
}

// Clear removes all rules and ends an outage.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules, s.down = nil, nil
}

// Outage makes every call fail until it is called with false.
func (s *Store) Outage(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = nil
	if on {
		s.down = objstore.ErrUnavailable
	}
}

// Calls is how often a verb was called, injected failures included.
func (s *Store) Calls(v objstore.Verb) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[v]
}

// AllCalls is how often any verb was called.
func (s *Store) AllCalls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, calls := range s.calls {
		n += calls
	}
	return n
}

// decide counts a call and returns the first rule that applies.
func (s *Store) decide(verb objstore.Verb, keys ...string) *Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[verb]++
	if s.down != nil {
		return &Rule{Class: s.down}
	}
	var chosen *Rule
	for _, r := range s.rules {
		if r.Verb != "" && r.Verb != verb || !matches(r.Key, keys) {
			continue
		}
		i := r.matched
		r.matched++
		if chosen != nil || i < r.From || r.Count > 0 && i >= r.From+r.Count || r.Probability > 0 && s.rng.Float64() >= r.Probability {
			continue
		}
		r.injected++
		chosen = &r.Rule
	}
	return chosen
}

func matches(pattern string, keys []string) bool {
	if pattern == "" {
		return true
	}
	for _, key := range keys {
		if n := len(pattern) - 1; pattern[n] == '*' && len(key) >= n && key[:n] == pattern[:n] {
			return true
		}
		if ok, err := path.Match(pattern, key); err == nil && ok {
			return true
		}
		if ok, err := path.Match(pattern, path.Base(key)); err == nil && ok {
			return true
		}
	}
	return false
}

func (s *Store) fail(op objstore.Verb, key string, class error, cause error) error {
	loc := s.inner.Location()
	return &objstore.Error{Op: op, Key: key, Endpoint: loc.Endpoint, Bucket: loc.Bucket, Class: class, Cause: cause}
}

// before does what a rule says before the call; an error replaces the call.
func (s *Store) before(ctx context.Context, r *Rule, op objstore.Verb, key string) error {
	if r == nil {
		return nil
	}
	if r.Delay > 0 {
		t := time.NewTimer(r.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return s.fail(op, key, objstore.ErrUnavailable, context.Cause(ctx))
		}
	}
	if r.Hang {
		<-ctx.Done()
		return s.fail(op, key, objstore.ErrUnavailable, context.Cause(ctx))
	}
	if r.Class != nil && !r.AfterEffect {
		return s.fail(op, key, r.Class, ErrInjected)
	}
	return nil
}

// after replaces the answer of a call that took effect.
func (s *Store) after(r *Rule, op objstore.Verb, key string, err error) error {
	if r != nil && r.Class != nil && r.AfterEffect && err == nil {
		return s.fail(op, key, r.Class, ErrInjected)
	}
	return err
}

// call runs fn as the rules say.
func (s *Store) call(ctx context.Context, op objstore.Verb, key string, fn func() error, keys ...string) error {
	r := s.decide(op, append(keys, key)...)
	if err := s.before(ctx, r, op, key); err != nil {
		return err
	}
	return s.after(r, op, key, fn())
}

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (info objstore.Info, err error) {
	err = s.call(ctx, objstore.VerbPut, key, func() error {
		info, err = s.inner.Put(ctx, key, body, o)
		return err
	})
	return info, err
}

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r := s.decide(objstore.VerbGet, key)
	if err := s.before(ctx, r, objstore.VerbGet, key); err != nil {
		return nil, err
	}
	body, err := s.inner.Get(ctx, key, off, n)
	if err := s.after(r, objstore.VerbGet, key, err); err != nil {
		if body != nil {
			_ = body.Close()
		}
		return nil, err
	}
	switch {
	case r == nil:
	case r.CutBody > 0:
		return &cutBody{ReadCloser: body, s: s, key: key, left: r.CutBody}, nil
	case r.Flip:
		return &flippedBody{ReadCloser: body}, nil
	}
	return body, nil
}

// flippedBody begins with a wrong byte.
type flippedBody struct {
	io.ReadCloser
	begun bool
}

func (f *flippedBody) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if n > 0 && !f.begun {
		f.begun = true
		p[0] = ^p[0]
	}
	return n, err
}

// cutBody breaks off.
type cutBody struct {
	io.ReadCloser
	s    *Store
	key  string
	left int64
}

func (c *cutBody) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, c.s.fail(objstore.VerbGet, c.key, objstore.ErrUnavailable, errors.Join(ErrInjected, io.ErrUnexpectedEOF))
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.ReadCloser.Read(p)
	c.left -= int64(n)
	return n, err
}

// Head implements objstore.Store.
func (s *Store) Head(ctx context.Context, key string) (info objstore.Info, err error) {
	err = s.call(ctx, objstore.VerbHead, key, func() error {
		info, err = s.inner.Head(ctx, key)
		return err
	})
	return info, err
}

// Delete implements objstore.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	return s.call(ctx, objstore.VerbDelete, "", func() error { return s.inner.Delete(ctx, keys...) }, keys...)
}

// List implements objstore.Store. AfterEffect fails at the end of the listing.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		r := s.decide(objstore.VerbList, prefix)
		if err := s.before(ctx, r, objstore.VerbList, prefix); err != nil {
			yield(objstore.Info{}, err)
			return
		}
		for info, err := range s.inner.List(ctx, prefix, after) {
			if !yield(info, err) || err != nil {
				return
			}
		}
		if err := s.after(r, objstore.VerbList, prefix, nil); err != nil {
			yield(objstore.Info{}, err)
		}
	}
}

// Location implements objstore.Store.
func (s *Store) Location() objstore.Location { return s.inner.Location() }

// Close implements objstore.Store.
func (s *Store) Close() error { return s.inner.Close() }

var _ objstore.Store = (*Store)(nil)
