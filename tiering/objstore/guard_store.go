package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"
)

// Guard is a Store that bounds what it passes on to another one (O4, O5): see
// GuardConfig. Put goes in parts above the driver's part size. The reader of Get
// resumes after a retriable failure, on the ground that objects are immutable.
type Guard struct {
	inner Store
	parts PartUploader // nil where the driver has none
	cfg   GuardConfig
	slots map[Verb]chan struct{}
}

// NewGuard returns the guarded store; closing it closes inner.
func NewGuard(inner Store, cfg GuardConfig) *Guard {
	cfg = cfg.withDefaults()
	g := &Guard{inner: inner, cfg: cfg, slots: map[Verb]chan struct{}{}}
	g.parts, _ = inner.(PartUploader)
	for _, v := range Verbs() {
		n := cfg.Concurrency[v]
		if n <= 0 {
			n = DefaultConcurrency
		}
		g.slots[v] = make(chan struct{}, n)
	}
	return g
}

func (c GuardConfig) withDefaults() GuardConfig {
	d := DefaultGuard()
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = d.RequestTimeout
	}
	if c.MinBytesPerSecond <= 0 {
		c.MinBytesPerSecond = d.MinBytesPerSecond
	}
	if c.Attempts <= 0 {
		c.Attempts = d.Attempts
	}
	if c.BackoffMin <= 0 {
		c.BackoffMin = d.BackoffMin
	}
	if c.BackoffMax <= 0 {
		c.BackoffMax = max(d.BackoffMax, c.BackoffMin)
	}
	if c.Concurrency == nil {
		c.Concurrency = d.Concurrency
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}

// unboundedBytes stands for the size of a body that is not known beforehand.
const unboundedBytes = 1 << 30

func (g *Guard) deadline(bytes int64) time.Duration {
	return g.cfg.RequestTimeout + time.Duration(float64(bytes)/float64(g.cfg.MinBytesPerSecond)*float64(time.Second))
}

// attempt is one request under way: it holds a slot of its verb until end.
type attempt struct {
	g     *Guard
	verb  Verb
	key   string
	start time.Time
	dog   *watchdog
}

// begin waits for a slot and starts the clock. end must be called.
func (g *Guard) begin(ctx context.Context, verb Verb, key string, bytes int64) (context.Context, *attempt, error) {
	slots := g.slots[verb]
	select {
	case slots <- struct{}{}:
	default:
		g.cfg.Metrics.limited.WithLabelValues(string(verb)).Inc()
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, g.fail(verb, key, ErrUnavailable, fmt.Errorf("waiting for the concurrency limit: %w", context.Cause(ctx)))
		}
	}
	g.cfg.Metrics.inFlight.WithLabelValues(string(verb)).Inc()
	a := &attempt{g: g, verb: verb, key: key, start: time.Now()}
	ctx, a.dog = newWatchdog(ctx, g.cfg.RequestTimeout, g.deadline(bytes))
	return ctx, a, nil
}

// outcome turns an error that the watchdog caused into ErrStalled.
func (a *attempt) outcome(err error) error {
	if err == nil || !a.dog.fired.Load() {
		return err
	}
	var e *Error
	if errors.As(err, &e) && e.Class != ErrUnavailable && e.Class != ErrStalled {
		return err // the store had answered
	}
	return &Error{
		Op: a.verb, Key: a.key, Endpoint: a.g.Location().Endpoint, Bucket: a.g.Location().Bucket, Class: ErrStalled,
		Cause:  fmt.Errorf("cut after %v", time.Since(a.start).Round(time.Millisecond)),
		Remedy: "the store or the network is too slow; remote.store.request.timeout.ms is the time allowed without progress",
	}
}

// end frees the slot and counts the request.
func (a *attempt) end(err error) {
	a.dog.stop()
	<-a.g.slots[a.verb]
	m := a.g.cfg.Metrics
	m.inFlight.WithLabelValues(string(a.verb)).Dec()
	m.requests.WithLabelValues(string(a.verb), result(err)).Inc()
	m.seconds.WithLabelValues(string(a.verb)).Observe(time.Since(a.start).Seconds())
}

func (g *Guard) fail(op Verb, key string, class, cause error) error {
	loc := g.Location()
	return &Error{Op: op, Key: key, Endpoint: loc.Endpoint, Bucket: loc.Bucket, Class: class, Cause: cause}
}

// once runs one attempt.
func (g *Guard) once(ctx context.Context, verb Verb, key string, bytes int64, fn func(ctx context.Context, wrap bodyWrapper) error) error {
	actx, a, err := g.begin(ctx, verb, key, bytes)
	if err != nil {
		return err
	}
	err = a.outcome(fn(actx, func(b Body) Body { return watchedBody{b, a.dog} }))
	a.end(err)
	if err == nil && bytes > 0 {
		g.cfg.Metrics.bytes.WithLabelValues(string(VerbPut)).Add(float64(bytes))
	}
	return err
}

// run repeats an attempt while it fails retriably. It is a stepRunner.
func (g *Guard) run(ctx context.Context, verb Verb, key string, bytes int64, fn func(ctx context.Context, wrap bodyWrapper) error) error {
	for i := 1; ; i++ {
		err := g.once(ctx, verb, key, bytes, fn)
		if err == nil {
			return nil
		}
		if err := g.pause(ctx, verb, key, i, err); err != nil {
			return err
		}
	}
}

// pause decides about the failed i-th attempt: it waits and returns nil where
// there is to be another one, else it returns the error to give up with.
func (g *Guard) pause(ctx context.Context, verb Verb, key string, i int, err error) error {
	// MinIO answers "access denied" to a put that races with the delete of its
	// last sibling; so that is believed at the second time only.
	denied := i == 1 && errors.Is(err, ErrAccess) && (verb == VerbPut || verb == VerbPart || verb == VerbComplete)
	if !IsRetriable(err) && !denied || ctx.Err() != nil {
		return err
	}
	if i >= g.cfg.Attempts {
		return fmt.Errorf("gave up after %d attempts: %w", i, err)
	}
	wait := g.backoff(i)
	g.cfg.Logger.Debug("object store request failed, trying again", "verb", verb, "key", key, "attempt", i, "wait", wait, "error", err)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return fmt.Errorf("%w (gave up: %w)", err, context.Cause(ctx))
	}
	g.cfg.Metrics.retries.WithLabelValues(string(verb)).Inc()
	return nil
}

// backoff is the wait after the i-th failure: doubling, half of it at random.
func (g *Guard) backoff(i int) time.Duration {
	d := g.cfg.BackoffMin
	for ; i > 1 && d < g.cfg.BackoffMax; i-- {
		d *= 2
	}
	d = min(d, g.cfg.BackoffMax)
	return d/2 + time.Duration(g.cfg.Rand()*float64(d/2))
}

// Put implements Store.
func (g *Guard) Put(ctx context.Context, key string, body Body, o PutOptions) (Info, error) {
	if o.IfAbsent && !o.HasCRC {
		// Without it a retry could not tell its own object from another.
		crc, err := RangeCRC32C(body, 0, body.Size())
		if err != nil {
			return Info{}, g.fail(VerbPut, key, ErrInvalid, err)
		}
		o.CRC32C, o.HasCRC = crc, true
	}
	if g.parts != nil && body.Size() > g.parts.PartBytes() {
		return putInParts(ctx, g, g.parts, g.run, key, body, o)
	}
	var info Info
	for i := 1; ; i++ {
		err := g.once(ctx, VerbPut, key, body.Size(), func(ctx context.Context, wrap bodyWrapper) (err error) {
			info, err = g.inner.Put(ctx, key, wrap(body), o)
			return err
		})
		if err == nil {
			return info, nil
		}
		if i > 1 && o.IfAbsent && errors.Is(err, ErrExists) {
			// An earlier attempt may have succeeded unheard.
			same, serr := SameObject(ctx, g, key, body.Size(), o.CRC32C)
			if serr == nil && same {
				return Info{Key: key, Bytes: body.Size(), CRC32C: o.CRC32C, HasCRC: true}, nil
			}
			return Info{}, errors.Join(err, serr)
		}
		if err := g.pause(ctx, VerbPut, key, i, err); err != nil {
			return Info{}, err
		}
	}
}

// Head implements Store.
func (g *Guard) Head(ctx context.Context, key string) (info Info, err error) {
	err = g.run(ctx, VerbHead, key, 0, func(ctx context.Context, _ bodyWrapper) (err error) {
		info, err = g.inner.Head(ctx, key)
		return err
	})
	return info, err
}

// deleteBatch is how many keys go into one request: the limit of S3.
const deleteBatch = 1000

// Delete implements Store.
func (g *Guard) Delete(ctx context.Context, keys ...string) error {
	for batch := range slices.Chunk(keys, deleteBatch) {
		err := g.run(ctx, VerbDelete, "", 0, func(ctx context.Context, _ bodyWrapper) error { return g.inner.Delete(ctx, batch...) })
		if err != nil {
			return err
		}
	}
	return nil
}

// listPage is how many objects are fetched in one attempt.
const listPage = 1000

// List implements Store: a page per attempt, and no slot is held while the
// caller's code runs.
func (g *Guard) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		page := make([]Info, 0, 64)
		for {
			err := g.run(ctx, VerbList, prefix, 0, func(ctx context.Context, _ bodyWrapper) error {
				page = page[:0]
				for info, err := range g.inner.List(ctx, prefix, after) {
					if err != nil {
						return err
					}
					if page = append(page, info); len(page) == listPage {
						break
					}
				}
				return nil
			})
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			if len(page) < listPage {
				return
			}
			after = page[len(page)-1].Key
		}
	}
}

// Location implements Store.
func (g *Guard) Location() Location { return g.inner.Location() }

// Close implements Store.
func (g *Guard) Close() error { return g.inner.Close() }

func (g *Guard) abortStaleUploads(ctx context.Context, prefix string, before time.Time) (int, error) {
	if g.parts == nil {
		return 0, nil
	}
	return abortStaleUploads(ctx, g.parts, g.run, prefix, before)
}

// Get implements Store.
func (g *Guard) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r := &guardReader{g: g, ctx: ctx, key: key, off: off, n: n}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

var _ Store = (*Guard)(nil)
