// Package controller decides what changes in the cluster: pure rules from (an
// image with the controller's own commands in flight, a request or a tick, the
// time) to commands and an answer.
//
// Owns: validation and outcomes of every request of package request, replica
// placement, leader election, sessions and fencing of brokers. May not touch:
// files, sockets, Raft, clocks. Goroutines: none; one goroutine of the node
// drives a Controller, which is not safe for concurrent use.
//
// # How it is driven
//
// When the node becomes leader of the quorum it calls Start with the committed
// image and proposes what that returns. Then, until the tenure ends: Handle for
// every request, Tick every TickInterval, Committed whenever a newer image was
// committed. Each returns an Output whose commands are proposed in order and
// whose Reply is called with the image in which all of them are applied; it has
// then the final answer. When any proposal fails or any command is refused at
// apply, the node calls Reset with the committed image: all that was in flight
// is forgotten, and its waiting requests answer request.ErrOutcomeUnknown.
// Stop ends the tenure.
//
// # Invariants
//
//   - N1 Records follow from the image with everything in flight applied, so
//     that a command that arrives in order is never refused.
//   - N2 Work that takes several commands is resumed from the image alone: a
//     partition led by, or in the ISR of, a fenced broker is work; so is a
//     leaderless partition with an eligible replica.
//   - N3 A broker is unfenced only when no partition is led by it or has it in
//     its ISR from before its registration, and none in its ELR after an
//     unclean stop.
//   - N4 A leader epoch rises whenever the leader changes, to none included.
//   - N5 Validate-only runs the same checks as the real request.
//
// Errors: *request.Error with one of that package's sentinels.
package controller
