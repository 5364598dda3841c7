package archive

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"strandline/tiering/manifest"
	"strandline/tiering/objstore"
)

// uploadFailureLasts is how long a failed upload, with none that followed, makes
// the store count as failing.
const uploadFailureLasts = time.Minute

// health is what is known of the store: it is asked now and then, more often
// while it does not answer.
type health struct {
	ownership *manifest.Ownership
	store     objstore.Store
	every     time.Duration
	logger    *slog.Logger
	recovered func()
	again     chan struct{} // ask now

	mu       sync.Mutex
	probed   bool
	probeErr error
	putErr   error
	putAt    time.Time
	lastErr  error
	lastAt   time.Time
	down     bool // as logged
}

func newHealth(cfg Config, recovered func()) *health {
	return &health{
		ownership: cfg.Ownership, store: cfg.Store, every: cfg.ProbeInterval, logger: cfg.Logger,
		recovered: recovered, again: make(chan struct{}, 1),
	}
}

// Err is why the store is not worth an upload now.
func (h *health) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.probeErr
}

// run probes until ctx ends.
func (h *health) run(ctx context.Context) {
	lost := h.ownership.Lost()
	for failures := 0; ; {
		_, err := h.ownership.Check(ctx)
		if err == nil {
			err = objstore.Probe(ctx, h.store)
		}
		if ctx.Err() != nil {
			return
		}
		h.probe(err)
		wait := h.every
		if err != nil {
			wait = min(wait, pause(failures, nil))
			failures++
		} else {
			failures = 0
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-h.again:
			timer.Stop()
		case <-lost:
			timer.Stop()
			lost = nil
		}
	}
}

func (h *health) probe(err error) {
	h.mu.Lock()
	back := h.probeErr != nil && err == nil
	h.probed, h.probeErr = true, err
	h.noteLocked(err)
	h.mu.Unlock()
	if back {
		h.recovered()
	}
}

// failed is told of an ownership check that failed elsewhere.
func (h *health) failed(err error) { h.probe(err) }

// putFailed is told of an upload that the store failed.
func (h *health) putFailed(err error) {
	h.mu.Lock()
	h.putErr, h.putAt = err, time.Now()
	h.noteLocked(err)
	h.mu.Unlock()
	if objstore.IsRetriable(err) {
		select {
		case h.again <- struct{}{}:
		default:
		}
	}
}

func (h *health) uploaded() {
	h.mu.Lock()
	h.putErr = nil
	h.noteLocked(nil)
	h.mu.Unlock()
}

func (h *health) okLocked() bool {
	return h.probed && h.probeErr == nil && (h.putErr == nil || time.Since(h.putAt) > uploadFailureLasts)
}

// noteLocked keeps the last error and logs when the store goes and comes back.
func (h *health) noteLocked(err error) {
	if err != nil {
		h.lastErr, h.lastAt = err, time.Now()
	}
	where := h.store.Location()
	switch ok := h.okLocked(); {
	case errors.Is(err, manifest.ErrCopy): // has been said by whoever found it
		h.down = true
	case err != nil && !h.down:
		h.down = true
		h.logger.Error("the object store cannot be used; local reads and writes go on, uploads wait",
			"endpoint", where.Endpoint, "bucket", where.Bucket, "prefix", where.Prefix,
			"error", err, "remedy", objstore.Remedy(err))
	case ok && h.down:
		h.down = false
		h.logger.Info("the object store can be used again", "endpoint", where.Endpoint, "bucket", where.Bucket)
	}
}
