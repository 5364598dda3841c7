package partition

import (
	"math"
	"slices"

	"strandline/metadata/cluster"
)

// progress is what the high watermark follows from.
type progress struct {
	end     cluster.Offset // of the leader's log
	flushed cluster.Offset
	strict  bool // flush.messages=1
	minISR  int  // already bounded by the number of replicas
	self    cluster.BrokerID
	isr     []cluster.BrokerID
	// followers are log end offsets; a member of the set that never fetched
	// is absent and holds the watermark where it is.
	followers map[cluster.BrokerID]cluster.Offset
}

// watermark returns the high watermark that follows, and false where it must
// stay: the in-sync set is below its minimum (KIP-966) or a member is unknown.
func (p progress) watermark() (cluster.Offset, bool) {
	if len(p.isr) < p.minISR {
		return 0, false
	}
	mark := p.end
	if p.strict {
		mark = min(mark, p.flushed) // P2
	}
	for _, id := range p.isr {
		if id == p.self {
			continue
		}
		end, known := p.followers[id]
		if !known {
			return 0, false
		}
		mark = min(mark, end)
	}
	return mark, true
}

// noUnstable stands for no transaction that bounds the last stable offset.
const noUnstable = cluster.Offset(math.MaxInt64)

// advance raises the high watermark and the last stable offset as far as they
// may go, completes the appends that they were waiting for, and wakes waiters.
// It is called after a sync, a follower's fetch, or a change of the settings.
func (p *Partition) advance() {
	p.mu.Lock()
	p.advanceLocked(p.role.Load())
	refresh := p.mu.unstable < p.HighWatermark()
	p.mu.Unlock()
	if refresh {
		p.writeMu.Lock()
		p.takeEnd()
		p.writeMu.Unlock()
	}
}

// takeEnd takes the log's end and its transactions into account; writeMu is
// held, so that no other append comes between the two.
func (p *Partition) takeEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takeEndLocked(p.role.Load())
}

func (p *Partition) takeEndLocked(r *role) {
	// A new transaction bounds the last stable offset before the high
	// watermark may pass its first record.
	p.mu.unstable = p.firstUnstable()
	p.mu.end = p.log.EndOffset()
	p.advanceLocked(r)
	if p.mu.unstable < p.HighWatermark() {
		p.log.Producers().AdvanceHighWatermark(p.HighWatermark())
		p.mu.unstable = p.firstUnstable()
		p.advanceLocked(r)
	}
}

func (p *Partition) firstUnstable() cluster.Offset {
	if first, ok := p.log.Producers().FirstUnstableOffset(); ok {
		return first
	}
	return noUnstable
}

func (p *Partition) advanceLocked(r *role) {
	settings := p.settings.Load()
	mark, changed := p.HighWatermark(), false
	flushedOffset := p.log.FlushedOffset()
	if r.leading {
		state := progress{
			end: p.mu.end, flushed: flushedOffset, strict: flushed(settings),
			minISR: settings.MinISR(len(r.Replicas)), self: p.cfg.Self, isr: r.ISR, followers: p.mu.followers,
		}
		if next, ok := state.watermark(); ok && next > mark {
			mark, changed = next, true
			p.highWatermark.Store(int64(mark))
		}
	}
	if stable := min(mark, max(p.mu.unstable, p.log.StartOffset())); stable > p.LastStableOffset() {
		p.lastStable.Store(int64(stable))
		changed = true
	}
	p.mu.flush.complete(flushedOffset, nil)
	p.mu.commit.complete(mark, nil)
	if changed {
		p.wakeLocked()
	}
}

// raise moves the high watermark and the last stable offset up to an offset that
// is known to be decided.
func (p *Partition) raise(to cluster.Offset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.highWatermark.Store(max(p.highWatermark.Load(), int64(to)))
	p.lastStable.Store(max(p.lastStable.Load(), int64(to)))
}

// AddWaiter registers w; see Waiter.
func (p *Partition) AddWaiter(w *Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.waiters[w] = struct{}{}
}

// RemoveWaiter undoes AddWaiter.
func (p *Partition) RemoveWaiter(w *Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.waiters, w)
}

func (p *Partition) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeLocked()
}

func (p *Partition) wakeLocked() {
	for w := range p.mu.waiters {
		select {
		case w.C <- struct{}{}:
		default: // it has not looked since it was last woken
		}
	}
}

// followerAt records how far a follower has got.
func (p *Partition) followerAt(r *role, replica cluster.BrokerID, end cluster.Offset) {
	if !r.leading || replica == p.cfg.Self || !slices.Contains(r.Replicas, replica) {
		return
	}
	p.mu.Lock()
	current := p.role.Load() == r
	if current {
		p.mu.followers[replica] = end
	}
	p.mu.Unlock()
	if current {
		p.advance()
	}
}
