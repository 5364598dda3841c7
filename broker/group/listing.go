package group

import (
	"slices"
	"strings"
)

// ListFilter selects groups; an empty list selects all. States and types are
// compared without regard to case; a word that names none selects none.
type ListFilter struct {
	States []State
	Types  []Type
}

// Listed is a group as ListGroups shows it.
type Listed struct {
	GroupID string
	// ProtocolType is "" for a group that only ever committed offsets.
	ProtocolType string
	State        State
	Type         Type
}

// Selects says whether the filter selects the group.
func (f ListFilter) Selects(l Listed) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, l.State)) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, l.Type))
}

// ParseState reads the name of a state, of any case. An unknown one is returned
// as it is, and equals no state of a group.
func ParseState(name string) State {
	for _, s := range []State{Empty, PreparingRebalance, CompletingRebalance, Assigning, Reconciling, Stable, Dead} {
		if strings.EqualFold(string(s), name) {
			return s
		}
	}
	return State(name)
}

// ParseType reads the name of a type, of any case. An unknown one is returned as
// it is, and equals no type of a group.
func ParseType(name string) Type {
	for _, t := range []Type{Classic, Consumer} {
		if strings.EqualFold(string(t), name) {
			return t
		}
	}
	return Type(name)
}
