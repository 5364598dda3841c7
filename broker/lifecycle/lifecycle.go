package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/metadata/watch"
)

// Config is what a Lifecycle is made of; all but Logger is needed.
type Config struct {
	Submit       watch.Submitter
	Registration request.RegisterBroker

	HeartbeatEvery time.Duration // broker.heartbeat.interval.ms
	// RequestTimeout bounds one request; it should be below the session timeout.
	RequestTimeout time.Duration
	// RegistrationTimeout is how long a registration is tried
	// (initial.broker.registration.timeout.ms). Zero: for ever.
	RegistrationTimeout time.Duration

	// Activate is told the broker epoch once, before the first heartbeat.
	Activate func(cluster.BrokerEpoch)
	// AppliedIndex is the image index that the replicas have applied.
	AppliedIndex func() uint64
	// OfflineDirs are the log directories that failed.
	OfflineDirs func() []cluster.DirectoryID
	Logger      *slog.Logger
}

// Lifecycle is one incarnation's registration. See the package comment.
type Lifecycle struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	poke   chan struct{} // cap 1: look again at once

	mu       sync.Mutex
	machine  *machine
	lastErr  error
	changed  chan struct{} // closed and replaced when the phase changes
	activate sync.Once
}

// Start begins to register.
func Start(cfg Config) *Lifecycle {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Lifecycle{cfg: cfg, done: make(chan struct{}), poke: make(chan struct{}, 1), changed: make(chan struct{})}
	l.machine = newMachine(cfg, time.Now())
	l.ctx, l.cancel = context.WithCancel(context.Background())
	go l.run()
	return l
}

func (l *Lifecycle) run() {
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-timer.C:
		case <-l.poke:
		}
		wait, more := l.step()
		if !more {
			return
		}
		timer.Reset(wait)
	}
}

// step sends one request and takes its answer in.
func (l *Lifecycle) step() (wait time.Duration, more bool) {
	applied, offline := l.cfg.AppliedIndex(), l.cfg.OfflineDirs()
	l.mu.Lock()
	before := l.machine.phase
	req := l.machine.next(applied, offline)
	l.noteLocked(before)
	l.mu.Unlock()
	if req == nil {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.RequestTimeout)
	result, err := l.cfg.Submit.Submit(ctx, req)
	cancel()
	if l.ctx.Err() != nil {
		return 0, false
	}
	l.mu.Lock()
	before = l.machine.phase
	wait = l.machine.answered(result, err, time.Now())
	epoch, failed := l.machine.epoch, err != nil && l.lastErr == nil
	l.lastErr = err
	l.mu.Unlock()
	if failed {
		l.cfg.Logger.Warn("controller did not take a request; trying again", "request", fmt.Sprintf("%T", req), "err", err)
	}
	if epoch != cluster.NoBrokerEpoch {
		l.activate.Do(func() { l.cfg.Activate(epoch) })
	}
	l.mu.Lock()
	l.noteLocked(before)
	l.mu.Unlock()
	return wait, true
}

// noteLocked tells whoever waits that the phase changed.
func (l *Lifecycle) noteLocked(before Phase) {
	if l.machine.phase == before {
		return
	}
	l.cfg.Logger.Info("broker "+l.machine.phase.String(), "node.id", int32(l.machine.registration.Broker), "broker_epoch", int64(l.machine.epoch))
	close(l.changed)
	l.changed = make(chan struct{})
}

// Phase returns where the broker is.
func (l *Lifecycle) Phase() Phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.machine.phase
}

// Epoch returns the broker epoch, NoBrokerEpoch before it is registered.
func (l *Lifecycle) Epoch() cluster.BrokerEpoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.machine.epoch
}

// Err returns why the broker stopped for good on its own, or nil.
func (l *Lifecycle) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.machine.fatal
}

// Ready says whether the broker may serve, and if not, why.
func (l *Lifecycle) Ready() (bool, []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.machine.phase == Running {
		return true, nil
	}
	reason := "broker: " + l.machine.phase.String()
	switch {
	case l.machine.fatal != nil:
		reason += ": " + l.machine.fatal.Error()
	case l.lastErr != nil:
		reason += ": " + l.lastErr.Error()
	}
	return false, []string{reason}
}

// WaitPhase returns once the broker is in that phase, or has stopped for good
// (its error, nil after a controlled shutdown), or ctx ends.
func (l *Lifecycle) WaitPhase(ctx context.Context, phase Phase) error {
	for {
		l.mu.Lock()
		now, changed, fatal := l.machine.phase, l.changed, l.machine.fatal
		l.mu.Unlock()
		if now == phase || now == Stopped {
			return fatal
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			return l.ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Shutdown asks the controller to move leaders away and returns once it agrees
// that the broker may go, or ctx ends. No heartbeat is sent after that.
func (l *Lifecycle) Shutdown(ctx context.Context) error {
	l.mu.Lock()
	before := l.machine.phase
	l.machine.stop()
	l.noteLocked(before)
	l.mu.Unlock()
	l.Poke()
	return l.WaitPhase(ctx, Stopped)
}

// Poke makes the next heartbeat go out at once, with what there is to tell.
func (l *Lifecycle) Poke() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// Close stops the heartbeats. Idempotent.
func (l *Lifecycle) Close() error {
	l.cancel()
	<-l.done
	return nil
}
