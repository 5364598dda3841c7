// Package objstoretest is the acceptance suite that every object store driver
// and double passes, and what tests need to run against a real MinIO: Run,
// StartMinIO, and Proxy, which stands between a driver and its store and
// misbehaves on request. It is imported by tests only.
//
// Goroutines: those of the servers it starts, ended by the test's cleanup.
package objstoretest
