// Package disks runs the server on file systems that fill up, fail and are taken
// away, and on several log directories.
//
// It holds tests alone. Their file systems are mounted for the test that asks,
// which needs root; without, they are skipped with one line each.
package disks
