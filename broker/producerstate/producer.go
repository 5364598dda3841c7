package producerstate

import (
	"fmt"
	"math"
	"time"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// batchMeta is what is remembered of a batch: enough to find it again and to
// answer for it.
type batchMeta struct {
	lastOffset   cluster.Offset
	timestamp    int64
	lastSequence int32
	offsetDelta  int32
}

func (b batchMeta) firstOffset() cluster.Offset { return b.lastOffset - cluster.Offset(b.offsetDelta) }

func (b batchMeta) firstSequence() int32 {
	return recordbatch.DecrementSequence(b.lastSequence, b.offsetDelta)
}

// producer is the state of one producer id.
type producer struct {
	id               cluster.ProducerID
	epoch            cluster.ProducerEpoch
	coordinatorEpoch int32
	lastTimestamp    int64
	txnFirst         cluster.Offset
	lastSeen         time.Time

	batches      [BatchesKept]batchMeta // of this epoch, oldest first
	batchesCount int

	older, newer *producer // idleList
}

func newProducer(id cluster.ProducerID) *producer {
	return &producer{
		id: id, epoch: cluster.NoProducerEpoch, coordinatorEpoch: NoCoordinatorEpoch,
		lastTimestamp: recordbatch.NoTimestamp, txnFirst: cluster.NoOffset,
	}
}

// setEpoch begins another epoch, whose batches none of the remembered can be.
func (p *producer) setEpoch(e cluster.ProducerEpoch) {
	if p.epoch != e {
		p.epoch = e
		p.batchesCount = 0
	}
}

func (p *producer) addBatch(b batchMeta) {
	if p.batchesCount == BatchesKept {
		copy(p.batches[:], p.batches[1:])
		p.batchesCount--
	}
	p.batches[p.batchesCount] = b
	p.batchesCount++
}

// kept are the remembered batches, oldest first.
func (p *producer) kept() []batchMeta { return p.batches[:p.batchesCount] }

// find looks for a batch among those remembered (S1).
func (p *producer) find(b recordbatch.Batch) (batchMeta, bool) {
	if b.ProducerEpoch() != p.epoch {
		return batchMeta{}, false
	}
	first, last := b.BaseSequence(), b.LastSequence()
	for _, k := range p.kept() {
		if k.lastSequence == last && k.firstSequence() == first {
			return k, true
		}
	}
	return batchMeta{}, false
}

func (p *producer) lastSequence() int32 {
	if p.batchesCount == 0 {
		return recordbatch.NoSequence
	}
	return p.batches[p.batchesCount-1].lastSequence
}

func (p *producer) checkEpoch(b recordbatch.Batch) error {
	if b.ProducerEpoch() < p.epoch {
		return fmt.Errorf("%w: producer %d: %d, current %d", ErrInvalidProducerEpoch, p.id, b.ProducerEpoch(), p.epoch)
	}
	return nil
}

// checkSequence is the rule of S2.
func (p *producer) checkSequence(b recordbatch.Batch) error {
	if p.epoch == cluster.NoProducerEpoch {
		return nil
	}
	first := b.BaseSequence()
	if b.ProducerEpoch() != p.epoch {
		if first != 0 {
			return fmt.Errorf("%w: producer %d begins epoch %d at sequence %d", ErrOutOfOrderSequence, p.id, b.ProducerEpoch(), first)
		}
		return nil
	}
	last := p.lastSequence()
	if int64(first) == int64(last)+1 || first == 0 && last == math.MaxInt32 {
		return nil
	}
	return fmt.Errorf("%w: producer %d: %d after %d", ErrOutOfOrderSequence, p.id, first, last)
}

func (p *producer) checkTxn(b recordbatch.Batch) error {
	if p.txnFirst != cluster.NoOffset && !b.IsTransactional() {
		return fmt.Errorf("%w: producer %d has a transaction open from offset %d", ErrInvalidTxnState, p.id, p.txnFirst)
	}
	return nil
}

func (p *producer) entry() Entry {
	e := Entry{
		ProducerID: p.id, ProducerEpoch: p.epoch, CoordinatorEpoch: p.coordinatorEpoch,
		LastSequence: p.lastSequence(), LastOffset: cluster.NoOffset,
		LastTimestamp: p.lastTimestamp, CurrentTxnFirst: p.txnFirst,
	}
	if p.batchesCount > 0 {
		e.LastOffset = p.batches[p.batchesCount-1].lastOffset
	}
	return e
}

// idleList orders producers by when they last wrote.
type idleList struct {
	oldest, newest *producer
}

func (l *idleList) pushNewest(p *producer) {
	p.older, p.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = p
	} else {
		l.oldest = p
	}
	l.newest = p
}

func (l *idleList) remove(p *producer) {
	if p.older != nil {
		p.older.newer = p.newer
	} else {
		l.oldest = p.newer
	}
	if p.newer != nil {
		p.newer.older = p.older
	} else {
		l.newest = p.older
	}
	p.older, p.newer = nil, nil
}

func (l *idleList) moveToNewest(p *producer) {
	if l.newest != p {
		l.remove(p)
		l.pushNewest(p)
	}
}
