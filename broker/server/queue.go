package server

import (
	"context"
	"sync"
	"time"

	"strandline/broker/api"
	"strandline/broker/wire"
)

// entry is one response that is not written yet: encoded, or deferred.
type entry struct {
	key      int16
	bytes    int
	started  time.Time
	out      *wire.Out
	deferred api.Deferred
}

func (e entry) drop() {
	if e.deferred != nil {
		e.deferred.Abandon()
	}
	if e.out != nil {
		e.out.Free()
	}
}

// queue holds the responses of a connection in order. The reading goroutine
// adds, the writing one takes. The head stays in it until it has been written.
type queue struct {
	maxCount, maxBytes int
	limitHit           func(string)

	mu      sync.Mutex
	entries []entry
	bytes   int
	fetches int
	running bool // the writing goroutine exists
	busy    bool // it is completing the head
	closed  bool

	added   chan struct{} // to the writing goroutine
	removed chan struct{} // to the reading one
}

func (q *queue) init(maxCount, maxBytes int, limitHit func(string)) {
	q.maxCount, q.maxBytes, q.limitHit = maxCount, maxBytes, limitHit
	q.added, q.removed = make(chan struct{}, 1), make(chan struct{}, 1)
}

// add appends an entry and tells whether the writing goroutine is to be started.
func (q *queue) add(e entry) (start bool) {
	q.mu.Lock()
	q.entries = append(q.entries, e)
	q.bytes += e.bytes
	if e.key == wire.KeyFetch {
		q.fetches++
	}
	start = !q.running
	q.running = true
	q.mu.Unlock()
	signal(q.added)
	return start
}

// head waits for an entry and returns it; it stays the head until taken. It
// returns false when ctx ends.
func (q *queue) head(ctx context.Context) (entry, bool) {
	for {
		q.mu.Lock()
		if q.closed || ctx.Err() != nil {
			q.mu.Unlock()
			return entry{}, false
		}
		if len(q.entries) > 0 {
			e := q.entries[0]
			q.busy = true
			q.mu.Unlock()
			return e, true
		}
		q.mu.Unlock()
		select {
		case <-q.added:
		case <-ctx.Done():
		}
	}
}

// taken removes the head.
func (q *queue) taken() {
	q.mu.Lock()
	e := q.entries[0]
	n := copy(q.entries, q.entries[1:])
	q.entries[n] = entry{}
	q.entries = q.entries[:n]
	q.bytes -= e.bytes
	if e.key == wire.KeyFetch {
		q.fetches--
	}
	q.busy = false
	closed := q.closed
	q.mu.Unlock()
	if closed {
		q.close()
	}
	signal(q.removed)
}

// close abandons what is queued, but for a head that is being completed: the
// writing goroutine ends that one itself.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	var rest []entry
	if !q.busy {
		rest, q.entries = q.entries, nil
	}
	q.mu.Unlock()
	for _, e := range rest {
		e.drop()
	}
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries) == 0
}

func (q *queue) hasFetch() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fetches > 0
}

// wait waits until may says yes, and counts each bound that made it wait.
func (q *queue) wait(ctx context.Context, may func(*queue) (limit string, ok bool)) error {
	hit := ""
	for {
		q.mu.Lock()
		limit, ok := may(q)
		q.mu.Unlock()
		if ok {
			return nil
		}
		if limit != "" && limit != hit {
			q.limitHit(limit)
			hit = limit
		}
		select {
		case <-q.removed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (q *queue) mayProduce() (string, bool) {
	switch {
	case len(q.entries) >= q.maxCount:
		return LimitInFlight, false
	case q.bytes >= q.maxBytes:
		return LimitInFlightBytes, false
	}
	return "", true
}

func (q *queue) mayFetch() (string, bool) {
	if q.fetches > 0 {
		return "", false
	}
	return q.mayProduce()
}

func (q *queue) mayBarrier() (string, bool) { return "", len(q.entries) == 0 }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
