package recordbatch

import (
	"errors"
	"fmt"
	"math"
	"time"

	"strandline/metadata/cluster"
)

// Rules are what a topic asks of the records that clients send. The zero value
// asks nothing of keys, and of timestamps that they are not the broker's.
type Rules struct {
	// KeysRequired refuses null keys: the topic is compacted.
	KeysRequired bool
	// LogAppendTime: the broker will set the timestamps (message.timestamp.type).
	LogAppendTime bool
	// CheckTimestamps turns on the two bounds, which hold for CreateTime.
	CheckTimestamps bool
	Now             time.Time
	// TimestampBefore and TimestampAfter are how far before and after Now a
	// timestamp may be (message.timestamp.before.max.ms, .after.max.ms). The
	// highest Duration is no bound.
	TimestampBefore, TimestampAfter time.Duration
}

// Findings are what Examine learned on the way.
type Findings struct {
	// MaxTimestamp is the highest timestamp of the records where Walked, else
	// what the header claims.
	MaxTimestamp int64
	// Walked says that the records themselves were looked at.
	Walked bool
}

// VerifyProduced checks what a leader checks of every batch that a client sent,
// whatever the topic: Examine without a topic's rules.
func (b Batch) VerifyProduced() error {
	_, err := b.examine(nil, nil)
	return err
}

// Examine checks a batch that a client sent, in one pass over its records, and
// allocates nothing where all is well and the batch is not decompressed. It is
// Verify, and then, as ErrInvalid:
//
//   - the base offset is 0, there is at least one record, and the last offset
//     delta is one less than their count;
//   - no control batch, and a sequence number where there is a producer id;
//   - the records parse, are as many as the header says, fill the batch, and
//     have the offset deltas 0, 1, 2 ... (Apache Kafka stores uncompressed
//     batches with others as they are);
//
// and as *RejectedError: null keys against Rules.KeysRequired and timestamps
// out of bounds.
//
// Compressed records are decompressed by d only if KeysRequired, or if the
// header's first or highest timestamp is out of bounds, to name the records.
// So a compressed batch whose header hides an older record in the middle
// passes, where Apache Kafka would look at each record; for a client that
// writes true headers only TimestampBefore can tell the difference.
func (b Batch) Examine(rules Rules, d *Decoder) (Findings, error) {
	return b.examine(&rules, d)
}

func (b Batch) examine(rules *Rules, d *Decoder) (Findings, error) {
	found := Findings{MaxTimestamp: NoTimestamp}
	if err := b.Verify(); err != nil {
		return found, err
	}
	if err := b.verifyProducedHeader(); err != nil {
		return found, invalid(err)
	}
	found.MaxTimestamp = b.MaxTimestamp()
	bounds := newTimestampBounds(b, rules)
	keysRequired := rules != nil && rules.KeysRequired
	if b.Compression() != None {
		suspect := bounds.refuses(b.FirstTimestamp()) || bounds.refuses(b.MaxTimestamp())
		if !keysRequired && !suspect {
			return found, nil
		}
		if d == nil {
			d = &Decoder{}
		}
	}
	payload := b.Payload()
	if b.Compression() != None {
		var err error
		if payload, err = d.Payload(b); err != nil {
			return found, invalid(err)
		}
	}
	found.Walked = true
	found.MaxTimestamp = NoTimestamp
	var rejected *RejectedError
	w := newWalk(b, payload)
	for w.next() {
		if w.c.offsetDelta != w.index {
			return found, invalid(fmt.Errorf("%w: index %d has offset delta %d", ErrBadRecord, w.index, w.c.offsetDelta))
		}
		ts := w.timestamp()
		if ts > found.MaxTimestamp {
			found.MaxTimestamp = ts
		}
		switch {
		case keysRequired && w.c.keyBytes < 0:
			rejected = rejected.add(ErrInvalid, w.index, "Compacted topic cannot accept message without key")
		case bounds.refuses(ts):
			rejected = rejected.add(ErrInvalidTimestamp, w.index, bounds.message(ts))
		}
	}
	if w.err != nil {
		return found, invalid(w.err)
	}
	if rejected != nil {
		return found, rejected
	}
	return found, nil
}

func (b Batch) verifyProducedHeader() error {
	switch {
	case b.BaseOffset() != 0:
		return fmt.Errorf("base offset %d, a client's must be 0", b.BaseOffset())
	case b.RecordCount() <= 0 || int64(b.RecordCount()) != int64(b.LastOffsetDelta())+1:
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrBadCount, b.RecordCount(), b.LastOffsetDelta())
	case b.IsControl():
		return fmt.Errorf("clients are not allowed to write control records")
	case b.HasProducerID() && b.BaseSequence() < 0:
		return fmt.Errorf("sequence number %d with producer id %d", b.BaseSequence(), b.ProducerID())
	}
	return nil
}

func (e *RejectedError) add(reason error, index int32, message string) *RejectedError {
	if e == nil {
		e = &RejectedError{Reason: reason}
	}
	if errors.Is(reason, ErrInvalidTimestamp) {
		e.Reason = reason
	}
	if len(e.Records) < RecordErrorsMax {
		e.Records = append(e.Records, RecordError{Index: index, Message: message})
	}
	return e
}

// timestampBounds are the lowest and highest timestamp that a topic takes.
type timestampBounds struct {
	low, high  int64
	check      bool
	brokerOnly bool // the client set the flag that only brokers may set
}

func newTimestampBounds(b Batch, rules *Rules) timestampBounds {
	t := timestampBounds{low: math.MinInt64, high: math.MaxInt64}
	if rules == nil {
		return t
	}
	t.brokerOnly = b.LogAppendTime()
	if rules.LogAppendTime || !rules.CheckTimestamps {
		t.brokerOnly = t.brokerOnly && rules.LogAppendTime
		return t
	}
	t.check = true
	now := rules.Now.UnixMilli()
	if rules.TimestampBefore < math.MaxInt64 {
		t.low = now - rules.TimestampBefore.Milliseconds()
	}
	if rules.TimestampAfter < math.MaxInt64 {
		t.high = now + rules.TimestampAfter.Milliseconds()
	}
	return t
}

func (t timestampBounds) refuses(ts int64) bool {
	if t.check && ts != NoTimestamp {
		return ts < t.low || ts > t.high
	}
	return t.brokerOnly
}

func (t timestampBounds) message(ts int64) string {
	if !t.check || ts == NoTimestamp {
		return "Producer should not set timestamp type to LogAppendTime"
	}
	return fmt.Sprintf("Timestamp %d is out of range. The timestamp should be within [%d, %d]", ts, t.low, t.high)
}

// NullKeys is the indexes of the records without a key, at most max of them.
func NullKeys(b Batch, d *Decoder, max int) ([]int32, error) {
	p, err := d.Payload(b)
	if err != nil {
		return nil, err
	}
	var indexes []int32
	w := newWalk(b, p)
	for w.next() {
		if w.c.keyBytes < 0 && len(indexes) < max {
			indexes = append(indexes, w.index)
		}
	}
	return indexes, w.err
}

// TimestampRange is the lowest and highest timestamp of the records of a batch,
// both NoTimestamp where it has none.
func TimestampRange(b Batch, d *Decoder) (low, high int64, err error) {
	low, high = NoTimestamp, NoTimestamp
	p, err := d.Payload(b)
	if err != nil {
		return low, high, err
	}
	w := newWalk(b, p)
	for w.next() {
		ts := w.timestamp()
		if w.index == 0 {
			low, high = ts, ts
		}
		low, high = min(low, ts), max(high, ts)
	}
	return low, high, w.err
}

// OffsetForTimestamp is the first record of the batch whose timestamp is ts or
// later; ok is false where there is none. With LogAppendTime that is the first
// record, at the batch's timestamp.
func OffsetForTimestamp(b Batch, ts int64, d *Decoder) (o cluster.Offset, timestamp int64, ok bool, err error) {
	return OffsetForTimestampFrom(b, ts, b.BaseOffset(), d)
}

// OffsetForTimestampFrom is OffsetForTimestamp among the records at from or
// above, for a log that starts within the batch.
func OffsetForTimestampFrom(b Batch, ts int64, from cluster.Offset, d *Decoder) (o cluster.Offset, timestamp int64, ok bool, err error) {
	if b.MaxTimestamp() < ts || b.LastOffset() < from {
		return cluster.NoOffset, NoTimestamp, false, nil
	}
	// A batch that lost no record to compaction need not be decompressed.
	if b.LogAppendTime() && b.RecordCount() > 0 && b.RecordCount()-1 == b.LastOffsetDelta() {
		return max(from, b.BaseOffset()), b.MaxTimestamp(), true, nil
	}
	p, err := d.Payload(b)
	if err != nil {
		return cluster.NoOffset, NoTimestamp, false, err
	}
	w := newWalk(b, p)
	for w.next() {
		if t := w.timestamp(); t >= ts && w.offset() >= from {
			return w.offset(), t, true, nil
		}
	}
	return cluster.NoOffset, NoTimestamp, false, w.err
}

// OffsetOfMaxTimestamp is the first record of the batch that has its highest
// timestamp; ok is false where there is none.
func OffsetOfMaxTimestamp(b Batch, d *Decoder) (o cluster.Offset, ok bool, err error) {
	if b.MaxTimestamp() == NoTimestamp {
		return cluster.NoOffset, false, nil
	}
	o, _, ok, err = OffsetForTimestamp(b, b.MaxTimestamp(), d)
	return o, ok, err
}
