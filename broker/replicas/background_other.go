//go:build !linux

package replicas

// inBackground does nothing: a priority is that of the whole process here.
func inBackground() {}
