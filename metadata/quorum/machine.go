package quorum

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// Machine is the state that the commands change.
type Machine interface {
	// Apply takes a committed command. It is called from one goroutine, in
	// the order of the indexes, which have gaps. It is called again for
	// commands that the machine has applied, after a restart; it must ignore
	// them. Data is the caller's. What it returns is the proposal's answer.
	Apply(index, term uint64, data []byte) any

	// Checkpoint makes dir, which does not exist, a durable copy of the
	// state, and returns the index of the last command applied in it. When
	// it returns the state itself is durable up to there. It runs beside
	// Apply, on another goroutine.
	Checkpoint(dir string) (applied uint64, err error)

	// Restore replaces the state by the copy in dir, durably, leaving dir as
	// it is. It runs on Apply's goroutine, or before Start on the caller's.
	Restore(dir string) error

	// Applied is the index of the last command applied.
	Applied() uint64
}

// fsm is the bridge from Raft to the machine.
type fsm struct{ machine Machine }

var _ raft.FSM = (*fsm)(nil)

func (f *fsm) Apply(l *raft.Log) any { return f.machine.Apply(l.Index, l.Term, l.Data) }

func (f *fsm) Snapshot() (raft.FSMSnapshot, error) { return &fsmSnapshot{machine: f.machine}, nil }

// Restore takes the folder behind the reader, not the bytes.
func (f *fsm) Restore(rc io.ReadCloser) error {
	inner := rc
	for {
		if r, ok := inner.(*snapshotReader); ok {
			return f.machine.Restore(r.dir)
		}
		w, ok := inner.(raft.ReadCloserWrapper)
		if !ok {
			return fmt.Errorf("snapshot of a foreign kind: %T", inner)
		}
		inner = w.WrappedReadCloser()
	}
}

// fsmSnapshot is taken when Raft asks for the bytes: the checkpoint may hold
// commands after the snapshot's index, which the machine then ignores.
type fsmSnapshot struct{ machine Machine }

func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	k, ok := sink.(*snapshotSink)
	if !ok {
		return fmt.Errorf("snapshot sink of a foreign kind: %T", sink)
	}
	return k.fromCheckpoint(s.machine.Checkpoint)
}

func (s *fsmSnapshot) Release() {}
