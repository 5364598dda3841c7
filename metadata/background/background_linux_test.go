package background

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestOnlyItsOwnThreadIsNicer: what runs in the background takes no priority from
// anything else.
func TestOnlyItsOwnThreadIsNicer(t *testing.T) {
	type thread struct {
		nice  int32
		slice time.Duration // 0: the system does not tell
	}
	now := func() thread {
		attr, err := unix.SchedGetAttr(0, 0)
		require.NoError(t, err)
		return thread{attr.Nice, time.Duration(attr.Runtime)}
	}
	before := now()
	nicer := thread{min(before.nice+nice, niceMax), slice}
	if before.slice == 0 {
		nicer.slice = 0
	}
	for range 3 {
		within := make(chan thread)
		go func() {
			Enter()
			within <- now()
		}()
		require.Equal(t, nicer, <-within)
	}
	done := make(chan thread)
	for range 50 { // on whatever threads there are
		go func() { done <- now() }()
	}
	for range 50 {
		require.Equal(t, before, <-done)
	}
}
