// Package compaction compacts logs of running servers: beside Apache Kafka's
// cleaner on the same bytes, through kills, and beside producers who must not feel
// it.
//
// It holds tests alone. Files are written to the tests' own directories, and
// servers listen on loopback.
package compaction
