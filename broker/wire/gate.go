package wire

import (
	"path/filepath"
	"strings"
	"sync/atomic"

	"strandline/metadata/disk"
)

// ColdReadsPerDir bounds the threads that wait for one directory's disk.
const ColdReadsPerDir = 8

// Gate bounds, per directory, the reads that may block on a disk: each of them
// holds a thread while it does. Whoever comes when it is full waits.
type Gate struct {
	dirs  []string
	slots []chan struct{} // one more than dirs: files that are in none of them
	waits atomic.Int64
}

// NewGate returns a gate for the directories below which files lie.
func NewGate(dirs []string) *Gate {
	g := &Gate{slots: make([]chan struct{}, len(dirs)+1)}
	for _, d := range dirs {
		g.dirs = append(g.dirs, filepath.ToSlash(filepath.Clean(d))+"/")
	}
	for i := range g.slots {
		g.slots[i] = make(chan struct{}, ColdReadsPerDir)
	}
	return g
}

// Waits counts how often a read found its directory's slots taken.
func (g *Gate) Waits() int64 { return g.waits.Load() }

// enter takes a slot and returns what gives it back.
func (g *Gate) enter(r disk.Region) (leave func()) {
	slot := g.slots[g.index(r.Handle.File().Name())]
	select {
	case slot <- struct{}{}:
	default:
		g.waits.Add(1)
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
