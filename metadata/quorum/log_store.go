package quorum

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"

	"strandline/metadata/store"
)

// logStore is Raft's log and stable store in one database. Every change is
// synced before it returns.
type logStore struct {
	db     *store.DB
	limits Limits
	// due is told, without blocking, that a snapshot should be taken.
	due chan<- struct{}

	mu          sync.Mutex
	first, last uint64 // 0: empty
	// since counts what was added after the last snapshot began.
	sinceBytes, sinceCount int64
	// tail is the sizes of the newest entries, of which trailing are few
	// enough to stay behind a snapshot.
	tail      []int64
	tailBytes int64
}

var (
	_ raft.LogStore    = (*logStore)(nil)
	_ raft.StableStore = (*logStore)(nil)
)

func newLogStore(db *store.DB, limits Limits, due chan<- struct{}) (*logStore, error) {
	l := &logStore{db: db, limits: limits, due: due}
	for e, err := range db.Scan(store.RaftLog()) {
		if err != nil {
			return nil, err
		}
		index, ok := store.RaftLogIndex(e.Key)
		if !ok {
			return nil, &CorruptError{Name: fmt.Sprintf("raft log key %x", e.Key), Cause: errEntryFormat}
		}
		if l.first == 0 {
			l.first = index
		}
		l.last = index
		l.countLocked(int64(len(e.Value)))
	}
	return l, nil
}

func (l *logStore) countLocked(bytes int64) {
	l.sinceBytes += bytes
	l.sinceCount++
	l.tail = append(l.tail, bytes)
	l.tailBytes += bytes
	for len(l.tail) > 1 && (l.tailBytes > l.limits.TrailingBytes || len(l.tail) > l.limits.TrailingEntries) {
		l.tailBytes -= l.tail[0]
		l.tail = l.tail[1:]
	}
	if l.sinceBytes >= l.limits.SnapshotBytes || l.sinceCount >= int64(l.limits.SnapshotEntries) {
		select {
		case l.due <- struct{}{}:
		default:
		}
	}
}

// snapshotStarts gives the number of entries to keep behind a snapshot that is
// about to be taken.
func (l *logStore) snapshotStarts() (trailing uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sinceBytes, l.sinceCount = 0, 0
	return uint64(len(l.tail))
}

func (l *logStore) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, nil
}

func (l *logStore) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, nil
}

func (l *logStore) GetLog(index uint64, log *raft.Log) error {
	b, ok, err := l.db.Get(store.RaftLogKey(index))
	if err != nil {
		return err
	}
	if !ok {
		return raft.ErrLogNotFound
	}
	if err := decodeEntry(index, b, log); err != nil {
		return &CorruptError{Name: fmt.Sprintf("raft log entry %d", index), Cause: err}
	}
	return nil
}

func (l *logStore) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *logStore) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	sizes := make([]int64, len(logs))
	err := l.commit(func(b *store.Batch) {
		var buf []byte
		for i, e := range logs {
			buf = appendEntry(buf[:0], e)
			b.Set(store.RaftLogKey(e.Index), buf)
			sizes[i] = int64(len(buf))
		}
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == 0 || logs[0].Index < l.first {
		l.first = logs[0].Index
	}
	l.last = max(l.last, logs[len(logs)-1].Index)
	for _, n := range sizes {
		l.countLocked(n)
	}
	return nil
}

// DeleteRange removes the entries from low to high, both inclusive.
func (l *logStore) DeleteRange(low, high uint64) error {
	if err := l.commit(func(b *store.Batch) { b.DeleteRange(store.RaftLogRange(low, high)) }); err != nil {
		return err
	}
	first, last, err := l.bounds()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.last = first, last
	return nil
}

func (l *logStore) bounds() (first, last uint64, err error) {
	for e, err := range l.db.Scan(store.RaftLog()) {
		if err != nil {
			return 0, 0, err
		}
		first, _ = store.RaftLogIndex(e.Key)
		break
	}
	e, ok, err := l.db.Last(store.RaftLog())
	if ok {
		last, _ = store.RaftLogIndex(e.Key)
	}
	return first, last, err
}

func (l *logStore) Set(key, value []byte) error {
	return l.commit(func(b *store.Batch) { b.Set(store.RaftStableKey(key), value) })
}

// Get returns an empty value where the key was not found.
func (l *logStore) Get(key []byte) ([]byte, error) {
	b, _, err := l.db.Get(store.RaftStableKey(key))
	return b, err
}

func (l *logStore) SetUint64(key []byte, value uint64) error {
	return l.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 returns 0 where the key was not found.
func (l *logStore) GetUint64(key []byte) (uint64, error) {
	b, err := l.Get(key)
	if err != nil || len(b) == 0 {
		return 0, err
	}
	if len(b) != 8 {
		return 0, &CorruptError{Name: fmt.Sprintf("raft stable value %q", key), Cause: errEntryShort}
	}
	return binary.BigEndian.Uint64(b), nil
}

// termKey is where hashicorp/raft keeps the current term.
var termKey = []byte("CurrentTerm")

// bootstrap writes the first term and the first membership at once, so that no
// power loss leaves one without the other.
func (l *logStore) bootstrap(membership []byte) error {
	entry := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: membership}
	err := l.commit(func(b *store.Batch) {
		b.Set(store.RaftStableKey(termKey), binary.BigEndian.AppendUint64(nil, 1))
		b.Set(store.RaftLogKey(entry.Index), appendEntry(nil, entry))
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.last = 1, 1
	return nil
}

func (l *logStore) commit(fill func(b *store.Batch)) error {
	b := l.db.NewBatch()
	defer func() { _ = b.Close() }()
	fill(b)
	return b.Commit(store.Sync)
}
