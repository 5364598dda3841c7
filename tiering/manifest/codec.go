package manifest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"

	"strandline/metadata/cluster"
)

const (
	magic         = "SLMF"
	formatVersion = 1
	headBytes     = 8
	tailBytes     = 4

	kindManifest = 1
	kindRun      = 2

	flagDeleted  = 1
	flagInternal = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encoder appends to b.
type encoder struct{ b []byte }

func newEncoder(kind byte) *encoder {
	return &encoder{append([]byte(magic), formatVersion, kind, 0, 0)}
}

func (e *encoder) seal() []byte {
	return binary.BigEndian.AppendUint32(e.b, crc32.Checksum(e.b, castagnoli))
}

func (e *encoder) uvarint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) varint(v int64)   { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) id(id [16]byte)   { e.b = append(e.b, id[:]...) }
func (e *encoder) string(s string) {
	e.uvarint(uint64(len(s)))
	e.b = append(e.b, s...)
}

// Encode gives the bytes of a manifest object.
func (m *Manifest) Encode() []byte {
	e := newEncoder(kindManifest)
	e.string(m.ClusterID)
	e.string(m.Location)
	e.string(m.TopicName)
	e.id(m.Partition.Topic)
	e.uvarint(uint64(m.Partition.Partition))
	e.uvarint(uint64(m.PartitionCount))
	e.varint(int64(m.LeaderEpoch))
	e.uvarint(m.Sequence)
	e.varint(m.CreatedMs)
	var flags uint64
	if m.Deleted {
		flags |= flagDeleted
	}
	if m.Internal {
		flags |= flagInternal
	}
	e.uvarint(flags)
	e.varint(int64(m.LogStart))
	e.varint(int64(m.RemoteEnd))
	e.varint(int64(m.LiveStart))
	keys := make([]string, 0, len(m.Configs))
	for k := range m.Configs {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	e.uvarint(uint64(len(keys)))
	for _, k := range keys {
		e.string(k)
		e.string(m.Configs[k])
	}
	e.uvarint(uint64(len(m.Runs)))
	for _, r := range m.Runs {
		e.string(r.Key)
		e.varint(int64(r.Base))
		e.varint(int64(r.End))
		e.uvarint(uint64(r.Count))
		e.uvarint(uint64(r.Bytes))
		e.uvarint(uint64(r.CRC32C))
	}
	e.segments(m.Segments)
	return e.seal()
}

// Encode gives the bytes of a run object.
func (r *Run) Encode() []byte {
	e := newEncoder(kindRun)
	e.id(r.Partition.Topic)
	e.uvarint(uint64(r.Partition.Partition))
	e.segments(r.Segments)
	return e.seal()
}

func (e *encoder) segments(list []Segment) {
	e.uvarint(uint64(len(list)))
	var end cluster.Offset
	key := ""
	for _, s := range list {
		e.id(s.ID)
		e.varint(int64(s.Base - end))
		e.uvarint(uint64(s.End - s.Base))
		e.varint(int64(s.LeaderEpoch))
		shared := sharedBytes(key, s.Key)
		e.uvarint(uint64(shared))
		e.string(s.Key[shared:])
		o := s.Object
		e.uvarint(uint64(o.FormatVersion))
		for _, n := range []int64{o.ObjectBytes, o.SegmentBytes, o.IndexPosition, o.IndexBytes, o.FooterBytes} {
			e.uvarint(uint64(n))
		}
		e.varint(o.MinTimestamp)
		e.varint(o.MaxTimestamp)
		e.uvarint(uint64(o.RecordCount))
		e.varint(int64(o.FirstEpoch))
		e.varint(int64(o.LastEpoch))
		e.uvarint(uint64(o.CRC32C))
		end, key = s.End, s.Key
	}
}

func sharedBytes(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// decoder reads b; after the first error everything it returns is zero.
type decoder struct {
	key string
	b   []byte
	pos int
	err error
}

// open checks the envelope.
func open(key string, b []byte, kind byte) (*decoder, error) {
	d := &decoder{key: key, pos: headBytes}
	switch {
	case len(b) < headBytes+tailBytes || string(b[:4]) != magic:
		return nil, &CorruptError{key, 0, "not a manifest"}
	case crc32.Checksum(b[:len(b)-tailBytes], castagnoli) != binary.BigEndian.Uint32(b[len(b)-tailBytes:]):
		return nil, &CorruptError{key, len(b) - tailBytes, "checksum does not match"}
	case b[4] != formatVersion:
		return nil, fmt.Errorf("%q has version %d, this release knows %d: %w", key, b[4], formatVersion, ErrVersion)
	case b[5] != kind:
		return nil, &CorruptError{key, 5, fmt.Sprintf("kind %d, want %d", b[5], kind)}
	case b[6] != 0 || b[7] != 0:
		return nil, &CorruptError{key, 6, "reserved bytes are not zero"}
	}
	d.b = b[:len(b)-tailBytes]
	return d, nil
}

func (d *decoder) fail(reason string) {
	if d.err == nil {
		d.err = &CorruptError{d.key, d.pos, reason}
	}
}

// uvarintMax reads a uvarint of at most limit, in its shortest form.
func (d *decoder) uvarintMax(limit uint64) uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b[d.pos:])
	if n <= 0 || v > limit || n > 1 && d.b[d.pos+n-1] == 0 {
		d.fail("bad number")
		return 0
	}
	d.pos += n
	return v
}

// nonNegative reads a uvarint that fits an int64.
func (d *decoder) nonNegative() int64 { return int64(d.uvarintMax(math.MaxInt64)) }

func (d *decoder) varint() int64 {
	u := d.uvarintMax(math.MaxUint64)
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}

func (d *decoder) varintIn(low, high int64) int64 {
	v := d.varint()
	if v < low || v > high {
		d.fail("number out of range")
		return 0
	}
	return v
}

func (d *decoder) epoch() cluster.LeaderEpoch {
	return cluster.LeaderEpoch(d.varintIn(math.MinInt32, math.MaxInt32))
}

func (d *decoder) bytes(n int) []byte {
	if d.err != nil || n > len(d.b)-d.pos {
		d.fail("cut short")
		return make([]byte, min(n, 16))
	}
	b := d.b[d.pos : d.pos+n]
	d.pos += n
	return b
}

func (d *decoder) string() string { return string(d.bytes(d.count(1))) }
func (d *decoder) id() [16]byte   { return [16]byte(d.bytes(16)) }

// count reads the length of a list whose elements have at least so many bytes.
func (d *decoder) count(elementBytes int) int {
	n := int(d.uvarintMax(uint64((len(d.b) - d.pos) / elementBytes)))
	return n
}

func (d *decoder) end() error {
	if d.err == nil && d.pos != len(d.b) {
		d.fail("bytes after the end")
	}
	return d.err
}

// Decode reads a manifest object.
func Decode(key string, b []byte) (*Manifest, error) {
	d, err := open(key, b, kindManifest)
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	m.ClusterID, m.Location, m.TopicName = d.string(), d.string(), d.string()
	m.Partition.Topic = d.id()
	m.Partition.Partition = int32(d.uvarintMax(math.MaxInt32))
	m.PartitionCount = int32(d.uvarintMax(math.MaxInt32))
	m.LeaderEpoch = d.epoch()
	m.Sequence = d.uvarintMax(math.MaxUint64)
	m.CreatedMs = d.varint()
	flags := d.uvarintMax(flagDeleted | flagInternal)
	m.Deleted, m.Internal = flags&flagDeleted != 0, flags&flagInternal != 0
	m.LogStart, m.RemoteEnd, m.LiveStart = cluster.Offset(d.varint()), cluster.Offset(d.varint()), cluster.Offset(d.varint())
	last := ""
	for i, n := 0, d.count(2); i < n && d.err == nil; i++ {
		k, v := d.string(), d.string()
		if m.Configs == nil {
			m.Configs = make(map[string]string)
		}
		if i > 0 && k <= last {
			d.fail("config keys out of order")
		}
		m.Configs[k], last = v, k
	}
	for i, n := 0, d.count(6); i < n && d.err == nil; i++ {
		m.Runs = append(m.Runs, RunRef{
			Key: d.string(), Base: cluster.Offset(d.varint()), End: cluster.Offset(d.varint()),
			Count: int32(d.uvarintMax(math.MaxInt32)), Bytes: d.nonNegative(), CRC32C: uint32(d.uvarintMax(math.MaxUint32)),
		})
	}
	m.Segments = d.segments()
	return m, d.end()
}

// DecodeRun reads a run object.
func DecodeRun(key string, b []byte) (*Run, error) {
	d, err := open(key, b, kindRun)
	if err != nil {
		return nil, err
	}
	r := &Run{}
	r.Partition.Topic = d.id()
	r.Partition.Partition = int32(d.uvarintMax(math.MaxInt32))
	r.Segments = d.segments()
	return r, d.end()
}

// segmentBytesMin is the least that a segment takes.
const segmentBytesMin = 16 + 16

func (d *decoder) segments() []Segment {
	var list []Segment
	var end cluster.Offset
	key := ""
	for i, n := 0, d.count(segmentBytesMin); i < n && d.err == nil; i++ {
		var s Segment
		s.ID = d.id()
		s.Base = end + cluster.Offset(d.varint())
		s.End = s.Base + cluster.Offset(d.nonNegative())
		if s.Base < 0 || s.End < s.Base || i > 0 && s.Base < end {
			d.fail("segments out of order")
		}
		s.LeaderEpoch = d.epoch()
		shared := int(d.uvarintMax(uint64(len(key))))
		rest := d.string()
		if s.Key = key[:shared] + rest; sharedBytes(key, s.Key) != shared {
			d.fail("key is not in its shortest form")
		}
		o := &s.Object
		o.FormatVersion = int16(d.uvarintMax(math.MaxInt16))
		for _, n := range []*int64{&o.ObjectBytes, &o.SegmentBytes, &o.IndexPosition, &o.IndexBytes, &o.FooterBytes} {
			*n = d.nonNegative()
		}
		o.MinTimestamp, o.MaxTimestamp = d.varint(), d.varint()
		o.RecordCount = d.nonNegative()
		o.FirstEpoch, o.LastEpoch = d.epoch(), d.epoch()
		o.CRC32C = uint32(d.uvarintMax(math.MaxUint32))
		end, key = s.End, strings.Clone(s.Key)
		list = append(list, s)
	}
	return list
}
