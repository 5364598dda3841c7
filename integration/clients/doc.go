// Package clients drives unchanged Kafka clients of several languages against
// the built binary: each produces with every codec that it has, and each
// consumer reads, without a group, what all of them wrote. And each has members
// in a consumer group, processes that come, leave, crash and come back.
//
// The table in clients_test.go says what each client can do. A client of Go is
// driven in the test's process; the others by the small scripts in testdata,
// one process a client, one JSON command a line. integration/tools.sh pins and
// installs them. It owns no code that runs outside tests.
package clients
