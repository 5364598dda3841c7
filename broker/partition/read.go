package partition

import (
	"context"
	"errors"
	"fmt"

	"strandline/broker/locallog"
	"strandline/metadata/cluster"
)

// bounds are the offsets that one read goes by, taken in an order that keeps
// P1 whatever happens in between: each was at most the next when it was taken,
// and all of them only rise.
type bounds struct {
	start, stable, mark, end cluster.Offset
}

func (p *Partition) bounds() bounds {
	var b bounds
	b.start = p.log.StartOffset()
	b.stable = p.LastStableOffset()
	b.mark = p.HighWatermark()
	b.end = p.log.EndOffset()
	return b
}

// visible is the exclusive bound of what the reader may see.
func (b bounds) visible(replica cluster.BrokerID, committed bool) cluster.Offset {
	switch {
	case replica >= 0:
		return b.end
	case committed:
		return b.stable
	}
	return b.mark
}

// Read reads the local log and never blocks on the remote tier. A read at the
// bound of what the reader may see, or between it and the log's end, is empty.
func (p *Partition) Read(req ReadRequest) (ReadResult, error) {
	r, err := p.leader(req.CurrentLeaderEpoch)
	if err != nil {
		return ReadResult{}, err
	}
	if req.LastFetchedEpoch >= 0 {
		diverging, err := p.diverges(req)
		if err != nil || diverging != nil {
			b := p.bounds()
			return p.result(req, b, ReadResult{Diverging: diverging}), err
		}
	}
	result, err := p.readLocal(req)
	if err == nil && req.Replica >= 0 {
		p.followerAt(r, req.Replica, req.Offset)
	}
	return result, err
}

// attempts bounds how often a read starts over because a trim overtook it. A
// trim moves data to a place that the next attempt finds, so twice is enough;
// more only helps where trims follow each other without a break.
const attempts = 4

func (p *Partition) readLocal(req ReadRequest) (ReadResult, error) {
	for range attempts {
		b := p.bounds()
		if req.Offset < b.start || req.Offset > b.end {
			return ReadResult{}, p.outOfRange(req.Offset, b)
		}
		bound := b.visible(req.Replica, req.ReadCommitted)
		if req.Offset >= bound {
			return p.result(req, b, ReadResult{}), nil
		}
		slice, err := p.log.Read(req.Offset, bound, req.MaxBytes, req.MinOneBatch)
		switch {
		case err == nil:
			return p.local(req, b, slice)
		case errors.Is(err, locallog.ErrNotLocal) && req.Offset >= p.log.StartOffset() && req.Offset < p.remoteEnd():
			return p.result(req, b, ReadResult{Remote: true, Tier: Remote}), nil
		case errors.Is(err, locallog.ErrNotLocal), errors.Is(err, locallog.ErrOffsetOutOfRange):
			continue // trimmed since the bounds were taken
		}
		return ReadResult{}, p.storage(err)
	}
	return ReadResult{}, p.outOfRange(req.Offset, p.bounds())
}

func (p *Partition) outOfRange(offset cluster.Offset, b bounds) error {
	return fmt.Errorf("%s: %w: %d, log is [%d, %d)", p.name, ErrOffsetOutOfRange, offset, b.start, b.end)
}

// local makes the result of a local slice; it owns the slice.
func (p *Partition) local(req ReadRequest, b bounds, slice locallog.Slice) (ReadResult, error) {
	result := p.result(req, b, ReadResult{Regions: slice.Regions, Bytes: int(slice.Bytes), NextOffset: slice.NextOffset})
	if req.ReadCommitted && req.Replica < 0 && slice.Bytes > 0 {
		aborted, err := p.log.AbortedTxns(req.Offset, slice.NextOffset)
		if err != nil {
			result.Release()
			return ReadResult{}, p.storage(err)
		}
		result.Aborted = aborted
	}
	return result, nil
}

// result fills in the offsets.
func (p *Partition) result(req ReadRequest, b bounds, r ReadResult) ReadResult {
	r.HighWatermark, r.LastStableOffset, r.LogStartOffset = b.mark, b.stable, b.start
	if r.NextOffset == 0 {
		r.NextOffset = req.Offset
	}
	return r
}

// ReadRemote reads from the remote tier, for a read that Read answered with
// Remote. It blocks; the caller runs several at once. Where the context ends
// first it fails with ErrRemoteTimeout while the read goes on into the cache.
func (p *Partition) ReadRemote(ctx context.Context, req ReadRequest) (ReadResult, error) {
	for range attempts {
		if _, err := p.leader(req.CurrentLeaderEpoch); err != nil {
			return ReadResult{}, err
		}
		b := p.bounds()
		if req.Offset < b.start || req.Offset > b.end {
			return ReadResult{}, p.outOfRange(req.Offset, b)
		}
		if p.cfg.Remote == nil || req.Offset >= p.log.LocalStartOffset() {
			result, err := p.readLocal(req)
			if err != nil || !result.Remote {
				return result, err
			}
		}
		bound := b.visible(req.Replica, req.ReadCommitted)
		slice, err := p.cfg.Remote.Read(ctx, p.cfg.TopicPartition, RemoteRead{
			Offset: req.Offset, Bound: bound, MaxBytes: req.MaxBytes, MinOneBatch: req.MinOneBatch,
		})
		if errors.Is(err, ErrOffsetOutOfRange) && req.Offset < p.refreshLogStart() {
			continue // expired since the bounds were taken
		}
		if err != nil {
			return ReadResult{}, p.remoteError(ctx, err)
		}
		return p.remote(ctx, req, b, slice)
	}
	return ReadResult{}, p.outOfRange(req.Offset, p.bounds())
}

// remote makes the result of a remote slice; it owns the slice.
func (p *Partition) remote(ctx context.Context, req ReadRequest, b bounds, slice RemoteSlice) (ReadResult, error) {
	result := p.result(req, b, ReadResult{Regions: slice.Regions, Bytes: slice.Bytes, NextOffset: slice.NextOffset, Tier: Remote})
	if req.ReadCommitted && req.Replica < 0 && slice.Bytes > 0 {
		aborted, err := p.cfg.Remote.Aborted(ctx, p.cfg.TopicPartition, req.Offset, slice.NextOffset)
		if err != nil {
			result.Release()
			return ReadResult{}, p.remoteError(ctx, err)
		}
		result.Aborted = aborted
	}
	return result, nil
}

func (p *Partition) remoteError(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return p.wrap(ErrRemoteTimeout, err)
	}
	return p.wrap(ErrRemote, err)
}

// diverges compares the follower's last epoch with this log (KIP-595).
func (p *Partition) diverges(req ReadRequest) (*Divergence, error) {
	found, end, ok := p.epochEnd(req.LastFetchedEpoch)
	if !ok {
		return nil, p.outOfRange(req.Offset, p.bounds())
	}
	if found < req.LastFetchedEpoch || end < req.Offset {
		return &Divergence{LeaderEpoch: found, EndOffset: end}, nil
	}
	return nil, nil
}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch at or below the
// asked one and its exclusive end; NoLeaderEpoch and NoOffset where there is
// none.
func (p *Partition) EpochEnd(current, epoch cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset, error) {
	if _, err := p.leader(current); err != nil {
		return cluster.NoLeaderEpoch, cluster.NoOffset, err
	}
	found, end, ok := p.epochEnd(epoch)
	if !ok {
		return cluster.NoLeaderEpoch, cluster.NoOffset, nil
	}
	return found, end, nil
}

// epochEnd asks the log's list, which reaches down to LogStartOffset; where a
// lost list was rebuilt from local batches alone, the catalog knows the rest.
func (p *Partition) epochEnd(epoch cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset, bool) {
	found, end, ok := p.log.EpochEnd(epoch)
	if p.cfg.Remote == nil {
		return found, end, ok
	}
	entries := p.log.Epochs().Entries()
	if len(entries) > 0 && epoch < entries[0].Epoch && entries[0].Start > p.log.StartOffset() {
		if f, e, known := p.cfg.Remote.EpochEnd(p.cfg.TopicPartition, epoch); known {
			return f, e, true
		}
	}
	return found, end, ok
}
