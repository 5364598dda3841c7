package segmentobject

import (
	"io"
	"time"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
)

// Source is a sealed segment, or the rest of one from a batch boundary on, that
// is to become an object.
type Source struct {
	TopicName string
	Topic     cluster.TopicID
	Partition int32
	// Segment names the upload; it is written into the footer.
	Segment cluster.SegmentID
	// Base is the base offset of the first batch, End one past the last
	// offset of the last one. Where Sparse is set the batches need only lie
	// within [Base, End) in order; else they cover it without a gap.
	Base, End cluster.Offset
	Sparse    bool
	// LeaderEpoch is that of the leader that uploads.
	LeaderEpoch cluster.LeaderEpoch
	// Batches holds the record batches at [Position, Position+Bytes). It is
	// read by Build, and again while the body is uploaded.
	Batches         io.ReaderAt
	Position, Bytes int64
	// Aborted are the aborted transactions that overlap [Base, End), all of
	// them decided (I6). Those that do not overlap are left out.
	Aborted []producerstate.AbortedTxn
	// ProducerSnapshot is the producer state at End, in Kafka's snapshot
	// format; may be empty.
	ProducerSnapshot []byte
	// Epochs is the leader epoch list of the log up to End; entries that
	// start at or past End are left out. Those before Base are kept: they
	// are what a reader with this object alone knows of older epochs.
	Epochs []leaderepoch.Entry
	// Created is written into the footer.
	Created time.Time
}
