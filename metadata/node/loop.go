package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
	"strandline/metadata/controller"
	"strandline/metadata/image"
	"strandline/metadata/quorum"
	"strandline/metadata/request"
	"strandline/metadata/state"
)

const (
	// inFlightMax bounds the items in flight beyond which no request is taken.
	inFlightMax = 1024
	// queueItems is room for those and for what one more call adds.
	queueItems = 4 * inFlightMax
)

// call is a request with its way back.
type call struct {
	req   request.Request
	reply chan outcome // cap 1
}

type outcome struct {
	result request.Result
	err    error
}

// item is a proposal in flight, or a reply that waits for those before it.
type item struct {
	generation uint64
	proposal   *quorum.Proposal // nil: nothing to wait for
	first      bool             // of its request
	reply      func(*image.Image) (request.Result, error)
	call       *call
	err        error // of the proposal, or the refusal at apply
}

// loop drives the controller on one goroutine (D4).
type loop struct {
	ctrl  *controller.Controller
	q     *quorum.Quorum
	state *state.State
	now   func() time.Time
	log   *slog.Logger

	requests chan *call
	queue    chan *item // to wait
	done     chan *item // from wait
	began    chan begin
	stop     chan struct{}
	stopped  chan struct{}
	led      chan struct{} // closed once a tenure has started
	ledOnce  sync.Once
	hits     atomic.Int64 // times that inFlightMax held requests back
	wg       sync.WaitGroup

	// The rest belongs to run.
	generation uint64
	inFlight   int
	tenure     quorum.Tenure
	beginning  bool
}

// begin says that everything committed before a tenure is applied.
type begin struct {
	count uint64
	err   error
}

func startLoop(
	ctrl *controller.Controller, q *quorum.Quorum, s *state.State, now func() time.Time, log *slog.Logger,
) *loop {
	l := &loop{
		ctrl: ctrl, q: q, state: s, now: now, log: log,
		requests: make(chan *call), queue: make(chan *item, queueItems), done: make(chan *item, queueItems),
		began: make(chan begin), stop: make(chan struct{}), stopped: make(chan struct{}), led: make(chan struct{}),
	}
	l.wg.Go(l.wait)
	go l.run()
	return l
}

// wait waits for the proposals in their order.
func (l *loop) wait() {
	for it := range l.queue {
		if it.proposal != nil {
			answer, _, err := it.proposal.Wait()
			it.err = err
			if refused, ok := answer.(error); ok && err == nil {
				it.err = refused
			}
		}
		l.done <- it
	}
}

func (l *loop) run() {
	defer close(l.stopped)
	ticker := time.NewTicker(controller.TickInterval)
	defer ticker.Stop()
	for {
		tenure, changed := l.q.Tenure()
		if tenure.Count != l.tenure.Count {
			l.follow(tenure)
		}
		requests := l.requests
		if l.inFlight >= inFlightMax {
			l.hits.Add(1)
			requests = nil
		}
		select {
		case c := <-requests:
			l.emit(l.ctrl.Handle(c.req, l.now()), c)
		case it := <-l.done:
			l.finish(it)
		case b := <-l.began:
			l.start(b)
		case <-ticker.C:
			l.tick()
		case <-changed:
		case <-l.stop:
			l.drain()
			return
		}
	}
}

// drain waits for what is in flight, so that Raft may be stopped.
func (l *loop) drain() {
	for l.inFlight > 0 || l.beginning {
		select {
		case it := <-l.done:
			l.finish(it)
		case <-l.began:
			l.beginning = false
		}
	}
	close(l.queue)
}

// follow takes a change of leadership.
func (l *loop) follow(t quorum.Tenure) {
	l.tenure = t
	l.ctrl.Stop()
	l.generation++
	if t.Leader {
		l.prepare()
	} else {
		l.log.Info("this node is not the active controller")
	}
}

// prepare waits for the commands of earlier tenures, off this goroutine.
func (l *loop) prepare() {
	if l.beginning {
		return // the tick tries again
	}
	l.beginning = true
	count := l.tenure.Count
	l.wg.Go(func() { l.began <- begin{count: count, err: l.q.Barrier()} })
}

func (l *loop) start(b begin) {
	l.beginning = false
	if b.err != nil || b.count != l.tenure.Count || !l.tenure.Leader {
		return // a later tenure, or the tick, tries again
	}
	l.log.Info("this node is the active controller", "epoch", l.tenure.Term)
	l.emit(l.ctrl.Start(l.state.Image(), cluster.ControllerEpoch(l.tenure.Term), l.now()), nil)
}

func (l *loop) tick() {
	if l.ctrl.Active() {
		l.emit(l.ctrl.Tick(l.now()), nil)
	} else if l.tenure.Leader {
		l.prepare()
	}
}

// emit puts an output in flight.
func (l *loop) emit(out controller.Output, c *call) {
	last := &item{generation: l.generation, reply: out.Reply, call: c, first: len(out.Commands) <= 1}
	for n, cmd := range out.Commands {
		data, err := command.Encode(cmd)
		if err != nil {
			// The controller bounds its commands; this one and all after it
			// cannot follow.
			l.log.Error("a metadata command cannot be encoded", "err", err)
			last.err = err
			l.fail()
			l.answer(last)
			return
		}
		p := l.q.Propose(data)
		it := last
		if n < len(out.Commands)-1 {
			it = &item{generation: l.generation, first: n == 0}
		}
		it.proposal = &p
		l.push(it)
	}
	switch {
	case len(out.Commands) > 0 || c == nil:
	case l.inFlight == 0:
		l.answer(last)
	default:
		l.push(last) // D3
	}
}

func (l *loop) push(it *item) {
	l.inFlight++
	l.queue <- it
}

// finish takes an item that is no longer in flight.
func (l *loop) finish(it *item) {
	l.inFlight--
	current := it.generation == l.generation
	switch {
	case !current && it.err == nil:
		it.err = errForgotten
	case current && it.err != nil:
		l.log.Warn("a metadata change failed", "err", it.err)
		l.fail()
	case current && it.proposal != nil:
		img := l.state.Image()
		l.emit(l.ctrl.Committed(img, l.now()), nil)
		if uint64(img.ControllerEpoch()) == l.tenure.Term {
			l.ledOnce.Do(func() { close(l.led) })
		}
	}
	l.answer(it)
}

// errForgotten is the outcome of what followed a failure.
var errForgotten = errors.New("an earlier change failed")

// fail forgets everything in flight.
func (l *loop) fail() {
	l.generation++
	l.ctrl.Reset(l.state.Image(), l.now())
}

// answer replies to the request of an item.
func (l *loop) answer(it *item) {
	if it.call == nil {
		return
	}
	var o outcome
	switch {
	case it.err == nil:
		o.result, o.err = it.reply(l.state.Image())
	case errors.Is(it.err, quorum.ErrNotLeader) && it.first:
		o.err = fmt.Errorf("%w: %w", request.ErrNotController, it.err)
	default:
		o.err = fmt.Errorf("%w: %w", request.ErrOutcomeUnknown, it.err)
	}
	it.call.reply <- o
}

// submit asks and waits. gone is closed where the node has failed.
func (l *loop) submit(ctx context.Context, req request.Request, gone <-chan struct{}) (request.Result, error) {
	c := &call{req: req, reply: make(chan outcome, 1)}
	select {
	case l.requests <- c:
	case <-ctx.Done():
		return nil, fmt.Errorf("asking the controller: %w", ctx.Err())
	case <-l.stopped:
		return nil, fmt.Errorf("%w: the node is closing", request.ErrNotController)
	case <-gone:
		return nil, fmt.Errorf("%w: the node has failed", request.ErrNotController)
	}
	select {
	case o := <-c.reply:
		return o.result, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", request.ErrOutcomeUnknown, ctx.Err())
	case <-gone:
		return nil, fmt.Errorf("%w: the node has failed", request.ErrOutcomeUnknown)
	}
}

// close stops taking requests, waits for those in flight and ends.
func (l *loop) close() {
	close(l.stop)
	<-l.stopped
	l.wg.Wait()
}
