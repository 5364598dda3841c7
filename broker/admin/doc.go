// Package admin is the HTTP side of a node: liveness, readiness, metrics,
// profiles, and whatever status handlers it is given.
//
// Owns: the admin listeners and the paths /livez, /readyz, /metrics and
// /debug/pprof/. May not touch: anything of ours; what it shows is handed in.
//
// Goroutines: one per listener and those of net/http; Close ends them.
//
// Errors: ErrListen where an address cannot be bound, ErrAddress where a URL of
// admin.listeners is none.
//
// Limits: MaxConnections requests at once, a header of 64 KiB, headers within
// 10 s, idle connections for 2 minutes. Responses have no deadline, since a
// profile takes as long as it is asked to.
package admin
