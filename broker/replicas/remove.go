package replicas

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"strandline/metadata/image"
)

// removal is a folder that is renamed -delete and waits for its delay.
type removal struct {
	dir  *dir
	path string
	due  time.Time
}

// removeReplicas ends replicas that the image has here no more: their topic was
// deleted, or they were moved. Their folders are renamed, durably, and every
// checkpoint forgets them, durably, before anything may be made under the same
// name again (M2).
func (m *Manager) removeReplicas(gone []*replica) {
	dirs := map[*dir]struct{}{}
	for _, r := range gone {
		m.stopMove(r.tp())
		m.hosted.Delete(r.tp())
		m.damaged = slices.DeleteFunc(m.damaged, func(f damagedFolder) bool { return f.key == r.key && f.dir == r.dir })
		r.dir.replicas.Add(-1)
		var delay time.Duration
		if r.p != nil {
			delay = r.p.Settings().FileDeleteDelay
			if err := r.p.Close(false); err != nil {
				m.cfg.Logger.Warn("log of a deleted replica did not close", "partition", r.key.String(), "err", err)
			}
		}
		if m.cfg.Hosting != nil {
			m.cfg.Hosting.Unhosted(r.key.topic, r.tp())
		}
		m.discard(r.folder, delay)
		dirs[r.dir] = struct{}{}
	}
	for d := range dirs {
		m.forget(d)
	}
}

// discard renames a folder and plans its removal.
func (m *Manager) discard(f folder, delay time.Duration) {
	aside, err := setAside(m.fs, f, deleteSuffix)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.cfg.Logger.Error("folder of a deleted replica cannot be renamed", "folder", f.path(), "err", err)
		m.dirTrouble(f.dir, err)
		return
	}
	m.hook(StepTopicDeletion)
	if aside != "" {
		m.removals = append(m.removals, removal{dir: f.dir, path: aside, due: m.cfg.Now().Add(delay)})
	}
	m.cfg.Logger.Info("replica deleted", "partition", f.key.String(), "topic_id", f.meta.topic.String())
}

// forget drops a directory's checkpoint entries of replicas that are not hosted.
func (m *Manager) forget(d *dir) {
	hosted := map[folderKey]struct{}{}
	for _, r := range m.replicas() {
		if r.dir == d {
			hosted[r.key] = struct{}{}
		}
	}
	for _, f := range m.unknown {
		if f.dir == d {
			hosted[f.key] = struct{}{}
		}
	}
	for _, f := range m.damaged {
		if f.dir == d {
			hosted[f.key] = struct{}{}
		}
	}
	for _, file := range d.checkpoints() {
		file.keep(func(k folderKey) bool { _, ok := hosted[k]; return ok })
		if err := file.writeChanges(); err != nil {
			m.dirTrouble(d, err)
		}
	}
}

// forgotten makes sure that no checkpoint speaks of a replica that was deleted,
// which a full disk may have prevented, before one is made under its name.
func (d *dir) forgotten() error {
	for _, file := range d.checkpoints() {
		if err := file.writeDropped(); err != nil {
			return err
		}
	}
	return nil
}

func (d *dir) checkpoints() []*offsetFile { return []*offsetFile{&d.starts, &d.recovery, &d.marks} }

// removeDue removes the folders whose delay has passed; what fails is tried
// again.
func (m *Manager) removeDue(now time.Time) {
	m.applying.Lock()
	var due, rest []removal
	for _, r := range m.removals {
		if r.due.After(now) || r.dir.offlineErr() != nil {
			rest = append(rest, r)
		} else {
			due = append(due, r)
		}
	}
	m.removals = rest
	m.applying.Unlock()
	for _, r := range due {
		err := m.fs.RemoveAll(r.path)
		if err == nil {
			err = m.fs.SyncDir(r.dir.path)
		}
		if err != nil {
			m.cfg.Logger.Warn("folder of a deleted replica cannot be removed yet", "folder", r.path, "err", err)
			r.due = now.Add(retryEvery)
			m.applying.Lock()
			m.removals = append(m.removals, r)
			m.applying.Unlock()
		}
	}
}

// settleUnknown decides about the folders of topics that the image did not have
// at start, once it has caught up with this incarnation's registration: hosted
// after all, deleted while nobody looked, or a stray that is kept (M2).
func (m *Manager) settleUnknown(img *image.Image) {
	if m.settled || m.epoch.Load() < 0 || img.Index() < uint64(m.epoch.Load()) {
		return
	}
	m.settled = true
	unknown := m.unknown
	m.unknown = nil
	unknown = slices.DeleteFunc(unknown, func(f folder) bool {
		err := m.misnamed(img, f)
		if err != nil {
			m.damaged = append(m.damaged, damagedFolder{f, err})
		}
		return err != nil
	})
	m.hostDamaged(img)
	dirs := map[*dir]struct{}{}
	for _, f := range unknown {
		topic, p, ok := img.Partition(f.tp())
		switch {
		case ok && slices.Contains(p.Replicas, m.self) && topic.Name == f.key.topic:
			m.openReplica(m.settings(img, topic), f, openFound)
			continue
		case f.meta.index <= img.Index():
			m.discard(f, 0)
		default:
			if aside, ok := m.setStray(f); ok {
				m.cfg.Logger.Error("folder of a partition that the cluster does not know: kept under another name, remove it by hand",
					"partition", f.key.String(), "topic_id", f.meta.topic.String(), "folder", aside)
			}
		}
		dirs[f.dir] = struct{}{}
	}
	m.settleDamaged()
	for d := range dirs {
		m.forget(d)
	}
}

// setStray keeps a folder under a name that nothing looks at, and returns it.
func (m *Manager) setStray(f folder) (aside string, ok bool) {
	aside, err := setAside(m.fs, f, straySuffix)
	if err != nil {
		m.cfg.Logger.Error("stray folder cannot be renamed", "folder", f.path(), "err", err)
		m.dirTrouble(f.dir, err)
		return "", false
	}
	return aside, true
}

// leftover handles a folder that an earlier run set aside; it reports whether
// name is one.
func (m *Manager) leftover(d *dir, name string) bool {
	switch {
	case m.unfinished(d, name):
	case strings.HasSuffix(name, deleteSuffix):
		m.removals = append(m.removals, removal{dir: d, path: path.Join(d.path, name), due: m.cfg.Now()})
	case strings.HasSuffix(name, straySuffix):
	default:
		return false
	}
	return true
}
