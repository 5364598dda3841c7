package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"strandline/metadata/cluster"
	"strandline/tiering/objstore"
)

// Bounds of LeaseConfig.Interval; longer and shorter ones are taken as these.
const (
	LeaseIntervalMin = 100 * time.Millisecond
	LeaseIntervalMax = 10 * time.Second
)

// A holder deletes for leaseHold intervals after the start of its last renewal,
// a start takes over after leaseQuiet intervals without one.
const (
	leaseHold  = 3
	leaseQuiet = 4
)

// releaseMax bounds the last request of an orderly stop.
const releaseMax = 2 * time.Second

// LeaseConfig says how a process shows that it alone uses the location (M5).
type LeaseConfig struct {
	// Interval between renewals; each is one small put and one list. 0: no
	// lease, for programs that only look.
	Interval time.Duration
	Broker   int32
	// Load returns what Save was last given, on this broker's own disk; nil
	// where there is nothing. Save is durable when it returns.
	Load func() ([]byte, error)
	Save func([]byte) error
}

type leaseState int8

const (
	leaseUnknown leaseState = iota
	leaseWatching
	leaseHeld
	leaseLost
	leaseEnded
)

// lease is a process's own claim.
type lease struct {
	cfg         LeaseConfig
	incarnation string
	turn        chan struct{} // one step at a time
	cancel      context.CancelFunc
	done        sync.WaitGroup
	lost        chan struct{} // closed once lostErr is set

	// The next ones belong to whoever has the turn.
	mine  Claim
	watch watching

	mu      sync.Mutex
	state   leaseState
	lostErr error
	renewed time.Time // when the last renewal that succeeded began
	settled time.Time // nothing is deleted before
}

func newLease(cfg LeaseConfig) *lease {
	if cfg.Interval > 0 {
		cfg.Interval = min(max(cfg.Interval, LeaseIntervalMin), LeaseIntervalMax)
	}
	return &lease{
		cfg: cfg, incarnation: cluster.NewUUID().String(), turn: make(chan struct{}, 1), lost: make(chan struct{}),
		cancel: func() {},
	}
}

func (l *lease) hold() time.Duration  { return leaseHold * l.cfg.Interval }
func (l *lease) quiet() time.Duration { return leaseQuiet * l.cfg.Interval }

func (l *lease) now() leaseState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// Start begins to claim the location and to renew the claim. It returns at once,
// whatever the store does.
func (o *Ownership) Start() {
	if o.lease.cfg.Interval == 0 {
		return
	}
	var ctx context.Context
	ctx, o.lease.cancel = context.WithCancel(context.Background())
	o.lease.done.Go(func() {
		ticker := time.NewTicker(o.lease.cfg.Interval)
		defer ticker.Stop()
		for {
			if err := o.renew(ctx); err != nil && ctx.Err() == nil {
				o.cfg.Logger.Debug("the claim to the object store was not renewed", "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-o.lease.lost:
				return
			case <-ticker.C:
			}
		}
	})
}

// Close ends the renewals and says in the store that this process has stopped,
// so that the next start need not wait. Whoever writes or deletes must have
// stopped before. It waits no longer than ctx and two seconds.
func (o *Ownership) Close(ctx context.Context) error {
	l := o.lease
	l.cancel()
	l.done.Wait()
	if l.now() != leaseHeld {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releaseMax)
	defer cancel()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil
	}
	l.mu.Lock()
	l.state = leaseEnded
	l.mu.Unlock()
	l.mine.Released = true
	if err := o.putClaim(ctx, &l.mine, false); err != nil {
		o.cfg.Logger.Info("the object store could not be told that this broker stops; deletions will wait a little after the next start", "error", err)
	}
	return nil
}

// Lost is closed when another process turns out to have the location (ErrCopy).
func (o *Ownership) Lost() <-chan struct{} { return o.lease.lost }

// MayDelete is nil while this process certainly is the only one that deletes in
// the location and writes its manifests; else ErrUnsettled or ErrCopy. It does
// not ask the store.
func (o *Ownership) MayDelete() error {
	_, err := o.lease.valid(time.Now())
	return err
}

// valid returns how long the lease is good for.
func (l *lease) valid(now time.Time) (time.Duration, error) {
	if l.cfg.Interval == 0 {
		return 0, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// By the wall clock too: the other one stands still while a machine sleeps.
	age := max(now.Sub(l.renewed), now.Round(0).Sub(l.renewed.Round(0)))
	switch {
	case l.state == leaseLost:
		return 0, l.lostErr
	case l.state != leaseHeld || now.Before(l.settled):
		return 0, fmt.Errorf("%w yet", ErrUnsettled)
	case age >= l.hold():
		return 0, fmt.Errorf("%w: its claim was not renewed for %v", ErrUnsettled, age.Round(time.Millisecond))
	}
	return l.hold() - age, nil
}

// Delete deletes objects as Store.Delete does, while MayDelete is nil; what is
// under way when that ends is cancelled.
func (o *Ownership) Delete(ctx context.Context, keys ...string) error {
	return o.WhileOwner(ctx, func(ctx context.Context) error { return o.cfg.Store.Delete(ctx, keys...) })
}

// WhileOwner calls f with a context that ends when MayDelete fails.
func (o *Ownership) WhileOwner(ctx context.Context, f func(ctx context.Context) error) error {
	left, err := o.lease.valid(time.Now())
	if err != nil || left == 0 { // without a lease it does not end
		if err == nil {
			err = f(ctx)
		}
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	var guard sync.WaitGroup
	guard.Go(func() {
		timer := time.NewTimer(left)
		defer timer.Stop()
		for {
			select {
			case <-stop:
				return
			case <-o.lease.lost:
			case <-timer.C:
			}
			left, err := o.lease.valid(time.Now())
			if err != nil {
				cancel(err)
				return
			}
			timer.Reset(left)
		}
	})
	err = f(ctx)
	close(stop)
	guard.Wait()
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// checkLease fails where the location is another process's. Until that is known
// uploads go on: an object that nobody names harms nobody.
func (o *Ownership) checkLease(ctx context.Context, location string) error {
	l := o.lease
	if l.cfg.Interval > 0 && l.now() == leaseUnknown {
		if err := o.step(ctx, location); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lostErr
}

// renew takes the lease one step further.
func (o *Ownership) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(o.lease.hold(), time.Second))
	defer cancel()
	layout, err := o.checkOwner(ctx)
	if err != nil {
		return err
	}
	return o.step(ctx, layout.Location)
}

func (o *Ownership) step(ctx context.Context, location string) error {
	l := o.lease
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	switch l.now() {
	case leaseUnknown:
		return o.firstLook(ctx, location)
	case leaseWatching:
		return o.lookAgain(ctx, location)
	case leaseHeld:
		return o.extend(ctx)
	}
	return nil
}

// firstLook finds out who used the location before.
func (o *Ownership) firstLook(ctx context.Context, location string) error {
	l := o.lease
	record, err := o.loadRecord()
	if err != nil {
		return err
	}
	last, err := o.lastClaim(ctx, "")
	if err != nil {
		return err
	}
	known := record.Incarnations[location]
	switch v := judgeClaim(last, known); v {
	case takeNow:
		settle := time.Duration(0)
		if last == nil && len(known) > 0 { // an emptied store: another process may not have noticed yet
			settle = l.hold()
		}
		return o.take(ctx, location, record, last, settle)
	case keepWatch:
		l.watch = watching{seen: *last, since: time.Now()}
		o.setState(leaseWatching)
		o.cfg.Logger.Info("the process that used the object store before has not said that it stopped; nothing is deleted there until it has been silent for a while",
			"store", o.cfg.Store.Location(), "claim", last.Number, "incarnation", last.Incarnation, "wait", l.quiet())
	default:
		o.lose(v, last)
	}
	return nil
}

func (o *Ownership) lookAgain(ctx context.Context, location string) error {
	l := o.lease
	last, err := o.lastClaim(ctx, "")
	if err != nil {
		return err
	}
	switch v := l.watch.see(last, time.Now(), l.quiet()); v {
	case takeNow:
		record, err := o.loadRecord()
		if err != nil {
			return err
		}
		if last == nil {
			return o.take(ctx, location, record, &l.watch.seen, l.hold())
		}
		return o.take(ctx, location, record, last, 0)
	case keepWatch:
	default:
		o.lose(v, last)
	}
	return nil
}

// take claims the location after the claim before; nothing is deleted for a time
// of settle.
func (o *Ownership) take(ctx context.Context, location string, record claimRecord, before *Claim, settle time.Duration) error {
	l := o.lease
	number := uint64(1)
	if before != nil {
		number = before.Number + 1
	}
	b, err := json.Marshal(record.with(location, l.incarnation))
	if err != nil {
		return err
	}
	if l.cfg.Save != nil {
		if err := l.cfg.Save(b); err != nil {
			return fmt.Errorf("record the claim to the object store: %w", err)
		}
	}
	began := time.Now()
	claim := Claim{Number: number, Incarnation: l.incarnation}
	if err := o.putClaim(ctx, &claim, true); err != nil {
		if !errors.Is(err, objstore.ErrExists) {
			return err
		}
		last, rerr := o.readClaim(ctx, o.claimKey(number))
		if rerr != nil {
			return rerr
		}
		if last.Incarnation != l.incarnation { // someone was faster
			o.lose(takenOver, &last)
			return nil
		}
	}
	// A process that renewed meanwhile finds this claim with its next renewal.
	if before != nil && !before.Released && settle == 0 {
		again, err := o.readClaim(ctx, o.claimKey(before.Number))
		if err != nil || again.Renewals != before.Renewals {
			settle = l.hold()
		}
	}
	l.mine = claim
	now := time.Now()
	l.mu.Lock()
	l.state, l.renewed, l.settled = leaseHeld, began, now.Add(settle)
	l.mu.Unlock()
	o.cfg.Logger.Debug("the object store is claimed by this process", "claim", number, "incarnation", l.incarnation)
	return nil
}

// extend renews the claim and sees whether it still is the highest.
func (o *Ownership) extend(ctx context.Context) error {
	l := o.lease
	began := time.Now()
	l.mine.Renewals++
	if err := o.putClaim(ctx, &l.mine, false); err != nil {
		return err
	}
	higher, err := o.lastClaim(ctx, o.claimKey(l.mine.Number))
	if err != nil {
		return err
	}
	if higher != nil {
		o.lose(takenOver, higher)
		return nil
	}
	if l.mine.Renewals == 1 {
		o.dropOldClaims(ctx)
	}
	l.mu.Lock()
	l.renewed = began
	l.mu.Unlock()
	return nil
}

// claimsKept is how many claims stay for whoever looks into what happened.
const claimsKept = 16

// dropOldClaims deletes claims that ended long ago, as far as that works.
func (o *Ownership) dropOldClaims(ctx context.Context) {
	if o.lease.mine.Number <= claimsKept {
		return
	}
	first := o.claimKey(o.lease.mine.Number - claimsKept)
	var old []string
	for info, err := range o.cfg.Store.List(ctx, o.claimPrefix(), "") {
		if err != nil {
			return
		}
		if info.Key >= first || len(old) == claimsKept {
			break
		}
		old = append(old, info.Key)
	}
	if len(old) == 0 {
		return
	}
	if err := o.Delete(ctx, old...); err != nil {
		o.cfg.Logger.Debug("old claims to the object store were not deleted", "error", err)
	}
}

func (o *Ownership) setState(s leaseState) {
	o.lease.mu.Lock()
	o.lease.state = s
	o.lease.mu.Unlock()
}

// lose ends the use of the location until a person has seen to it. It is the one
// place that says so.
func (o *Ownership) lose(v verdict, other *Claim) {
	l, where := o.lease, o.cfg.Store.Location()
	how := "was taken over"
	if v == isRunning {
		how = "is in use"
	}
	err := fmt.Errorf("%w: %s of cluster %s %s by another process of broker %d (claim %d, incarnation %s); nothing is uploaded or deleted by this one",
		ErrCopy, where, o.cfg.ClusterID, how, l.cfg.Broker, other.Number, other.Incarnation)
	l.mu.Lock()
	l.state, l.lostErr = leaseLost, err
	l.mu.Unlock()
	close(l.lost)
	o.cfg.Logger.Error("a copy of this broker's disks seems to run beside it, or to have run since it stopped, on the same object store: this broker uploads and deletes nothing there until it is started again",
		"cluster.id", o.cfg.ClusterID, "node.id", l.cfg.Broker, "store", where, "claim", other.Number, "incarnation", other.Incarnation,
		"remedy", "keep one of the two: stop the other for good; if this one is kept, stop it too, remove remote-claim.json from its metadata.log.dir and start it again")
}

func (o *Ownership) loadRecord() (claimRecord, error) {
	var b []byte
	if o.lease.cfg.Load != nil {
		var err error
		if b, err = o.lease.cfg.Load(); err != nil {
			return claimRecord{}, err
		}
	}
	r, err := decodeClaimRecord(b)
	if err != nil {
		return r, fmt.Errorf("the record of claims to the object store (remote-claim.json in metadata.log.dir): %w", err)
	}
	return r, nil
}

func (o *Ownership) claimPrefix() string {
	return o.cfg.Store.Location().Key(ownerFolder, fmt.Sprintf("broker-%d", o.lease.cfg.Broker)) + "/"
}

func (o *Ownership) claimKey(number uint64) string {
	return fmt.Sprintf("%s%020d", o.claimPrefix(), number)
}

// lastClaim is the claim of this broker with the highest number, of those whose
// keys follow after; nil where there is none.
func (o *Ownership) lastClaim(ctx context.Context, after string) (*Claim, error) {
	key, prefix := "", o.claimPrefix()
	for info, err := range o.cfg.Store.List(ctx, prefix, after) {
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(info.Key, prefix)
		if _, err := strconv.ParseUint(name, 10, 64); err == nil && len(name) == 20 {
			key = info.Key
		}
	}
	if key == "" {
		return nil, nil
	}
	c, err := o.readClaim(ctx, key)
	return &c, err
}

func (o *Ownership) readClaim(ctx context.Context, key string) (Claim, error) {
	b, err := objstore.ReadAll(ctx, o.cfg.Store, key, ownerBytesMax)
	if err != nil {
		return Claim{}, err
	}
	return DecodeClaim(key, b)
}

func (o *Ownership) putClaim(ctx context.Context, c *Claim, first bool) error {
	c.Format, c.ClusterID, c.Broker, c.RenewedMs = formatVersion, o.cfg.ClusterID, o.lease.cfg.Broker, time.Now().UnixMilli()
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = o.cfg.Store.Put(ctx, o.claimKey(c.Number), objstore.NewBytesBody(b), objstore.PutOptions{
		IfAbsent: first, CRC32C: objstore.CRC32C(b), HasCRC: true, ContentType: "application/json",
	})
	return err
}
