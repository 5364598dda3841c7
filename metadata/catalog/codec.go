package catalog

import (
	"fmt"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/metadata/varint"
)

// Stored values start with their version. A newer version is another payload;
// FORMAT.md has the fields in order.
const (
	segmentVersion = 1
	summaryVersion = 1
	deletedVersion = 1
)

// CorruptError tells that a stored value cannot be read.
type CorruptError struct {
	What     string // segment, summary, deleted topic
	Position int    // in the value
	Cause    string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt catalog %s at byte %d: %s", e.What, e.Position, e.Cause)
}

// AppendSegment appends the stored form of s to b.
func AppendSegment(b []byte, s Segment) []byte {
	b = append(b, segmentVersion)
	b = AppendSpan(b, s.SegmentSpan)
	b = varint.Int(b, int64(s.StartEpoch))
	b = append(b, byte(s.State))
	b = varint.Bool(b, s.Abandoned)
	b = varint.Int(b, s.DeadlineMs)
	b = varint.Int(b, s.ChangedMs)
	b = varint.Int(b, s.PrefixMaxTimestamp)
	return AppendObject(b, s.Object)
}

// DecodeSegment reads what AppendSegment wrote.
func DecodeSegment(b []byte) (Segment, error) {
	r := open(b, segmentVersion)
	s := Segment{SegmentSpan: ReadSpan(r)}
	s.StartEpoch = cluster.LeaderEpoch(r.Int32())
	s.State = State(r.Byte())
	s.Abandoned = r.Bool()
	s.DeadlineMs, s.ChangedMs, s.PrefixMaxTimestamp = r.Int(), r.Int(), r.Int()
	s.Object = ReadObject(r)
	if s.State < Started || s.State > Expired {
		r.Fail("unknown state")
	}
	return s, done("segment", r)
}

// AppendSummary appends the stored form of s to b.
func AppendSummary(b []byte, s Summary) []byte {
	b = append(b, summaryVersion)
	b = varint.Int(b, int64(s.LogStart))
	b = varint.Int(b, int64(s.RemoteEnd))
	b = varint.String(b, s.Location)
	for _, v := range []int64{
		s.LiveCount, s.LiveBytes, s.LiveSegmentBytes, s.StartedCount, s.DeadCount, s.DeadBytes, s.MaxTimestamp,
	} {
		b = varint.Int(b, v)
	}
	return varint.Int(b, int64(s.LastEpoch))
}

// DecodeSummary reads what AppendSummary wrote.
func DecodeSummary(b []byte) (Summary, error) {
	r := open(b, summaryVersion)
	s := Summary{LogStart: cluster.Offset(r.Int()), RemoteEnd: cluster.Offset(r.Int()), Location: r.String()}
	for _, v := range []*int64{
		&s.LiveCount, &s.LiveBytes, &s.LiveSegmentBytes, &s.StartedCount, &s.DeadCount, &s.DeadBytes, &s.MaxTimestamp,
	} {
		*v = r.Int()
	}
	s.LastEpoch = cluster.LeaderEpoch(r.Int32())
	return s, done("summary", r)
}

// AppendDeletedTopic appends the stored form of d, its topic id apart, to b.
func AppendDeletedTopic(b []byte, d DeletedTopic) []byte {
	b = append(b, deletedVersion)
	b = varint.String(b, d.Name)
	b = varint.Int(b, int64(d.Partitions))
	return varint.Int(b, d.DeletedMs)
}

// DecodeDeletedTopic reads what AppendDeletedTopic wrote.
func DecodeDeletedTopic(topic cluster.TopicID, b []byte) (DeletedTopic, error) {
	r := open(b, deletedVersion)
	d := DeletedTopic{Topic: topic, Name: r.String(), Partitions: r.Int32(), DeletedMs: r.Int()}
	return d, done("deleted topic", r)
}

// AppendSpan and the functions below are the pieces that the command codec
// shares.
func AppendSpan(b []byte, s request.SegmentSpan) []byte {
	b = append(b, s.ID[:]...)
	b = varint.Int(b, int64(s.Base))
	b = varint.Int(b, int64(s.End))
	b = varint.Int(b, int64(s.LeaderEpoch))
	b = varint.String(b, s.Location)
	return varint.String(b, s.Key)
}

// ReadSpan reads what AppendSpan wrote.
func ReadSpan(r *varint.Reader) request.SegmentSpan {
	return request.SegmentSpan{
		ID: r.ID(), Base: cluster.Offset(r.Int()), End: cluster.Offset(r.Int()),
		LeaderEpoch: cluster.LeaderEpoch(r.Int32()), Location: r.String(), Key: r.String(),
	}
}

// AppendObject appends an object's summary.
func AppendObject(b []byte, o request.ObjectSummary) []byte {
	for _, v := range []int64{
		o.ObjectBytes, o.SegmentBytes, o.IndexPosition, o.IndexBytes, o.FooterBytes,
		o.MinTimestamp, o.MaxTimestamp, o.RecordCount,
		int64(o.FirstEpoch), int64(o.LastEpoch), int64(o.FormatVersion),
	} {
		b = varint.Int(b, v)
	}
	return varint.Uint(b, uint64(o.CRC32C))
}

// ReadObject reads what AppendObject wrote.
func ReadObject(r *varint.Reader) request.ObjectSummary {
	o := request.ObjectSummary{}
	for _, v := range []*int64{
		&o.ObjectBytes, &o.SegmentBytes, &o.IndexPosition, &o.IndexBytes, &o.FooterBytes,
		&o.MinTimestamp, &o.MaxTimestamp, &o.RecordCount,
	} {
		*v = r.Int()
	}
	o.FirstEpoch, o.LastEpoch = cluster.LeaderEpoch(r.Int32()), cluster.LeaderEpoch(r.Int32())
	o.FormatVersion, o.CRC32C = r.Int16(), r.Uint32()
	return o
}

func open(b []byte, version byte) *varint.Reader {
	r := varint.NewReader(b)
	if v := r.Byte(); !r.Failed() && v != version {
		r.Fail(fmt.Sprintf("version %d is not known here", v))
	}
	return r
}

func done(what string, r *varint.Reader) error {
	r.End()
	if r.Failed() {
		return &CorruptError{What: what, Position: r.Position(), Cause: r.Cause()}
	}
	return nil
}
