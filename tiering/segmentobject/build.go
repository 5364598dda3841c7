package segmentobject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"strandline/metadata/request"
	"strandline/tiering/objstore"
)

// Object is a segment object before it is stored: the batches where they lie,
// and what follows them in memory. It implements objstore.RangeSummer, so that
// an upload reads the segment once. Safe for concurrent use.
type Object struct {
	src    Source
	footer *Footer
	sum    request.ObjectSummary
	tail   []byte // sections and footer
}

func (s *Source) validate() error {
	switch {
	case s.Base < 0 || s.End <= s.Base:
		return fmt.Errorf("%w: offsets [%d, %d)", ErrSource, s.Base, s.End)
	case s.Batches == nil || s.Position < 0 || s.Bytes <= 0:
		return fmt.Errorf("%w: %d bytes at position %d", ErrSource, s.Bytes, s.Position)
	case s.Topic.IsZero() || s.TopicName == "" || len(s.TopicName) > 1<<16-1 || s.Partition < 0:
		return fmt.Errorf("%w: topic %q (%s), partition %d", ErrSource, s.TopicName, s.Topic, s.Partition)
	}
	return nil
}

// Build reads the segment once, through a buffer of ChunkBytes, verifies every
// batch and makes indexes and footer. A segment with a wrong byte fails with a
// *CorruptError: it must not be uploaded.
func Build(ctx context.Context, src Source) (*Object, error) {
	if err := src.validate(); err != nil {
		return nil, err
	}
	sc := newScanner("", src.Base, src.End, src.Sparse, src.Bytes)
	chunks := make([]uint32, 0, (src.Bytes+ChunkBytes-1)/ChunkBytes)
	buf := make([]byte, min(ChunkBytes, src.Bytes))
	for pos := int64(0); pos < src.Bytes; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		b := buf[:min(int64(len(buf)), src.Bytes-pos)]
		if n, err := src.Batches.ReadAt(b, src.Position+pos); n < len(b) {
			if err == nil || errors.Is(err, io.EOF) {
				return nil, corrupt("", pos+int64(n), "the segment has fewer bytes than it should: %w", io.ErrUnexpectedEOF)
			}
			return nil, fmt.Errorf("read the segment at byte %d: %w", src.Position+pos, err)
		}
		if err := sc.feed(b); err != nil {
			return nil, err
		}
		chunks = append(chunks, objstore.CRC32C(b))
		pos += int64(len(b))
	}
	if err := sc.finish(); err != nil {
		return nil, err
	}
	return assemble(src, sc, chunks), nil
}

// assemble makes what follows the batches.
func assemble(src Source, sc *scanner, chunks []uint32) *Object {
	st := sc.stats
	f := &Footer{
		FormatVersion: FormatVersion, Topic: src.Topic, TopicName: src.TopicName, Partition: src.Partition,
		Segment: src.Segment, Base: src.Base, End: src.End, Sparse: src.Sparse,
		LeaderEpoch: src.LeaderEpoch, FirstEpoch: st.firstEpoch, LastEpoch: st.lastEpoch,
		MinTimestamp: st.minTimestamp, MaxTimestamp: st.maxTimestamp,
		RecordCount: st.records, BatchCount: st.batches, Created: time.UnixMilli(src.Created.UnixMilli()).UTC(),
		SegmentBytes: src.Bytes, ChunkBytes: ChunkBytes, ChunkCRC32C: chunks,
	}
	aborted, abortedCount := appendAborted(nil, src.Aborted, src.Base, src.End)
	epochs, epochCount := appendEpochs(nil, src.Epochs, src.End)
	tail := make([]byte, 0, len(sc.offsets)+len(sc.times)+len(aborted)+len(src.ProducerSnapshot)+len(epochs)+
		fixedBytes+len(src.TopicName)+5*sectionBytes+4*len(chunks)+trailerBytes)
	for _, s := range []struct {
		t     SectionType
		b     []byte
		count uint32
	}{
		{SectionOffsets, sc.offsets, uint32(len(sc.offsets) / offsetEntryBytes)},
		{SectionTimes, sc.times, uint32(len(sc.times) / timeEntryBytes)},
		{SectionAborted, aborted, abortedCount},
		{SectionProducerSnapshot, src.ProducerSnapshot, 0},
		{SectionEpochs, epochs, epochCount},
	} {
		f.Sections = append(f.Sections, Section{
			Type: s.t, Flags: mandatory, Position: src.Bytes + int64(len(tail)),
			Bytes: int64(len(s.b)), CRC32C: objstore.CRC32C(s.b), Count: s.count,
		})
		tail = append(tail, s.b...)
	}
	f.BodyCRC32C = f.bodyCRC()
	sections := len(tail)
	tail = f.append(tail)
	return &Object{src: src, footer: f, sum: f.summary(tail[sections:]), tail: tail}
}

// Size implements objstore.Body.
func (o *Object) Size() int64 { return o.sum.ObjectBytes }

// ReadAt implements objstore.Body.
func (o *Object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("position %d", off)
	}
	n := 0
	if off < o.src.Bytes {
		part := p[:min(int64(len(p)), o.src.Bytes-off)]
		var err error
		if n, err = o.src.Batches.ReadAt(part, o.src.Position+off); n < len(part) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
		p, off = p[n:], off+int64(n)
	}
	if len(p) == 0 {
		return n, nil
	}
	at := off - o.src.Bytes
	if at >= int64(len(o.tail)) {
		return n, io.EOF
	}
	m := copy(p, o.tail[at:])
	if n += m; m < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// RangeCRC32C implements objstore.RangeSummer for ranges that begin and end at a
// multiple of ChunkBytes or at the object's ends.
func (o *Object) RangeCRC32C(off, n int64) (uint32, bool) {
	end := off + n
	if off < 0 || n < 0 || end > o.Size() || off%ChunkBytes != 0 && off < o.src.Bytes || end%ChunkBytes != 0 && end < o.src.Bytes {
		return 0, false
	}
	var c objstore.CRC32CCombiner
	for pos := off; pos < min(end, o.src.Bytes); pos += ChunkBytes {
		c.Add(o.footer.ChunkCRC32C[pos/ChunkBytes], min(ChunkBytes, o.src.Bytes-pos))
	}
	if from, to := max(off, o.src.Bytes)-o.src.Bytes, end-o.src.Bytes; to > from {
		c.Add(objstore.CRC32C(o.tail[from:to]), to-from)
	}
	return c.Sum(), true
}

// Summary is what goes into the catalog with PublishSegment.
func (o *Object) Summary() request.ObjectSummary { return o.sum }

// Footer is what the object says of itself. The caller does not change it.
func (o *Object) Footer() *Footer { return o.footer }

// ContentType is the MIME type of segment objects.
const ContentType = "application/vnd.strandline.segment"

// PutOptions are the options to upload with: if absent, with the checksum.
func (o *Object) PutOptions() objstore.PutOptions {
	return objstore.PutOptions{IfAbsent: true, CRC32C: o.sum.CRC32C, HasCRC: true, ContentType: ContentType}
}

var _ objstore.RangeSummer = (*Object)(nil)
