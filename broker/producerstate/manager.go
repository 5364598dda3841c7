package producerstate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// BatchesKept is how many of a producer's batches are remembered to tell
// duplicates: as many as an idempotent producer may have in flight.
const BatchesKept = 5

// Default limits.
const (
	DefaultExpiration   = 24 * time.Hour
	DefaultProducersMax = 100_000
)

// NoCoordinatorEpoch is the coordinator epoch of a producer that has ended no
// transaction.
const NoCoordinatorEpoch int32 = -1

// The reasons to refuse a batch.
var (
	// ErrOutOfOrderSequence: the sequence does not continue the producer's.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrInvalidProducerEpoch: a later instance of the producer has written.
	ErrInvalidProducerEpoch = errors.New("producer epoch is fenced")
	// ErrInvalidTxnState: not transactional while the producer has a
	// transaction open.
	ErrInvalidTxnState = errors.New("invalid transaction state")
	// ErrCoordinatorFenced: a marker of a former transaction coordinator.
	ErrCoordinatorFenced = errors.New("transaction coordinator epoch is fenced")
)

// Config are a manager's limits; SetConfig changes them live.
type Config struct {
	// Expiration is how long a producer may write nothing before it is
	// forgotten (producer.id.expiration.ms); 0 means DefaultExpiration.
	Expiration time.Duration
	// ProducersMax bounds the producers that are remembered: past it the one
	// that has been idle longest is forgotten early. Those with open
	// transactions stay and may exceed it. 0 means DefaultProducersMax.
	ProducersMax int
}

func (c Config) withDefaults() Config {
	if c.Expiration <= 0 {
		c.Expiration = DefaultExpiration
	}
	if c.ProducersMax <= 0 {
		c.ProducersMax = DefaultProducersMax
	}
	return c
}

// Verdict is what Check says of a batch that is not refused.
type Verdict struct {
	// Duplicate: the batch is in the log already, there. It must not be
	// appended again, and is answered with these.
	Duplicate              bool
	BaseOffset, LastOffset cluster.Offset
	// Timestamp is the original's highest timestamp in ms.
	Timestamp int64
}

// EndedTxn is a transaction that a marker has ended.
type EndedTxn struct {
	ProducerID cluster.ProducerID
	// First is the offset of its first batch, Last that of the marker.
	First, Last cluster.Offset
	Aborted     bool
	// LastStableOffset is what the log's was as the marker was written: the
	// first offset of another open transaction, else one past the marker.
	LastStableOffset cluster.Offset
}

// AbortedTxn is an entry of the transaction index.
type AbortedTxn struct {
	ProducerID       cluster.ProducerID
	First, Last      cluster.Offset
	LastStableOffset cluster.Offset
}

// AbortedTxn is the index entry of an ended transaction, which belongs there
// only if Aborted.
func (e EndedTxn) AbortedTxn() AbortedTxn {
	return AbortedTxn{ProducerID: e.ProducerID, First: e.First, Last: e.Last, LastStableOffset: e.LastStableOffset}
}

// Entry describes one producer, as DescribeProducers answers it.
type Entry struct {
	ProducerID       cluster.ProducerID
	ProducerEpoch    cluster.ProducerEpoch
	CoordinatorEpoch int32
	// LastSequence and LastOffset are those of its last data batch: NoSequence
	// and NoOffset where none is remembered.
	LastSequence int32
	LastOffset   cluster.Offset
	// LastTimestamp is the highest of its last batch in ms.
	LastTimestamp int64
	// CurrentTxnFirst is NoOffset where no transaction is open.
	CurrentTxnFirst cluster.Offset
}

// Manager holds the producers of one partition.
type Manager struct {
	config    Config
	producers map[cluster.ProducerID]*producer
	idle      idleList // longest idle first
	open      []openTxn
	ended     []EndedTxn // markers at or above the high watermark, by First
	mapEnd    cluster.Offset
	evicted   int64
}

type openTxn struct {
	first    cluster.Offset
	producer cluster.ProducerID
}

// New makes a manager that knows no producer, of a log that starts at 0.
func New(c Config) *Manager {
	m := &Manager{config: c.withDefaults()}
	m.Reset(0)
	return m
}

// SetConfig changes the limits; they hold from the next Update or Expire.
func (m *Manager) SetConfig(c Config) { m.config = c.withDefaults() }

// Reset forgets everything; the next Update is expected at start.
func (m *Manager) Reset(start cluster.Offset) {
	m.producers = make(map[cluster.ProducerID]*producer)
	m.idle = idleList{}
	m.open, m.ended = nil, nil
	m.mapEnd = start
}

// MapEnd is one past the last offset that Update saw: what a snapshot is named
// after.
func (m *Manager) MapEnd() cluster.Offset { return m.mapEnd }

// Len is the number of producers.
func (m *Manager) Len() int { return len(m.producers) }

// Evicted counts the producers forgotten because of ProducersMax.
func (m *Manager) Evicted() int64 { return m.evicted }

// HasOpenTxn reports whether a producer has a transaction open here.
func (m *Manager) HasOpenTxn(id cluster.ProducerID) bool {
	p := m.producers[id]
	return p != nil && p.txnFirst != cluster.NoOffset
}

// Check judges a batch that a client sent, or a marker that a transaction
// coordinator did (S1, S2, S4). A batch without a producer id always passes.
// The batch's offsets are not looked at.
func (m *Manager) Check(b recordbatch.Batch) (Verdict, error) {
	if !b.HasProducerID() {
		return Verdict{}, nil
	}
	p := m.producers[b.ProducerID()]
	if b.IsControl() {
		return Verdict{}, m.checkMarker(p, b)
	}
	if p == nil {
		return Verdict{}, nil
	}
	if dup, ok := p.find(b); ok {
		return Verdict{Duplicate: true, BaseOffset: dup.firstOffset(), LastOffset: dup.lastOffset, Timestamp: dup.timestamp}, nil
	}
	if err := p.checkEpoch(b); err != nil {
		return Verdict{}, err
	}
	if err := p.checkSequence(b); err != nil {
		return Verdict{}, err
	}
	return Verdict{}, p.checkTxn(b)
}

// CheckFromCoordinator judges a data batch that a coordinator wrote on behalf
// of a producer, such as offsets committed in a transaction: those carry no
// sequence numbers, and are only fenced.
func (m *Manager) CheckFromCoordinator(b recordbatch.Batch) error {
	if !b.HasProducerID() {
		return nil
	}
	p := m.producers[b.ProducerID()]
	if b.IsControl() {
		return m.checkMarker(p, b)
	}
	if p == nil {
		return nil
	}
	if err := p.checkEpoch(b); err != nil {
		return err
	}
	return p.checkTxn(b)
}

func (m *Manager) checkMarker(p *producer, b recordbatch.Batch) error {
	marker, ok, err := b.Marker()
	if err != nil || !ok || p == nil {
		return err
	}
	if err := p.checkEpoch(b); err != nil {
		return err
	}
	if marker.CoordinatorEpoch < p.coordinatorEpoch {
		return fmt.Errorf("%w: producer %d: %d, current %d", ErrCoordinatorFenced, p.id, marker.CoordinatorEpoch, p.coordinatorEpoch)
	}
	return nil
}

// Update takes in a batch that has been appended at the offsets it carries, at
// the time now. It returns the transaction that the batch ended, if any. It
// judges nothing: what a leader has accepted is a fact. An error means that a
// marker cannot be read; the batch then counts for nothing but MapEnd.
func (m *Manager) Update(b recordbatch.Batch, now time.Time) (EndedTxn, bool, error) {
	m.mapEnd = b.NextOffset()
	if !b.HasProducerID() {
		return EndedTxn{}, false, nil
	}
	if b.IsControl() {
		return m.updateMarker(b, now)
	}
	p := m.producer(b.ProducerID())
	p.setEpoch(b.ProducerEpoch())
	p.addBatch(batchMeta{
		lastSequence: b.LastSequence(),
		lastOffset:   b.LastOffset(),
		offsetDelta:  b.LastOffsetDelta(),
		timestamp:    b.MaxTimestamp(),
	})
	p.lastTimestamp = b.MaxTimestamp()
	if b.IsTransactional() && p.txnFirst == cluster.NoOffset {
		p.txnFirst = b.BaseOffset()
		m.openTxn(openTxn{first: p.txnFirst, producer: p.id})
	}
	m.touch(p, now)
	return EndedTxn{}, false, nil
}

func (m *Manager) updateMarker(b recordbatch.Batch, now time.Time) (EndedTxn, bool, error) {
	marker, ok, err := b.Marker()
	if err != nil || !ok {
		return EndedTxn{}, false, err
	}
	p := m.producer(b.ProducerID())
	var ended EndedTxn
	had := p.txnFirst != cluster.NoOffset
	if had {
		ended = EndedTxn{ProducerID: p.id, First: p.txnFirst, Last: b.BaseOffset(), Aborted: marker.Type == recordbatch.ControlAbort}
		ended.LastStableOffset = m.stableWithout(p.id, ended.Last+1)
		m.closeTxn(ended)
	}
	p.setEpoch(b.ProducerEpoch())
	p.coordinatorEpoch = marker.CoordinatorEpoch
	p.lastTimestamp = b.MaxTimestamp()
	p.txnFirst = cluster.NoOffset
	m.touch(p, now)
	return ended, had, nil
}

// producer finds a producer or makes it.
func (m *Manager) producer(id cluster.ProducerID) *producer {
	p := m.producers[id]
	if p == nil {
		p = newProducer(id)
		m.producers[id] = p
		m.idle.pushNewest(p)
	}
	return p
}

// touch marks a producer as the latest to write, and makes room.
func (m *Manager) touch(p *producer, now time.Time) {
	if now.After(p.lastSeen) {
		p.lastSeen = now
	}
	m.idle.moveToNewest(p)
	for old := m.idle.oldest; len(m.producers) > m.config.ProducersMax && old != nil; {
		next := old.newer
		if old != p && old.txnFirst == cluster.NoOffset {
			m.forget(old)
			m.evicted++
		}
		old = next
	}
}

func (m *Manager) forget(p *producer) {
	delete(m.producers, p.id)
	m.idle.remove(p)
}

// Expire forgets the producers that have written nothing for Config.Expiration
// and have no open transaction (S3), and says how many. The time counts from
// when the partition last saw them, not from the timestamps that clients give
// to records.
func (m *Manager) Expire(now time.Time) int {
	count := 0
	for p := m.idle.oldest; p != nil; {
		next := p.newer
		if now.Sub(p.lastSeen) < m.config.Expiration {
			break
		}
		if p.txnFirst == cluster.NoOffset {
			m.forget(p)
			count++
		}
		p = next
	}
	return count
}

// Entries describes the producers, by id.
func (m *Manager) Entries() []Entry {
	entries := make([]Entry, 0, len(m.producers))
	for _, p := range m.producers {
		entries = append(entries, p.entry())
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	return entries
}
