package node

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

const (
	metaName      = "meta.properties"
	lockName      = ".lock"
	formatKey     = "strandline.format"
	formatVersion = 1
)

var (
	// ErrForeign: the directory belongs to another node, cluster or program.
	ErrForeign = errors.New("directory belongs to something else")
	// ErrNewerFormat: a newer version has written the directory.
	ErrNewerFormat = errors.New("directory was written by a newer version")
	// ErrWiped: the metadata is gone while log directories have data.
	ErrWiped = errors.New("metadata is missing")
)

// DirError refuses metadata.log.dir at start. The process exits 3 on it.
type DirError struct {
	Dir    string
	Reason string // a sentence
	Remedy string // a sentence, may be empty
	Cause  error  // disk.ErrLocked, ErrForeign, ErrNewerFormat, ErrWiped, or another
}

func (e *DirError) Error() string {
	s := fmt.Sprintf("metadata directory %s: %s", e.Dir, e.Reason)
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

func (e *DirError) Unwrap() error { return e.Cause }

// properties is the content of meta.properties.
type properties struct {
	version     string
	nodeID      cluster.BrokerID
	clusterID   string
	directoryID cluster.DirectoryID
	format      int // 0: not ours
}

func (p properties) encode() []byte {
	return fmt.Appendf(nil, "#\nversion=1\nnode.id=%d\ncluster.id=%s\ndirectory.id=%s\n%s=%d\n",
		p.nodeID, p.clusterID, p.directoryID, formatKey, formatVersion)
}

func parseProperties(data []byte) (properties, error) {
	p := properties{nodeID: cluster.NoBroker}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		if !found {
			return p, fmt.Errorf("not a property: %q", line)
		}
		if err := p.set(strings.TrimSpace(key), strings.TrimSpace(value)); err != nil {
			return p, fmt.Errorf("%s: %w", strings.TrimSpace(key), err)
		}
	}
	return p, lines.Err()
}

func (p *properties) set(key, value string) (err error) {
	switch key {
	case "version":
		p.version = value
	case "node.id", "broker.id":
		var id int64
		id, err = strconv.ParseInt(value, 10, 32)
		p.nodeID = cluster.BrokerID(id)
	case "cluster.id":
		p.clusterID = value
	case "directory.id":
		var id cluster.UUID
		id, err = cluster.ParseUUID(value)
		p.directoryID = cluster.DirectoryID(id)
	case formatKey:
		p.format, err = strconv.Atoi(value)
	}
	return err
}

// directory is a locked metadata.log.dir.
type directory struct {
	fs    disk.FS
	path  string
	lock  io.Closer
	fresh bool // without meta.properties
	properties
}

// openDirectory checks and locks the directory. It makes a missing one; in an
// existing one nothing changes but the lock file (D1).
func openDirectory(fs disk.FS, dir string, node cluster.BrokerID) (*directory, error) {
	d := &directory{fs: fs, path: path.Clean(dir)}
	// Before the lock, so that a foreign directory gets no file of ours, and
	// again under it.
	if err := d.check(node); err != nil {
		return nil, err
	}
	if err := disk.EnsureDir(fs, d.path); err != nil {
		return nil, &DirError{Dir: d.path, Reason: fmt.Sprintf("it cannot be made: %v", err), Cause: err}
	}
	lock, err := fs.Lock(path.Join(d.path, lockName))
	var locked *disk.LockedError
	switch {
	case errors.As(err, &locked) && locked.PID != 0:
		return nil, &DirError{
			Dir: d.path, Reason: fmt.Sprintf("it is locked by process %d", locked.PID),
			Remedy: "stop that process, or give this node directories of its own", Cause: err,
		}
	case err != nil:
		return nil, &DirError{Dir: d.path, Reason: fmt.Sprintf("it cannot be locked: %v", err), Cause: err}
	}
	d.lock = lock
	if err := d.check(node); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// check reads meta.properties and refuses what is not this node's.
func (d *directory) check(node cluster.BrokerID) error {
	if name, found := d.kafka(); found {
		return d.refuse(ErrForeign, "it holds %s: it is the metadata directory of Apache Kafka", name)
	}
	data, err := disk.ReadFile(d.fs, path.Join(d.path, metaName))
	if errors.Is(err, os.ErrNotExist) {
		return d.checkFresh()
	}
	if err != nil {
		return &DirError{Dir: d.path, Reason: fmt.Sprintf("%s cannot be read: %v", metaName, err), Cause: err}
	}
	p, err := parseProperties(data)
	switch {
	case err != nil:
		return d.refuse(err, "%s cannot be understood: %v", metaName, err)
	case p.format > formatVersion || p.format > 0 && p.version != "1":
		return d.refuse(ErrNewerFormat, "its format %d is newer than %d, the newest that this version knows", p.format, formatVersion)
	case p.format == 0 && p.nodeID == cluster.NoBroker && p.clusterID == "":
		e := d.refuse(ErrForeign, "its %s is empty or damaged: it names no node and no cluster", metaName)
		e.Remedy = "restore " + metaName + " from a backup, or start with empty directories"
		return e
	case p.format == 0:
		return d.refuse(ErrForeign, "its %s is not of this program: it may be a data directory of Apache Kafka", metaName)
	case p.nodeID != node:
		return d.refuse(ErrForeign, "it belongs to node.id %d, this node is %d", p.nodeID, node)
	case p.clusterID == "" || p.directoryID.IsZero():
		return d.refuse(ErrForeign, "%s lacks cluster.id or directory.id", metaName)
	}
	d.properties, d.fresh = p, false
	return nil
}

// kafka names what only Apache Kafka's own directory holds.
func (d *directory) kafka() (string, bool) {
	for _, name := range []string{"__cluster_metadata-0", "bootstrap.checkpoint"} {
		if _, err := d.fs.Stat(path.Join(d.path, name)); err == nil {
			return name, true
		}
	}
	return "", false
}

// checkFresh refuses a directory that has our data but not our name on it.
func (d *directory) checkFresh() error {
	for _, name := range []string{"raft", "state", "snapshots"} {
		if _, err := d.fs.Stat(path.Join(d.path, name)); err == nil {
			e := d.refuse(ErrWiped, "it holds %s/ but %s is missing", name, metaName)
			e.Remedy = "restore " + metaName + " from a backup, or start with empty directories"
			return e
		}
	}
	d.fresh = true
	return nil
}

func (d *directory) refuse(cause error, format string, args ...any) *DirError {
	return &DirError{Dir: d.path, Reason: fmt.Sprintf(format, args...), Cause: cause}
}

// found names a new directory, or checks an existing one, against what the log
// directories say of their cluster, "" where they are new (D2).
func (d *directory) found(node cluster.BrokerID, logDirs []string, logDirsClusterID string) error {
	if d.fresh && logDirsClusterID != "" {
		return d.wiped(logDirs)
	}
	if !d.fresh {
		if logDirsClusterID != "" && logDirsClusterID != d.clusterID {
			return d.refuse(ErrForeign, "it belongs to cluster.id %s, the log directories to %s", d.clusterID, logDirsClusterID)
		}
		return nil
	}
	p := properties{
		version: "1", nodeID: node, clusterID: cluster.NewUUID().String(),
		directoryID: cluster.NewDirectoryID(), format: formatVersion,
	}
	if err := disk.WriteFileAtomic(d.fs, path.Join(d.path, metaName), p.encode()); err != nil {
		return &DirError{Dir: d.path, Reason: fmt.Sprintf("%s cannot be written: %v", metaName, err), Cause: err}
	}
	d.properties, d.fresh = p, false
	return nil
}

func (d *directory) wiped(logDirs []string) error {
	e := d.refuse(ErrWiped, "it has no metadata, but log directories have data (%s)", strings.Join(logDirs, ", "))
	e.Remedy = "mount its disk or restore it from a backup; to begin anew and give the data up, empty the log directories too"
	return e
}
