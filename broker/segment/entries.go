package segment

import (
	"encoding/binary"
	"fmt"

	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
)

// Sizes of index entries in bytes.
const (
	OffsetEntryBytes = 8
	TimeEntryBytes   = 12
	TxnEntryBytes    = 34
)

const txnVersion = 0

// OffsetEntry says that the batch at Position has the last offset Offset (S1).
type OffsetEntry struct {
	Offset   cluster.Offset
	Position int64
}

// TimeEntry says that no batch up to the one with the last offset Offset has a
// greater timestamp than Timestamp, which that batch has (S2).
type TimeEntry struct {
	Timestamp int64
	Offset    cluster.Offset
}

// AppendOffsetEntry encodes an entry of the offset index of a segment with that base.
func AppendOffsetEntry(dst []byte, base cluster.Offset, e OffsetEntry) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Offset-base))
	return binary.BigEndian.AppendUint32(dst, uint32(e.Position))
}

func decodeOffsetEntry(p []byte, base cluster.Offset) OffsetEntry {
	return OffsetEntry{
		Offset:   base + cluster.Offset(int32(binary.BigEndian.Uint32(p))),
		Position: int64(int32(binary.BigEndian.Uint32(p[4:]))),
	}
}

// AppendTimeEntry encodes an entry of the time index of a segment with that base.
func AppendTimeEntry(dst []byte, base cluster.Offset, e TimeEntry) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.Timestamp))
	return binary.BigEndian.AppendUint32(dst, uint32(e.Offset-base))
}

func decodeTimeEntry(p []byte, base cluster.Offset) TimeEntry {
	return TimeEntry{
		Timestamp: int64(binary.BigEndian.Uint64(p)),
		Offset:    base + cluster.Offset(int32(binary.BigEndian.Uint32(p[8:]))),
	}
}

// AppendTxnEntry encodes an entry of the transaction index.
func AppendTxnEntry(dst []byte, t producerstate.AbortedTxn) []byte {
	dst = binary.BigEndian.AppendUint16(dst, txnVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.ProducerID))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.First))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.Last))
	return binary.BigEndian.AppendUint64(dst, uint64(t.LastStableOffset))
}

func decodeTxnEntry(p []byte) producerstate.AbortedTxn {
	return producerstate.AbortedTxn{
		ProducerID:       cluster.ProducerID(binary.BigEndian.Uint64(p[2:])),
		First:            cluster.Offset(binary.BigEndian.Uint64(p[10:])),
		Last:             cluster.Offset(binary.BigEndian.Uint64(p[18:])),
		LastStableOffset: cluster.Offset(binary.BigEndian.Uint64(p[26:])),
	}
}

// ParseOffsetIndex decodes and checks a whole offset index of a segment with
// that base. Entries after the first that are all zero end it: Kafka allocates
// its indexes ahead. name is for the error, a *CorruptError; the entries before
// it are returned with it.
func ParseOffsetIndex(data []byte, base cluster.Offset, name string) ([]OffsetEntry, error) {
	out := make([]OffsetEntry, 0, len(data)/OffsetEntryBytes)
	for pos := 0; pos < len(data); pos += OffsetEntryBytes {
		p := data[pos:]
		if len(p) < OffsetEntryBytes {
			return out, &CorruptError{name, int64(pos), ErrPartialEntry}
		}
		e := decodeOffsetEntry(p, base)
		if pos > 0 && allZero(data[pos:]) {
			return out, nil
		}
		if e.Offset < base || e.Position < 0 {
			return out, &CorruptError{name, int64(pos), fmt.Errorf("negative offset or position: %w", ErrUnordered)}
		}
		if n := len(out); n > 0 && (e.Offset <= out[n-1].Offset || e.Position <= out[n-1].Position) {
			return out, &CorruptError{name, int64(pos), fmt.Errorf("(%d, %d) after (%d, %d): %w",
				e.Offset, e.Position, out[n-1].Offset, out[n-1].Position, ErrUnordered)}
		}
		out = append(out, e)
	}
	return out, nil
}

// ParseTimeIndex is ParseOffsetIndex for a time index.
func ParseTimeIndex(data []byte, base cluster.Offset, name string) ([]TimeEntry, error) {
	out := make([]TimeEntry, 0, len(data)/TimeEntryBytes)
	for pos := 0; pos < len(data); pos += TimeEntryBytes {
		p := data[pos:]
		if len(p) < TimeEntryBytes {
			return out, &CorruptError{name, int64(pos), ErrPartialEntry}
		}
		e := decodeTimeEntry(p, base)
		if pos > 0 && allZero(data[pos:]) {
			return out, nil
		}
		if e.Offset < base {
			return out, &CorruptError{name, int64(pos), fmt.Errorf("negative offset: %w", ErrUnordered)}
		}
		if n := len(out); n > 0 && (e.Timestamp <= out[n-1].Timestamp || e.Offset < out[n-1].Offset) {
			return out, &CorruptError{name, int64(pos), fmt.Errorf("(%d, %d) after (%d, %d): %w",
				e.Timestamp, e.Offset, out[n-1].Timestamp, out[n-1].Offset, ErrUnordered)}
		}
		out = append(out, e)
	}
	return out, nil
}

// ParseTxnIndex decodes and checks a whole transaction index.
func ParseTxnIndex(data []byte, name string) ([]producerstate.AbortedTxn, error) {
	out := make([]producerstate.AbortedTxn, 0, len(data)/TxnEntryBytes)
	for pos := 0; pos < len(data); pos += TxnEntryBytes {
		p := data[pos:]
		if len(p) < TxnEntryBytes {
			return out, &CorruptError{name, int64(pos), ErrPartialEntry}
		}
		if v := binary.BigEndian.Uint16(p); v != txnVersion {
			return out, &CorruptError{name, int64(pos), fmt.Errorf("%w %d", ErrBadVersion, v)}
		}
		t := decodeTxnEntry(p)
		if t.First > t.Last {
			return out, &CorruptError{name, int64(pos), fmt.Errorf("first offset %d, last %d: %w", t.First, t.Last, ErrUnordered)}
		}
		if n := len(out); n > 0 && t.Last <= out[n-1].Last {
			return out, &CorruptError{name, int64(pos), fmt.Errorf("last offset %d after %d: %w", t.Last, out[n-1].Last, ErrUnordered)}
		}
		out = append(out, t)
	}
	return out, nil
}

// allZero is cheap where it is false: it looks at the first bytes first.
func allZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
