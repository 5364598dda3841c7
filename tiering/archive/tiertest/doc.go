// Package tiertest has the doubles that the tests of the tier share: a catalog
// in memory that obeys the real rules, and a replica made of generated batches.
//
// It is for tests only. Goroutines: none. Files: those of the file system that
// it is given.
package tiertest
