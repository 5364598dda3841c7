package segmentobject

import (
	"context"
	"errors"
	"fmt"
	"io"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/tiering/objstore"
)

// Index is everything of an object but the batches. It is immutable and safe for
// concurrent use; all of it has been verified (S3).
type Index struct {
	key      string
	footer   *Footer
	sum      request.ObjectSummary
	bytes    int64
	offsets  pairs
	times    pairs
	aborted  []producerstate.AbortedTxn
	snapshot []byte
	epochs   []leaderepoch.Entry
}

// ReadIndex fetches the index with one GET, by what the catalog says.
func ReadIndex(ctx context.Context, s objstore.Store, key string, sum request.ObjectSummary) (*Index, error) {
	n := sum.IndexBytes + sum.FooterBytes
	if n <= 0 || n > sum.ObjectBytes || sum.IndexPosition != sum.ObjectBytes-n {
		return nil, corrupt(key, 0, "the catalog says that the index lies at [%d, +%d) of %d bytes", sum.IndexPosition, n, sum.ObjectBytes)
	}
	b, err := objstore.ReadRange(ctx, s, key, sum.IndexPosition, n)
	if err != nil {
		return nil, err
	}
	return ParseIndex(key, sum, b)
}

// ParseIndex reads the index from the object's bytes from sum.IndexPosition to
// its end, wherever they come from, and compares it with sum. It keeps b.
func ParseIndex(key string, sum request.ObjectSummary, b []byte) (*Index, error) {
	x, err := parseIndex(key, b, sum.ObjectBytes)
	if err != nil {
		return nil, err
	}
	if x.sum != sum {
		return nil, corrupt(key, sum.IndexPosition, "the object describes itself as %+v, the catalog as %+v", x.sum, sum)
	}
	return x, nil
}

// openTailBytes is how much OpenIndex fetches first: the whole index of a segment
// of some 100 MiB.
const openTailBytes = 256 << 10

// OpenIndex fetches the index of an object of which only key and size are known:
// one GET, two where the index is large. With size < 0 it asks for the size.
func OpenIndex(ctx context.Context, s objstore.Store, key string, size int64) (*Index, error) {
	if size < 0 {
		info, err := s.Head(ctx, key)
		if err != nil {
			return nil, err
		}
		size = info.Bytes
	}
	if size < fixedBytes+trailerBytes {
		return nil, corrupt(key, 0, "%d bytes are too few for a segment object", size)
	}
	n := min(size, openTailBytes)
	tail, err := objstore.ReadRange(ctx, s, key, size-n, n)
	if err != nil {
		return nil, err
	}
	footer, err := footerBytes(key, tail, size)
	if err != nil {
		return nil, err
	}
	if footer > n {
		if tail, err = objstore.ReadRange(ctx, s, key, size-footer, footer); err != nil {
			return nil, err
		}
		n = footer
	}
	f, err := parseFooter(key, tail[n-footer:], size)
	if err != nil {
		return nil, err
	}
	if need := size - f.SegmentBytes; need <= n {
		tail = tail[n-need:]
	} else if tail, err = objstore.ReadRange(ctx, s, key, f.SegmentBytes, need); err != nil {
		return nil, err
	}
	return parseIndex(key, tail, size)
}

// parseIndex reads b, the last bytes of an object from its first section on.
func parseIndex(key string, b []byte, objectBytes int64) (*Index, error) {
	n, err := footerBytes(key, b, objectBytes)
	if err != nil {
		return nil, err
	}
	if n > int64(len(b)) {
		return nil, corrupt(key, objectBytes-n, "footer of %d bytes in an index of %d", n, len(b))
	}
	sections, footer := b[:int64(len(b))-n], b[int64(len(b))-n:]
	f, err := parseFooter(key, footer, objectBytes)
	if err != nil {
		return nil, err
	}
	if f.SegmentBytes != objectBytes-int64(len(b)) {
		return nil, corrupt(key, objectBytes-n, "the batches end at %d, expected %d", f.SegmentBytes, objectBytes-int64(len(b)))
	}
	x := &Index{key: key, footer: f, sum: f.summary(footer), bytes: int64(len(b)) + int64(len(f.ChunkCRC32C))*4}
	seen := map[SectionType]bool{}
	for _, s := range f.Sections {
		data := sections[s.Position-f.SegmentBytes:][:s.Bytes]
		if got := objstore.CRC32C(data); got != s.CRC32C {
			return nil, corrupt(key, s.Position, "section of type %d: stored checksum %08x, computed %08x", s.Type, s.CRC32C, got)
		}
		if seen[s.Type] {
			return nil, corrupt(key, s.Position, "second section of type %d", s.Type)
		}
		seen[s.Type] = true
		if err := x.take(s, data); err != nil {
			return nil, err
		}
	}
	for t := SectionOffsets; t <= SectionEpochs; t++ {
		if !seen[t] {
			return nil, corrupt(key, objectBytes-n, "no section of type %d", t)
		}
	}
	if x.offsets.len() == 0 || x.offsets.position(0) != 0 || x.offsets.first(x.offsets.len()-1) >= int64(f.End-f.Base) {
		return nil, corrupt(key, f.SegmentBytes, "the offset index does not cover the batches")
	}
	return x, nil
}

// take enters a section whose checksum is right.
func (x *Index) take(s Section, data []byte) error {
	entryBytes := map[SectionType]int64{
		SectionOffsets: offsetEntryBytes, SectionTimes: timeEntryBytes,
		SectionAborted: abortedBytes, SectionEpochs: epochBytes,
	}[s.Type]
	if s.Bytes != int64(s.Count)*entryBytes && entryBytes != 0 {
		return corrupt(x.key, s.Position, "section of type %d: %d bytes for %d entries", s.Type, s.Bytes, s.Count)
	}
	switch s.Type {
	case SectionOffsets:
		x.offsets = pairs(data)
	case SectionTimes:
		x.times = pairs(data)
	case SectionAborted:
		x.aborted = parseAborted(data)
	case SectionProducerSnapshot:
		x.snapshot = data
	case SectionEpochs:
		x.epochs = parseEpochs(data)
	default:
		if s.Flags&mandatory != 0 {
			return fmt.Errorf("%w: %s has a section of type %d", ErrVersion, x.key, s.Type)
		}
	}
	if s.Type == SectionOffsets || s.Type == SectionTimes {
		if !pairs(data).rising(x.footer.SegmentBytes) {
			return corrupt(x.key, s.Position, "entries of section type %d do not rise", s.Type)
		}
	}
	return nil
}

// Key is the object's key.
func (x *Index) Key() string { return x.key }

// Bytes is about the memory that the index holds.
func (x *Index) Bytes() int64 { return x.bytes }

// Summary is what the catalog holds of the object.
func (x *Index) Summary() request.ObjectSummary { return x.sum }

// Footer is what the object says of itself. The caller does not change it.
func (x *Index) Footer() *Footer { return x.footer }

// Range is a range of positions of the batches: [Start, End).
type Range struct{ Start, End int64 }

// Find says where to read for the batch that holds offset, or, where none does,
// for the next one. A batch starts at Range.Start, at or before the one looked
// for; every batch that starts in the range up to the one that holds offset is
// whole within it. Where the range has no batch that reaches to offset, which
// only a sparse object can have, the one at Range.End is the first that does. ok
// is false where offset is outside [Base, End).
func (x *Index) Find(offset cluster.Offset) (r Range, ok bool) {
	if offset < x.footer.Base || offset >= x.footer.End {
		return Range{}, false
	}
	i := max(0, x.offsets.searchFirst(int64(offset-x.footer.Base))-1)
	return Range{x.offsets.position(i), x.endOfEntry(i)}, true
}

// endOfEntry is the position of the entry after i.
func (x *Index) endOfEntry(i int) int64 {
	if i+1 < x.offsets.len() {
		return x.offsets.position(i + 1)
	}
	return x.footer.SegmentBytes
}

// FindTimestamp says where to look for the first record at or after from with a
// timestamp at or above ts: a batch starts at Range.Start, and the record is in
// none before it. It is before Range.End, unless from lies so late that the
// index cannot tell: then Range.End is the end of the batches, although the
// record is usually near Start. ok is false where no record can qualify.
func (x *Index) FindTimestamp(ts int64, from cluster.Offset) (r Range, ok bool) {
	if ts > x.footer.MaxTimestamp || from >= x.footer.End {
		return Range{}, false
	}
	// Before the position of entry i there is a timestamp at or above ts, and
	// before that of the offset entry that precedes it there is none: the time
	// index has an entry wherever the maximum has risen.
	r = Range{End: x.footer.SegmentBytes}
	if i := x.times.searchAtLeast(ts); i < x.times.len() {
		r.End = x.times.position(i)
	}
	r.Start = x.offsets.lastBefore(r.End)
	if f, ok := x.Find(from); ok && f.Start > r.Start {
		if r.Start = f.Start; f.End >= r.End {
			r.End = x.footer.SegmentBytes
		}
	}
	return r, true
}

// Aborted returns the aborted transactions that overlap [from, to).
func (x *Index) Aborted(from, to cluster.Offset) []producerstate.AbortedTxn {
	var found []producerstate.AbortedTxn
	for _, t := range x.aborted {
		if t.First < to && t.Last >= from {
			found = append(found, t)
		}
	}
	return found
}

// ProducerSnapshot is the producer state at End; empty where there was none.
// The caller does not change it.
func (x *Index) ProducerSnapshot() []byte { return x.snapshot }

// Epochs is the leader epoch list up to End. The caller does not change it.
func (x *Index) Epochs() []leaderepoch.Entry { return x.epochs }

// ChunkBytes is the unit in which the batches' checksums are kept.
func (x *Index) ChunkBytes() int64 { return x.footer.ChunkBytes }

// Align widens a range to whole chunks, within the batches.
func (x *Index) Align(r Range) Range {
	c := x.footer.ChunkBytes
	return Range{r.Start / c * c, min((r.End+c-1)/c*c, x.footer.SegmentBytes)}
}

// VerifyChunks compares b, the batches' bytes from position on, with the chunk
// checksums. position is a multiple of ChunkBytes; b ends at such a multiple or
// at the end of the batches.
func (x *Index) VerifyChunks(position int64, b []byte) error {
	return x.verifyChunks(position, int64(len(b)), func(at, n int64) (uint32, error) {
		return objstore.CRC32C(b[at : at+n]), nil
	})
}

// VerifyChunksAt is VerifyChunks for n bytes that lie in a file: r holds them
// from at on.
func (x *Index) VerifyChunksAt(position int64, r io.ReaderAt, at, n int64) error {
	buf := make([]byte, max(min(n, 128<<10), 0))
	return x.verifyChunks(position, n, func(off, n int64) (crc uint32, err error) {
		for n > 0 && err == nil {
			b := buf[:min(n, int64(len(buf)))]
			var got int
			got, err = r.ReadAt(b, at+off)
			switch {
			case got == len(b):
				err = nil
			case err == nil || errors.Is(err, io.EOF):
				err = io.ErrUnexpectedEOF
			}
			crc = objstore.UpdateCRC32C(crc, b[:got])
			off, n = off+int64(got), n-int64(got)
		}
		return crc, err
	})
}

func (x *Index) verifyChunks(position, n int64, sum func(off, n int64) (uint32, error)) error {
	c, end := x.footer.ChunkBytes, position+n
	if position < 0 || position%c != 0 || end%c != 0 && end != x.footer.SegmentBytes || end > x.footer.SegmentBytes || n < 0 {
		return fmt.Errorf("verify chunks: [%d, %d) of %d bytes is not made of whole chunks of %d", position, end, x.footer.SegmentBytes, c)
	}
	for pos := position; pos < end; pos += c {
		got, err := sum(pos-position, min(c, end-pos))
		if err != nil {
			return err
		}
		if want := x.footer.ChunkCRC32C[pos/c]; got != want {
			return corrupt(x.key, pos, "chunk checksum: stored %08x, computed %08x", want, got)
		}
	}
	return nil
}
