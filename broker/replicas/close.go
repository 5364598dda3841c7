package replicas

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"strandline/metadata/cluster"
)

// Close ends the replicas in order: no image is applied any more, every log is
// synced and closed, the checkpoints are written, and last a directory whose
// every step went well gets its clean-shutdown file (M3) and its lock is given
// back. Where ctx ends first the rest is closed without a sync, and the next
// start scans. Idempotent.
func (m *Manager) Close(ctx context.Context) error {
	m.closeOnce.Do(func() { m.closeErr = m.close(ctx) })
	return m.closeErr
}

func (m *Manager) close(ctx context.Context) error {
	m.cancel()
	for _, cancel := range m.unsub {
		cancel()
	}
	m.workers.Wait()
	m.applying.Lock()
	defer m.applying.Unlock()
	clean := m.closeLogs(ctx)
	var err error
	for _, d := range m.cfg.Dirs.dirs {
		if !clean[d] || !m.started || d.offlineErr() != nil {
			err = errors.Join(err, fmt.Errorf("log directory %s: stopped unclean", d.path))
			continue
		}
		err = errors.Join(err, m.attest(d))
	}
	if m.ownsHand {
		err = errors.Join(err, m.handles.Close())
	}
	return errors.Join(err, m.cfg.Dirs.Close())
}

// closeLogs closes every log and says which directories are clean.
func (m *Manager) closeLogs(ctx context.Context) map[*dir]bool {
	clean := map[*dir]bool{}
	for _, d := range m.cfg.Dirs.dirs {
		clean[d] = true
	}
	var all []*replica
	for _, r := range m.replicas() {
		all = append(all, r)
	}
	for _, f := range m.unknown { // never opened: as clean as they were
		clean[f.dir] = clean[f.dir] && f.dir.clean
	}
	var mu sync.Mutex
	parallel(len(all), closersMax, func(i int) {
		r := all[i]
		ok := false
		if r.p != nil {
			orderly := ctx.Err() == nil && r.dir.offlineErr() == nil
			err := r.p.Close(orderly)
			ok = orderly && err == nil
			if err != nil {
				m.cfg.Logger.Warn("log did not close cleanly", "partition", r.key.String(), "err", err)
			}
		}
		if !ok {
			mu.Lock()
			clean[r.dir] = false
			mu.Unlock()
		}
	})
	return clean
}

// attest writes a directory's checkpoints and then its clean-shutdown file.
func (m *Manager) attest(d *dir) error {
	for _, r := range m.replicas() {
		if r.dir == d {
			m.raise(&d.recovery, r, r.p.FlushedOffset())
			m.raise(&d.starts, r, r.p.LogStartOffset())
			m.raise(&d.marks, r, r.p.HighWatermark())
		}
	}
	for _, file := range d.checkpoints() {
		if err := file.writeChanges(); err != nil {
			return fmt.Errorf("log directory %s: %w", d.path, err)
		}
	}
	if err := writeCleanStop(d.ballast, d.path, cluster.BrokerEpoch(m.epoch.Load())); err != nil {
		return fmt.Errorf("log directory %s: %w", d.path, err)
	}
	return nil
}
