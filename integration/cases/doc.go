// Package cases holds, row by row, behaviours that users of Kafka and of brokers
// like it have reported as broken somewhere, each tried on the real binary over
// sockets, with its neighbours: other versions, several partitions, null and
// empty values, concurrent callers.
//
// A row's id stands in its subtest's name. Tests of a file share one server where
// its settings allow. With STRANDLINE_REFERENCE=host:port the tests that need no
// settings of their own run against that broker instead, which is how what they
// expect is compared with Apache Kafka. What is in testdata is recorded so.
//
// It owns the servers that it starts and no files.
package cases
