package coordinator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/store"
)

// viewFormat is the version of what a view's values look like. A view of another
// one is built again.
const viewFormat = 2

// position is how much of the log is in a view.
type position struct {
	next  cluster.Offset      // exclusive
	epoch cluster.LeaderEpoch // of the record before next; NoLeaderEpoch where nothing was applied
	// begun is LogState.CompactedTombstonesBelow when the view was begun: what
	// compaction had removed then, the view never had.
	begun cluster.Offset
}

// view is the view of one partition for whoever moves it forward (C3).
type view struct {
	views  *Views
	db     *store.DB
	tp     cluster.TopicPartition
	schema Schema

	position
	known bool // there is a position; else the view must be begun
	// rebuilt: it was begun again since it was opened. Where that seems needed
	// once more, somebody else looks first.
	rebuilt bool
	// pending counts the undecided records under a view key.
	pending map[string]int

	decoder     recordbatch.Decoder
	buf         []byte // of the log
	viewKey     []byte // scratch, as are the next two
	key         []byte
	value       []byte
	positionKey []byte
	applied     *atomic.Int64

	// Of the step under way: the set of the last change, what was noted of it, and
	// the sets that a deletion has left in doubt.
	noted  []byte
	note   string
	doubts map[string]bool
}

// openView reads what a view's owner keeps in memory.
func openView(views *Views, tp cluster.TopicPartition, schema Schema, applied *atomic.Int64) (*view, error) {
	db, err := views.live()
	if err != nil {
		return nil, err
	}
	v := &view{
		views: views, db: db, tp: tp, schema: schema, pending: map[string]int{}, doubts: map[string]bool{}, applied: applied, positionKey: store.ViewPositionKey(tp),
	}
	value, ok, err := db.Get(v.positionKey)
	if err != nil {
		return nil, v.trouble(err)
	}
	if ok {
		v.position, v.known = parsePosition(value)
	}
	for p, err := range v.pendingRecords(nil) {
		if err != nil {
			return nil, v.trouble(err)
		}
		v.pending[string(p.ViewKey)]++
	}
	v.publish()
	return v, nil
}

// trouble names an error of the database, and has it replaced where it is
// damaged.
func (v *view) trouble(err error) error {
	if err == nil {
		return nil
	}
	v.views.damaged(v.db, err)
	return fmt.Errorf("view of %s: %w", v.tp, err)
}

// publish tells other goroutines how far the view is.
func (v *view) publish() {
	if v.known {
		v.applied.Store(int64(v.next))
	}
}

// disagrees says why the view cannot be moved forward along the log (C1), "" where
// it can.
func (v *view) disagrees(st partition.LogState, p Partition) string {
	switch {
	case !v.known:
		return "there is none"
	case v.next > st.LogEndOffset:
		return fmt.Sprintf("the log ends at %d, before it", st.LogEndOffset)
	case v.next < st.LogStartOffset:
		return fmt.Sprintf("the log starts at %d, after it", st.LogStartOffset)
	case v.missed(st):
		return fmt.Sprintf("compaction may have removed deletions below %d", st.CompactedTombstonesBelow)
	}
	// A view that was just begun, and nothing else, has an epoch that no record has.
	if epoch, _ := p.EpochAt(v.next - 1); epoch != v.epoch {
		return fmt.Sprintf("the log has leader epoch %d there", epoch)
	}
	return ""
}

// missed says that compaction may have removed deletions that the view has not
// seen.
func (v *view) missed(st partition.LogState) bool {
	return st.CompactedTombstonesBelow > max(v.next, v.begun)
}

// restart empties the view: it begins again where the log begins.
func (v *view) restart(st partition.LogState) error {
	b := v.db.NewBatch()
	for _, r := range store.View(v.tp) {
		b.DeleteRange(r)
	}
	begin := position{next: st.LogStartOffset, epoch: cluster.NoLeaderEpoch, begun: st.CompactedTombstonesBelow}
	b.Set(v.positionKey, begin.append(nil))
	if err := v.views.commit(b); err != nil {
		return v.trouble(err)
	}
	v.position, v.known = begin, true
	clear(v.pending)
	v.publish()
	return nil
}

// advance applies the next decided batches, about maxBytes of them. It returns
// false where there were none.
func (v *view) advance(p Partition, maxBytes int) (bool, error) {
	var err error
	if cap(v.buf) > 2*maxBytes {
		v.buf = nil
	}
	if v.buf, err = p.ReadDecided(v.buf[:0], v.next, maxBytes); err != nil {
		return false, err
	}
	if len(v.buf) == 0 {
		return false, nil
	}
	if err := v.apply(v.buf); err != nil {
		return false, fmt.Errorf("applying %s from %d: %w", v.tp, v.next, err)
	}
	return true, nil
}

// apply moves the view past whole batches (C1, C2). After an error the view is
// where its position says, and is to be opened again.
func (v *view) apply(batches []byte) error {
	if v.reads(batches) {
		b := v.db.NewBatch()
		defer func() { _ = b.Close() }()
		return v.applyTo(b, b, batches)
	}
	b := v.db.NewWriteBatch()
	defer func() { _ = b.Close() }()
	return v.applyTo(b, nil, batches)
}

// changes is what a step wants to change: a store.Batch or a store.WriteBatch.
type changes interface {
	Set(key, value []byte)
	Delete(key []byte)
	Commit(store.Durability) error
	Close() error
}

// reads says whether batches can only be applied by somebody who sees what they
// have changed so far: where transactions are in play.
func (v *view) reads(batches []byte) bool {
	if len(v.pending) > 0 {
		return true
	}
	for rest := batches; len(rest) > 0; {
		batch, more, err := recordbatch.First(rest)
		if err != nil || batch.IsControl() || batch.IsTransactional() {
			return true
		}
		rest = more
	}
	return false
}

// applyTo is apply with what it changes, which seen, where it is not nil, shows.
func (v *view) applyTo(b changes, seen *store.Batch, batches []byte) error {
	at, changed := v.position, false
	for rest := batches; len(rest) > 0; {
		batch, more, err := recordbatch.First(rest)
		if err == nil {
			err = batch.Verify()
		}
		if err != nil {
			return fmt.Errorf("batch at offset %d: %w", at.next, err)
		}
		rest = more
		if batch.NextOffset() <= at.next {
			continue
		}
		if batch.IsControl() {
			if err := v.decide(seen, batch); err != nil {
				return err
			}
		} else if err := v.put(b, seen, batch, at.next); err != nil {
			return err
		}
		at.next, at.epoch, changed = batch.NextOffset(), batch.PartitionLeaderEpoch(), true
	}
	if !changed {
		return nil
	}
	return v.settle(b, at)
}

// settle commits a batch together with the position that it leads to.
func (v *view) settle(b changes, at position) error {
	v.value = at.append(v.value[:0])
	b.Set(v.positionKey, v.value)
	if err := v.views.commit(b); err != nil {
		return v.trouble(err)
	}
	v.position = at
	v.publish()
	return v.tidy()
}

// put enters the records of a batch from an offset on: those of a transaction as
// pending ones.
func (v *view) put(b changes, seen *store.Batch, batch recordbatch.Batch, from cluster.Offset) error {
	open := batch.IsTransactional()
	for r, err := range v.decoder.Records(batch) {
		if err != nil {
			return err
		}
		if r.Offset < from {
			continue
		}
		if v.viewKey, err = v.schema.AppendViewKey(v.viewKey[:0], r.Key); err != nil {
			return fmt.Errorf("record at %d: %w", r.Offset, err)
		}
		viewKey := v.viewKey
		if open {
			v.value = appendRecord(v.value[:0], viewKey, r)
			b.Set(store.ViewPendingKey(v.tp, batch.ProducerID(), r.Offset), v.value)
			v.pending[string(viewKey)]++
			continue
		}
		v.set(b, viewKey, r)
		if len(v.pending) > 0 && v.pending[string(viewKey)] > 0 {
			if err := v.supersede(seen, viewKey, r.Offset); err != nil {
				return err
			}
		}
	}
	return nil
}

// set makes a record the latest under its view key.
func (v *view) set(b changes, viewKey []byte, r recordbatch.Record) {
	if n := v.schema.SetBytes(viewKey); n > 0 {
		v.noteSet(b, viewKey[:n], r.Value != nil)
	}
	v.key = store.AppendViewEntryKey(v.key[:0], v.tp, viewKey)
	if r.Value == nil {
		b.Delete(v.key)
		return
	}
	v.value = appendRecord(v.value[:0], nil, r)
	b.Set(v.key, v.value)
}

// supersede drops the pending records under a view key that are older than one
// that counts: whatever becomes of their transactions, they are not the latest.
func (v *view) supersede(b *store.Batch, viewKey []byte, than cluster.Offset) error {
	for p, err := range v.pendingIn(b, store.ViewPending(v.tp)) {
		if err != nil {
			return v.trouble(err)
		}
		if p.Offset < than && string(p.ViewKey) == string(viewKey) {
			b.Delete(store.ViewPendingKey(v.tp, p.ProducerID, p.Offset))
			v.forget(viewKey)
		}
	}
	return nil
}

func (v *view) forget(viewKey []byte) {
	if v.pending[string(viewKey)]--; v.pending[string(viewKey)] <= 0 {
		delete(v.pending, string(viewKey))
	}
}

// decide ends a producer's transaction as its marker says. What is still pending
// is later than what counts under its key, or supersede would have dropped it.
func (v *view) decide(b *store.Batch, batch recordbatch.Batch) error {
	marker, ok, err := batch.Marker()
	if err != nil || !ok {
		return err
	}
	for p, err := range v.pendingIn(b, store.ViewPendingOf(v.tp, batch.ProducerID())) {
		if err != nil {
			return v.trouble(err)
		}
		b.Delete(store.ViewPendingKey(v.tp, p.ProducerID, p.Offset))
		v.forget(p.ViewKey)
		if marker.Type != recordbatch.ControlCommit {
			continue
		}
		v.set(b, p.ViewKey, recordbatch.Record{Offset: p.Offset, Timestamp: p.Timestamp, Key: p.Key, Value: p.Value})
		if v.pending[string(p.ViewKey)] > 0 {
			if err := v.supersede(b, p.ViewKey, p.Offset); err != nil {
				return err
			}
		}
	}
	return nil
}

// pendingRecords are the records of open transactions whose view key has the
// prefix.
func (v *view) pendingRecords(prefix []byte) iter.Seq2[Pending, error] {
	return pendingOf(v.db, v.tp, prefix)
}

// pendingIn collects pending records, for somebody who changes them.
func (v *view) pendingIn(b *store.Batch, r store.Range) iter.Seq2[Pending, error] {
	return func(yield func(Pending, error) bool) {
		var found []Pending
		for e, err := range b.Scan(r) {
			if err != nil {
				yield(Pending{}, err)
				return
			}
			p, err := parsePending(e)
			if err != nil {
				yield(Pending{}, err)
				return
			}
			found = append(found, p)
		}
		for _, p := range found {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func (p position) append(dst []byte) []byte {
	dst = append(dst, viewFormat)
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.next))
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.epoch))
	return binary.BigEndian.AppendUint64(dst, uint64(p.begun))
}

// parsePosition returns false for a position of another format.
func parsePosition(value []byte) (position, bool) {
	if len(value) != 21 || value[0] != viewFormat {
		return position{}, false
	}
	return position{
		next:  cluster.Offset(binary.BigEndian.Uint64(value[1:])),
		epoch: cluster.LeaderEpoch(int32(binary.BigEndian.Uint32(value[9:]))),
		begun: cluster.Offset(binary.BigEndian.Uint64(value[13:])),
	}, true
}

// errBadView is an entry of a view that nobody can have written.
var errBadView = errors.New("malformed entry")

// appendRecord encodes a record: offset, timestamp, then the view key where it
// is pending, the key, and the value, each but the last behind its length. A
// tombstone ends with the key and one bit in its length.
func appendRecord(dst, viewKey []byte, r recordbatch.Record) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Offset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Timestamp))
	if viewKey != nil {
		dst = binary.AppendUvarint(dst, uint64(len(viewKey)))
		dst = append(dst, viewKey...)
	}
	head := uint64(len(r.Key)) << 1
	if r.Value == nil {
		head |= 1
	}
	dst = binary.AppendUvarint(dst, head)
	dst = append(dst, r.Key...)
	return append(dst, r.Value...)
}

// parseRecord decodes what appendRecord made. The entry's slices are views of
// value.
func parseRecord(value []byte, pending bool) (Entry, error) {
	var e Entry
	if len(value) < 17 {
		return e, errBadView
	}
	e.Offset = cluster.Offset(binary.BigEndian.Uint64(value))
	e.Timestamp = int64(binary.BigEndian.Uint64(value[8:]))
	rest := value[16:]
	if pending {
		n, used := binary.Uvarint(rest)
		if used <= 0 || n > uint64(len(rest)-used) {
			return e, errBadView
		}
		e.ViewKey, rest = rest[used:used+int(n):used+int(n)], rest[used+int(n):]
	}
	head, used := binary.Uvarint(rest)
	if used <= 0 || head>>1 > uint64(len(rest)-used) {
		return e, errBadView
	}
	end := used + int(head>>1)
	e.Key = rest[used:end:end]
	if head&1 == 0 {
		e.Value = rest[end:]
	}
	return e, nil
}

func parsePending(e store.Entry) (Pending, error) {
	producer, offset, ok := store.ViewPendingRecord(e.Key)
	if !ok {
		return Pending{}, corrupt(e.Key, errBadView)
	}
	// The slices outlive the step of the scan.
	entry, err := parseRecord(append([]byte(nil), e.Value...), true)
	if err != nil || entry.Offset != offset {
		return Pending{}, corrupt(e.Key, errBadView)
	}
	return Pending{ProducerID: producer, Entry: entry}, nil
}
