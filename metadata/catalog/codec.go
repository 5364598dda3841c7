package catalog

import "strandline/metadata/cluster"

// AppendSegment appends the stored form of s to b.
func AppendSegment(b []byte, s Segment) []byte { return b }

// DecodeSegment reads what AppendSegment wrote.
func DecodeSegment(b []byte) (Segment, error) { return Segment{}, nil }

// AppendSummary appends the stored form of s to b.
func AppendSummary(b []byte, s Summary) []byte { return b }

// DecodeSummary reads what AppendSummary wrote.
func DecodeSummary(b []byte) (Summary, error) { return Summary{}, nil }

// AppendDeletedTopic appends the stored form of d, its topic id apart, to b.
func AppendDeletedTopic(b []byte, d DeletedTopic) []byte { return b }

// DecodeDeletedTopic reads what AppendDeletedTopic wrote.
func DecodeDeletedTopic(topic cluster.TopicID, b []byte) (DeletedTopic, error) {
	return DeletedTopic{}, nil
}
