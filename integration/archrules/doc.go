// Package archrules keeps the import table of the project as a test: which
// package may import which, that planes import one way only, that every package
// has a package comment in doc.go, and what else about the tree a compiler
// cannot say. It owns no code that runs; it only reads source files.
package archrules
