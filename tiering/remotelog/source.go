package remotelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"strandline/metadata/catalog"
	"strandline/tiering/rangecache"
	"strandline/tiering/segmentobject"
)

// source gives the cache ranges of one object: its index (index nil), or its
// batches, checked by the index.
type source struct {
	log     *Log
	seg     catalog.Segment
	index   *segmentobject.Index
	corrupt atomic.Int32
}

// Open implements rangecache.Source.
func (s *source) Open(ctx context.Context, position, n int64) (io.ReadCloser, error) {
	s.log.counts.opens.Add(1)
	return s.log.cfg.Store.Get(ctx, s.seg.Key, position, n)
}

// Check implements rangecache.Source.
func (s *source) Check(position int64, data []byte) error {
	if s.index != nil {
		return s.index.VerifyChunks(position, data)
	}
	x, err := segmentobject.ParseIndex(s.seg.Key, s.seg.Object, bytes.Clone(data))
	if err == nil {
		s.log.indexes.put(s.seg.ID, x)
	}
	return err
}

// Retriable implements rangecache.Source. The store retries by itself; what is
// left is a body that broke off, and wrong bytes, which may have been damaged on
// the way, once.
func (s *source) Retriable(err error) bool {
	if errors.Is(err, segmentobject.ErrCorrupt) {
		return s.corrupt.Add(1) == 1
	}
	return errors.Is(err, io.ErrUnexpectedEOF)
}

// check refuses a segment that is not worth asking the store for.
func (l *Log) check(seg catalog.Segment) error {
	if err := l.bad.get(seg.ID); err != nil {
		return err
	}
	if l.cfg.Location == nil {
		return nil
	}
	if here, known := l.cfg.Location(); known && here != seg.Location {
		return fmt.Errorf("%w: %q is in %s, the store is %s", ErrOtherLocation, seg.Key, seg.Location, here)
	}
	return nil
}

var _ rangecache.Source = (*source)(nil)
