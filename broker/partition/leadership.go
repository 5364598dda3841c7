package partition

import (
	"context"
	"fmt"

	"strandline/metadata/cluster"
)

// Become takes the role that the image gives: leader where Leadership names
// this broker, else follower. An older leader epoch than the present one is
// ignored; the same one changes the in-sync set only. Calls come one at a time.
//
// Becoming leader may read the remote tier (P7) and fails where that fails; the
// replica then serves nothing and the caller tries again.
func (p *Partition) Become(ctx context.Context, l Leadership) error {
	if err := p.online(); err != nil {
		return err
	}
	old := p.role.Load()
	if l.LeaderEpoch < old.LeaderEpoch || l.LeaderEpoch == old.LeaderEpoch && l.PartitionEpoch < old.PartitionEpoch {
		return nil
	}
	if l.Leader != p.cfg.Self {
		p.writeMu.Lock()
		defer p.writeMu.Unlock()
		p.setRole(&role{Leadership: l}, true)
		return nil
	}
	if old.leading && l.LeaderEpoch == old.LeaderEpoch {
		p.writeMu.Lock()
		defer p.writeMu.Unlock()
		p.setRole(&role{Leadership: l, leading: true, epochStart: old.epochStart}, false)
		return nil
	}
	p.Resign()
	state, err := p.remoteState(ctx)
	if err != nil {
		return err
	}
	return p.lead(l, state)
}

// lead begins a tenure of this replica.
func (p *Partition) lead(l Leadership, state RemoteState) error {
	p.structure.Lock()
	defer p.structure.Unlock()
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	if err := p.reachRemoteEnd(state); err != nil {
		return err
	}
	// P3: the epoch is in the list before anything is served.
	p.log.AssignEpoch(l.LeaderEpoch)
	p.setRole(&role{Leadership: l, leading: true, epochStart: p.log.EndOffset()}, true)
	if flushed(p.settings.Load()) && p.log.FlushedOffset() < p.log.EndOffset() {
		p.FlushSoon()
	}
	return nil
}

// setRole stores a role; writeMu is held. With reset the tenure is another: what
// waits for the former one fails and nothing is known of the followers. What the
// role decides is there before the role is seen: a leader that is alone is never
// found below its end.
func (p *Partition) setRole(r *role, reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reset {
		p.failCommitsLocked(p.wrap(ErrNotLeader, nil))
		clear(p.mu.followers)
	}
	p.takeEndLocked(r)
	p.role.Store(r)
	p.wakeLocked()
}

// Resign gives the role up without another one; readers and writers are told to
// look for the leader elsewhere.
func (p *Partition) Resign() {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	old := p.role.Load()
	if !old.leading {
		return
	}
	l := old.Leadership
	l.Leader = cluster.NoBroker
	p.setRole(&role{Leadership: l}, true)
}

// remoteState reads what the log needs to continue at RemoteEndOffset, where it
// ends before it; RemoteEndOffset is exact at an election (I9), because only a
// leader of this epoch may move it further.
func (p *Partition) remoteState(ctx context.Context) (RemoteState, error) {
	end := p.remoteEnd()
	if end <= p.log.EndOffset() || end <= p.catalogStart() {
		return RemoteState{}, nil
	}
	state, err := p.cfg.Remote.State(ctx, p.cfg.TopicPartition)
	if err != nil {
		return RemoteState{}, p.remoteError(ctx, fmt.Errorf("state at %d: %w", end, err))
	}
	if state.End != end {
		return RemoteState{}, fmt.Errorf("%s: %w: state at %d, remote end offset %d", p.name, ErrRemote, state.End, end)
	}
	return state, nil
}

// catalogStart returns LogStartOffset, that of the catalog where it has one.
func (p *Partition) catalogStart() cluster.Offset {
	start := p.log.StartOffset()
	if p.cfg.Remote != nil {
		if kept, known := p.cfg.Remote.LogStartOffset(p.cfg.TopicPartition); known {
			start = max(start, kept)
		}
	}
	return start
}

// reachRemoteEnd makes the log reach RemoteEndOffset and LogStartOffset (P7);
// writeMu is held.
func (p *Partition) reachRemoteEnd(state RemoteState) error {
	if state.End > p.log.EndOffset() {
		p.cfg.Logger.Warn("log ends before its remote part: it starts again there",
			"partition", p.name, "log_end_offset", p.log.EndOffset(), "remote_end_offset", state.End)
		if err := p.restartAt(state.End, state); err != nil {
			return err
		}
	}
	if err := p.reachLogStart(p.catalogStart()); err != nil {
		return err
	}
	p.raise(max(p.log.StartOffset(), min(p.remoteEnd(), p.log.EndOffset())))
	return nil
}

// reachLogStart starts the log again at start where it ends before it: what lay
// between was deleted by a decision that outlived it.
func (p *Partition) reachLogStart(start cluster.Offset) error {
	if start > p.log.EndOffset() {
		p.cfg.Logger.Warn("log ends before its log start offset: it starts again there",
			"partition", p.name, "log_end_offset", p.log.EndOffset(), "log_start_offset", start)
		if err := p.restartAt(start, RemoteState{}); err != nil {
			return err
		}
	}
	p.log.SetStartOffset(start)
	return nil
}

func (p *Partition) restartAt(end cluster.Offset, state RemoteState) error {
	return p.storage(p.log.Reset(end, state.Epochs, state.ProducerSnapshot))
}
