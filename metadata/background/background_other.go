//go:build !linux

package background

// Enter does nothing: a priority is that of the whole process here.
func Enter() {}

// Yield does nothing.
func Yield() {}
