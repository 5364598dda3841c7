// Package configs shows the effect of every configuration key: a table has a row
// for each key that package config calls effective, and a row is a function that
// sees the effect from outside (a socket, a file, a metric, the log) on a running
// server, or, where one broker cannot show it, on the part that the key is for.
// The test fails when a key has no row, so that none can be advertised without
// an effect.
//
// Keys of topics are changed while the topic is in use, on the topic and once
// more through the broker key that gives their default. The other tests of the
// package take all keys from the tables too: precedence, types, bounds, what is
// refused, what is warned of.
//
// It owns the servers that it starts and no files.
package configs
