package quorum

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

var (
	// ErrNotLeader says that the change did not and will not happen.
	ErrNotLeader = errors.New("this node does not lead the metadata quorum")
	// ErrOutcomeUnknown says that the change may or may not happen yet.
	ErrOutcomeUnknown = errors.New("leadership of the metadata quorum was lost; the outcome is not known")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("metadata quorum is closed")
)

// CorruptError says that a file or entry of the quorum cannot be read.
type CorruptError struct {
	Name     string // file, or "raft log entry N"
	Position int64  // in it
	Cause    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is corrupt at byte %d: %v", e.Name, e.Position, e.Cause)
}

func (e *CorruptError) Unwrap() error { return e.Cause }

// outcome translates Raft's errors of a proposal.
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrNotVoter):
		return fmt.Errorf("%w (%w)", ErrNotLeader, err)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrAbortedByRestore),
		errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w (%w)", ErrOutcomeUnknown, err)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}
