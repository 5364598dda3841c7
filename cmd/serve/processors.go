package serve

import (
	"os"
	"runtime"
	"sync"
)

// spareProcessors are how many more processors the Go scheduler has while logs are
// compacted: one for a pass, one for the key index's own work.
//
// Where all of the scheduler's processors are busy nobody looks what came from the
// network, for up to ten milliseconds. With some to spare there is always a thread
// that waits for it, and the system gives a thread that has waited its turn at once.
const spareProcessors = 2

// scheduler is the process's.
var scheduler processors

// processors counts the servers of this process that compact.
type processors struct {
	mu struct {
		sync.Mutex
		servers int
		raised  bool
	}
}

// compacting is told when a server begins to compact, and when it does no more.
func (p *processors) compacting(busy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if busy {
		p.mu.servers++
	} else {
		p.mu.servers--
	}
	switch compacts := p.mu.servers > 0; {
	case compacts && !p.mu.raised && p.free():
		p.mu.raised = true
		runtime.GOMAXPROCS(runtime.NumCPU() + spareProcessors)
	case !compacts && p.mu.raised:
		p.mu.raised = false
		runtime.SetDefaultGOMAXPROCS() // which may have changed meanwhile, with the limit of a cgroup
	}
}

// free says that nothing but the machine bounds the number of processors: what the
// operator has set holds, and what goes past the limit of a cgroup is paid for by
// a stop of the whole process.
func (p *processors) free() bool {
	return os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == runtime.NumCPU()
}
