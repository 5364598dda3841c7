package wire

import (
	"path/filepath"
	"strings"

	"strandline/metadata/disk"
)

// ColdReadsPerDir bounds the threads that wait for one directory's disk.
const ColdReadsPerDir = 8

// Gate bounds, per directory, the reads that may block on a disk: each of them
// holds a thread while it does. Whoever comes when it is full waits.
type Gate struct {
	dirs  []string
	slots []chan struct{} // one more than dirs: files that are in none of them
	full  func()
}

// NewGate returns a gate for the directories below which files lie. full is told
// of every read that finds its directory's slots taken; it may be nil.
func NewGate(dirs []string, full func()) *Gate {
	if full == nil {
		full = func() {}
	}
	g := &Gate{slots: make([]chan struct{}, len(dirs)+1), full: full}
	for _, d := range dirs {
		g.dirs = append(g.dirs, filepath.ToSlash(filepath.Clean(d))+"/")
	}
	for i := range g.slots {
		g.slots[i] = make(chan struct{}, ColdReadsPerDir)
	}
	return g
}

// enter takes a slot and returns what gives it back.
func (g *Gate) enter(r disk.Region) (leave func()) {
	slot := g.slots[g.index(r.Handle.File().Name())]
	select {
	case slot <- struct{}{}:
	default:
		g.full()
		slot <- struct{}{}
	}
	return func() { <-slot }
}

func (g *Gate) index(name string) int {
	name = filepath.ToSlash(filepath.Clean(name))
	for i, d := range g.dirs {
		if strings.HasPrefix(name, d) {
			return i
		}
	}
	return len(g.dirs)
}
