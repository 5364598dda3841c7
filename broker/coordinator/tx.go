package coordinator

import (
	"errors"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
)

// Tx collects what one event appends. It is valid during the event only.
type Tx struct {
	s         *shard
	timestamp int64
	producer  Producer
	records   []Record
	bytes     int // at most, in a batch
	thens     []func(error)
	err       error
}

// Producer is a transactional producer on whose behalf records are appended.
type Producer struct {
	ID    cluster.ProducerID
	Epoch cluster.ProducerEpoch
}

var noProducer = Producer{ID: cluster.NoProducerID, Epoch: cluster.NoProducerEpoch}

// recordBytesMax is what a record takes in a batch beside its key and value, at
// most.
const recordBytesMax = 32

// errMixed refuses an event whose records would be in several batches.
var errMixed = errors.New("an event appends for one producer, or for none")

// Reader reads the view with everything that earlier events and this one
// appended, committed or not.
func (tx *Tx) Reader() Reader { return tx.s.reader }

// Append appends records, in order, when the event ends.
func (tx *Tx) Append(records ...Record) {
	tx.add(noProducer, records)
	for _, r := range records {
		if err := tx.s.overlay.push(tx.s.view.schema, r, tx.timestamp); err != nil {
			tx.err = errors.Join(tx.err, err)
			return
		}
	}
}

// AppendTransactional appends records that count once the producer's
// transaction is committed by its marker; until then Reader.Pending shows them,
// as soon as they are decided, and nothing else does. One event appends for one
// producer only, and then nothing without.
func (tx *Tx) AppendTransactional(p Producer, records ...Record) { tx.add(p, records) }

func (tx *Tx) add(p Producer, records []Record) {
	if len(records) == 0 {
		return
	}
	if len(tx.records) > 0 && tx.producer != p {
		tx.err = errors.Join(tx.err, errMixed)
	}
	tx.producer = p
	tx.records = append(tx.records, records...)
	for _, r := range records {
		tx.bytes += len(r.Key) + len(r.Value) + recordBytesMax
	}
}

// Then calls fn on the shard's goroutine once everything that this event and
// those before it appended is committed and in the view, or at once with the
// reason why that cannot be: ErrNotCoordinator, ErrClosed, ErrTooLarge or the
// error of the append. With ErrTooLarge or an error of the append nothing of the
// event was appended, the reader shows the state before it, and the user must
// take back what its machine made of it. Calls with nil run in the order in which
// they were asked for, and so do those with an error.
func (tx *Tx) Then(fn func(err error)) { tx.thens = append(tx.thens, fn) }

// reset begins another event.
func (tx *Tx) reset(timestamp int64) {
	clear(tx.records)
	clear(tx.thens)
	*tx = Tx{s: tx.s, timestamp: timestamp, producer: noProducer, records: tx.records[:0], thens: tx.thens[:0]}
}

// group is what the events run since the last append want in the next batch.
type group struct {
	codec    recordbatch.Codec
	producer Producer
	builder  recordbatch.Builder
	bytes    int // at most, of the batch
	thens    []func(error)
}

func (g *group) add(tx *Tx) {
	if g.builder.Count() == 0 && len(tx.records) > 0 {
		g.producer, g.bytes = tx.producer, recordbatch.HeaderBytes
		options := recordbatch.Options{Codec: g.codec}
		if tx.producer != noProducer {
			options.Transactional = true
			options.Producer = &recordbatch.Producer{ID: tx.producer.ID, Epoch: tx.producer.Epoch, BaseSequence: recordbatch.NoSequence}
		}
		g.builder.Reset(options)
	}
	for _, r := range tx.records {
		g.builder.Add(tx.timestamp, r.Key, r.Value)
	}
	g.bytes += tx.bytes
	g.thens = append(g.thens, tx.thens...)
}

// reset begins the next batch; what waits for the last one is the caller's now.
func (g *group) reset() {
	if g.builder.UncompressedBytes() > keptBytesMax {
		g.builder = recordbatch.Builder{}
	}
	g.builder.Reset(recordbatch.Options{})
	g.producer, g.bytes, g.thens = noProducer, recordbatch.HeaderBytes, nil
}
