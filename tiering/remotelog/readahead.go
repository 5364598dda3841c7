package remotelog

import (
	"container/list"
	"context"
	"sync"

	"strandline/metadata/cluster"
)

// readersLimit bounds the readers that are remembered; past it the one that has
// been idle longest starts again without reading ahead.
const readersLimit = 4096

// reader is what is known of someone who reads on where a read had ended.
type reader struct {
	// segment and position say where the offset is that the reader waits at;
	// a zero segment is the one that starts there.
	segment  cluster.SegmentID
	position int64
	// window is how far ahead to read; 0: not yet.
	window int64
	// ahead is up to where in segment chunks have been asked for.
	ahead int64
}

type readerKey struct {
	tp     cluster.TopicPartition
	offset cluster.Offset
}

// readers remembers readers by the offset that they will ask for next.
type readers struct {
	mu      sync.Mutex
	byKey   map[readerKey]*list.Element
	recent  list.List // of waitingReader, most recent first
	opening map[cluster.SegmentID]bool
}

type waitingReader struct {
	key readerKey
	reader
}

// take returns the reader that waits at the offset, in the segment, and forgets
// it until put; false where there is none.
func (r *readers) take(tp cluster.TopicPartition, o cluster.Offset, segment cluster.SegmentID) (reader, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.byKey[readerKey{tp, o}]
	if !ok {
		return reader{segment: segment}, false
	}
	w := r.removeLocked(e)
	if w.segment != segment && w.segment != (cluster.SegmentID{}) { // replaced meanwhile
		return reader{segment: segment}, false
	}
	w.segment = segment
	return w.reader, true
}

func (r *readers) put(tp cluster.TopicPartition, o cluster.Offset, rd reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil {
		r.byKey = make(map[readerKey]*list.Element)
	}
	k := readerKey{tp, o}
	if e, ok := r.byKey[k]; ok {
		r.removeLocked(e)
	}
	r.byKey[k] = r.recent.PushFront(waitingReader{k, rd})
	if r.recent.Len() > readersLimit {
		r.removeLocked(r.recent.Back())
	}
}

func (r *readers) removeLocked(e *list.Element) waitingReader {
	w := r.recent.Remove(e).(waitingReader)
	delete(r.byKey, w.key)
	return w
}

// goOn moves the reader to the end of what it was given, and reads ahead of it.
func (rd *reader) goOn(l *Log, tp cluster.TopicPartition, r *reading, end int64, sequential bool) {
	if sequential {
		rd.window = min(max(2*l.cfg.ChunkBytes, 2*rd.window), l.cfg.ReadAheadBytes)
	}
	rd.position = end
	rd.ahead = max(rd.ahead, r.seen)
	size := r.seg.Object.SegmentBytes
	if rd.window > 0 {
		rd.fetchAhead(l, r)
		if rest := end + rd.window - size; rest > 0 {
			l.openAhead(tp, r.seg.End, rest)
		}
	}
	if end == size {
		rd.segment, rd.position, rd.ahead = cluster.SegmentID{}, 0, 0
	}
}

// fetchAhead asks for chunks once half of the window has been read, so that one
// GET brings several.
func (rd *reader) fetchAhead(l *Log, r *reading) {
	size := r.seg.Object.SegmentBytes
	target := min(rd.position+rd.window, size)
	if rd.ahead >= target || rd.ahead-rd.position > rd.window/2 && target < size {
		return
	}
	rd.ahead = l.prefetch(r, rd.ahead, target)
}

// prefetch asks for the chunks of [from, to) and returns how far it came.
func (l *Log) prefetch(r *reading, from, to int64) int64 {
	keys := r.keys(from, to)
	n := l.cfg.Cache.Prefetch(keys, r.src)
	l.counts.aheadChunks.Add(int64(n))
	l.counts.aheadDenied.Add(int64(len(keys) - n))
	if n == 0 {
		return from
	}
	return keys[n-1].End()
}

// openAhead reads the first bytes of the segment at an offset ahead of a reader:
// at once where its index is at hand, else after that was read, in the
// background.
func (l *Log) openAhead(tp cluster.TopicPartition, o cluster.Offset, bytes int64) {
	seg, ok, err := l.cfg.Catalog.FindOffset(tp, o)
	if err != nil || !ok || l.check(seg) != nil {
		return
	}
	if x := l.indexes.get(seg.ID); x != nil {
		l.prefetch(l.newReading(l.ctx, seg, x), 0, bytes)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.readers.startOpening(seg.ID) {
		return
	}
	select {
	case l.slots <- struct{}{}:
	default:
		l.readers.endOpening(seg.ID)
		return
	}
	l.jobs.Go(func() {
		defer func() { <-l.slots }()
		defer l.readers.endOpening(seg.ID)
		ctx, cancel := context.WithTimeout(l.ctx, DefaultIndexTimeout)
		defer cancel()
		x, err := l.index(ctx, seg)
		if l.judge(tp, seg, err) == nil {
			l.prefetch(l.newReading(ctx, seg, x), 0, bytes)
		}
	})
}

// startOpening reports whether nobody is opening the segment yet.
func (r *readers) startOpening(id cluster.SegmentID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opening[id] {
		return false
	}
	if r.opening == nil {
		r.opening = make(map[cluster.SegmentID]bool)
	}
	r.opening[id] = true
	return true
}

func (r *readers) endOpening(id cluster.SegmentID) {
	r.mu.Lock()
	delete(r.opening, id)
	r.mu.Unlock()
}
