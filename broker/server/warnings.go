package server

import (
	"sync"
	"time"
)

// warnEvery is how often a reason for which connections end is logged as a
// warning: who can connect must not fill the log. The metric counts all.
const warnEvery = 10 * time.Second

// warnings bounds the log lines of a kind. The zero value is ready.
type warnings struct {
	mu    sync.Mutex
	kinds map[string]*warned // bounded by the reasons there are
}

type warned struct {
	last       time.Time
	suppressed int
}

// admit says whether another line of a kind is logged, and how many were not
// since the last one that was.
func (w *warnings) admit(kind string, now time.Time) (suppressed int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kinds == nil {
		w.kinds = map[string]*warned{}
	}
	k := w.kinds[kind]
	if k == nil {
		k = &warned{}
		w.kinds[kind] = k
	} else if now.Sub(k.last) < warnEvery {
		k.suppressed++
		return 0, false
	}
	suppressed, k.suppressed, k.last = k.suppressed, 0, now
	return suppressed, true
}
