package partition

import (
	"context"
	"fmt"

	"strandline/metadata/cluster"
)

// remoteEnd returns RemoteEndOffset as last published, or LogStartOffset where
// nothing is remote.
func (p *Partition) remoteEnd() cluster.Offset {
	start := p.log.StartOffset()
	if p.cfg.Remote == nil {
		return start
	}
	end, known := p.cfg.Remote.RemoteEndOffset(p.cfg.TopicPartition)
	if !known {
		return start
	}
	return max(end, start)
}

// DeleteRecords moves LogStartOffset to offset (NoOffset: the high watermark)
// and returns it once it is durable. An offset at or below LogStartOffset
// changes nothing; one past the high watermark, or another negative one, fails
// with ErrOffsetOutOfRange.
func (p *Partition) DeleteRecords(ctx context.Context, offset cluster.Offset) (cluster.Offset, error) {
	r, err := p.leader(cluster.NoLeaderEpoch)
	if err != nil {
		return cluster.NoOffset, err
	}
	if !p.settings.Load().CleanupPolicy.Delete() {
		return cluster.NoOffset, p.wrap(ErrPolicyViolation, nil)
	}
	mark := p.HighWatermark()
	if offset == cluster.NoOffset {
		offset = mark
	}
	if offset < 0 || offset > mark {
		return cluster.NoOffset, fmt.Errorf("%s: %w: delete below %d, high watermark %d", p.name, ErrOffsetOutOfRange, offset, mark)
	}
	return p.advanceLogStart(ctx, r, offset)
}

// AdvanceLogStart moves LogStartOffset forward for retention; an offset at or
// below the present one changes nothing, one past the high watermark fails. It
// is durable when it returns.
func (p *Partition) AdvanceLogStart(ctx context.Context, to cluster.Offset) (cluster.Offset, error) {
	r, err := p.leader(cluster.NoLeaderEpoch)
	if err != nil {
		return cluster.NoOffset, err
	}
	if mark := p.HighWatermark(); to > mark {
		return cluster.NoOffset, fmt.Errorf("%s: %w: log start %d, high watermark %d", p.name, ErrOffsetOutOfRange, to, mark)
	}
	return p.advanceLogStart(ctx, r, to)
}

// advanceLogStart persists first and shows afterwards: what a client saw gone
// never comes back. The log itself is synced up to the offset before, so that a
// power loss cannot leave it ending below its start.
func (p *Partition) advanceLogStart(ctx context.Context, r *role, to cluster.Offset) (cluster.Offset, error) {
	if start := p.log.StartOffset(); to <= start {
		return start, nil
	}
	if p.log.FlushedOffset() < to {
		if err := p.storage(p.log.Flush(ctx)); err != nil {
			return cluster.NoOffset, err
		}
		p.advance()
	}
	if err := p.persistLogStart(ctx, r, &to); err != nil {
		return cluster.NoOffset, err
	}
	return p.showLogStart(to), nil
}

func (p *Partition) persistLogStart(ctx context.Context, r *role, to *cluster.Offset) error {
	if p.tiered() {
		base, err := p.BatchBase(*to)
		if err != nil {
			return err
		}
		kept, err := p.cfg.Keeper.Advance(ctx, p.cfg.TopicPartition, r.LeaderEpoch, *to, base)
		if err != nil {
			return fmt.Errorf("%s: keep log start %d: %w", p.name, *to, err)
		}
		*to = max(*to, kept)
		return nil
	}
	if p.cfg.Checkpoint == nil {
		return nil
	}
	if err := p.cfg.Checkpoint.Persist(ctx, p.cfg.TopicPartition, *to); err != nil {
		return fmt.Errorf("%s: keep log start %d: %w", p.name, *to, err)
	}
	return nil
}

// tiered says that the catalog holds the log start offset: the tier is on, or
// was and has left something.
func (p *Partition) tiered() bool {
	if p.cfg.Keeper == nil || p.cfg.Remote == nil {
		return false
	}
	if p.settings.Load().Tiered {
		return true
	}
	_, known := p.cfg.Remote.LogStartOffset(p.cfg.TopicPartition)
	return known
}

// showLogStart raises the log's start and tells waiters.
func (p *Partition) showLogStart(to cluster.Offset) cluster.Offset {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	if to = min(to, p.log.EndOffset()); to > p.log.StartOffset() {
		// The bounds above move first, so that no reader sees them below it.
		p.raise(to)
		p.log.SetStartOffset(to)
		p.wake()
	}
	return p.log.StartOffset()
}

// refreshLogStart takes the log start offset from the catalog and returns what
// holds then.
func (p *Partition) refreshLogStart() cluster.Offset {
	if p.cfg.Remote != nil {
		if start, known := p.cfg.Remote.LogStartOffset(p.cfg.TopicPartition); known && start > p.log.StartOffset() {
			return p.showLogStart(start)
		}
	}
	return p.log.StartOffset()
}

// RemoteAdvanced tells the partition that the catalog's entry of it changed. It
// may wait for an append under way.
func (p *Partition) RemoteAdvanced() { p.refreshLogStart() }

// BatchBase returns the base offset of the local batch that holds offset, or
// offset itself where the log ends there or it is not local.
func (p *Partition) BatchBase(offset cluster.Offset) (cluster.Offset, error) {
	if offset >= p.log.EndOffset() || offset < p.log.LocalStartOffset() {
		return offset, nil
	}
	batch, err := p.log.FindBatch(offset)
	if err != nil {
		return cluster.NoOffset, p.storage(err)
	}
	return min(batch.Base, offset), nil
}

// Roll seals the active segment unless it is empty.
func (p *Partition) Roll() error {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	if err := p.online(); err != nil {
		return err
	}
	rolled, err := p.log.Roll()
	return p.afterRoll(rolled, err)
}

// RollIfDue seals the active segment where segment.ms has passed.
func (p *Partition) RollIfDue() error {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	if err := p.online(); err != nil {
		return err
	}
	rolled, err := p.log.RollIfDue(p.cfg.Now())
	return p.afterRoll(rolled, err)
}

func (p *Partition) afterRoll(rolled bool, err error) error {
	if err != nil {
		return p.storage(err)
	}
	if rolled {
		p.FlushSoon()
	}
	return nil
}

// TrimLocal removes local segments that end at or below the offset, no further
// than LogStartOffset, or RemoteEndOffset as last published (P4).
func (p *Partition) TrimLocal(below cluster.Offset) (removed int, bytes int64, err error) {
	p.structure.Lock()
	defer p.structure.Unlock()
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	if err := p.online(); err != nil {
		return 0, 0, err
	}
	removed, bytes, err = p.log.DeleteSealedBelow(min(below, p.remoteEnd()))
	return removed, bytes, p.storage(err)
}

// Sweep does the log's periodic duties: it removes files whose delay has
// passed, and forgets idle producers.
func (p *Partition) Sweep() error {
	now := p.cfg.Now()
	p.writeMu.Lock()
	if p.online() == nil {
		p.log.Producers().Expire(now)
	}
	p.writeMu.Unlock()
	if p.online() != nil {
		return nil
	}
	_, err := p.log.RunDeferred(now)
	return p.storage(err)
}

// FlushDue says that flush.ms or a sealed segment ask for a sync.
func (p *Partition) FlushDue() bool {
	return p.online() == nil && (p.log.FlushDue(p.cfg.Now()) || p.log.FlushedOffset() < p.log.ActiveBase())
}

// Flushing says that a sync is under way, or waits for its turn.
func (p *Partition) Flushing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.flushing
}

// RemoveNow removes the files of removed segments without waiting for their
// delay, for a disk that is full.
func (p *Partition) RemoveNow() error {
	if p.online() != nil {
		return nil
	}
	_, err := p.log.RunDeferred(p.cfg.Now().Add(p.settings.Load().FileDeleteDelay))
	return p.storage(err)
}
