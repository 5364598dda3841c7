// Package lifecycle keeps a broker registered with the controller: it registers
// an incarnation, sends heartbeats, learns when it is unfenced, and asks to be
// shut down.
//
// Owns: machine, the pure rules of what to send next and what an answer means,
// and Lifecycle, the shell that sends it.
//
// May not touch: replicas (told through Config.Activate), sockets, files.
//
// # Goroutines
//
// One, which sends; Close ends it.
//
// # Invariants
//
//   - F1 At most one request is under way; a registration that may have happened
//     is repeated with the same incarnation.
//   - F2 A broker epoch, once learnt, never changes: a heartbeat that is refused
//     for it means that another process took the node's place, and Failed says so.
//   - F3 The broker is unfenced only by an answer to a heartbeat that said that
//     the image of its registration was applied.
//
// Errors: ErrReplaced, ErrNotRegistered.
package lifecycle
