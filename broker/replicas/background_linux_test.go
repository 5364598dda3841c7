package replicas

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestOnlyItsOwnThreadIsNicer: what runs in the background takes no priority from
// anything else.
func TestOnlyItsOwnThreadIsNicer(t *testing.T) {
	nice := func() int {
		prio, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		require.NoError(t, err)
		return 20 - prio
	}
	before := nice()
	for range 3 {
		within := make(chan int)
		go func() {
			inBackground()
			within <- nice()
		}()
		require.Equal(t, min(before+backgroundNice, niceMax), <-within)
	}
	done := make(chan int)
	for range 50 { // on whatever threads there are
		go func() { done <- nice() }()
	}
	for range 50 {
		require.Equal(t, before, <-done)
	}
}
