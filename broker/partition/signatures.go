package partition

import (
	"context"

	"strandline/broker/locallog"
	"strandline/metadata/cluster"
)

// Partition is one hosted replica.
type Partition struct{}

// Commit is an append that is not yet as durable as its acks ask.
type Commit struct{ done chan struct{} }

// Done is closed when the outcome is known.
func (c *Commit) Done() <-chan struct{} { return c.done }

// Err returns the outcome once Done is closed.
func (c *Commit) Err() error { return ErrClosed }

// Append checks and appends whole batches. A nil Commit with a nil error means
// that the append is already as durable as RequiredAcks asks; else the caller
// waits for Commit.Done (or gives up: the append stays).
func (p *Partition) Append(req AppendRequest) (AppendResult, *Commit, error) {
	return AppendResult{}, nil, ErrClosed
}

// Read reads the local log and never blocks on the remote tier.
func (p *Partition) Read(req ReadRequest) (ReadResult, error) { return ReadResult{}, ErrClosed }

// ReadRemote reads from the remote tier, for a read that Read answered with
// Remote. It blocks; the caller runs several at once. Where the context ends
// first it fails with ErrRemoteTimeout while the read goes on into the cache.
func (p *Partition) ReadRemote(ctx context.Context, req ReadRequest) (ReadResult, error) {
	return ReadResult{}, ErrClosed
}

// AddWaiter registers w; see Waiter.
func (p *Partition) AddWaiter(w *Waiter) {}

// RemoveWaiter undoes AddWaiter.
func (p *Partition) RemoveWaiter(w *Waiter) {}

// ListOffset looks an offset up; it may block on the remote tier.
func (p *Partition) ListOffset(ctx context.Context, req ListOffsetRequest) (ListOffsetResult, error) {
	return ListOffsetResult{}, ErrClosed
}

// DeleteRecords moves LogStartOffset to offset (-1: the high watermark) and
// returns it once it is durable.
func (p *Partition) DeleteRecords(ctx context.Context, offset cluster.Offset) (cluster.Offset, error) {
	return 0, ErrClosed
}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch at or below the
// asked one and its end; NoLeaderEpoch and NoOffset where unknown.
func (p *Partition) EpochEnd(current, epoch cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset, error) {
	return 0, 0, ErrClosed
}

// Status describes the replica.
func (p *Partition) Status() Status { return Status{} }

// TopicPartition returns the partition's name by topic id.
func (p *Partition) TopicPartition() cluster.TopicPartition { return cluster.TopicPartition{} }

// Topic returns the topic's name.
func (p *Partition) Topic() string { return "" }

// Leading returns the leader epoch and whether this replica leads under it.
func (p *Partition) Leading() (cluster.LeaderEpoch, bool) { return 0, false }

// Archivable returns the sealed segments that reach past from and may leave for
// the tier (I6), in order, and the leader epoch to publish them under. It
// returns none where this replica does not lead.
func (p *Partition) Archivable(from cluster.Offset) ([]locallog.SegmentInfo, cluster.LeaderEpoch) {
	return nil, 0
}

// OpenSealed opens the sealed segment with that base offset for the archive.
func (p *Partition) OpenSealed(base cluster.Offset) (*locallog.SealedView, error) {
	return nil, ErrClosed
}

// BatchBase returns the base offset of the local batch that holds offset, or
// offset itself at the log's end.
func (p *Partition) BatchBase(offset cluster.Offset) (cluster.Offset, error) { return 0, ErrClosed }

// AdvanceLogStart moves LogStartOffset forward for retention; to at or below
// the present one changes nothing. It is durable when it returns.
func (p *Partition) AdvanceLogStart(ctx context.Context, to cluster.Offset) (cluster.Offset, error) {
	return 0, ErrClosed
}

// RemoteAdvanced tells the partition that the catalog's view of it changed
// (remote end or log start offset); it wakes waiters.
func (p *Partition) RemoteAdvanced() {}
