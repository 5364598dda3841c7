package store

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"strandline/metadata/background"
)

// scheduler lets the engine merge its tables on threads that give way, as many at a
// time as the engine itself allows. It is what the engine's own scheduler is, which
// cannot tell the goroutines of a merge that they are.
type scheduler struct {
	db       pebble.DBForCompaction
	mu       sync.Mutex
	running  int // merges
	granting bool
	idle     sync.Cond // granting ended
	closed   bool
}

var _ pebble.CompactionScheduler = (*scheduler)(nil)

// Register implements pebble.CompactionScheduler.
func (s *scheduler) Register(_ int, db pebble.DBForCompaction) {
	s.db = db
	s.idle.L = &s.mu
}

// Unregister implements pebble.CompactionScheduler.
func (s *scheduler) Unregister() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for s.granting {
		s.idle.Wait()
	}
}

// TrySchedule implements pebble.CompactionScheduler.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.running >= s.db.GetAllowedWithoutPermission() {
		return false, nil
	}
	s.running++
	return true, grant{s}
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler. The
// engine tries again itself after each flush and each merge.
func (s *scheduler) UpdateGetAllowedWithoutPermission() {}

// grantMore lets merges begin that wait for one that ended.
func (s *scheduler) grantMore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	for s.granting {
		s.idle.Wait()
	}
	s.granting = true
	for !s.closed && s.running < s.db.GetAllowedWithoutPermission() {
		s.mu.Unlock() // the engine takes its own locks
		waiting, _ := s.db.GetWaitingCompaction()
		began := waiting && s.db.Schedule(grant{s})
		s.mu.Lock()
		if !began {
			break
		}
		// Not before: whoever is refused by TrySchedule is not heard of again until a
		// merge ends, so that only merges may count there.
		s.running++
	}
	s.granting = false
	s.idle.Broadcast()
}

// grant is a merge's.
type grant struct{ s *scheduler }

func (grant) Started() {}

// MeasureCPU is called by each goroutine of a merge as it begins, and often.
func (grant) MeasureCPU(pebble.CompactionGoroutineKind) {
	background.Enter()
	background.Yield()
}

func (grant) CumulativeStats(pebble.CompactionGrantHandleStats) {}

func (g grant) Done() { g.s.grantMore() }
