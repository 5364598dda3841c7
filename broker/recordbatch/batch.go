package recordbatch

import (
	"encoding/binary"
	"hash/crc32"

	"strandline/metadata/cluster"
)

// Sizes and positions of the fixed part of a batch.
const (
	// HeaderBytes is the size of everything before the records.
	HeaderBytes = 61
	// PrefixBytes is the size of the base offset and the length, which the
	// length does not count: what must be read to know a batch's size.
	PrefixBytes = 12

	magicV2 = 2

	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posFirstTimestamp  = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posRecordCount     = 57
)

// Bits of the attributes.
const (
	attrCodecMask     = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// NoTimestamp is the timestamp of a record that has none.
const NoTimestamp int64 = -1

// NoSequence is the base sequence of a batch of a producer that is not
// idempotent.
const NoSequence int32 = -1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is exactly one v2 batch, header and records: a view, never a copy. Its
// methods may be used on what First returned or Build made; on other bytes
// they panic. Reading is safe from several goroutines, setting is not.
type Batch []byte

func (b Batch) int16At(pos int) int16 { return int16(binary.BigEndian.Uint16(b[pos:])) }
func (b Batch) int32At(pos int) int32 { return int32(binary.BigEndian.Uint32(b[pos:])) }
func (b Batch) int64At(pos int) int64 { return int64(binary.BigEndian.Uint64(b[pos:])) }

// BaseOffset is the offset of the first record that was written into the
// batch, whether or not compaction has removed it since.
func (b Batch) BaseOffset() cluster.Offset { return cluster.Offset(b.int64At(0)) }

// LastOffset is the offset of the last record that was written into the batch.
func (b Batch) LastOffset() cluster.Offset {
	return b.BaseOffset() + cluster.Offset(b.LastOffsetDelta())
}

// NextOffset is one past LastOffset.
func (b Batch) NextOffset() cluster.Offset { return b.LastOffset() + 1 }

// Bytes is the size of the whole batch.
func (b Batch) Bytes() int { return PrefixBytes + int(b.int32At(posLength)) }

// PartitionLeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) PartitionLeaderEpoch() cluster.LeaderEpoch {
	return cluster.LeaderEpoch(b.int32At(posLeaderEpoch))
}

// Magic is the format version.
func (b Batch) Magic() int8 { return int8(b[posMagic]) }

// CRC is the stored CRC-32C, which covers everything after it.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[posCRC:]) }

// ComputeCRC is the CRC-32C that CRC should be.
func (b Batch) ComputeCRC() uint32 { return crc32.Checksum(b[posAttributes:], castagnoli) }

// Attributes are the flag bits, undecoded.
func (b Batch) Attributes() int16 { return b.int16At(posAttributes) }

// LastOffsetDelta is LastOffset minus BaseOffset.
func (b Batch) LastOffsetDelta() int32 { return b.int32At(posLastOffsetDelta) }

// FirstTimestamp is what the records' timestamp deltas add to, in ms; with
// HasDeleteHorizon it is that horizon.
func (b Batch) FirstTimestamp() int64 { return b.int64At(posFirstTimestamp) }

// MaxTimestamp is the highest timestamp of the records in ms; with
// LogAppendTime it is the timestamp of all of them.
func (b Batch) MaxTimestamp() int64 { return b.int64At(posMaxTimestamp) }

// ProducerID is NoProducerID where the producer is not idempotent.
func (b Batch) ProducerID() cluster.ProducerID { return cluster.ProducerID(b.int64At(posProducerID)) }

// HasProducerID reports whether the producer is idempotent.
func (b Batch) HasProducerID() bool { return b.ProducerID() > cluster.NoProducerID }

// ProducerEpoch fences earlier instances of the producer.
func (b Batch) ProducerEpoch() cluster.ProducerEpoch {
	return cluster.ProducerEpoch(b.int16At(posProducerEpoch))
}

// BaseSequence is the sequence number of the first record, or NoSequence.
func (b Batch) BaseSequence() int32 { return b.int32At(posBaseSequence) }

// LastSequence is the sequence number of the last record, which wraps from the
// highest int32 to 0; NoSequence where the batch has none.
func (b Batch) LastSequence() int32 {
	if b.BaseSequence() == NoSequence {
		return NoSequence
	}
	return IncrementSequence(b.BaseSequence(), b.LastOffsetDelta())
}

// RecordCount is the number of records that the batch still has.
func (b Batch) RecordCount() int32 { return b.int32At(posRecordCount) }

// Compression is the codec of the records.
func (b Batch) Compression() Codec { return Codec(b.Attributes() & attrCodecMask) }

// IsTransactional reports whether the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&attrTransactional != 0 }

// IsControl reports whether the records are markers that clients do not see.
func (b Batch) IsControl() bool { return b.Attributes()&attrControl != 0 }

// LogAppendTime reports whether MaxTimestamp, set by a broker, is the
// timestamp of every record.
func (b Batch) LogAppendTime() bool { return b.Attributes()&attrLogAppendTime != 0 }

// HasDeleteHorizon reports whether FirstTimestamp is the time after which the
// tombstones or markers in it may go.
func (b Batch) HasDeleteHorizon() bool { return b.Attributes()&attrDeleteHorizon != 0 }

// Payload is what follows the header: the records, compressed or not.
func (b Batch) Payload() []byte { return b[HeaderBytes:] }

// SetBaseOffset moves the batch to another offset (B3).
func (b Batch) SetBaseOffset(o cluster.Offset) {
	binary.BigEndian.PutUint64(b, uint64(o))
}

// SetPartitionLeaderEpoch names the leader that appends the batch (B3).
func (b Batch) SetPartitionLeaderEpoch(e cluster.LeaderEpoch) {
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(e))
}

// SetLogAppendTime makes ms the timestamp of every record and computes the
// checksum again.
func (b Batch) SetLogAppendTime(ms int64) {
	b.setTimestamp(b.Attributes()|attrLogAppendTime, ms)
}

// SetCreateTime makes the records' own timestamps count, the highest being
// max. It does nothing where that is so already, and else computes the
// checksum again.
func (b Batch) SetCreateTime(max int64) {
	b.setTimestamp(b.Attributes()&^attrLogAppendTime, max)
}

func (b Batch) setTimestamp(attributes int16, max int64) {
	if b.Attributes() == attributes && b.MaxTimestamp() == max {
		return
	}
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(attributes))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(max))
	b.setCRC()
}

func (b Batch) setCRC() {
	binary.BigEndian.PutUint32(b[posCRC:], b.ComputeCRC())
}

// IncrementSequence adds to a sequence number, which wraps from the highest
// int32 to 0.
func IncrementSequence(sequence, by int32) int32 {
	return int32((int64(sequence) + int64(by)) & 0x7fffffff)
}

// DecrementSequence undoes IncrementSequence.
func DecrementSequence(sequence, by int32) int32 {
	return int32((int64(sequence) - int64(by)) & 0x7fffffff)
}
