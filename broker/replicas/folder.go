package replicas

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Suffixes of folders that are not replicas any more.
const (
	deleteSuffix = "-delete"
	straySuffix  = "-stray"
	nameMax      = 255 // bytes of a file name
)

// parseFolder reads `<topic>-<partition>`.
func parseFolder(name string) (folderKey, bool) {
	dash := strings.LastIndexByte(name, '-')
	if dash <= 0 || dash == len(name)-1 {
		return folderKey{}, false
	}
	n, err := strconv.ParseInt(name[dash+1:], 10, 32)
	if err != nil || n < 0 || name[dash+1] == '+' {
		return folderKey{}, false
	}
	return folderKey{topic: name[:dash], partition: int32(n)}, true
}

// asideName is the name of a folder that leaves: `<topic>-<partition>.<32 hex
// digits><suffix>`, the topic cut where the name would get too long.
func asideName(k folderKey, suffix string) string {
	id := cluster.NewUUID()
	tail := fmt.Sprintf("-%d.%s%s", k.partition, hex.EncodeToString(id[:]), suffix)
	return k.topic[:min(len(k.topic), nameMax-len(tail))] + tail
}

// partitionMeta is the content of partition.metadata: Kafka's two lines, and as
// a third, which Kafka does not read, the index of the image that the folder was
// made under. A topic that a later image does not have was deleted for certain.
// A fourth counts the moves between directories, where there were any: of two
// folders of one replica the later one is whole. The last line is the CRC-32C of
// those before it: a wrong digit must not make a folder that of a topic that was
// deleted. Files without it are read too.
type partitionMeta struct {
	topic cluster.TopicID
	index uint64
	moves uint64
}

// indexUnknown: no image is late enough.
const indexUnknown = 1<<64 - 1

func (m partitionMeta) encode() []byte {
	b := fmt.Appendf(nil, "version: 0\ntopic_id: %s\nimage_index: %d\n", m.topic, m.index)
	if m.moves > 0 {
		b = fmt.Appendf(b, "moves: %d\n", m.moves)
	}
	return fmt.Appendf(b, "%s %08x\n", checksumKey, crc32.Checksum(b, castagnoli))
}

const checksumKey = "crc32c:"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkSum compares the checksum in a partition.metadata, where it has one.
func checkSum(data []byte) error {
	at := bytes.LastIndex(data, []byte(checksumKey))
	if at < 0 {
		return nil
	}
	want := strings.TrimSpace(string(data[at+len(checksumKey):]))
	if got := fmt.Sprintf("%08x", crc32.Checksum(data[:at], castagnoli)); got != want {
		return fmt.Errorf("%w: checksum %s, its text has %s", errBadPartitionMeta, want, got)
	}
	return nil
}

// errTornMeta: a power loss before the folder was first synced may have left that.
var errTornMeta = errors.New("not written to its end")

// isTornMeta says whether the text is the beginning of one, zeroes after it, and
// not a whole one with something wrong.
func isTornMeta(data []byte) bool {
	text := string(bytes.TrimRight(data, "\x00"))
	const begins = "version: 0\ntopic_id: "
	if n := min(len(text), len(begins)); text[:n] != begins[:n] {
		return false
	}
	_, sum, found := strings.Cut(text, checksumKey)
	return !found || len(sum) < len(" 01234567\n")
}

var errBadPartitionMeta = errors.New("malformed " + partitionName)

func parsePartitionMeta(data []byte) (partitionMeta, error) {
	var m partitionMeta
	m.index = indexUnknown
	if err := checkSum(data); err != nil {
		return m, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "topic_id":
			id, err := cluster.ParseUUID(value)
			if err != nil {
				return m, fmt.Errorf("%w: %w", errBadPartitionMeta, err)
			}
			m.topic = cluster.TopicID(id)
		case "image_index":
			index, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return m, fmt.Errorf("%w: %w", errBadPartitionMeta, err)
			}
			m.index = index
		case "moves":
			moves, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return m, fmt.Errorf("%w: %w", errBadPartitionMeta, err)
			}
			m.moves = moves
		}
	}
	if m.topic.IsZero() {
		return m, fmt.Errorf("%w: no topic id", errBadPartitionMeta)
	}
	return m, lines.Err()
}

// folder is a partition's folder that was found at start.
type folder struct {
	dir  *dir
	key  folderKey
	meta partitionMeta
}

func (f folder) path() string { return path.Join(f.dir.path, f.key.String()) }

func (f folder) tp() cluster.TopicPartition {
	return cluster.TopicPartition{Topic: f.meta.topic, Partition: f.key.partition}
}

// readFolder reads a folder's partition.metadata. A folder without one, or with
// one that cannot be understood, which a stop while it was new may leave, is
// reported as empty where it has no records, and is a *segment.CorruptError where
// it has.
func readFolder(fs disk.FS, d *dir, k folderKey) (f folder, empty bool, err error) {
	f = folder{dir: d, key: k}
	data, err := disk.ReadFile(fs, path.Join(f.path(), partitionName))
	missing := errors.Is(err, os.ErrNotExist)
	if err != nil && !missing {
		return f, false, err
	}
	bad := fmt.Errorf("%w: missing: %w", errBadPartitionMeta, errTornMeta)
	if !missing {
		if f.meta, bad = parsePartitionMeta(data); bad == nil {
			return f, false, nil
		}
		if isTornMeta(data) {
			bad = fmt.Errorf("%w: %w", bad, errTornMeta)
		}
	}
	f.meta = partitionMeta{}
	if name, err := f.aSegment(fs); err != nil {
		return f, false, err
	} else if name != "" {
		return f, false, f.badPartitionMeta(fmt.Errorf("%w, beside %s", bad, name))
	}
	return f, true, nil
}

// aSegment names a segment in the folder that holds something, "" where none does.
func (f folder) aSegment(fs disk.FS) (string, error) {
	names, err := fs.List(f.path())
	if err != nil {
		return "", err
	}
	for _, name := range names {
		info, err := fs.Stat(path.Join(f.path(), name))
		if err != nil {
			return "", err
		}
		if strings.HasSuffix(name, ".log") && info.Bytes > 0 {
			return name, nil
		}
	}
	return "", nil
}

// errOccupied: another topic's replica lies where one is to be made.
var errOccupied = errors.New("folder holds the replica of another topic")

// makeFolder makes a replica's folder. It is durable once sync was called, as the
// log in it does before anything there counts as durable: until then a power loss
// takes nothing that was promised, and many are made without waiting for a disk.
// It fails with errOccupied where that of an older topic of the name, deleted
// while nobody looked, is not set aside yet (M2).
func makeFolder(fs disk.FS, f folder) error {
	switch old, _, err := readFolder(fs, f.dir, f.key); {
	case err == nil && !old.meta.topic.IsZero() && old.meta.topic != f.meta.topic:
		return fmt.Errorf("%s: %w", f.path(), errOccupied)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := fs.MkdirAll(f.path()); err != nil {
		return err
	}
	if err := disk.WriteFileUnsynced(fs, path.Join(f.path(), partitionName), f.meta.encode()); err != nil {
		return err
	}
	f.dir.names.made.Add(1)
	return nil
}

// sync makes durable which partition a folder is for, and that it is there.
func (f folder) sync(fs disk.FS) error {
	file, err := fs.Open(path.Join(f.path(), partitionName))
	if err != nil {
		return err
	}
	if err := errors.Join(file.SyncData(), file.Close()); err != nil {
		return err
	}
	return f.dir.names.sync(fs, f.dir.path)
}

// names are those of folders in a log directory that may not be durable yet.
type names struct {
	made atomic.Int64 // since the start, and those that were found

	mu     sync.Mutex
	synced int64 // of made
}

// sync makes every folder durable that was made before the call. One sync does
// for all that ask meanwhile.
func (n *names) sync(fs disk.FS, dir string) error {
	wanted := n.made.Load()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.synced >= wanted {
		return nil
	}
	made := n.made.Load()
	if err := fs.SyncDir(dir); err != nil {
		return err
	}
	n.synced = made
	return nil
}

// setAside renames a folder so that it is no replica any more, durably, and
// returns its new path.
func setAside(fs disk.FS, f folder, suffix string) (string, error) {
	aside := path.Join(f.dir.path, asideName(f.key, suffix))
	if err := fs.Rename(f.path(), aside); err != nil {
		return "", err
	}
	return aside, fs.SyncDir(f.dir.path)
}
