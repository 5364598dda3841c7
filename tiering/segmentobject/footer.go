package segmentobject

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/tiering/objstore"
)

// FormatVersion is what Build writes.
const FormatVersion = 1

// ChunkBytes is the unit of the checksums over the batches in what Build writes.
// Readers take it from the footer.
const ChunkBytes = 1 << 20

// magic ends every object.
const magic = "SLSEGOBJ"

// Sizes of the format; FORMAT.md draws them.
const (
	fixedBytes   = 132 // of the footer before the topic name
	sectionBytes = 28  // of an entry of the section table
	trailerBytes = 16
	// maxFooterBytes is more than any segment needs.
	maxFooterBytes = 16 << 20
	minChunkBytes  = 4 << 10
)

// SectionType names a section. The numbers never change.
type SectionType uint16

// The sections of version 1, in the order in which they lie. 6 is reserved for
// the key hashes of compacted topics.
const (
	SectionOffsets          SectionType = 1
	SectionTimes            SectionType = 2
	SectionAborted          SectionType = 3
	SectionProducerSnapshot SectionType = 4
	SectionEpochs           SectionType = 5
)

// mandatory is the flag of a section that a reader must understand.
const mandatory = 1

// Section is an entry of the section table.
type Section struct {
	Type     SectionType
	Flags    uint16
	Position int64 // in the object
	Bytes    int64
	CRC32C   uint32
	Count    uint32 // entries; 0 where it has none
}

// Footer is what an object says of itself.
type Footer struct {
	FormatVersion int16
	Topic         cluster.TopicID
	TopicName     string
	Partition     int32
	Segment       cluster.SegmentID
	Base, End     cluster.Offset
	Sparse        bool
	LeaderEpoch   cluster.LeaderEpoch // of the leader that uploaded
	// FirstEpoch and LastEpoch are those of the first and last batch.
	FirstEpoch, LastEpoch      cluster.LeaderEpoch
	MinTimestamp, MaxTimestamp int64 // ms; -1: none
	RecordCount, BatchCount    int64
	Created                    time.Time
	SegmentBytes               int64
	ChunkBytes                 int64
	// BodyCRC32C is the checksum of everything before the footer.
	BodyCRC32C  uint32
	Sections    []Section
	ChunkCRC32C []uint32
}

const flagSparse = 1

// bodyCRC combines the checksums of chunks and sections.
func (f *Footer) bodyCRC() uint32 {
	var c objstore.CRC32CCombiner
	left := f.SegmentBytes
	for _, crc := range f.ChunkCRC32C {
		c.Add(crc, min(left, f.ChunkBytes))
		left -= f.ChunkBytes
	}
	for _, s := range f.Sections {
		c.Add(s.CRC32C, s.Bytes)
	}
	return c.Sum()
}

// end is where the sections end and the footer begins.
func (f *Footer) end() int64 {
	end := f.SegmentBytes
	for _, s := range f.Sections {
		end += s.Bytes
	}
	return end
}

// append encodes the footer, trailer included.
func (f *Footer) append(b []byte) []byte {
	start := len(b)
	be := binary.BigEndian
	var flags uint16
	if f.Sparse {
		flags |= flagSparse
	}
	b = be.AppendUint16(b, uint16(f.FormatVersion))
	b = be.AppendUint16(b, flags)
	b = append(b, f.Topic[:]...)
	b = be.AppendUint32(b, uint32(f.Partition))
	b = append(b, f.Segment[:]...)
	for _, v := range []int64{int64(f.Base), int64(f.End)} {
		b = be.AppendUint64(b, uint64(v))
	}
	for _, v := range []cluster.LeaderEpoch{f.LeaderEpoch, f.FirstEpoch, f.LastEpoch} {
		b = be.AppendUint32(b, uint32(v))
	}
	for _, v := range []int64{f.MinTimestamp, f.MaxTimestamp, f.RecordCount, f.BatchCount, f.Created.UnixMilli(), f.SegmentBytes} {
		b = be.AppendUint64(b, uint64(v))
	}
	b = be.AppendUint32(b, uint32(f.ChunkBytes))
	b = be.AppendUint32(b, f.BodyCRC32C)
	b = be.AppendUint32(b, uint32(len(f.ChunkCRC32C)))
	b = be.AppendUint16(b, uint16(len(f.Sections)))
	b = be.AppendUint16(b, uint16(len(f.TopicName)))
	b = append(b, f.TopicName...)
	for _, s := range f.Sections {
		b = be.AppendUint16(b, uint16(s.Type))
		b = be.AppendUint16(b, s.Flags)
		b = be.AppendUint64(b, uint64(s.Position))
		b = be.AppendUint64(b, uint64(s.Bytes))
		b = be.AppendUint32(b, s.CRC32C)
		b = be.AppendUint32(b, s.Count)
	}
	for _, crc := range f.ChunkCRC32C {
		b = be.AppendUint32(b, crc)
	}
	b = be.AppendUint32(b, uint32(len(b)-start+trailerBytes))
	b = be.AppendUint32(b, objstore.CRC32C(b[start:]))
	return append(b, magic...)
}

// footerBytes reads the trailer at the end of tail.
func footerBytes(key string, tail []byte, objectBytes int64) (int64, error) {
	if len(tail) < trailerBytes || objectBytes < trailerBytes {
		return 0, corrupt(key, 0, "%d bytes are too few for a segment object", objectBytes)
	}
	t := tail[len(tail)-trailerBytes:]
	if string(t[8:]) != magic {
		return 0, corrupt(key, objectBytes-8, "not a segment object: it ends with %q", t[8:])
	}
	n := int64(binary.BigEndian.Uint32(t))
	if n < fixedBytes+trailerBytes || n > maxFooterBytes || n > objectBytes {
		return 0, corrupt(key, objectBytes-trailerBytes, "footer of %d bytes in an object of %d", n, objectBytes)
	}
	return n, nil
}

// fields reads numbers from the front of b, which has them.
type fields struct{ b []byte }

func (r *fields) take(n int) []byte {
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *fields) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *fields) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *fields) i64() int64  { return int64(binary.BigEndian.Uint64(r.take(8))) }

// parseFooter decodes b, a footer as long as footerBytes says, of an object of
// objectBytes. Its checksum is compared first; the rest is checked all the same,
// since a checksum says nothing of who wrote it.
func parseFooter(key string, b []byte, objectBytes int64) (*Footer, error) {
	n := int64(len(b))
	start := objectBytes - n
	sum := binary.BigEndian.Uint32(b[n-12:])
	if got := objstore.CRC32C(b[:n-12]); got != sum {
		return nil, corrupt(key, start, "footer checksum: stored %08x, computed %08x", sum, got)
	}
	r := fields{b: b[:n-trailerBytes]}
	if v := int16(r.u16()); v != FormatVersion {
		if v > FormatVersion {
			return nil, fmt.Errorf("%w: %s has version %d, this program reads up to %d", ErrVersion, key, v, FormatVersion)
		}
		return nil, corrupt(key, start, "format version %d", v)
	}
	f := &Footer{FormatVersion: FormatVersion}
	chunks, sections, name := f.readFixed(&r)
	if int64(len(r.b)) != int64(name)+int64(sections)*sectionBytes+int64(chunks)*4 {
		return nil, corrupt(key, start, "footer of %d bytes does not fit its %d sections and %d chunks", n, sections, chunks)
	}
	f.readTables(&r, chunks, sections, name)
	if err := f.check(start); err != nil {
		return nil, &CorruptError{Key: key, Position: start, Cause: err}
	}
	return f, nil
}

func (f *Footer) readFixed(r *fields) (chunks uint32, sections, name uint16) {
	f.Sparse = r.u16()&flagSparse != 0
	f.Topic = cluster.TopicID(r.take(16))
	f.Partition = int32(r.u32())
	f.Segment = cluster.SegmentID(r.take(16))
	f.Base, f.End = cluster.Offset(r.i64()), cluster.Offset(r.i64())
	f.LeaderEpoch, f.FirstEpoch, f.LastEpoch = cluster.LeaderEpoch(r.u32()), cluster.LeaderEpoch(r.u32()), cluster.LeaderEpoch(r.u32())
	f.MinTimestamp, f.MaxTimestamp = r.i64(), r.i64()
	f.RecordCount, f.BatchCount = r.i64(), r.i64()
	f.Created = time.UnixMilli(r.i64()).UTC()
	f.SegmentBytes = r.i64()
	f.ChunkBytes = int64(r.u32())
	f.BodyCRC32C = r.u32()
	return r.u32(), r.u16(), r.u16()
}

func (f *Footer) readTables(r *fields, chunks uint32, sections, name uint16) {
	f.TopicName = string(r.take(int(name)))
	f.Sections = make([]Section, sections)
	for i := range f.Sections {
		f.Sections[i] = Section{Type: SectionType(r.u16()), Flags: r.u16(), Position: r.i64(), Bytes: r.i64(), CRC32C: r.u32(), Count: r.u32()}
	}
	f.ChunkCRC32C = make([]uint32, chunks)
	for i := range f.ChunkCRC32C {
		f.ChunkCRC32C[i] = r.u32()
	}
}

// check compares the parts of a footer that begins at start with each other.
func (f *Footer) check(start int64) error {
	switch {
	case f.Base < 0 || f.End <= f.Base || f.Partition < 0:
		return fmt.Errorf("partition %d, offsets [%d, %d)", f.Partition, f.Base, f.End)
	case f.SegmentBytes <= 0 || f.SegmentBytes > start:
		return fmt.Errorf("%d bytes of batches before a footer at %d", f.SegmentBytes, start)
	case f.ChunkBytes < minChunkBytes || f.ChunkBytes > math.MaxInt32:
		return fmt.Errorf("chunks of %d bytes", f.ChunkBytes)
	case int64(len(f.ChunkCRC32C)) != (f.SegmentBytes+f.ChunkBytes-1)/f.ChunkBytes:
		return fmt.Errorf("%d chunks of %d bytes in %d", len(f.ChunkCRC32C), f.ChunkBytes, f.SegmentBytes)
	}
	position := f.SegmentBytes
	for i, s := range f.Sections {
		if s.Position != position || s.Bytes < 0 || s.Bytes > start-position {
			return fmt.Errorf("section %d of type %d lies at [%d, +%d), expected at %d", i, s.Type, s.Position, s.Bytes, position)
		}
		position += s.Bytes
	}
	if position != start {
		return fmt.Errorf("the sections end at %d, the footer begins at %d", position, start)
	}
	if got := f.bodyCRC(); got != f.BodyCRC32C {
		return fmt.Errorf("checksum before the footer: stored %08x, its parts have %08x", f.BodyCRC32C, got)
	}
	return nil
}

// summary is what the catalog keeps of the object.
func (f *Footer) summary(footer []byte) request.ObjectSummary {
	end := f.end()
	return request.ObjectSummary{
		ObjectBytes:   end + int64(len(footer)),
		SegmentBytes:  f.SegmentBytes,
		IndexPosition: f.SegmentBytes,
		IndexBytes:    end - f.SegmentBytes,
		FooterBytes:   int64(len(footer)),
		MinTimestamp:  f.MinTimestamp,
		MaxTimestamp:  f.MaxTimestamp,
		RecordCount:   f.RecordCount,
		FirstEpoch:    f.FirstEpoch,
		LastEpoch:     f.LastEpoch,
		FormatVersion: f.FormatVersion,
		CRC32C:        objstore.CombineCRC32C(f.BodyCRC32C, objstore.CRC32C(footer), int64(len(footer))),
	}
}
