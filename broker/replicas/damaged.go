package replicas

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// damagedFolder is a folder with data that does not say whose it is. It stays
// where it is: where the cluster has a partition of its name here that partition
// is offline, since to begin anew would give up what was acknowledged.
type damagedFolder struct {
	folder
	err error
}

// damagedAs returns the damaged folder of that name, if there is one.
func (m *Manager) damagedAs(k folderKey) (damagedFolder, bool) {
	i := slices.IndexFunc(m.damaged, func(f damagedFolder) bool { return f.key == k })
	if i < 0 {
		return damagedFolder{}, false
	}
	return m.damaged[i], true
}

// hostDamaged hosts the partitions that the image places here under the names of
// damaged folders, as offline. One whose whole folder lies in another directory
// does not need the damaged one.
func (m *Manager) hostDamaged(img *image.Image) {
	for _, f := range m.damaged {
		topic, ok := m.placedHere(img, f.key)
		if !ok {
			continue
		}
		f.meta = partitionMeta{topic: topic.ID}
		if m.lookup(f.tp()) == nil {
			f.dir.replicas.Add(1)
			m.hostOffline(f)
		}
	}
}

// placedHere returns the topic of which the image places a partition of that name
// here.
func (m *Manager) placedHere(img *image.Image, k folderKey) (*image.Topic, bool) {
	topic, ok := img.Topic(k.topic)
	ok = ok && int(k.partition) < len(topic.Partitions) && slices.Contains(topic.Partitions[k.partition].Replicas, m.self)
	return topic, ok
}

// misnamed is the error about a folder with records whose topic id the cluster
// does not know, that does not say under which image it was made, as all that
// makeFolder made do, and has the name of a partition that belongs here.
func (m *Manager) misnamed(img *image.Image, f folder) error {
	if f.meta.index != indexUnknown {
		return nil
	}
	topic, ok := m.placedHere(img, f.key)
	if _, known := img.TopicByID(f.meta.topic); !ok || known {
		return nil
	}
	name, err := f.aSegment(m.fs)
	if err != nil || name == "" {
		return err
	}
	return f.badPartitionMeta(fmt.Errorf("%w: topic id %s, that of the topic %s is %s; beside %s", errBadPartitionMeta, f.meta.topic, topic.Name, topic.ID, name))
}

// hostOffline hosts a damaged folder's partition, which is counted.
func (m *Manager) hostOffline(f damagedFolder) {
	r := &replica{folder: f.folder, err: f.err, home: &atomic.Pointer[dir]{}, keep: &sync.RWMutex{}}
	r.home.Store(f.dir)
	m.cfg.Logger.Error("replica is offline: its folder has records and does not say which topic they are of; it is kept as it is", "partition", f.key.String(), "folder", f.path(), "err", f.err,
		"remedy", fmt.Sprintf("if the records are of the topic that has the name now, write the two lines \"version: 0\" and \"topic_id: %s\" to %s and restart; else move the folder out of the log directory and restart: the partition then begins anew, from its leader or the object store where they have it", f.meta.topic, path.Join(f.path(), partitionName)))
	m.dirTrouble(f.dir, f.err)
	m.hosted.Store(f.tp(), r)
	m.misplaced.Store(true)
}

// settleDamaged sets aside the damaged folders whose names no partition has that
// the image places here: else one that is created later would find its name taken.
func (m *Manager) settleDamaged() {
	for _, f := range m.damaged {
		hosted := false
		for _, r := range m.replicas() {
			hosted = hosted || r.key == f.key && r.dir == f.dir
		}
		if hosted || !isDamaged(f.err) {
			continue
		}
		if aside, ok := m.setStray(f.folder); ok {
			m.cfg.Logger.Error("folder cannot be told whose it is, and no partition of its name belongs here: kept under another name", "partition", f.key.String(), "folder", aside, "err", f.err,
				"remedy", "its records are in there: remove it by hand if they are not missed")
		}
	}
	m.damaged = nil
}

// isDamaged tells an error about a folder's content from one of the disk.
func isDamaged(err error) bool {
	return errors.As(err, new(*segment.CorruptError))
}

// badPartitionMeta is the error about a folder's partition.metadata.
func (f folder) badPartitionMeta(cause error) error {
	return &segment.CorruptError{File: path.Join(f.path(), partitionName), Cause: cause}
}

// neverSynced says that a folder was not synced before the stop, by all that is
// known: its log has neither a recovery point nor a second segment.
func (m *Manager) neverSynced(f folder) bool {
	if _, had := f.dir.hadRecords(f.key); had || f.dir.clean || f.dir.recoveryLost {
		return false
	}
	names, err := m.fs.List(f.path())
	logs := 0
	for _, name := range names {
		if _, suffix, ok := segment.ParseName(name); ok && suffix == segment.LogSuffix {
			logs++
		}
	}
	return err == nil && logs <= 1
}

// hadRecords says that a checkpoint shows records of a replica in the directory.
func (d *dir) hadRecords(k folderKey) (below cluster.Offset, ok bool) {
	below, ok = d.recovery.get(k)
	return below, ok && below > 0
}
