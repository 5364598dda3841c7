// Package scale has one broker host thousands of partitions, and keep a catalog
// of a hundred thousand remote segments.
//
// It holds tests alone. The short form asserts what must not grow with the
// number of partitions; the long one (make test-long-scale) prints what each
// step costs, beside Apache Kafka where its tools are installed.
package scale
