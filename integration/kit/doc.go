// Package kit starts the processes that integration tests talk to: the built
// binary, MinIO, kcat, Apache Kafka's tools; and says, once and visibly, which
// of them this machine lacks.
//
// It owns the processes that it starts: each ends with the test that asked for
// it. Everything listens on loopback, on ports that the system chose. It may
// not be imported outside integration.
package kit
