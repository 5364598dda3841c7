package coordinator

import "errors"

// Outcomes of Do, Read and Tx.Then.
var (
	// ErrNotCoordinator: this broker does not lead the partition. In Tx.Then and
	// Unload: it lost it, or has to begin anew, before it is known that what was
	// appended is committed, which may still survive.
	ErrNotCoordinator = errors.New("not the coordinator of the partition")
	// ErrLoading: this broker leads the partition and has not loaded it yet;
	// retriable.
	ErrLoading = errors.New("coordinator is loading the partition")
	// ErrBusy: as many events wait for the partition as may; retriable. Nothing
	// was taken.
	ErrBusy = errors.New("coordinator has too many events waiting")
	// ErrTooLarge: what one event appends does not fit one batch.
	ErrTooLarge = errors.New("records of one event are larger than a batch may be")
	// ErrClosed: the runtime is closed.
	ErrClosed = errors.New("coordinator is closed")
)

// errReplaced ends a tenure whose view must be built again; another one begins.
var errReplaced = errors.New("the view is built again")

// errTurn: a replica of the same partition that was here before has not let go of
// the view yet.
var errTurn = errors.New("the view is still in use")

// errContradiction: a view that was just built again from its log is not one of
// it. It is tried again later, not at once.
var errContradiction = errors.New("the log contradicts itself")

// errEnded: the tenure is over.
var errEnded = errors.New("the tenure is over")
