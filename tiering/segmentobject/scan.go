package segmentobject

import (
	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/tiering/objstore"
)

// IndexIntervalBytes is the distance of index entries: the first batch that
// starts at least so far after the last indexed one gets an entry.
const IndexIntervalBytes = 16 << 10

// crcStart is where the part of a batch begins that its CRC covers.
const crcStart = 21

// scanner reads batches from a stream that comes in pieces, verifies them (S2)
// and collects what the footer and the indexes say. It buffers a header, never a
// batch.
type scanner struct {
	key       string
	base, end cluster.Offset
	sparse    bool
	bytes     int64 // of all batches

	pos    int64 // of the next byte
	start  int64 // of the current batch
	header [recordbatch.HeaderBytes]byte
	have   int    // bytes of header
	left   int64  // bytes of the current batch after the header
	crc    uint32 // so far

	// onBatch, if set, is told of each verified batch, with the highest
	// timestamp before it, instead of the indexes being built.
	onBatch func(b recordbatch.Batch, position, maxBefore int64) error

	next        cluster.Offset // the current batch may not start below it
	nextIndexed int64          // position from which on a batch gets an entry
	stats       scanStats
	offsets     []byte // section of the offset index
	times       []byte // section of the time index
	timed       int64  // highest timestamp in the time index
}

// scanStats describe the batches seen.
type scanStats struct {
	minTimestamp, maxTimestamp int64 // ms; -1: none
	records, batches           int64
	firstEpoch, lastEpoch      cluster.LeaderEpoch
}

func newScanner(key string, base, end cluster.Offset, sparse bool, bytes int64) *scanner {
	return &scanner{
		key: key, base: base, end: end, sparse: sparse, bytes: bytes, next: base, timed: recordbatch.NoTimestamp,
		stats: scanStats{
			minTimestamp: recordbatch.NoTimestamp, maxTimestamp: recordbatch.NoTimestamp,
			firstEpoch: cluster.NoLeaderEpoch, lastEpoch: cluster.NoLeaderEpoch,
		},
	}
}

// feed takes the next bytes.
func (s *scanner) feed(b []byte) error {
	for len(b) > 0 {
		if s.have < len(s.header) {
			if s.have == 0 {
				s.start = s.pos
			}
			n := copy(s.header[s.have:], b)
			s.have += n
			s.pos += int64(n)
			b = b[n:]
			if s.have == len(s.header) {
				if err := s.begin(); err != nil {
					return err
				}
			}
		}
		n := min(s.left, int64(len(b)))
		s.crc = objstore.UpdateCRC32C(s.crc, b[:n])
		s.left -= n
		s.pos += n
		b = b[n:]
		if s.have == len(s.header) && s.left == 0 {
			if err := s.finishBatch(); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin checks a batch's header.
func (s *scanner) begin() error {
	size, err := recordbatch.PeekBytes(s.header[:])
	if err != nil {
		return &CorruptError{Key: s.key, Position: s.start, Cause: err}
	}
	b := recordbatch.Batch(s.header[:])
	if b.Magic() != 2 {
		return corrupt(s.key, s.start, "%w %d", recordbatch.ErrBadMagic, b.Magic())
	}
	if int64(size) > s.bytes-s.start {
		return corrupt(s.key, s.start, "%w: batch of %d bytes, %d are left", recordbatch.ErrTruncated, size, s.bytes-s.start)
	}
	s.left = int64(size) - recordbatch.HeaderBytes
	s.crc = objstore.CRC32C(s.header[crcStart:])
	return nil
}

// finishBatch checks a whole batch and enters it.
func (s *scanner) finishBatch() error {
	b := recordbatch.Batch(s.header[:])
	if s.crc != b.CRC() {
		return corrupt(s.key, s.start, "%w: stored %08x, computed %08x", recordbatch.ErrBadCRC, b.CRC(), s.crc)
	}
	if b.LastOffsetDelta() < 0 || b.RecordCount() < 0 {
		return corrupt(s.key, s.start, "%w: %d records, last offset delta %d", recordbatch.ErrBadCount, b.RecordCount(), b.LastOffsetDelta())
	}
	base, next := b.BaseOffset(), b.NextOffset()
	if base < s.next || base != s.next && !s.sparse {
		return corrupt(s.key, s.start, "the batch starts at offset %d, expected %d", base, s.next)
	}
	if next > s.end {
		return corrupt(s.key, s.start, "the batch ends at offset %d, the segment at %d", next, s.end)
	}
	if s.onBatch != nil {
		if err := s.onBatch(b, s.start, s.stats.maxTimestamp); err != nil {
			return err
		}
	} else {
		s.indexBatch(b)
	}
	s.count(b)
	s.next, s.have = next, 0
	return nil
}

// indexBatch enters a verified batch into the indexes where it is due.
func (s *scanner) indexBatch(b recordbatch.Batch) {
	if s.start < s.nextIndexed {
		return
	}
	s.offsets = appendOffsetEntry(s.offsets, offsetEntry{relative: int64(b.BaseOffset() - s.base), position: s.start})
	if before := s.stats.maxTimestamp; before > s.timed {
		s.times = appendTimeEntry(s.times, timeEntry{maxBefore: before, position: s.start})
		s.timed = before
	}
	s.nextIndexed = s.start + IndexIntervalBytes
}

// count adds a verified batch to the statistics.
func (s *scanner) count(b recordbatch.Batch) {
	st := &s.stats
	first, last := b.FirstTimestamp(), b.MaxTimestamp()
	if b.LogAppendTime() || b.HasDeleteHorizon() {
		first = last
	}
	if first >= 0 && (st.minTimestamp < 0 || first < st.minTimestamp) {
		st.minTimestamp = first
	}
	st.maxTimestamp = max(st.maxTimestamp, last)
	if st.batches == 0 {
		st.firstEpoch = b.PartitionLeaderEpoch()
	}
	st.lastEpoch = b.PartitionLeaderEpoch()
	st.batches++
	st.records += int64(b.RecordCount())
}

// finish checks that the stream ended where it should.
func (s *scanner) finish() error {
	switch {
	case s.have != 0 || s.pos != s.bytes:
		return corrupt(s.key, s.start, "%w: the batches end at byte %d of %d", recordbatch.ErrTruncated, s.pos, s.bytes)
	case s.next != s.end && !s.sparse:
		return corrupt(s.key, s.start, "the last batch ends at offset %d, expected %d", s.next, s.end)
	}
	return nil
}
