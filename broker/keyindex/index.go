package keyindex

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"strandline/metadata/cluster"
	"strandline/metadata/disk"
	"strandline/metadata/store"
)

// ErrCorrupt: an entry of the database that is none.
var ErrCorrupt = errors.New("key index is corrupt")

// Config is what an Index needs.
type Config struct {
	FS     disk.FS
	Dir    string // of the database, made if missing
	Logger *slog.Logger
	Fatal  func(err error) // see store.Config
	// CacheBytes and MemTableBytes are those of the database; 0: its defaults.
	CacheBytes, MemTableBytes int64
	// BulkKeys is how many keys go to tables of their own when they are merged; 0: a
	// megabyte of them.
	BulkKeys int
}

// Index is the key indexes of all partitions of a broker.
type Index struct {
	cfg Config
	mu  struct {
		sync.Mutex // held over the drawing of an id, and over a new beginning
		db         *store.DB
		closed     bool
	}
}

// Open opens the database; one that does not open is begun anew.
func Open(cfg Config) (*Index, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.BulkKeys == 0 {
		cfg.BulkKeys = bulkKeys
	}
	x := &Index{cfg: cfg}
	db, err := x.open()
	if err != nil {
		cfg.Logger.Warn("key index cannot be opened: it is made anew from the logs", "dir", cfg.Dir, "err", err)
		if db, err = x.begin(); err != nil {
			return nil, err
		}
	}
	x.mu.db = db
	return x, nil
}

func (x *Index) open() (*store.DB, error) {
	return store.Open(store.Config{
		FS: x.cfg.FS, Dir: x.cfg.Dir, Logger: x.cfg.Logger, Fatal: x.cfg.Fatal, CacheBytes: x.cfg.CacheBytes, MemTableBytes: x.cfg.MemTableBytes,
		Background: true,
	})
}

// begin opens an empty database in place of whatever is there.
func (x *Index) begin() (*store.DB, error) {
	if err := x.cfg.FS.RemoveAll(x.cfg.Dir); err != nil {
		return nil, fmt.Errorf("key index: %w", err)
	}
	db, err := x.open()
	if err != nil {
		return nil, fmt.Errorf("key index: %w", err)
	}
	return db, nil
}

func (x *Index) live() *store.DB {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.db
}

// Failed is told of errors of what Open returned: where one says that the
// database cannot be trusted it is begun anew, and every Partition of the old one
// answers store.ErrClosed. It says whether it was.
func (x *Index) Failed(err error) bool {
	var corrupt *store.CorruptError
	if !errors.As(err, &corrupt) && !errors.Is(err, ErrCorrupt) {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.closed {
		return false
	}
	x.cfg.Logger.Error("key index is corrupt and is made anew from the logs", "dir", x.cfg.Dir, "err", err)
	if err := x.mu.db.Close(); err != nil {
		x.cfg.Logger.Warn("key index did not close", "err", err)
	}
	db, err := x.begin()
	if err != nil {
		x.cfg.Logger.Error("key index cannot be made anew: nothing is compacted until the next start", "err", err)
		return false
	}
	x.mu.db = db
	return true
}

// Close ends everything that the index has given out. Idempotent.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.closed = true
	return x.mu.db.Close()
}

// DiskBytes is the size of the database.
func (x *Index) DiskBytes() int64 { return x.live().Stats().DiskBytes }

// Partitions are those that have an index.
func (x *Index) Partitions() ([]cluster.TopicPartition, error) {
	var out []cluster.TopicPartition
	for e, err := range x.live().Scan(store.KeyIndexMetas()) {
		if err != nil {
			return nil, err
		}
		if tp, ok := store.KeyIndexPartition(e.Key); ok {
			out = append(out, tp)
		}
	}
	return out, nil
}

// Drop forgets a partition.
func (x *Index) Drop(tp cluster.TopicPartition) error {
	p, err := x.load(tp)
	if err != nil || p.meta.id == 0 {
		return err
	}
	b := p.db.NewWriteBatch()
	defer func() { _ = b.Close() }()
	dropID(b, p.meta.id)
	b.Delete(store.KeyIndexMetaKey(tp))
	return b.Commit(store.NoSync)
}

func dropID(b *store.WriteBatch, id uint32) {
	for _, r := range store.KeyIndex(id) {
		b.DeleteRange(r)
	}
}

// Position is how far an index has come: everything below Offset is in it.
type Position struct {
	Offset cluster.Offset
	// LeaderEpoch is that of the record at Offset-1 as far as there is one.
	LeaderEpoch cluster.LeaderEpoch
}

// Partition is the index of one partition.
type Partition struct {
	index    *Index
	db       *store.DB // as it was when the partition was opened
	tp       cluster.TopicPartition
	meta     meta
	segments []Segment // by Base
}

// meta is the value of a meta key.
type meta struct {
	id       uint32 // 0: none yet
	secret   hashKey
	position Position
	keys     int64
}

const metaVersion = 0

func (m meta) encode() []byte {
	b := []byte{metaVersion}
	b = binary.BigEndian.AppendUint32(b, m.id)
	b = binary.BigEndian.AppendUint64(b, m.secret.k0)
	b = binary.BigEndian.AppendUint64(b, m.secret.k1)
	b = binary.BigEndian.AppendUint64(b, uint64(m.position.Offset))
	b = binary.BigEndian.AppendUint32(b, uint32(m.position.LeaderEpoch))
	return binary.BigEndian.AppendUint64(b, uint64(m.keys))
}

func decodeMeta(b []byte) (meta, error) {
	if len(b) != 41 || b[0] != metaVersion {
		return meta{}, fmt.Errorf("%w: %d bytes of a partition", ErrCorrupt, len(b))
	}
	return meta{
		id:     binary.BigEndian.Uint32(b[1:]),
		secret: hashKey{binary.BigEndian.Uint64(b[5:]), binary.BigEndian.Uint64(b[13:])},
		position: Position{
			Offset:      cluster.Offset(binary.BigEndian.Uint64(b[21:])),
			LeaderEpoch: cluster.LeaderEpoch(binary.BigEndian.Uint32(b[29:])),
		},
		keys: int64(binary.BigEndian.Uint64(b[33:])),
	}, nil
}

// Open returns the index of a partition; one that is new, or that the database
// holds in a form that is none, begins at NoOffset: Reset says where.
func (x *Index) Open(tp cluster.TopicPartition) (*Partition, error) {
	p, err := x.load(tp)
	if err != nil || p.meta.id == 0 {
		return p, err
	}
	for e, err := range p.db.Scan(store.KeyIndexSegments(p.meta.id, 0, maxOffset)) {
		if err != nil {
			return nil, err
		}
		s, err := decodeSegment(e.Value)
		if err != nil {
			return nil, err
		}
		p.segments = append(p.segments, s)
	}
	return p, nil
}

func (x *Index) load(tp cluster.TopicPartition) (*Partition, error) {
	p := &Partition{index: x, db: x.live(), tp: tp, meta: meta{position: Position{cluster.NoOffset, cluster.NoLeaderEpoch}}}
	value, ok, err := p.db.Get(store.KeyIndexMetaKey(tp))
	if err == nil && ok {
		p.meta, err = decodeMeta(value)
	}
	return p, err
}

// Position is how far the index has come; NoOffset where it is new.
func (p *Partition) Position() Position { return p.meta.position }

// Keys is the number of keys known.
func (p *Partition) Keys() int64 { return p.meta.keys }

// Reset drops what is known and begins anew at an offset.
func (p *Partition) Reset(at cluster.Offset) error {
	id, err := p.index.nextID(p.db)
	if err != nil {
		return err
	}
	var secret [16]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return err
	}
	b := p.db.NewWriteBatch()
	defer func() { _ = b.Close() }()
	if p.meta.id != 0 {
		dropID(b, p.meta.id)
	}
	m := meta{
		id: id, secret: hashKey{binary.BigEndian.Uint64(secret[:]), binary.BigEndian.Uint64(secret[8:])},
		position: Position{at, cluster.NoLeaderEpoch},
	}
	b.Set(store.KeyIndexMetaKey(p.tp), m.encode())
	if err := b.Commit(store.NoSync); err != nil {
		return err
	}
	p.meta, p.segments = m, nil
	return nil
}

// nextID draws an id that no index has or had.
func (x *Index) nextID(db *store.DB) (uint32, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	next := uint32(1)
	value, ok, err := db.Get(store.KeyIndexNextKey())
	if err != nil {
		return 0, err
	}
	if ok {
		if len(value) != 4 {
			return 0, fmt.Errorf("%w: next id", ErrCorrupt)
		}
		next = binary.BigEndian.Uint32(value)
	}
	b := db.NewWriteBatch()
	defer func() { _ = b.Close() }()
	b.Set(store.KeyIndexNextKey(), binary.BigEndian.AppendUint32(nil, next+1))
	return next, b.Commit(store.NoSync)
}

// Segments are those that the index knows, by base offset.
func (p *Partition) Segments() []Segment { return slices.Clone(p.segments) }

// Segment finds what is known of the segment with that base offset.
func (p *Partition) Segment(base cluster.Offset) (Segment, bool) {
	i, ok := p.find(base)
	if !ok {
		return Segment{}, false
	}
	return p.segments[i], true
}

func (p *Partition) find(base cluster.Offset) (int, bool) {
	return slices.BinarySearchFunc(p.segments, base, func(s Segment, o cluster.Offset) int { return cmp.Compare(s.Base, o) })
}

// holding is the place of the segment that holds an offset, -1 where none does.
func (p *Partition) holding(o cluster.Offset) int {
	i, ok := p.find(o)
	if !ok {
		i--
	}
	if i < 0 || o >= p.segments[i].Next {
		return -1
	}
	return i
}

// put enters a segment, in memory.
func (p *Partition) put(s Segment) {
	i, ok := p.find(s.Base)
	if ok {
		p.segments[i] = s
		return
	}
	p.segments = slices.Insert(p.segments, i, s)
}

// Retain forgets the segments that keep does not want: they left the log.
func (p *Partition) Retain(keep func(s Segment) bool) error {
	b := p.db.NewWriteBatch()
	defer func() { _ = b.Close() }()
	var kept []Segment
	for _, s := range p.segments {
		if keep(s) {
			kept = append(kept, s)
			continue
		}
		b.Delete(store.KeyIndexSegmentKey(p.meta.id, s.Base))
		b.DeleteRange(store.KeyIndexDead(p.meta.id, s.Base, s.Base+1))
	}
	if len(kept) == len(p.segments) {
		return nil
	}
	if err := b.Commit(store.NoSync); err != nil {
		return err
	}
	p.segments = kept
	return nil
}

// sweepBatchBytes bounds a batch of Sweep.
const sweepBatchBytes = 1 << 20

// Sweep forgets the keys whose latest record lies below an offset: it left the
// log some other way than by being overwritten.
func (p *Partition) Sweep(below cluster.Offset) (removed int64, err error) {
	b := p.db.NewWriteBatch()
	defer func() { _ = b.Close() }()
	pending := int64(0)
	commit := func() error {
		m := p.meta
		m.keys -= pending
		b.Set(store.KeyIndexMetaKey(p.tp), m.encode())
		if err := errors.Join(b.Commit(store.NoSync), b.Close()); err != nil {
			return err
		}
		p.meta = m
		removed, pending = removed+pending, 0
		return nil
	}
	for e, err := range p.db.Scan(store.KeyIndexEntries(p.meta.id)) {
		if err != nil {
			return removed, err
		}
		latest, err := decodeLatest(e.Value)
		if err != nil {
			return removed, err
		}
		if latest.offset >= below {
			continue
		}
		b.Delete(e.Key)
		if pending++; b.Bytes() >= sweepBatchBytes {
			if err := commit(); err != nil {
				return removed, err
			}
			b = p.db.NewWriteBatch()
		}
	}
	return removed, commit()
}
