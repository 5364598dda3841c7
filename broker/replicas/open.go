package replicas

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// openAll reads the directories and opens the logs of every partition that the
// image places here. The rest waits for settleUnknown.
func (m *Manager) openAll(ctx context.Context) error {
	var found []folder
	for _, d := range m.cfg.Dirs.dirs {
		if d.clean && d.epoch >= 0 && uint64(d.epoch) > m.lastIndex() {
			return m.metadataLost(d.path, "was closed", uint64(d.epoch))
		}
	}
	for _, d := range m.cfg.Dirs.dirs {
		d.slots = make(chan struct{}, flushesMax)
		folders, err := m.openDir(d)
		if err != nil {
			return err
		}
		found = append(found, folders...)
	}
	found, former, err := unique(found)
	if err != nil {
		return err
	}
	for _, f := range former {
		m.cfg.Logger.Info("a stop cut off the end of a move: what it left goes", "folder", f.path())
		m.discard(f, 0)
	}
	img := m.cfg.Watch.Image()
	for _, f := range found {
		if f.meta.index != indexUnknown && f.meta.index > m.lastIndex() {
			return m.metadataLost(f.path(), "was made", f.meta.index)
		}
	}
	var hosted []folder
	for _, f := range found {
		topic, p, ok := img.Partition(f.tp())
		if ok && slices.Contains(p.Replicas, m.self) && topic.Name == f.key.topic {
			hosted = append(hosted, f)
		} else if err := m.misnamed(img, f); err != nil {
			m.damaged = append(m.damaged, damagedFolder{f, err})
		} else {
			m.unknown = append(m.unknown, f)
		}
	}
	parallel(len(hosted), int(m.cfg.Broker.RecoveryThreads)*len(m.cfg.Dirs.dirs), func(i int) {
		if ctx.Err() != nil || m.ctx.Err() != nil {
			return
		}
		topic, _ := img.TopicByID(hosted[i].meta.topic)
		m.openReplica(m.settings(img, topic), hosted[i], openFound)
		m.hook(StepStartupRecovery)
	})
	m.hostDamaged(img)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("start cancelled: %w", err)
	}
	for _, d := range m.cfg.Dirs.dirs {
		m.reportLostFolders(img, d, found)
		m.dropEntries(d, found)
	}
	return nil
}

// lastIndex is the index that nothing in a directory can be past (M6).
func (m *Manager) lastIndex() uint64 {
	if !m.cfg.ImageComplete {
		return indexUnknown
	}
	return m.cfg.Watch.Image().Index()
}

func (m *Manager) metadataLost(name, what string, index uint64) error {
	return &DirError{
		Dir:    name,
		Reason: fmt.Sprintf("it %s at metadata index %d, but %s ends at %d: what was decided in between is lost", what, index, m.cfg.Broker.MetadataLogDir, m.lastIndex()),
		Remedy: "bring back metadata.log.dir as it was with these log directories, or move away what is from elsewhere",
	}
}

// openDir loads a directory's checkpoints, removes its clean-shutdown file (M3)
// and lists its folders. It opens no log.
func (m *Manager) openDir(d *dir) ([]folder, error) {
	d.ballast = m.newBallast(d)
	var startsLost error
	d.recoveryLost = false
	for file, name := range map[*offsetFile]string{&d.starts: logStartName, &d.recovery: recoveryName, &d.marks: replicationName} {
		malformed, err := file.load(d.ballast, path.Join(d.path, name))
		if err != nil {
			return nil, &DirError{Dir: d.path, Reason: name + " cannot be read", Cause: err}
		}
		if malformed != nil && file == &d.starts {
			startsLost = malformed
		} else if malformed != nil {
			d.recoveryLost = d.recoveryLost || file == &d.recovery
			m.cfg.Logger.Error("checkpoint ignored", "dir", d.path, "file", name, "err", malformed)
		}
	}
	if startsLost == nil && d.starts.absent && d.wroteCheckpoints() {
		startsLost = errMissingCheckpoint
	}
	if startsLost != nil {
		m.cfg.Logger.Warn("log start offsets are lost: logs without a remote tier start at their first local segment again, and records below their former start may be read until retention or DeleteRecords removes them", "dir", d.path, "file", logStartName, "err", startsLost)
	}
	if err := m.fs.Remove(path.Join(d.path, cleanName)); err == nil {
		err = m.fs.SyncDir(d.path)
		if err != nil {
			return nil, &DirError{Dir: d.path, Reason: "it cannot be synced", Cause: err}
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, &DirError{Dir: d.path, Reason: cleanName + " cannot be removed", Cause: err}
	}
	names, err := m.fs.List(d.path)
	if err != nil {
		return nil, &DirError{Dir: d.path, Reason: "it cannot be listed", Cause: err}
	}
	var folders []folder
	d.names.made.Store(1)
	if !d.clean && !d.fresh {
		m.cfg.Logger.Warn("the last stop was not orderly; logs are scanned past their recovery points", "dir", d.path)
	}
	for _, name := range names {
		if m.leftover(d, name) {
			continue
		}
		k, ok := parseFolder(name)
		if !ok {
			continue
		}
		f, empty, err := readFolder(m.fs, d, k)
		if below, had := d.hadRecords(k); empty && had {
			err = f.badPartitionMeta(fmt.Errorf("%w, and %s says that there were records below offset %d", errBadPartitionMeta, recoveryName, below))
		}
		switch {
		case errors.Is(err, errTornMeta) && m.neverSynced(f):
			// A power loss left it: nothing in it counted as flushed (M8).
			if aside, ok := m.setStray(f); ok {
				m.cfg.Logger.Error("folder of a new partition was not written to its end and cannot be told whose it is: kept under another name, the partition begins anew", "partition", k.String(), "folder", aside, "err", err,
					"remedy", "it has records that no disk had confirmed: to have them back stop the broker, write its "+partitionName+" again with the id of its topic, and let it take the place of the new folder")
			}
		case err != nil:
			m.damaged = append(m.damaged, damagedFolder{f, err})
		case empty:
			m.discard(f, 0)
		default:
			folders = append(folders, f)
		}
	}
	return folders, nil
}

// wroteCheckpoints says that an earlier run must have written all checkpoints: an
// orderly stop with replicas does, and the others are written about when
// the log starts are.
func (d *dir) wroteCheckpoints() bool {
	recovery, marks := len(d.recovery.all()), len(d.marks.all())
	return d.clean && recovery > 0 || recovery > 0 && marks > 0
}

// unique finds what a stop at the end of a move left: of two folders of one
// replica the one that moved more often is whole, the former one goes. Two that
// no move explains are refused.
func unique(found []folder) (kept, former []folder, err error) {
	at := map[cluster.TopicPartition]int{}
	for _, f := range found {
		i, twice := at[f.tp()]
		if !twice {
			at[f.tp()] = len(kept)
			kept = append(kept, f)
			continue
		}
		other := kept[i]
		switch {
		case f.meta.moves > other.meta.moves:
			kept[i], former = f, append(former, other)
		case f.meta.moves < other.meta.moves:
			former = append(former, f)
		default:
			return nil, nil, &DirError{Dir: f.dir.path, Reason: fmt.Sprintf("%s is here and in %s", f.key, other.dir.path), Remedy: "move the older of the two folders away"}
		}
	}
	return kept, former, nil
}

// reportLostFolders names the replicas that had records in d, by its recovery
// points, and have no folder any more. They begin anew, those of a tier where it
// ends.
func (m *Manager) reportLostFolders(img *image.Image, d *dir, found []folder) {
	here := map[folderKey]struct{}{}
	for _, f := range found {
		here[f.key] = struct{}{}
	}
	for _, f := range m.damaged {
		here[f.key] = struct{}{}
	}
	for k, point := range d.recovery.all() {
		topic, ok := img.Topic(k.topic)
		if _, there := here[k]; there || point == 0 || !ok || int(k.partition) >= len(topic.Partitions) ||
			!slices.Contains(topic.Partitions[k.partition].Replicas, m.self) {
			continue
		}
		m.cfg.Logger.Error("the folder of a partition is gone, with its local records; it is made anew", "partition", k.String(), "dir", d.path, "records_below", point)
	}
}

// dropEntries removes checkpoint entries without a folder, durably, so that none
// is ever taken for one of a partition made later under the same name.
func (m *Manager) dropEntries(d *dir, found []folder) {
	here := map[folderKey]struct{}{}
	for _, f := range found {
		if f.dir == d {
			here[f.key] = struct{}{}
		}
	}
	for _, f := range m.damaged {
		if f.dir == d {
			here[f.key] = struct{}{}
		}
	}
	for _, file := range d.checkpoints() {
		file.keep(func(k folderKey) bool { _, ok := here[k]; return ok })
		if err := file.writeChanges(); err != nil {
			m.dirTrouble(d, err)
		}
	}
}
