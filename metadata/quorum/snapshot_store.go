package quorum

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"strandline/metadata/disk"
)

const (
	snapshotFormat = 1
	metaName       = "meta.json"
	checkpointName = "checkpoint"
	unfinished     = ".tmp"
)

// snapshotMeta is the contents of meta.json.
type snapshotMeta struct {
	Format             int              `json:"format"`
	Index              uint64           `json:"index"`
	Term               uint64           `json:"term"`
	Configuration      []snapshotServer `json:"configuration"`
	ConfigurationIndex uint64           `json:"configurationIndex"`
	// Applied is the applied index inside the checkpoint.
	Applied uint64 `json:"applied"`
	// Bytes is the length of the stream.
	Bytes int64 `json:"bytes"`
	// Files is the checkpoint's files in the order of the stream.
	Files []snapshotFile `json:"files"`
}

type snapshotServer struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
}

func (m snapshotMeta) raft(id string) *raft.SnapshotMeta {
	out := &raft.SnapshotMeta{
		Version: 1, ID: id, Index: m.Index, Term: m.Term,
		ConfigurationIndex: m.ConfigurationIndex, Size: m.Bytes,
	}
	for _, s := range m.Configuration {
		server := raft.Server{ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Address), Suffrage: raft.Nonvoter}
		if s.Voter {
			server.Suffrage = raft.Voter
		}
		out.Configuration.Servers = append(out.Configuration.Servers, server)
	}
	return out
}

// snapshotStore keeps the newest snapshot, and older ones only while they are
// read.
type snapshotStore struct {
	fs  disk.FS
	dir string
	log *slog.Logger

	mu      sync.Mutex
	readers map[string]int
}

var _ raft.SnapshotStore = (*snapshotStore)(nil)

// openSnapshots opens the folder and removes what was not finished.
func openSnapshots(fs disk.FS, dir string, log *slog.Logger) (*snapshotStore, error) {
	if err := disk.EnsureDir(fs, dir); err != nil {
		return nil, err
	}
	s := &snapshotStore{fs: fs, dir: dir, log: log, readers: map[string]int{}}
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, unfinished) {
			if err := fs.RemoveAll(path.Join(dir, name)); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *snapshotStore) meta(id string) (snapshotMeta, error) {
	var m snapshotMeta
	name := path.Join(s.dir, id, metaName)
	data, err := disk.ReadFile(s.fs, name)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, &CorruptError{Name: name, Cause: err}
	}
	if m.Format != snapshotFormat {
		return m, &CorruptError{Name: name, Cause: fmt.Errorf("format %d is not known here", m.Format)}
	}
	return m, nil
}

// ids lists the finished snapshots, newest first: an id sorts by index.
func (s *snapshotStore) ids() ([]string, error) {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, unfinished) })
	slices.Reverse(names)
	return names, nil
}

// List implements raft.SnapshotStore.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	var out []*raft.SnapshotMeta
	for _, id := range ids {
		m, err := s.meta(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // being removed
		}
		if err != nil {
			return nil, err
		}
		out = append(out, m.raft(id))
	}
	return out, nil
}

// newest returns the newest snapshot's id and meta, false where there is none.
func (s *snapshotStore) newest() (string, snapshotMeta, bool, error) {
	ids, err := s.ids()
	if err != nil || len(ids) == 0 {
		return "", snapshotMeta{}, false, err
	}
	m, err := s.meta(ids[0])
	return ids[0], m, err == nil, err
}

func (s *snapshotStore) checkpointDir(id string) string {
	return path.Join(s.dir, id, checkpointName)
}

// Open implements raft.SnapshotStore. The bytes are made as they are read.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	s.readers[id]++
	s.mu.Unlock()
	m, err := s.meta(id)
	if err != nil {
		s.release(id)
		return nil, nil, err
	}
	dir := s.checkpointDir(id)
	return m.raft(id), &snapshotReader{
		streamReader: newStreamReader(s.fs, dir, m.Applied, m.Files), store: s, id: id,
	}, nil
}

func (s *snapshotStore) release(id string) {
	s.mu.Lock()
	if s.readers[id]--; s.readers[id] <= 0 {
		delete(s.readers, id)
	}
	s.mu.Unlock()
	s.reap()
}

// reap removes every snapshot but the newest that nobody reads. What cannot be
// removed now is tried again after the next snapshot.
func (s *snapshotStore) reap() {
	ids, err := s.ids()
	if err != nil || len(ids) < 2 {
		return
	}
	for _, id := range ids[1:] {
		s.mu.Lock()
		busy := s.readers[id] > 0
		s.mu.Unlock()
		if busy {
			continue
		}
		if err := s.remove(id); err != nil {
			s.log.Warn("an old metadata snapshot could not be removed", "snapshot", id, "err", err)
		}
	}
}

// remove makes a snapshot invisible at once, then removes its files.
func (s *snapshotStore) remove(id string) error {
	trash := path.Join(s.dir, id+unfinished)
	if err := s.fs.Rename(path.Join(s.dir, id), trash); err != nil {
		return err
	}
	return s.fs.RemoveAll(trash)
}

// snapshotReader is what Raft streams to a peer, or hands to the FSM, which
// takes the folder instead.
type snapshotReader struct {
	*streamReader
	store *snapshotStore
	id    string
	once  sync.Once
}

// Close implements io.Closer.
func (r *snapshotReader) Close() error {
	err := r.streamReader.Close()
	r.once.Do(func() { r.store.release(r.id) })
	return err
}

// Create implements raft.SnapshotStore.
func (s *snapshotStore) Create(
	_ raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64,
	_ raft.Transport,
) (raft.SnapshotSink, error) {
	m := snapshotMeta{
		Format: snapshotFormat, Index: index, Term: term, ConfigurationIndex: configurationIndex,
	}
	for _, server := range configuration.Servers {
		m.Configuration = append(m.Configuration, snapshotServer{
			ID: string(server.ID), Address: string(server.Address), Voter: server.Suffrage == raft.Voter,
		})
	}
	id := fmt.Sprintf("%020d-%020d", index, term)
	temp := path.Join(s.dir, id+unfinished)
	if err := s.fs.RemoveAll(temp); err != nil {
		return nil, err
	}
	if err := disk.EnsureDir(s.fs, temp); err != nil {
		return nil, err
	}
	return &snapshotSink{store: s, id: id, temp: temp, meta: m}, nil
}

// snapshotSink is a snapshot being made: of a checkpoint of this node's own
// state (fromCheckpoint), or of the bytes that the leader streams (Write).
type snapshotSink struct {
	store  *snapshotStore
	id     string
	temp   string
	meta   snapshotMeta
	stream *streamWriter
	filled bool
	done   bool
}

// ID implements raft.SnapshotSink, as do Write, Close and Cancel.
func (k *snapshotSink) ID() string { return k.id }

func (k *snapshotSink) dir() string { return path.Join(k.temp, checkpointName) }

// fromCheckpoint fills the snapshot from a folder that fn makes and syncs.
func (k *snapshotSink) fromCheckpoint(fn func(dir string) (applied uint64, err error)) error {
	applied, err := fn(k.dir())
	if err != nil {
		return err
	}
	names, err := k.store.fs.List(k.dir())
	if err != nil {
		return err
	}
	for _, name := range names {
		info, err := k.store.fs.Stat(path.Join(k.dir(), name))
		if err != nil {
			return err
		}
		k.meta.Files = append(k.meta.Files, snapshotFile{Name: name, Bytes: info.Bytes})
	}
	k.meta.Applied = applied
	k.filled = true
	return nil
}

func (k *snapshotSink) Write(p []byte) (int, error) {
	if k.stream == nil {
		if err := k.store.fs.MkdirAll(k.dir()); err != nil {
			return 0, err
		}
		k.stream = &streamWriter{fs: k.store.fs, dir: k.dir(), name: "metadata snapshot " + k.id}
	}
	return k.stream.Write(p)
}

func (k *snapshotSink) Close() error {
	if k.done {
		return nil
	}
	if err := k.finish(); err != nil {
		return errors.Join(err, k.Cancel())
	}
	k.done = true
	k.store.reap()
	return nil
}

func (k *snapshotSink) finish() error {
	if k.stream != nil {
		if err := k.stream.finish(); err != nil {
			return err
		}
		k.meta.Applied, k.meta.Files = k.stream.applied, k.stream.files
		k.filled = true
	}
	if !k.filled {
		return &CorruptError{Name: "metadata snapshot " + k.id, Cause: errStreamEnd}
	}
	k.meta.Bytes = streamBytes(k.meta.Files)
	data, err := json.MarshalIndent(k.meta, "", "  ")
	if err != nil {
		return err
	}
	if err := disk.WriteFileAtomic(k.store.fs, path.Join(k.temp, metaName), append(data, '\n')); err != nil {
		return err
	}
	final := path.Join(k.store.dir, k.id)
	if _, err := k.store.fs.Stat(final); err == nil { // taken again at the same index
		if err := k.store.fs.RemoveAll(k.temp); err != nil {
			return err
		}
		return nil
	}
	if err := k.store.fs.Rename(k.temp, final); err != nil {
		return err
	}
	return k.store.fs.SyncDir(k.store.dir)
}

func (k *snapshotSink) Cancel() error {
	if k.done {
		return nil
	}
	k.done = true
	var err error
	if k.stream != nil {
		err = k.stream.abort()
	}
	return errors.Join(err, k.store.fs.RemoveAll(k.temp))
}
