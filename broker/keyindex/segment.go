package keyindex

import (
	"encoding/binary"
	"fmt"
	"math"

	"strandline/metadata/cluster"
)

const maxOffset = cluster.Offset(math.MaxInt64)

// Segment is what is known of one segment, of its records below the index's
// position. Bytes of records are those of whole records without compression.
type Segment struct {
	Base, Next cluster.Offset // Next is exclusive
	// Bytes is the size of the file that the rest is true of (K3).
	Bytes int64

	Records, RecordBytes int64 // in data batches
	// DeadRecords and DeadBytes are those of them that nobody needs: another
	// record of the key follows, their transaction was aborted, or they have no key.
	DeadRecords, DeadBytes int64
	// Tombstones are records without a value that are not dead, Markers records of
	// control batches.
	Tombstones, Markers int64
	// Emptied are batches without a record.
	Emptied int64
	// Unstamped are batches with one or the other that have no delete horizon.
	Unstamped int64
	// Horizon is the earliest delete horizon in ms, 0 where there is none.
	Horizon int64
	// CleanedThrough: of the records that are dead because of others below it none
	// is left. 0 where the segment was never filtered.
	CleanedThrough cluster.Offset
	// FilteredAt is when it was filtered last, in ms; 0 where never.
	FilteredAt int64
	// Transactions says that there are batches of transactions.
	Transactions bool
}

const segmentVersion = 0

func (s Segment) encode() []byte {
	b := []byte{segmentVersion}
	for _, n := range []int64{
		int64(s.Base), int64(s.Next - s.Base), s.Bytes, s.Records, s.RecordBytes, s.DeadRecords, s.DeadBytes,
		s.Tombstones, s.Markers, s.Emptied, s.Unstamped, s.Horizon, int64(s.CleanedThrough), s.FilteredAt, flag(s.Transactions),
	} {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func decodeSegment(b []byte) (Segment, error) {
	var s Segment
	if len(b) == 0 || b[0] != segmentVersion {
		return s, fmt.Errorf("%w: a segment", ErrCorrupt)
	}
	b = b[1:]
	var n [15]int64
	for i := range n {
		v, size := binary.Varint(b)
		if size <= 0 {
			return s, fmt.Errorf("%w: a segment", ErrCorrupt)
		}
		n[i], b = v, b[size:]
	}
	return Segment{
		Base: cluster.Offset(n[0]), Next: cluster.Offset(n[0] + n[1]), Bytes: n[2], Records: n[3], RecordBytes: n[4],
		DeadRecords: n[5], DeadBytes: n[6], Tombstones: n[7], Markers: n[8], Emptied: n[9], Unstamped: n[10], Horizon: n[11],
		CleanedThrough: cluster.Offset(n[12]), FilteredAt: n[13], Transactions: n[14] != 0,
	}, nil
}

// Live is how many records are not dead.
func (s Segment) Live() int64 { return s.Records - s.DeadRecords }

// DeadShare is the share of the records, by bytes, that is dead: 0 to 1.
func (s Segment) DeadShare() float64 {
	if s.RecordBytes <= 0 {
		return 0
	}
	return float64(s.DeadBytes) / float64(s.RecordBytes)
}

// latest is the value of a key: its latest record.
type latest struct {
	offset    cluster.Offset
	bytes     int64
	tombstone bool
}

func (l latest) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(l.offset))
	return binary.AppendUvarint(dst, uint64(l.bytes)<<1|uint64(flag(l.tombstone)))
}

func decodeLatest(b []byte) (latest, error) {
	offset, n := binary.Uvarint(b)
	if n > 0 {
		if size, m := binary.Uvarint(b[n:]); m > 0 {
			return latest{cluster.Offset(offset), int64(size >> 1), size&1 != 0}, nil
		}
	}
	return latest{}, fmt.Errorf("%w: a key's latest record", ErrCorrupt)
}
