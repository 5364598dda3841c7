package serve

import "syscall"

// fewDescriptors is the limit below which the start says how many connections
// that leaves.
const fewDescriptors = 4096

// connections is how many client connections are taken at once: no more than
// half of the process's file descriptors, whatever max.connections says. The
// others are for segments, metadata and the tier, so that however many clients
// come, a log can still begin its next segment.
func connections(configured int32, descriptors uint64) int {
	return int(min(uint64(configured), max(descriptors/2, 1)))
}

// descriptors is the limit of file descriptors of this process.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fewDescriptors
	}
	return limit.Cur
}
