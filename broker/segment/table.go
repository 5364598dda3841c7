package segment

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

const tablePageBytes = 4096

var tablePages = sync.Pool{New: func() any { return new([tablePageBytes]byte) }}

// table is an index as entries of one width, in memory or in a file.
type table struct {
	mem   []byte      // the entries, if src is nil
	src   io.ReaderAt // else where they are read from
	count int
	width int
}

// lastWhere returns the last entry for which ok holds and its place, given that
// it holds for some first ones and for none after; -1 where it holds for none.
// guess is the share of the entries, 0 to 1, where the end of those is thought
// to be. The entry is copied into the returned array.
func (t table) lastWhere(guess float64, ok func(entry []byte) bool) (entry [16]byte, place int, err error) {
	if t.src == nil {
		lo, hi := 0, t.count
		for lo < hi {
			mid := int(uint(lo+hi) / 2)
			if ok(t.mem[mid*t.width : (mid+1)*t.width]) {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		if lo > 0 {
			copy(entry[:], t.mem[(lo-1)*t.width:lo*t.width])
		}
		return entry, lo - 1, nil
	}
	return t.lastWhereInFile(guess, ok)
}

func (t table) lastWhereInFile(guess float64, ok func(entry []byte) bool) (entry [16]byte, place int, err error) {
	page := tablePages.Get().(*[tablePageBytes]byte)
	defer tablePages.Put(page)
	perPage := tablePageBytes / t.width
	// ok holds below lo and not from hi on.
	lo, hi := 0, t.count
	next := int(guess*float64(t.count)) - perPage/2
	for lo < hi {
		first := min(max(next, lo), max(lo, hi-perPage))
		n := min(perPage, hi-first)
		p := page[:n*t.width]
		if err := readFull(t.src, p, int64(first)*int64(t.width)); err != nil {
			return entry, -1, err
		}
		in := table{mem: p, count: n, width: t.width}
		e, i, _ := in.lastWhere(0, ok)
		if i >= 0 {
			entry, lo = e, first+i+1
		}
		if i < n-1 {
			hi = first + i + 1
		}
		next = (lo+hi)/2 - perPage/2
	}
	return entry, lo - 1, nil
}

// readFull reads all of p and takes an early end for an error.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at %d: %w", len(p), off, err)
}
