package locallog

import (
	"strandline/broker/segment"
	"strandline/metadata/cluster"
)

// Headers calls visit with the headers of the batches from the first local one
// that reaches past from, until it returns false or a batch begins at to or above.
// It returns the offset to go on at.
func (l *Log) Headers(from, to cluster.Offset, visit func(h segment.Header) bool) (next cluster.Offset, err error) {
	next = from
	err = l.consistently(func(s *segments) error {
		for _, seg := range s.row[s.at(next):] {
			if seg.Base() >= to {
				break
			}
			more := true
			err := seg.Headers(next, func(h segment.Header) bool {
				if h.Next <= next { // seen before a look at other files began
					return true
				}
				if h.Base >= to {
					next, more = to, false
				} else {
					next = h.Next
					more = visit(h)
				}
				return more
			})
			if err != nil || !more {
				return err
			}
		}
		next = max(next, to)
		return nil
	})
	return next, err
}
