package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/store"
)

// event is what Do queues.
type event func(now time.Time, m Machine, tx *Tx)

// Phases of a shard.
const (
	loadingPhase int32 = iota
	servingPhase
	endedPhase
)

// tickMin is the shortest time between two ticks: a machine whose deadline does
// not move must not take a processor for itself.
const tickMin = time.Millisecond

// slowLoad is from when on a coordinator's loading is worth a line: a broker leads
// some fifty partitions, most of them empty.
const slowLoad = time.Second

// keptBytesMax bounds the buffers that a shard keeps.
const keptBytesMax = 256 << 10

// eventsMax bounds the events that run before it is looked again at what was
// decided meanwhile.
const eventsMax = 512

// shard is one tenure of this broker as leader of a partition. Everything but
// what is marked is its goroutine's own.
type shard struct {
	r     *Runtime
	rep   *replica
	epoch cluster.LeaderEpoch
	woken *partition.Waiter
	kick  chan struct{} // cap 1: there is something to look at
	phase atomic.Int32  // for everybody

	queue struct { // for everybody
		sync.Mutex
		events []event
		taken  int // events taken and not yet run
	}
	db *store.DB // that of the view; for everybody once the phase is serving

	view    *view
	overlay *overlay
	reader  liveReader
	machine Machine
	tx      Tx
	group   group
	flight  flight
	todo    []event // taken from the queue
	ran     int     // of todo
	batch   []byte  // scratch of append
	timer   *time.Timer
	ticked  time.Time
	full    bool // as much is in flight as may be
}

// flight is the batches that are appended and not yet in the view, oldest first.
type flight struct {
	batches []flying
	bytes   int
}

// flying is one of them, or only functions that wait as long as the one before.
type flying struct {
	next  cluster.Offset // exclusive end
	bytes int
	layer bool // it has a layer of the overlay
	thens []func(error)
}

func newShard(r *Runtime, rep *replica, epoch cluster.LeaderEpoch) *shard {
	s := &shard{
		r: r, rep: rep, epoch: epoch, woken: partition.NewWaiter(), kick: make(chan struct{}, 1), overlay: newOverlay(),
	}
	s.tx.s, s.group.codec = s, r.cfg.Codec
	s.group.reset()
	return s
}

// poke makes the shard look around.
func (s *shard) poke() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// readable says why the shard takes neither events nor reads, or nil; errEnded
// where another shard may, later.
func (s *shard) readable() error {
	switch s.phase.Load() {
	case servingPhase:
		return nil
	case loadingPhase:
		return ErrLoading
	}
	return errEnded
}

// do queues an event.
func (s *shard) do(e event) error {
	q := &s.queue
	q.Lock()
	defer q.Unlock()
	if err := s.readable(); err != nil {
		return err
	}
	if len(q.events)+q.taken >= s.r.cfg.Limits.QueueMax {
		s.r.cfg.LimitHit(LimitQueue)
		return ErrBusy
	}
	q.events = append(q.events, e)
	if len(q.events) == 1 {
		s.poke()
	}
	return nil
}

// run is the shard's goroutine. It returns why the tenure ended.
func (s *shard) run() error {
	p := s.rep.p
	p.AddWaiter(s.woken)
	defer p.RemoveWaiter(s.woken)
	s.timer = time.NewTimer(time.Hour)
	defer s.timer.Stop()
	defer s.phase.Store(endedPhase)
	select {
	case <-s.rep.turn: // C3
		defer func() { s.rep.turn <- struct{}{} }()
	case <-s.r.closing:
		return ErrClosed
	}
	s.rep.view = nil
	if err := s.load(); err != nil {
		return err
	}
	err := s.serve()
	told := err
	if !errors.Is(err, ErrNotCoordinator) && !errors.Is(err, ErrClosed) {
		told = fmt.Errorf("%w: %w", ErrNotCoordinator, err)
	}
	s.unload(told)
	return err
}

// led returns the log's state, or why this tenure is over.
func (s *shard) led() (partition.LogState, error) {
	st := s.rep.p.LogState()
	switch {
	case s.r.closed():
		return st, ErrClosed
	case s.rep.gone.Load() || !st.Leading || st.LeaderEpoch != s.epoch:
		return st, ErrNotCoordinator
	case s.view != nil && s.r.cfg.Views.db.Load() != s.view.db:
		return st, errReplaced
	}
	return st, nil
}

// load makes the view hold everything that is in the log now, then the machine.
func (s *shard) load() error {
	began := s.r.cfg.Now()
	st, err := s.led()
	if err != nil {
		return err
	}
	if s.view, err = s.r.openView(s.rep); err != nil {
		return err
	}
	from, end := s.view.next, st.LogEndOffset
	for {
		if st, err = s.led(); err != nil {
			return err
		}
		more, err := s.catchUp(st)
		if err != nil {
			return err
		}
		if s.view.next >= end {
			break
		}
		if more {
			continue
		}
		select {
		case <-s.woken.C:
		case <-s.kick:
		case <-s.r.closing:
		}
	}
	s.reader = liveReader{view: s.view, overlay: s.overlay}
	machine := s.r.cfg.NewMachine(s.rep.tp.Partition, s.epoch)
	if err := machine.Load(s.r.cfg.Now(), s.reader); err != nil {
		return fmt.Errorf("loading the coordinator: %w", err)
	}
	s.machine, s.db, s.view.buf = machine, s.view.db, nil
	s.phase.Store(servingPhase)
	took := s.r.cfg.Now().Sub(began)
	level := slog.LevelDebug
	if took >= slowLoad {
		level = slog.LevelInfo
	}
	s.r.cfg.Logger.Log(context.Background(), level, "coordinator loaded", "topic", s.r.cfg.Topic, "partition", s.rep.tp.Partition,
		"leader_epoch", s.epoch, "view_from", from, "log_end_offset", end, "took", took)
	return nil
}

// catchUp applies one chunk, with a slot, after it made sure that the view is
// one of this log.
func (s *shard) catchUp(st partition.LogState) (more bool, err error) {
	select {
	case s.r.slots <- struct{}{}:
		defer func() {
			<-s.r.slots
			s.r.poke()
		}()
	case <-s.r.closing:
		return false, ErrClosed
	}
	return s.r.step(s.rep, s.view, st)
}

// serve runs events until the tenure is over.
func (s *shard) serve() error {
	for {
		select {
		case <-s.woken.C: // it is looked at now
		default:
		}
		st, err := s.led()
		if err != nil {
			return err
		}
		if err := s.absorb(st); err != nil {
			return err
		}
		if s.work(st) {
			continue
		}
		s.arm()
		select {
		case <-s.woken.C:
		case <-s.kick:
		case <-s.timer.C:
		case <-s.r.closing:
		}
	}
}

// absorb brings into the view what was decided, and tells who waits for it.
func (s *shard) absorb(st partition.LogState) error {
	for s.view.next < st.HighWatermark {
		if s.view.missed(st) {
			return errReplaced
		}
		more, err := s.view.advance(s.rep.p, min(keptBytesMax, s.r.cfg.Limits.ApplyBytes))
		if err != nil {
			if _, lost := s.led(); lost != nil {
				return lost
			}
			return err
		}
		s.land(nil)
		if !more {
			return nil
		}
	}
	return nil
}

// land completes the batches that the view has. With an error all that are in
// flight fail, and the overlay stays as it is.
func (s *shard) land(err error) {
	n := 0
	for ; n < len(s.flight.batches); n++ {
		b := &s.flight.batches[n]
		if err == nil && b.next > s.view.next {
			break
		}
		if b.layer && err == nil {
			s.overlay.settle()
		}
		s.flight.bytes -= b.bytes
		for _, fn := range b.thens {
			fn(err)
		}
	}
	if n > 0 {
		rest := copy(s.flight.batches, s.flight.batches[n:])
		clear(s.flight.batches[rest:])
		s.flight.batches = s.flight.batches[:rest]
	}
}

// work runs what is due and some of what is queued, and appends what they want.
// It returns false where there was nothing to do.
func (s *shard) work(st partition.LogState) bool {
	s.take()
	if s.flight.bytes >= s.r.cfg.Limits.InFlightBytes {
		if !s.full && s.ran < len(s.todo) {
			s.full = true
			s.r.cfg.LimitHit(LimitInFlight)
		}
		return false
	}
	s.full = false
	busy := s.tick(st)
	n := 0
	for ; s.ran < len(s.todo) && n < eventsMax && s.flight.bytes < s.r.cfg.Limits.InFlightBytes; n++ {
		e := s.todo[s.ran]
		s.todo[s.ran] = nil
		s.ran++
		now := s.r.cfg.Now()
		s.event(st, now, func() { e(now, s.machine, &s.tx) })
	}
	_ = s.append(st, s.overlay.mark()) // who waits for it was told
	if len(s.flight.batches) > 0 {
		s.rep.p.FlushAppended() // events that come meanwhile share the next sync
	}
	return busy || n > 0
}

// take takes what is queued, once everything taken before has run.
func (s *shard) take() {
	q := &s.queue
	q.Lock()
	defer q.Unlock()
	if s.ran == len(s.todo) {
		s.todo, q.events, s.ran = q.events, s.todo[:0], 0
	}
	q.taken = len(s.todo) - s.ran
}

func (s *shard) tick(st partition.LogState) bool {
	now := s.r.cfg.Now()
	due := s.machine.Deadline()
	if due.IsZero() || due.After(now) || now.Before(s.ticked.Add(tickMin)) {
		return false
	}
	s.ticked = now
	s.event(st, now, func() { s.machine.Tick(now, &s.tx) })
	return true
}

// arm sets the timer to the machine's deadline.
func (s *shard) arm() {
	wait := time.Hour
	if due := s.machine.Deadline(); !due.IsZero() {
		wait = max(tickMin, due.Sub(s.r.cfg.Now()))
	}
	s.timer.Reset(wait)
}

// event runs one event and puts what it wants to the rest of the batch, which is
// appended first where that does not fit (C4).
func (s *shard) event(st partition.LogState, now time.Time, run func()) {
	mark := s.overlay.mark()
	s.tx.reset(now.UnixMilli())
	run()
	tx, limits := &s.tx, s.r.cfg.Limits
	if tx.err == nil && tx.bytes+recordbatch.HeaderBytes > st.MaxMessageBytes {
		tx.err = fmt.Errorf("%w: %d bytes, max.message.bytes %d", ErrTooLarge, tx.bytes, st.MaxMessageBytes)
	}
	count := s.group.builder.Count()
	if tx.err == nil && count > 0 && len(tx.records) > 0 && (tx.producer != s.group.producer || s.group.bytes+tx.bytes > st.MaxMessageBytes || count+len(tx.records) > limits.BatchRecords) {
		if err := s.append(st, mark); err != nil {
			tx.err = errors.Join(tx.err, err) // it saw what was not appended
		}
		mark = 0
	}
	if tx.err != nil {
		s.overlay.rollback(mark)
		for _, fn := range tx.thens {
			fn(tx.err)
		}
		return
	}
	s.group.add(tx)
	if s.group.builder.Count() == 0 {
		s.release()
	}
}

// release lets functions wait that came with no record: as long as what was
// appended before, or not at all.
func (s *shard) release() {
	thens := s.group.thens
	if len(thens) == 0 {
		return
	}
	s.group.thens = nil
	if n := len(s.flight.batches); n > 0 {
		last := &s.flight.batches[n-1]
		last.thens = append(last.thens, thens...)
		return
	}
	for _, fn := range thens {
		fn(nil)
	}
}

// append appends what the events so far want; the overlay up to mark is theirs.
func (s *shard) append(st partition.LogState, mark int) error {
	if s.group.builder.Count() == 0 {
		return nil
	}
	s.batch = s.group.builder.AppendTo(s.batch[:0])
	thens, size := s.group.thens, len(s.batch)
	s.group.reset()
	s.overlay.seal(mark)
	result, _, err := s.rep.p.Append(partition.AppendRequest{
		Records: s.batch, CurrentLeaderEpoch: s.epoch, Origin: partition.FromCoordinator, RequiredAcks: -1, FlushLater: true,
	})
	if err != nil {
		if _, lost := s.led(); lost != nil {
			err = lost
		}
		s.overlay.fail()
		for _, fn := range thens {
			fn(err)
		}
		return err
	}
	if cap(s.batch) > keptBytesMax {
		s.batch = nil
	}
	s.overlay.placed(result.BaseOffset)
	s.flight.batches = append(s.flight.batches, flying{next: result.LastOffset + 1, bytes: size, layer: true, thens: thens})
	s.flight.bytes += size
	return nil
}

// unload ends the machine: what waits fails, what is queued runs and fails, and
// the machine answers what it keeps (C6).
func (s *shard) unload(err error) {
	s.queue.Lock()
	s.phase.Store(endedPhase)
	events := append(s.todo[s.ran:], s.queue.events...)
	s.todo, s.queue.events = nil, nil
	s.queue.Unlock()
	s.land(err)
	for _, e := range events {
		now := s.r.cfg.Now()
		s.tx.reset(now.UnixMilli())
		e(now, s.machine, &s.tx)
		for _, fn := range s.tx.thens {
			fn(err)
		}
	}
	s.machine.Unload(err)
	level := slog.LevelInfo
	if errors.Is(err, ErrClosed) { // of every one, as the broker stops
		level = slog.LevelDebug
	}
	s.r.cfg.Logger.Log(context.Background(), level, "coordinator unloaded", "topic", s.r.cfg.Topic, "partition", s.rep.tp.Partition,
		"leader_epoch", s.epoch, "reason", err)
}
