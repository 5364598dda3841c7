package segmentobject

import (
	"errors"
	"fmt"
)

// ErrCorrupt is matched by every *CorruptError.
var ErrCorrupt = errors.New("corrupt segment object")

// ErrVersion is an object of a format that this program is too old for.
var ErrVersion = errors.New("segment object of a newer format")

// ErrSource is a Source that contradicts itself.
var ErrSource = errors.New("not a valid source of a segment object")

// CorruptError says which bytes are wrong. It is never retried, and nothing that
// it is about is served or deleted.
type CorruptError struct {
	// Key of the object; empty for a segment that was to become one.
	Key string
	// Position in the object; in the segment it is the same.
	Position int64
	Cause    error
}

func (e *CorruptError) Error() string {
	what := e.Key
	if what == "" {
		what = "the local segment"
	}
	return fmt.Sprintf("%v: %s at byte %d: %v", ErrCorrupt, what, e.Position, e.Cause)
}

// Unwrap matches ErrCorrupt and the cause.
func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Cause} }

func corrupt(key string, position int64, format string, a ...any) error {
	return &CorruptError{Key: key, Position: position, Cause: fmt.Errorf(format, a...)}
}
