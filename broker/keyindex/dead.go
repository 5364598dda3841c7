package keyindex

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"iter"

	"strandline/metadata/cluster"
	"strandline/metadata/store"
)

// Dead yields the dead offsets of the segments with a base offset in [from, to),
// rising. It holds the database open while it runs, and one list of each merge in
// memory that has one where it is.
func (p *Partition) Dead(from, to cluster.Offset) iter.Seq2[cluster.Offset, error] {
	return func(yield func(cluster.Offset, error) bool) {
		next, stop := iter.Pull2(p.db.Scan(store.KeyIndexDead(p.meta.id, from, to)))
		defer stop()
		var open runs
		for e, err, more := next(); more || len(open) > 0; {
			// Lists of a segment come by their first offset, segments by their base.
			for more && err == nil && (len(open) == 0 || store.KeyIndexDeadFirst(e.Key) <= open[0].offset) {
				heap.Push(&open, &run{store.KeyIndexDeadFirst(e.Key), append([]byte(nil), e.Value...)})
				e, err, more = next()
			}
			if err != nil {
				yield(0, err)
				return
			}
			r := open[0]
			if !yield(r.offset, nil) {
				return
			}
			switch ended, err := r.next(); {
			case err != nil:
				yield(0, err)
				return
			case ended:
				heap.Pop(&open)
			default:
				heap.Fix(&open, 0)
			}
		}
	}
}

// run is a list of dead offsets at one of them.
type run struct {
	offset cluster.Offset
	rest   []byte
}

func (r *run) next() (ended bool, err error) {
	if len(r.rest) == 0 {
		return true, nil
	}
	delta, n := binary.Uvarint(r.rest)
	if n <= 0 || delta == 0 {
		return true, fmt.Errorf("%w: a list of dead offsets", ErrCorrupt)
	}
	r.offset += cluster.Offset(delta)
	r.rest = r.rest[n:]
	return false, nil
}

// runs is a heap by offset.
type runs []*run

func (r runs) Len() int           { return len(r) }
func (r runs) Less(i, j int) bool { return r[i].offset < r[j].offset }
func (r runs) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *runs) Push(x any)        { *r = append(*r, x.(*run)) }
func (r *runs) Pop() any {
	old := *r
	last := old[len(old)-1]
	*r = old[:len(old)-1]
	return last
}
