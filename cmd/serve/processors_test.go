package serve

import (
	"runtime"
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
