package replicas

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Names of the files that a log directory has beside its partitions' folders.
const (
	metaName         = "meta.properties"
	lockName         = ".lock"
	cleanName        = ".kafka_cleanshutdown"
	recoveryName     = "recovery-point-offset-checkpoint"
	logStartName     = "log-start-offset-checkpoint"
	replicationName  = "replication-offset-checkpoint"
	partitionName    = "partition.metadata"
	knownDirsName    = "log-dirs.json"
	formatKey        = "strandline.format"
	formatVersion    = 1
	kafkaMetaVersion = "1"
)

// meta is the content of meta.properties: Kafka's keys and one of ours, which
// tells our directories from Apache Kafka's.
type meta struct {
	nodeID      cluster.BrokerID
	clusterID   string
	directoryID cluster.DirectoryID
	format      int // 0: not ours
}

func (m meta) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "#\nversion=%s\nnode.id=%d\ncluster.id=%s\ndirectory.id=%s\n%s=%d\n",
		kafkaMetaVersion, m.nodeID, m.clusterID, m.directoryID, formatKey, m.format)
	return b.Bytes()
}

func parseMeta(data []byte) (meta, error) {
	m := meta{nodeID: cluster.NoBroker}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		if !found {
			return m, fmt.Errorf("%s: not a property: %q", metaName, line)
		}
		if err := m.set(strings.TrimSpace(key), strings.TrimSpace(value)); err != nil {
			return m, fmt.Errorf("%s: %s: %w", metaName, key, err)
		}
	}
	return m, lines.Err()
}

func (m *meta) set(key, value string) error {
	switch key {
	case "node.id", "broker.id":
		id, err := strconv.ParseInt(value, 10, 32)
		m.nodeID = cluster.BrokerID(id)
		return err
	case "cluster.id":
		m.clusterID = value
	case "directory.id":
		id, err := cluster.ParseUUID(value)
		m.directoryID = cluster.DirectoryID(id)
		return err
	case formatKey:
		format, err := strconv.Atoi(value)
		m.format = format
		return err
	}
	return nil
}

// cleanStop is the content of the clean-shutdown file, as Apache Kafka writes it.
type cleanStop struct {
	Version     int                 `json:"version"`
	BrokerEpoch cluster.BrokerEpoch `json:"brokerEpoch"`
}

// readCleanStop returns the broker epoch of the stop that the directory's
// clean-shutdown file attests, and false where there is none that can be read.
func readCleanStop(fs disk.FS, dir string) (cluster.BrokerEpoch, bool, error) {
	data, err := disk.ReadFile(fs, path.Join(dir, cleanName))
	if errors.Is(err, os.ErrNotExist) {
		return cluster.NoBrokerEpoch, false, nil
	}
	if err != nil {
		return cluster.NoBrokerEpoch, false, err
	}
	stop := cleanStop{BrokerEpoch: cluster.NoBrokerEpoch}
	if json.Unmarshal(data, &stop) != nil {
		return cluster.NoBrokerEpoch, false, nil
	}
	return stop.BrokerEpoch, true, nil
}

func writeCleanStop(fs disk.FS, dir string, epoch cluster.BrokerEpoch) error {
	data, err := json.Marshal(cleanStop{BrokerEpoch: epoch})
	if err != nil {
		return err
	}
	return disk.WriteFileAtomic(fs, path.Join(dir, cleanName), data)
}

// knownDirs is the list of log directories that metadata.log.dir keeps, so that
// one whose disk is not mounted is never taken for a new one.
type knownDirs struct {
	Version int        `json:"version"`
	Dirs    []knownDir `json:"dirs"`
}

type knownDir struct {
	Path string `json:"path"`
	ID   string `json:"id"`
}

func readKnownDirs(fs disk.FS, metadataDir string) (knownDirs, error) {
	data, err := disk.ReadFile(fs, path.Join(metadataDir, knownDirsName))
	if errors.Is(err, os.ErrNotExist) {
		return knownDirs{Version: 1}, nil
	}
	if err != nil {
		return knownDirs{}, err
	}
	var k knownDirs
	if err := json.Unmarshal(data, &k); err != nil {
		return k, fmt.Errorf("%s: %w", knownDirsName, err)
	}
	if k.Version > 1 {
		return k, fmt.Errorf("%s: version %d is newer than this program's", knownDirsName, k.Version)
	}
	return k, nil
}

func (k knownDirs) id(dir string) (string, bool) {
	i := slices.IndexFunc(k.Dirs, func(d knownDir) bool { return d.Path == dir })
	if i < 0 {
		return "", false
	}
	return k.Dirs[i].ID, true
}

func (k knownDirs) write(fs disk.FS, metadataDir string) error {
	data, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	return disk.WriteFileAtomic(fs, path.Join(metadataDir, knownDirsName), append(data, '\n'))
}
