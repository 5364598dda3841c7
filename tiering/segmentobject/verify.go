package segmentobject

import (
	"context"
	"io"

	"strandline/broker/recordbatch"
	"strandline/tiering/objstore"
)

// Verify reads a whole object, of which only key and size need be known, and
// checks every checksum and every batch, and that the footer says of the batches
// what they are. size < 0: it is asked for.
func Verify(ctx context.Context, s objstore.Store, key string, size int64) (*Index, error) {
	x, err := OpenIndex(ctx, s, key, size)
	if err != nil {
		return nil, err
	}
	f := x.footer
	r, err := s.Get(ctx, key, 0, f.SegmentBytes)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	sc := newScanner(key, f.Base, f.End, f.Sparse, f.SegmentBytes)
	check := indexCheck{x: x}
	sc.onBatch = check.batch
	buf := make([]byte, min(f.ChunkBytes, f.SegmentBytes))
	for pos := int64(0); pos < f.SegmentBytes; {
		b := buf[:min(int64(len(buf)), f.SegmentBytes-pos)]
		if _, err := io.ReadFull(r, b); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if err := x.VerifyChunks(pos, b); err != nil {
			return nil, err
		}
		if err := sc.feed(b); err != nil {
			return nil, err
		}
		pos += int64(len(b))
	}
	if err := sc.finish(); err != nil {
		return nil, err
	}
	st := scanStats{f.MinTimestamp, f.MaxTimestamp, f.RecordCount, f.BatchCount, f.FirstEpoch, f.LastEpoch}
	if sc.stats != st {
		return nil, corrupt(key, f.end(), "the footer says %+v of batches that are %+v", st, sc.stats)
	}
	if check.offsets != x.offsets.len() || check.times != x.times.len() {
		return nil, corrupt(key, f.SegmentBytes, "index entries for positions at which no batch starts")
	}
	return x, nil
}

// indexCheck compares the indexes with the batches, both in the order of
// positions.
type indexCheck struct {
	x              *Index
	offsets, times int // entries passed
}

func (c *indexCheck) batch(b recordbatch.Batch, position, maxBefore int64) error {
	x := c.x
	indexed := c.offsets < x.offsets.len() && x.offsets.position(c.offsets) == position
	if indexed {
		if want := int64(b.BaseOffset() - x.footer.Base); x.offsets.first(c.offsets) != want {
			return corrupt(x.key, position, "the offset index says %d of a batch at %d", x.offsets.first(c.offsets), want)
		}
		c.offsets++
	}
	last := recordbatch.NoTimestamp
	if c.times > 0 {
		last = x.times.first(c.times - 1)
	}
	timed := c.times < x.times.len() && x.times.position(c.times) == position
	switch {
	case timed && (!indexed || x.times.first(c.times) != maxBefore):
		return corrupt(x.key, position, "the time index says %d where the highest timestamp was %d", x.times.first(c.times), maxBefore)
	case timed:
		c.times++
	case indexed && maxBefore > last:
		return corrupt(x.key, position, "the time index lacks the highest timestamp %d", maxBefore)
	}
	return nil
}
