package locallog

import (
	"log/slog"
	"time"

	"strandline/broker/producerstate"
	"strandline/metadata/cluster"
	"strandline/metadata/disk"
)

// Names of the steps that Config.Hook is told of.
const (
	// StepAppend: the batches are written, nothing else knows of them yet.
	StepAppend = "append"
	// StepRoll: the new segment's files exist, the log does not use them yet.
	StepRoll = "roll"
	// StepLocalTrim: some of a sealed segment's files are renamed, some not.
	StepLocalTrim = "local-trim"
	// StepRecovery: one segment was scanned, cut and indexed again; more follow.
	StepRecovery = "recovery"
	// StepRewriteCleaned: rewritten segments are durable and do not count yet.
	StepRewriteCleaned = "rewrite-cleaned"
	// StepRewriteSwap: they count, the old ones still have their names.
	StepRewriteSwap = "rewrite-swap"
	// StepRewriteReplace: some of an old segment's files are renamed, some not.
	StepRewriteReplace = "rewrite-replace"
)

// Config says where a log is and what is known about it.
type Config struct {
	FS disk.FS
	// Dir is the partition's folder, <topic>-<partition>.
	Dir string
	// Partition is a name for messages.
	Partition string
	Settings  Settings
	// RecoveryPoint is the offset up to which (exclusive) everything is known to
	// be durable: the last FlushedOffset that was persisted. After an unclean stop
	// what lies past it is scanned. A log that ends below it does not open.
	RecoveryPoint cluster.Offset
	// CleanStop says that the log was closed with Close(true) and that everything
	// has been synced since.
	CleanStop bool
	// Rewrite says that the log is opened again after it failed in this process:
	// what is past the recovery point is written once more, since a failed sync
	// leaves pages that look written and are not.
	Rewrite bool
	// LogStart is the persisted log start offset, or NoOffset.
	LogStart cluster.Offset
	// RemoteBelow says that offsets below the first local segment may be in a
	// remote tier: without it the log starts at its first local segment at the
	// earliest, with it LogStart may lie below.
	RemoteBelow bool
	// RemoteEnd is one past the last offset that is known to be in the remote tier,
	// or 0.
	RemoteEnd cluster.Offset
	// FolderSync makes durable what a new folder needs besides the log's own
	// files, before anything in it counts as durable. Nil: nothing.
	FolderSync func() error
	// Producers configures the producer state.
	Producers producerstate.Config
	// Handles keeps sealed segments' descriptors; shared between logs of one FS.
	// Where nil the log has a small one of its own.
	Handles *disk.HandleCache
	// Recent tells which regions are in the page cache for sure; shared between
	// the logs of a machine. Where nil the log has one of its own.
	Recent *Recent
	// Now is the clock; nil means time.Now.
	Now    func() time.Time
	Logger *slog.Logger
	// Hook is told of named steps (Step...) while they are half done, so that a
	// test can stop the process there. Nil in production.
	Hook func(step string)
}

// Settings are what may change while the log is open.
type Settings struct {
	// SegmentBytes is the size at which the active segment is sealed. A larger
	// append gets a segment of its own.
	SegmentBytes int64
	// SegmentAge is how long after its first batch a segment is sealed, by the
	// batches' timestamps on append and by the clock in RollIfDue.
	SegmentAge time.Duration
	// SegmentJitter is how much of SegmentAge is taken off at random per segment.
	SegmentJitter time.Duration
	// IndexBytes bounds the offset index and the time index of a segment each.
	IndexBytes int
	// IndexIntervalBytes is how much log lies between two index entries.
	IndexIntervalBytes int
	// FlushMessages and FlushInterval are when FlushDue says so: after that many
	// offsets, or that long after the first one, not yet flushed. Zero: never.
	FlushMessages int64
	FlushInterval time.Duration
	// FileDeleteDelay is how long a removed segment's files keep lying there under
	// a name that ends in .deleted.
	FileDeleteDelay time.Duration
}

// DefaultSettings are Kafka's defaults.
func DefaultSettings() Settings {
	return Settings{
		SegmentBytes:       1 << 30,
		SegmentAge:         7 * 24 * time.Hour,
		IndexBytes:         10 << 20,
		IndexIntervalBytes: 4096,
		FileDeleteDelay:    time.Minute,
	}
}
