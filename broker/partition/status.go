package partition

import (
	"fmt"

	"strandline/broker/locallog"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
)

// Leading returns the leader epoch, and whether this replica leads under it.
func (p *Partition) Leading() (cluster.LeaderEpoch, bool) {
	r := p.role.Load()
	return r.LeaderEpoch, r.leading && p.online() == nil
}

// LocalBytes is the size of the local segments together.
func (p *Partition) LocalBytes() int64 { return p.log.Bytes() }

// Status describes the replica.
func (p *Partition) Status() Status {
	r, b := p.role.Load(), p.bounds()
	s := Status{
		Topic: p.cfg.Topic, Partition: p.cfg.TopicPartition,
		Leader: r.Leader, LeaderEpoch: r.LeaderEpoch, Leading: r.leading,
		Tiered: p.settings.Load().Tiered, Remote: p.tiered(),
		LogStartOffset: b.start, LocalLogStartOffset: p.log.LocalStartOffset(), RemoteEndOffset: p.remoteEnd(),
		LastStableOffset: b.stable, HighWatermark: b.mark, FlushedOffset: p.log.FlushedOffset(), LogEndOffset: b.end,
		LocalBytes: p.log.Bytes(), Segments: p.log.Segments(), Offline: p.online(),
	}
	if p.cfg.Remote != nil {
		s.RemoteBytes = p.cfg.Remote.LiveBytes(p.cfg.TopicPartition)
	}
	for _, segment := range s.Segments {
		if s.Tiered && segment.Sealed && segment.Next > s.RemoteEndOffset {
			s.PendingSegments++
			s.PendingBytes += segment.Bytes
			if s.OldestPending.IsZero() {
				s.OldestPending = segment.Modified
			}
		}
	}
	return s
}

// Archivable returns the sealed segments that reach past from and may leave for
// the tier, in order, and the leader epoch to publish them under: wholly below
// the last stable offset and the flushed one (P5). It returns none where this
// replica does not lead.
func (p *Partition) Archivable(from cluster.Offset) ([]locallog.SegmentInfo, cluster.LeaderEpoch) {
	r := p.role.Load()
	if !r.leading || p.online() != nil {
		return nil, r.LeaderEpoch
	}
	bound := min(p.LastStableOffset(), p.log.FlushedOffset())
	var out []locallog.SegmentInfo
	for _, segment := range p.log.Segments() {
		if segment.Sealed && segment.Next > from && segment.Next <= bound {
			out = append(out, segment)
		}
	}
	return out, r.LeaderEpoch
}

// OpenSealed opens the sealed segment with that base offset for the archive.
func (p *Partition) OpenSealed(base cluster.Offset) (*locallog.SealedView, error) {
	if err := p.online(); err != nil {
		return nil, err
	}
	view, err := p.log.Sealed(base)
	if err != nil {
		return nil, fmt.Errorf("%s: sealed segment %d: %w", p.name, base, err)
	}
	return view, nil
}

// AbortedTxns returns the aborted transactions that overlap [from, to) of the
// local log, wherever their markers are, for the archive: compared with the batches
// where they come from a file of an earlier process.
func (p *Partition) AbortedTxns(from, to cluster.Offset) ([]producerstate.AbortedTxn, error) {
	if err := p.online(); err != nil {
		return nil, err
	}
	return p.log.CheckedAbortedTxns(from, to)
}

// Producers describes the producers that the leader remembers, by id.
func (p *Partition) Producers() ([]producerstate.Entry, error) {
	if _, err := p.leader(cluster.NoLeaderEpoch); err != nil {
		return nil, err
	}
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	if err := p.online(); err != nil {
		return nil, err
	}
	return p.log.Producers().Entries(), nil
}
