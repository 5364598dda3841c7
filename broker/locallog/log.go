package locallog

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"strandline/broker/leaderepoch"
	"strandline/broker/producerstate"
	"strandline/broker/segment"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// ownHandlesLimit is the size of a log's own handle cache, where none is shared.
const ownHandlesLimit = 16

// Log is one replica's log.
type Log struct {
	config     Config
	where      segment.Where
	ownHandles *disk.HandleCache
	recent     *Recent
	settings   atomic.Pointer[Settings]

	// missing is what Open found.
	missing []Missing
	// segments is replaced as a whole, so that readers need no lock.
	segments atomic.Pointer[segments]

	start, end, flushed atomic.Int64 // offsets; flushed <= end
	failure             atomic.Pointer[error]
	closed              atomic.Bool
	closeErr            error

	// Of the writer alone.
	producers *producerstate.Manager
	lastEpoch cluster.LeaderEpoch // the list's latest
	jitter    time.Duration       // of the active segment
	// loadedSnapshot is the offset of a snapshot that was loaded, or NoOffset: where
	// it is the log's end none has to be written.
	loadedSnapshot cluster.Offset
	// While opening: how far producers has come, and that the epochs are not known.
	producersEnd cluster.Offset
	epochsLost   bool
	// scanEpoch is the leader epoch of the batch before the one that a scan comes to,
	// where scanning says that the scan came to that one too; epochsLie that batches
	// have other epochs than the file tells.
	scanEpoch           cluster.LeaderEpoch
	scanning, epochsLie bool
	// unsyncedFrom is the base of the first segment that was recovered and not
	// synced, or NoOffset.
	unsyncedFrom cluster.Offset

	// remaking is held while a transaction index is made anew.
	remaking sync.Mutex

	mu struct {
		sync.Mutex
		epochs      leaderepoch.List
		epochsDirty bool // the file may be behind
		epochsFile  []byte
		// folderBehind says that names in the folder may not be durable.
		folderBehind bool
		// unsynced are sealed segments with data or indexes that no sync covers.
		unsynced       []unsynced
		snapshots      []cluster.Offset // those on disk, rising
		flight         *flight
		unflushedSince time.Time
		deferred       []removal
		compaction     compaction
	}
}

// segments is the row of segments at one time, the active one last.
type segments struct {
	row []*segment.Segment
	// replaced is closed once another row has taken its place.
	replaced chan struct{}
}

func (s *segments) active() *segment.Segment { return s.row[len(s.row)-1] }
func (s *segments) first() *segment.Segment  { return s.row[0] }

// at is the index of the last segment whose base is at or below o; the first
// where there is none.
func (s *segments) at(o cluster.Offset) int {
	lo, hi := 0, len(s.row)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; s.row[mid].Base() <= o {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

func (l *Log) publish(row []*segment.Segment) {
	old := l.segments.Swap(&segments{row: row, replaced: make(chan struct{})})
	if old != nil {
		close(old.replaced)
	}
}

func (l *Log) active() *segment.Segment { return l.segments.Load().active() }

func (l *Log) now() time.Time { return l.config.Now() }

func (l *Log) hook(step string) {
	if l.config.Hook != nil {
		l.config.Hook(step)
	}
}

func (l *Log) logger() *slog.Logger {
	return l.config.Logger.With("partition", l.config.Partition, "dir", l.config.Dir)
}

// SetSettings changes the settings of the open log.
func (l *Log) SetSettings(s Settings) { l.settings.Store(&s) }

// StartOffset is the first offset of the log, local or not (inclusive).
func (l *Log) StartOffset() cluster.Offset { return cluster.Offset(l.start.Load()) }

// LocalStartOffset is the first offset that Read serves (inclusive).
func (l *Log) LocalStartOffset() cluster.Offset {
	return max(l.StartOffset(), l.segments.Load().first().Base())
}

// EndOffset is the next offset to be written (exclusive).
func (l *Log) EndOffset() cluster.Offset { return cluster.Offset(l.end.Load()) }

// FlushedOffset is the bound (exclusive) of what survives a power loss (L2).
func (l *Log) FlushedOffset() cluster.Offset { return cluster.Offset(l.flushed.Load()) }

// ActiveBase is the base offset of the segment being written.
func (l *Log) ActiveBase() cluster.Offset { return l.active().Base() }

// SetStartOffset moves the log start up; epochs below it are forgotten. It
// persists nothing but what derives from it. A lower value is ignored.
func (l *Log) SetStartOffset(o cluster.Offset) {
	if o <= l.StartOffset() {
		return
	}
	l.start.Store(int64(o))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.epochs.TruncateFromStart(o) {
		l.mu.epochsDirty = true
	}
}

// Err is why the log is offline, or nil.
func (l *Log) Err() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// usable is the error of every call on a log that is closed or offline.
func (l *Log) usable() error {
	if l.closed.Load() {
		return ErrClosed
	}
	return l.Err()
}

// fail takes the log offline, the first time with that reason.
func (l *Log) fail(doing string, cause error) error {
	err := fmt.Errorf("%w: %s: %s: %w", ErrStorage, l.config.Partition, doing, cause)
	if l.failure.CompareAndSwap(nil, &err) {
		l.logger().Error("log is offline", "doing", doing, "error", cause)
	}
	if s := l.segments.Load(); s != nil {
		l.publish(s.row) // wakes readers that wait for a change
	}
	return l.Err()
}

// noSpace says that a write was refused for want of room, and that nothing else
// is wrong with the file.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// SegmentInfo describes a segment as it is now.
type SegmentInfo struct {
	// Base is the name; Next is exclusive: the next segment's base, or the log's end.
	Base, Next cluster.Offset
	Bytes      int64
	// MaxTimestamp is the greatest timestamp in it, -1 where it has none.
	MaxTimestamp int64
	// Created is when its first batch was written, as far as is known: after a
	// restart that batch's timestamp, or the time of the last write if earlier.
	Created time.Time
	// Modified is when it was last written.
	Modified time.Time
	Sealed   bool
}

func infoOf(s *segment.Segment) SegmentInfo {
	i := s.Info()
	return SegmentInfo{
		Base: i.Base, Next: i.Next, Bytes: i.Bytes, MaxTimestamp: i.MaxTimestamp,
		Created: i.Created, Modified: i.Modified, Sealed: i.Sealed,
	}
}

// Segments describes all segments in offset order, the active one last.
func (l *Log) Segments() []SegmentInfo {
	row := l.segments.Load().row
	out := make([]SegmentInfo, len(row))
	for i, s := range row {
		out[i] = infoOf(s)
	}
	return out
}

// Bytes is the size of all segments together.
func (l *Log) Bytes() int64 {
	var n int64
	for _, s := range l.segments.Load().row {
		n += s.Bytes()
	}
	return n
}

// Recent knows how much of what was written last is certainly in the page cache.
type Recent struct {
	windowBytes int64
	total       atomic.Int64
}

// DefaultRecentBytes is the window of NewRecent(0).
const DefaultRecentBytes = 64 << 20

// NewRecent takes windowBytes (DefaultRecentBytes where 0) written last, by all
// logs that share it, as resident.
func NewRecent(windowBytes int64) *Recent {
	if windowBytes <= 0 {
		windowBytes = DefaultRecentBytes
	}
	return &Recent{windowBytes: windowBytes}
}

// add counts bytes written and returns the count before.
func (r *Recent) add(n int) int64 { return r.total.Add(int64(n)) - int64(n) }

// since is the count from which on what was written is resident.
func (r *Recent) since() int64 { return r.total.Load() - r.windowBytes }
