package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

// spareProcessors are how many more processors the Go scheduler has while logs are
// compacted: one for a pass, one for the key index's own work.
//
// Where all of the scheduler's processors are busy nobody looks what came from the
// network, for up to ten milliseconds. With some to spare there is always a thread
// that waits for it, and the system gives a thread that has waited its turn at once.
const spareProcessors = 2

// garbagePercent is how much garbage there may be while logs are compacted, of what
// is in use. What a pass reads is garbage at once, and for the milliseconds of a
// collection the collector competes with everything for the processors.
const garbagePercent = 200

// scheduler is the process's.
var scheduler processors

// processors counts the servers of this process that compact.
type processors struct {
	mu struct {
		sync.Mutex
		servers int
		raised  bool
		spare   bool
		percent int // of garbage before; 0: as it is
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
	case compacts && !p.mu.raised:
		p.mu.raised = true
		if p.free() {
			p.mu.spare = true
			runtime.GOMAXPROCS(runtime.NumCPU() + spareProcessors)
		}
		if os.Getenv("GOGC") == "" {
			p.mu.percent = debug.SetGCPercent(garbagePercent)
		}
	case !compacts && p.mu.raised:
		p.mu.raised = false
		if p.mu.spare {
			p.mu.spare = false
			runtime.SetDefaultGOMAXPROCS() // which may have changed meanwhile, with the limit of a cgroup
		}
		if p.mu.percent > 0 {
			debug.SetGCPercent(p.mu.percent)
			p.mu.percent = 0
		}
	}
}

// free says that nothing but the machine bounds the number of processors: what the
// operator has set holds, and what goes past the limit of a cgroup is paid for by
// a stop of the whole process.
func (p *processors) free() bool {
	return os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == runtime.NumCPU()
}
