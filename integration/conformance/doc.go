// Package conformance holds the tests of the server's contract with people and
// scripts: start-up, refusals with their exit codes and sentences, readiness,
// shutdown, bad input over the socket. It owns no code that runs outside tests.
package conformance
