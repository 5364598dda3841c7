// Package mem is an object store in memory: for tests, and for `mem:` as a
// store that forgets.
//
// Owns: a map from key to bytes. May not touch: files, sockets. Goroutines: none.
// Errors: *objstore.Error.
package mem
