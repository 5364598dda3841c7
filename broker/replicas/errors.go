package replicas

import (
	"errors"
	"fmt"
)

var (
	// ErrUnknownPartition: no replica of the partition is hosted here.
	ErrUnknownPartition = errors.New("no replica of the partition here")
	// ErrOffline: the replica's log or log directory has failed.
	ErrOffline = errors.New("replica is offline")
	// ErrClosed: the manager is closed or not started.
	ErrClosed = errors.New("replica manager closed")
)

// DirError refuses a log directory at start. The process exits 3 on it.
type DirError struct {
	Dir    string
	Reason string // a sentence
	Remedy string // a sentence, may be empty
	Cause  error  // may be nil
}

func (e *DirError) Error() string {
	s := fmt.Sprintf("log directory %s: %s", e.Dir, e.Reason)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

func (e *DirError) Unwrap() error { return e.Cause }
