package remotelog

import (
	"context"
	"errors"
	"fmt"
	"io"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
	"strandline/tiering/rangecache"
	"strandline/tiering/segmentobject"
)

// randomChunks is how many chunks a read takes that does not go on where another
// had ended; sequentialChunks is the most that any read takes.
const (
	randomChunks     = 2
	sequentialChunks = 8
)

// errPastLast tells that a segment has no batch that reaches past the offset,
// though the offset is in its range: compaction removed it.
var errPastLast = errors.New("no batch at or after the offset in this segment")

// Read implements partition.RemoteLog. A slice ends with its segment at the
// latest. It is empty, with NextOffset where to go on, if the rest of the remote
// part holds no batch any more, or if what follows is not below the bound or
// too large.
func (l *Log) Read(ctx context.Context, tp cluster.TopicPartition, rd partition.RemoteRead) (partition.RemoteSlice, error) {
	l.counts.reads.Add(1)
	slice, err := l.read(ctx, tp, rd)
	if err != nil {
		l.counts.readErrors.Add(1)
		return partition.RemoteSlice{}, remoteError(ctx, err)
	}
	l.counts.readBytes.Add(int64(slice.Bytes))
	return slice, nil
}

func (l *Log) read(ctx context.Context, tp cluster.TopicPartition, rd partition.RemoteRead) (partition.RemoteSlice, error) {
	first := rd.Offset
	for {
		var slice partition.RemoteSlice
		var end cluster.Offset
		ok, err := l.onSegment(ctx, tp, func() (catalog.Segment, bool, error) {
			return l.cfg.Catalog.FindOffset(tp, rd.Offset)
		}, func(seg catalog.Segment) error {
			var err error
			end = seg.End
			return twice(func(final bool) error {
				slice, err = l.readSegment(ctx, tp, seg, rd, final)
				return err
			})
		})
		switch {
		case errors.Is(err, errPastLast) && end > rd.Offset:
			rd.Offset = end
		case err != nil:
			return partition.RemoteSlice{}, err
		case !ok && rd.Offset == first:
			return partition.RemoteSlice{}, fmt.Errorf("no remote segment of %s holds offset %d: %w", tp, first, partition.ErrOffsetOutOfRange)
		case !ok:
			return partition.RemoteSlice{NextOffset: rd.Offset}, nil
		default:
			return slice, nil
		}
	}
}

// twice calls f again where the cached copy of the object was damaged.
func twice(f func(final bool) error) error {
	err := f(false)
	if errors.Is(err, errDamagedCache) {
		err = f(true)
	}
	return err
}

func (l *Log) readSegment(ctx context.Context, tp cluster.TopicPartition, seg catalog.Segment, rd partition.RemoteRead, final bool) (partition.RemoteSlice, error) {
	x, err := l.index(ctx, seg)
	if err != nil {
		return partition.RemoteSlice{}, err
	}
	if err := l.check(seg); err != nil {
		return partition.RemoteSlice{}, err
	}
	reader, sequential := l.readers.take(tp, rd.Offset, seg.ID)
	start, reach := reader.position, int64(0)
	if !sequential {
		where, ok := x.Find(rd.Offset)
		if !ok {
			return partition.RemoteSlice{}, errPastLast
		}
		start = where.Start
		if rd.MinOneBatch {
			reach = where.End // the batch's end at the latest: one range brings it in whole
		}
	} else {
		l.counts.sequential.Add(1)
	}
	r := l.newReading(ctx, seg, x)
	r.final = final
	slice, end, err := r.slice(start, reach, rd, sequential)
	if err != nil {
		if sequential {
			l.readers.put(tp, rd.Offset, reader)
		}
		return partition.RemoteSlice{}, err
	}
	if slice.Bytes > 0 {
		l.well(seg, r.from, r.seen)
		reader.goOn(l, tp, r, end, sequential)
		l.readers.put(tp, slice.NextOffset, reader)
	}
	return slice, nil
}

// reading is one read of one object's batches.
type reading struct {
	log *Log
	ctx context.Context
	seg catalog.Segment
	src *source
	v   view
	// from is the start of the last view, seen its end; both outlive it.
	from, seen int64
	// final: what is damaged now was fetched anew a moment ago.
	final bool
}

func (l *Log) newReading(ctx context.Context, seg catalog.Segment, x *segmentobject.Index) *reading {
	return &reading{log: l, ctx: ctx, seg: seg, src: &source{log: l, seg: seg, index: x}}
}

// slice returns the batches from the one that reaches past rd.Offset on, and the
// position after them. The walk begins at start. What lies before reach is
// brought in with the first chunk, even where MaxBytes asks for less.
func (r *reading) slice(start, reach int64, rd partition.RemoteRead, sequential bool) (partition.RemoteSlice, int64, error) {
	chunk := r.log.cfg.ChunkBytes
	chunks := int64(randomChunks)
	if sequential {
		chunks = sequentialChunks
	}
	to := max(reach, start+max(1, int64(rd.MaxBytes)))
	if err := r.open(start, min(to, (start/chunk+chunks)*chunk)); err != nil {
		return partition.RemoteSlice{}, 0, err
	}
	defer r.v.release()
	w := r.walk(start)
	first, err := r.find(w, func(b batch) bool { return b.next > rd.Offset })
	if err != nil {
		return partition.RemoteSlice{}, 0, err
	}
	empty := partition.RemoteSlice{NextOffset: rd.Offset}
	if first.next > rd.Bound || first.bytes > int64(rd.MaxBytes) && !rd.MinOneBatch {
		return empty, first.position, nil
	}
	if err := r.ensure(first.position, first.end()); err != nil {
		return partition.RemoteSlice{}, 0, err
	}
	end, next := first.end(), first.next
	limit := min(first.position+int64(rd.MaxBytes), r.v.end)
	for {
		b, err := w.next()
		if errors.Is(err, io.EOF) && r.seg.End <= rd.Bound {
			next = r.seg.End
		}
		if err != nil || b.end() > limit || b.next > rd.Bound {
			break
		}
		end, next = b.end(), b.next
	}
	r.from, r.seen = r.v.start, r.v.end
	out := partition.RemoteSlice{NextOffset: next, Bytes: int(end - first.position)}
	out.Regions = r.v.cut(first.position, end)
	return out, end, nil
}

func (r *reading) walk(start int64) *walker {
	return &walker{v: &r.v, position: start, limit: r.seg.Object.SegmentBytes}
}

// find walks to the first batch that is wanted, bringing in more chunks as it
// goes; errPastLast where there is none.
func (r *reading) find(w *walker, wanted func(batch) bool) (batch, error) {
	for {
		b, err := w.next()
		switch {
		case errors.Is(err, errBeyondView):
			if err := r.ensure(w.position, w.position+recordbatch.HeaderBytes); err != nil {
				return batch{}, err
			}
		case errors.Is(err, io.EOF):
			return batch{}, errPastLast
		case err != nil:
			return batch{}, r.damaged(err)
		case wanted(b):
			return b, nil
		}
	}
}

// damaged throws away the chunks of the view, which were well when they came in,
// so that they are fetched again. If they just were, the object is to blame, or
// the cache's disk.
func (r *reading) damaged(err error) error {
	switch {
	case r.final && errors.Is(err, errMalformed):
		return fmt.Errorf("object %q: %w: %w", r.seg.Key, segmentobject.ErrCorrupt, err)
	case r.final:
		return fmt.Errorf("object %q: %w: %w", r.seg.Key, rangecache.ErrStorage, err)
	}
	r.log.cfg.Logger.Warn("the cached copy of a remote object is damaged and is fetched again", "key", r.seg.Key, "error", err)
	for _, k := range r.keys(r.v.start, r.v.end) {
		r.log.cfg.Cache.Discard(k)
	}
	return errDamagedCache
}

// keys are the chunks that overlap [from, to).
func (r *reading) keys(from, to int64) []rangecache.Key {
	chunk, limit := r.log.cfg.ChunkBytes, r.seg.Object.SegmentBytes
	var keys []rangecache.Key
	for at := from / chunk * chunk; at < min(to, limit); at += chunk {
		keys = append(keys, rangecache.Key{Object: r.seg.ID, Position: at, Bytes: min(chunk, limit-at)})
	}
	return keys
}

// open makes the view from the chunk that holds from on, up to the chunk that
// ends at to or as far as there is room.
func (r *reading) open(from, to int64) error {
	keys := r.keys(from, to)
	if len(keys) == 0 {
		return errPastLast
	}
	regions, err := r.log.cfg.Cache.Acquire(r.ctx, keys, r.src)
	if errors.Is(err, rangecache.ErrTooLarge) || errors.Is(err, rangecache.ErrStorage) {
		return r.bypass(from, from+1)
	}
	if err != nil {
		return err
	}
	r.v = view{start: keys[0].Position, end: keys[0].Position}
	r.v.add(regions)
	return nil
}

// ensure makes the view reach from a position that it holds, or that follows it,
// to another. Where the cache has no room for as much, the range is kept in
// memory.
func (r *reading) ensure(from, to int64) error {
	if to <= r.v.end {
		return nil
	}
	r.v.add(r.log.cfg.Cache.Extend(r.ctx, r.keys(r.v.end, to), r.src))
	if to <= r.v.end {
		return nil
	}
	r.v.release()
	if err := r.ctx.Err(); err != nil {
		return err
	}
	return r.bypass(from, to)
}

func (r *reading) bypass(from, to int64) error {
	keys := r.keys(from, to)
	if len(keys) == 0 || keys[len(keys)-1].End() < to {
		return r.damaged(fmt.Errorf("%w: position %d", errMalformed, from))
	}
	regions, err := r.log.cfg.Cache.Bypass(r.ctx, keys, r.src)
	if err != nil {
		return err
	}
	r.v = view{start: keys[0].Position, end: keys[0].Position}
	r.v.add(regions)
	return nil
}
