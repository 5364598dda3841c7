// Package cost counts what a request costs a running server: the allocations of
// its process and the system calls that it makes, both over a real socket and
// down to the file. Counts, unlike times, do not depend on the machine, so each
// has a bound here that fails the build; docs/performance.md has the figures.
//
// It holds tests alone, and does not run with the race detector, which allocates
// too.
package cost
