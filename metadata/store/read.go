package store

import (
	"bytes"
	"errors"
	"iter"

	"github.com/cockroachdb/pebble/v2"
)

func get(dir string, r pebble.Reader, key []byte) ([]byte, bool, error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, wrap(dir, key, err)
	}
	out := bytes.Clone(value)
	if out == nil {
		out = []byte{}
	}
	return out, true, closer.Close()
}

func last(dir string, r pebble.Reader, rng Range) (Entry, bool, error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: rng.Lower, UpperBound: rng.Upper})
	if err != nil {
		return Entry{}, false, wrap(dir, rng.Lower, err)
	}
	var e Entry
	found := it.Last()
	if found {
		e.Key = bytes.Clone(it.Key())
		value, verr := it.ValueAndErr()
		e.Value, err = bytes.Clone(value), verr
	}
	err = errors.Join(err, it.Error(), it.Close())
	return e, found && err == nil, wrap(dir, rng.Lower, err)
}

// scan iterates with the DB held open.
func scan(d *DB, r pebble.Reader, rng Range) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if !d.gate.enter() {
			yield(Entry{}, ErrClosed)
			return
		}
		defer d.gate.leave()
		it, err := r.NewIter(&pebble.IterOptions{LowerBound: rng.Lower, UpperBound: rng.Upper})
		if err != nil {
			yield(Entry{}, wrap(d.dir, rng.Lower, err))
			return
		}
		defer func() { _ = it.Close() }() // its error is Error's
		for ok := it.First(); ok; ok = it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				yield(Entry{}, wrap(d.dir, it.Key(), err))
				return
			}
			if !yield(Entry{Key: it.Key(), Value: value}, nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(Entry{}, wrap(d.dir, rng.Lower, err))
		}
	}
}

// Snapshot is a DB at one moment. It holds the DB open until Close, so it must
// be short-lived. It is for one goroutine.
type Snapshot struct {
	db   *DB
	snap *pebble.Snapshot
}

// Get implements Reader, as do the methods below.
func (s *Snapshot) Get(key []byte) ([]byte, bool, error) { return get(s.db.dir, s.snap, key) }

func (s *Snapshot) Scan(r Range) iter.Seq2[Entry, error] { return scan(s.db, s.snap, r) }

func (s *Snapshot) Last(r Range) (Entry, bool, error) { return last(s.db.dir, s.snap, r) }

// Close ends the snapshot; a second Close does nothing.
func (s *Snapshot) Close() error {
	if s.snap == nil {
		return nil
	}
	err := s.snap.Close()
	s.snap = nil
	s.db.gate.leave()
	return err
}
