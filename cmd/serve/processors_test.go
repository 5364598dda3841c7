package serve

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProcessorsWhileCompacting: some more while any server compacts, and what
// they were after it.
func TestProcessorsWhileCompacting(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	t.Cleanup(runtime.SetDefaultGOMAXPROCS)
	cpus := runtime.NumCPU()
	runtime.GOMAXPROCS(cpus)
	var p processors
	p.compacting(true)
	require.Equal(t, cpus+spareProcessors, runtime.GOMAXPROCS(0))
	p.compacting(true)
	require.Equal(t, cpus+spareProcessors, runtime.GOMAXPROCS(0))
	p.compacting(false)
	require.Equal(t, cpus+spareProcessors, runtime.GOMAXPROCS(0), "one still does")
	p.compacting(false)
	runtime.SetDefaultGOMAXPROCS()
	usual := runtime.GOMAXPROCS(0)
	p.compacting(true)
	p.compacting(false)
	require.Equal(t, usual, runtime.GOMAXPROCS(0))
}

// TestGarbageWhileCompacting: more of it, except where the operator has said how much.
func TestGarbageWhileCompacting(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(90)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	now := func() int {
		percent := debug.SetGCPercent(50)
		debug.SetGCPercent(percent)
		return percent
	}
	var p processors
	p.compacting(true)
	p.compacting(true)
	require.Equal(t, garbagePercent, now())
	p.compacting(false)
	require.Equal(t, garbagePercent, now())
	p.compacting(false)
	require.Equal(t, 90, now())
	t.Setenv("GOGC", "90")
	p.compacting(true)
	require.Equal(t, 90, now())
	p.compacting(false)
	require.Equal(t, 90, now())
}

// TestProcessorsThatAreBounded, by the operator or a cgroup, stay as they are.
func TestProcessorsThatAreBounded(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	t.Cleanup(runtime.SetDefaultGOMAXPROCS)
	var p processors
	bounded := runtime.NumCPU() + 5 // a number that is not the machine's
	runtime.GOMAXPROCS(bounded)
	p.compacting(true)
	require.Equal(t, bounded, runtime.GOMAXPROCS(0))
	p.compacting(false)
	require.Equal(t, bounded, runtime.GOMAXPROCS(0))

	runtime.GOMAXPROCS(runtime.NumCPU())
	t.Setenv("GOMAXPROCS", "3")
	p.compacting(true)
	require.Equal(t, runtime.NumCPU(), runtime.GOMAXPROCS(0))
	p.compacting(false)
	require.Equal(t, runtime.NumCPU(), runtime.GOMAXPROCS(0))
}
