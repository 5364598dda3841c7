// Package varint is the byte-level vocabulary of the metadata codecs: append
// functions for numbers, strings, identifiers and lists, and a Reader that
// never panics and never allocates more than its input pays for.
//
// Owns: nothing but bytes. May not touch: files, sockets. Goroutines: none.
//
// Errors: a Reader keeps its first error with the position where it happened;
// the codecs turn it into their own corruption error.
package varint
