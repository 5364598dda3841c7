package recordbatch

import (
	"encoding/binary"
	"errors"
	"fmt"

	"strandline/metadata/cluster"
)

// ErrBadOffset refuses a record whose offset a batch cannot hold: at or below
// the one before it, or too far above the base.
var ErrBadOffset = errors.New("offset does not fit the batch")

// Producer identifies an idempotent producer and the batch's place in its
// sequence.
type Producer struct {
	ID           cluster.ProducerID
	Epoch        cluster.ProducerEpoch
	BaseSequence int32
}

// Options are the header fields of a batch to be built.
type Options struct {
	Codec       Codec
	BaseOffset  cluster.Offset
	LeaderEpoch cluster.LeaderEpoch
	// Producer is nil for a producer that is not idempotent.
	Producer      *Producer
	Transactional bool
	Control       bool
	// LogAppendTime makes AppendTimestamp, in ms, every record's timestamp.
	LogAppendTime   bool
	AppendTimestamp int64
	// DeleteHorizon, where not 0, is written as the first timestamp, in ms,
	// with the flag that says so.
	DeleteHorizon int64
}

// Builder makes one batch. It is for one goroutine at a time.
type Builder struct {
	options        Options
	records        []byte
	count          int32
	lastDelta      int32 // of the last record, or what SetLastOffset says; -1 at first
	firstTimestamp int64
	maxTimestamp   int64
}

// NewBuilder starts a batch.
func NewBuilder(o Options) *Builder {
	b := &Builder{}
	b.Reset(o)
	return b
}

// Reset starts another batch and keeps the buffer; what Build returned before
// stays as it is.
func (b *Builder) Reset(o Options) {
	*b = Builder{options: o, records: b.records[:0], lastDelta: -1, firstTimestamp: NoTimestamp, maxTimestamp: NoTimestamp}
	if o.DeleteHorizon != 0 {
		b.firstTimestamp = o.DeleteHorizon
	}
}

// Add appends a record at the next offset. A nil key or value is null.
func (b *Builder) Add(timestamp int64, key, value []byte, headers ...Header) {
	b.add(0, b.lastDelta+1, timestamp, key, value, headers)
}

// AddRecord appends a record at its own offset, which may leave a gap, with its
// attributes and everything else as it is (B5). OffsetDelta does not matter. It
// returns ErrBadOffset, and then has changed nothing.
func (b *Builder) AddRecord(r Record) error {
	delta, ok := offsetDeltaOf(b.options.BaseOffset, r.Offset)
	if !ok || delta <= b.lastDelta {
		return fmt.Errorf("%w: %d in a batch from %d", ErrBadOffset, r.Offset, b.options.BaseOffset)
	}
	b.add(r.Attributes, delta, r.Timestamp, r.Key, r.Value, r.Headers)
	return nil
}

func (b *Builder) add(attributes int8, delta int32, timestamp int64, key, value []byte, headers []Header) {
	if b.count == 0 && b.options.DeleteHorizon == 0 {
		b.firstTimestamp = timestamp
	}
	if timestamp > b.maxTimestamp {
		b.maxTimestamp = timestamp
	}
	b.records = appendRecord(b.records, attributes, timestamp-b.firstTimestamp, delta, key, value, headers)
	b.count++
	b.lastDelta = delta
}

// SetLastOffset says that the batch reaches to o although the records there are
// gone, as compaction must to keep a batch's range. It returns ErrBadOffset
// below the last record.
func (b *Builder) SetLastOffset(o cluster.Offset) error {
	delta, ok := offsetDeltaOf(b.options.BaseOffset, o)
	if !ok || delta < b.lastDelta {
		return fmt.Errorf("%w: last offset %d in a batch from %d", ErrBadOffset, o, b.options.BaseOffset)
	}
	b.lastDelta = delta
	return nil
}

// Count is the number of records so far.
func (b *Builder) Count() int { return int(b.count) }

// UncompressedBytes is the size of the batch so far if it were not compressed.
func (b *Builder) UncompressedBytes() int { return HeaderBytes + len(b.records) }

// Build makes the batch, in memory of its own. More may be added and it may be
// built again.
func (b *Builder) Build() Batch {
	size := HeaderBytes
	if b.options.Codec == None {
		size += len(b.records)
	}
	return b.AppendTo(make([]byte, 0, size))
}

// AppendTo is Build behind dst.
func (b *Builder) AppendTo(dst []byte) []byte {
	o := b.options
	if b.count == 0 {
		o.Codec = None // nothing to compress, and not every codec makes something of it
	}
	at := len(dst)
	dst = append(dst, make([]byte, HeaderBytes)...)
	out := Batch(dst[at:])
	attributes := int16(o.Codec)
	maxTimestamp := b.maxTimestamp
	if o.LogAppendTime {
		attributes |= attrLogAppendTime
		maxTimestamp = o.AppendTimestamp
	}
	if o.Transactional {
		attributes |= attrTransactional
	}
	if o.Control {
		attributes |= attrControl
	}
	if o.DeleteHorizon != 0 {
		attributes |= attrDeleteHorizon
	}
	producer := Producer{ID: cluster.NoProducerID, Epoch: cluster.NoProducerEpoch, BaseSequence: NoSequence}
	if o.Producer != nil {
		producer = *o.Producer
	}
	be := binary.BigEndian
	out.SetBaseOffset(o.BaseOffset)
	out.SetPartitionLeaderEpoch(o.LeaderEpoch)
	out[posMagic] = magicV2
	be.PutUint16(out[posAttributes:], uint16(attributes))
	be.PutUint32(out[posLastOffsetDelta:], uint32(max(b.lastDelta, 0)))
	be.PutUint64(out[posFirstTimestamp:], uint64(b.firstTimestamp))
	be.PutUint64(out[posMaxTimestamp:], uint64(maxTimestamp))
	be.PutUint64(out[posProducerID:], uint64(producer.ID))
	be.PutUint16(out[posProducerEpoch:], uint16(producer.Epoch))
	be.PutUint32(out[posBaseSequence:], uint32(producer.BaseSequence))
	be.PutUint32(out[posRecordCount:], uint32(b.count))
	dst = o.Codec.Compress(dst, b.records)
	out = Batch(dst[at:])
	be.PutUint32(out[posLength:], uint32(len(out)-PrefixBytes))
	out.setCRC()
	return dst
}
