package partition

import (
	"errors"
	"fmt"

	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
)

// Append checks and appends whole batches. A nil Commit with a nil error means
// that the append is already as durable as RequiredAcks asks; else the caller
// waits for Commit.Done, or gives up, and the append stays.
//
// The batches' own checks run before the write lock is taken, so that appends of
// several connections to one partition share the processors; producer sequences,
// offsets and the write are serialised. A duplicate of one of the producer's last
// batches is answered with the original's offsets, and waits as the original did.
func (p *Partition) Append(req AppendRequest) (AppendResult, *Commit, error) {
	r, err := p.leader(req.CurrentLeaderEpoch)
	if err != nil {
		return AppendResult{}, nil, err
	}
	settings := p.settings.Load()
	if err := p.admit(req, r, settings); err != nil {
		return AppendResult{}, nil, err
	}
	s := scratches.Get().(*scratch)
	defer s.free()
	form, err := p.conform(req, settings, s)
	if err != nil {
		return AppendResult{}, nil, err
	}
	req.Records = form.records
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	result, rolled, err := p.writeLocked(req, settings)
	if err != nil {
		return AppendResult{}, nil, err
	}
	result.Upgraded, result.Recompressed = form.upgraded, form.recompressed
	return result, p.settle(req, result, rolled, settings), nil
}

// settle advances the watermarks after an append and says what it waits for;
// writeMu is held. The flusher is started where the append must be synced, and
// where it sealed a segment, which otherwise cannot leave for the tier.
func (p *Partition) settle(req AppendRequest, result AppendResult, rolled bool, settings *config.Topic) *Commit {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takeEndLocked(p.role.Load())
	unflushed := int64(p.log.EndOffset() - p.log.FlushedOffset())
	due := flushed(settings) || unflushed >= settings.FlushMessages
	var commit *Commit
	if !req.FlushLater {
		commit = p.awaitLocked(req.RequiredAcks, result.LastOffset+1, due)
	}
	if due && unflushed > 0 || rolled {
		p.dueLocked(!req.FlushLater)
	}
	if err := p.online(); err != nil { // went offline after the write
		p.failCommitsLocked(err)
	}
	return commit
}

// leader returns the role if this replica leads under the epoch that the request
// names.
func (p *Partition) leader(epoch cluster.LeaderEpoch) (*role, error) {
	if err := p.online(); err != nil {
		return nil, err
	}
	r := p.role.Load()
	if err := p.fence(r, epoch); err != nil {
		return nil, err
	}
	if !r.leading {
		return nil, p.wrap(ErrNotLeader, nil)
	}
	return r, nil
}

// fence compares the leader epoch that a request names with the present one.
func (p *Partition) fence(r *role, epoch cluster.LeaderEpoch) error {
	switch {
	case epoch == cluster.NoLeaderEpoch || epoch == r.LeaderEpoch:
		return nil
	case epoch < r.LeaderEpoch:
		return fmt.Errorf("%s: %w: %d, now %d", p.name, ErrFencedLeaderEpoch, epoch, r.LeaderEpoch)
	}
	return fmt.Errorf("%s: %w: %d, here %d", p.name, ErrUnknownLeaderEpoch, epoch, r.LeaderEpoch)
}

// admit decides what does not depend on the records.
func (p *Partition) admit(req AppendRequest, r *role, settings *config.Topic) error {
	if need := settings.MinISR(len(r.Replicas)); req.RequiredAcks < 0 && len(r.ISR) < need {
		return fmt.Errorf("%s: %w: %d in sync, %d needed", p.name, ErrNotEnoughReplicas, len(r.ISR), need)
	}
	if req.Origin == FromClient && p.cfg.DiskFull != nil && p.cfg.DiskFull() {
		return p.wrap(ErrDiskFull, nil)
	}
	return nil
}

// refusal names a batch's error in this package's words.
func (p *Partition) refusal(err error) error {
	var rejected *recordbatch.RejectedError
	switch {
	case errors.As(err, &rejected):
		out := &InvalidRecordError{Reason: ErrInvalidRecord}
		if errors.Is(rejected.Reason, recordbatch.ErrInvalidTimestamp) {
			out.Reason = ErrInvalidTimestamp
		}
		for _, r := range rejected.Records {
			out.Records = append(out.Records, RecordError{BatchIndex: r.Index, Message: r.Message})
		}
		return fmt.Errorf("%s: %w", p.name, out)
	case errors.Is(err, recordbatch.ErrInvalid), errors.Is(err, recordbatch.ErrBadCount):
		return p.wrap(ErrInvalidRecord, err)
	case errors.Is(err, recordbatch.ErrBadMagic):
		return p.wrap(ErrUnsupportedMagic, err)
	case errors.Is(err, recordbatch.ErrUnknownCodec):
		return p.wrap(ErrUnsupportedCompression, err)
	}
	return p.wrap(ErrCorruptBatch, err)
}

// writeLocked appends; writeMu is held. The flag says that the append sealed a
// segment, which then waits for a sync.
func (p *Partition) writeLocked(req AppendRequest, settings *config.Topic) (AppendResult, bool, error) {
	r, err := p.leader(req.CurrentLeaderEpoch)
	if err != nil {
		return AppendResult{}, false, err
	}
	result := AppendResult{LogAppendTime: -1, LogStartOffset: p.log.StartOffset(), LeaderEpoch: r.LeaderEpoch}
	stamp := settings.TimestampType == config.LogAppendTime && req.Origin == FromClient
	verdict, err := p.checkProducers(req)
	if err != nil {
		return AppendResult{}, false, err
	}
	if verdict.Duplicate {
		result.Duplicate = true
		result.BaseOffset, result.LastOffset = verdict.BaseOffset, verdict.LastOffset
		if stamp {
			result.LogAppendTime = verdict.Timestamp
		}
		return result, false, nil
	}
	next := p.log.EndOffset()
	result.BaseOffset = next
	now := p.cfg.Now()
	for rest := req.Records; len(rest) > 0; {
		var b recordbatch.Batch
		if b, rest, err = recordbatch.First(rest); err != nil {
			return AppendResult{}, false, p.refusal(err)
		}
		b.SetBaseOffset(next)
		b.SetPartitionLeaderEpoch(r.LeaderEpoch)
		if stamp {
			b.SetLogAppendTime(now.UnixMilli())
			result.LogAppendTime = now.UnixMilli()
		}
		next = b.NextOffset()
	}
	result.LastOffset = next - 1
	info, err := p.log.Append(req.Records)
	if err != nil {
		return AppendResult{}, false, p.storage(err)
	}
	return result, info.Rolled, nil
}

// checkProducers checks every batch against its producer's state. Only an append
// of a single batch can be a duplicate: nothing else may be answered for it.
func (p *Partition) checkProducers(req AppendRequest) (producerstate.Verdict, error) {
	var verdict producerstate.Verdict
	for rest := req.Records; len(rest) > 0; {
		b, more, err := recordbatch.First(rest)
		if err != nil {
			return verdict, p.refusal(err)
		}
		rest = more
		if !b.HasProducerID() {
			continue
		}
		if req.Origin == FromClient {
			verdict, err = p.log.Producers().Check(b)
		} else {
			err = p.log.Producers().CheckFromCoordinator(b)
		}
		switch {
		case errors.Is(err, producerstate.ErrOutOfOrderSequence):
			return verdict, p.wrap(ErrOutOfOrderSequence, err)
		case errors.Is(err, producerstate.ErrInvalidProducerEpoch):
			return verdict, p.wrap(ErrInvalidProducerEpoch, err)
		case errors.Is(err, producerstate.ErrInvalidTxnState):
			return verdict, p.wrap(ErrInvalidTxnState, err)
		case errors.Is(err, producerstate.ErrCoordinatorFenced):
			return verdict, p.wrap(ErrCoordinatorFenced, err)
		case err != nil:
			return verdict, p.wrap(ErrInvalidRecord, err)
		}
	}
	return verdict, nil
}
