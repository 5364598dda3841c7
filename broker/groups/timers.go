package groups

import (
	"container/heap"
	"time"
)

// timers has the group that is due first on top.
type timers []*entry

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i, j
}

// Push is for package heap.
func (t *timers) Push(x any) {
	e := x.(*entry)
	e.place = len(*t)
	*t = append(*t, e)
}

// Pop is for package heap.
func (t *timers) Pop() any {
	last := len(*t) - 1
	e := (*t)[last]
	(*t)[last] = nil
	*t, e.place = (*t)[:last], -1
	return e
}

// set has e be due at a time; zero: never.
func (t *timers) set(e *entry, due time.Time) {
	switch {
	case due.IsZero():
		if e.place >= 0 {
			heap.Remove(t, e.place)
		}
	case e.place < 0:
		e.due = due
		heap.Push(t, e)
	case !e.due.Equal(due):
		e.due = due
		heap.Fix(t, e.place)
	}
}

// first is when the first group is due; zero: never.
func (t timers) first() time.Time {
	if len(t) == 0 {
		return time.Time{}
	}
	return t[0].due
}
