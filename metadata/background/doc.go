// Package background gives work that has time threads that give way.
//
// It owns the priority of those threads. May not touch: the rest of the process,
// whose threads stay as they are.
package background
