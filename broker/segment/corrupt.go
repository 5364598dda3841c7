package segment

import (
	"errors"
	"fmt"
)

// CorruptError says which file is wrong, where, and in what way.
type CorruptError struct {
	File string
	// Position is where the thing starts that is wrong.
	Position int64
	Cause    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: corrupt at position %d: %v", e.File, e.Position, e.Cause)
}

func (e *CorruptError) Unwrap() error { return e.Cause }

// Causes of a CorruptError besides those of the packages that decode the bytes.
var (
	// ErrPartialEntry: an index whose size is no multiple of its entries' size.
	ErrPartialEntry = errors.New("partial index entry")
	// ErrUnordered: entries or batches that do not rise.
	ErrUnordered = errors.New("out of order")
	// ErrPastLog: an index entry that points past its log.
	ErrPastLog = errors.New("points past the log")
	// ErrTornTail: the file ends within a batch.
	ErrTornTail = errors.New("file ends within a batch")
	// ErrBadVersion: a transaction index entry of an unknown version.
	ErrBadVersion = errors.New("unknown entry version")
)
