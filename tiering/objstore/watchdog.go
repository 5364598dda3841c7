package objstore

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// watchdog ends an attempt, by cancelling its context, that makes no progress
// for the stall time, or lasts longer than its deadline in all. Time while it
// is paused counts for neither.
type watchdog struct {
	stall  time.Duration
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	timer    *time.Timer
	running  bool
	resumed  time.Time     // of the current run
	spent    time.Duration // of earlier runs
	deadline time.Duration // of running time in all
	// last is the running time at the last progress, in nanoseconds.
	last  atomic.Int64
	fired atomic.Bool
}

// newWatchdog returns a running watchdog and the context that it cancels. stop
// must be called.
func newWatchdog(ctx context.Context, stall, deadline time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{stall: stall, deadline: deadline, cancel: cancel, running: true, resumed: time.Now()}
	w.timer = time.AfterFunc(min(stall, deadline), w.check)
	return ctx, w
}

func (w *watchdog) elapsedLocked() time.Duration {
	if !w.running {
		return w.spent
	}
	return w.spent + time.Since(w.resumed)
}

// progress says that bytes moved.
func (w *watchdog) progress() {
	w.mu.Lock()
	w.last.Store(int64(w.elapsedLocked()))
	w.mu.Unlock()
}

// check runs when the timer fires, which may be early: progress does not touch
// the timer.
func (w *watchdog) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return
	}
	now := w.elapsedLocked()
	idle := now - time.Duration(w.last.Load())
	switch {
	case now >= w.deadline:
		w.fireLocked(fmt.Errorf("%w: not done after %v", ErrStalled, w.deadline.Round(time.Millisecond)))
	case idle >= w.stall:
		w.fireLocked(fmt.Errorf("%w: no byte moved for %v", ErrStalled, w.stall))
	default:
		w.timer.Reset(min(w.stall-idle, w.deadline-now))
	}
}

func (w *watchdog) fireLocked(cause error) {
	w.fired.Store(true)
	w.cancel(cause)
}

// pause stops the clock, resume starts it again.
func (w *watchdog) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spent, w.running = w.elapsedLocked(), false
	w.timer.Stop()
}

func (w *watchdog) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running {
		return
	}
	w.running, w.resumed = true, time.Now()
	w.last.Store(int64(w.spent))
	w.timer.Reset(max(0, min(w.stall, w.deadline-w.spent)))
}

// stop releases the context and the timer.
func (w *watchdog) stop() {
	w.pause()
	w.cancel(context.Canceled)
}

// watchedBody reports the reading of a body as progress.
type watchedBody struct {
	Body
	w *watchdog
}

func (b watchedBody) ReadAt(p []byte, off int64) (int, error) {
	n, err := b.Body.ReadAt(p, off)
	if n > 0 {
		b.w.progress()
	}
	return n, err
}

// RangeCRC32C keeps what the inner body knows.
func (b watchedBody) RangeCRC32C(off, n int64) (uint32, bool) {
	if rs, ok := b.Body.(RangeSummer); ok {
		return rs.RangeCRC32C(off, n)
	}
	return 0, false
}

var _ RangeSummer = watchedBody{}

// watchedReader lets the watchdog run only while a Read is waiting.
type watchedReader struct {
	io.ReadCloser
	w *watchdog
}

func (r *watchedReader) Read(p []byte) (int, error) {
	r.w.resume()
	n, err := r.ReadCloser.Read(p)
	r.w.pause()
	return n, err
}
