package segment

import "strandline/metadata/cluster"

// boundariesKept is how many batch boundaries a segment remembers. Consumers
// that follow one another's fetches, and those at the tail, ask for few others.
const boundariesKept = 16

// boundaries remembers which offsets a batch was last seen to end before, and
// where: a ring. What it says stays true while the file is only appended to.
type boundaries struct {
	ring []boundary
	at   int
}

type boundary struct {
	next cluster.Offset // exclusive end of a batch
	end  int64          // position where that batch ends
}

func (r *boundaries) add(next cluster.Offset, end int64) {
	if r.ring == nil {
		r.ring = make([]boundary, 0, boundariesKept)
	}
	b := boundary{next, end}
	if len(r.ring) < boundariesKept {
		r.ring = append(r.ring, b)
		return
	}
	r.ring[r.at] = b
	r.at = (r.at + 1) % boundariesKept
}

func (r *boundaries) find(next cluster.Offset) (int64, bool) {
	for _, b := range r.ring {
		if b.next == next {
			return b.end, true
		}
	}
	return 0, false
}

// writeMarks remembers which part of a file was written last: at each mark how
// many bytes had been written, everywhere, before it.
type writeMarks struct{ marks []writeMark }

type writeMark struct {
	position int64
	total    int64
}

const (
	writeMarksKept = 17
	// writeMarkBytes is how far marks are apart at least: 16 of them span 64 MiB.
	writeMarkBytes = 4 << 20
)

func (w *writeMarks) add(position, total int64) {
	if n := len(w.marks); n > 0 && position-w.marks[n-1].position < writeMarkBytes {
		return
	}
	if len(w.marks) == writeMarksKept {
		copy(w.marks, w.marks[1:])
		w.marks = w.marks[:writeMarksKept-1]
	}
	w.marks = append(w.marks, writeMark{position, total})
}

// Resident says whether everything from position on was written when the
// running count of bytes written had reached since.
func (s *Segment) Resident(position, since int64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := len(s.mu.marks.marks) - 1; i >= 0; i-- {
		m := s.mu.marks.marks[i]
		if m.position <= position {
			return m.total >= since
		}
	}
	return false
}
