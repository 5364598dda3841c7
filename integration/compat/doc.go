// Package compat holds the tests with tools and clients that are not ours:
// Apache Kafka's command-line tools, kcat, kafka-python, unchanged, with their
// output asserted. It owns no code that runs outside tests.
package compat
