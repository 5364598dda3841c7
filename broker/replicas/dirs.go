package replicas

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// DirsConfig names the log directories of a node.
type DirsConfig struct {
	FS   disk.FS
	Dirs []string // log.dirs
	// MetadataDir is metadata.log.dir, where the list of known directories is
	// kept; it exists and is locked by its owner.
	MetadataDir string
	NodeID      cluster.BrokerID
}

// Dirs are the locked and checked log directories of a node. OpenDirs has
// changed nothing in them; Init names the new ones.
type Dirs struct {
	cfg       DirsConfig
	known     knownDirs
	dirs      []*dir
	absent    []*dir // known, not listed
	clusterID string // "" where all are new

	closeOnce sync.Once
	closeErr  error
}

// dir is one log directory.
type dir struct {
	path    string
	id      cluster.DirectoryID
	fresh   bool // without meta.properties yet
	absent  bool // known and not listed any more: offline
	lock    io.Closer
	clean   bool // the clean-shutdown file was there
	epoch   cluster.BrokerEpoch
	offline atomic.Pointer[offlineReason]
	room    headroom
	ballast *disk.Ballast // what the directory's own files are written through
	// As last measured.
	freeBytes, totalBytes atomic.Int64

	starts   offsetFile // log-start-offset-checkpoint
	recovery offsetFile // recovery-point-offset-checkpoint
	marks    offsetFile // replication-offset-checkpoint
	slots    chan struct{}
	// recoveryLost says that the recovery points could not be understood.
	recoveryLost bool
	replicas     atomic.Int64
	names        names
}

type offlineReason struct{ err error }

func (d *dir) offlineErr() error {
	if r := d.offline.Load(); r != nil {
		return r.err
	}
	return nil
}

// OpenDirs locks every directory and checks it against the node, the others and
// the list of known directories. Missing directories that were never known are
// made; nothing else changes on disk. It fails with a *DirError, every lock
// released.
func OpenDirs(cfg DirsConfig) (*Dirs, error) {
	d := &Dirs{cfg: cfg}
	known, err := readKnownDirs(cfg.FS, cfg.MetadataDir)
	if err != nil {
		return nil, &DirError{Dir: cfg.MetadataDir, Reason: "the list of known log directories cannot be read", Cause: err}
	}
	d.known = known
	for _, name := range cfg.Dirs {
		one, err := d.open(path.Clean(name))
		if err != nil {
			_ = d.Close()
			return nil, err
		}
		d.dirs = append(d.dirs, one)
	}
	for _, k := range known.Dirs {
		id, err := cluster.ParseUUID(k.ID)
		if err != nil || slices.ContainsFunc(d.dirs, func(one *dir) bool { return one.path == k.Path || one.id == cluster.DirectoryID(id) }) {
			continue
		}
		one := &dir{path: k.Path, id: cluster.DirectoryID(id), absent: true}
		one.offline.Store(&offlineReason{&DirError{
			Dir: k.Path, Reason: "it holds replicas of this node and is not in log.dirs any more",
			Remedy: "list it again; to give its data up, remove its entry from " + knownDirsName + " in metadata.log.dir",
		}})
		d.absent = append(d.absent, one)
	}
	return d, nil
}

// unlisted returns the directory with that id if it is known and not listed.
func (d *Dirs) unlisted(id cluster.DirectoryID) *dir {
	for _, one := range d.absent {
		if one.id == id {
			return one
		}
	}
	return nil
}

func (d *Dirs) open(name string) (*dir, error) {
	fs := d.cfg.FS
	if slices.ContainsFunc(d.dirs, func(other *dir) bool { return other.path == name }) {
		return nil, &DirError{Dir: name, Reason: "it is listed twice in log.dirs"}
	}
	id, known := d.known.id(name)
	if _, err := fs.Stat(name); err != nil {
		switch {
		case !errors.Is(err, os.ErrNotExist):
			return nil, &DirError{Dir: name, Reason: "it cannot be read", Cause: err}
		case known:
			return nil, missing(name)
		}
		if err := disk.EnsureDir(fs, name); err != nil {
			return nil, &DirError{Dir: name, Reason: "it cannot be made", Cause: err}
		}
	}
	one := &dir{path: name, epoch: cluster.NoBrokerEpoch}
	// Before the lock, so that a foreign or unmounted directory gets no file of
	// ours, and again under it.
	if err := d.check(one, id, known); err != nil {
		return nil, err
	}
	lock, err := d.lock(name)
	if err != nil {
		return nil, err
	}
	one.lock = lock
	if err := d.check(one, id, known); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return one, nil
}

func (d *Dirs) lock(name string) (io.Closer, error) {
	lock, err := d.cfg.FS.Lock(path.Join(name, lockName))
	switch {
	case errors.Is(err, disk.ErrLocked):
		return nil, &DirError{Dir: name, Reason: "another process uses it", Cause: err, Remedy: "stop that process, or give this one other directories"}
	case err != nil:
		return nil, &DirError{Dir: name, Reason: "it cannot be locked", Cause: err}
	}
	return lock, nil
}

func missing(name string) error {
	return &DirError{
		Dir: name, Reason: "it held data of this node and is now empty or missing",
		Remedy: "mount its disk; to give its data up, remove its entry from " + knownDirsName + " in metadata.log.dir",
	}
}

// check reads what the directory says of itself.
func (d *Dirs) check(one *dir, id string, known bool) error {
	data, err := disk.ReadFile(d.cfg.FS, path.Join(one.path, metaName))
	switch {
	case errors.Is(err, os.ErrNotExist) && known:
		if name := d.someFolder(one.path); name != "" {
			return &DirError{
				Dir: one.path, Reason: fmt.Sprintf("its %s is missing, though it holds replicas (%s)", metaName, name),
				Remedy: d.writeMeta(id),
			}
		}
		return missing(one.path)
	case errors.Is(err, os.ErrNotExist):
		one.fresh = true
		return d.checkFresh(one)
	case err != nil:
		return &DirError{Dir: one.path, Reason: metaName + " cannot be read", Cause: err}
	}
	one.fresh = false
	m, err := parseMeta(data)
	if err != nil {
		return &DirError{Dir: one.path, Reason: metaName + " cannot be understood", Cause: err, Remedy: d.writeMeta(id)}
	}
	refuse := func(format string, args ...any) error {
		return &DirError{Dir: one.path, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case m.format == 0 && m.nodeID == cluster.NoBroker && m.clusterID == "":
		return &DirError{
			Dir: one.path, Reason: metaName + " is empty or damaged: it names no node and no cluster",
			Remedy: d.writeMeta(id),
		}
	case m.format == 0:
		return &DirError{Dir: one.path, Reason: "it is a data directory of Apache Kafka", Remedy: "choose an empty directory for log.dirs"}
	case m.format > formatVersion:
		return refuse("its format %d is newer than the %d of this program", m.format, formatVersion)
	case m.nodeID != d.cfg.NodeID:
		return refuse("it belongs to node.id %d, this is %d", m.nodeID, d.cfg.NodeID)
	case d.clusterID != "" && m.clusterID != d.clusterID:
		return refuse("it belongs to cluster.id %s, another log directory to %s", m.clusterID, d.clusterID)
	case known && id != m.directoryID.String():
		return refuse("its directory.id is %s, but %s was known there: the disks may be mixed up", m.directoryID, id)
	}
	d.clusterID, one.id = m.clusterID, m.directoryID
	if one.epoch, one.clean, err = readCleanStop(d.cfg.FS, one.path); err != nil {
		return &DirError{Dir: one.path, Reason: cleanName + " cannot be read", Cause: err}
	}
	return nil
}

// someFolder names a replica's folder in the directory, "" where it has none.
func (d *Dirs) someFolder(dir string) string {
	names, err := d.cfg.FS.List(dir)
	if err != nil {
		return ""
	}
	i := slices.IndexFunc(names, func(name string) bool { _, ok := parseFolder(name); return ok })
	if i < 0 {
		return ""
	}
	return names[i]
}

// writeMeta is the remedy for a directory whose meta.properties is lost, and that
// was known under that id, "" where it was not.
func (d *Dirs) writeMeta(id string) string {
	if id == "" {
		return "restore " + metaName + " from a copy, or choose another directory for log.dirs"
	}
	clusterID := d.clusterID
	if clusterID == "" {
		clusterID = "<cluster.id in " + path.Join(d.cfg.MetadataDir, metaName) + ">"
	}
	return fmt.Sprintf("restore %s from a copy, or write it again with the lines version=%s, node.id=%d, cluster.id=%s, directory.id=%s, %s=%d",
		metaName, kafkaMetaVersion, d.cfg.NodeID, clusterID, id, formatKey, formatVersion)
}

// checkFresh refuses to begin in a directory that holds anything.
func (d *Dirs) checkFresh(one *dir) error {
	names, err := d.cfg.FS.List(one.path)
	if err != nil {
		return &DirError{Dir: one.path, Reason: "it cannot be listed", Cause: err}
	}
	for _, name := range names {
		switch name {
		case lockName, "lost+found", metaName + ".tmp":
			continue
		}
		return &DirError{Dir: one.path, Reason: fmt.Sprintf("it has no %s but is not empty (%s)", metaName, name), Remedy: "choose an empty directory for log.dirs"}
	}
	return nil
}

// ClusterID returns the cluster id that the directories name, "" where all of
// them are new.
func (d *Dirs) ClusterID() string { return d.clusterID }

// IDs returns the directories' ids; call it after Init.
func (d *Dirs) IDs() []cluster.DirectoryID {
	ids := make([]cluster.DirectoryID, len(d.dirs))
	for i, one := range d.dirs {
		ids[i] = one.id
	}
	return ids
}

// PreviousEpoch returns the broker epoch of the last stop if it was clean in
// every directory that was in use, else NoBrokerEpoch.
func (d *Dirs) PreviousEpoch() cluster.BrokerEpoch {
	epoch := cluster.NoBrokerEpoch
	for _, one := range d.dirs {
		if one.fresh {
			continue
		}
		if !one.clean || epoch != cluster.NoBrokerEpoch && one.epoch != epoch {
			return cluster.NoBrokerEpoch
		}
		epoch = one.epoch
	}
	return epoch
}

// Init names the new directories and enters all of them in the list of known
// ones. It is called once the node knows its cluster id, which must be the one
// that the directories name.
func (d *Dirs) Init(clusterID string) error {
	if d.clusterID != "" && d.clusterID != clusterID {
		return &DirError{Dir: d.dirs[0].path, Reason: fmt.Sprintf("it belongs to cluster.id %s, this node to %s", d.clusterID, clusterID)}
	}
	for _, one := range d.dirs {
		if one.id.IsZero() {
			one.id = cluster.NewDirectoryID()
		}
		if !one.fresh {
			continue
		}
		// The directory names itself before it is known: a stop in between
		// leaves one that is taken up, never one that is refused.
		m := meta{nodeID: d.cfg.NodeID, clusterID: clusterID, directoryID: one.id, format: formatVersion}
		if err := d.cfg.FS.SyncDir(path.Dir(one.path)); err != nil && !errors.Is(err, os.ErrPermission) {
			return &DirError{Dir: one.path, Reason: "its entry cannot be synced", Cause: err}
		}
		if err := disk.WriteFileAtomic(d.cfg.FS, path.Join(one.path, metaName), m.encode()); err != nil {
			return &DirError{Dir: one.path, Reason: metaName + " cannot be written", Cause: err}
		}
	}
	d.clusterID = clusterID
	return d.remember()
}

func (d *Dirs) remember() error {
	list := knownDirs{Version: 1}
	for _, one := range slices.Concat(d.dirs, d.absent) {
		list.Dirs = append(list.Dirs, knownDir{Path: one.path, ID: one.id.String()})
	}
	if slices.Equal(list.Dirs, d.known.Dirs) {
		return nil
	}
	if err := list.write(d.cfg.FS, d.cfg.MetadataDir); err != nil {
		return &DirError{Dir: d.cfg.MetadataDir, Reason: "the list of known log directories cannot be written", Cause: err}
	}
	d.known = list
	return nil
}

// Close releases the locks. Idempotent; Manager.Close calls it too.
func (d *Dirs) Close() error {
	d.closeOnce.Do(func() {
		for _, one := range d.dirs {
			d.closeErr = errors.Join(d.closeErr, one.lock.Close())
		}
	})
	return d.closeErr
}
