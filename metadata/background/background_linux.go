package background

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// nice is by how much the threads are nicer than the others: where they compete
	// for a processor they get about a tenth of it. Not more: a collection of garbage
	// waits for them.
	nice    = 10
	niceMax = 19
	// slice is the longest that there is (Linux 6.12 and later): whoever wakes with a
	// shorter one, as by default, is given the processor at once. With a short one the
	// nice thread's turn would end first, and others would wait for that.
	slice = 100 * time.Millisecond
)

// usual is the priority of the process's threads as it began, 20 - nice.
var usual, usualErr = unix.Getpriority(unix.PRIO_PROCESS, 0)

// Enter gives the goroutine a thread of its own with a lower priority, for the rest
// of its life: the priority cannot be raised again. Once more changes nothing, and
// costs a tenth of a microsecond.
func Enter() {
	prio, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // of the thread
	if err != nil || usualErr != nil || prio < usual {
		return // or there already: no other goroutine has such a thread
	}
	runtime.LockOSThread()
	// Where the system refuses, the work has the priority of everything else.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, min(20-prio+nice, niceMax))
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL && attr.Policy != unix.SCHED_BATCH {
		return
	}
	attr.Runtime = uint64(slice)
	_ = unix.SchedSetAttr(0, attr, 0)
}

// Yield lets others have the processor that wait for it. The system looks whether
// anybody does when a thread is woken, and may leave the processor to whom it has
// until its next tick, milliseconds later. It costs half a microsecond where nobody
// waits.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
