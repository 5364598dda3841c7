package replicas

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// folderKey names a replica as its folder does.
type folderKey struct {
	topic     string
	partition int32
}

func (k folderKey) String() string { return fmt.Sprintf("%s-%d", k.topic, k.partition) }

// encodeOffsets writes Kafka's checkpoint format: a version, a count, and a line
// a partition.
func encodeOffsets(offsets map[folderKey]cluster.Offset) []byte {
	keys := slices.SortedFunc(maps.Keys(offsets), func(a, b folderKey) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	var b bytes.Buffer
	fmt.Fprintf(&b, "0\n%d\n", len(keys))
	for _, k := range keys {
		fmt.Fprintf(&b, "%s %d %d\n", k.topic, k.partition, offsets[k])
	}
	return b.Bytes()
}

// errBadCheckpoint is matched by errors about a checkpoint's text.
var errBadCheckpoint = errors.New("malformed checkpoint")

var errMissingCheckpoint = errors.New("checkpoint is missing")

func parseOffsets(data []byte) (map[folderKey]cluster.Offset, error) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	number := 0
	bad := func() error { return fmt.Errorf("%w: line %d", errBadCheckpoint, number) }
	line := func() string {
		number++
		if !lines.Scan() {
			return ""
		}
		return strings.TrimSpace(lines.Text())
	}
	if line() != "0" {
		return nil, bad()
	}
	count, err := strconv.Atoi(line())
	if err != nil || count < 0 {
		return nil, bad()
	}
	offsets := map[folderKey]cluster.Offset{}
	for range count {
		fields := strings.Fields(line())
		if len(fields) != 3 {
			return nil, bad()
		}
		partition, err1 := strconv.ParseInt(fields[1], 10, 32)
		offset, err2 := strconv.ParseInt(fields[2], 10, 64)
		if err1 != nil || err2 != nil || offset < 0 || partition < 0 {
			return nil, bad()
		}
		offsets[folderKey{fields[0], int32(partition)}] = cluster.Offset(offset)
	}
	return offsets, lines.Err()
}

// offsetFile is a checkpoint file and what it holds. Offsets never fall.
type offsetFile struct {
	fs   disk.FS
	name string

	mu      sync.Mutex
	offsets map[folderKey]cluster.Offset
	absent  bool   // load found no file
	changes uint64 // of offsets
	dropped uint64 // the last change that removed an entry

	writing sync.Mutex // held over the write, taken before mu
	written uint64     // changes that are durable; under writing
}

// load reads the file; one that is missing or malformed counts as empty, which
// costs a scan, or for log starts the space that is freed again.
func (f *offsetFile) load(fs disk.FS, name string) (malformed error, err error) {
	f.fs, f.name, f.offsets = fs, name, map[folderKey]cluster.Offset{}
	data, err := disk.ReadFile(fs, name)
	if errors.Is(err, os.ErrNotExist) {
		f.absent = true
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	offsets, err := parseOffsets(data)
	if err != nil {
		return err, nil
	}
	f.offsets = offsets
	return nil, nil
}

func (f *offsetFile) get(k folderKey) (cluster.Offset, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, ok := f.offsets[k]
	return o, ok
}

// all returns a copy of what the file holds.
func (f *offsetFile) all() map[folderKey]cluster.Offset {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.offsets)
}

// raise enters an offset of a replica that is hosted; a lower one than the
// present one is ignored. It returns the change that a write must cover. One that
// was deleted meanwhile is left out (false): its entry would be taken for that of
// a partition made later under the same name. Whoever deletes one takes it from
// the hosted ones before it calls keep.
func (f *offsetFile) raise(k folderKey, o cluster.Offset, hosted func() bool) (change uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !hosted() {
		return 0, false
	}
	if old, ok := f.offsets[k]; !ok || o > old {
		f.offsets[k] = o
		f.changes++
	}
	return f.changes, true
}

// set enters an offset of a replica that is not hosted yet.
func (f *offsetFile) set(k folderKey, o cluster.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offsets[k] = o
	f.changes++
}

// keep removes every entry that fn does not keep.
func (f *offsetFile) keep(fn func(folderKey) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.offsets {
		if !fn(k) {
			delete(f.offsets, k)
			f.changes++
			f.dropped = f.changes
		}
	}
}

// write makes at least the given change durable. Concurrent calls share a write.
func (f *offsetFile) write(change uint64) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if f.written >= change {
		return nil
	}
	f.mu.Lock()
	latest, data := f.changes, encodeOffsets(f.offsets)
	f.mu.Unlock()
	if err := disk.WriteFileAtomic(f.fs, f.name, data); err != nil {
		return err
	}
	f.written = latest
	return nil
}

// writeDropped makes the removals durable that could not be when they were made.
func (f *offsetFile) writeDropped() error {
	f.mu.Lock()
	change := f.dropped
	f.mu.Unlock()
	return f.write(change)
}

// writeChanges makes everything entered so far durable.
func (f *offsetFile) writeChanges() error {
	f.mu.Lock()
	change := f.changes
	f.mu.Unlock()
	return f.write(change)
}
