package groups

import (
	"context"
	"errors"
	"fmt"
	"time"

	"strandline/broker/coordinator"
	"strandline/broker/group"
	"strandline/broker/partition"
)

// call is a caller that waits.
type call struct {
	done chan group.Reply // cap 1
}

// event is what a call asks a shard to do; token is the call's.
type event func(s *shard, now time.Time, tx *coordinator.Tx, token group.Token)

// ask runs an event on the shard of a group and waits for the answer, no longer
// than ctx lasts, and at most patience where that is positive.
func (g *Groups) ask(ctx context.Context, groupID string, patience time.Duration, ev event) (group.Reply, error) {
	p, err := g.partition(groupID)
	if err != nil {
		return group.Reply{}, err
	}
	return g.askPartition(ctx, p, patience, ev)
}

func (g *Groups) askPartition(ctx context.Context, p int32, patience time.Duration, ev event) (group.Reply, error) {
	c := &call{done: make(chan group.Reply, 1)}
	err := g.runtime.Do(p, func(now time.Time, m coordinator.Machine, tx *coordinator.Tx) {
		s, ok := m.(*shard)
		if !ok {
			c.done <- group.Reply{Err: fmt.Errorf("coordinator ran %T", m)}
			return
		}
		s.begin(now)
		ev(s, now, tx, s.wait(c))
	})
	if err != nil {
		return group.Reply{}, translate(err)
	}
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case r := <-c.done:
		return r, r.Err
	case <-late:
		return group.Reply{}, fmt.Errorf("%w: no answer in %s", group.ErrCoordinatorNotAvailable, patience)
	case <-ctx.Done():
		return group.Reply{}, ctx.Err()
	}
}

// translate says in the words of groups why the log or the view did not do what
// was asked. What is left is damage, a group that is too large for its log, or a
// bug.
func translate(err error) error {
	kind := error(nil)
	switch {
	case errors.Is(err, coordinator.ErrLoading):
		kind = group.ErrCoordinatorLoading
	case errors.Is(err, coordinator.ErrNotCoordinator), errors.Is(err, coordinator.ErrClosed),
		errors.Is(err, partition.ErrNotLeader), errors.Is(err, partition.ErrClosed), errors.Is(err, partition.ErrFencedLeaderEpoch),
		errors.Is(err, partition.ErrStorage), errors.Is(err, partition.ErrDiskFull):
		kind = group.ErrNotCoordinator
	case errors.Is(err, coordinator.ErrBusy), errors.Is(err, partition.ErrNotEnoughReplicas), errors.Is(err, partition.ErrNotEnoughReplicasAfterAppend):
		kind = group.ErrCoordinatorNotAvailable
	default:
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}
