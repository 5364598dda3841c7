package replicas

import (
	"cmp"
	"context"
	"slices"
	"time"

	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

const (
	// assignEvery is how often the controller is told of replicas that lie
	// elsewhere than it knows, where there are any.
	assignEvery = time.Second
	// assignMax bounds what it is told at once.
	assignMax = 1000
)

// runAssigner keeps the controller's knowledge of directories true.
func (m *Manager) runAssigner() {
	tick := time.NewTicker(assignEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
		}
		if m.cfg.Assign == nil || m.epoch.Load() < 0 || !m.misplaced.Swap(false) {
			continue
		}
		wrong := m.wrongDirs()
		if len(wrong) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(m.ctx, stepMax)
		err := m.cfg.Assign(ctx, wrong)
		cancel()
		if err != nil && m.ctx.Err() == nil {
			m.cfg.Logger.Warn("the controller was not told where replicas are; trying again", "replicas", len(wrong), "err", err)
		}
		m.misplaced.Store(true) // until none is left
	}
}

func (m *Manager) wrongDirs() map[cluster.TopicPartition]cluster.DirectoryID {
	img := m.cfg.Watch.Image()
	wrong := map[cluster.TopicPartition]cluster.DirectoryID{}
	for tp, r := range m.replicas() {
		if _, p, ok := img.Partition(tp); ok && !r.dir.absent && p.Dir(m.self) != r.dir.id && slices.Contains(p.Replicas, m.self) {
			if wrong[tp] = r.dir.id; len(wrong) == assignMax {
				break
			}
		}
	}
	return wrong
}

// chooseDir takes the directory for a replica that has no folder, and counts it
// there: the one that the controller placed it in, else the one with fewest
// replicas. One that is known but not listed any more may hold the replica, which
// is then not made anew. Nil where all have failed.
func (m *Manager) chooseDir(p *image.Partition) *dir {
	placed := p.Dir(m.self)
	if known := m.cfg.Dirs.unlisted(placed); known != nil {
		known.replicas.Add(1)
		return known
	}
	var best *dir
	for _, d := range m.cfg.Dirs.dirs {
		if d.offlineErr() != nil {
			continue
		}
		if d.id == placed {
			best = d
			break
		}
		if best == nil || d.replicas.Load() < best.replicas.Load() {
			best = d
		}
	}
	if best != nil {
		best.replicas.Add(1)
	}
	return best
}

// ReplicaSize is one replica, or the copy of one on its way, in a directory.
type ReplicaSize struct {
	Topic     string
	Partition int32
	Bytes     int64 // on the local disk
	Lag       int64 // offsets that a copy is behind; 0 for a replica
	Future    bool  // a copy
}

// DirSizes is one log directory with what it holds.
type DirSizes struct {
	Path                    string // absolute
	Offline                 error  // why it holds nothing
	TotalBytes, UsableBytes int64  // of the file system
	Replicas                []ReplicaSize
}

// DirSizes describes every log directory.
func (m *Manager) DirSizes() []DirSizes {
	m.moves.mu.Lock()
	copies := make(map[cluster.TopicPartition]*move, len(m.moves.by))
	for tp, mv := range m.moves.by {
		copies[tp] = mv
	}
	m.moves.mu.Unlock()
	var out []DirSizes
	for _, d := range m.cfg.Dirs.dirs {
		s := DirSizes{Path: absolute(d.path), Offline: d.offlineErr(), TotalBytes: -1, UsableBytes: -1}
		if s.Offline == nil {
			if usage, err := m.measure(d); err != nil {
				s.Offline = err
			} else {
				s.TotalBytes, s.UsableBytes = usage.TotalBytes, usage.FreeBytes
			}
		}
		if s.Offline == nil {
			for tp, r := range m.replicas() {
				if mv := copies[tp]; mv != nil && mv.to == d && r.dir != d && r.p != nil {
					if log := mv.copy.Load(); log != nil {
						s.Replicas = append(s.Replicas, ReplicaSize{r.key.topic, r.key.partition, log.Bytes(), max(0, int64(r.p.LogEndOffset()-log.EndOffset())), true})
					}
				}
				if r.dir == d && r.p != nil {
					s.Replicas = append(s.Replicas, ReplicaSize{Topic: r.key.topic, Partition: r.key.partition, Bytes: r.p.LocalBytes()})
				}
			}
			slices.SortFunc(s.Replicas, func(a, b ReplicaSize) int {
				return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
			})
		}
		out = append(out, s)
	}
	return out
}
