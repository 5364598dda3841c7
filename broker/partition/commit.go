package partition

import (
	"slices"

	"strandline/metadata/cluster"
)

// Commit is an append that is not yet as durable as its acks ask.
type Commit struct {
	done chan struct{}
	err  error
	need int // queues that it is still in
}

// Done is closed when the outcome is known.
func (c *Commit) Done() <-chan struct{} { return c.done }

// Err returns the outcome once Done is closed: nil, ErrNotLeader, ErrDiskFull,
// ErrStorage or ErrClosed. On an error the append may or may not survive.
func (c *Commit) Err() error {
	<-c.done
	return c.err
}

func (c *Commit) settle(err error) {
	select {
	case <-c.done:
		return
	default:
	}
	c.need--
	if err == nil && c.need > 0 {
		return
	}
	c.err = err
	close(c.done)
}

// commitQueue holds commits by the offset that they wait for. Appends arrive in
// offset order, duplicates may come later. Its bound is the bound on requests in
// flight.
type commitQueue struct{ waiting []waitingCommit }

type waitingCommit struct {
	next   cluster.Offset // exclusive: settled once the bound reaches it
	commit *Commit
}

func (q *commitQueue) add(next cluster.Offset, c *Commit) {
	at := len(q.waiting)
	for at > 0 && q.waiting[at-1].next > next {
		at--
	}
	q.waiting = slices.Insert(q.waiting, at, waitingCommit{next, c})
	c.need++
}

// complete settles everything that waits for an offset at or below bound.
func (q *commitQueue) complete(bound cluster.Offset, err error) {
	n := 0
	for n < len(q.waiting) && q.waiting[n].next <= bound {
		q.waiting[n].commit.settle(err)
		n++
	}
	if n > 0 {
		q.waiting = slices.Delete(q.waiting, 0, n)
	}
}

func (q *commitQueue) empty() bool { return len(q.waiting) == 0 }

func (q *commitQueue) failAll(err error) {
	for _, w := range q.waiting {
		w.commit.settle(err)
	}
	q.waiting = nil
}

func (p *Partition) failCommitsLocked(err error) {
	p.mu.flush.failAll(err)
	p.mu.commit.failAll(err)
}

// awaitLocked returns a commit that is done once everything below next is as
// durable as acks ask, or nil where it is already.
func (p *Partition) awaitLocked(acks int16, next cluster.Offset, flush bool) *Commit {
	if acks == 0 {
		return nil
	}
	needFlush := flush && p.log.FlushedOffset() < next
	needCommit := acks < 0 && p.HighWatermark() < next
	if !needFlush && !needCommit {
		return nil
	}
	c := &Commit{done: make(chan struct{})}
	if needFlush {
		p.mu.flush.add(next, c)
	}
	if needCommit {
		p.mu.commit.add(next, c)
	}
	return c
}

// FlushSoon syncs the log in the background, where there is anything to sync.
func (p *Partition) FlushSoon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flushLocked()
}

// flushLocked starts the flusher; one that runs already syncs again, since what
// it is asked for may have come too late for the sync under way.
func (p *Partition) flushLocked() { p.dueLocked(true) }

// dueLocked notes that a sync is due; start has a flusher do it, else one does
// that runs already, or FlushAppended.
func (p *Partition) dueLocked(start bool) {
	if p.mu.closed || p.online() != nil {
		return
	}
	p.mu.flushAgain = true
	if start && p.boardLocked() {
		go p.runFlusher()
	}
}

// boardLocked makes the caller the flusher; false: there is one.
func (p *Partition) boardLocked() bool {
	if p.mu.flushing {
		return false
	}
	p.mu.flushing = true
	p.flushers.Add(1)
	return true
}

// FlushAppended does, on the caller's goroutine, the sync that appends with
// FlushLater have left, where one is due and nobody is at it. What it has decided
// is decided when it returns.
func (p *Partition) FlushAppended() {
	p.mu.Lock()
	mine := p.mu.flushAgain && !p.mu.closed && p.boardLocked()
	p.mu.Unlock()
	if mine {
		p.runFlusher()
	}
}

func (p *Partition) runFlusher() {
	defer p.flushers.Done()
	for {
		p.mu.Lock()
		p.mu.flushAgain = false
		p.mu.Unlock()
		err := p.flushOnce()
		p.advance()
		if err == nil {
			p.offer()
		}
		p.mu.Lock()
		if err != nil {
			p.mu.flush.failAll(err) // what waits is told; the next sync is tried with the next sweep
		}
		more := p.mu.flushAgain || !p.mu.flush.empty() || flushed(p.settings.Load()) && p.log.FlushedOffset() < p.log.EndOffset()
		if err != nil || p.mu.closed || !more {
			p.mu.flushing = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// offer tells, once a sealed segment, that it is flushed and may leave for the
// tier.
func (p *Partition) offer() {
	base := p.log.ActiveBase()
	if p.cfg.OnOffer == nil || p.log.FlushedOffset() < base || !p.settings.Load().Tiered {
		return
	}
	if p.offered.Swap(int64(base)) != int64(base) {
		p.cfg.OnOffer()
	}
}

func (p *Partition) flushOnce() error {
	if p.cfg.FlushSlots != nil {
		slots := p.cfg.FlushSlots()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
	return p.storage(p.log.Flush(p.ctx))
}
