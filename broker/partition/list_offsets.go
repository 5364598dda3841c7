package partition

import (
	"context"
	"errors"
	"fmt"
	"math"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

var noOffset = ListOffsetResult{Offset: cluster.NoOffset, Timestamp: -1, LeaderEpoch: cluster.NoLeaderEpoch}

// ListOffset looks an offset up, by time over both tiers; only a lookup by time
// of a partition with a remote part may block.
func (p *Partition) ListOffset(ctx context.Context, req ListOffsetRequest) (ListOffsetResult, error) {
	r, err := p.leader(req.CurrentLeaderEpoch)
	if err != nil {
		return noOffset, err
	}
	b := p.bounds()
	bound := b.visible(req.Replica, req.ReadCommitted)
	switch req.Timestamp {
	case LatestTimestamp:
		if req.Replica < 0 && b.mark < r.epochStart {
			return noOffset, p.notAvailable(b, r)
		}
		latest, ok := p.log.LatestEpoch()
		if !ok {
			latest.Epoch = cluster.NoLeaderEpoch
		}
		return ListOffsetResult{Offset: bound, Timestamp: -1, LeaderEpoch: latest.Epoch}, nil
	case EarliestTimestamp:
		return p.at(b.start), nil
	case EarliestLocalTimestamp:
		return p.at(max(p.log.LocalStartOffset(), b.start)), nil
	case LatestTieredTimestamp:
		if end := p.remoteEnd(); end > b.start {
			return p.at(end - 1), nil
		}
		return noOffset, nil
	case EarliestPendingUpload:
		if !p.settings.Load().Tiered {
			return noOffset, nil
		}
		return p.at(max(p.remoteEnd(), b.start)), nil
	case MaxTimestamp:
		found, ok, err := p.newest(ctx, bound)
		if err != nil || !ok {
			return noOffset, err
		}
		return ListOffsetResult(found), nil
	}
	if req.Timestamp < 0 {
		return noOffset, fmt.Errorf("%s: %w: special timestamp %d", p.name, ErrUnsupportedTimestamp, req.Timestamp)
	}
	found, ok, err := p.atTime(ctx, req.Timestamp, bound)
	switch {
	case err != nil:
		return noOffset, err
	case ok:
		return ListOffsetResult(found), nil
	case req.Replica < 0 && b.mark < r.epochStart:
		return noOffset, p.notAvailable(b, r)
	}
	return noOffset, nil
}

// lookupError keeps a batch whose records do not decompress, which a client can
// write, from taking the replica offline.
func (p *Partition) lookupError(err error) error {
	if errors.Is(err, recordbatch.ErrCorrupt) {
		return p.wrap(ErrCorruptBatch, err)
	}
	return p.storage(err)
}

func (p *Partition) notAvailable(b bounds, r *role) error {
	return fmt.Errorf("%s: %w: high watermark %d, leader since %d", p.name, ErrOffsetNotAvailable, b.mark, r.epochStart)
}

// at answers an offset with its leader epoch, that of the end being the latest.
func (p *Partition) at(o cluster.Offset) ListOffsetResult {
	result := ListOffsetResult{Offset: o, Timestamp: -1, LeaderEpoch: cluster.NoLeaderEpoch}
	if epoch, ok := p.log.EpochAt(o); ok {
		result.LeaderEpoch = epoch
	} else if latest, ok := p.log.LatestEpoch(); ok && o >= p.log.EndOffset() {
		result.LeaderEpoch = latest.Epoch
	}
	return result
}

// newest finds the first record below bound with the highest timestamp of all.
// Stamps may go back, so it may be remote: from the highest local stamp on, later
// ones are looked for in growing steps and then halved ones.
func (p *Partition) newest(ctx context.Context, bound cluster.Offset) (TimestampOffset, bool, error) {
	here, ok, err := p.log.MaxTimestamp(bound)
	if err != nil || p.cfg.Remote == nil || p.log.StartOffset() >= p.log.LocalStartOffset() {
		return TimestampOffset{Offset: here.Offset, Timestamp: here.Timestamp, LeaderEpoch: here.LeaderEpoch}, ok, p.lookupError(err)
	}
	found, ok, err := p.atTime(ctx, max(0, here.Timestamp), bound)
	if err != nil || !ok {
		return TimestampOffset{}, false, err
	}
	none := int64(math.MaxInt64) // no record has this timestamp or a higher one
	for step := int64(1); found.Timestamp < none-step; step *= 2 {
		later, ok, err := p.atTime(ctx, found.Timestamp+step, bound)
		if err != nil {
			return TimestampOffset{}, false, err
		}
		if !ok {
			none = found.Timestamp + step
			break
		}
		found = later
	}
	for found.Timestamp+1 < none {
		middle := found.Timestamp + (none-found.Timestamp)/2
		later, ok, err := p.atTime(ctx, middle, bound)
		switch {
		case err != nil:
			return TimestampOffset{}, false, err
		case ok:
			found = later
		default:
			none = middle
		}
	}
	return found, true, nil
}

// atTime finds the first record at or above ts below bound: in the remote part
// first, then in the local one, which begin and end so that nothing lies between
// them (I4). A trim in between moves records from the second to the first, so
// the lookup starts over where the local start moved.
func (p *Partition) atTime(ctx context.Context, ts int64, bound cluster.Offset) (TimestampOffset, bool, error) {
	for range attempts {
		start, local := p.log.StartOffset(), p.log.LocalStartOffset()
		if p.cfg.Remote != nil && start < local {
			found, ok, err := p.cfg.Remote.OffsetForTimestamp(ctx, p.cfg.TopicPartition, ts, start)
			if err != nil {
				return TimestampOffset{}, false, p.remoteError(ctx, err)
			}
			if ok && found.Offset < local {
				return found, found.Offset < bound, nil
			}
		}
		found, ok, err := p.log.OffsetForTimestamp(ts, bound)
		if p.cfg.Remote != nil && p.log.LocalStartOffset() != local {
			continue
		}
		if err != nil || !ok {
			return TimestampOffset{}, false, p.lookupError(err)
		}
		return TimestampOffset{Offset: found.Offset, Timestamp: found.Timestamp, LeaderEpoch: found.LeaderEpoch}, true, nil
	}
	return TimestampOffset{}, false, p.wrap(ErrOffsetNotAvailable, nil)
}
