package producerstate

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// ErrCorruptSnapshot is matched by every error of Load.
var ErrCorruptSnapshot = errors.New("corrupt producer snapshot")

// SnapshotError says where a snapshot is wrong; the reader adds the file.
type SnapshotError struct {
	Position int
	Cause    string
}

func (e *SnapshotError) Error() string {
	return fmt.Sprintf("%v: at byte %d: %s", ErrCorruptSnapshot, e.Position, e.Cause)
}

func (e *SnapshotError) Unwrap() error { return ErrCorruptSnapshot }

// Sizes and versions of SNAPSHOT.md.
const (
	snapshotVersion     = 1
	snapshotHeaderBytes = 10 // version, checksum, number of entries
	snapshotEntryBytes  = 46
	posSnapshotCRC      = 2
	posSnapshotEntries  = 6

	historyMagic       = 0x534c5053 // "SLPS"
	historyVersion     = 1
	historyHeaderBytes = 9 // magic, version, number of producers
	historyBatchBytes  = 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot is the content of a .snapshot file for the state at MapEnd: Kafka's
// version 1, and behind it, where Kafka does not look, the batches before the
// last of each producer, without which S1 would not outlive a restart.
func (m *Manager) Snapshot() []byte {
	producers := make([]*producer, 0, len(m.producers))
	for _, p := range m.producers {
		producers = append(producers, p)
	}
	slices.SortFunc(producers, func(a, b *producer) int { return cmp.Compare(a.id, b.id) })

	be := binary.BigEndian
	out := make([]byte, snapshotHeaderBytes, snapshotHeaderBytes+snapshotEntryBytes*len(producers))
	be.PutUint16(out, snapshotVersion)
	be.PutUint32(out[posSnapshotEntries:], uint32(len(producers)))
	for _, p := range producers {
		out = appendEntry(out, p)
	}
	out = appendHistory(out, producers)
	be.PutUint32(out[posSnapshotCRC:], crc32.Checksum(out[posSnapshotEntries:], castagnoli))
	return out
}

func appendEntry(out []byte, p *producer) []byte {
	last := batchMeta{lastSequence: recordbatch.NoSequence, lastOffset: cluster.NoOffset}
	if p.batchesCount > 0 {
		last = p.batches[p.batchesCount-1]
	}
	be := binary.BigEndian
	out = be.AppendUint64(out, uint64(p.id))
	out = be.AppendUint16(out, uint16(p.epoch))
	out = be.AppendUint32(out, uint32(last.lastSequence))
	out = be.AppendUint64(out, uint64(last.lastOffset))
	out = be.AppendUint32(out, uint32(last.offsetDelta))
	out = be.AppendUint64(out, uint64(p.lastTimestamp))
	out = be.AppendUint32(out, uint32(p.coordinatorEpoch))
	return be.AppendUint64(out, uint64(p.txnFirst))
}

// appendHistory writes the batches before each producer's last; nothing where
// there are none.
func appendHistory(out []byte, producers []*producer) []byte {
	be := binary.BigEndian
	start := len(out)
	out = be.AppendUint32(out, historyMagic)
	out = append(out, historyVersion)
	out = be.AppendUint32(out, 0)
	count := uint32(0)
	for _, p := range producers {
		if p.batchesCount < 2 {
			continue
		}
		count++
		earlier := p.batches[:p.batchesCount-1]
		out = be.AppendUint64(out, uint64(p.id))
		out = append(out, byte(len(earlier)))
		for _, b := range earlier {
			out = be.AppendUint32(out, uint32(b.lastSequence))
			out = be.AppendUint64(out, uint64(b.lastOffset))
			out = be.AppendUint32(out, uint32(b.offsetDelta))
			out = be.AppendUint64(out, uint64(b.timestamp))
		}
	}
	if count == 0 {
		return out[:start]
	}
	be.PutUint32(out[start+5:], count)
	return out
}

// Load replaces the state by that of a snapshot taken at end, which Kafka may
// have written. To Expire, its producers were last seen now. After an error the
// manager is as it was.
func (m *Manager) Load(data []byte, end cluster.Offset, now time.Time) error {
	loaded := New(m.config)
	r := &snapshotReader{data: data}
	if err := loaded.readEntries(r, now); err != nil {
		return err
	}
	if err := loaded.readHistory(r); err != nil {
		return err
	}
	loaded.mapEnd, loaded.evicted = end, m.evicted
	*m = *loaded
	return nil
}

func (m *Manager) readEntries(r *snapshotReader, now time.Time) error {
	if !r.has(snapshotHeaderBytes) {
		return r.fail("cut short in the header")
	}
	if v := r.uint16(); v != snapshotVersion {
		r.pos = 0
		return r.fail(fmt.Sprintf("unknown version %d", v))
	}
	if stored, computed := r.uint32(), crc32.Checksum(r.data[posSnapshotEntries:], castagnoli); stored != computed {
		r.pos = posSnapshotCRC
		return r.fail(fmt.Sprintf("checksum mismatch: stored %08x, computed %08x", stored, computed))
	}
	count := int64(r.uint32())
	if count*snapshotEntryBytes > int64(r.left()) {
		return r.fail(fmt.Sprintf("cut short in %d entries", count))
	}
	for range count {
		p := newProducer(cluster.ProducerID(r.uint64()))
		if _, ok := m.producers[p.id]; ok || p.id < 0 {
			return r.fail(fmt.Sprintf("producer %d negative or twice", p.id))
		}
		p.epoch = cluster.ProducerEpoch(r.uint16())
		last := batchMeta{lastSequence: int32(r.uint32())}
		last.lastOffset = cluster.Offset(r.uint64())
		last.offsetDelta = int32(r.uint32())
		last.timestamp = int64(r.uint64())
		p.lastTimestamp = last.timestamp
		p.coordinatorEpoch = int32(r.uint32())
		p.txnFirst = max(cluster.Offset(r.uint64()), cluster.NoOffset)
		p.lastSeen = now
		if last.lastOffset >= 0 {
			p.addBatch(last)
		}
		m.producers[p.id] = p
		m.idle.pushNewest(p)
		if p.txnFirst != cluster.NoOffset {
			m.openTxn(openTxn{first: p.txnFirst, producer: p.id})
		}
	}
	return nil
}

// readHistory reads the earlier batches, where there are any. A version that is
// not known is passed over: it costs nothing but the duplicates it would find.
func (m *Manager) readHistory(r *snapshotReader) error {
	if !r.has(historyHeaderBytes) {
		return nil
	}
	if r.uint32() != historyMagic || r.uint8() != historyVersion {
		return nil
	}
	count := r.uint32()
	for range count {
		if !r.has(9) {
			return r.fail("cut short in the earlier batches")
		}
		id := cluster.ProducerID(r.uint64())
		n := int(r.uint8())
		p := m.producers[id]
		if p == nil || p.batchesCount != 1 || n < 1 || n >= BatchesKept {
			return r.fail(fmt.Sprintf("%d earlier batches of producer %d", n, id))
		}
		if !r.has(n * historyBatchBytes) {
			return r.fail("cut short in the earlier batches")
		}
		last := p.batches[0]
		p.batchesCount = 0
		for range n {
			b := batchMeta{lastSequence: int32(r.uint32())}
			b.lastOffset = cluster.Offset(r.uint64())
			b.offsetDelta = int32(r.uint32())
			b.timestamp = int64(r.uint64())
			p.addBatch(b)
		}
		p.addBatch(last)
	}
	return nil
}

// snapshotReader reads big-endian integers; has must be asked first.
type snapshotReader struct {
	data []byte
	pos  int
}

func (r *snapshotReader) left() int      { return len(r.data) - r.pos }
func (r *snapshotReader) has(n int) bool { return r.left() >= n }

func (r *snapshotReader) fail(cause string) error {
	return &SnapshotError{Position: r.pos, Cause: cause}
}

func (r *snapshotReader) uint8() uint8 {
	r.pos++
	return r.data[r.pos-1]
}

func (r *snapshotReader) uint16() uint16 {
	r.pos += 2
	return binary.BigEndian.Uint16(r.data[r.pos-2:])
}

func (r *snapshotReader) uint32() uint32 {
	r.pos += 4
	return binary.BigEndian.Uint32(r.data[r.pos-4:])
}

func (r *snapshotReader) uint64() uint64 {
	r.pos += 8
	return binary.BigEndian.Uint64(r.data[r.pos-8:])
}
