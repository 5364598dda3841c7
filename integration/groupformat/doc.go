// Package groupformat compares what this project knows of Apache Kafka's group
// coordinator with Apache Kafka's own classes: the bytes of the records of
// consumer groups, the hashes in them, and what the assignors decide. The samples
// are golden files of the packages that they are about.
//
// It owns no files but, where asked to record them anew, those.
package groupformat
