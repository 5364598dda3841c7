package remotelog

import (
	"context"
	"errors"
	"fmt"

	"strandline/broker/leaderepoch"
	"strandline/broker/partition"
	"strandline/broker/producerstate"
	"strandline/broker/recordbatch"
	"strandline/metadata/catalog"
	"strandline/metadata/cluster"
)

// lookupBytes is how much is asked for at once where one batch is looked for.
const lookupBytes = 64 << 10

// OffsetForTimestamp implements partition.RemoteLog.
func (l *Log) OffsetForTimestamp(ctx context.Context, tp cluster.TopicPartition, ts int64, from cluster.Offset) (partition.TimestampOffset, bool, error) {
	for {
		var found partition.TimestampOffset
		var end cluster.Offset
		ok, err := l.onSegment(ctx, tp, func() (catalog.Segment, bool, error) {
			return l.cfg.Catalog.FindTimestamp(tp, ts, from)
		}, func(seg catalog.Segment) error {
			var err error
			end = seg.End
			return twice(func(final bool) error {
				found, err = l.timestampIn(ctx, seg, ts, from, final)
				return err
			})
		})
		switch {
		case errors.Is(err, errPastLast) && end > from:
			from = end // the highest timestamps of that segment lie below from
		case err != nil:
			return partition.TimestampOffset{}, false, remoteError(ctx, err)
		default:
			return found, ok, nil
		}
	}
}

func (l *Log) timestampIn(ctx context.Context, seg catalog.Segment, ts int64, from cluster.Offset, final bool) (partition.TimestampOffset, error) {
	none := partition.TimestampOffset{}
	x, err := l.index(ctx, seg)
	if err != nil {
		return none, err
	}
	where, ok := x.FindTimestamp(ts, from)
	if !ok {
		return none, errPastLast
	}
	r := l.newReading(ctx, seg, x)
	r.final = final
	chunk := l.cfg.ChunkBytes
	to := min(max(where.Start+lookupBytes, where.End), (where.Start/chunk+randomChunks)*chunk)
	if err := r.open(where.Start, to); err != nil {
		return none, err
	}
	defer r.v.release()
	w := r.walk(where.Start)
	decoder := recordbatch.NewDecoder(0)
	for {
		b, err := r.find(w, func(b batch) bool { return b.maxTimestamp >= ts && b.next > from })
		if err != nil {
			return none, err
		}
		if err := r.ensure(b.position, b.end()); err != nil {
			return none, err
		}
		data := make([]byte, b.bytes)
		if err := r.v.readAt(data, b.position); err != nil {
			return none, r.damaged(err)
		}
		whole, _, err := recordbatch.First(data)
		if err != nil {
			return none, r.damaged(err)
		}
		o, t, ok, err := recordbatch.OffsetForTimestampFrom(whole, ts, from, decoder)
		if err != nil {
			return none, fmt.Errorf("object %q, position %d: %w", seg.Key, b.position, err)
		}
		if ok {
			return partition.TimestampOffset{Offset: o, Timestamp: t, LeaderEpoch: b.leaderEpoch}, nil
		}
	}
}

// Aborted implements partition.RemoteLog. It reads the indexes of the segments
// that [from, to) overlaps and no others: each lists the transactions that
// overlap it, wherever their markers are.
func (l *Log) Aborted(ctx context.Context, tp cluster.TopicPartition, from, to cluster.Offset) ([]producerstate.AbortedTxn, error) {
	type txn struct {
		producer cluster.ProducerID
		first    cluster.Offset
	}
	var out []producerstate.AbortedTxn
	seen := make(map[txn]bool)
	for at := from; at < to; {
		var part []producerstate.AbortedTxn
		ok, err := l.onSegment(ctx, tp, func() (catalog.Segment, bool, error) {
			return l.cfg.Catalog.FindOffset(tp, at)
		}, func(seg catalog.Segment) error {
			x, err := l.index(ctx, seg)
			if err == nil {
				part, at = x.Aborted(from, to), seg.End
			}
			return err
		})
		if err != nil {
			return nil, remoteError(ctx, err)
		}
		if !ok {
			break
		}
		for _, a := range part {
			if k := (txn{a.ProducerID, a.First}); !seen[k] {
				seen[k] = true
				out = append(out, a)
			}
		}
	}
	return out, nil
}

// State implements partition.RemoteLog.
func (l *Log) State(ctx context.Context, tp cluster.TopicPartition) (partition.RemoteState, error) {
	sum, ok := l.cfg.Catalog.Summary(tp)
	if !ok {
		return partition.RemoteState{}, nil
	}
	state := partition.RemoteState{End: sum.RemoteEnd}
	_, err := l.onSegment(ctx, tp, func() (catalog.Segment, bool, error) {
		return l.cfg.Catalog.FindOffset(tp, sum.RemoteEnd-1)
	}, func(seg catalog.Segment) error {
		x, err := l.index(ctx, seg)
		if err == nil {
			state.Epochs, state.ProducerSnapshot = x.Epochs(), x.ProducerSnapshot()
		}
		return err
	})
	return state, remoteError(ctx, err)
}

// EpochEnd implements partition.RemoteLog. Where an epoch begins inside an
// object whose index is not in memory, the answer is not known; the index is
// then read in the background, for the next time.
func (l *Log) EpochEnd(tp cluster.TopicPartition, epoch cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset, bool) {
	none := cluster.NoLeaderEpoch
	seg, ok, err := l.cfg.Catalog.FindEpoch(tp, epoch)
	if err != nil || !ok {
		return none, cluster.NoOffset, false
	}
	if seg.Object.LastEpoch <= epoch {
		// The next segment starts with a later epoch, or is not remote yet.
		return seg.Object.LastEpoch, seg.End, true
	}
	x := l.indexes.get(seg.ID)
	if x == nil {
		l.openAhead(tp, seg.Base, 0)
		return none, cluster.NoOffset, false
	}
	return leaderepoch.FromEntries(x.Epochs()).EndOffset(epoch, seg.End)
}
