package objstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Error classes. Every error of a Store wraps one of them, so callers switch on
// errors.Is; IsRetriable answers the usual question.
var (
	ErrNotFound    = errors.New("no such object")
	ErrExists      = errors.New("the object exists already")
	ErrAccess      = errors.New("access denied")
	ErrNoBucket    = errors.New("no such bucket")
	ErrRange       = errors.New("range outside the object")
	ErrInvalidKey  = errors.New("not a valid object key")
	ErrInvalid     = errors.New("the store refused the request as invalid")
	ErrChecksum    = errors.New("checksum does not match")
	ErrThrottled   = errors.New("the store asks to slow down")
	ErrUnavailable = errors.New("the store cannot be reached or failed")
	ErrStalled     = errors.New("no progress within the time allowed")
	ErrConflict    = errors.New("a conflicting request is under way")
	ErrFull        = errors.New("no space left in the store")
	ErrClosed      = errors.New("the store is closed")
	ErrInvalidURL  = errors.New("not a valid store URL")
)

// Error is a failed operation, with what a person needs to act on it.
type Error struct {
	Op       Verb
	Key      string // empty where the operation has none or many
	Endpoint string
	Bucket   string
	// Class is one of the sentinels above.
	Class error
	// Cause is what the driver saw; may be nil.
	Cause error
	// Remedy is a sentence that says what to do; may be empty.
	Remedy string
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", e.Op)
	if e.Key != "" {
		fmt.Fprintf(&b, " %q", e.Key)
	}
	if e.Bucket != "" {
		fmt.Fprintf(&b, " in %s", e.Bucket)
	}
	if e.Endpoint != "" {
		fmt.Fprintf(&b, " at %s", e.Endpoint)
	}
	fmt.Fprintf(&b, ": %v", e.Class)
	if e.Cause != nil {
		fmt.Fprintf(&b, " (%v)", e.Cause)
	}
	if e.Remedy != "" {
		fmt.Fprintf(&b, "; %s", e.Remedy)
	}
	return b.String()
}

// Unwrap gives errors.Is both the class and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Cause}
}

// IsRetriable reports whether the same call may succeed later with nothing
// changed by a person. A call that its own caller cancelled is not.
func IsRetriable(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Class {
	case ErrThrottled, ErrUnavailable, ErrStalled, ErrConflict, ErrChecksum, ErrFull:
		return !errors.Is(err, context.Canceled)
	}
	return false
}

// Remedy returns what a person can do about err, or "".
func Remedy(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Remedy
	}
	return ""
}
