// Package request holds what a broker asks of the controller and what it is
// answered: values only, so that the data plane and the tier can speak of
// changes without knowing the controller, the command codec or Raft.
//
// Owns: the request and result types, and the sentinel errors of refused
// requests. May not touch: images, files, sockets. Goroutines: none.
//
// Errors: a refused request answers one of the sentinels below, wrapped with a
// sentence for a person. ErrOutcomeUnknown and ErrNotController are retriable:
// the change may or may not have happened, respectively has not.
package request
