// Package faultstore is an objstore.Store that fails on request: a double for
// tests, and for the simulation. Without a rule it is the store that it wraps.
//
// Owns: rules and the counting of calls. May not touch: what a rule does not
// match. Goroutines: none.
//
// It injects, by verb, key pattern and number of the matching call: an error
// instead of the call or after it took effect, a delay, a hang until the caller
// gives up, a body of Get that breaks off. It does not inject wrong bytes, lost
// objects, or violated conditions: no store that we support does that.
package faultstore
