package coordinator

import (
	"bytes"
	"encoding/hex"
	"iter"

	"strandline/metadata/cluster"
	"strandline/metadata/store"
)

// get reads an entry of a view.
func get(db store.Reader, tp cluster.TopicPartition, viewKey []byte) (Entry, bool, error) {
	value, ok, err := db.Get(store.AppendViewEntryKey(make([]byte, 0, 64), tp, viewKey))
	if err != nil || !ok {
		return Entry{}, false, err
	}
	e, err := parseRecord(value, false)
	if err != nil {
		return Entry{}, false, corrupt(viewKey, err)
	}
	e.ViewKey = viewKey
	return e, true, nil
}

// scan reads the entries of a view, from a key on.
func scan(db store.Reader, tp cluster.TopicPartition, prefix, from []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		keys := store.ViewEntries(tp, prefix)
		if bytes.Compare(from, prefix) > 0 {
			keys.Lower = store.AppendViewEntryKey(nil, tp, from)
			if keys.Upper != nil && bytes.Compare(keys.Lower, keys.Upper) >= 0 {
				return
			}
		}
		for raw, err := range db.Scan(keys) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			e, err := parseRecord(raw.Value, false)
			if err != nil {
				yield(Entry{}, corrupt(raw.Key, err))
				return
			}
			e.ViewKey = store.ViewKey(raw.Key)
			if !yield(e, nil) {
				return
			}
		}
	}
}

// hasEntry says whether a view has an entry with a prefix.
func hasEntry(db store.Reader, tp cluster.TopicPartition, prefix []byte) (bool, error) {
	for _, err := range db.Scan(store.ViewEntries(tp, prefix)) {
		return err == nil, err
	}
	return false, nil
}

// pendingOf reads the pending records of a view.
func pendingOf(db store.Reader, tp cluster.TopicPartition, prefix []byte) iter.Seq2[Pending, error] {
	return func(yield func(Pending, error) bool) {
		for raw, err := range db.Scan(store.ViewPending(tp)) {
			if err != nil {
				yield(Pending{}, err)
				return
			}
			p, err := parsePending(raw)
			if err != nil {
				yield(Pending{}, err)
				return
			}
			if bytes.HasPrefix(p.ViewKey, prefix) && !yield(p, nil) {
				return
			}
		}
	}
}

// snapshotReader reads what is committed, as of one moment.
type snapshotReader struct {
	snap *store.Snapshot
	tp   cluster.TopicPartition
}

func (r snapshotReader) Get(viewKey []byte) (Entry, bool, error) { return get(r.snap, r.tp, viewKey) }

func (r snapshotReader) Scan(prefix []byte) iter.Seq2[Entry, error] {
	return scan(r.snap, r.tp, prefix, nil)
}

func (r snapshotReader) ScanFrom(prefix, from []byte) iter.Seq2[Entry, error] {
	return scan(r.snap, r.tp, prefix, from)
}

func (r snapshotReader) Sets(prefix []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for note, err := range r.snap.Scan(store.ViewSets(r.tp, prefix)) {
			if err != nil {
				yield(nil, err)
				return
			}
			set := store.ViewSet(note.Key)
			there := string(note.Value) == setFilled
			if !there {
				if there, err = hasEntry(r.snap, r.tp, set); err != nil {
					yield(nil, err)
					return
				}
			}
			if there && !yield(set, nil) {
				return
			}
		}
	}
}

func (r snapshotReader) Pending(prefix []byte) iter.Seq2[Pending, error] {
	return pendingOf(r.snap, r.tp, prefix)
}

// liveReader reads a view with the overlay on top, on the shard's goroutine.
type liveReader struct {
	view    *view
	overlay *overlay
}

func (r liveReader) Get(viewKey []byte) (Entry, bool, error) {
	if e, ok := r.overlay.get(viewKey); ok {
		return e, e.Value != nil, nil
	}
	e, ok, err := get(r.view.db, r.view.tp, viewKey)
	return e, ok, r.view.trouble(err)
}

func (r liveReader) Scan(prefix []byte) iter.Seq2[Entry, error] { return r.ScanFrom(prefix, nil) }

func (r liveReader) ScanFrom(prefix, from []byte) iter.Seq2[Entry, error] {
	above := r.overlay.matching(prefix, from)
	return func(yield func(Entry, error) bool) {
		rest := above
		for e, err := range scan(r.view.db, r.view.tp, prefix, from) {
			if err != nil {
				yield(Entry{}, r.view.trouble(err))
				return
			}
			for len(rest) > 0 && bytes.Compare(rest[0].ViewKey, e.ViewKey) < 0 {
				if rest[0].Value != nil && !yield(rest[0], nil) {
					return
				}
				rest = rest[1:]
			}
			if len(rest) > 0 && bytes.Equal(rest[0].ViewKey, e.ViewKey) {
				e, rest = rest[0], rest[1:]
			}
			if e.Value != nil && !yield(e, nil) {
				return
			}
		}
		for _, e := range rest {
			if e.Value != nil && !yield(e, nil) {
				return
			}
		}
	}
}

func (r liveReader) Sets(prefix []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var last []byte
		for e, err := range r.Scan(prefix) {
			if err != nil {
				yield(nil, err)
				return
			}
			n := r.view.schema.SetBytes(e.ViewKey)
			if n == 0 || bytes.Equal(e.ViewKey[:n], last) {
				continue
			}
			last = append(last[:0], e.ViewKey[:n]...)
			if !yield(last, nil) {
				return
			}
		}
	}
}

func (r liveReader) Pending(prefix []byte) iter.Seq2[Pending, error] {
	return func(yield func(Pending, error) bool) {
		if len(r.view.pending) == 0 {
			return // nothing to look for
		}
		for p, err := range r.view.pendingRecords(prefix) {
			if !yield(p, r.view.trouble(err)) {
				return
			}
		}
	}
}

// corrupt makes a malformed entry an error that has the database replaced.
func corrupt(key []byte, err error) error {
	return &store.CorruptError{Dir: "views", Key: hex.EncodeToString(key), Cause: err}
}
