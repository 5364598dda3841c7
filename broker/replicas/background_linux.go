package replicas

import (
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	// backgroundNice is by how much compaction's threads are nicer than the others: where
	// they compete for a processor they get about a tenth of it.
	backgroundNice = 10
	niceMax        = 19
)

// inBackground gives the goroutine a thread of its own with a lower priority, for
// the rest of its life: the priority cannot be raised again.
func inBackground() {
	runtime.LockOSThread()
	prio, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // of the thread; 20 - nice
	if err != nil {
		return
	}
	// Where it is refused compaction is as fast as everything else.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, min(20-prio+backgroundNice, niceMax))
}
