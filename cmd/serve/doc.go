// Package serve puts one node together from its configuration: metadata plane,
// data plane and tier, joined through the ports that each declares, with the
// order of start and stop.
//
// Owns: reading configuration from files, environment and flags; the wiring;
// the order in which parts start and stop; the ready line, the ready file and
// the banner; what the admin listener answers. May not touch: rules of any
// kind, which belong to the parts.
//
// Goroutines: one for each part that needs one started, all ended by Close.
//
// Files: the ready file. Everything else belongs to the parts.
//
// Errors: ExitError carries the exit code that the contract names.
package serve
