package locallog

import (
	"context"
	"time"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Log is one replica's log.
type Log struct{}

// AppendInfo describes an append.
type AppendInfo struct {
	// First and Last are the offsets of the first and last record.
	First, Last cluster.Offset
	// MaxTimestamp is the greatest batch timestamp, OffsetOfMax the last offset
	// of the batch that has it.
	MaxTimestamp int64
	OffsetOfMax  cluster.Offset
	// LeaderEpoch is the last batch's.
	LeaderEpoch cluster.LeaderEpoch
	// Batches is how many there were.
	Batches int
	// Rolled says that the append began a new segment: a sealed one may wait for
	// a Flush and for the archive.
	Rolled bool
}

// Slice is a range of the log, ready to be sent.
type Slice struct {
	// Regions hold whole batches in offset order. Release them.
	Regions []disk.Region
	Bytes   int64
	// NextOffset is one past the last batch's last record; the asked offset where
	// the slice is empty.
	NextOffset cluster.Offset
}

// Release gives back the regions.
func (s *Slice) Release() {}

// SegmentInfo describes a segment as it is now.
type SegmentInfo struct {
	// Base is the name; Next is exclusive: the next segment's base, or the log's end.
	Base, Next cluster.Offset
	Bytes      int64
	// MaxTimestamp is the greatest timestamp in it, -1 where it has none.
	MaxTimestamp int64
	// Created is when its first batch was written, as far as is known; the time
	// of the last write after a restart.
	Created time.Time
	// Modified is when it was last written.
	Modified time.Time
	Sealed   bool
}

// Found is a record, or rather its offset, found by its timestamp.
type Found struct {
	Offset      cluster.Offset
	Timestamp   int64
	LeaderEpoch cluster.LeaderEpoch
}

// BatchInfo is where the batch lies that holds an offset.
type BatchInfo struct {
	Base, Next   cluster.Offset
	SegmentBase  cluster.Offset
	Position     int64
	Bytes        int64
	LeaderEpoch  cluster.LeaderEpoch
	MaxTimestamp int64
}

// SealedView holds a sealed segment open, with all that an archive needs. The
// file stays readable until Release, whatever happens to the log.
type SealedView struct {
	SegmentInfo
	// Handle is the .log file; the view holds one reference.
	Handle *disk.Handle
	// OffsetOfMaxTimestamp is the last offset of the batch with MaxTimestamp.
	OffsetOfMaxTimestamp cluster.Offset
	// Epochs are the leader epochs of the segment's records, the first one
	// starting at Base at the earliest.
	Epochs []leaderepoch.Entry
	// Aborted are the aborted transactions whose marker is in the segment.
	Aborted []producerstate.AbortedTxn
	// ProducerSnapshot is the producer state at Next in Kafka's snapshot format.
	ProducerSnapshot []byte
}


// Release gives the file back. Idempotent.
func (v *SealedView) Release() {}

// Recent knows how much of what was written last is certainly in the page cache.
type Recent struct{}

// NewRecent takes windowBytes (64 MiB where 0) written last, by all logs that
// share it, as resident.
func NewRecent(windowBytes int64) *Recent { panic("not yet") }

// Open opens the log in cfg.Dir, making folder and first segment (at LogStart,
// or 0) where there are none, and recovering it unless the stop was clean.
func Open(cfg Config) (*Log, error) { panic("not yet") }

// Close closes the log; with clean it first flushes, writes the producer
// snapshot and the indexes, so that the next Open may be told CleanStop. Its
// error means that the stop was not clean. Idempotent.
func (l *Log) Close(clean bool) error { panic("not yet") }

// SetSettings changes the settings of the open log.
func (l *Log) SetSettings(s Settings) { panic("not yet") }

// Append writes whole v2 batches whose offsets and leader epochs are assigned,
// in one write; it rolls first where needed. It enters new leader epochs in the
// epoch list and updates the producer state itself (the caller only checks). The
// batches are not kept. On ErrNoSpace and ErrBadAppend the log is unchanged.
func (l *Log) Append(batches []byte) (AppendInfo, error) { panic("not yet") }

// StartOffset is the first offset of the log, local or not (inclusive).
func (l *Log) StartOffset() cluster.Offset { panic("not yet") }

// LocalStartOffset is the first offset that Read serves (inclusive).
func (l *Log) LocalStartOffset() cluster.Offset { panic("not yet") }

// EndOffset is the next offset to be written (exclusive).
func (l *Log) EndOffset() cluster.Offset { panic("not yet") }

// FlushedOffset is the bound (exclusive) of what survives a power loss (L2).
func (l *Log) FlushedOffset() cluster.Offset { panic("not yet") }

// ActiveBase is the base offset of the segment being written.
func (l *Log) ActiveBase() cluster.Offset { panic("not yet") }

// SetStartOffset moves the log start up; epochs below it are forgotten. It
// persists nothing but what derives from it. A lower value is ignored.
func (l *Log) SetStartOffset(o cluster.Offset) { panic("not yet") }

// Read returns whole batches from the one that reaches past from, all of them
// below bound (exclusive: high watermark, last stable or end offset), of at most
// maxBytes together, or one batch of any size where minOne. An offset at or past
// the bound and not past the end gives an empty slice.
func (l *Log) Read(from, bound cluster.Offset, maxBytes int, minOne bool) (Slice, error) {
	panic("not yet")
}

// FindBatch tells where the first batch lies that reaches past o.
func (l *Log) FindBatch(o cluster.Offset) (BatchInfo, error) { panic("not yet") }

// Roll seals the active segment and begins the next, unless the active one is
// empty. It syncs no data: Flush does, with what was sealed.
func (l *Log) Roll() (bool, error) { panic("not yet") }

// RollIfDue rolls where the active segment has been open for SegmentAge by the
// clock, idle or not.
func (l *Log) RollIfDue(now time.Time) (bool, error) { panic("not yet") }

// Flush makes everything appended before the call durable and moves
// FlushedOffset; concurrent callers share one sync. ctx bounds the wait for
// another caller's sync only.
func (l *Log) Flush(ctx context.Context) error { panic("not yet") }

// FlushDue says that FlushMessages or FlushInterval ask for a Flush.
func (l *Log) FlushDue(now time.Time) bool { panic("not yet") }

// FlushNeeded says that something was appended or sealed and not flushed.
func (l *Log) FlushNeeded() bool { panic("not yet") }

// DeleteSealedBelow removes the sealed segments that lie below o wholly: they
// are gone for readers at once, and their files after FileDeleteDelay.
func (l *Log) DeleteSealedBelow(o cluster.Offset) (removed int, bytes int64, err error) {
	panic("not yet")
}

// RunDeferred removes the files whose delay has passed, and tells when the next
// is due (zero: none).
func (l *Log) RunDeferred(now time.Time) (next time.Time, err error) { panic("not yet") }

// Segments describes all segments in offset order, the active one last.
func (l *Log) Segments() []SegmentInfo { panic("not yet") }

// Bytes is the size of all segments together.
func (l *Log) Bytes() int64 { panic("not yet") }

// Sealed opens a view of the sealed segment with that base offset; ErrNoSegment.
func (l *Log) Sealed(base cluster.Offset) (*SealedView, error) { panic("not yet") }

// OffsetForTimestamp finds the first local record at or above the log start and
// below bound whose timestamp is at least ts.
func (l *Log) OffsetForTimestamp(ts int64, bound cluster.Offset) (Found, bool, error) {
	panic("not yet")
}

// MaxTimestamp finds the first local record below bound with the greatest timestamp.
func (l *Log) MaxTimestamp(bound cluster.Offset) (Found, bool, error) { panic("not yet") }

// AssignEpoch enters that a leader epoch starts at the end offset: in memory; the
// file follows with the first Flush after the epoch's first append.
func (l *Log) AssignEpoch(e cluster.LeaderEpoch) { panic("not yet") }

// LatestEpoch is the newest epoch entered.
func (l *Log) LatestEpoch() (leaderepoch.Entry, bool) { panic("not yet") }

// EpochEnd answers OffsetForLeaderEpoch, see leaderepoch.List.EndOffset.
func (l *Log) EpochEnd(e cluster.LeaderEpoch) (found cluster.LeaderEpoch, end cluster.Offset, ok bool) {
	panic("not yet")
}

// EpochAt is the leader epoch of the record at o.
func (l *Log) EpochAt(o cluster.Offset) (cluster.LeaderEpoch, bool) { panic("not yet") }

// Epochs is a copy of the list.
func (l *Log) Epochs() *leaderepoch.List { panic("not yet") }

// Producers is the producer state at the end offset; for the writer only, which
// checks with it and lets Append update it.
func (l *Log) Producers() *producerstate.Manager { panic("not yet") }

// AbortedTxns lists the aborted transactions that overlap from (inclusive) to to
// (exclusive), as a read-committed consumer needs them.
func (l *Log) AbortedTxns(from, to cluster.Offset) ([]producerstate.AbortedTxn, error) {
	panic("not yet")
}

// TruncateTo removes everything from end on; a batch that end cuts goes too.
// Whoever persists the recovery point first lowers it to end.
func (l *Log) TruncateTo(end cluster.Offset) error { panic("not yet") }

// Reset removes everything and starts afresh at an offset with the given epochs
// and producer state (nil: none), as after finding the rest in a remote tier.
func (l *Log) Reset(start cluster.Offset, epochs []leaderepoch.Entry, snapshot []byte) error {
	panic("not yet")
}

// Err is why the log is offline, or nil.
func (l *Log) Err() error { panic("not yet") }
