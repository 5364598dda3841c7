package keyindex

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/bits"
	"slices"

	"strandline/broker/recordbatch"
	"strandline/metadata/background"
	"strandline/metadata/cluster"
	"strandline/metadata/store"
)

const (
	// Of a feed's memory 1/tableShare is the table at its fullest, which takes half as
	// much again while it grows, and 1/deadShare the dead offsets that wait. Half is
	// for what the process holds until it collects its garbage.
	tableShare, deadShare = 4, 8
	// yieldEvery is after how many keys or records others may have the processor:
	// some tens of microseconds.
	yieldEvery = 32
	keysMin    = 64
)

// Feed takes decided records into the index, in the order of the log. After an
// error the Partition must be opened anew.
type Feed struct {
	p       *Partition
	table   *table
	dead    []cluster.Offset
	deadMax int
	decoder recordbatch.Decoder

	at       int // of the segment that is being fed
	position Position
	changed  map[cluster.Offset]struct{} // segments, by base
	stats    FeedStats
}

// FeedStats counts what a feed did.
type FeedStats struct {
	Records int64
	Merges  int64 // of the table into the database
	KeysMax int   // of one
}

// Feed begins to feed the index, with about that much memory at most, or what the
// keys of one batch take.
func (p *Partition) Feed(memoryBytes int64) *Feed {
	slots := max(memoryBytes/tableShare/slotBytes, 1)
	slots = 1 << (bits.Len64(uint64(slots)) - 1)
	return &Feed{
		p: p, table: newTable(int(max(slots*tableFull/4, keysMin))), deadMax: int(max(memoryBytes/deadShare/8, 2*keysMin)),
		position: p.meta.position, changed: map[cluster.Offset]struct{}{},
	}
}

// Segment says to which segment the batches to come belong. A feed that ended
// within it goes on.
func (f *Feed) Segment(base, next cluster.Offset, bytes int64) {
	s, ok := f.p.Segment(base)
	if !ok || s.Next != next || s.Bytes != bytes {
		f.p.put(Segment{Base: base, Next: next, Bytes: bytes})
	}
	f.at, _ = f.p.find(base)
	f.changed[base] = struct{}{}
}

// Add takes a batch that is decided in; aborted says that it belongs to a
// transaction that was aborted. One below the position counts for nothing.
func (f *Feed) Add(b recordbatch.Batch, aborted bool) error {
	if b.NextOffset() <= f.position.Offset {
		return nil
	}
	if f.table.used > 0 && !f.table.roomFor(int(b.RecordCount())) || len(f.dead) >= f.deadMax {
		if err := f.merge(); err != nil {
			return err
		}
	}
	s := &f.p.segments[f.at]
	records, err := f.p.tally(s, &f.decoder, b, aborted, func(h hash, l latest) {
		if old, replaced := f.table.put(newSlot(h, l)); replaced {
			f.kill(old.latest())
		}
	}, func(l latest) { f.dead = append(f.dead, l.offset) })
	if err != nil {
		return err
	}
	f.stats.Records += records
	f.position = Position{b.NextOffset(), b.PartitionLeaderEpoch()}
	return nil
}

// tally counts a batch's records in s: those with a key are given to keyed, those
// that are dead for another reason than their key to dead.
func (p *Partition) tally(s *Segment, d *recordbatch.Decoder, b recordbatch.Batch, aborted bool, keyed func(h hash, l latest), dead func(l latest)) (records int64, err error) {
	s.Transactions = s.Transactions || b.IsTransactional() || b.IsControl()
	if b.RecordCount() == 0 {
		s.Emptied++
		return 0, nil
	}
	if b.IsControl() {
		s.Markers += int64(b.RecordCount())
		s.stamp(b, true)
		return 0, nil
	}
	tombstones := false
	for r, err := range d.Keys(b) {
		if err != nil {
			return records, err
		}
		if records++; records%yieldEvery == 0 {
			background.Yield()
		}
		s.Records++
		s.RecordBytes += int64(r.Bytes)
		l := latest{r.Offset, int64(r.Bytes), r.Tombstone}
		if aborted || r.Key == nil {
			s.DeadRecords++
			s.DeadBytes += l.bytes
			dead(l)
			continue
		}
		if r.Tombstone {
			tombstones = true
			s.Tombstones++
		}
		keyed(p.meta.secret.sum(r.Key), l)
	}
	s.stamp(b, tombstones)
	return records, nil
}

// stamp notes the delete horizon of a batch that has something to go after it.
func (s *Segment) stamp(b recordbatch.Batch, removable bool) {
	switch {
	case !removable:
	case !b.HasDeleteHorizon():
		s.Unstamped++
	case s.Horizon == 0 || b.FirstTimestamp() < s.Horizon:
		s.Horizon = b.FirstTimestamp()
	}
}

// kill notes that a record is dead because a later one has its key.
func (f *Feed) kill(l latest) {
	i := f.p.holding(l.offset)
	if i < 0 {
		return // it left the log before
	}
	f.p.segments[i].kill(l)
	f.changed[f.p.segments[i].Base] = struct{}{}
	f.dead = append(f.dead, l.offset)
}

func (s *Segment) kill(l latest) {
	s.DeadRecords++
	s.DeadBytes += l.bytes
	if l.tombstone {
		s.Tombstones--
	}
}

// Commit merges what is in memory. The position is then the given one where that
// is further than what was fed: a segment may end in a hole.
func (f *Feed) Commit(at Position) (FeedStats, error) {
	if at.Offset > f.position.Offset {
		f.position = at
	}
	err := f.merge()
	return f.stats, err
}

// bulkKeys is the default of Config.BulkKeys.
const bulkKeys = 1 << 15

// target is where a merge goes to.
type target interface {
	// Table begins what is in the order of its keys.
	Table()
	Set(key, value []byte)
	// Commit makes all of it happen at once.
	Commit() error
	Close() error
}

// batch is a target in memory.
type batch struct{ *store.WriteBatch }

func (batch) Table() {}

func (b batch) Commit() error { return b.WriteBatch.Commit(store.NoSync) }

// merge moves the keys of the table in the database, at once with all that follows
// (K1).
func (f *Feed) merge() error {
	p := f.p
	keys := f.table.sorted()
	f.stats.Merges++
	f.stats.KeysMax = max(f.stats.KeysMax, len(keys))
	var to target
	if len(keys) < p.index.cfg.BulkKeys {
		to = batch{p.db.NewWriteBatch()}
	} else {
		to = p.db.NewBulk()
	}
	defer func() { _ = to.Close() }()
	fresh, err := f.move(to, keys)
	if err != nil {
		return err
	}
	p.bury(to, f.dead)
	to.Table()
	for _, base := range slices.Sorted(maps.Keys(f.changed)) {
		if s, ok := p.Segment(base); ok {
			to.Set(store.KeyIndexSegmentKey(p.meta.id, base), s.encode())
		}
	}
	m := p.meta
	m.position, m.keys = f.position, m.keys+fresh
	to.Table()
	to.Set(store.KeyIndexMetaKey(p.tp), m.encode())
	if err := to.Commit(); err != nil {
		return err
	}
	p.meta = m
	f.table.clear()
	f.dead = f.dead[:0]
	clear(f.changed)
	if f.at < len(p.segments) { // more may follow of it
		f.changed[p.segments[f.at].Base] = struct{}{}
	}
	return nil
}

// move enters the keys, which are in order, and kills their former records.
func (f *Feed) move(to target, keys []slot) (fresh int64, err error) {
	id := f.p.meta.id
	seeker, err := f.p.db.NewSeeker(store.KeyIndexEntries(id))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, seeker.Close()) }()
	to.Table()
	var key, value, text []byte
	for i, s := range keys {
		if i%yieldEvery == 0 {
			background.Yield()
		}
		text = s.hash.append(text[:0])
		key = store.AppendKeyIndexEntryKey(key[:0], id, text)
		old, known, err := seeker.Get(key)
		if err != nil {
			return 0, err
		}
		if known {
			l, err := decodeLatest(old)
			if err != nil {
				return 0, err
			}
			f.kill(l)
		} else {
			fresh++
		}
		value = s.latest().append(value[:0])
		to.Set(key, value)
	}
	return fresh, nil
}

// deadRunMax is how many offsets one list of dead ones has at most.
const deadRunMax = 4096

// bury puts offsets, in any order, on the lists of dead ones of their segments.
func (p *Partition) bury(to target, dead []cluster.Offset) {
	to.Table()
	sortOffsets(dead)
	var value []byte
	for len(dead) > 0 {
		i := p.holding(dead[0])
		s := p.segments[i]
		n := 1
		value = value[:0]
		for ; n < len(dead) && n < deadRunMax && dead[n] < s.Next; n++ {
			value = binary.AppendUvarint(value, uint64(dead[n]-dead[n-1]))
		}
		to.Set(store.KeyIndexDeadKey(p.meta.id, s.Base, dead[0]), value)
		dead = dead[n:]
	}
}
