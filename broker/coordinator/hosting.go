package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"strandline/broker/partition"
	"strandline/metadata/cluster"
	"strandline/metadata/store"
)

const (
	// retryEvery is how long what failed is left alone.
	retryEvery = time.Second
	// syncEvery is how far, in time, a view may be behind its log after a power
	// loss.
	syncEvery = 5 * time.Second
	// stepsMax bounds the chunks that an applier feeds to one view before
	// another one has its turn.
	stepsMax = 16
)

// replica is one hosted replica.
type replica struct {
	tp cluster.TopicPartition
	p  Partition
	// turn holds one value; who has taken it moves the view (C3). Replicas of
	// the same partition that follow each other share it.
	turn chan struct{}
	view *view // of the appliers; under turn
	// applied is where the view is; -1: not known.
	applied atomic.Int64
	// stuck is a high watermark below which there was no further whole batch.
	stuck atomic.Int64
	gone  atomic.Bool // not hosted any more

	// Under Runtime.mu.
	shard   *shard
	busy    bool // an applier is at work
	retryAt time.Time
	lastErr string
}

// Host tells of a replica of the topic that is hosted here from now on, instead
// of a former one of the same partition. It does not block.
func (r *Runtime) Host(p Partition) {
	rep := &replica{tp: p.TopicPartition(), p: p}
	rep.applied.Store(-1)
	rep.stuck.Store(-1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return
	}
	if old := r.mu.replicas[rep.tp]; old != nil {
		rep.turn = old.turn
		r.leaveLocked(old)
	} else {
		rep.turn = make(chan struct{}, 1)
		rep.turn <- struct{}{}
	}
	r.mu.replicas[rep.tp] = rep
	p.AddWaiter(r.woken)
	r.poke()
}

// Unhost tells that a replica is not hosted here any more; its view is dropped.
// It does not block.
func (r *Runtime) Unhost(tp cluster.TopicPartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rep := r.mu.replicas[tp]; rep != nil {
		r.leaveLocked(rep)
		r.poke()
	}
}

func (r *Runtime) leaveLocked(rep *replica) {
	rep.gone.Store(true)
	rep.p.RemoveWaiter(r.woken)
	if rep.shard != nil {
		rep.shard.poke()
	}
}

// poke makes the watcher look around.
func (r *Runtime) poke() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// watch starts shards and appliers where there is something for them.
func (r *Runtime) watch() {
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		r.look()
		select {
		case <-r.woken.C:
		case <-r.kick:
		case <-tick.C:
		case <-r.closing:
			return
		}
	}
}

func (r *Runtime) look() {
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rep := range r.mu.replicas {
		if r.mu.closed {
			return
		}
		if rep.shard != nil || rep.busy || now.Before(rep.retryAt) {
			continue
		}
		if rep.gone.Load() {
			r.applyLocked(rep, r.forget)
			continue
		}
		st := rep.p.LogState()
		switch {
		case st.Offline != nil:
		case st.Leading:
			r.leadLocked(rep, st.LeaderEpoch)
		case rep.behind(st):
			r.applyLocked(rep, r.feed)
		}
	}
}

// behind says whether an applier has something to do, or to look at.
func (rep *replica) behind(st partition.LogState) bool {
	at := cluster.Offset(rep.applied.Load())
	return at < st.HighWatermark && st.HighWatermark != cluster.Offset(rep.stuck.Load()) || at < st.LogStartOffset || at > st.LogEndOffset
}

// leadLocked begins a tenure.
func (r *Runtime) leadLocked(rep *replica, epoch cluster.LeaderEpoch) {
	s := newShard(r, rep, epoch)
	rep.shard = s
	rep.p.RemoveWaiter(r.woken) // the shard has its own
	r.setLedLocked(rep.tp.Partition, s)
	r.workers.Go(func() {
		err := s.run()
		r.mu.Lock()
		defer r.mu.Unlock()
		rep.shard = nil
		if (*r.led.Load())[rep.tp.Partition] == s {
			r.setLedLocked(rep.tp.Partition, nil)
		}
		if !rep.gone.Load() {
			rep.p.AddWaiter(r.woken)
		}
		r.endedLocked(rep, err)
	})
}

func (r *Runtime) setLedLocked(partition int32, s *shard) {
	led := maps.Clone(*r.led.Load())
	if s == nil {
		delete(led, partition)
	} else {
		led[partition] = s
	}
	r.led.Store(&led)
}

// applyLocked runs work on a replica's view on a goroutine of its own, if there
// is a slot.
func (r *Runtime) applyLocked(rep *replica, work func(*replica) error) {
	select {
	case r.slots <- struct{}{}:
	default:
		return // who gives one back pokes
	}
	rep.busy = true
	r.workers.Go(func() {
		err := work(rep)
		<-r.slots
		r.mu.Lock()
		defer r.mu.Unlock()
		rep.busy = false
		r.endedLocked(rep, err)
	})
}

// endedLocked notes why somebody who moved a view stopped.
func (r *Runtime) endedLocked(rep *replica, err error) {
	defer r.poke()
	if errors.Is(err, errTurn) {
		rep.retryAt = r.cfg.Now().Add(retryEvery)
		return
	}
	if now := r.mu.replicas[rep.tp]; now != nil && now != rep {
		now.retryAt = time.Time{} // it may have waited for the turn
	}
	if err == nil || errors.Is(err, ErrNotCoordinator) || errors.Is(err, ErrClosed) {
		rep.lastErr = ""
		return
	}
	rep.retryAt = r.cfg.Now().Add(retryEvery)
	if errors.Is(err, errReplaced) || errors.Is(err, store.ErrClosed) || rep.lastErr == err.Error() {
		return
	}
	rep.lastErr = err.Error()
	r.cfg.Logger.Error("a coordinator's view cannot follow its log; it is tried again", "topic", r.cfg.Topic, "partition", rep.tp.Partition, "err", err)
}

// feed moves the view of a follower forward.
func (r *Runtime) feed(rep *replica) (err error) {
	select {
	case <-rep.turn:
	default:
		return errTurn
	}
	defer func() {
		if err != nil {
			rep.view = nil
		}
		rep.turn <- struct{}{}
	}()
	if rep.view == nil || rep.view.db != r.cfg.Views.db.Load() {
		if rep.view, err = r.openView(rep); err != nil {
			return err
		}
	}
	for range stepsMax {
		st := rep.p.LogState()
		if r.closed() || rep.gone.Load() || st.Leading || st.Offline != nil {
			return nil
		}
		more, err := r.step(rep, rep.view, st)
		if err != nil {
			return err
		}
		if !more {
			rep.stuck.Store(int64(st.HighWatermark))
			return nil
		}
	}
	return nil
}

// forget drops the view of a replica that is not hosted any more.
func (r *Runtime) forget(rep *replica) error {
	select {
	case <-rep.turn:
		defer func() { rep.turn <- struct{}{} }()
	default:
		return errTurn
	}
	r.mu.Lock()
	current := r.mu.replicas[rep.tp] == rep
	r.mu.Unlock()
	if !current {
		return nil // it is hosted again
	}
	if err := r.cfg.Views.drop(rep.tp); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.replicas[rep.tp] == rep {
		delete(r.mu.replicas, rep.tp)
	}
	return nil
}

// openView opens a replica's view for whoever has its turn.
func (r *Runtime) openView(rep *replica) (*view, error) {
	rep.applied.Store(-1)
	rep.stuck.Store(-1)
	return openView(r.cfg.Views, rep.tp, r.cfg.Schema, &rep.applied)
}

// step applies the next decided batches to a view, which is begun again first
// where it is not one of this log (C1). It returns whether there may be more.
func (r *Runtime) step(rep *replica, v *view, st partition.LogState) (more bool, err error) {
	if why := v.disagrees(st, rep.p); why != "" {
		if v.known {
			if v.rebuilt {
				return false, fmt.Errorf("%w: %s", errContradiction, why)
			}
			v.rebuilt = true
			r.rebuilt.Add(1)
			r.cfg.Logger.Warn("a coordinator's view is not one of its log: it is built again", "topic", r.cfg.Topic,
				"partition", rep.tp.Partition, "view_at", v.next, "leader_epoch", v.epoch, "reason", why)
		}
		if err := v.restart(st); err != nil {
			return false, err
		}
	}
	if v.next >= st.HighWatermark {
		return false, nil
	}
	more, err = v.advance(rep.p, r.cfg.Limits.ApplyBytes)
	return more && v.next < st.HighWatermark, err
}

// keep makes the views durable from time to time, and replaces them where they
// are damaged.
func (r *Runtime) keep() {
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	synced := r.cfg.Now()
	for {
		select {
		case <-r.cfg.Views.ill:
		case <-tick.C:
		case <-r.closing:
			return
		}
		db := r.cfg.Views.db.Load()
		r.cfg.Views.heal()
		if r.cfg.Views.db.Load() != db {
			r.reopen()
		}
		if now := r.cfg.Now(); now.Sub(synced) >= syncEvery {
			synced = now
			if err := r.cfg.Views.Sync(); err != nil {
				r.cfg.Logger.Error("coordinators' views cannot be synced", "err", err)
			}
		}
	}
}

// reopen makes everybody look at a database that replaced another one.
func (r *Runtime) reopen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rep := range r.mu.replicas {
		if rep.shard != nil {
			rep.shard.poke()
		} else {
			rep.applied.Store(-1)
		}
	}
	r.poke()
}
