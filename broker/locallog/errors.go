package locallog

import "errors"

var (
	// ErrOffsetOutOfRange: the offset is below the log's start or past its end.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrNotLocal: the offset is in the log, but below the first local segment.
	ErrNotLocal = errors.New("offset is not on the local disk")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("log is closed")
	// ErrStorage: a write or sync failed. Sticky: the log stays offline until it
	// is closed and opened again.
	ErrStorage = errors.New("log storage failed")
	// ErrNoSpace: the disk is full and nothing was written. The log stays usable.
	ErrNoSpace = errors.New("no space for the log")
	// ErrNoDescriptor: there was no file descriptor left, and nothing was written.
	// The log stays usable.
	ErrNoDescriptor = errors.New("no file descriptor for the log")
	// ErrBadAppend: the batches are not whole, not in order, or below the end
	// offset. The caller has a bug; the log is unchanged.
	ErrBadAppend = errors.New("batches do not continue the log")
	// ErrRewrite: a file of a rewrite could not be written. The log is as it was.
	ErrRewrite = errors.New("segment could not be rewritten")
	// ErrNoSegment: there is no sealed local segment with that base offset.
	ErrNoSegment = errors.New("no such sealed segment")
)
