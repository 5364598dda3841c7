package kit

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starts are asked of the one thread that starts processes.
var starts = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

// StartChild is cmd.Start of a process that is killed when this one ends, however it
// does. The kernel does that when the thread ends that started it: this one never
// does, as Go's others may.
func StartChild(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	starts() <- func() { result <- cmd.Start() }
	return <-result
}
