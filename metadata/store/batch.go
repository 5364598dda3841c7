package store

import (
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"
)

// Durability tells what a commit waits for.
type Durability bool

const (
	// Sync waits until the batch, with all before it, survives a power loss.
	Sync Durability = true
	// NoSync does not: the batch survives the process, and a power loss from
	// some later moment on.
	NoSync Durability = false
)

// Batch is a list of changes that happen at once. As a Reader it shows the DB
// with the changes made. It is for one goroutine, and must be Closed.
type Batch struct {
	db    *DB
	batch *pebble.Batch
	err   error
}

// NewBatch returns an empty batch.
func (d *DB) NewBatch() *Batch {
	if !d.gate.enter() {
		return &Batch{db: d, err: ErrClosed}
	}
	return &Batch{db: d, batch: d.db.NewIndexedBatch()}
}

// Set stores a value; it keeps neither slice.
func (b *Batch) Set(key, value []byte) {
	if b.err == nil {
		b.err = b.batch.Set(key, value, nil)
	}
}

// Delete removes a key; it need not exist.
func (b *Batch) Delete(key []byte) {
	if b.err == nil {
		b.err = b.batch.Delete(key, nil)
	}
}

// DeleteRange removes every key of a range.
func (b *Batch) DeleteRange(r Range) {
	if b.err == nil {
		b.err = b.batch.DeleteRange(r.Lower, r.Upper, nil)
	}
}

// Get implements Reader, as do Scan and Last.
func (b *Batch) Get(key []byte) ([]byte, bool, error) {
	if b.err != nil {
		return nil, false, b.err
	}
	return get(b.db.dir, b.batch, key)
}

func (b *Batch) Scan(r Range) iter.Seq2[Entry, error] {
	if b.err != nil {
		return func(yield func(Entry, error) bool) { yield(Entry{}, b.err) }
	}
	return scan(b.db, b.batch, r)
}

func (b *Batch) Last(r Range) (Entry, bool, error) {
	if b.err != nil {
		return Entry{}, false, b.err
	}
	return last(b.db.dir, b.batch, r)
}

// Commit makes the changes happen. An error of Set and its like comes from
// here; nothing was changed then. A failure of the engine itself does not
// return (Config.Fatal).
func (b *Batch) Commit(durability Durability) error {
	if b.err != nil {
		return b.err
	}
	opts := pebble.NoSync
	if durability == Sync {
		opts = pebble.Sync
	}
	if err := b.batch.Commit(opts); err != nil {
		return fmt.Errorf("committing to metadata store %s: %w", b.db.dir, err)
	}
	return nil
}

// Close gives the batch's memory back; what was not committed is forgotten. A
// second Close does nothing.
func (b *Batch) Close() error {
	if b.batch == nil {
		return nil
	}
	err := b.batch.Close()
	b.batch, b.err = nil, errors.Join(b.err, ErrClosed)
	b.db.gate.leave()
	return err
}
