// Package tiercases holds end-to-end tests of retention, the tier and operations
// that come from what went wrong in other brokers: the built binary, a directory
// or MinIO as its store, and a proxy in between that makes the store misbehave.
package tiercases
