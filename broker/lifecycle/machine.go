package lifecycle

import (
	"errors"
	"fmt"
	"time"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

var (
	// ErrReplaced: another incarnation of this node registered.
	ErrReplaced = errors.New("another process has taken this node id")
	// ErrNotRegistered: the controller did not take the registration in time.
	ErrNotRegistered = errors.New("the broker could not register")
)

// Phase is where a broker is in its life.
type Phase int8

// Phases, in order; Fenced and Running alternate.
const (
	Registering Phase = iota // no broker epoch yet
	Fenced                   // registered, serves nothing
	Running                  // unfenced
	Stopping                 // asks to be shut down
	Stopped                  // may go, or failed
)

func (p Phase) String() string {
	return [...]string{"registering", "fenced", "running", "stopping", "stopped"}[p]
}

// Waits between requests.
const (
	eagerEvery = 20 * time.Millisecond // while fenced or stopping
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
)

// machine decides what to send. It is pure: time is passed in.
type machine struct {
	registration   request.RegisterBroker
	heartbeatEvery time.Duration
	registerWithin time.Duration

	phase    Phase
	began    time.Time // of the registration
	epoch    cluster.BrokerEpoch
	stopping bool
	retry    time.Duration // of the last wait after a failure; 0: none
	fatal    error
}

func newMachine(cfg Config, now time.Time) *machine {
	return &machine{
		registration: cfg.Registration, heartbeatEvery: cfg.HeartbeatEvery, registerWithin: cfg.RegistrationTimeout,
		began: now, epoch: cluster.NoBrokerEpoch,
	}
}

// next returns the request to send, nil in phase Stopped.
func (m *machine) next(applied uint64, offline []cluster.DirectoryID) request.Request {
	switch m.phase {
	case Stopped:
		return nil
	case Registering:
		if m.stopping {
			m.phase = Stopped
			return nil
		}
		return m.registration
	}
	return request.Heartbeat{
		Broker: m.registration.Broker, Epoch: m.epoch, CaughtUpTo: applied,
		WantShutdown: m.stopping, OfflineDirs: offline,
	}
}

// answered takes an answer in and returns how long to wait before the next
// request.
func (m *machine) answered(result request.Result, err error, now time.Time) time.Duration {
	if err != nil {
		return m.refused(err, now)
	}
	m.retry = 0
	switch r := result.(type) {
	case request.BrokerRegistered:
		m.epoch = r.Epoch
		m.phase = Fenced
		return 0
	case request.HeartbeatResult:
		m.beat(r)
	default:
		return m.refused(fmt.Errorf("unexpected answer %T", result), now)
	}
	if m.phase == Running {
		return m.heartbeatEvery
	}
	return min(eagerEvery, m.heartbeatEvery)
}

func (m *machine) beat(r request.HeartbeatResult) {
	switch {
	case m.stopping && r.ShouldShutDown:
		m.phase = Stopped
	case m.stopping:
		m.phase = Stopping
	case r.Fenced || !r.CaughtUp:
		m.phase = Fenced
	default:
		m.phase = Running
	}
}

// refused decides about an error: a node id that another process has is waited
// for (a former process may still be going), anything else is retriable.
func (m *machine) refused(err error, now time.Time) time.Duration {
	switch {
	case errors.Is(err, request.ErrStaleBrokerEpoch), errors.Is(err, request.ErrDuplicateBroker) && m.phase != Registering:
		m.phase, m.fatal = Stopped, fmt.Errorf("%w: %w", ErrReplaced, err)
		return 0
	case m.phase == Registering && m.registerWithin > 0 && now.Sub(m.began) >= m.registerWithin:
		m.phase, m.fatal = Stopped, fmt.Errorf("%w within %v: %w", ErrNotRegistered, m.registerWithin, err)
		return 0
	}
	m.retry = min(max(m.retry*2, retryFirst), retryMost)
	return m.retry
}

// stop asks for a controlled shutdown.
func (m *machine) stop() {
	m.stopping = true
	if m.phase == Fenced || m.phase == Running {
		m.phase = Stopping
	}
}
