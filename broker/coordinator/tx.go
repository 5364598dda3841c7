package coordinator

import "strandline/metadata/cluster"

// Tx collects what one event appends. It is valid during the event only.
type Tx struct {
	reader  Reader
	records []appended
	bytes   int
	thens   []func(error)
}

// appended is a record that an event appended.
type appended struct {
	Record
	producer *Producer // nil: no transaction
}

// Producer is the transactional producer on whose behalf records are appended.
type Producer struct {
	ID    cluster.ProducerID
	Epoch cluster.ProducerEpoch
}

// Reader reads the view with everything that earlier events and this one
// appended, committed or not.
func (tx *Tx) Reader() Reader { return tx.reader }

// Append appends records, in order, when the event ends.
func (tx *Tx) Append(records ...Record) { tx.add(nil, records) }

// AppendTransactional appends records that count once the producer's
// transaction is committed by its marker; until then Reader.Pending shows them,
// as soon as they are decided, and nothing else does.
func (tx *Tx) AppendTransactional(p Producer, records ...Record) { tx.add(&p, records) }

func (tx *Tx) add(p *Producer, records []Record) {
	for _, r := range records {
		tx.records = append(tx.records, appended{Record: r, producer: p})
		tx.bytes += len(r.Key) + len(r.Value)
	}
}

// Then calls fn on the shard's goroutine once everything that this event and
// those before it appended is committed and in the view, or with the reason why
// that cannot be said: ErrNotCoordinator, ErrClosed, ErrTooLarge or the error of
// the append. On an error of the append nothing of the event was appended, the
// reader shows the state before it, and the user must take back what its machine
// made of it. Calls run in the order in which they were asked for.
func (tx *Tx) Then(fn func(err error)) { tx.thens = append(tx.thens, fn) }
