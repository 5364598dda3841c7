package objstore

import (
	"log/slog"
	"time"
)

// GuardConfig bounds what callers may ask of a store. Zero fields take the
// value of DefaultGuard.
type GuardConfig struct {
	// RequestTimeout is the deadline of an attempt that moves no body, and
	// the longest time in which none of a body's bytes moves.
	RequestTimeout time.Duration
	// MinBytesPerSecond adds Bytes/MinBytesPerSecond to the deadline of an
	// attempt that moves a body.
	MinBytesPerSecond int64
	// Attempts is how often a retriable call is tried in all.
	Attempts int
	// BackoffMin doubles up to BackoffMax; each wait is drawn at random
	// between half of it and all of it.
	BackoffMin, BackoffMax time.Duration
	// Concurrency is the number of attempts in flight for each verb; a verb
	// that is not in the map gets DefaultConcurrency. A reader of Get counts
	// until it is closed. Further calls wait, within the caller's context.
	Concurrency map[Verb]int
	// Metrics may be nil.
	Metrics *Metrics
	// Logger gets a line at debug level for each retry; nil: none.
	Logger *slog.Logger
	// Rand draws from [0, 1); nil: math/rand.
	Rand func() float64
}

// DefaultConcurrency is the limit of a verb that GuardConfig does not name.
const DefaultConcurrency = 16

// DefaultGuard returns the bounds that are used where nothing is set.
func DefaultGuard() GuardConfig {
	return GuardConfig{
		RequestTimeout:    30 * time.Second,
		MinBytesPerSecond: 256 << 10,
		Attempts:          5,
		BackoffMin:        100 * time.Millisecond,
		BackoffMax:        5 * time.Second,
		Concurrency:       map[Verb]int{VerbPut: 8, VerbPart: 8, VerbGet: 32, VerbHead: 16, VerbDelete: 4, VerbList: 4},
	}
}
